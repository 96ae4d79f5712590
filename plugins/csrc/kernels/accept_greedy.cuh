/* One node of a greedy request: the argmax, or the most probable of the children that a rule lets pass. */
#ifndef DRAFTSMITH_ACCEPT_GREEDY_CUH
#define DRAFTSMITH_ACCEPT_GREEDY_CUH

#include "accept_node.cuh"

namespace draftsmith {

/* Tokens before this one in the order: of a greater logit, or of an equal one and a lower id. */
template <class T> __device__ __forceinline__ int find_rank(const VisitedNode<T> &at, float logit, int token)
{
    int rank = 0;
    visit_chunks(
        at.row.target.row, at.row.chunks, at.row.num_chunks, logit, [](int) { return true; },
        [&](int id, float other) { rank += other > logit || (other == logit && id < token); }, [](int) {});
    return block_count(rank, at.scratch);
}

template <class T>
__device__ __forceinline__ bool passes_greedy(const VisitedNode<T> &at, int place, const Strength &strength)
{
    const int token = at.child_token(place);
    const float logit = at.child_logit(place), greatest = at.row.target.greatest;
    if (token == at.token)
        return true;
    if (logit == -INFINITY)
        return false;
    if (strength.rule == DRAFTSMITH_ACCEPT_MENTORED_BUDGET)
        return (double)greatest - (double)logit <= (double)strength.first;
    if (strength.rule != DRAFTSMITH_ACCEPT_TOP_DELTA)
        return false;
    const float best = (float)(1 / at.row.target.total);
    return !(at.shared.probabilities[place] < best - strength.first) && find_rank(at, logit, token) < strength.second;
}

template <class T> __device__ __noinline__ Step step_greedy(const VisitedNode<T> &at, const Strength &strength)
{
    int child = -1;
    for (int place = 0; place < at.num_children; place++) {
        if (!passes_greedy(at, place, strength))
            continue;
        const float logit = at.child_logit(place);
        const bool is_better = child < 0 || logit > at.child_logit(child) ||
                               (logit == at.child_logit(child) && at.child_token(place) < at.child_token(child));
        child = is_better ? place : child;
    }
    if (child < 0)
        return {-1, at.token, 0, 0};
    return {child, at.child_token(child), 0, (double)at.row.target.greatest - (double)at.child_logit(child)};
}

} // namespace draftsmith

#endif
