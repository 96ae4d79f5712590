/* The stream of w_vocab through a block: every warp has a ring of tiles of its own, scores them against h', keeps the
 * keys in shared memory and counts those above the row's floor. */
#ifndef DRAFTSMITH_HEAD_HOPPER_RANKING_CUH
#define DRAFTSMITH_HEAD_HOPPER_RANKING_CUH

#include "head_hopper_projection.cuh"

namespace draftsmith {

/* A warp's tiles, in order, and where the next copy goes. */
struct TileRing {
    const Block &block;
    int first_tile, num_tiles; /* of this warp, counted in the block's */
    uint32_t slots, barriers;
    uint64_t policy;

    __device__ __forceinline__ explicit TileRing(const Block &block) : block(block)
    {
        const FusedJob &job = block.job;
        first_tile = block.first_tile(block.warp());
        num_tiles = block.first_tile(block.warp() + 1) - first_tile;
        while (num_tiles > 0 && block.tile_of(first_tile + num_tiles - 1) >= job.num_tiles)
            num_tiles--;
        slots = shared_address(block.memory) + block.warp() * job.ring_slots * job.slot_bytes;
        barriers = shared_address(block.shared.ring_barriers + block.warp() * MOST_RING_SLOTS);
        policy = read_once_policy();
    }

    __device__ __forceinline__ int items_in(int tile) const
    {
        return min(1 << block.job.tile_shift, block.job.num_ranked - (tile << block.job.tile_shift));
    }

    /* By one lane. An 8-bit tile's scales lie behind it; of the last, short one they are not copied. Where that one
     * ends between multiples of 16 bytes, its last eight are not either. */
    __device__ __forceinline__ void fetch(int step, int slot) const
    {
        const FusedJob &job = block.job;
        if (step >= num_tiles)
            return;
        const int tile = block.tile_of(first_tile + step), num_items = items_in(tile);
        const uint32_t target = slots + slot * job.slot_bytes, barrier = barriers + slot * 8;
        const bool has_scales = job.w_vocab_scales && num_items == 1 << job.tile_shift;
        const char *const rows =
            static_cast<const char *>(job.w_vocab) + ((size_t)tile << job.tile_shift) * job.row_bytes;
        const int num_bytes = num_items * job.row_bytes / 16 * 16;
        if (num_bytes < num_items * job.row_bytes)
            store_eight(target + num_bytes, *reinterpret_cast<const uint2 *>(rows + num_bytes));
        expect_bytes(barrier, num_bytes + (has_scales ? num_items * 4 : 0));
        if (num_bytes != 0)
            copy_once(target, rows, num_bytes, barrier, policy);
        if (has_scales)
            copy_once(target + job.tile_bytes, job.w_vocab_scales + ((size_t)tile << job.tile_shift), num_items * 4,
                      barrier, policy);
    }
};

/* A thread's part of h', for rows lane / 4 and lane / 4 + 8. Of int8 with up to 8 rows, the second is the first's lower
 * plane. */
template <class T, Ranking RANKING, int HALVES, int MOST_RANK> struct RankingRows {
    using Operand = FusedOperand<T, RANKING, HALVES, MOST_RANK>;
    static constexpr int CHUNKS = Operand::CHUNKS;
    static constexpr bool HAS_LOW_PLANE = RANKING == Ranking::INT8 && HALVES == 2;
    static constexpr bool HAS_SECOND = RANKING == Ranking::INT8 || HALVES == 2;
    uint4 first[CHUNKS], second[HAS_SECOND ? CHUNKS : 1];
    uint4 low_first[HAS_LOW_PLANE ? CHUNKS : 1], low_second[HAS_LOW_PLANE ? CHUNKS : 1];

    __device__ __forceinline__ void load(const Block &block)
    {
        const int row = block.lane() / 4, offset = block.lane() % 4 * 16;
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            const auto part = [&](int plane, int m) {
                return *reinterpret_cast<const uint4 *>(Operand::at(block, plane, m) + chunk * 64 + offset);
            };
            first[chunk] = part(0, row);
            if (HAS_SECOND)
                second[chunk % (HAS_SECOND ? CHUNKS : 1)] = HALVES == 2 ? part(0, row + 8) : part(1, row);
            if (HAS_LOW_PLANE) {
                low_first[chunk % (HAS_LOW_PLANE ? CHUNKS : 1)] = part(1, row);
                low_second[chunk % (HAS_LOW_PLANE ? CHUNKS : 1)] = part(1, row + 8);
            }
        }
    }

    /* Scores of eight items whose rows of w are `rows`, before scales: as warp_mma.cuh numbers them. */
    __device__ __forceinline__ void multiply(const char *rows, int row_bytes, float (&scores)[4]) const
    {
        const int lane = threadIdx.x & 31, offset = lane % 4 * 16;
        const char *const mine = rows + lane / 4 * row_bytes + offset;
        uint4 w[CHUNKS];
        if (RANKING != Ranking::INT8 || row_bytes % 16 == 0) {
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; chunk++)
                w[chunk] = chunk * 64 + offset < row_bytes ? *reinterpret_cast<const uint4 *>(mine + chunk * 64)
                                                           : make_uint4(0, 0, 0, 0);
        } else {
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; chunk++) {
                const int left = row_bytes - chunk * 64 - offset; /* a multiple of 8 */
                const uint2 *const eights = reinterpret_cast<const uint2 *>(mine + chunk * 64);
                const uint2 low = left > 0 ? eights[0] : make_uint2(0, 0);
                const uint2 high = left > 8 ? eights[1] : make_uint2(0, 0);
                w[chunk] = make_uint4(low.x, low.y, high.x, high.y);
            }
        }
        if constexpr (RANKING == Ranking::INT8) {
            int high[4] = {0, 0, 0, 0}, low[4] = {0, 0, 0, 0};
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; chunk++) {
                multiply_chunk_int8(high, first[chunk], second[chunk % (HAS_SECOND ? CHUNKS : 1)], w[chunk]);
                if (HAS_LOW_PLANE)
                    multiply_chunk_int8(low, low_first[chunk % (HAS_LOW_PLANE ? CHUNKS : 1)],
                                        low_second[chunk % (HAS_LOW_PLANE ? CHUNKS : 1)], w[chunk]);
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
                scores[i] = fmaf(256.0f, (float)high[i], (float)(HAS_LOW_PLANE ? low[i] : high[(i + 2) % 4]));
        } else {
            float even[4] = {0.0f, 0.0f, 0.0f, 0.0f}, odd[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; chunk++)
                multiply_split<T, HALVES>(even, odd, first[chunk], second[chunk % (HAS_SECOND ? CHUNKS : 1)], w[chunk]);
            join_split<HALVES>(scores, even, odd);
        }
    }
};

__device__ __forceinline__ void count_key(const FusedJob &job, int m, uint32_t key)
{
    count_up(job.workspace.key_counts + m * KEY_BINS + (key >> BIN_SHIFT));
}

/* What a thread knows of its rows lane / 4 and + 8. */
template <int HALVES> struct RowWatch {
    uint32_t greatest[HALVES], floor[HALVES];

    __device__ __forceinline__ RowWatch()
    {
#pragma unroll
        for (int half = 0; half < HALVES; half++)
            greatest[half] = 0, floor[half] = NO_KEY;
    }

    __device__ __forceinline__ void read_floors(const Block &block)
    {
#pragma unroll
        for (int half = 0; half < HALVES; half++) {
            const int m = block.lane() / 4 + 8 * half;
            floor[half] = m < block.job.num_rows ? block.shared.floors[m] : NO_KEY;
        }
    }

    /* Scores of two items of each row, at `place` of the block's keys; num_items: from `item` on, which is negative
     * where there is no tile. */
    __device__ __forceinline__ void keep(const Block &block, const float (&scores)[4], float2 scales, int place,
                                         int item, int num_items)
    {
#pragma unroll
        for (int half = 0; half < HALVES; half++) {
            const int m = block.lane() / 4 + 8 * half;
            if (m >= block.job.num_rows)
                continue;
            const float factor = block.shared.factors[m];
            const uint32_t low = num_items > 0 ? max(score_key(scores[2 * half] * (scales.x * factor)), 1u) : 0;
            const uint32_t high = num_items > 1 ? max(score_key(scores[2 * half + 1] * (scales.y * factor)), 1u) : 0;
            *reinterpret_cast<uint32_t *>(block.keys(m) + place) = low | high << 16;
            uint16_t *const all_keys = block.job.workspace.item_keys;
            if (all_keys && item >= 0)
                *reinterpret_cast<uint32_t *>(all_keys + item) = low | high << 16;
            greatest[half] = max(greatest[half], max(low, high));
            if (low >= floor[half])
                count_key(block.job, m, low);
            if (high >= floor[half])
                count_key(block.job, m, high);
        }
    }

    __device__ __forceinline__ void publish(const Block &block)
    {
#pragma unroll
        for (int half = 0; half < HALVES; half++) {
            const int m = block.lane() / 4 + 8 * half;
            uint32_t most = greatest[half];
            most = max(most, __shfl_xor_sync(0xffffffffu, most, 1));
            most = max(most, __shfl_xor_sync(0xffffffffu, most, 2));
            if (block.lane() % 4 == 0 && m < block.job.num_rows)
                atomicMax(&block.shared.greatest[m], most);
        }
    }
};

/* By warp m: a key that surely more than the wanted of all items reach, from this block's first steps. A floor that is
 * too high is noticed later and costs time alone. */
__device__ __forceinline__ void find_block_floor(const Block &block)
{
    const FusedJob &job = block.job;
    const int m = block.warp(), lane = block.lane();
    if (m >= job.num_rows)
        return;
    const int num_words = job.sample_steps << (job.tile_shift + 4) >> 1;
    const uint32_t *const words = reinterpret_cast<const uint32_t *>(block.keys(m));
    uint32_t greatest = 0;
#pragma unroll 8
    for (int i = lane; i < num_words; i += 32)
        greatest = max(greatest, max(words[i] & 0xffffu, words[i] >> 16));
    int num_above = 0;
#pragma unroll
    for (int i = 0; i < 32; i++)
        num_above += __shfl_sync(0xffffffffu, greatest, i) > greatest;
    uint32_t floor = __reduce_min_sync(0xffffffffu, num_above < job.floor_rank ? greatest : 0xffffu);
    floor = job.floor_rank > 32 ? 0 : floor >> BIN_SHIFT << BIN_SHIFT;
    if (lane == 0 && block.shared.is_broken[m])
        block.shared.floors[m] = NO_KEY;
    else if (lane == 0) {
        block.shared.floors[m] = max(floor, 1u);
        raise_to(job.workspace.floors + m, floor);
    }
}

/* Counts this warp's keys of the steps before the floor was known. */
__device__ __forceinline__ void count_sampled(const Block &block)
{
    const FusedJob &job = block.job;
    const int pairs_shift = job.tile_shift - 1, count = job.num_rows << pairs_shift;
    for (int step = 0; step < job.sample_steps; step++) {
        const int first = ((step * FUSED_WARPS) + block.warp()) << job.tile_shift;
        for (int i = block.lane(); i < count; i += 32) {
            const int m = i >> pairs_shift, pair = i & ((1 << pairs_shift) - 1);
            const uint32_t two = *reinterpret_cast<const uint32_t *>(block.keys(m) + first + 2 * pair);
            const uint32_t floor = block.shared.floors[m];
            if ((two & 0xffffu) >= floor)
                count_key(job, m, two & 0xffffu);
            if (two >> 16 >= floor)
                count_key(job, m, two >> 16);
        }
    }
}

/* The ring's first tile is on its way, and is filled up by the caller. Ends without a barrier. */
template <class T, Ranking RANKING, int HALVES, int MOST_RANK>
__device__ __forceinline__ void rank_tiles(const Block &block, const TileRing &ring)
{
    const FusedJob &job = block.job;
    const int lane = block.lane(), tile_items = 1 << job.tile_shift;
    RankingRows<T, RANKING, HALVES, MOST_RANK> rows;
    rows.load(block);
    RowWatch<HALVES> watch;
    int slot = 0, phase = 0;
#pragma unroll 1
    for (int step = 0; step < job.num_steps; step++) {
        const bool is_there = step < ring.num_tiles;
        const int tile = block.tile_of(ring.first_tile + step);
        const char *const data = block.memory + (block.warp() * job.ring_slots + slot) * job.slot_bytes;
        const int num_items = is_there ? ring.items_in(tile) : 0;
        if (is_there)
            wait_for_copies(ring.barriers + slot * 8, phase);
#pragma unroll 1
        for (int part = 0; part < tile_items; part += 8) {
            float scores[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            float2 scales = make_float2(1.0f, 1.0f);
            const int in_tile = part + lane % 4 * 2;
            if (is_there) {
                rows.multiply(data + part * job.row_bytes, job.row_bytes, scores);
                if (RANKING == Ranking::INT8 && num_items == tile_items)
                    scales = *reinterpret_cast<const float2 *>(data + job.tile_bytes + in_tile * 4);
                else if (RANKING == Ranking::INT8)
                    for (int i = 0; i < 2; i++)
                        (i ? scales.y : scales.x) =
                            in_tile + i < num_items ? __ldg(job.w_vocab_scales + tile * tile_items + in_tile + i)
                                                    : 0.0f;
            }
            watch.keep(block, scores, scales, ((step * FUSED_WARPS + block.warp()) << job.tile_shift) + in_tile,
                       is_there ? (tile << job.tile_shift) + in_tile : -1, num_items - in_tile);
        }
        __syncwarp();
        if (lane == 0)
            ring.fetch(step + job.ring_slots, slot);
        if (++slot == job.ring_slots)
            slot = 0, phase ^= 1;
        if (step == 0)
            note_time(job, Moment::FIRST_TILE);
        if (step == job.sample_steps - 1) {
            __syncthreads();
            find_block_floor(block);
            __syncthreads();
            watch.read_floors(block);
            count_sampled(block);
            note_time(job, Moment::SAMPLED);
        }
    }
    watch.publish(block);
}

} // namespace draftsmith

#endif
