/* The products of attention, for up to MOST_TILE_QUERIES queries and a block of KEY_BLOCK keys: scores, weights, weighted
 * values. Knows rows of floats only, neither sequences nor masks.
 *
 * Keys lie transposed in groups of 16, so that a vector is one dimension of 16 keys; values lie as rows, so that a
 * vector is 16 dimensions of one key. Both products then add up in one fixed order without sums across lanes. */
#ifndef DRAFTSMITH_ATTENTION_SCORES_H
#define DRAFTSMITH_ATTENTION_SCORES_H

#include "kernels.h"
#include "lanes.h"

#if defined(__AVX512F__)
enum { MOST_QUERIES = 12, MOST_CHUNK_ROWS = 6, GROUPS = 2 };
#elif defined(__AVX2__)
enum { MOST_QUERIES = 4, MOST_CHUNK_ROWS = 2, GROUPS = 1 };
#else
enum { MOST_QUERIES = 1, MOST_CHUNK_ROWS = 1, GROUPS = 1 };
#endif
enum { MOST_TILE_QUERIES = 64, CHUNK_LANES = 4, PREFETCH_KEYS = 16 };

/* Scores of `count` queries with GROUPS times 16 keys. */
INLINE void score_keys(const float *queries, int64_t d, const float *keys, const int count, float *scores)
{
    lanes sums[MOST_QUERIES][GROUPS];
    for (int q = 0; q < count; q++)
        for (int g = 0; g < GROUPS; g++)
            sums[q][g] = lanes_splat(0.0f);
    for (int64_t i = 0; i < d; i++) {
        lanes key[GROUPS];
        for (int g = 0; g < GROUPS; g++) {
            key[g] = lanes_load(keys + (g * d + i) * KEY_LANES);
            __builtin_prefetch(keys + ((GROUPS + g) * d + i) * KEY_LANES);
        }
#pragma GCC unroll 16
        for (int q = 0; q < count; q++) {
            const lanes query = lanes_splat(queries[q * d + i]);
            for (int g = 0; g < GROUPS; g++)
                sums[q][g] = lanes_fma(query, key[g], sums[q][g]);
        }
    }
    for (int q = 0; q < count; q++)
        for (int g = 0; g < GROUPS; g++)
            lanes_store(scores + q * KEY_BLOCK + g * KEY_LANES, sums[q][g]);
}

/* Weighted values of `count` queries for `width` vectors of dimensions. Without `columns` the keys are the first rows
 * of `values`; with them they are those rows, and the sums go on from what is there. */
INLINE void weigh_values(const float *weights, const float *values, const int32_t *columns, int64_t d,
                         int64_t num_keys, const int count, const int width, float *sums, int64_t stride)
{
    lanes acc[MOST_CHUNK_ROWS][CHUNK_LANES];
    for (int q = 0; q < count; q++)
        for (int c = 0; c < width; c++)
            acc[q][c] = columns ? lanes_load(sums + q * stride + c * 16) : lanes_splat(0.0f);
    for (int64_t key = 0; key < num_keys; key++) {
        const float *row = values + (columns ? columns[key] : key) * d;
        lanes value[CHUNK_LANES];
        for (int c = 0; c < width; c++)
            value[c] = lanes_load(row + c * 16);
        for (int c = 0; c < width && !columns; c++)
            __builtin_prefetch(row + PREFETCH_KEYS * d + c * 16);
#pragma GCC unroll 8
        for (int q = 0; q < count; q++) {
            const lanes weight = lanes_splat(weights[q * KEY_BLOCK + key]);
#pragma GCC unroll 4
            for (int c = 0; c < width; c++)
                acc[q][c] = lanes_fma(weight, value[c], acc[q][c]);
        }
    }
    for (int q = 0; q < count; q++)
        for (int c = 0; c < width; c++)
            lanes_store(sums + q * stride + c * 16, acc[q][c]);
}

/* The last dimensions of a head size that is no multiple of 16. */
INLINE void weigh_rest(const float *weights, const float *values, const int32_t *columns, int64_t d,
                       int64_t num_keys, int64_t rest, float *sums)
{
    lanes acc = columns ? lanes_load_part(sums, rest) : lanes_splat(0.0f);
    for (int64_t key = 0; key < num_keys; key++) {
        const float *row = values + (columns ? columns[key] : key) * d;
        acc = lanes_fma(lanes_splat(weights[key]), lanes_load_part(row, rest), acc);
    }
    lanes_store_part(sums, acc, rest);
}

#define FOR_COUNT(left, most, call)                                                                                    \
    if (most >= 12 && left >= 12) { enum { COUNT = most >= 12 ? 12 : 1 }; call; done += COUNT; }                       \
    else if (most >= 6 && left >= 6) { enum { COUNT = most >= 6 ? 6 : 1 }; call; done += COUNT; }                      \
    else if (most >= 4 && left >= 4) { enum { COUNT = most >= 4 ? 4 : 1 }; call; done += COUNT; }                      \
    else if (most >= 3 && left >= 3) { enum { COUNT = most >= 3 ? 3 : 1 }; call; done += COUNT; }                      \
    else if (most >= 2 && left >= 2) { enum { COUNT = most >= 2 ? 2 : 1 }; call; done += COUNT; }                      \
    else { enum { COUNT = 1 }; call; done += COUNT; }

/* Scores [count, KEY_BLOCK] of `num_keys` keys from a multiple of CAPACITY_STEP on; some behind them are written too. */
static void score_block(const float *queries, int64_t count, int64_t d, const float *keys, int64_t num_keys,
                        float *scores)
{
    for (int64_t group = 0; group < num_keys; group += GROUPS * KEY_LANES)
        for (int64_t done = 0; done < count;)
            FOR_COUNT(count - done, MOST_QUERIES,
                      score_keys(queries + done * d, d, keys + group * d, COUNT, scores + done * KEY_BLOCK + group))
}

INLINE void weigh_rows(const float *weights, int64_t count, const float *values, const int32_t *columns, int64_t d,
                       int64_t num_keys, float *sums, int64_t stride)
{
    int64_t first = 0;
    for (; first + 16 * CHUNK_LANES <= d; first += 16 * CHUNK_LANES)
        for (int64_t done = 0; done < count;)
            FOR_COUNT(count - done, MOST_CHUNK_ROWS,
                      weigh_values(weights + done * KEY_BLOCK, values + first, columns, d, num_keys, COUNT,
                                   CHUNK_LANES, sums + done * stride + first, stride))
    for (; first + 16 <= d; first += 16)
        for (int64_t done = 0; done < count;)
            FOR_COUNT(count - done, MOST_CHUNK_ROWS,
                      weigh_values(weights + done * KEY_BLOCK, values + first, columns, d, num_keys, COUNT, 1,
                                   sums + done * stride + first, stride))
    for (int64_t q = 0; q < count && first < d; q++)
        weigh_rest(weights + q * KEY_BLOCK, values + first, columns, d, num_keys, d - first,
                   sums + q * stride + first);
}

/* sums [count, D] = weights [count, KEY_BLOCK] times the first `num_keys` rows of `values`. */
static void weigh_block(const float *weights, int64_t count, const float *values, int64_t d, int64_t num_keys,
                        float *sums, int64_t stride)
{
    weigh_rows(weights, count, values, NULL, d, num_keys, sums, stride);
}

/* sums [count, D] += weights [count, KEY_BLOCK] times rows `columns` [num_keys] of `values`. */
static void weigh_columns(const float *weights, int64_t count, const float *values, const int32_t *columns, int64_t d,
                          int64_t num_keys, float *sums, int64_t stride)
{
    weigh_rows(weights, count, values, columns, d, num_keys, sums, stride);
}

/* Scores [keys] -> weights exp(score - maximum) in place, their sum. A row without visible keys gives -infinity, 0. */
static void weigh_scores(float *scores, int64_t num_keys, float *maximum, float *sum)
{
    lanes most = lanes_splat(-INFINITY), total = lanes_splat(0.0f);
    for (int64_t key = 0; key < num_keys; key += 16)
        most = lanes_max(lanes_load(scores + key), most);
    *maximum = lanes_largest(most);
    const lanes shift = lanes_splat(*maximum == -INFINITY ? 0.0f : *maximum);
    for (int64_t key = 0; key < num_keys; key += 16) {
        const lanes weight = lanes_exp(lanes_sub(lanes_load(scores + key), shift));
        lanes_store(scores + key, weight);
        total = lanes_add(total, weight);
    }
    *sum = lanes_sum(total);
}

#endif
