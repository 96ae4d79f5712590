/* Internal: the fused path. One cooperative kernel of a block a multiprocessor does everything for up to FUSED_ROWS
 * rows:
 *
 * h' by all blocks together | barrier | scores of this block's tiles of w_vocab, streamed through shared memory;
 * their keys stay there, those above a floor are counted in the row's histogram | barrier | the bin that holds the
 * row's threshold; this block's candidates, their rows of w_head and logits | arrival | block m: row m's best and
 * log-sum-exp.
 *
 * Keys in the threshold's bin are "uncertain": their logits go to a list, of which block m takes the best keys. Where
 * the list would be long, two more barriers find the last item that is kept; where rows share their candidates, one
 * more shows all blocks the list. Where an item is a group of tokens, all blocks learn which items are kept and share
 * the gather equally. Nothing that reaches an output depends on the order in which blocks or copies arrive. */
#ifndef DRAFTSMITH_HEAD_HOPPER_H
#define DRAFTSMITH_HEAD_HOPPER_H

#include "head_paths.h"

namespace draftsmith {

enum {
    FUSED_WARPS = 16,
    FUSED_THREADS = 32 * FUSED_WARPS,
    FUSED_ROWS = 16,
    FUSED_OUTPUTS = 32,
    BIN_SHIFT = 3, /* keys a bin: 8 */
    KEY_BINS = 65536 >> BIN_SHIFT,
    ORDER_BITS = 20 + BIN_SHIFT, /* of an item's place in its bin: the key's last bits, then the id */
    SECOND_BITS = 12,
    FIRST_BINS = 1 << (ORDER_BITS - SECOND_BITS),
    SECOND_BINS = 1 << SECOND_BITS,
    MOST_UNCERTAIN = 512,
    MOST_SHARING_UNCERTAIN = 256, /* where rows share */
    MOST_SHARED_UNCERTAIN = 64,   /* where blocks do */
    MOST_SHARED_ITEMS = 64 * FUSED_THREADS,
    BATCH_SLOTS = 64,
    STAGE_SLOTS = 8,
    MOST_RING_SLOTS = 4,
    MOST_STAGES = 8,
    MOST_SPLITS = 4,
    MOST_SAMPLED = 1024,
    NUM_ARRIVALS = 8,
    ARRIVAL_STRIDE = 32
};

/* A line each: which barrier. */
enum class Arrival { COUNTED, MISSED, RECOUNTED, FIRST_COUNTED, SECOND_COUNTED, LISTED, DONE };

struct FusedWorkspace {
    unsigned *arrivals;      /* [NUM_ARRIVALS, ARRIVAL_STRIDE] */
    unsigned *greatest_keys; /* [FUSED_ROWS] */
    unsigned *floors;        /* [FUSED_ROWS] the greatest of all blocks' */
    unsigned *num_uncertain; /* [FUSED_ROWS] */
    unsigned *key_counts;    /* [m, KEY_BINS] */
    unsigned *first_counts;  /* [m, FIRST_BINS] */
    unsigned *second_counts; /* [m, SECOND_BINS] */
    size_t num_zeroed;       /* bytes from `arrivals` that the kernel zeroes at its start */
    uint32_t *chosen;        /* [m, chosen_words] a bit an item, zeroed where chosen_ids are asked for */
    int chosen_words;
    float *projected;        /* [splits, m, r] sums over a part of d each */
    uint4 *uncertain;        /* [m, MOST_UNCERTAIN] key, token, logit's bits */
    uint32_t *orders;        /* [m, MOST_SHARING_UNCERTAIN] order_in_bin of the uncertain, where rows share */
    float2 *sums;            /* [m, blocks] greatest logit, sum of exponentials relative to it; NaN: a logit is NaN */
    uint64_t *best;          /* [m, blocks, out] candidate_key, best first, 0: none */
    uint16_t *item_keys;     /* [item_stride] where blocks share the gather of a single row, else null */
    uint4 *item_rows;        /* [item_stride] where they share that of several: of an item that rows may keep, these as
                              * in Slot, and BIN_SHIFT last bits of each row's key */
    uint8_t *item_bits;      /* with item_rows: a bit an item whether it has any */
    uint64_t *times;         /* [blocks, 16] of builds that measure, else null */
    size_t num_bytes;
};

/* One pass over up to FUSED_ROWS rows. */
struct FusedJob {
    const void *hidden, *w_down, *w_vocab, *w_head;
    const float *w_vocab_scales;
    const int32_t *request_of_row;
    int32_t *candidate_ids, *chosen_ids;
    float *candidate_logits, *log_sum_exp;
    FusedWorkspace workspace;
    int num_rows, hidden_size, rank, num_vocab, num_ranked, num_kept, num_candidates, num_outputs, group_size;
    int num_splits, ranks_a_block;         /* of the projection */
    int tile_shift, row_bytes, tile_bytes; /* of w_vocab; a tile has 1 << tile_shift rows */
    int num_tiles, block_tiles, num_steps; /* tiles; most of a block, most of a warp */
    int sample_steps, floor_rank;          /* the floor: this greatest of 32 maxima of the keys of the first steps */
    int ring_slots, slot_bytes;            /* of a warp */
    int early_slots;                       /* filled before h' is known */
    int stages, stage_stride;              /* of the gather; bytes from a row to the next in a stage */
    int item_stride, most_uncertain;       /* of a row's bin, before the exact search */
    int key_stride;                        /* keys from a row of hidden states to the next */
    int rows_held;                         /* by the sums in shared memory: 8 or 16 */
    int keys_at, slots_at, fixed_at, arrays_at; /* bytes in shared memory, after the ring */
    int shared_bytes;
};

} // namespace draftsmith

#endif
