/* LossyAccept: walks each request's draft tree against the target's logits; gives the accepted path and one token more.
 *
 * Node 0 is the last committed token; the logits of node n score the token after n. p is the target's distribution at a
 * node (temperature, then top-k, top-p, min-p, each on what the one before left), q the one that a sampled draft was
 * drawn from. plugins/reference/lossy_accept.py defines every rule, and which random number decides what. Same input,
 * same bits. Decisions equal the reference's unless a comparison there is closer to a tie than float32 tells.
 *
 * A visited node whose logits hold NaN, +infinity, or nothing above -infinity, ends its request: nothing is accepted,
 * no bonus token (-1), flag 1. Other requests are not touched. Nodes off the walked path do not matter.
 *
 * Dimensions: B requests, N nodes, V tokens, C candidates. All tensors are contiguous, row-major, in device memory.
 * Nothing is allocated and nothing waits: a launch can be captured in a CUDA graph. */
#ifndef DRAFTSMITH_LOSSY_ACCEPT_H
#define DRAFTSMITH_LOSSY_ACCEPT_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DRAFTSMITH_ACCEPT_MAX_REQUESTS = 4096,
    DRAFTSMITH_ACCEPT_MAX_NODES = 256,
    DRAFTSMITH_ACCEPT_MAX_CANDIDATES = 2048,
    DRAFTSMITH_ACCEPT_MAX_VOCAB = 1 << 24
};

typedef enum draftsmith_accept_rule {
    DRAFTSMITH_ACCEPT_EXACT = 0,
    DRAFTSMITH_ACCEPT_MENTORED_BUDGET = 1, /* first: D, nats a position, at least 0 */
    DRAFTSMITH_ACCEPT_MENTORED_PRICE = 2,  /* first: c, at least 0 */
    DRAFTSMITH_ACCEPT_LENIENT = 3,         /* first: alpha in (0, 1] */
    DRAFTSMITH_ACCEPT_TYPICAL = 4,         /* first: epsilon in [0, 1); second: delta, at least 0 */
    DRAFTSMITH_ACCEPT_TOP_DELTA = 5,       /* first: delta, at least 0; second: k, a whole number from 1 on */
    DRAFTSMITH_ACCEPT_THRESHOLD = 6        /* first: single in [0, 1]; second: acc in (0, 1] */
} draftsmith_accept_rule;

/* Bits of a row's flags. */
enum {
    DRAFTSMITH_ACCEPT_SHARED_NOISE = 1, /* p is drawn with the noise of (seed, position, token); else with one uniform */
    DRAFTSMITH_ACCEPT_SAMPLED = 2       /* a node's first child was drawn from q (a chain); else children were chosen */
};

/* Columns of row_floats. */
enum {
    DRAFTSMITH_ACCEPT_TEMPERATURE = 0,    /* under 1e-4: greedy */
    DRAFTSMITH_ACCEPT_TOP_P = 1,          /* from 1 on: off */
    DRAFTSMITH_ACCEPT_MIN_P = 2,          /* 0: off */
    DRAFTSMITH_ACCEPT_FIRST = 3,          /* the rule's first parameter */
    DRAFTSMITH_ACCEPT_SECOND = 4,         /* the rule's second parameter */
    DRAFTSMITH_ACCEPT_KL_CAP = 5,         /* nats the whole sequence may spend; infinity: no cap */
    DRAFTSMITH_ACCEPT_KL_SPENT = 6,       /* nats it spent before this call */
    DRAFTSMITH_ACCEPT_RECOVERY_LIMIT = 7, /* an emitted token of p below this is a low one; 0: no recovery */
    DRAFTSMITH_ACCEPT_NUM_FLOATS = 8
};

/* Columns of row_ints. */
enum {
    DRAFTSMITH_ACCEPT_RULE = 0,
    DRAFTSMITH_ACCEPT_TOP_K = 1, /* 0 or from V on: off; 1: greedy */
    DRAFTSMITH_ACCEPT_FLAGS = 2,
    DRAFTSMITH_ACCEPT_RECOVERY_STATE = 3, /* 0 at first: 0 to 2 low tokens in a row; exact from 3 on: 3 + high ones */
    DRAFTSMITH_ACCEPT_NUM_INTS = 4
};

typedef struct draftsmith_accept_shape {
    int32_t num_requests;   /* B: 1 to DRAFTSMITH_ACCEPT_MAX_REQUESTS */
    int32_t max_nodes;      /* N: 1 to DRAFTSMITH_ACCEPT_MAX_NODES */
    int32_t num_vocab;      /* V: 1 to DRAFTSMITH_ACCEPT_MAX_VOCAB */
    int32_t num_candidates; /* C: 0 (no request is sampled) to DRAFTSMITH_ACCEPT_MAX_CANDIDATES */
    int32_t logits_type;    /* draftsmith_type: FLOAT16, BFLOAT16 or FLOAT32 */
    int32_t clean_counters; /* 1: the workspace's first bytes are zero or left by a launch of this shape; 0: clear them */
} draftsmith_accept_shape;

typedef struct draftsmith_accept_arguments {
    const void *logits;                   /* logits_type [B, N, V], after penalties */
    const int32_t *parents;               /* int32 [B, N]: below the node itself; node 0: -1 */
    const int32_t *token_ids;             /* int32 [B, N]; siblings differ (of equal ones the first counts) */
    const int32_t *num_nodes;             /* int32 [B]: 1 to N, node 0 included */
    const int32_t *candidate_ids;         /* int32 [B, N, C]: where q is positive, distinct, -1: none; null where C = 0 */
    const float *candidate_log_probs;     /* float32 [B, N, C]: log q of them; sums to 1; null where C = 0 */
    const float *row_floats;              /* float32 [B, DRAFTSMITH_ACCEPT_NUM_FLOATS] */
    const int32_t *row_ints;              /* int32 [B, DRAFTSMITH_ACCEPT_NUM_INTS] */
    const int64_t *row_keys;              /* int64 [B, 2]: seed (its 64 bits), position of the token after node 0 */
    const float *relaxation;              /* float32 [B, N] in [0, 1] or null: scales the rule at a node; 0: exact */
    int32_t *accepted_nodes;              /* int32 [B, N]: the path below node 0, then -1 */
    int32_t *accepted_length;             /* int32 [B]: accepted nodes, 0 to N - 1 */
    int32_t *bonus_token;                 /* int32 [B]: the token after the path */
    float *divergence;                    /* float32 [B]: nats that this call spent, sum of KL(result || p) */
    float *regret_nats;                   /* float32 [B]: greedy: sum of log p_max - log p(x) at temperature 1 */
    int32_t *flags;                       /* int32 [B]: 1 where logits were not finite */
    int32_t *recovery_state;              /* int32 [B]: the next call's */
    void *workspace;                      /* aligned to 256 bytes */
    size_t workspace_bytes;
} draftsmith_accept_arguments;

/* Bytes of workspace that a launch of this shape needs on the current device; `counter_bytes` (may be null): how many of
 * its first bytes are the counters that clean_counters speaks of. */
DRAFTSMITH_API draftsmith_status draftsmith_accept_workspace_bytes(const draftsmith_accept_shape *shape,
                                                                   size_t *num_bytes, size_t *counter_bytes);

/* Enqueues one launch on `stream` (a cudaStream_t) of the current device. Two launches that may overlap need a workspace
 * each. */
DRAFTSMITH_API draftsmith_status draftsmith_accept_launch(const draftsmith_accept_shape *shape,
                                                          const draftsmith_accept_arguments *arguments, void *stream);

#ifdef __cplusplus
}
#endif

#endif
