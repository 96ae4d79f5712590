/* Row m by block m: which of the uncertain candidates are kept, then the best of all and the log-sum-exp. Everything is
 * asked for at once, and two barriers lie between that and the outputs: this is the end of the critical path. */
#ifndef DRAFTSMITH_HEAD_HOPPER_OUTPUTS_CUH
#define DRAFTSMITH_HEAD_HOPPER_OUTPUTS_CUH

#include "head_hopper_shared.cuh"

namespace draftsmith {

enum { MOST_LISTED = FUSED_OUTPUTS * FUSED_OUTPUTS + MOST_UNCERTAIN, MOST_BLOCKS = 256 };
static_assert(MOST_UNCERTAIN <= FUSED_THREADS, "a thread takes one");

/* In the place of the ring. */
struct MergeShared {
    uint64_t list[MOST_LISTED];
    uint64_t order[MOST_UNCERTAIN];     /* of the uncertain: key and id */
    uint64_t uncertain[MOST_UNCERTAIN]; /* candidate_key, 0: NaN */
    uint64_t kept[MOST_UNCERTAIN];      /* of those that are kept, in their order */
    uint64_t floor;                     /* at least num_outputs candidates reach it, or it is 1 */
    uint64_t heads[MOST_BLOCKS];        /* each block's greatest candidate_key, 0: none */
    float2 sum;                         /* of the blocks: greatest logit, sum of exponentials relative to it */
    int num_listed, has_nan;
};

/* The num_outputs-th greatest of the blocks' best, or 1 where there are fewer; two threads each. */
__device__ __forceinline__ void find_merge_floor(MergeShared &merge, int num_outputs)
{
    static_assert(2 * MOST_BLOCKS <= FUSED_THREADS, "two threads a block");
    const int i = threadIdx.x / 2, num_blocks = gridDim.x;
    const uint64_t mine = i < num_blocks ? merge.heads[i] : 0;
    int num_above = 0;
#pragma unroll 8
    for (int j = threadIdx.x % 2; j < num_blocks; j += 2)
        num_above += merge.heads[j] > mine;
    num_above += __shfl_xor_sync(0xffffffffu, num_above, 1);
    if (mine != 0 && num_above == num_outputs - 1)
        merge.floor = mine;
}

/* A lane's part of the blocks' sums: those of blocks lane, lane + 32, ... */
struct BlockSums {
    enum { PARTS = MOST_BLOCKS / 32 };
    float2 parts[PARTS];

    __device__ __forceinline__ void load(const float2 *sums)
    {
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int i = 0; i < PARTS; i++)
            parts[i] = lane + 32 * i < gridDim.x ? __ldcg(sums + lane + 32 * i) : make_float2(-INFINITY, 0.0f);
    }

    /* By a warp: all of them, in their order. */
    __device__ __forceinline__ void add_up(MergeShared &merge) const
    {
        float greatest = -INFINITY, sum = 0.0f;
        bool has_nan = false;
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            has_nan |= parts[i].y != parts[i].y;
            greatest = fmaxf(greatest, parts[i].x);
        }
#pragma unroll
        for (int step = 1; step < 32; step *= 2)
            greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, step));
#pragma unroll
        for (int i = 0; i < PARTS; i++)
            sum += parts[i].y > 0.0f ? parts[i].y * expf(parts[i].x - greatest) : 0.0f;
        sum = sum_lanes(sum);
        if (has_nan)
            merge.has_nan = 1;
        if ((threadIdx.x & 31) == 0)
            merge.sum = make_float2(greatest, sum);
    }
};

/* By a warp: log-sum-exp over the blocks and the kept. */
__device__ __forceinline__ float finish_sum(const MergeShared &merge, int num_kept)
{
    float greatest = merge.sum.x, sum = 0.0f;
#pragma unroll 1
    for (int i = threadIdx.x & 31; i < num_kept; i += 32)
        greatest = fmaxf(greatest, logit_of_candidate(merge.kept[i]));
#pragma unroll
    for (int step = 1; step < 32; step *= 2)
        greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, step));
    if (!isfinite(greatest))
        return greatest;
#pragma unroll 1
    for (int i = threadIdx.x & 31; i < num_kept; i += 32)
        sum += expf(logit_of_candidate(merge.kept[i]) - greatest);
    return greatest + logf(sum_lanes(sum) + merge.sum.y * expf(merge.sum.x - greatest));
}

__device__ __forceinline__ void list_if_above(MergeShared &merge, uint64_t key, uint64_t floor)
{
    if (key >= floor)
        merge.list[atomicAdd(&merge.num_listed, 1)] = key;
}

/* The best num_needed of the uncertain are kept; four threads each. By all threads of whole warps. */
__device__ __forceinline__ void settle_uncertain(const FusedJob &job, MergeShared &merge, int m, int count,
                                                 int num_needed)
{
    enum { SHARE = 4 };
    const int part = threadIdx.x % SHARE;
#pragma unroll 1
    for (int start = 0; start < count; start += FUSED_THREADS / SHARE) {
        const int i = start + (int)threadIdx.x / SHARE;
        const uint64_t mine = i < count ? merge.order[i] : ~0ull;
        int num_above = 0;
#pragma unroll 4
        for (int j = part; j < count; j += SHARE)
            num_above += merge.order[j] > mine;
        num_above += __shfl_xor_sync(0xffffffffu, num_above, 1);
        num_above += __shfl_xor_sync(0xffffffffu, num_above, 2);
        if (part != 0 || i >= count || num_above >= num_needed)
            continue;
        const uint64_t candidate = merge.uncertain[i];
        merge.kept[num_above] = candidate;
        if (candidate == 0)
            merge.has_nan = 1;
        else
            list_if_above(merge, candidate, merge.floor);
        note_chosen(job, m, (int)~(uint32_t)mine);
    }
}

__device__ __forceinline__ void write_row(const Block &block, int m)
{
    enum { KEYS = 3 }; /* that a thread asks for at once: ten outputs of 132 blocks have no more */
    enum { SUMMING_WARP = FUSED_WARPS - 1 };
    const FusedJob &job = block.job;
    const int thread = threadIdx.x, warp = block.warp(), num_outputs = job.num_outputs;
    MergeShared &merge = *reinterpret_cast<MergeShared *>(block.memory);
    int32_t *const ids = job.candidate_ids + (size_t)m * num_outputs;
    float *const logits = job.candidate_logits + (size_t)m * num_outputs;
    const int num_uncertain = block.shared.is_exact || job.request_of_row ? 0 : block.shared.num_in_bin[m];
    const int num_kept = num_uncertain ? block.shared.num_needed[m] : 0;
    const int count = gridDim.x * num_outputs;
    const uint64_t *const best = job.workspace.best + (size_t)m * count;
    const auto key_at = [&](int i) {
        return i < count ? __ldcg(reinterpret_cast<const unsigned long long *>(best + i)) : 0ull;
    };
    uint64_t keys[KEYS];
#pragma unroll
    for (int i = 0; i < KEYS; i++)
        keys[i] = key_at(thread + i * FUSED_THREADS);
    const uint4 one = thread < num_uncertain ? __ldcg(job.workspace.uncertain + m * MOST_UNCERTAIN + thread)
                                             : make_uint4(0, 0, 0, 0);
    const uint64_t head = key_at(thread < gridDim.x ? thread * num_outputs : count);
    BlockSums sums;
    if (warp == SUMMING_WARP)
        sums.load(job.workspace.sums + (size_t)m * gridDim.x);
    if (thread < gridDim.x)
        merge.heads[thread] = head;
    if (thread == 0) {
        merge.num_listed = merge.has_nan = 0;
        merge.floor = 1;
    }
    __syncthreads();
    find_merge_floor(merge, num_outputs);
    if (warp == SUMMING_WARP)
        sums.add_up(merge);
    if (thread < num_uncertain) {
        const float logit = __uint_as_float(one.z);
        merge.order[thread] = (uint64_t)one.x << 32 | (uint32_t)~one.y;
        merge.uncertain[thread] = logit != logit ? 0 : candidate_key(logit, (int32_t)one.y);
    }
    __syncthreads();
    const uint64_t floor = merge.floor;
#pragma unroll
    for (int i = 0; i < KEYS; i++)
        list_if_above(merge, keys[i], floor);
    for (int i = thread + KEYS * FUSED_THREADS; i < count; i += FUSED_THREADS)
        list_if_above(merge, key_at(i), floor);
    settle_uncertain(job, merge, m, num_uncertain, num_kept);
    __syncthreads();
    if (merge.has_nan) {
        write_broken_row(num_outputs, ids, logits, job.log_sum_exp + m);
        return;
    }
    if (warp == SUMMING_WARP) {
        const float log_sum_exp = finish_sum(merge, num_kept);
        if (block.lane() == 0)
            job.log_sum_exp[m] = log_sum_exp;
    }
    write_best(merge.list, merge.num_listed, num_outputs, ids, logits);
}

} // namespace draftsmith

#endif
