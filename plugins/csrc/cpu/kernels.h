/* What a kernel gets and does: plain pointers and sizes, no runtime. Every instruction set fills one table.
 *
 * Two promises that all of them keep (tested bit for bit): a row's result depends on that row alone, whatever the
 * number of rows or the split into tasks; and every instruction set gives the same bits. Integer sums are exact, and
 * floating-point operations have one order (16 lanes, fused multiply-adds where written, see lanes.h).
 *
 * Dimensions: M rows, K inputs, N outputs, B sequences, T tokens of a block, H heads, D head size, S cache capacity. */
#ifndef DRAFTSMITH_KERNELS_H
#define DRAFTSMITH_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kernels;

enum {
    PANEL_COLUMNS = 16, /* outputs that are computed together: the lanes of the widest vector */
    DEPTH_GROUP = 4,    /* inputs that one 32-bit lane of a dot instruction takes */
    DEPTH_STEP = 64,    /* K is padded to this: the bytes of a tile row */
    KEY_BLOCK = 128,    /* cached tokens that one attention task reads: a constant, or bits would depend on sizes */
    KEY_LANES = 16,     /* keys are stored transposed in groups of this */
    CAPACITY_STEP = 32  /* S is a multiple of this: two groups are read at once */
};

/* One linear layer: y = x W^T with 8-bit weights and 16-bit activations. */
struct linear_job {
    const struct kernels *kernels;
    int64_t num_rows;         /* M */
    int64_t depth;            /* K */
    int64_t padded_depth;     /* K rounded up to DEPTH_STEP */
    int64_t num_outputs;      /* N */
    const float *x;           /* [M, K] */
    const int8_t *weights;    /* [ceil(N / 16), padded K / 4, 16, 4], -127 to 127, zeros where padded */
    const float *scales;      /* [ceil(N / 16) * 16], of the outputs */
    const int32_t *sums;      /* [ceil(N / 16) * 16], of the weights of an output */
    const float *bias;        /* [N] or NULL */
    void *activations;        /* scratch, activation_bytes() */
    float *row_scales;        /* scratch, [M] */
    float *y;                 /* [M, N] */
    int64_t y_stride;         /* floats from a row of y to the next */
};

/* y = x W^T with floats. */
struct projection {
    int64_t num_rows, depth, num_outputs; /* M, K, N */
    const float *x, *weights;             /* [M, K], [N, K] */
    float *y;                             /* [M, N] */
};

/* Rows of a layer: y = RMS norm of (x + delta) times weight; total = x + delta where delta is given. */
struct norm_job {
    const struct kernels *kernels;
    int64_t num_rows;    /* M */
    int64_t width;       /* d */
    float epsilon;
    const float *x;      /* [M, d] */
    const float *delta;  /* [M, d] or NULL */
    const float *weight; /* [d] */
    float *y;            /* [M, d] */
    float *total;        /* [M, d] or NULL */
};

enum activation { ACTIVATION_SILU = 0, ACTIVATION_GELU_TANH = 1 };

/* Rows of an MLP: y = activation(gate) * up. */
struct gate_job {
    const struct kernels *kernels;
    int64_t num_rows;           /* M */
    int64_t width;              /* I */
    enum activation activation;
    const float *gate_up;       /* [M, 2 I], gate first */
    float *y;                   /* [M, I] */
};

/* What a token sees, in the order in which it counts: columns [0, plain_end) of the cache, then `others`, ascending. In
 * plain decoding these would be columns 0, 1, ... of the cache; a chain has no others. */
struct sight {
    int64_t plain_end;
    int64_t num_columns; /* plain_end and the number of others */
    const int32_t *others;
};

/* Attention of a block of T tokens to the cache and itself. */
struct attention_job {
    const struct kernels *kernels;
    int64_t num_sequences, num_tokens, capacity; /* B, T, S */
    int64_t num_heads, num_kv_heads, head_dim;   /* H, Hkv, D */
    int64_t num_positions;        /* rows of the tables */
    int64_t window;               /* keys at distance < window; 0: all */
    float scale, epsilon;
    const float *qkv;             /* [B, T, (H + 2 Hkv) D] */
    const float *cos, *sin;       /* [positions, D / 2] */
    const float *q_norm, *k_norm; /* [D] or NULL */
    const int32_t *positions;     /* [B, T] */
    const int32_t *past_lengths;  /* [B] */
    const int32_t *query_lengths; /* [B] */
    const bool *tree_mask;        /* [B, T, U]: of columns from past_lengths[b] + T - U on; those before are seen */
    int64_t num_masked;           /* U */
    float *keys;                  /* [B, Hkv, S / 16, D, 16] */
    float *values;                /* [B, Hkv, S, D] */
    float *y;                     /* [B, T, H D] */
    struct sight *sights;         /* scratch, [B, T] */
    float *queries;               /* scratch, [B, Hkv, T, H / Hkv, D]: normed, rotated, scaled */
    float *partials;              /* scratch, [B, Hkv, wave tokens, H / Hkv, blocks, D + 2] */
    _Atomic int64_t *pending;     /* scratch, [B, Hkv, tiles]: blocks that are not there yet */
    int64_t num_blocks;           /* key blocks of the longest sequence */
    int64_t first_token, wave_tokens; /* tokens whose partials are in scratch */
    int64_t tile_tokens;          /* tokens of one task */
};

struct kernels {
    const char *name;
    int64_t (*activation_bytes)(int64_t num_rows, int64_t padded_depth);
    /* Quantise rows [first, last) of x into activations and row_scales. */
    void (*quantize_rows)(const struct linear_job *job, int64_t first, int64_t last);
    /* Outputs of panels [first, last) for all rows. */
    void (*multiply_panels)(const struct linear_job *job, int64_t first, int64_t last);
    /* The same where weights are row-major, [ceil(N / 16) * 16, padded K]; `sums` is not read. */
    void (*multiply_vocabulary)(const struct linear_job *job, int64_t first, int64_t last);
    /* Outputs of panels [first, last) where the depth is padded to DEPTH_GROUP only; `sums` is not read. */
    void (*rank_panels)(const struct linear_job *job, int64_t first, int64_t last);
    /* For a job of one row and row-major weights: outputs `ids` [count] alone, into job->y [count]. */
    void (*multiply_candidates)(const struct linear_job *job, const int32_t *ids, int64_t count);
    /* Outputs [first, last) of all rows. */
    void (*project)(const struct projection *job, int64_t first, int64_t last);
    /* Indices i of [first, last), ascending, whose scores[i] is not below `floor`; how many. */
    int64_t (*keep_above)(const float *scores, int64_t first, int64_t last, float floor, int32_t *ids);
    /* The largest of factor * logits [count], and the sum of exp(factor * logit - largest); NaN where one is NaN. */
    void (*sum_exponentials)(const float *logits, int64_t count, float factor, float *largest, float *sum);
    void (*norm_rows)(const struct norm_job *job, int64_t first, int64_t last);
    void (*gate_rows)(const struct gate_job *job, int64_t first, int64_t last);
    /* Tokens [first, last) of B * T: norms, rotation, cache. */
    void (*prepare_tokens)(const struct attention_job *job, int64_t first, int64_t last);
    /* One (sequence, KV head, tile of tokens, key block): maximum, sum and weighted values. */
    void (*attend_block)(const struct attention_job *job, int64_t sequence, int64_t kv_head, int64_t tile,
                         int64_t block);
    /* One (sequence, KV head, tile), once all its blocks are there: put together into y. */
    void (*combine_tile)(const struct attention_job *job, int64_t sequence, int64_t kv_head, int64_t tile);
};

/* The best table for this processor, or the one that DRAFTSMITH_CPU names; NULL if that one cannot run here. */
const struct kernels *choose_kernels(void);

#endif
