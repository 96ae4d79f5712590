/* The block's queries, keys and values made ready: norms and rotation of heads, writing into the cache. */
#ifndef DRAFTSMITH_ATTENTION_ROTATE_H
#define DRAFTSMITH_ATTENTION_ROTATE_H

#include "kernels.h"
#include "row_kernels.h"

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

#endif
