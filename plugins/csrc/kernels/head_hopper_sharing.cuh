/* Where items are groups, few are kept and each has many tokens: every block learns which are kept and takes an equal
 * share of their tokens. Of one row, it sees the keys of all items; of several, the blocks tell each other. */
#ifndef DRAFTSMITH_HEAD_HOPPER_SHARING_CUH
#define DRAFTSMITH_HEAD_HOPPER_SHARING_CUH

#include "head_hopper_unions.cuh"

namespace draftsmith {

/* In scratch memory. */
struct SharingShared {
    uint32_t orders[FUSED_ROWS][MOST_SHARED_UNCERTAIN];
    int items[MOST_SHARED_ITEMS / FUSED_OUTPUTS + 2]; /* of this block's share; a grid has FUSED_OUTPUTS blocks or more */
};
static_assert(sizeof(SharingShared) <= 8192 + 256, "it takes the place of sums and logits");

/* Kept items, as one thread knows them. */
struct KeptItems {
    unsigned long long bits; /* of the 64 from first_item on */
    int first_item;
    int num_before, num_all; /* kept items before first_item, and in all */
};

/* Sum over the threads below this one, and over all. The block's scan memory is in use until its next barrier. */
__device__ __forceinline__ int sum_before(const Block &block, int value, int &total)
{
    const int inclusive = warp_inclusive_sum(value);
    if (block.lane() == 31)
        block.shared.scan[block.warp()] = inclusive;
    __syncthreads();
    const int sum = block.lane() < FUSED_WARPS ? block.shared.scan[block.lane()] : 0;
    const int through = warp_inclusive_sum(sum);
    total = __shfl_sync(0xffffffffu, through, 31);
    return __shfl_sync(0xffffffffu, through - sum, block.warp()) + inclusive - value;
}

/* A thread's keys of a single row: as many items for each thread, in order. */
struct RowKeys {
    enum { MOST_EIGHTS = MOST_SHARED_ITEMS / FUSED_THREADS / 8 };
    uint4 eights[MOST_EIGHTS];
    int num_eights;

    __device__ __forceinline__ void load(const FusedJob &job)
    {
        const uint4 *const keys = reinterpret_cast<const uint4 *>(job.workspace.item_keys);
        const int count = job.item_stride / 8;
        num_eights = (count + FUSED_THREADS - 1) / FUSED_THREADS;
#pragma unroll
        for (int i = 0; i < MOST_EIGHTS; i++) {
            const int at = threadIdx.x * num_eights + i;
            eights[i] = i < num_eights && at < count ? __ldcg(keys + at) : make_uint4(0, 0, 0, 0);
        }
    }

    /* A bit an item: whether its key is at least `from`, and at least `certain_from`. */
    __device__ __forceinline__ void judge(uint32_t from, uint32_t certain_from, unsigned long long &all,
                                          unsigned long long &certain) const
    {
        all = certain = 0;
#pragma unroll
        for (int i = 0; i < MOST_EIGHTS; i++) {
            if (i >= num_eights)
                break;
            const uint32_t words[4] = {eights[i].x, eights[i].y, eights[i].z, eights[i].w};
            uint32_t in_all = 0, in_certain = 0;
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const uint32_t key = words[j / 2] >> j % 2 * 16 & 0xffffu;
                in_all |= (uint32_t)(key >= from) << j;
                in_certain |= (uint32_t)(key >= certain_from) << j;
            }
            all |= (unsigned long long)in_all << 8 * i;
            certain |= (unsigned long long)in_certain << 8 * i;
        }
    }

    __device__ __forceinline__ uint32_t key_of(int bit) const
    {
        uint32_t word = 0;
#pragma unroll
        for (int i = 0; i < MOST_EIGHTS; i++) {
            const uint32_t words[4] = {eights[i].x, eights[i].y, eights[i].z, eights[i].w};
#pragma unroll
            for (int j = 0; j < 4; j++)
                word = bit / 2 == 4 * i + j ? words[j] : word;
        }
        return word >> bit % 2 * 16 & 0xffffu;
    }
};

/* By every warp: a bit for each of `count` orders that is among the num_needed greatest. */
__device__ __forceinline__ unsigned long long find_kept(const uint32_t *orders, int count, int num_needed)
{
    const int lane = threadIdx.x & 31;
    const uint32_t mine[2] = {lane < count ? orders[lane] : 0, lane + 32 < count ? orders[lane + 32] : 0};
    int num_above[2] = {0, 0};
#pragma unroll 4
    for (int i = 0; i < count; i++) {
        num_above[0] += orders[i] > mine[0];
        num_above[1] += orders[i] > mine[1];
    }
    const uint32_t low = __ballot_sync(0xffffffffu, lane < count && num_above[0] < num_needed);
    const uint32_t high = __ballot_sync(0xffffffffu, lane + 32 < count && num_above[1] < num_needed);
    return (unsigned long long)high << 32 | low;
}

/* Of the single row, when its threshold is known. */
__device__ __forceinline__ KeptItems choose_items(const Block &block, SharingShared &sharing, const RowKeys &keys)
{
    const FusedShared &shared = block.shared;
    const int first_item = threadIdx.x * keys.num_eights * 8;
    unsigned long long uncertain, certain;
    keys.judge(shared.bin_from[0], shared.certain_from[0], uncertain, certain);
    uncertain &= ~certain;
    if (shared.is_exact) {
        for (; uncertain != 0; uncertain &= uncertain - 1) {
            const int bit = __ffsll((long long)uncertain) - 1;
            if (order_in_bin(keys.key_of(bit), first_item + bit) >= shared.cutoff[0])
                certain |= 1ull << bit;
        }
    }
    int total;
    const int before = sum_before(block, __popcll(certain) | __popcll(uncertain) << 16, total);
    const int num_uncertain = total >> 16, first_uncertain = before >> 16;
    unsigned long long kept = 0; /* a bit an uncertain item, in their order */
    if (num_uncertain != 0) {
        int at = first_uncertain;
        for (unsigned long long left = uncertain; left != 0; left &= left - 1) {
            const int bit = __ffsll((long long)left) - 1;
            sharing.orders[0][at++] = order_in_bin(keys.key_of(bit), first_item + bit);
        }
        __syncthreads();
        kept = find_kept(sharing.orders[0], num_uncertain, (int)shared.num_needed[0]);
    }
    const unsigned long long above = first_uncertain < 64 ? kept >> first_uncertain : 0;
    unsigned long long bits = certain, mine = above;
    for (; uncertain != 0; uncertain &= uncertain - 1, mine >>= 1)
        if (mine & 1)
            bits |= uncertain & (~uncertain + 1);
    const int num_kept = __popcll(kept);
    return {bits, first_item, (before & 0xffff) + num_kept - __popcll(above), (total & 0xffff) + num_kept};
}

/* This block's items that some row keeps or may keep, for all blocks. */
__device__ __forceinline__ void publish_items(const Block &block)
{
    const FusedJob &job = block.job;
    for (int place = threadIdx.x; place < block.num_keys(); place += FUSED_THREADS) {
        const int item = block.item_of(place);
        uint32_t rows = judge_place(block, place);
        unsigned long long low_bits = 0; /* of the keys of rows that are uncertain: BIN_SHIFT each */
        if (rows >> 16 && block.shared.is_exact)
            rows = settle_rows(block, place, rows);
        for (uint32_t left = rows >> 16; left != 0; left &= left - 1) {
            const int m = __ffs((int)left) - 1;
            const uint32_t order = order_in_bin(block.keys(m)[place], item);
            const unsigned at = atomicAdd(job.workspace.num_uncertain + m, 1u);
            job.workspace.orders[m * MOST_SHARING_UNCERTAIN + at] = order;
            low_bits |= (unsigned long long)(order >> 20) << BIN_SHIFT * m;
        }
        if (rows != 0)
            job.workspace.item_rows[item] = make_uint4(rows, (uint32_t)low_bits, (uint32_t)(low_bits >> 32), 0);
        const uint32_t bits = __ballot_sync(0xffffffffu, rows != 0);
        if (block.lane() % 8 == 0 && block.keys(0)[place] != 0)
            job.workspace.item_bits[item / 8] = (uint8_t)(bits >> block.lane());
    }
}

/* Of several rows, when all blocks have published theirs. Cutoffs hold after the next barrier. */
__device__ __forceinline__ KeptItems read_items(const Block &block, SharingShared &sharing)
{
    const FusedJob &job = block.job;
    const int first_item = threadIdx.x * 64, count = job.num_ranked - first_item, m = block.warp();
    uint2 words = make_uint2(0, 0);
    if (count > 0)
        words = __ldcg(reinterpret_cast<const uint2 *>(job.workspace.item_bits) + threadIdx.x);
    if (m < job.num_rows && !block.shared.is_exact)
        settle_list(block, sharing.orders[m]);
    unsigned long long bits = (unsigned long long)words.y << 32 | words.x;
    if (count < 64)
        bits = count > 0 ? bits & ((1ull << count) - 1) : 0;
    int total;
    const int before = sum_before(block, __popcll(bits), total);
    return {bits, first_item, before, total};
}

/* Rows that keep an item. */
__device__ __forceinline__ uint32_t rows_of_item(const Block &block, int item)
{
    if (!block.job.workspace.item_rows)
        return 1;
    const uint4 known = __ldcg(block.job.workspace.item_rows + item);
    const unsigned long long low_bits = (unsigned long long)known.z << 32 | known.y;
    uint32_t rows = known.x & 0xffffu;
    for (uint32_t left = known.x >> 16; left != 0; left &= left - 1) {
        const int m = __ffs((int)left) - 1;
        const uint32_t order = order_in_bin((uint32_t)(low_bits >> BIN_SHIFT * m), item);
        rows |= (uint32_t)(order >= block.shared.cutoff[m]) << m;
    }
    return rows;
}

/* Fills slots and num_slots with this block's share. A barrier follows. */
__device__ __forceinline__ void share_items(const Block &block, SharingShared &sharing, const KeptItems &kept)
{
    const FusedJob &job = block.job;
    const int group_size = job.group_size;
    const int first_slot = (int)((long long)kept.num_all * group_size * blockIdx.x / gridDim.x);
    const int end_slot = (int)((long long)kept.num_all * group_size * (blockIdx.x + 1) / gridDim.x);
    const int first_index = first_slot / group_size, end_index = (end_slot + group_size - 1) / group_size;
    int index = kept.num_before;
    for (unsigned long long left = kept.bits; left != 0 && index < end_index; left &= left - 1, index++)
        if (index >= first_index)
            sharing.items[index - first_index] = kept.first_item + __ffsll((long long)left) - 1;
    __syncthreads();
    for (int i = threadIdx.x; i < end_slot - first_slot; i += FUSED_THREADS) {
        const int in_all = first_slot + i, in_share = in_all / group_size - first_index;
        const int item = sharing.items[in_share], in_group = in_all % group_size;
        const int token = item * group_size + in_group;
        const uint32_t rows = rows_of_item(block, item);
        if (job.chosen_ids && (i == 0 || in_group == 0))
            note_rows(job, rows, item);
        const uint32_t all_rows = job.request_of_row ? add_mates(block.shared, rows) : rows;
        const bool is_there = token < job.num_vocab;
        block.slots()[i] = {is_there ? token : -1, is_there ? all_rows : 0};
    }
    if (threadIdx.x == 0) {
        block.shared.num_slots = end_slot - first_slot;
        block.shared.is_exact = 1; /* nothing is left to settle */
    }
}

/* Slots of all candidates, where items are groups. Ends with a barrier. */
__device__ __forceinline__ void find_shared_slots(const Block &block)
{
    const FusedJob &job = block.job;
    SharingShared &sharing = *reinterpret_cast<SharingShared *>(block.scratch());
    const bool is_single = job.workspace.item_keys != nullptr;
    if (threadIdx.x == 0)
        wait_for_all(job, Arrival::COUNTED);
    __syncthreads();
    note_time(job, Moment::COUNTED);
    RowKeys keys;
    if (is_single)
        keys.load(job);
    find_thresholds(block);
    note_time(job, Moment::FOUND);
    if (is_single) {
        share_items(block, sharing, choose_items(block, sharing, keys));
    } else {
        publish_items(block);
        meet_all(job, Arrival::LISTED);
        note_time(job, Moment::GUESSED);
        share_items(block, sharing, read_items(block, sharing));
    }
    __syncthreads();
    note_time(job, Moment::LISTED);
}

} // namespace draftsmith

#endif
