/* Where items are groups, few are kept and each has many tokens: every block sees the keys of all items, finds the
 * kept ones and takes an equal share of their tokens. */
#ifndef DRAFTSMITH_HEAD_HOPPER_SHARING_CUH
#define DRAFTSMITH_HEAD_HOPPER_SHARING_CUH

#include "head_hopper_unions.cuh"

namespace draftsmith {

/* In scratch memory. */
struct SharingShared {
    unsigned long long kept[FUSED_THREADS]; /* a bit an item, 64 a thread */
    uint32_t orders[FUSED_ROWS][MOST_SHARED_UNCERTAIN];
    int num_uncertain[FUSED_ROWS];
};
static_assert(sizeof(SharingShared) <= 8192 + 256, "it takes the place of sums and logits");

__device__ __forceinline__ void keep_item(SharingShared &sharing, int item)
{
    atomicOr(reinterpret_cast<unsigned *>(sharing.kept) + item / 32, 1u << item % 32);
}

/* Whether an item is certainly kept for row m; those of the bin to their list while cutoffs are not known. */
__device__ __forceinline__ bool look_at_item(const FusedShared &shared, SharingShared &sharing, int m, uint32_t key,
                                             int item)
{
    if (key >= shared.certain_from[m])
        return true;
    if (key < shared.bin_from[m])
        return false;
    if (shared.is_exact)
        return order_in_bin(key, item) >= shared.cutoff[m];
    sharing.orders[m][atomicAdd(&sharing.num_uncertain[m], 1)] = order_in_bin(key, item);
    return false;
}

/* All keys of all rows, eight a step: certain items to kept. */
__device__ __forceinline__ void look_at_items(const Block &block, SharingShared &sharing)
{
    enum { STEPS = 4 };
    const FusedJob &job = block.job;
    const uint4 *const keys = reinterpret_cast<const uint4 *>(job.workspace.item_keys);
    const int in_row = job.item_stride / 8, count = job.num_rows * in_row;
#pragma unroll 1
    for (int start = threadIdx.x; start < count; start += STEPS * FUSED_THREADS) {
        uint4 eights[STEPS];
#pragma unroll
        for (int i = 0; i < STEPS; i++)
            eights[i] = start + i * FUSED_THREADS < count ? __ldcg(keys + start + i * FUSED_THREADS)
                                                          : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            const int index = start + i * FUSED_THREADS, m = min(index / in_row, job.num_rows - 1);
            const uint32_t from = block.shared.bin_from[m];
            const uint32_t words[4] = {eights[i].x, eights[i].y, eights[i].z, eights[i].w};
            uint32_t hits = 0;
#pragma unroll
            for (int j = 0; j < 8; j++)
                hits |= (uint32_t)((words[j / 2] >> j % 2 * 16 & 0xffffu) >= from) << j;
            for (; hits != 0; hits &= hits - 1) {
                const int j = __ffs((int)hits) - 1, item = (index - m * in_row) * 8 + j;
                const uint32_t key = __ldcg(job.workspace.item_keys + (size_t)index * 8 + j);
                if (look_at_item(block.shared, sharing, m, key, item))
                    keep_item(sharing, item);
            }
        }
    }
}

/* The best of the bins' items are kept; cutoffs say which. */
__device__ __forceinline__ void settle_items(const Block &block, SharingShared &sharing)
{
    FusedShared &shared = block.shared;
    for (int index = threadIdx.x; index < block.job.num_rows * MOST_SHARED_UNCERTAIN; index += FUSED_THREADS) {
        const int m = index / MOST_SHARED_UNCERTAIN, i = index % MOST_SHARED_UNCERTAIN;
        if (i >= sharing.num_uncertain[m])
            continue;
        const uint32_t mine = sharing.orders[m][i];
        int num_above = 0;
        for (int j = 0; j < sharing.num_uncertain[m]; j++)
            num_above += sharing.orders[m][j] > mine;
        if (num_above >= (int)shared.num_needed[m])
            continue;
        if (num_above == (int)shared.num_needed[m] - 1)
            shared.cutoff[m] = mine;
        const int item = 0xfffff - (int)(mine & 0xfffffu);
        keep_item(sharing, item);
    }
}

/* Rows of an item that is kept, when cutoffs are known. */
__device__ __forceinline__ uint32_t rows_of_item(const Block &block, SharingShared &sharing, int item)
{
    uint32_t rows = 0;
    for (int m = 0; m < block.job.num_rows; m++) {
        const uint32_t key = __ldcg(block.job.workspace.item_keys + (size_t)m * block.job.item_stride + item);
        rows |= (uint32_t)look_at_item(block.shared, sharing, m, key, item) << m;
    }
    return rows;
}

/* Fills slots and num_slots with this block's share. A barrier follows. */
__device__ __forceinline__ void share_items(const Block &block)
{
    const FusedJob &job = block.job;
    FusedShared &shared = block.shared;
    SharingShared &sharing = *reinterpret_cast<SharingShared *>(block.scratch());
    const int group_size = job.group_size;
    if (threadIdx.x < FUSED_ROWS)
        sharing.num_uncertain[threadIdx.x] = 0;
    sharing.kept[threadIdx.x] = 0;
    __syncthreads();
    look_at_items(block, sharing);
    __syncthreads();
    settle_items(block, sharing);
    __syncthreads();
    if (threadIdx.x == 0)
        shared.is_exact = 1;
    unsigned long long kept = sharing.kept[threadIdx.x];
    int num_kept;
    int index = block_exclusive_sum(__popcll(kept), shared.scan, num_kept);
    const int first_slot = (int)((long long)num_kept * group_size * blockIdx.x / gridDim.x);
    const int end_slot = (int)((long long)num_kept * group_size * (blockIdx.x + 1) / gridDim.x);
    for (; kept != 0; kept &= kept - 1, index++) {
        const int begin = max(index * group_size, first_slot), end = min((index + 1) * group_size, end_slot);
        if (begin >= end)
            continue;
        const int item = threadIdx.x * 64 + __ffsll((long long)kept) - 1;
        const uint32_t rows = rows_of_item(block, sharing, item);
        if (job.chosen_ids)
            note_rows(job, rows, item);
        const uint32_t all_rows = job.request_of_row ? add_mates(shared, rows) : rows;
        for (int slot = begin; slot < end; slot++) {
            const int token = item * group_size + slot - index * group_size;
            const bool is_there = token < job.num_vocab;
            block.slots()[slot - first_slot] = {is_there ? token : -1, is_there ? all_rows : 0};
        }
    }
    if (threadIdx.x == 0)
        shared.num_slots = end_slot - first_slot;
}

} // namespace draftsmith

#endif
