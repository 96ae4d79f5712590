/* A visited node: its children, what they share with the parts that decide there, and the decision. */
#ifndef DRAFTSMITH_ACCEPT_NODE_CUH
#define DRAFTSMITH_ACCEPT_NODE_CUH

#include "accept_draw.cuh"
#include "accept_params.cuh"

namespace draftsmith {

/* What a node decided: the child that is accepted (its place among the children) or -1, the token that is emitted in
 * either case, KL(result || p), and the greedy regret. */
struct Step {
    int child, token;
    double spent, regret;
};

struct WalkShared {
    NodeSummary nodes[DRAFTSMITH_ACCEPT_MAX_NODES];
    int parents[DRAFTSMITH_ACCEPT_MAX_NODES], tokens[DRAFTSMITH_ACCEPT_MAX_NODES];
    float logits[DRAFTSMITH_ACCEPT_MAX_NODES];        /* of a node's token, at its parent */
    float relaxation[DRAFTSMITH_ACCEPT_MAX_NODES];
    int children[DRAFTSMITH_ACCEPT_MAX_NODES];        /* nodes */
    float probabilities[DRAFTSMITH_ACCEPT_MAX_NODES]; /* p of each child */
    int path[DRAFTSMITH_ACCEPT_MAX_NODES];
    int num_children;
    DrawShared draw;
};

/* Every thread of the block holds the same. */
template <class T> struct VisitedNode {
    DrawRow<T> row;
    TokenTable table;
    int node, num_children;
    float moment;
    int token; /* NodeSummary's */
    uint64_t key;
    WalkShared &shared;
    BlockScratch &scratch;

    __device__ int child_token(int place) const { return shared.tokens[shared.children[place]]; }
    __device__ float child_logit(int place) const { return shared.logits[shared.children[place]]; }

    /* Of p, in nats. */
    __device__ float entropy() const { return logf((float)row.target.total) - moment / (float)row.target.total; }

    __device__ int find_child(int token) const
    {
        for (int place = 0; place < num_children; place++)
            if (child_token(place) == token)
                return place;
        return -1;
    }
};

/* Replaced tokens: the children, without weight. */
template <class T> struct NoChildren {
    const VisitedNode<T> &at;

    __device__ int count() const { return at.num_children; }
    __device__ int id(int i) const { return at.child_token(i); }
    __device__ float weight(int) const { return 0; }
};

/* Children in the nodes' order, and their p. Of equal siblings the first counts; what is no token is passed over. */
template <class T> __device__ __forceinline__ int list_children(const VisitedNode<T> &at, int num_nodes, int num_vocab)
{
    WalkShared &shared = at.shared;
    if (threadIdx.x < 32) {
        int num_children = 0;
        for (int base = at.node + 1; base < num_nodes; base += 32) {
            const int m = base + (int)threadIdx.x;
            bool is_child = m < num_nodes && shared.parents[m] == at.node;
            const int token = is_child ? shared.tokens[m] : -1;
            is_child = is_child && token >= 0 && token < num_vocab;
            for (int other = at.node + 1; other < m && is_child; other++)
                is_child = shared.parents[other] != at.node || shared.tokens[other] != token;
            const unsigned children = __ballot_sync(FULL_WARP, is_child);
            if (is_child) {
                const int place = num_children + __popc(children & ((1u << threadIdx.x) - 1));
                shared.children[place] = m;
                shared.probabilities[place] = at.row.target.probability(shared.logits[m], token);
            }
            num_children += __popc(children);
        }
        if (threadIdx.x == 0)
            shared.num_children = num_children;
    }
    __syncthreads();
    return shared.num_children;
}

} // namespace draftsmith

#endif
