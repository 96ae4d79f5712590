/* What the acceptance rules turn probabilities into: closed forms for chosen children, as accept_rules.py and
 * accept_step.py of plugins/reference define them. */
#ifndef DRAFTSMITH_ACCEPT_RULES_CUH
#define DRAFTSMITH_ACCEPT_RULES_CUH

#include "accept_random.cuh"
#include "lossy_accept.h"

namespace draftsmith {

/* A rule as it applies at a node, and the nats that it may spend there. */
struct Strength {
    int rule;
    float first, second;
    double left;
};

DRAFTSMITH_BOTH Strength make_exact(Strength strength)
{
    strength.rule = DRAFTSMITH_ACCEPT_EXACT;
    return strength;
}

/* Scaled by a node's relaxation: exact at 0, unchanged at 1. */
DRAFTSMITH_BOTH Strength relax(Strength strength, float factor)
{
    const float first = strength.first, second = strength.second;
    if (!(factor > 0) || !(strength.left > 0))
        return make_exact(strength);
    switch (strength.rule) {
    case DRAFTSMITH_ACCEPT_TYPICAL: return strength;
    case DRAFTSMITH_ACCEPT_LENIENT:
        if (factor != 1)
            strength.first = expf(factor * logf(first));
        return first >= 1 ? make_exact(strength) : strength;
    case DRAFTSMITH_ACCEPT_TOP_DELTA:
        strength.first = factor * first;
        return first <= 0 || second <= 1 ? make_exact(strength) : strength;
    case DRAFTSMITH_ACCEPT_THRESHOLD:
        strength.first = factor == 1 ? first : 1 - factor * (1 - first);
        strength.second = factor == 1 ? second : 1 - factor * (1 - second);
        return first >= 1 && second >= 1 ? make_exact(strength) : strength;
    case DRAFTSMITH_ACCEPT_MENTORED_BUDGET:
    case DRAFTSMITH_ACCEPT_MENTORED_PRICE:
        strength.first = factor * first;
        return first <= 0 ? make_exact(strength) : strength;
    default: return make_exact(strength);
    }
}

DRAFTSMITH_BOTH float divergence_term(float value, float old)
{
    if (!(value > 0))
        return 0;
    return old > 0 ? value * logf(value / old) : INFINITY;
}

/* KL of certainty against a coin of probability `mass`; `outside` = 1 - mass, known better than that. */
DRAFTSMITH_BOTH float whole_divergence(float mass, float outside)
{
    return outside < 0.5f ? -log1pf(-outside) : -logf(mass);
}

/* KL of a coin of probability mass + rise against one of `mass`. */
DRAFTSMITH_BOTH float raised_divergence(float rise, float mass, float outside)
{
    if (!(rise < outside))
        return whole_divergence(mass, outside);
    return (mass + rise) * log1pf(rise / mass) + (outside - rise) * log1pf(-rise / outside);
}

/* The rise of `mass` with logit P' = logit P + price. */
DRAFTSMITH_BOTH float price_rise(float mass, float outside, float price)
{
    const float lost = -expm1f(-price);
    return mass * outside * lost / (mass + outside * (1 - lost));
}

/* The state after a token of low probability or of another. Below 3 so many low ones came in a row; from 3 on exact
 * holds, and 3 + so many high ones came in a row. */
DRAFTSMITH_BOTH int advance_recovery(int state, bool is_low)
{
    if (state < 3)
        return is_low ? state + 1 : 0;
    return is_low ? 3 : (state + 1) % 6;
}

} // namespace draftsmith

#endif
