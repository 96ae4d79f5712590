/* One node of a greedy request: the argmax, or the most probable of the children that a rule lets pass. By a warp. */
#ifndef DRAFTSMITH_ACCEPT_GREEDY_CUH
#define DRAFTSMITH_ACCEPT_GREEDY_CUH

#include "accept_node.cuh"

namespace draftsmith {

/* Whether fewer than `limit` tokens are before this one in the order: of a greater logit, or of an equal one and a
 * lower id. Each chunk that is read holds one at least, but for the token's own, so few are. */
template <class T>
__device__ __forceinline__ bool ranks_below(const VisitedNode<T> &at, float logit, int token, float limit)
{
    const LogitRow<T> &row = at.target.row;
    const int lane = threadIdx.x & 31;
    int rank = 0;
    for (int base = 0; base < at.num_chunks && (float)rank < limit; base += 32) {
        const bool is_read = base + lane < at.num_chunks && __ldcg(&at.chunks[base + lane].greatest) >= logit;
        for (unsigned reads = __ballot_sync(FULL_WARP, is_read); reads && (float)rank < limit; reads &= reads - 1) {
            const int chunk = base + __ffs((int)reads) - 1;
            ChunkPart<T> part;
            part.load(row, chunk);
            int first = ChunkPart<T>::first_id(row, chunk), found = 0;
#pragma unroll 1
            for (int v = 0; v < ChunkPart<T>::NUM; v++, first += ChunkPart<T>::STEP) {
#pragma unroll
                for (int e = 0; e < ChunkPart<T>::SIZE; e++) {
                    const float other = part.logit(0, e);
                    found += other > logit || (other == logit && first + e < token);
                }
                part.turn();
            }
            rank += warp_sum(found);
        }
    }
    return (float)rank < limit;
}

template <class T>
__device__ __forceinline__ bool passes_greedy(const VisitedNode<T> &at, int child, const Strength &strength)
{
    const int token = at.shared.tokens[child];
    const float logit = at.shared.logits[child], greatest = at.target.greatest;
    if (token == at.drawn())
        return true;
    if (logit == -INFINITY)
        return false;
    if (strength.rule == DRAFTSMITH_ACCEPT_MENTORED_BUDGET)
        return (double)greatest - (double)logit <= (double)strength.first;
    if (strength.rule != DRAFTSMITH_ACCEPT_TOP_DELTA)
        return false;
    const float best = (float)(1 / at.target.total);
    return !(at.shared.probabilities[child] < best - strength.first) && ranks_below(at, logit, token, strength.second);
}

template <class T> __device__ __forceinline__ Step step_greedy(const VisitedNode<T> &at, const Strength &strength)
{
    const WalkShared &shared = at.shared;
    int best = -1;
    for (int child = at.first_child(); child >= 0; child = shared.next_sibling[child]) {
        if (!passes_greedy(at, child, strength))
            continue;
        const float logit = shared.logits[child];
        const bool is_better = best < 0 || logit > shared.logits[best] ||
                               (logit == shared.logits[best] && shared.tokens[child] < shared.tokens[best]);
        best = is_better ? child : best;
    }
    if (best < 0)
        return {-1, at.drawn(), 0, 0, 0};
    Step step = at.accept(best, 0);
    step.regret = (double)at.target.greatest - (double)shared.logits[best];
    return step;
}

} // namespace draftsmith

#endif
