/* Sums along the threads of a block, in a fixed order. */
#ifndef DRAFTSMITH_BLOCK_SCAN_CUH
#define DRAFTSMITH_BLOCK_SCAN_CUH

#include <cstdint>

namespace draftsmith {

__device__ __forceinline__ int warp_inclusive_sum(int value)
{
    const int lane = threadIdx.x & 31;
    for (int step = 1; step < 32; step *= 2) {
        const int below = __shfl_up_sync(0xffffffffu, value, step);
        if (lane >= step)
            value += below;
    }
    return value;
}

/* Sum of `value` over the threads below this one, and over all in `total`. `shared`: one int a warp and one more. All
 * threads of a one-dimensional block of whole warps, at most 1,024, take part; `shared` may be used again at once. */
__device__ __forceinline__ int block_exclusive_sum(int value, int *shared, int &total)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, num_warps = blockDim.x >> 5;
    const int inclusive = warp_inclusive_sum(value);
    if (lane == 31)
        shared[warp] = inclusive;
    __syncthreads();
    if (warp == 0) {
        const int sum = lane < num_warps ? shared[lane] : 0;
        const int above = warp_inclusive_sum(sum);
        if (lane < num_warps)
            shared[lane] = above - sum;
        if (lane == 31)
            shared[num_warps] = above;
    }
    __syncthreads();
    const int exclusive = shared[warp] + inclusive - value;
    total = shared[num_warps];
    __syncthreads();
    return exclusive;
}

/* Whether this block is the last of `num_blocks` to come here; then what the others wrote before is visible to all its
 * threads (read it with __ldcg). `counter` must be 0 before the first comes. `shared`: one int. */
__device__ __forceinline__ bool is_last_block(unsigned *counter, unsigned num_blocks, int *shared)
{
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        *shared = atomicAdd(counter, 1u) == num_blocks - 1;
    __syncthreads();
    const bool is_last = *shared != 0;
    __threadfence();
    return is_last;
}

} // namespace draftsmith

#endif
