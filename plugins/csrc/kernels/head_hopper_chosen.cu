/* The rows' own candidates as ids, from a bit an item: for tests and tools, not for speed. */
#include "block_scan.cuh"
#include "head_hopper_launches.h"

namespace draftsmith {

namespace {

/* Grid: rows. */
__global__ void __launch_bounds__(FUSED_THREADS) expand_chosen(const FusedJob job)
{
    __shared__ int scan[FUSED_WARPS + 1];
    const int m = blockIdx.x, most = job.num_candidates, group_size = job.group_size;
    const uint32_t *const words = job.workspace.chosen + (size_t)m * job.workspace.chosen_words;
    int32_t *const ids = job.chosen_ids + (size_t)m * most;
    int num_listed = 0;
    for (int start = 0; start < job.workspace.chosen_words; start += FUSED_THREADS) {
        const int index = start + threadIdx.x;
        const uint32_t word = index < job.workspace.chosen_words ? words[index] : 0;
        int count = 0, total;
        for (uint32_t left = word; left != 0; left &= left - 1)
            count += min(group_size, job.num_vocab - (index * 32 + __ffs((int)left) - 1) * group_size);
        int at = num_listed + block_exclusive_sum(count, scan, total);
        for (uint32_t left = word; left != 0; left &= left - 1) {
            const int first = (index * 32 + __ffs((int)left) - 1) * group_size;
            for (int i = 0; i < group_size && first + i < job.num_vocab && at < most; i++)
                ids[at++] = first + i;
        }
        num_listed += total;
    }
    for (int i = num_listed + threadIdx.x; i < most; i += FUSED_THREADS)
        ids[i] = -1;
}

} // namespace

void launch_fused_chosen(const FusedJob &job, cudaStream_t stream)
{
    expand_chosen<<<job.num_rows, FUSED_THREADS, 0, stream>>>(job);
}

} // namespace draftsmith
