/* The fused kernel and its launch, for one set of types and classes of size. */
#ifndef DRAFTSMITH_HEAD_HOPPER_KERNEL_CUH
#define DRAFTSMITH_HEAD_HOPPER_KERNEL_CUH

#include <cooperative_groups.h>

#include "head_hopper.h"
#include "ranking_operand.cuh"
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#include "head_hopper_gather.cuh"
#include "head_hopper_outputs.cuh"
#include "head_hopper_ranking.cuh"
#include "head_hopper_sharing.cuh"
#include "head_hopper_unions.cuh"
#endif

namespace draftsmith {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ __forceinline__ void zero_words(void *words, size_t num_bytes)
{
    uint4 *const all = static_cast<uint4 *>(words);
    const size_t count = num_bytes / 16, step = gridDim.x * FUSED_THREADS;
    for (size_t i = blockIdx.x * FUSED_THREADS + threadIdx.x; i < count; i += step)
        all[i] = make_uint4(0, 0, 0, 0);
}

/* By one lane of a warp that has `ring`: nothing else uses the barriers before a barrier of the block. */
__device__ __forceinline__ void start_ring(const Block &block, const TileRing &ring)
{
    for (int slot = 0; slot < block.job.ring_slots; slot++)
        init_copy_barrier(ring.barriers + slot * 8);
    if (block.warp() == 0)
        for (int stage = 0; stage < block.job.stages; stage++)
            init_copy_barrier(shared_address(block.shared.stage_barriers + stage));
    publish_copy_barriers();
    for (int step = 0; step < block.job.early_slots; step++)
        ring.fetch(step, step);
}

/* Everything else that has to hold a value before it is used. */
__device__ __forceinline__ void prepare(const Block &block)
{
    const FusedJob &job = block.job;
    FusedShared &shared = block.shared;
    const int thread = threadIdx.x;
    zero_words(job.workspace.arrivals, job.workspace.num_zeroed);
    if (job.chosen_ids)
        zero_words(job.workspace.chosen, (size_t)job.num_rows * job.workspace.chosen_words * 4);
    if (thread < FUSED_ROWS) {
        shared.floors[thread] = shared.certain_from[thread] = shared.bin_from[thread] = NO_KEY;
        shared.greatest[thread] = shared.num_in_bin[thread] = shared.num_needed[thread] = shared.cutoff[thread] = 0;
        shared.num_uncertain[thread] = shared.first_uncertain[thread] = 0;
    }
    if (thread == 0)
        shared.is_missed = shared.is_exact = shared.is_stray = shared.num_slots = shared.num_early = 0;
    if (job.request_of_row)
        find_unions(block);
}

/* Slots of all candidates. Copies of those that are most likely among them, by the guessed thresholds, begin before all
 * blocks have counted. */
__device__ __forceinline__ void find_slots(const Block &block)
{
    const FusedJob &job = block.job;
    FusedShared &shared = block.shared;
#pragma unroll 1
    for (int look = GUESS;; look++) {
        if (look == COUNTED) {
            if (threadIdx.x == 0)
                wait_for_all(job, Arrival::COUNTED);
            __syncthreads();
            note_time(job, Moment::COUNTED);
            find_thresholds(block);
            note_time(job, Moment::FOUND);
            if (shared.has_all_early && !shared.is_stray)
                break;
        }
        const bool is_first = look == GUESS || shared.is_stray || shared.num_early == 0;
        list_places(block, is_first ? -1 : shared.last_early, look == GUESS ? 0 : shared.num_early);
        if (look == COUNTED)
            break;
        choose_early(block);
        if (block.warp() == 0)
            fetch_stages(block, 0, shared.num_early);
        note_time(job, Moment::GUESSED);
    }
    settle_slots(block);
    __syncthreads();
    note_time(job, Moment::LISTED);
}

#endif

/* HALVES: 1 for up to 8 rows, 2 for up to 16. Ranks up to MOST_RANK, hidden sizes up to MOST_HIDDEN. */
template <class T, Ranking RANKING, int HALVES, int MOST_RANK, int MOST_HIDDEN>
__global__ void __launch_bounds__(FUSED_THREADS, 1) rank_and_gather(const __grid_constant__ FusedJob job)
{
#if __CUDA_ARCH__ >= 900
    using Operand = FusedOperand<T, RANKING, HALVES, MOST_RANK>;
    extern __shared__ __align__(128) char memory[];
    const Block block(job, memory);
    const int warp = block.warp();
    note_time(job, Moment::START);
    const TileRing ring(block);
    {
        Projection<T, HALVES> projection(block);
        projection.load();
        if (block.lane() == 0)
            start_ring(block, ring);
        prepare(block);
        projection.multiply();
    }
    __syncthreads();
    publish_part(block);
    note_time(job, Moment::PROJECTED);
    cooperative_groups::this_grid().sync();
    note_time(job, Moment::MET);
    {
        float values[Operand::ROUNDS][4];
        if (warp < 8 * HALVES)
            Operand::load(block, warp, values);
        if (block.lane() == 0)
            for (int step = job.early_slots; step < job.ring_slots; step++)
                ring.fetch(step, step);
        if (warp < 8 * HALVES)
            Operand::store(block, warp, values);
    }
    __syncthreads();
    note_time(job, Moment::LOADED);
    rank_tiles<T, RANKING, HALVES, MOST_RANK>(block, ring);
    if (job.group_size == 1)
        find_bin(block, GUESS); /* what the slowest warps have not counted yet makes it lower */
    __syncthreads();
    note_time(job, Moment::STREAMED);
    if (warp == 0) {
        if (block.lane() < job.num_rows)
            raise_to(job.workspace.greatest_keys + block.lane(), block.shared.greatest[block.lane()]);
        __syncwarp();
        if (block.lane() == 0)
            arrive(job, Arrival::COUNTED);
    }
    note_time(job, Moment::ARRIVED);
    HiddenRows<T, HALVES, MOST_HIDDEN / (32 * FUSED_WARPS)> hidden;
    if (HALVES == 1)
        hidden.load(block); /* of more rows it would take the registers of what comes first */
    if (job.group_size > 1)
        find_shared_slots(block);
    else
        find_slots(block);
    if (warp == 0)
        fetch_stages(block, block.shared.num_early / STAGE_SLOTS, block.shared.num_slots);
    if (job.request_of_row && job.group_size == 1)
        join_rows(block);
    else
        reserve_places(block, (int)threadIdx.x - 32);
    if (HALVES == 2)
        hidden.load(block);
    gather_slots(block, hidden);
    __syncthreads();
    note_time(job, Moment::GATHERED);
    if (threadIdx.x == 0)
        arrive(job, Arrival::DONE);
    const int m = blockIdx.x;
    if (m >= job.num_rows)
        return;
    if (block.shared.is_broken[m]) {
        write_broken_row(job.num_outputs, job.candidate_ids + (size_t)m * job.num_outputs,
                         job.candidate_logits + (size_t)m * job.num_outputs, job.log_sum_exp + m);
        return;
    }
    if (threadIdx.x == 0)
        wait_for_all(job, Arrival::DONE);
    __syncthreads();
    note_time(job, Moment::MERGING);
    write_row(block, m);
    note_time(job, Moment::END);
#endif
}

template <class T, Ranking RANKING, int HALVES, int MOST_RANK, int MOST_HIDDEN>
cudaError_t launch_fused(const FusedJob &job, int num_blocks, cudaStream_t stream)
{
    const auto kernel = rank_and_gather<T, RANKING, HALVES, MOST_RANK, MOST_HIDDEN>;
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, job.shared_bytes);
    if (error != cudaSuccess)
        return error;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(num_blocks);
    config.blockDim = dim3(FUSED_THREADS);
    config.dynamicSmemBytes = job.shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, job);
}

/* Of one pair of types; head_hopper_*.cu have one each, so that they compile side by side. */
template <class T, Ranking RANKING> cudaError_t launch_class(const FusedJob &job, int num_blocks, cudaStream_t stream)
{
    const bool is_small = job.rank <= 64 && job.hidden_size <= 1024;
    if (job.num_rows <= 8)
        return is_small ? launch_fused<T, RANKING, 1, 64, 1024>(job, num_blocks, stream)
                        : launch_fused<T, RANKING, 1, 256, 4096>(job, num_blocks, stream);
    return is_small ? launch_fused<T, RANKING, 2, 64, 1024>(job, num_blocks, stream)
                    : launch_fused<T, RANKING, 2, 256, 4096>(job, num_blocks, stream);
}

} // namespace draftsmith

#endif
