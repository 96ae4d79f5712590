/* Shared memory of a block: the ring (later the gather's stages, at last the merge's keys), the keys of its items, the
 * candidates among them, what has a fixed size, and arrays of 8 or 16 rows. */
#ifndef DRAFTSMITH_HEAD_HOPPER_SHARED_CUH
#define DRAFTSMITH_HEAD_HOPPER_SHARED_CUH

#include "best_outputs.cuh"
#include "head_hopper_device.cuh"
#include "warp_mma.cuh"

namespace draftsmith {

/* A token that is a candidate of some row. */
struct Slot {
    int32_t token; /* -1: none; while items are listed, a place */
    uint32_t rows; /* a bit a row: lower half certain, upper half uncertain */
};

/* The warp's sum in every lane, always in the same order. */
__device__ __forceinline__ float sum_lanes(float value)
{
#pragma unroll
    for (int step = 1; step < 32; step *= 2)
        value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

/* A chunk of 32 elements (warp_mma.cuh) to two sums, of its even and its odd words. Of up to 8 rows one operand
 * serves both products as it was loaded, the odd words in the place of rows 8 to 15. */
template <class T, int HALVES>
__device__ __forceinline__ void multiply_split(float (&even)[4], float (&odd)[4], const uint4 &low, const uint4 &high,
                                               const uint4 &w)
{
    if (HALVES == 1) {
        multiply_step<T>(even, make_uint2(low.x, low.z), make_uint2(low.y, low.w), make_uint2(w.x, w.z));
        multiply_step<T>(odd, make_uint2(low.x, low.z), make_uint2(low.y, low.w), make_uint2(w.y, w.w));
    } else {
        multiply_step<T>(even, make_uint2(low.x, low.z), make_uint2(high.x, high.z), make_uint2(w.x, w.z));
        multiply_step<T>(odd, make_uint2(low.y, low.w), make_uint2(high.y, high.w), make_uint2(w.y, w.w));
    }
}

/* All of a product: [2], [3] mean nothing where there are up to 8 rows. */
template <int HALVES>
__device__ __forceinline__ void join_split(float (&sum)[4], const float (&even)[4], const float (&odd)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum[i] = even[i] + odd[HALVES == 1 ? (i + 2) % 4 : i];
}

constexpr uint32_t NO_KEY = 0x10000; /* above all keys */

struct FusedShared {
    uint64_t ring_barriers[FUSED_WARPS * MOST_RING_SLOTS];
    uint64_t stage_barriers[MOST_STAGES];
    float factors[FUSED_ROWS];         /* of int8 ranking: what a row's integers count */
    uint32_t floors[FUSED_ROWS];       /* keys from here on are counted; NO_KEY in broken rows */
    uint32_t greatest[FUSED_ROWS];     /* key of this block */
    uint32_t certain_from[FUSED_ROWS]; /* keys from here on are kept */
    uint32_t bin_from[FUSED_ROWS];     /* keys from here on, below certain_from: the threshold's bin */
    uint32_t num_in_bin[FUSED_ROWS];
    uint32_t num_needed[FUSED_ROWS];   /* of the bin */
    uint32_t cutoff[FUSED_ROWS];       /* exact: items of the bin from this place on are kept */
    uint32_t unions[FUSED_ROWS];       /* rows that take this row's candidates */
    int is_broken[FUSED_ROWS];
    int num_uncertain[FUSED_ROWS], first_uncertain[FUSED_ROWS]; /* of this block, and their place in the row's list */
    int scan[FUSED_WARPS + 1];
    int is_missed, is_exact;
    int is_stray;              /* the guessed candidates may lack some */
    int has_all_early;         /* of the guessed, all have a place among the early */
    int num_slots, num_early;  /* of the second, whole stages, the copies began before thresholds were known */
    int last_early;            /* place of the last of these */
};

/* Item is one of row m's own candidates: for chosen_ids. */
__device__ __forceinline__ void note_chosen(const FusedJob &job, int m, int item)
{
    if (job.chosen_ids)
        atomicOr(job.workspace.chosen + (size_t)m * job.workspace.chosen_words + item / 32, 1u << item % 32);
}

struct Block {
    const FusedJob &job;
    char *memory;
    FusedShared &shared;

    __device__ __forceinline__ Block(const FusedJob &job, char *memory)
        : job(job), memory(memory), shared(*reinterpret_cast<FusedShared *>(memory + job.fixed_at))
    {
    }

    __device__ __forceinline__ int warp() const { return threadIdx.x >> 5; }
    __device__ __forceinline__ int lane() const { return threadIdx.x & 31; }

    /* [HALVES * 64]: products of a warp, all rows by eight; two buffers. */
    __device__ __forceinline__ float *sums(int buffer, int warp) const
    {
        return reinterpret_cast<float *>(memory + job.arrays_at) + (buffer * FUSED_WARPS + warp) * job.rows_held * 8;
    }
    /* [BATCH_SLOTS] of row m. */
    __device__ __forceinline__ float *logits(int m) const
    {
        return sums(2, 0) + m * BATCH_SLOTS;
    }
    /* [FUSED_OUTPUTS + 2 BATCH_SLOTS] candidate_key of row m: the best so far, and from FUSED_OUTPUTS on the fresh. */
    __device__ __forceinline__ uint64_t *fresh(int m) const
    {
        return reinterpret_cast<uint64_t *>(logits(job.num_rows)) + m * (FUSED_OUTPUTS + 2 * BATCH_SLOTS);
    }
    /* [FUSED_OUTPUTS] candidate_key of row m so far, best first. */
    __device__ __forceinline__ uint64_t *best(int m) const { return fresh(job.num_rows) + m * FUSED_OUTPUTS; }
    /* Takes the place of sums (8 or 16 KB) and logits (256 bytes a row) while they are not used. */
    __device__ __forceinline__ char *scratch() const { return memory + job.arrays_at; }

    /* [m, key_stride]: 0 where there is no item, NaN is 1. */
    __device__ __forceinline__ uint16_t *keys(int m) const
    {
        return reinterpret_cast<uint16_t *>(memory + job.keys_at) + m * job.key_stride;
    }
    __device__ __forceinline__ Slot *slots() const { return reinterpret_cast<Slot *>(memory + job.slots_at); }

    /* Keys a row: step after step of all warps, a tile each. */
    __device__ __forceinline__ int num_keys() const { return job.num_steps << (job.tile_shift + 4); }
    __device__ __forceinline__ int first_tile(int warp) const { return warp * job.block_tiles / FUSED_WARPS; }
    __device__ __forceinline__ int tile_of(int local_tile) const { return local_tile * gridDim.x + blockIdx.x; }
    __device__ __forceinline__ int item_of(int place) const
    {
        const int step = place >> (job.tile_shift + 4), warp = place >> job.tile_shift & (FUSED_WARPS - 1);
        const int in_tile = place & ((1 << job.tile_shift) - 1);
        return (tile_of(first_tile(warp) + step) << job.tile_shift) + in_tile;
    }
    /* Of an item of this block. */
    __device__ __forceinline__ int place_of(int item) const
    {
        const int local = (item >> job.tile_shift) / gridDim.x;
        const int warp = (FUSED_WARPS * (local + 1) - 1) / job.block_tiles;
        const int in_tile = item & ((1 << job.tile_shift) - 1);
        return ((((local - first_tile(warp)) * FUSED_WARPS) + warp) << job.tile_shift) + in_tile;
    }
};

} // namespace draftsmith

#endif
