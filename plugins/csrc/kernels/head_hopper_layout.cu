#include "head_hopper_layout.h"

#include <cmath>

#include "head_hopper_shared.cuh"
#include "head_hopper_outputs.cuh"

namespace draftsmith {

namespace {

int round_up(int value, int step) { return (value + step - 1) / step * step; }
int least(int a, int b) { return a < b ? a : b; }
int most(int a, int b) { return a > b ? a : b; }

void choose_projection(FusedJob &job, int num_blocks)
{
    job.num_splits = 1;
    job.ranks_a_block = (job.rank + num_blocks - 1) / num_blocks;
    while (job.num_splits < MOST_SPLITS && job.ranks_a_block < 4) {
        const int splits = 2 * job.num_splits, ranks = (job.rank * splits + num_blocks - 1) / num_blocks;
        if (ranks > 8 || job.hidden_size < 256 * splits)
            break;
        job.num_splits = splits;
        job.ranks_a_block = ranks;
    }
}

void choose_tiles(FusedJob &job, int num_blocks)
{
    enum { TILE_BYTES = 4096 };
    job.tile_shift = 3;
    while (job.tile_shift < 6 && job.row_bytes << (job.tile_shift + 1) <= TILE_BYTES)
        job.tile_shift++;
    job.tile_bytes = job.row_bytes << job.tile_shift;
    job.num_tiles = (job.num_ranked + (1 << job.tile_shift) - 1) >> job.tile_shift;
    job.block_tiles = (job.num_tiles + num_blocks - 1) / num_blocks;
    job.num_steps = (job.block_tiles + FUSED_WARPS - 1) / FUSED_WARPS;
    const int whole_steps = job.block_tiles / FUSED_WARPS, most_steps = MOST_SAMPLED >> (job.tile_shift + 4);
    job.sample_steps = most(1, least((whole_steps + 1) / 2, most_steps));
}

/* Of 32 maxima, so many may reach the threshold by chance, and five deviations more. */
void choose_floor(FusedJob &job)
{
    const double share = (double)job.num_kept / job.num_ranked;
    const double keys = (job.sample_steps << (job.tile_shift + 4)) / 32.0;
    const double reach = 1.0 - std::pow(1.0 - share, keys);
    job.floor_rank = (int)std::ceil(32.0 * reach + 5.0 * std::sqrt(32.0 * reach * (1.0 - reach)) + 1.0);
}

bool choose_shared(FusedJob &job, int num_blocks, int most_bytes, bool has_scales)
{
    job.slot_bytes = job.tile_bytes + (has_scales ? 4 << job.tile_shift : 0);
    /* The products' 16-byte loads hit other banks in each of two rows. */
    job.stage_stride = (2 * job.hidden_size + 63) / 128 * 128 + 64;
    const int places = job.num_steps << (job.tile_shift + 4);
    job.key_stride = round_up(places, 64) + 8;
    job.rows_held = job.num_rows <= 8 ? 8 : FUSED_ROWS;
    const int merge_bytes = (int)sizeof(MergeShared);
    const int key_bytes = round_up(2 * job.num_rows * job.key_stride, 128);
    const double most_kept =
        std::fmin(job.num_ranked, (double)job.num_rows * (job.num_kept + MOST_SHARED_UNCERTAIN));
    const int share = (int)(most_kept * job.group_size / num_blocks) + 2;
    const int most_slots = job.group_size > 1 ? share : places + MOST_STAGES * STAGE_SLOTS;
    const int slot_list_bytes = round_up((int)sizeof(Slot) * most_slots, 128);
    const int fixed_bytes = round_up((int)sizeof(FusedShared), 128);
    const int sum_bytes = job.rows_held * 4 * 2 * FUSED_WARPS * 8;
    const int array_bytes = sum_bytes + job.num_rows * (20 * BATCH_SLOTS + 16 * FUSED_OUTPUTS);
    const int rest = key_bytes + slot_list_bytes + fixed_bytes + array_bytes;
    const int left = most_bytes - rest, slot = FUSED_WARPS * job.slot_bytes, stage = STAGE_SLOTS * job.stage_stride;
    if (left < merge_bytes || left < 2 * slot || left < 2 * stage)
        return false;
    job.ring_slots = least(MOST_RING_SLOTS, left / slot);
    job.stages = least(MOST_STAGES, left / stage);
#ifndef DRAFTSMITH_HEAD_EARLY
#define DRAFTSMITH_HEAD_EARLY 1
#endif
    job.early_slots = least(job.ring_slots, DRAFTSMITH_HEAD_EARLY);
    const int region = round_up(most(merge_bytes, most(job.ring_slots * slot, job.stages * stage)), 128);
    job.keys_at = region;
    job.slots_at = job.keys_at + key_bytes;
    job.fixed_at = job.slots_at + slot_list_bytes;
    job.arrays_at = job.fixed_at + fixed_bytes;
    job.shared_bytes = job.arrays_at + array_bytes;
    return job.shared_bytes <= most_bytes;
}

/* Hands out parts of the workspace one behind the other. */
struct Parts {
    char *base;
    size_t num_bytes;

    template <class T> void take(T *&part, size_t count)
    {
        part = reinterpret_cast<T *>(base ? base + num_bytes : nullptr);
        num_bytes += (count * sizeof(T) + DRAFTSMITH_WORKSPACE_ALIGNMENT - 1) / DRAFTSMITH_WORKSPACE_ALIGNMENT *
                     DRAFTSMITH_WORKSPACE_ALIGNMENT;
    }
};

void lay_out_workspace(FusedJob &job, int num_blocks, void *base)
{
    FusedWorkspace &part = job.workspace;
    Parts parts = {static_cast<char *>(base), 0};
    const size_t num_rows = job.num_rows, blocks = num_blocks;
#ifdef DRAFTSMITH_HEAD_TIMES
    parts.take(part.times, blocks * 16);
#endif
    const size_t start = parts.num_bytes;
    parts.take(part.arrivals, NUM_ARRIVALS * ARRIVAL_STRIDE);
    parts.take(part.greatest_keys, FUSED_ROWS);
    parts.take(part.floors, FUSED_ROWS);
    parts.take(part.num_uncertain, FUSED_ROWS);
    parts.take(part.key_counts, num_rows * KEY_BINS);
    parts.take(part.first_counts, num_rows * FIRST_BINS);
    parts.take(part.second_counts, num_rows * SECOND_BINS);
    part.num_zeroed = parts.num_bytes - start;
    part.chosen_words = round_up((job.num_ranked + 31) / 32, 4);
    parts.take(part.chosen, num_rows * part.chosen_words);
    parts.take(part.projected, num_rows * MOST_SPLITS * job.rank);
    parts.take(part.uncertain, num_rows * MOST_UNCERTAIN);
    parts.take(part.orders, num_rows * MOST_SHARING_UNCERTAIN);
    parts.take(part.sums, num_rows * blocks);
    parts.take(part.best, num_rows * blocks * job.num_outputs);
    if (job.group_size > 1 && num_rows == 1)
        parts.take(part.item_keys, job.item_stride);
    if (job.group_size > 1 && num_rows > 1) {
        parts.take(part.item_rows, job.item_stride);
        parts.take(part.item_bits, MOST_SHARED_ITEMS / 8);
    }
    part.num_bytes = parts.num_bytes;
}

} // namespace

bool lay_out_fused(const draftsmith_head_shape &shape, const Device &device, int num_rows, void *base, FusedJob &job)
{
    const int num_blocks = device.num_multiprocessors;
    job = FusedJob{};
    job.num_rows = num_rows;
    job.hidden_size = shape.hidden_size;
    job.rank = shape.rank;
    job.num_vocab = shape.num_vocab;
    job.num_ranked = num_ranked(shape);
    job.num_kept = num_kept(shape);
    job.num_candidates = shape.num_candidates;
    job.num_outputs = shape.num_outputs;
    job.group_size = shape.group_size;
    job.most_uncertain = shape.group_size > 1 ? MOST_SHARED_UNCERTAIN : MOST_UNCERTAIN;
    const bool is_int8 = shape.ranking_type == DRAFTSMITH_INT8;
    job.row_bytes = shape.rank * (is_int8 ? 1 : 2);
    choose_projection(job, num_blocks);
    choose_tiles(job, num_blocks);
    choose_floor(job);
    if (job.group_size > 1 && job.num_ranked > MOST_SHARED_ITEMS)
        return false;
    job.item_stride = job.num_tiles << job.tile_shift;
    lay_out_workspace(job, num_blocks, base);
    return choose_shared(job, num_blocks, device.max_shared_bytes, is_int8);
}

} // namespace draftsmith
