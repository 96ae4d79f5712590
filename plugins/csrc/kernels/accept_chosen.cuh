/* One node whose children were chosen, not drawn (plugins/reference/accept_chosen.py). By a warp. */
#ifndef DRAFTSMITH_ACCEPT_CHOSEN_CUH
#define DRAFTSMITH_ACCEPT_CHOSEN_CUH

#include "accept_outside.cuh"

namespace draftsmith {

/* A draw from p: `child` or -1; `shared` the token where noise is shared, else -1; `coin` is below the children's mass
 * where a child was drawn. */
struct Draw {
    int child, shared;
    double coin;
};

/* p of the children together, and on all others. */
struct Masses {
    double inside, outside;

    __device__ bool has_choice() const { return inside > 0 && outside > 0; }
};

template <class T> __device__ __forceinline__ double mass_of_children(const VisitedNode<T> &at)
{
    double mass = 0;
    for (int child = at.first_child(); child >= 0; child = at.shared.next_sibling[child])
        mass += at.shared.probabilities[child];
    return fmin(mass, 1.0);
}

/* The child at which the cumulative sum passes `goal`; never one of probability 0 while another has more. */
template <class T> __device__ __forceinline__ int pick_child(const VisitedNode<T> &at, double goal)
{
    double total = 0;
    int last = at.first_child();
    for (int child = last; child >= 0; child = at.shared.next_sibling[child]) {
        const float probability = at.shared.probabilities[child];
        if (!(probability > 0))
            continue;
        total += probability;
        last = child;
        if (goal < total)
            break;
    }
    return last;
}

template <class T> __device__ __forceinline__ Draw draw_target(const VisitedNode<T> &at, bool is_shared, double mass)
{
    const double coin = position_uniform(at.key, COIN_STREAM);
    if (is_shared) {
        const int drawn = at.drawn(), found = at.find_child(drawn);
        if (found < 0)
            return {-1, drawn, mass + coin * (1 - mass)};
        double before = 0;
        for (int child = at.first_child(); child != found; child = at.shared.next_sibling[child])
            before += at.shared.probabilities[child];
        return {found, drawn, before + coin * at.shared.probabilities[found]};
    }
    if (mass > 0 && (coin < mass || (mass > 0.9 && !(mass_outside(at, mass) > 0))))
        return {pick_child(at, coin), -1, coin};
    return {-1, -1, coin};
}

/* The child that was drawn, else a token outside, which the coin's part above `bound` picks. */
template <class T>
__device__ __forceinline__ Step settle(const VisitedNode<T> &at, const Draw &draw, double bound, double spent)
{
    if (draw.child >= 0)
        return at.accept(draw.child, spent);
    if (draw.shared >= 0 && at.find_child(draw.shared) < 0)
        return {-1, draw.shared, 0, spent, 0};
    const bool is_left_over = draw.shared < 0 && bound < 1;
    const double uniform = is_left_over ? (draw.coin - bound) / (1 - bound) : position_uniform(at.key, RESIDUAL_STREAM);
    return {-1, -1, uniform, spent, 0};
}

/* The rise of the children's mass with a divergence of at most `budget`. A warp tries 32 rises at a time. */
__device__ __forceinline__ float find_rise(float mass, float outside, float budget)
{
    if (!(budget > 0))
        return 0;
    if (budget >= whole_divergence(mass, outside))
        return outside;
    float low = 0, high = outside;
    for (int round = 0; round < 6; round++) {
        const float step = (high - low) / 33, rise = low + step * (float)((threadIdx.x & 31) + 1);
        const int count = __popc(__ballot_sync(FULL_WARP, raised_divergence(rise, mass, outside) <= budget));
        const float end = low + step * (float)(count + 1);
        low += step * (float)count;
        high = count == 32 ? high : fminf(end, high);
    }
    return low;
}

__device__ __forceinline__ float find_strength_rise(const Strength &strength, float mass, float outside)
{
    const float left = (float)strength.left;
    if (strength.rule == DRAFTSMITH_ACCEPT_LENIENT)
        return fminf(outside, mass / fmaxf(strength.first, expf(-left)) - mass);
    if (strength.rule == DRAFTSMITH_ACCEPT_MENTORED_BUDGET)
        return find_rise(mass, outside, fminf(strength.first, left));
    const float rise = price_rise(mass, outside, strength.first);
    return raised_divergence(rise, mass, outside) <= left ? rise : find_rise(mass, outside, left);
}

/* Children hold P' instead of P; inside and outside p keeps its proportions. */
template <class T>
__device__ __forceinline__ Step step_raised(const VisitedNode<T> &at, const Strength &strength, const Draw &draw,
                                            const Masses &masses)
{
    if (!masses.has_choice())
        return settle(at, draw, masses.inside, 0);
    const float rise = find_strength_rise(strength, (float)masses.inside, (float)masses.outside);
    const double raised = rise >= (float)masses.outside ? 1.0 : masses.inside + rise;
    const double spent = rise > 0 ? raised_divergence(rise, (float)masses.inside, (float)masses.outside) : 0.0f;
    if (draw.child < 0 && draw.coin < raised) {
        const double share = fmax(draw.coin - masses.inside, 0.0) / (raised - masses.inside);
        return at.accept(pick_child(at, share * masses.inside), spent);
    }
    return settle(at, draw, raised, spent);
}

/* The most probable child if its p is high enough; else a token outside. */
template <class T>
__device__ __forceinline__ Step step_typical(const VisitedNode<T> &at, const Strength &strength, const Draw &draw,
                                             const Masses &masses)
{
    if (!(masses.inside > 0))
        return settle(at, draw, masses.inside, 0);
    const float *const probabilities = at.shared.probabilities;
    int most = at.first_child();
    for (int child = most; child >= 0; child = at.shared.next_sibling[child])
        most = probabilities[child] > probabilities[most] ? child : most;
    const float best = probabilities[most];
    const float limit = fminf(strength.first, strength.second * expf(-at.entropy()));
    const bool passes = limit < best || !(masses.outside > 0);
    const double spent = passes ? -logf(best) : -logf((float)masses.outside);
    if (strength.left < spent)
        return settle(at, draw, masses.inside, 0);
    if (passes)
        return at.accept(most, spent);
    if (draw.shared >= 0)
        return settle(at, {-1, draw.shared, draw.coin}, masses.inside, spent);
    return settle(at, {-1, -1, position_uniform(at.key, RESIDUAL_STREAM)}, 0, spent);
}

/* The first child with p >= single or coin * acc < the mass up to it: one coin for all siblings. */
template <class T>
__device__ __forceinline__ Step step_threshold(const VisitedNode<T> &at, const Strength &strength, const Draw &draw,
                                               const Masses &masses)
{
    double mass = 0, covered = 0, spent = 0;
    int accepted = draw.child;
    bool is_open = true;
    for (int child = at.first_child(); child >= 0; child = at.shared.next_sibling[child]) {
        const float probability = at.shared.probabilities[child];
        if (!(probability > 0) || covered >= 1)
            continue;
        mass += probability;
        const bool passes = probability >= strength.first;
        const double reach = passes ? 1.0 : fmin(1.0, mass / strength.second);
        if (reach > covered)
            spent += (reach - covered) * logf((float)((reach - covered) / probability));
        if (is_open && (passes || draw.coin * strength.second < mass)) {
            accepted = child;
            is_open = false;
        }
        covered = fmax(covered, reach);
    }
    if (covered < 1)
        spent += masses.outside > 0 ? (1 - covered) * logf((float)((1 - covered) / masses.outside)) : (double)INFINITY;
    if (strength.left < spent)
        return settle(at, draw, masses.inside, 0);
    return settle(at, {accepted, draw.shared, draw.coin}, covered, spent);
}

/* One position at a temperature above greedy. */
template <class T>
__device__ __forceinline__ Step step_chosen(const VisitedNode<T> &at, const Strength &strength, bool is_shared)
{
    const double mass = mass_of_children(at);
    const Draw draw = draw_target(at, is_shared, mass);
    if (strength.rule == DRAFTSMITH_ACCEPT_EXACT || strength.rule == DRAFTSMITH_ACCEPT_TOP_DELTA)
        return settle(at, draw, mass, 0);
    const Masses masses = {mass, mass_outside(at, mass)};
    if (strength.rule == DRAFTSMITH_ACCEPT_TYPICAL)
        return step_typical(at, strength, draw, masses);
    if (strength.rule == DRAFTSMITH_ACCEPT_THRESHOLD)
        return step_threshold(at, strength, draw, masses);
    return step_raised(at, strength, draw, masses);
}

} // namespace draftsmith

#endif
