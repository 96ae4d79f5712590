/* Attention of a block of tokens to the cache, in blocks of KEY_BLOCK keys that start at multiples of it.
 *
 * Keys lie transposed in groups of 16, so that a vector is one dimension of 16 keys; values lie as rows, so that a
 * vector is 16 dimensions of one key. Both products then add up in one fixed order without sums across lanes. What a
 * token gets depends on the keys that it sees and on where they lie, never on the block that it came in. */
#ifndef DRAFTSMITH_ATTENTION_H
#define DRAFTSMITH_ATTENTION_H

#include "kernels.h"
#include "row_kernels.h"

#if defined(__AVX512F__)
enum { MOST_QUERIES = 12, MOST_CHUNK_ROWS = 6, GROUPS = 2 };
#elif defined(__AVX2__)
enum { MOST_QUERIES = 4, MOST_CHUNK_ROWS = 2, GROUPS = 1 };
#else
enum { MOST_QUERIES = 1, MOST_CHUNK_ROWS = 1, GROUPS = 1 };
#endif
enum { MOST_TILE_QUERIES = 64, CHUNK_LANES = 4, PREFETCH_KEYS = 16 };

INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Copy a head with its halves rotated against each other by the position's angles. */
INLINE void rotate_head(const struct attention_job *job, const float *head, int64_t position, float *rotated)
{
    const int64_t half = job->head_dim / 2;
    const float *cos = job->cos + position * half, *sin = job->sin + position * half;
    for (int64_t i = 0; i < half; i += 16) {
        const int64_t left = half - i;
        const lanes a = lanes_load_part(head + i, left), b = lanes_load_part(head + half + i, left);
        const lanes c = lanes_load_part(cos + i, left), s = lanes_load_part(sin + i, left);
        lanes_store_part(rotated + i, lanes_sub(lanes_mul(a, c), lanes_mul(b, s)), left);
        lanes_store_part(rotated + half + i, lanes_add(lanes_mul(b, c), lanes_mul(a, s)), left);
    }
}

/* Norm (where given) and rotate one head of a token. */
INLINE void finish_head(const struct attention_job *job, const float *head, const float *norm, int64_t position,
                        float *finished)
{
    float normed[1024];
    if (norm) {
        scale_row(head, norm, inverse_rms(head, job->head_dim, job->epsilon), job->head_dim, normed);
        head = normed;
    }
    rotate_head(job, head, position, finished);
}

static void prepare_tokens(const struct attention_job *job, int64_t first, int64_t last)
{
    const int64_t d = job->head_dim, group = job->num_heads / job->num_kv_heads;
    for (int64_t index = first; index < last; index++) {
        const int64_t b = index / job->num_tokens, t = index % job->num_tokens;
        if (t >= job->query_lengths[b])
            continue;
        const float *row = job->qkv + index * (job->num_heads + 2 * job->num_kv_heads) * d;
        const int64_t position = job->positions[index], column = job->past_lengths[b] + t;
        for (int64_t h = 0; h < job->num_heads; h++) {
            const int64_t kv = h / group;
            float *q = job->queries + (((b * job->num_kv_heads + kv) * job->num_tokens + t) * group + h % group) * d;
            finish_head(job, row + h * d, job->q_norm, position, q);
            for (int64_t i = 0; i < d; i++)
                q[i] *= job->scale;
        }
        for (int64_t kv = 0; kv < job->num_kv_heads; kv++) {
            float key[1024];
            float *cached = job->keys + (b * job->num_kv_heads + kv) * job->capacity * d;
            finish_head(job, row + (job->num_heads + kv) * d, job->k_norm, position, key);
            cached += column / KEY_LANES * KEY_LANES * d + column % KEY_LANES;
            for (int64_t i = 0; i < d; i++)
                cached[i * KEY_LANES] = key[i];
            memcpy(job->values + ((b * job->num_kv_heads + kv) * job->capacity + column) * d,
                   row + (job->num_heads + job->num_kv_heads + kv) * d, (size_t)d * sizeof(float));
        }
    }
}

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

/* Weighted values of `count` queries for `width` vectors of dimensions. */
INLINE void weigh_values(const float *weights, const float *values, int64_t d, int64_t num_keys, const int count,
                         const int width, float *sums, int64_t stride)
{
    lanes acc[MOST_CHUNK_ROWS][CHUNK_LANES];
    for (int q = 0; q < count; q++)
        for (int c = 0; c < width; c++)
            acc[q][c] = lanes_splat(0.0f);
    for (int64_t key = 0; key < num_keys; key++) {
        lanes value[CHUNK_LANES];
        for (int c = 0; c < width; c++)
            value[c] = lanes_load(values + key * d + c * 16);
        for (int c = 0; c < width; c++)
            __builtin_prefetch(values + (key + PREFETCH_KEYS) * d + c * 16);
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
INLINE void weigh_rest(const float *weights, const float *values, int64_t d, int64_t num_keys, int64_t rest,
                       float *sums)
{
    lanes acc = lanes_splat(0.0f);
    for (int64_t key = 0; key < num_keys; key++)
        acc = lanes_fma(lanes_splat(weights[key]), lanes_load_part(values + key * d, rest), acc);
    lanes_store_part(sums, acc, rest);
}

#define FOR_COUNT(left, most, call)                                                                                    \
    if (most >= 12 && left >= 12) { enum { COUNT = most >= 12 ? 12 : 1 }; call; done += COUNT; }                       \
    else if (most >= 6 && left >= 6) { enum { COUNT = most >= 6 ? 6 : 1 }; call; done += COUNT; }                      \
    else if (most >= 4 && left >= 4) { enum { COUNT = most >= 4 ? 4 : 1 }; call; done += COUNT; }                      \
    else if (most >= 3 && left >= 3) { enum { COUNT = most >= 3 ? 3 : 1 }; call; done += COUNT; }                      \
    else if (most >= 2 && left >= 2) { enum { COUNT = most >= 2 ? 2 : 1 }; call; done += COUNT; }                      \
    else { enum { COUNT = 1 }; call; done += COUNT; }

static void score_block(const float *queries, int64_t count, int64_t d, const float *keys, int64_t num_keys,
                        float *scores)
{
    for (int64_t group = 0; group < num_keys; group += GROUPS * KEY_LANES)
        for (int64_t done = 0; done < count;)
            FOR_COUNT(count - done, MOST_QUERIES,
                      score_keys(queries + done * d, d, keys + group * d, COUNT, scores + done * KEY_BLOCK + group))
}

static void weigh_block(const float *weights, int64_t count, const float *values, int64_t d, int64_t num_keys,
                        float *sums, int64_t stride)
{
    int64_t first = 0;
    for (; first + 16 * CHUNK_LANES <= d; first += 16 * CHUNK_LANES)
        for (int64_t done = 0; done < count;)
            FOR_COUNT(count - done, MOST_CHUNK_ROWS,
                      weigh_values(weights + done * KEY_BLOCK, values + first, d, num_keys, COUNT, CHUNK_LANES,
                                   sums + done * stride + first, stride))
    for (; first + 16 <= d; first += 16)
        for (int64_t done = 0; done < count;)
            FOR_COUNT(count - done, MOST_CHUNK_ROWS,
                      weigh_values(weights + done * KEY_BLOCK, values + first, d, num_keys, COUNT, 1,
                                   sums + done * stride + first, stride))
    if (first < d)
        for (int64_t q = 0; q < count; q++)
            weigh_rest(weights + q * KEY_BLOCK, values + first, d, num_keys, d - first, sums + q * stride + first);
}

/* Columns below this one are too far back for token t of sequence b. */
INLINE int64_t first_column(const struct attention_job *job, int64_t b, int64_t t)
{
    return job->window ? larger(0, job->positions[b * job->num_tokens + t] - job->window + 1) : 0;
}

/* Whether token t of sequence b sees token u of the block. */
INLINE bool sees_token(const struct attention_job *job, int64_t b, int64_t t, int64_t u)
{
    const int32_t *positions = job->positions + b * job->num_tokens;
    const bool near = job->window == 0 || positions[t] - positions[u] < job->window;
    return u <= t && near && job->tree_mask[(b * job->num_tokens + t) * job->num_tokens + u];
}

/* Scores of keys that a token does not see become -infinity. A cached token's position is its column. */
static void hide_keys(const struct attention_job *job, int64_t b, int64_t t, int64_t first_key, int64_t num_keys,
                      float *scores)
{
    const int64_t cached = larger(0, smaller(job->past_lengths[b] - first_key, num_keys));
    const int64_t far = smaller(first_column(job, b, t) - first_key, cached);
    for (int64_t key = 0; key < far; key++)
        scores[key] = -INFINITY;
    for (int64_t key = cached; key < num_keys; key++)
        if (!sees_token(job, b, t, first_key + key - job->past_lengths[b]))
            scores[key] = -INFINITY;
    for (int64_t key = num_keys; key % KEY_LANES; key++)
        scores[key] = -INFINITY;
}

/* Whether no token of [first, last) sees anything of a block that ends at `end_key`. */
static bool is_hidden(const struct attention_job *job, int64_t b, int64_t first, int64_t last, int64_t end_key)
{
    if (job->window == 0 || end_key > job->past_lengths[b])
        return false;
    for (int64_t t = first; t < last; t++)
        if (first_column(job, b, t) < end_key)
            return false;
    return true;
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

/* Partials of a query and a block: D weighted values, the maximum, the sum. */
INLINE float *partial_of(const struct attention_job *job, int64_t b, int64_t kv, int64_t t, int64_t block)
{
    const int64_t group = job->num_heads / job->num_kv_heads, token = t - job->first_token;
    const int64_t index = ((b * job->num_kv_heads + kv) * job->wave_tokens + token) * group * job->num_blocks + block;
    return job->partials + index * (job->head_dim + 2);
}

static void attend_block(const struct attention_job *job, int64_t b, int64_t kv, int64_t tile, int64_t block)
{
    const int64_t d = job->head_dim, group = job->num_heads / job->num_kv_heads;
    const int64_t first = job->first_token + tile * job->tile_tokens;
    const int64_t end = smaller(job->first_token + job->wave_tokens, job->query_lengths[b]);
    const int64_t last = smaller(first + job->tile_tokens, end), first_key = block * KEY_BLOCK;
    if (first >= last || first_key >= job->past_lengths[b] + last)
        return;
    const int64_t num_keys = smaller(KEY_BLOCK, job->past_lengths[b] + last - first_key);
    const int64_t count = (last - first) * group, stride = job->num_blocks * (d + 2);
    const int64_t head = (b * job->num_kv_heads + kv);
    const float *keys = job->keys + (head * job->capacity + first_key) * d;
    const float *values = job->values + (head * job->capacity + first_key) * d;
    float *partials = partial_of(job, b, kv, first, block);
    if (is_hidden(job, b, first, last, first_key + num_keys)) {
        for (int64_t q = 0; q < count; q++)
            partials[q * stride + d] = -INFINITY;
        return;
    }
    float scores[MOST_TILE_QUERIES * KEY_BLOCK] __attribute__((aligned(64)));
    score_block(job->queries + (head * job->num_tokens + first) * group * d, count, d, keys, num_keys, scores);
    for (int64_t q = 0; q < count; q++) {
        float *row = scores + q * KEY_BLOCK, *partial = partials + q * stride;
        hide_keys(job, b, first + q / group, first_key, num_keys, row);
        weigh_scores(row, num_keys, partial + d, partial + d + 1);
    }
    weigh_block(scores, count, values, d, num_keys, partials, stride);
}

/* One head of a token: blocks put together. */
static void combine_head(const struct attention_job *job, const float *partials, int64_t num_blocks, float *y)
{
    const int64_t d = job->head_dim, stride = d + 2;
    float most = -INFINITY, sum = 0.0f, factors[16];
    for (int64_t n = 0; n < num_blocks; n++)
        most = partials[n * stride + d] > most ? partials[n * stride + d] : most;
    memset(y, 0, (size_t)d * sizeof(float));
    for (int64_t n = 0; n < num_blocks; n++) {
        const float *p = partials + n * stride;
        if (p[d] == -INFINITY)
            continue;
        const lanes factor = lanes_exp(lanes_splat(p[d] - most));
        lanes_store(factors, factor);
        sum += p[d + 1] * factors[0];
        for (int64_t i = 0; i < d; i += 16) {
            const lanes total = lanes_fma(factor, lanes_load_part(p + i, d - i), lanes_load_part(y + i, d - i));
            lanes_store_part(y + i, total, d - i);
        }
    }
    for (int64_t i = 0; i < d; i += 16)
        lanes_store_part(y + i, lanes_div(lanes_load_part(y + i, d - i), lanes_splat(sum)), d - i);
}

static void combine_tile(const struct attention_job *job, int64_t b, int64_t kv, int64_t tile)
{
    const int64_t d = job->head_dim, group = job->num_heads / job->num_kv_heads;
    const int64_t first = job->first_token + tile * job->tile_tokens, end = job->first_token + job->wave_tokens;
    for (int64_t t = first; t < smaller(first + job->tile_tokens, end); t++) {
        float *y = job->y + ((b * job->num_tokens + t) * job->num_heads + kv * group) * d;
        if (t >= job->query_lengths[b]) {
            memset(y, 0, (size_t)(group * d) * sizeof(float));
            continue;
        }
        const int64_t num_blocks = (job->past_lengths[b] + t) / KEY_BLOCK + 1;
        for (int64_t h = 0; h < group; h++)
            combine_head(job, partial_of(job, b, kv, t, 0) + h * job->num_blocks * (d + 2), num_blocks, y + h * d);
    }
}

#endif
