/* Attention of a block of tokens to the cache, in blocks of KEY_BLOCK keys that start at multiples of it.
 *
 * What a token gets depends on the keys that it sees and on their order, never on the block that it came in: the keys
 * that a token of a tree sees count as if they lay in consecutive columns, as they will once the others are dropped. */
#ifndef DRAFTSMITH_ATTENTION_H
#define DRAFTSMITH_ATTENTION_H

#include "attention_scores.h"
#include "row_kernels.h"

INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* What a token sees, see struct sight. */
INLINE const struct sight *sight_of(const struct attention_job *job, int64_t b, int64_t t)
{
    return job->sights + b * job->num_tokens + t;
}

/* Columns below this one are too far back for token t of sequence b; it always sees itself. */
INLINE int64_t first_column(const struct attention_job *job, int64_t b, int64_t t)
{
    if (job->window == 0)
        return 0;
    const int64_t nearest = sight_of(job, b, t)->num_columns - 1;
    return smaller(nearest, larger(0, job->positions[b * job->num_tokens + t] - job->window + 1));
}

/* Partials of a query and a block: D weighted values, the maximum, the sum. */
INLINE float *partial_of(const struct attention_job *job, int64_t b, int64_t kv, int64_t t, int64_t block)
{
    const int64_t group = job->num_heads / job->num_kv_heads, token = t - job->first_token;
    const int64_t index = ((b * job->num_kv_heads + kv) * job->wave_tokens + token) * group * job->num_blocks + block;
    return job->partials + index * (job->head_dim + 2);
}

/* What the tokens [first, last) of a tile see of the key block that begins at `first_key`. */
struct view {
    int64_t b, first, last, first_key;
    int64_t num_keys; /* columns that the longest of them sees here */
    int64_t shared;   /* columns that lie where they count for all of them */
    bool is_tree;     /* some of them see columns that lie behind where they count */
    bool is_near;     /* some of them see something here */
};

static struct view look_at(const struct attention_job *job, int64_t b, int64_t first, int64_t last, int64_t first_key)
{
    struct view view = {b, first, last, first_key, 0, KEY_BLOCK, false, false};
    for (int64_t t = first; t < last; t++) {
        const struct sight *sight = sight_of(job, b, t);
        const int64_t num_keys = smaller(KEY_BLOCK, sight->num_columns - first_key);
        const int64_t plain = larger(0, sight->plain_end - first_key);
        if (num_keys <= 0)
            continue;
        view.num_keys = larger(view.num_keys, num_keys);
        view.shared = smaller(view.shared, plain);
        view.is_tree |= plain < num_keys;
        view.is_near |= first_column(job, b, t) < first_key + num_keys;
    }
    return view;
}

/* Columns that a token sees behind its plain ones and that count in [first_key, first_key + KEY_BLOCK). */
struct tail {
    const int32_t *columns;
    int64_t first, last; /* keys of the block */
};

INLINE struct tail tail_of(const struct sight *sight, int64_t first_key)
{
    const int64_t first = larger(0, sight->plain_end - first_key);
    const int64_t last = smaller(KEY_BLOCK, sight->num_columns - first_key);
    return (struct tail){sight->others + (first_key + first - sight->plain_end), first, last};
}

/* Move scores of the columns from `from` on, a block of them, to where they count. Every column lies at or behind its
 * place and they ascend, so that the moves may happen in place. */
static void place_scores(const struct attention_job *job, const struct view *view, int64_t from, const float *found,
                         float *scores)
{
    const int64_t group = job->num_heads / job->num_kv_heads;
    for (int64_t t = view->first; t < view->last; t++) {
        const struct tail tail = tail_of(sight_of(job, view->b, t), view->first_key);
        for (int64_t h = 0; h < group; h++) {
            const int64_t row = ((t - view->first) * group + h) * KEY_BLOCK;
            for (int64_t key = tail.first; key < tail.last; key++) {
                const int64_t column = tail.columns[key - tail.first] - from;
                if (column >= 0 && column < KEY_BLOCK)
                    scores[row + key] = found[row + column];
            }
        }
    }
}

/* One past the last column in [from, from + KEY_BLOCK) that counts in the block of `view`; `from` where none does. */
static int64_t end_of_tails(const struct attention_job *job, const struct view *view, int64_t from)
{
    int64_t end = from;
    for (int64_t t = view->first; t < view->last; t++) {
        const struct tail tail = tail_of(sight_of(job, view->b, t), view->first_key);
        for (int64_t key = tail.first; key < tail.last; key++) {
            const int64_t column = tail.columns[key - tail.first];
            if (column < from + KEY_BLOCK)
                end = larger(end, column + 1);
        }
    }
    return end;
}

/* Scores of a tree's tokens, each at the place where its key counts; some of the keys lie in later blocks. */
static void score_tree(const struct attention_job *job, const struct view *view, const float *queries,
                       const float *keys, float *scores)
{
    const int64_t d = job->head_dim, count = (view->last - view->first) * (job->num_heads / job->num_kv_heads);
    const int64_t end = job->past_lengths[view->b] + view->last, first_key = view->first_key;
    float later[MOST_TILE_QUERIES * KEY_BLOCK] __attribute__((aligned(64)));
    score_block(queries, count, d, keys + first_key * d, smaller(KEY_BLOCK, end - first_key), scores);
    place_scores(job, view, first_key, scores, scores);
    for (int64_t from = first_key + KEY_BLOCK; from < end; from += KEY_BLOCK) {
        const int64_t num_keys = end_of_tails(job, view, from) - from;
        if (num_keys == 0)
            continue;
        score_block(queries, count, d, keys + from * d, num_keys, later);
        place_scores(job, view, from, later, scores);
    }
}

/* Scores of keys that a token does not see become -infinity. */
static void hide_keys(const struct attention_job *job, const struct view *view, int64_t t, float *scores)
{
    const int64_t far = smaller(first_column(job, view->b, t) - view->first_key, view->num_keys);
    const int64_t end = larger(0, sight_of(job, view->b, t)->num_columns - view->first_key);
    for (int64_t key = 0; key < far; key++)
        scores[key] = -INFINITY;
    for (int64_t key = end; key < view->num_keys || (key < KEY_BLOCK && key % KEY_LANES); key++)
        scores[key] = -INFINITY;
}

/* Weighted values of a tree's tokens: what lies in place for all, then the rest of each token. */
static void weigh_tree(const struct attention_job *job, const struct view *view, const float *weights,
                       const float *values, float *sums, int64_t stride)
{
    const int64_t d = job->head_dim, group = job->num_heads / job->num_kv_heads, first_key = view->first_key;
    weigh_block(weights, (view->last - view->first) * group, values + first_key * d, d, view->shared, sums, stride);
    for (int64_t t = view->first; t < view->last; t++) {
        const struct tail tail = tail_of(sight_of(job, view->b, t), first_key);
        const int64_t q = (t - view->first) * group;
        int32_t columns[KEY_BLOCK];
        for (int64_t key = view->shared; key < tail.last; key++)
            columns[key] = key < tail.first ? (int32_t)(first_key + key) : tail.columns[key - tail.first];
        if (view->shared < tail.last)
            weigh_columns(weights + q * KEY_BLOCK + view->shared, group, values, columns + view->shared, d,
                          tail.last - view->shared, sums + q * stride, stride);
    }
}

static void attend_block(const struct attention_job *job, int64_t b, int64_t kv, int64_t tile, int64_t block)
{
    const int64_t d = job->head_dim, group = job->num_heads / job->num_kv_heads;
    const int64_t first = job->first_token + tile * job->tile_tokens;
    const int64_t end = smaller(job->first_token + job->wave_tokens, job->query_lengths[b]);
    const int64_t last = smaller(first + job->tile_tokens, end);
    const struct view view = look_at(job, b, first, last, block * KEY_BLOCK);
    if (view.num_keys == 0)
        return;
    const int64_t count = (last - first) * group, stride = job->num_blocks * (d + 2), head = b * job->num_kv_heads + kv;
    float *partials = partial_of(job, b, kv, first, block);
    if (!view.is_near) {
        for (int64_t q = 0; q < count; q++)
            partials[q * stride + d] = -INFINITY;
        return;
    }
    const float *queries = job->queries + (head * job->num_tokens + first) * group * d;
    const float *keys = job->keys + head * job->capacity * d, *values = job->values + head * job->capacity * d;
    float scores[MOST_TILE_QUERIES * KEY_BLOCK] __attribute__((aligned(64)));
    if (view.is_tree)
        score_tree(job, &view, queries, keys, scores);
    else
        score_block(queries, count, d, keys + view.first_key * d, view.num_keys, scores);
    for (int64_t q = 0; q < count; q++) {
        float *row = scores + q * KEY_BLOCK, *partial = partials + q * stride;
        hide_keys(job, &view, first + q / group, row);
        weigh_scores(row, view.num_keys, partial + d, partial + d + 1);
    }
    if (view.is_tree)
        weigh_tree(job, &view, scores, values, partials, stride);
    else
        weigh_block(scores, count, values + view.first_key * d, d, view.num_keys, partials, stride);
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
        const int64_t num_blocks = (sight_of(job, b, t)->num_columns - 1) / KEY_BLOCK + 1;
        for (int64_t h = 0; h < group; h++)
            combine_head(job, partial_of(job, b, kv, t, 0) + h * job->num_blocks * (d + 2), num_blocks, y + h * d);
    }
}

#endif
