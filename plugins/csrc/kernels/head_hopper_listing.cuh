/* The block's items that are candidates of some row, in the order of their places. */
#ifndef DRAFTSMITH_HEAD_HOPPER_LISTING_CUH
#define DRAFTSMITH_HEAD_HOPPER_LISTING_CUH

#include "head_hopper_threshold.cuh"

namespace draftsmith {

__device__ __forceinline__ void note_rows(const FusedJob &job, uint32_t rows, int item)
{
    for (uint32_t left = rows & 0xffffu; left != 0; left &= left - 1)
        note_chosen(job, __ffs((int)left) - 1, item);
}

/* Rows of four items at `place`, as in Slot. While the thresholds are guessed, all are uncertain. */
__device__ __forceinline__ void judge_four(const Block &block, int place, uint32_t (&rows)[4])
{
    const FusedShared &shared = block.shared;
#pragma unroll 1
    for (int m = 0; m < block.job.num_rows; m++) {
        const uint2 words = *reinterpret_cast<const uint2 *>(block.keys(m) + place);
        const uint32_t keys[4] = {words.x & 0xffffu, words.x >> 16, words.y & 0xffffu, words.y >> 16};
        const uint32_t certain = shared.certain_from[m], bin = shared.bin_from[m];
#pragma unroll
        for (int i = 0; i < 4; i++)
            rows[i] |= (keys[i] >= certain ? 1u : keys[i] >= bin ? 0x10000u : 0u) << m;
    }
}

/* No row stays uncertain where the cutoffs are known. */
__device__ __forceinline__ uint32_t settle_rows(const Block &block, int place, uint32_t rows)
{
    for (uint32_t left = rows >> 16; left != 0; left &= left - 1) {
        const int m = __ffs((int)left) - 1;
        if (order_in_bin(block.keys(m)[place], block.item_of(place)) >= block.shared.cutoff[m])
            rows |= 1u << m;
    }
    return rows & 0xffffu;
}

/* Slots from `num_listed` on for items at places behind `last`. Their tokens are places still. Ends with a barrier. */
__device__ __forceinline__ void list_places(const Block &block, int last, int num_listed)
{
    FusedShared &shared = block.shared;
#pragma unroll 1
    for (int start = (last + 1) / 4 * 4; start < block.num_keys(); start += 4 * FUSED_THREADS) {
        const int place = start + 4 * threadIdx.x;
        uint32_t rows[4] = {0, 0, 0, 0};
        if (place < block.num_keys())
            judge_four(block, place, rows);
        int count = 0, total;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (place + i <= last)
                rows[i] = 0;
            count += rows[i] != 0;
        }
        int at = num_listed + block_exclusive_sum(count, shared.scan, total);
        num_listed += total;
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (rows[i] != 0)
                block.slots()[at++] = {place + i, rows[i]};
    }
    if (threadIdx.x == 0)
        shared.num_slots = num_listed;
    __syncthreads();
}

/* After list_places of a guess: whole stages as many as fit at once may be asked for. */
__device__ __forceinline__ void choose_early(const Block &block)
{
    FusedShared &shared = block.shared;
    const int num_slots = min(shared.num_slots, block.job.stages * STAGE_SLOTS);
    const int num_early = (num_slots + STAGE_SLOTS - 1) / STAGE_SLOTS * STAGE_SLOTS;
    if (threadIdx.x == 0 && num_slots > 0)
        shared.last_early = block.slots()[num_slots - 1].token;
    __syncthreads();
    if (threadIdx.x < num_early) {
        Slot &slot = block.slots()[threadIdx.x];
        slot = {(int)threadIdx.x < num_slots ? block.item_of(slot.token) : -1, 0};
    }
    if (threadIdx.x == 0) {
        shared.has_all_early = num_slots == shared.num_slots;
        shared.num_slots = shared.num_early = num_early;
    }
    __syncthreads();
}

/* Rows of a slot by its row's keys, all that hold at its place. */
__device__ __forceinline__ uint32_t judge_place(const Block &block, int place)
{
    uint32_t rows = 0;
#pragma unroll 1
    for (int m = 0; m < block.job.num_rows; m++) {
        const uint32_t key = block.keys(m)[place];
        rows |= (key >= block.shared.certain_from[m] ? 1u : key >= block.shared.bin_from[m] ? 0x10000u : 0u) << m;
    }
    return rows;
}

/* When thresholds are known: rows of the early slots, tokens of the others, and what is uncertain. A barrier
 * follows. */
__device__ __forceinline__ void settle_slots(const Block &block)
{
    const FusedJob &job = block.job;
    FusedShared &shared = block.shared;
    for (int i = threadIdx.x; i < shared.num_slots; i += FUSED_THREADS) {
        Slot slot = block.slots()[i];
        const bool is_early = i < shared.num_early;
        const int place = !is_early ? slot.token : slot.token >= 0 ? block.place_of(slot.token) : -1;
        if (is_early)
            slot.rows = place >= 0 && !shared.is_stray ? judge_place(block, place) : 0;
        else
            slot.token = block.item_of(place);
        if (slot.rows >> 16 && shared.is_exact)
            slot.rows = settle_rows(block, place, slot.rows);
        for (uint32_t left = slot.rows >> 16; left != 0; left &= left - 1)
            atomicAdd(&shared.num_uncertain[__ffs((int)left) - 1], 1);
        if (job.chosen_ids)
            note_rows(job, slot.rows, slot.token);
        block.slots()[i] = slot;
    }
}

} // namespace draftsmith

#endif
