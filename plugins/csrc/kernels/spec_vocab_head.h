/* SpecVocabHead: ranks the vocabulary by a low-rank score, keeps the k best, gives their exact logits' best `out`.
 *
 * Of every row h of `hidden`: h' = w_down h, rounded to hidden's type (INT8 ranking: to 16-bit integers, a scale a row);
 * scores = w_vocab h', rounded to fp16; the k best scores win, NaN lowest, the lowest id first among equals. Logits of the
 * winners: w_head h, accumulated in fp32. Same input, same bits. A row with a value in `hidden` or h' that is not finite,
 * or with a NaN logit, gets ids -1, logits NaN, log-sum-exp NaN, and gives its request's union nothing.
 *
 * Dimensions: M rows, d hidden size, V tokens, r rank, k candidates, S tokens a group, R ranked rows (V, or ceil(V / S)).
 * All tensors are contiguous, row-major, in device memory. Nothing is allocated and nothing waits: a launch can be
 * captured in a CUDA graph. */
#ifndef DRAFTSMITH_SPEC_VOCAB_HEAD_H
#define DRAFTSMITH_SPEC_VOCAB_HEAD_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DRAFTSMITH_HEAD_MAX_ROWS = 64, DRAFTSMITH_HEAD_MAX_OUTPUTS = 1024, DRAFTSMITH_WORKSPACE_ALIGNMENT = 256 };

typedef enum draftsmith_head_path {
    DRAFTSMITH_HEAD_AUTO = 0,    /* fused where it takes the shape and the pointers; else general */
    DRAFTSMITH_HEAD_GENERAL = 1, /* several kernels, SM 7.5 and later, every shape */
    DRAFTSMITH_HEAD_FUSED = 2    /* one cooperative kernel, SM 9.0 and later, the shapes that fit */
} draftsmith_head_path;

typedef struct draftsmith_head_shape {
    int32_t num_rows;       /* M: 1 to DRAFTSMITH_HEAD_MAX_ROWS */
    int32_t hidden_size;    /* d: 1 to 65,536 */
    int32_t rank;           /* r: 1 to 8,192 */
    int32_t num_vocab;      /* V: 1 to 2^20 */
    int32_t num_candidates; /* k: tokens, 1 to V; with groups a multiple of group_size, or V */
    int32_t num_outputs;    /* out: 1 to k, at most DRAFTSMITH_HEAD_MAX_OUTPUTS */
    int32_t group_size;     /* S: 1 ranks tokens; else 2 to 256: ranked row i stands for tokens i S .. i S + S - 1 */
    int32_t hidden_type;    /* draftsmith_type of hidden, w_down, w_head: FLOAT16 or BFLOAT16 (SM 8.0 and later) */
    int32_t ranking_type;   /* draftsmith_type of w_vocab: hidden_type, INT8 or FLOAT8_E4M3 */
    int32_t path;           /* draftsmith_head_path */
} draftsmith_head_shape;

typedef struct draftsmith_head_arguments {
    const void *hidden;            /* hidden_type [M, d] */
    const void *w_down;            /* hidden_type [r, d] */
    const void *w_vocab;           /* ranking_type [R, r] */
    const float *w_vocab_scales;   /* float32 [R]: a ranked row's weights are scale * stored; INT8 and FLOAT8 only */
    const void *w_head;            /* hidden_type [V, d] */
    const int32_t *request_of_row; /* int32 [M] or null; rows with equal numbers share the union of their candidates */
    int32_t *candidate_ids;        /* int32 [M, out], best logit first, the lowest id among equals; -1: missing */
    float *candidate_logits;       /* float32 [M, out]; -infinity: missing */
    float *log_sum_exp;            /* float32 [M], over all candidates of the row */
    int32_t *chosen_ids;           /* int32 [M, k] or null: the row's own candidates, ascending, then -1 */
    void *workspace;               /* aligned to DRAFTSMITH_WORKSPACE_ALIGNMENT; what it holds before does not matter */
    size_t workspace_bytes;
} draftsmith_head_arguments;

/* Bytes of workspace that a launch of this shape needs on the current device. */
DRAFTSMITH_API draftsmith_status draftsmith_head_workspace_bytes(const draftsmith_head_shape *shape,
                                                                 size_t *num_bytes);

/* The path that a launch of this shape takes on the current device, if its pointers are aligned to 16 bytes and
 * request_of_row is null: a draftsmith_head_path other than AUTO. Refuses a fused path that does not take the shape. */
DRAFTSMITH_API draftsmith_status draftsmith_head_chosen_path(const draftsmith_head_shape *shape, int32_t *path);

/* Enqueues the head on `stream` (a cudaStream_t) of the current device. Two launches that may overlap need a workspace
 * each. */
DRAFTSMITH_API draftsmith_status draftsmith_head_launch(const draftsmith_head_shape *shape,
                                                        const draftsmith_head_arguments *arguments, void *stream);

#ifdef __cplusplus
}
#endif

#endif
