/* Truncation: where the order of a row's tokens (largest logit first, lowest id among equals) is cut.
 *
 * First the best few hundred tokens are listed: of most rows they hold the cut. Else windows of scores find it. */
#ifndef DRAFTSMITH_ACCEPT_CUT_CUH
#define DRAFTSMITH_ACCEPT_CUT_CUH

#include "accept_window.cuh"

namespace draftsmith {

enum { MOST_ROUNDS = 24 };

/* `high`: a distance from which on nothing is kept. */
template <class T>
__device__ __noinline__ Cut find_cut(const CutRow<T> &row, float high, const CutGoal &goal, CutShared &shared,
                                     BlockScratch &scratch)
{
    const float near = fminf(high, reach_of_list(row, goal.count, shared));
    list_tokens(row, near, shared);
    if (shared.num_listed <= CUT_LIST) {
        sort_descending(shared.list, (int)shared.num_listed);
        const Cut cut = cut_list(row, 0.0f, {}, goal, shared, scratch);
        if (near == high || cut.is_reached || cut.kept.count >= goal.count)
            return cut;
    }
    CutWindow window = {0.0f, high, fminf(high, 32.0f)};
    for (int round = 0;; round++) {
        const TokenSum above = read_window(row, window, shared, scratch);
        if (shared.num_listed <= CUT_LIST) {
            sort_descending(shared.list, (int)shared.num_listed);
            return cut_list(row, window.low, above, goal, shared, scratch);
        }
        const CutWindow next = narrow_window(window, above, goal, shared, scratch);
        const float width = next.high - next.low;
        const bool is_stuck = width < INFINITY && !(width < 0.5f * (window.high - window.low));
        if (width < LEAST_WINDOW || is_stuck || round == MOST_ROUNDS)
            return cut_equals(row, window, above, goal, shared, scratch);
        window = next;
    }
}

} // namespace draftsmith

#endif
