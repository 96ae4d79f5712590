/* Reads a step's tree mask: checks it, and turns each token's row into what the kernels need (struct sight). */
#ifndef DRAFTSMITH_TREE_MASK_H
#define DRAFTSMITH_TREE_MASK_H

#include "kernels.h"

struct mask_size {
    int64_t num_others;  /* of all tokens together */
    int64_t num_columns; /* of the token that sees most, at least 1 */
};

/* What is wrong with the mask, or NULL: then `size` is set. Lengths must have been checked. */
const char *measure_mask(const struct attention_job *job, struct mask_size *size);

/* Set the sights of all tokens that count; `others` has room for num_others. */
void read_mask(const struct attention_job *job, int32_t *others);

#endif
