/* The best tokens by inverse_temperature * logit + noise, and the log of the sum of exponentials over all.
 *
 * Noise is Gumbel's, a number for (key, token id) alone, as in model_repo/runtime/noise.py (SplitMix64's mixer); key 0:
 * none. Ties go to the lowest id. */
#ifndef DRAFTSMITH_BEST_TOKENS_H
#define DRAFTSMITH_BEST_TOKENS_H

#include "kernels.h"

enum { MOST_BEST = 64, SUM_BLOCK = 4096 };

struct token_list {
    const int32_t *ids;  /* [count], or NULL: first_id, first_id + 1, ... */
    const float *logits; /* [count] */
    int64_t count;
    int32_t first_id;
};

/* What is known of a part of a row; parts are put together in order. */
struct best_tokens {
    float factor;            /* inverse temperature */
    uint64_t noise_key;
    int64_t most, count;     /* of the best */
    double values[MOST_BEST]; /* descending */
    float logits[MOST_BEST];
    int32_t ids[MOST_BEST];
    float largest, sum;      /* of factor * logit, and of exp(factor * logit - largest) */
};

void begin_best(struct best_tokens *best, int64_t most, float factor, int64_t noise_key);
/* All tokens of a list. */
void offer_tokens(struct best_tokens *best, const struct kernels *kernels, const struct token_list *list);
void join_best(struct best_tokens *best, const struct best_tokens *other);
/* The outputs of a row: `most` ids and logits, -1 and -infinity where there are fewer; all NaN where a logit is NaN. */
void store_best(const struct best_tokens *best, int32_t *ids, float *logits, float *log_sum_exp);
void store_broken(int64_t most, int32_t *ids, float *logits, float *log_sum_exp);

#endif
