/* Row m by block m: which of the uncertain candidates are kept, then the best of all and the log-sum-exp. */
#ifndef DRAFTSMITH_HEAD_HOPPER_OUTPUTS_CUH
#define DRAFTSMITH_HEAD_HOPPER_OUTPUTS_CUH

#include "head_hopper_shared.cuh"

namespace draftsmith {

enum { MOST_LISTED = FUSED_OUTPUTS * FUSED_OUTPUTS + MOST_UNCERTAIN, MOST_BLOCKS = 256 };

/* In the place of the ring. */
struct MergeShared {
    uint64_t list[MOST_LISTED];
    uint64_t order[MOST_UNCERTAIN];    /* of the uncertain: key and id */
    uint64_t uncertain[MOST_UNCERTAIN]; /* candidate_key, 0: NaN */
    uint64_t kept[MOST_UNCERTAIN];      /* of those that are kept, in their order */
    float2 sums[MOST_BLOCKS];
    uint64_t floor; /* at least num_outputs candidates reach it, or it is 0 */
    float log_sum_exp;
    int num_listed;
    uint64_t best[1]; /* [blocks, out] */
};

/* The num_outputs-th greatest of the blocks' best: two threads a block. */
__device__ __forceinline__ void find_merge_floor(MergeShared &merge, int num_outputs, int thread, int num_threads)
{
    const int num_blocks = gridDim.x, parity = thread & 1;
    for (int start = 0; start < num_blocks; start += num_threads / 2) {
        const int index = start + thread / 2;
        const uint64_t mine = index < num_blocks ? merge.best[index * num_outputs] : ~0ull;
        int num_above = 0;
#pragma unroll 4
        for (int i = parity; i < num_blocks; i += 2)
            num_above += merge.best[i * num_outputs] > mine;
        num_above += __shfl_xor_sync(0xffffffffu, num_above, 1);
        if (parity == 0 && index < num_blocks && num_above < num_outputs)
            atomicMin(reinterpret_cast<unsigned long long *>(&merge.floor), (unsigned long long)mine);
    }
}

__device__ __forceinline__ void settle_uncertain(const FusedJob &job, MergeShared &merge, int m, int count,
                                                 int num_needed, int thread, int num_threads)
{
    for (int i = thread; i < count; i += num_threads) {
        const uint64_t mine = merge.order[i];
        int num_above = 0;
#pragma unroll 4
        for (int j = 0; j < count; j++)
            num_above += merge.order[j] > mine;
        if (num_above < num_needed) {
            merge.kept[num_above] = merge.uncertain[i];
            note_chosen(job, m, (int)~(uint32_t)mine);
        }
    }
}

/* By warp 0: over the blocks in their order, then over the kept in theirs. */
__device__ __forceinline__ float sum_row(const MergeShared &merge, int num_kept)
{
    const int num_blocks = gridDim.x, count = num_blocks + num_kept;
    float greatest = -INFINITY, sum = 0.0f;
    bool has_nan = false;
#pragma unroll 1
    for (int i = threadIdx.x; i < count; i += 32) {
        const uint64_t key = i < num_blocks ? 1 : merge.kept[i - num_blocks];
        const float2 one = i < num_blocks ? merge.sums[i] : make_float2(logit_of_candidate(key), 1.0f);
        has_nan |= key == 0 || one.y != one.y;
        greatest = fmaxf(greatest, one.x);
    }
    has_nan = __any_sync(0xffffffffu, has_nan);
#pragma unroll
    for (int step = 1; step < 32; step *= 2)
        greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, step));
    if (has_nan || !isfinite(greatest))
        return has_nan ? NAN : greatest;
#pragma unroll 1
    for (int i = threadIdx.x; i < count; i += 32) {
        const float2 one =
            i < num_blocks ? merge.sums[i] : make_float2(logit_of_candidate(merge.kept[i - num_blocks]), 1.0f);
        sum += one.y * expf(one.x - greatest);
    }
    return greatest + logf(sum_lanes(sum));
}

__device__ __forceinline__ void list_if_above(MergeShared &merge, uint64_t key, uint64_t floor)
{
    if (key >= floor)
        merge.list[atomicAdd(&merge.num_listed, 1)] = key;
}

/* Loads what the blocks left for row m. */
__device__ __forceinline__ void load_merge(const Block &block, MergeShared &merge, int m, int num_uncertain)
{
    const FusedJob &job = block.job;
    const int count = gridDim.x * job.num_outputs;
    const uint64_t *const best = job.workspace.best + (size_t)m * count;
    if (threadIdx.x == 0)
        merge.floor = ~0ull, merge.num_listed = 0;
    for (int i = threadIdx.x; i < num_uncertain; i += FUSED_THREADS) {
        const uint4 one = __ldcg(job.workspace.uncertain + m * MOST_UNCERTAIN + i);
        const float logit = __uint_as_float(one.z);
        merge.order[i] = (uint64_t)one.x << 32 | (uint32_t)~one.y;
        merge.uncertain[i] = logit != logit ? 0 : candidate_key(logit, (int32_t)one.y);
    }
    for (int i = threadIdx.x; i < (int)gridDim.x; i += FUSED_THREADS)
        merge.sums[i] = __ldcg(job.workspace.sums + (size_t)m * gridDim.x + i);
#pragma unroll 4
    for (int i = threadIdx.x; i < count; i += FUSED_THREADS)
        merge.best[i] = __ldcg(reinterpret_cast<const unsigned long long *>(best + i));
    __syncthreads();
}

__device__ __forceinline__ void write_row(const Block &block, int m)
{
    const FusedJob &job = block.job;
    constexpr int FLOOR_THREADS = FUSED_THREADS * 3 / 4;
    const int thread = threadIdx.x, num_outputs = job.num_outputs;
    MergeShared &merge = *reinterpret_cast<MergeShared *>(block.memory);
    int32_t *const ids = job.candidate_ids + (size_t)m * num_outputs;
    float *const logits = job.candidate_logits + (size_t)m * num_outputs;
    const int num_uncertain = block.shared.is_exact || job.request_of_row ? 0 : block.shared.num_in_bin[m];
    const int num_kept = num_uncertain ? block.shared.num_needed[m] : 0;
    load_merge(block, merge, m, num_uncertain);
    if (thread < FLOOR_THREADS)
        find_merge_floor(merge, num_outputs, thread, FLOOR_THREADS);
    else
        settle_uncertain(job, merge, m, num_uncertain, num_kept, thread - FLOOR_THREADS,
                         FUSED_THREADS - FLOOR_THREADS);
    __syncthreads();
    const uint64_t floor = merge.floor > 1 ? merge.floor : 1;
    for (int i = thread; i < (int)gridDim.x * num_outputs; i += FUSED_THREADS)
        list_if_above(merge, merge.best[i], floor);
    for (int i = thread; i < num_kept; i += FUSED_THREADS)
        list_if_above(merge, merge.kept[i], floor);
    if (thread < 32) {
        const float sum = sum_row(merge, num_kept);
        if (thread == 0)
            merge.log_sum_exp = sum;
    }
    __syncthreads();
    const float log_sum_exp = merge.log_sum_exp;
    if (log_sum_exp != log_sum_exp) {
        write_broken_row(num_outputs, ids, logits, job.log_sum_exp + m);
        return;
    }
    if (thread == 0)
        job.log_sum_exp[m] = log_sum_exp;
    const int num_listed = merge.num_listed;
    for (int i = thread; i < num_listed; i += FUSED_THREADS) {
        const uint64_t key = merge.list[i];
        int rank = 0;
        for (int j = 0; j < num_listed; j++)
            rank += merge.list[j] > key;
        if (rank < num_outputs) {
            ids[rank] = id_of_candidate(key);
            logits[rank] = logit_of_candidate(key);
        }
    }
    for (int i = num_listed + thread; i < num_outputs; i += FUSED_THREADS) {
        ids[i] = -1;
        logits[i] = -INFINITY;
    }
}

} // namespace draftsmith

#endif
