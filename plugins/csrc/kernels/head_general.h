/* Internal: the general path's workspace, and its phases in the order in which head_general.cu launches them.
 *
 * R ranked rows (tokens or groups) in slices of SLICE; entries: ranked rows that any row keeps, by slice, ascending;
 * slots: their tokens, S an entry, dense. The counts and slots are deterministic. */
#ifndef DRAFTSMITH_HEAD_GENERAL_H
#define DRAFTSMITH_HEAD_GENERAL_H

#include "head_paths.h"

namespace draftsmith {

enum { SLICE = 2048, NUM_BINS = 256, SELECT_THREADS = 256, KEYS_A_THREAD = SLICE / SELECT_THREADS };

struct RowState {
    int32_t is_broken;
    int32_t bin, num_above_bin; /* of the threshold's upper eight bits; keys above the bin */
    int32_t threshold;          /* the 16-bit key of the last that is kept */
    int32_t num_ties;           /* of those equal to it, so many are kept, lowest first */
};

struct GeneralWorkspace {
    unsigned *num_done;     /* [2 M + 1] blocks that have come to the end of a phase: count, refine a row; compact */
    RowState *rows;         /* [M] */
    float *projected;       /* [M, r] */
    uint16_t *keys;         /* [M, key_stride] */
    uint16_t *upper_counts; /* [M, num_slices, NUM_BINS] */
    uint16_t *lower_counts; /* [M, num_slices, NUM_BINS], within the threshold's bin */
    int32_t *ties_below;    /* [M, num_slices]: keys equal to the threshold in earlier slices */
    int32_t *entry_items;   /* [num_slices, SLICE] */
    uint64_t *entry_masks;  /* [num_slices, SLICE]: rows of which it is a candidate */
    int32_t *slice_counts;  /* [num_slices] entries */
    int32_t *slice_starts;  /* [num_slices + 1]: entries before; the last: all */
    int32_t *slot_tokens;   /* [max_slots], -1: none */
    uint64_t *slot_masks;   /* [max_slots] */
    float *slot_logits;     /* [M, max_slots] */
    int num_ranked, num_slices, key_stride, num_kept;
    size_t max_slots;
    size_t num_bytes;
};

GeneralWorkspace lay_out_general(const draftsmith_head_shape &shape, void *base);

struct GeneralJob {
    draftsmith_head_shape shape;
    draftsmith_head_arguments arguments;
    GeneralWorkspace workspace;
    Device device;
    cudaStream_t stream;
};

void launch_projection(const GeneralJob &job);     /* projected; num_done = 0 */
void launch_ranking(const GeneralJob &job);        /* keys, rows.is_broken */
void launch_counting(const GeneralJob &job);       /* upper_counts, rows.bin */
void launch_refinement(const GeneralJob &job);     /* lower_counts, rows.threshold, ties_below */
void launch_compaction(const GeneralJob &job);     /* entries, slices */
void launch_chosen_listing(const GeneralJob &job); /* arguments.chosen_ids */
void launch_logits(const GeneralJob &job);         /* slots */
void launch_outputs(const GeneralJob &job);        /* candidate_ids, candidate_logits, log_sum_exp */

} // namespace draftsmith

#endif
