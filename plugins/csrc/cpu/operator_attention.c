/* CachedAttention: qkv float [B, T, (H + 2 Hkv) D], past_key and past_value float [B, Hkv, S, D],
 * positions int32 [B, T], past_lengths int32 [B], query_lengths int32 [B], tree_mask bool [B, T, U], cos and sin float
 * [positions, D / 2], q_norm and k_norm float [D] (optional) -> y float [B, T, H D], present_key, present_value (the
 * memory of the past ones, or copies). Attributes num_heads, num_kv_heads, window (0: none), scale, epsilon.
 *
 * U >= T: tree_mask[b, t, j] says whether token t sees column past_lengths[b] - (U - T) + j, a token of the block (up
 * to itself) or one that an earlier step has cached; it sees all columns before those. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ort_node.h"
#include "scratch.h"
#include "tree_mask.h"

enum { PARTIAL_BYTES = 8 << 20, TILE_QUERIES = 48, PREPARE_TOKENS = 16, MOST_HEAD_DIM = 1024 };

enum input { QKV, PAST_KEY, PAST_VALUE, POSITIONS, PAST_LENGTHS, QUERY_LENGTHS, TREE_MASK, COS, SIN, Q_NORM, K_NORM };

struct attention {
    const struct kernels *kernels;
    int64_t num_heads, num_kv_heads, window;
    float scale, epsilon;
};

static void prepare(void *data, int64_t first, int64_t last)
{
    const struct attention_job *job = data;
    job->kernels->prepare_tokens(job, first, last);
}

static int64_t count_tiles(const struct attention_job *job)
{
    return (job->wave_tokens + job->tile_tokens - 1) / job->tile_tokens;
}

/* Tasks are (sequence, KV head, tile, block); who brings the last block of a tile puts the tile together. */
static void attend(void *data, int64_t first, int64_t last)
{
    const struct attention_job *job = data;
    const int64_t tiles = count_tiles(job);
    for (int64_t i = first; i < last; i++) {
        const int64_t block = i % job->num_blocks, tile = i / job->num_blocks % tiles, head = i / job->num_blocks / tiles;
        const int64_t b = head / job->num_kv_heads, kv = head % job->num_kv_heads;
        job->kernels->attend_block(job, b, kv, tile, block);
        if (atomic_fetch_sub(&job->pending[head * tiles + tile], 1) == 1)
            job->kernels->combine_tile(job, b, kv, tile);
    }
}

/* Lengths and positions are data: check them before anything is written. */
static ort_status *check_lengths(const struct attention_job *job)
{
    for (int64_t b = 0; b < job->num_sequences; b++) {
        const int64_t past = job->past_lengths[b], length = job->query_lengths[b];
        if (past < 0 || length < 0 || length > job->num_tokens || past + length > job->capacity)
            return fail("CachedAttention: expected lengths that fit into the block and the cache");
        for (int64_t t = 0; t < length; t++) {
            const int64_t position = job->positions[b * job->num_tokens + t];
            if (position < 0 || position >= job->num_positions)
                return fail("CachedAttention: expected positions inside the rotary table");
        }
    }
    return NULL;
}

static ort_status *check_mask(struct attention_job *job, struct mask_size *size)
{
    const char *wrong = measure_mask(job, size);
    job->num_blocks = (size->num_columns + KEY_BLOCK - 1) / KEY_BLOCK;
    return wrong ? fail(wrong) : NULL;
}

/* Parts of the scratch memory: pending, sights, queries, partials, others. */
static ort_status *allocate(struct attention_job *job, int64_t num_others)
{
    const int64_t per_token = job->num_sequences * job->num_heads, d = job->head_dim;
    const int64_t partial_floats = per_token * job->num_blocks * (d + 2);
    const int64_t group = job->num_heads / job->num_kv_heads;
    const int64_t wave = PARTIAL_BYTES / (partial_floats * (int64_t)sizeof(float));
    job->wave_tokens = wave < 1 ? 1 : wave > job->num_tokens ? job->num_tokens : wave;
    job->tile_tokens = TILE_QUERIES / group < 1 ? 1 : TILE_QUERIES / group;
    const int64_t query_floats = per_token * job->num_tokens * d;
    const int64_t num_pending = job->num_sequences * job->num_kv_heads * count_tiles(job);
    const int64_t num_sights = job->num_sequences * job->num_tokens;
    const int64_t floats = query_floats + partial_floats * job->wave_tokens;
    job->pending = thread_scratch((size_t)num_pending * sizeof *job->pending + (size_t)num_sights * sizeof *job->sights +
                                  (size_t)floats * sizeof(float) + (size_t)num_others * sizeof(int32_t));
    if (!job->pending)
        return fail("CachedAttention: out of memory");
    job->sights = (struct sight *)(job->pending + num_pending);
    job->queries = (float *)(job->sights + num_sights);
    job->partials = job->queries + query_floats;
    read_mask(job, (int32_t *)(job->queries + floats));
    return NULL;
}

static ort_status *run_waves(const ort_context *context, struct attention_job *job)
{
    const int64_t wave = job->wave_tokens, heads = job->num_sequences * job->num_kv_heads;
    for (job->first_token = 0; job->first_token < job->num_tokens; job->first_token += wave) {
        const int64_t left = job->num_tokens - job->first_token;
        job->wave_tokens = wave < left ? wave : left;
        const int64_t tiles = heads * count_tiles(job), total = tiles * job->num_blocks;
        for (int64_t i = 0; i < tiles; i++)
            atomic_init(&job->pending[i], job->num_blocks);
        TRY(run_tasks(context, attend, job, total, total, 1));
    }
    return NULL;
}

static ort_status *read_inputs(const ort_context *context, struct attention_job *job, struct tensor *past_key,
                               const void **past_value)
{
    struct tensor qkv, cos, mask;
    TRY(read_tensor(context, QKV, &qkv));
    TRY(read_tensor(context, PAST_KEY, past_key));
    TRY(read_tensor(context, COS, &cos));
    TRY(read_data(context, PAST_VALUE, past_value));
    TRY(read_data(context, POSITIONS, &job->positions));
    TRY(read_data(context, PAST_LENGTHS, &job->past_lengths));
    TRY(read_data(context, QUERY_LENGTHS, &job->query_lengths));
    TRY(read_tensor(context, TREE_MASK, &mask));
    TRY(read_data(context, SIN, &job->sin));
    TRY(read_data(context, Q_NORM, &job->q_norm));
    TRY(read_data(context, K_NORM, &job->k_norm));
    job->qkv = qkv.data;
    job->cos = cos.data;
    job->tree_mask = mask.data;
    job->num_masked = mask.dims[2];
    job->num_positions = cos.dims[0];
    job->num_sequences = qkv.dims[0];
    job->num_tokens = qkv.dims[1];
    job->capacity = past_key->dims[2];
    job->head_dim = past_key->dims[3];
    if (qkv.rank != 3 || past_key->rank != 4 || cos.rank != 2 || job->head_dim > MOST_HEAD_DIM ||
        qkv.dims[2] != (job->num_heads + 2 * job->num_kv_heads) * job->head_dim || job->capacity % CAPACITY_STEP ||
        past_key->dims[0] != job->num_sequences || cos.dims[1] * 2 != job->head_dim)
        return fail("CachedAttention: expected qkv [B, T, (H + 2 Hkv) D], cache [B, Hkv, 32 n, D], tables [P, D / 2]");
    if (mask.rank != 3 || mask.dims[0] != job->num_sequences || mask.dims[1] != job->num_tokens ||
        job->num_masked < job->num_tokens)
        return fail("CachedAttention: expected tree_mask [B, T, U] with U at least T");
    return NULL;
}

static ort_status *make_outputs(ort_context *context, struct attention_job *job, const struct tensor *past_key,
                                const void *past_value)
{
    const int64_t dims[] = {job->num_sequences, job->num_tokens, job->num_heads * job->head_dim};
    TRY(make_output(context, 0, dims, 3, &job->y));
    TRY(make_output(context, 1, past_key->dims, 4, &job->keys));
    TRY(make_output(context, 2, past_key->dims, 4, &job->values));
    const size_t floats = (size_t)(job->num_sequences * job->num_kv_heads * job->capacity * job->head_dim);
    if (job->keys != past_key->data)
        memcpy(job->keys, past_key->data, floats * sizeof(float));
    if (job->values != past_value)
        memcpy(job->values, past_value, floats * sizeof(float));
    return NULL;
}

static ort_status *compute(void *kernel, ort_context *context)
{
    const struct attention *facts = kernel;
    struct attention_job job = {.kernels = facts->kernels, .num_heads = facts->num_heads, .num_kv_heads = facts->num_kv_heads,
                                .window = facts->window, .scale = facts->scale, .epsilon = facts->epsilon};
    struct tensor past_key;
    const void *past_value;
    struct mask_size size;
    TRY(read_inputs(context, &job, &past_key, &past_value));
    TRY(check_lengths(&job));
    TRY(check_mask(&job, &size));
    TRY(make_outputs(context, &job, &past_key, past_value));
    TRY(allocate(&job, size.num_others));
    const int64_t tokens = job.num_sequences * job.num_tokens;
    TRY(run_tasks(context, prepare, &job, tokens, tokens / PREPARE_TOKENS, 1));
    return run_waves(context, &job);
}

static ort_status *read_attributes(const ort_info *info, struct attention *facts)
{
    TRY(ort_get_int(info, "num_heads", &facts->num_heads));
    TRY(ort_get_int(info, "num_kv_heads", &facts->num_kv_heads));
    TRY(ort_get_int(info, "window", &facts->window));
    TRY(ort_get_float(info, "scale", &facts->scale));
    TRY(ort_get_float(info, "epsilon", &facts->epsilon));
    if (facts->num_kv_heads < 1 || facts->num_heads % facts->num_kv_heads || facts->num_heads / facts->num_kv_heads > 64)
        return fail("CachedAttention: expected 1 to 64 heads for each KV head");
    return NULL;
}

static ort_status *create(const ort_operator *op, const ort_table *table, const ort_info *info, void **kernel)
{
    (void)op, (void)table;
    TRY(make_kernel(sizeof(struct attention), kernel));
    struct attention *facts = *kernel;
    facts->kernels = registered_kernels;
    return read_attributes(info, facts);
}

NODE_OPERATOR(operator_cached_attention, "CachedAttention", create, compute,
              .inputs = {ORT_FLOAT, ORT_FLOAT, ORT_FLOAT, ORT_INT32, ORT_INT32, ORT_INT32, ORT_BOOL, ORT_FLOAT,
                         ORT_FLOAT, ORT_FLOAT | OPTIONAL, ORT_FLOAT | OPTIONAL},
              .outputs = {ORT_FLOAT, ORT_FLOAT, ORT_FLOAT});
