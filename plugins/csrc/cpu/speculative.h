/* The steps of a speculative-vocabulary head (operator_speculative.c), each over a range of items; run in this order.
 *
 * Rows M = B N of hidden states; every row ranks all V tokens (or G groups), keeps the k best, gets their exact logits.
 * Dimensions: d hidden size, r rank, S tokens a group. */
#ifndef DRAFTSMITH_SPECULATIVE_H
#define DRAFTSMITH_SPECULATIVE_H

#include "best_tokens.h"

enum { CHUNK_PANELS = 64, CHUNK = CHUNK_PANELS * PANEL_COLUMNS, LOGIT_BLOCK = 128, SAMPLE_PANELS = 128 };

struct speculative_row {
    bool broken;           /* hidden state or what it is projected to is not finite */
    float floor;           /* no score below it is among the k best; lowered where it was too high */
    int64_t num_kept;      /* ranked rows to be chosen: k, or k / S groups */
    int64_t count;         /* candidates */
    int32_t *candidates;   /* [most_candidates] */
    float *logits;         /* [most_candidates] */
    int32_t *kept;         /* [ranked rows + 16]: above the floor, by chunk, then the chosen ones */
    int32_t *chunk_counts; /* [num_chunks] */
    uint32_t *keys;        /* [ranked rows] */
};

struct speculative_job {
    const struct kernels *kernels;
    bool is_exact;
    int64_t num_rows, hidden_size, rank, num_ranked; /* M, d, r, V or G */
    int64_t num_vocab, num_outputs, group_size;      /* V, c, S (1: no groups) */
    int64_t num_chunks, most_candidates;
    const float *hidden, *down;                      /* [M, d], [r, d] */
    const int32_t *groups;                           /* [G, S], -1: none; or NULL */
    const int64_t *noise_keys;                       /* [M] */
    const float *inverse_temperature;                /* [M] */
    struct linear_job ranking, head;
    float *projected;                                /* [M, r] */
    struct speculative_row *rows;                    /* [M] */
    int32_t *ids;                                    /* outputs: [M, c] */
    float *logits, *log_sum_exp;                     /* [M, c], [M] */
};

void project_hidden(void *job, int64_t first, int64_t last);  /* rows of `down` */
/* Whether there is enough to rank a sample of it first. */
bool has_sample(const struct speculative_job *job);
void rank_sample(void *job, int64_t first, int64_t last);     /* SAMPLE_PANELS; needs the ranking's activations */
void estimate_floors(void *job, int64_t first, int64_t last); /* rows */
void rank_chunks(void *job, int64_t first, int64_t last);     /* panels, whole chunks */
void choose_candidates(void *job, int64_t first, int64_t last); /* rows */
void multiply_blocks(void *job, int64_t first, int64_t last); /* LOGIT_BLOCKs of candidates of all rows */
void finish_rows(void *job, int64_t first, int64_t last);     /* rows */

#endif
