/* Sorting keys in shared memory, by a block. */
#ifndef DRAFTSMITH_ACCEPT_SORT_CUH
#define DRAFTSMITH_ACCEPT_SORT_CUH

#include "accept_block.cuh"

namespace draftsmith {

/* Bitonic, greatest first. `keys` has room up to the next power of two; 0 is put behind the `count` keys. */
__device__ __forceinline__ void sort_descending(unsigned long long *keys, int count)
{
    int size = 2;
    while (size < count)
        size *= 2;
    for (int i = count + (int)threadIdx.x; i < size; i += ACCEPT_THREADS)
        keys[i] = 0;
    __syncthreads();
    for (int run = 2; run <= size; run *= 2)
        for (int step = run / 2; step > 0; step /= 2) {
            for (int i = threadIdx.x; i < size / 2; i += ACCEPT_THREADS) {
                const int low = 2 * i - (i & (step - 1)), high = low + step;
                const bool is_descending = (low & run) == 0;
                const unsigned long long a = keys[low], b = keys[high];
                if ((a < b) == is_descending) {
                    keys[low] = b;
                    keys[high] = a;
                }
            }
            __syncthreads();
        }
}

} // namespace draftsmith

#endif
