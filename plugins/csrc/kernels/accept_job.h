/* Internal: LossyAccept's workspace, and what one launch hands to its kernel.
 *
 * A row is a node of a request. Its tokens are read in chunks, one warp a chunk; a block takes a slice of a row's
 * chunks; the last block of a row sums the row up, the last row of a request walks its tree. */
#ifndef DRAFTSMITH_ACCEPT_JOB_H
#define DRAFTSMITH_ACCEPT_JOB_H

#include <cuda_runtime.h>

#include "lossy_accept.h"

namespace draftsmith {

enum { ACCEPT_THREADS = 512, ACCEPT_WARPS = ACCEPT_THREADS / 32, CHUNK = 1024, LANE_TOKENS = CHUNK / 32 };

/* A chunk's tokens, relative to its greatest logit: sum of exp(score), of exp(score) * score, and the best of score +
 * noise. Where the greatest is not finite, the rest has no meaning. */
struct __align__(16) ChunkSummary {
    float greatest, sum, moment, noisy;
};

/* A row. `total` and `moment` as in a chunk, over the tokens that truncation keeps: those whose candidate_key reaches
 * `cut`. `token`: the greatest logit's where greedy, the drawn one's where noise is shared. Total NaN: not finite. */
struct __align__(16) NodeSummary {
    uint64_t cut;
    double total;
    float greatest, moment;
    int32_t token;
};

struct AcceptJob {
    draftsmith_accept_shape shape;
    draftsmith_accept_arguments arguments;
    unsigned *node_tickets;    /* [B, N] slices of a row that are done; 0 between launches */
    unsigned *request_tickets; /* [B] rows of a request that are done; 0 between launches */
    ChunkSummary *chunks;      /* [B, N, num_chunks] */
    int32_t *noisy_ids;        /* [B, N, num_chunks] token of `noisy`, -1: none */
    NodeSummary *nodes;        /* [B, N] */
    double *draw_sums;         /* [B, num_chunks] */
    int num_chunks, num_slices, chunks_a_slice;
    size_t counter_bytes, num_bytes;
};

/* Bytes of dynamic shared memory of a block. */
size_t accept_shared_bytes(int num_candidates);

/* The kernel of each type of logits. */
cudaError_t launch_accept_half(const AcceptJob &job, int num_blocks, size_t shared_bytes, cudaStream_t stream);
cudaError_t launch_accept_bfloat16(const AcceptJob &job, int num_blocks, size_t shared_bytes, cudaStream_t stream);
cudaError_t launch_accept_float(const AcceptJob &job, int num_blocks, size_t shared_bytes, cudaStream_t stream);

} // namespace draftsmith

#endif
