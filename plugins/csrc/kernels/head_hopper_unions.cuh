/* Rows that share their candidates: which of the uncertain are kept is settled in every block, while the first rows of
 * w_head are on their way. */
#ifndef DRAFTSMITH_HEAD_HOPPER_UNIONS_CUH
#define DRAFTSMITH_HEAD_HOPPER_UNIONS_CUH

#include "head_hopper_listing.cuh"

namespace draftsmith {

/* By thread m: the rows that take row m's candidates, itself among them. */
__device__ __forceinline__ void find_unions(const Block &block)
{
    const FusedJob &job = block.job;
    const int m = threadIdx.x;
    if (m >= job.num_rows)
        return;
    uint32_t mates = 1u << m;
    if (job.request_of_row)
        for (int other = 0; other < job.num_rows; other++)
            mates |= (uint32_t)(job.request_of_row[other] == job.request_of_row[m]) << other;
    block.shared.unions[m] = mates;
}

__device__ __forceinline__ uint32_t add_mates(const FusedShared &shared, uint32_t rows)
{
    uint32_t all = 0;
    for (uint32_t left = rows; left != 0; left &= left - 1)
        all |= shared.unions[__ffs((int)left) - 1];
    return all;
}

/* By warp m, when all blocks have listed the orders of row m's uncertain candidates: its cutoff. `orders`: shared memory
 * for all of them. */
__device__ __forceinline__ void settle_list(const Block &block, uint32_t *orders)
{
    FusedShared &shared = block.shared;
    const int m = block.warp(), count = shared.num_in_bin[m];
    for (int i = block.lane(); i < count; i += 32)
        orders[i] = __ldcg(block.job.workspace.orders + m * MOST_SHARING_UNCERTAIN + i);
    __syncwarp();
    for (int i = block.lane(); i < count; i += 32) {
        const uint32_t mine = orders[i];
        int num_above = 0;
#pragma unroll 4
        for (int j = 0; j < count; j++)
            num_above += orders[j] > mine;
        if (num_above == (int)shared.num_needed[m] - 1)
            shared.cutoff[m] = mine;
    }
}

/* Makes every slot's rows certain, and adds the rows' mates. A barrier lies before it and follows it. */
__device__ __forceinline__ void join_rows(const Block &block)
{
    const FusedJob &job = block.job;
    FusedShared &shared = block.shared;
    const int num_slots = shared.num_slots;
    if (!shared.is_exact) {
        for (int i = threadIdx.x; i < num_slots; i += FUSED_THREADS) {
            const Slot slot = block.slots()[i];
            for (uint32_t left = slot.rows >> 16; left != 0; left &= left - 1) {
                const int m = __ffs((int)left) - 1;
                const unsigned at = atomicAdd(job.workspace.num_uncertain + m, 1u);
                job.workspace.orders[m * MOST_SHARING_UNCERTAIN + at] =
                    order_in_bin(block.keys(m)[block.place_of(slot.token)], slot.token);
            }
        }
        meet_all(job, Arrival::LISTED);
        if (block.warp() < job.num_rows)
            settle_list(block, reinterpret_cast<uint32_t *>(block.scratch()) +
                                   block.warp() * MOST_SHARING_UNCERTAIN);
        __syncthreads();
    }
    for (int i = threadIdx.x; i < num_slots; i += FUSED_THREADS) {
        const Slot slot = block.slots()[i];
        const uint32_t rows = slot.rows >> 16 ? settle_rows(block, block.place_of(slot.token), slot.rows) : slot.rows;
        if (job.chosen_ids)
            note_rows(job, rows & ~slot.rows, slot.token);
        block.slots()[i].rows = add_mates(shared, rows);
    }
}

} // namespace draftsmith

#endif
