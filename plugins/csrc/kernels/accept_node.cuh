/* A request's tree in shared memory, a visited node of it, and what is decided there: by a warp, for many nodes at
 * once. */
#ifndef DRAFTSMITH_ACCEPT_NODE_CUH
#define DRAFTSMITH_ACCEPT_NODE_CUH

#include "accept_draw.cuh"
#include "accept_params.cuh"

namespace draftsmith {

/* What a node decides: the node that is accepted or -1; the token that is emitted in either case, or -1: the one that
 * `uniform` draws outside the children; KL(result || p); the greedy regret. */
struct Step {
    int child, token;
    double uniform, spent, regret;
};

/* By node. Siblings are in the nodes' order; of equal ones the first counts; what is no token is passed over. */
struct WalkShared {
    NodeSummary nodes[DRAFTSMITH_ACCEPT_MAX_NODES];
    Step steps[DRAFTSMITH_ACCEPT_MAX_NODES];
    int parents[DRAFTSMITH_ACCEPT_MAX_NODES], tokens[DRAFTSMITH_ACCEPT_MAX_NODES];
    int first_child[DRAFTSMITH_ACCEPT_MAX_NODES], next_sibling[DRAFTSMITH_ACCEPT_MAX_NODES]; /* -1: none */
    bool counts[DRAFTSMITH_ACCEPT_MAX_NODES];
    float logits[DRAFTSMITH_ACCEPT_MAX_NODES], probabilities[DRAFTSMITH_ACCEPT_MAX_NODES]; /* of its token, above it */
    float relaxation[DRAFTSMITH_ACCEPT_MAX_NODES];
    int path[DRAFTSMITH_ACCEPT_MAX_NODES];
    int token; /* the one that is drawn */
    DrawShared draw;
};

/* Every lane of a warp holds the same. */
template <class T> struct VisitedNode {
    TargetRow<T> target;
    const ChunkSummary *chunks;
    int num_chunks, node;
    uint64_t key; /* of its position's uniform numbers */
    const WalkShared &shared;

    __device__ VisitedNode(const AcceptJob &job, int request, int node, uint64_t key, float inverse,
                           const WalkShared &shared)
        : target(row_of(job, request, node, inverse, shared.nodes[node])),
          chunks(job.chunks + ((size_t)request * job.shape.max_nodes + node) * job.num_chunks),
          num_chunks(job.num_chunks),
          node(node),
          key(key),
          shared(shared)
    {
    }

    __device__ int first_child() const { return shared.first_child[node]; }
    __device__ int drawn() const { return shared.nodes[node].token; }

    /* Of p, in nats. */
    __device__ float entropy() const
    {
        return logf((float)target.total) - shared.nodes[node].moment / (float)target.total;
    }

    __device__ int find_child(int token) const
    {
        int child = first_child();
        while (child >= 0 && shared.tokens[child] != token)
            child = shared.next_sibling[child];
        return child;
    }

    __device__ Step accept(int child, double spent) const { return {child, shared.tokens[child], 0, spent, 0}; }

  private:
    static __device__ TargetRow<T> row_of(const AcceptJob &job, int request, int node, float inverse,
                                          const NodeSummary &summary)
    {
        return {LogitRow<T>(job, (size_t)request * job.shape.max_nodes + node), summary.greatest, inverse, summary.cut,
                summary.total};
    }
};

} // namespace draftsmith

#endif
