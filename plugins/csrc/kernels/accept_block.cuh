/* Sums and choices over a block's threads, in a fixed order: the same bits in every thread, run after run. */
#ifndef DRAFTSMITH_ACCEPT_BLOCK_CUH
#define DRAFTSMITH_ACCEPT_BLOCK_CUH

#include "accept_job.h"
#include "block_scan.cuh"

namespace draftsmith {

constexpr unsigned FULL_WARP = 0xffffffffu;

struct BlockScratch {
    double sums[ACCEPT_WARPS], more_sums[ACCEPT_WARPS];
    unsigned long long keys[ACCEPT_WARPS];
    int counts[ACCEPT_WARPS + 1];
};

template <class T> __device__ __forceinline__ T warp_sum(T value)
{
    for (int step = 1; step < 32; step *= 2)
        value += __shfl_xor_sync(FULL_WARP, value, step);
    return value;
}

inline __device__ __noinline__ double block_sum(double value, BlockScratch &scratch)
{
    value = warp_sum(value);
    if ((threadIdx.x & 31) == 0)
        scratch.sums[threadIdx.x >> 5] = value;
    __syncthreads();
    double total = 0;
    for (int warp = 0; warp < ACCEPT_WARPS; warp++)
        total += scratch.sums[warp];
    __syncthreads();
    return total;
}

inline __device__ __noinline__ int block_count(int value, BlockScratch &scratch)
{
    value = warp_sum(value);
    if ((threadIdx.x & 31) == 0)
        scratch.counts[threadIdx.x >> 5] = value;
    __syncthreads();
    int total = 0;
    for (int warp = 0; warp < ACCEPT_WARPS; warp++)
        total += scratch.counts[warp];
    __syncthreads();
    return total;
}

/* Sum over the threads below this one, and over all in `total`. */
inline __device__ __noinline__ double block_sum_below(double value, BlockScratch &scratch, double &total)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    double inclusive = value;
    for (int step = 1; step < 32; step *= 2) {
        const double below = __shfl_up_sync(FULL_WARP, inclusive, step);
        if (lane >= step)
            inclusive += below;
    }
    if (lane == 31)
        scratch.sums[warp] = inclusive;
    __syncthreads();
    double before = 0;
    total = 0;
    for (int i = 0; i < ACCEPT_WARPS; i++) {
        if (i == warp)
            before = total;
        total += scratch.sums[i];
    }
    __syncthreads();
    const double below = __shfl_up_sync(FULL_WARP, inclusive, 1);
    return lane == 0 ? before : before + below;
}

__device__ __forceinline__ unsigned long long warp_greatest(unsigned long long key)
{
    for (int step = 1; step < 32; step *= 2) {
        const unsigned long long other = __shfl_xor_sync(FULL_WARP, key, step);
        key = other > key ? other : key;
    }
    return key;
}

inline __device__ __noinline__ uint64_t block_greatest(unsigned long long key, BlockScratch &scratch)
{
    key = warp_greatest(key);
    if ((threadIdx.x & 31) == 0)
        scratch.keys[threadIdx.x >> 5] = key;
    __syncthreads();
    for (int warp = 0; warp < ACCEPT_WARPS; warp++)
        key = scratch.keys[warp] > key ? scratch.keys[warp] : key;
    __syncthreads();
    return key;
}

/* The least of the values, none below 0. */
__device__ __forceinline__ int block_least(int value, BlockScratch &scratch)
{
    return (int)(0x7fffffffu - (uint32_t)block_greatest(0x7fffffffu - (uint32_t)value, scratch));
}

} // namespace draftsmith

#endif
