/* The walk along a request's tree, by one block. */
#ifndef DRAFTSMITH_ACCEPT_WALK_CUH
#define DRAFTSMITH_ACCEPT_WALK_CUH

#include "accept_chosen.cuh"
#include "accept_greedy.cuh"
#include "accept_sampled.cuh"

namespace draftsmith {

/* What has been walked so far; every thread holds the same. */
struct Walk {
    int length, recovery_state;
    double spent, regret;
};

/* Shared memory of a walk: WalkShared, then the candidates' arrays, then a region for tables and sorting. */
struct WalkMemory {
    WalkShared &shared;
    int *ids;
    float *q, *p;
    void *region;
    int num_slots;

    __device__ WalkMemory(void *memory, int num_candidates) : shared(*static_cast<WalkShared *>(memory))
    {
        char *at = static_cast<char *>(memory) + sizeof(WalkShared);
        ids = reinterpret_cast<int *>(at);
        q = reinterpret_cast<float *>(ids + num_candidates);
        p = q + num_candidates;
        region = at + (3 * num_candidates * sizeof(float) + 15) / 16 * 16;
        num_slots = 2 * DRAFTSMITH_ACCEPT_MAX_NODES;
        while (num_slots < 2 * num_candidates)
            num_slots *= 2;
    }
};

/* The tree with its nodes' summaries, and p of every token at its parent. */
template <class T>
__device__ __forceinline__ void load_tree(const AcceptJob &job, int request, int num_nodes, float inverse,
                                          WalkShared &shared)
{
    const size_t first = (size_t)request * job.shape.max_nodes;
    __syncthreads();
    for (int m = threadIdx.x; m < num_nodes; m += ACCEPT_THREADS) {
        const int parent = job.arguments.parents[first + m], token = job.arguments.token_ids[first + m];
        const int4 *const from = reinterpret_cast<const int4 *>(job.nodes + first + m);
        const int4 words[2] = {__ldcg(from), __ldcg(from + 1)};
        const float relaxation = job.arguments.relaxation ? job.arguments.relaxation[first + m] : 1.0f;
        const bool is_child = parent >= 0 && parent < m && token >= 0 && token < job.shape.num_vocab;
        shared.logits[m] = is_child ? LogitRow<T>(job, first + parent).logit(token) : -INFINITY;
        memcpy(&shared.nodes[m], words, sizeof words);
        shared.parents[m] = parent;
        shared.tokens[m] = is_child ? token : -1;
        shared.relaxation[m] = relaxation;
        shared.first_child[m] = shared.next_sibling[m] = -1;
    }
    __syncthreads();
    /* The earlier siblings of a node say whether it counts; which of them the next one is linked to, is known then. */
    for (int m = threadIdx.x; m < num_nodes; m += ACCEPT_THREADS) {
        const int parent = shared.parents[m], token = shared.tokens[m];
        bool counts = token >= 0;
        for (int other = parent + 1; other < m && counts; other++)
            counts = shared.parents[other] != parent || shared.tokens[other] != token;
        shared.counts[m] = counts;
        if (counts) {
            const NodeSummary &above = shared.nodes[parent];
            const LogitRow<T> row(job, first + parent);
            const TargetRow<T> target = {row, above.greatest, inverse, above.cut, above.total};
            shared.probabilities[m] = target.probability(shared.logits[m], token);
        }
    }
    __syncthreads();
    for (int m = threadIdx.x; m < num_nodes; m += ACCEPT_THREADS) {
        if (!shared.counts[m])
            continue;
        const int parent = shared.parents[m];
        int before = m - 1;
        while (before > parent && (shared.parents[before] != parent || !shared.counts[before]))
            before--;
        (before > parent ? shared.next_sibling[before] : shared.first_child[parent]) = m;
    }
    __syncthreads();
}

__device__ __forceinline__ void write_results(const AcceptJob &job, int request, const Walk &walk, int bonus,
                                              bool is_broken, const WalkShared &shared)
{
    const draftsmith_accept_arguments &arguments = job.arguments;
    int32_t *const nodes = arguments.accepted_nodes + (size_t)request * job.shape.max_nodes;
    for (int i = threadIdx.x; i < job.shape.max_nodes; i += ACCEPT_THREADS)
        nodes[i] = i < walk.length ? shared.path[i] : -1;
    if (threadIdx.x != 0)
        return;
    arguments.accepted_length[request] = walk.length;
    arguments.bonus_token[request] = bonus;
    arguments.divergence[request] = (float)walk.spent;
    arguments.regret_nats[request] = (float)walk.regret;
    arguments.flags[request] = is_broken;
    arguments.recovery_state[request] = walk.recovery_state;
}

__device__ __forceinline__ Strength find_strength(const RowParams &params, const Walk &walk, float factor)
{
    const bool is_exact = params.recovery_limit > 0 && walk.recovery_state >= 3;
    const Strength strength = {params.rule, params.first, params.second, params.kl_cap - params.kl_spent - walk.spent};
    return relax(strength, is_exact ? 0.0f : factor);
}

/* Decides a node that needs no more than a warp: one whose child was not drawn from a draft's distribution. */
template <class T>
__device__ __forceinline__ void decide(const AcceptJob &job, int request, int node, const RowParams &params,
                                       const Walk &walk, WalkShared &shared)
{
    const uint64_t key = position_key(params.seed, params.position + find_depth(shared.parents, node));
    const VisitedNode<T> at(job, request, node, key, 1 / params.temperature, shared);
    const Strength strength = find_strength(params, walk, shared.relaxation[node]);
    const Step step = params.is_greedy ? step_greedy(at, strength) : step_chosen(at, strength, params.is_shared);
    if ((threadIdx.x & 31) == 0)
        shared.steps[node] = step;
}

/* Where what was spent and emitted before does not count, the warps decide all nodes first: the walk only follows. */
template <class T>
__device__ __noinline__ void walk_tree(const AcceptJob &job, int request, void *memory, BlockScratch &scratch)
{
    const RowParams params(job, request);
    const WalkMemory parts(memory, job.shape.num_candidates);
    WalkShared &shared = parts.shared;
    const int num_nodes = count_nodes(job, request);
    const float inverse = 1 / params.temperature;
    double *const sums = job.draw_sums + (size_t)request * job.num_chunks;
    load_tree<T>(job, request, num_nodes, inverse, shared);
    Walk walk = {0, params.recovery_state, 0, 0};
    const bool is_independent = params.kl_cap == INFINITY && !(params.recovery_limit > 0) && !params.is_sampled;
    for (int node = 0;;) {
        if (!(shared.nodes[node].total < INFINITY)) {
            write_results(job, request, {0, params.recovery_state, 0, 0}, -1, true, shared);
            return;
        }
        const bool is_sampled = params.is_sampled && shared.first_child[node] >= 0;
        if (!is_sampled && !(is_independent && node > 0)) {
            const int end = is_independent ? num_nodes : node + 1;
            for (int n = node + (int)(threadIdx.x >> 5); n < end; n += ACCEPT_WARPS)
                if (shared.nodes[n].total < INFINITY)
                    decide<T>(job, request, n, params, walk, shared);
            __syncthreads();
        }
        const uint64_t key = position_key(params.seed, params.position + walk.length);
        const VisitedNode<T> at(job, request, node, key, inverse, shared);
        Step step;
        if (is_sampled) {
            const SampledNode<T> sampled = {at,
                                            {at.target, at.chunks, sums, at.num_chunks},
                                            {static_cast<int *>(parts.region), parts.num_slots},
                                            shared.draw,
                                            scratch};
            step = step_sampled(job, (size_t)request * job.shape.max_nodes + node, sampled,
                                {parts.ids, parts.q, parts.p, job.shape.num_candidates, 0.0f},
                                find_strength(params, walk, shared.relaxation[node]), parts.region);
        } else {
            step = shared.steps[node];
            if (step.token < 0)
                step.token = draw_outside(at, step.uniform, sums, shared);
        }
        walk.spent += step.spent;
        walk.regret += step.regret;
        if (params.recovery_limit > 0) {
            const float logit = at.target.row.logit(step.token);
            const bool is_low = at.target.probability(logit, step.token) < params.recovery_limit;
            walk.recovery_state = advance_recovery(walk.recovery_state, is_low);
        }
        if (step.child < 0) {
            write_results(job, request, walk, step.token, false, shared);
            return;
        }
        node = step.child;
        if (threadIdx.x == 0)
            shared.path[walk.length] = node;
        walk.length++;
        __syncthreads();
    }
}

} // namespace draftsmith

#endif
