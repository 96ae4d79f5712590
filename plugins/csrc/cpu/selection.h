/* The k best scores of many without a sort: by counting keys in ever narrower ranges. */
#ifndef DRAFTSMITH_SELECTION_H
#define DRAFTSMITH_SELECTION_H

#include <stdint.h>

/* At most the `rank`-th best of a sample [count], -infinity where it has no more than that; keys [count]: scratch. */
float estimate_floor(const float *sample, int64_t count, int64_t rank, uint32_t *keys);

/* Keep the k best of ids [count] (ascending), ties to the lowest id, in their order; how many are kept. NaN counts as
 * -infinity. keys [count]: scratch. */
int64_t keep_best(const float *scores, int32_t *ids, int64_t count, int64_t k, uint32_t *keys);

#endif
