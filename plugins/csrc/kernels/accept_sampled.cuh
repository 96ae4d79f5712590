/* One node of a sampled draft: its child was drawn from q (plugins/reference/accept_sampled.py). */
#ifndef DRAFTSMITH_ACCEPT_SAMPLED_CUH
#define DRAFTSMITH_ACCEPT_SAMPLED_CUH

#include "accept_clip.cuh"
#include "accept_node.cuh"

namespace draftsmith {

/* How a rule treats a draw from q: kept(q, p) of q is accepted; else added(q, p) and outside * p follow, in proportion.
 * `drops_child`: the rejected token's weight is 0. */
struct Plan {
    enum Kind { LENIENT, CLIPPED, TYPICAL } kind;
    Clip bounds; /* CLIPPED */
    float limit; /* LENIENT: alpha; TYPICAL: the least p */
    float outside;
    double spent;

    __device__ bool passes(float p) const { return p > limit || p >= 1; }

    __device__ float pi(float q, float p) const
    {
        return p > 0 ? fminf(fmaxf(q, bounds.low * p), bounds.high * p) : 0.0f;
    }

    __device__ float kept(float q, float p) const
    {
        if (kind == CLIPPED)
            return fminf(pi(q, p), q);
        return kind == LENIENT ? fminf(q, p / limit) : passes(p) ? q : 0.0f;
    }

    __device__ float added(float q, float p) const
    {
        if (kind == CLIPPED)
            return fmaxf(bounds.low * p - q, 0.0f);
        return kind == LENIENT ? fmaxf(p - q, 0.0f) : p;
    }
};

/* Replaced tokens: the candidates, with what a plan adds. */
struct AddedCandidates {
    const Candidates &candidates;
    const Plan &plan;
    int dropped; /* a token, or -1 */

    __device__ int count() const { return candidates.count; }
    __device__ int id(int i) const { return candidates.q[i] > 0 ? candidates.ids[i] : -1; }
    __device__ float weight(int i) const
    {
        return candidates.ids[i] == dropped ? 0.0f : plan.added(candidates.q[i], candidates.p[i]);
    }
};

/* Replaced tokens: the candidates, without weight. */
struct NoCandidates {
    const Candidates &candidates;

    __device__ int count() const { return candidates.count; }
    __device__ int id(int i) const { return candidates.q[i] > 0 ? candidates.ids[i] : -1; }
    __device__ float weight(int) const { return 0; }
};

/* Sum of f(q, p) over the candidates. */
template <class F>
__device__ __forceinline__ double sum_candidates(const Candidates &candidates, BlockScratch &scratch, const F &f)
{
    double sum = 0;
    for (int i = threadIdx.x; i < candidates.count; i += ACCEPT_THREADS)
        if (candidates.q[i] > 0)
            sum += f(candidates.q[i], candidates.p[i]);
    return block_sum(sum, scratch);
}

/* KL's part of the tokens outside, all scaled by `scale`. */
__device__ __forceinline__ double outside_term(const Candidates &candidates, float scale)
{
    return candidates.p_outside > 0 ? (double)divergence_term(scale, 1.0f) * candidates.p_outside : 0.0;
}

__device__ __forceinline__ Plan plan_exact()
{
    return {Plan::LENIENT, {}, 1.0f, 1.0f, 0};
}

__device__ __forceinline__ Plan plan_clipped(const Candidates &candidates, const Clip &bounds, BlockScratch &scratch)
{
    Plan plan = {Plan::CLIPPED, bounds, 0, bounds.low, 0};
    plan.spent = sum_candidates(candidates, scratch, [&](float q, float p) {
        return divergence_term(plan.pi(q, p), p);
    });
    plan.spent = fmax(plan.spent + outside_term(candidates, bounds.low), 0.0);
    return plan;
}

__device__ __forceinline__ Plan plan_budget(const Candidates &candidates, const ClipTable &table, float budget,
                                            BlockScratch &scratch)
{
    const double whole = sum_candidates(candidates, scratch, [](float q, float p) { return divergence_term(q, p); });
    const Clip bounds = whole <= budget ? Clip{0.0f, INFINITY} : clip_by_budget(table, budget);
    return plan_clipped(candidates, bounds, scratch);
}

__device__ __forceinline__ Plan plan_lenient(const Candidates &candidates, float alpha, BlockScratch &scratch)
{
    if (alpha >= 1)
        return plan_exact();
    Plan plan = {Plan::LENIENT, {}, alpha, 1.0f, 0};
    const double added = sum_candidates(candidates, scratch, [&](float q, float p) { return plan.added(q, p); });
    const double kept = sum_candidates(candidates, scratch, [&](float q, float p) { return plan.kept(q, p); });
    const double total = added + candidates.p_outside;
    const float scale = total > 0 ? (float)(fmax(1 - kept, 0.0) / total) : 0.0f;
    plan.spent = sum_candidates(candidates, scratch, [&](float q, float p) {
        return divergence_term(plan.kept(q, p) + scale * plan.added(q, p), p);
    });
    plan.spent += outside_term(candidates, scale);
    return plan;
}

__device__ __forceinline__ Plan plan_typical(const Candidates &candidates, float limit, BlockScratch &scratch)
{
    Plan plan = {Plan::TYPICAL, {}, limit, 1.0f, 0};
    const auto rejected = [&](float q, float p) { return plan.passes(p) ? 0.0f : q / (1 - p); };
    const float total = (float)sum_candidates(candidates, scratch, rejected);
    plan.spent = sum_candidates(candidates, scratch, [&](float q, float p) {
        return divergence_term(plan.kept(q, p) + p * (total - rejected(q, p)), p);
    });
    plan.spent += outside_term(candidates, total);
    return plan;
}

/* A node with what the block needs to draw from it. */
template <class T> struct SampledNode {
    const VisitedNode<T> &at;
    DrawRow<T> row;
    TokenTable table;
    DrawShared &draw;
    BlockScratch &scratch;
};

template <class T>
__device__ __forceinline__ Plan make_plan(const SampledNode<T> &node, Candidates &candidates, const Strength &strength,
                                          void *region)
{
    BlockScratch &scratch = node.scratch;
    const float left = (float)strength.left;
    if (strength.rule == DRAFTSMITH_ACCEPT_LENIENT)
        return plan_lenient(candidates, fmaxf(strength.first, expf(-left)), scratch);
    if (strength.rule == DRAFTSMITH_ACCEPT_TYPICAL) {
        const float limit = fminf(strength.first, strength.second * expf(-node.at.entropy()));
        const Plan plan = plan_typical(candidates, limit, scratch);
        return strength.left < plan.spent ? plan_exact() : plan;
    }
    if (strength.rule != DRAFTSMITH_ACCEPT_MENTORED_BUDGET && strength.rule != DRAFTSMITH_ACCEPT_MENTORED_PRICE)
        return plan_exact();
    const ClipTable table = sort_by_ratio(candidates, region, scratch);
    if (strength.rule == DRAFTSMITH_ACCEPT_MENTORED_BUDGET)
        return plan_budget(candidates, table, fminf(strength.first, left), scratch);
    const Plan plan = plan_clipped(candidates, clip_by_price(table, strength.first), scratch);
    return plan.spent <= strength.left ? plan : plan_budget(candidates, table, left, scratch);
}

/* q and p of the node's candidates. */
template <class T>
__device__ __forceinline__ void load_candidates(const AcceptJob &job, size_t row_index, const TargetRow<T> &target,
                                                Candidates &candidates)
{
    const size_t first = row_index * job.shape.num_candidates;
    __syncthreads();
    for (int i = threadIdx.x; i < candidates.count; i += ACCEPT_THREADS) {
        const int id = job.arguments.candidate_ids[first + i];
        const bool is_token = id >= 0 && id < job.shape.num_vocab;
        candidates.ids[i] = is_token ? id : -1;
        candidates.q[i] = is_token ? expf(job.arguments.candidate_log_probs[first + i]) : 0.0f;
        candidates.p[i] = is_token ? target.probability(target.row.logit(id), id) : 0.0f;
    }
    __syncthreads();
}

/* One position at a temperature above greedy; a child that q does not hold is rejected. `region`: shared memory. By the
 * block. */
template <class T>
__device__ __noinline__ Step step_sampled(const AcceptJob &job, size_t row_index, const SampledNode<T> &node,
                                          Candidates candidates, const Strength &strength, void *region)
{
    const VisitedNode<T> &at = node.at;
    BlockScratch &scratch = node.scratch;
    load_candidates(job, row_index, at.target, candidates);
    if (strength.rule != DRAFTSMITH_ACCEPT_EXACT) {
        const double inside = sum_candidates(candidates, scratch, [](float, float p) { return p; });
        candidates.p_outside = (float)(1 - inside);
        if (inside > 0.9)
            candidates.p_outside =
                (float)sum_masses(node.row, NoCandidates{candidates}, node.table, 1.0, node.draw, scratch);
    }
    const Plan plan = make_plan(node, candidates, strength, region);
    const int child = at.first_child(), token = at.shared.tokens[child];
    int place = 0x7fffffff;
    for (int i = threadIdx.x; i < candidates.count; i += ACCEPT_THREADS)
        if (candidates.ids[i] == token && candidates.q[i] > 0)
            place = min(place, i);
    place = block_least(place, scratch);
    if (place != 0x7fffffff) {
        const float q = candidates.q[place], kept = plan.kept(q, candidates.p[place]);
        if (position_uniform(at.key, COIN_STREAM) * q < kept)
            return at.accept(child, plan.spent);
    }
    const AddedCandidates added = {candidates, plan, plan.kind == Plan::TYPICAL ? token : -1};
    const double uniform = position_uniform(at.key, RESIDUAL_STREAM);
    const int drawn = draw_weighted(node.row, added, node.table, plan.outside, uniform, node.draw, scratch);
    return {-1, drawn, 0, plan.spent, 0};
}

} // namespace draftsmith

#endif
