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

template <class T>
__device__ __forceinline__ void load_tree(const AcceptJob &job, int request, int num_nodes, WalkShared &shared)
{
    const size_t first = (size_t)request * job.shape.max_nodes;
    __syncthreads();
    for (int m = threadIdx.x; m < num_nodes; m += ACCEPT_THREADS) {
        const int parent = job.arguments.parents[first + m], token = job.arguments.token_ids[first + m];
        const int4 *const from = reinterpret_cast<const int4 *>(job.nodes + first + m);
        const int4 words[2] = {__ldcg(from), __ldcg(from + 1)};
        memcpy(&shared.nodes[m], words, sizeof words);
        shared.parents[m] = parent;
        shared.tokens[m] = token;
        shared.logits[m] = -INFINITY;
        shared.relaxation[m] = job.arguments.relaxation ? job.arguments.relaxation[first + m] : 1.0f;
        if (parent >= 0 && parent < m && token >= 0 && token < job.shape.num_vocab)
            shared.logits[m] = LogitRow<T>(job, first + parent).logit(token);
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

template <class T>
__device__ __noinline__ void walk_tree(const AcceptJob &job, int request, void *memory, BlockScratch &scratch)
{
    const RowParams params(job, request);
    const WalkMemory parts(memory, job.shape.num_candidates);
    WalkShared &shared = parts.shared;
    const int num_nodes = count_nodes(job, request);
    const size_t first = (size_t)request * job.shape.max_nodes;
    load_tree<T>(job, request, num_nodes, shared);
    Walk walk = {0, params.recovery_state, 0, 0};
    for (int node = 0;;) {
        const NodeSummary &summary = shared.nodes[node];
        if (!(summary.total < INFINITY)) {
            write_results(job, request, {0, params.recovery_state, 0, 0}, -1, true, shared);
            return;
        }
        const size_t row_index = first + node;
        const TargetRow<T> target = {LogitRow<T>(job, row_index), summary.greatest, 1 / params.temperature, summary.cut,
                                     summary.total};
        VisitedNode<T> at = {{target, job.chunks + row_index * job.num_chunks,
                              job.draw_sums + (size_t)request * job.num_chunks, job.num_chunks},
                             {static_cast<int *>(parts.region), parts.num_slots},
                             node,
                             0,
                             summary.moment,
                             summary.token,
                             position_key(params.seed, params.position + walk.length),
                             shared,
                             scratch};
        at.num_children = list_children(at, num_nodes, job.shape.num_vocab);
        const Strength strength = find_strength(params, walk, shared.relaxation[node]);
        Step step;
        if (params.is_greedy)
            step = step_greedy(at, strength);
        else if (params.is_sampled && at.num_children > 0)
            step = step_sampled(job, row_index, at, {parts.ids, parts.q, parts.p, job.shape.num_candidates, 0.0f},
                                strength, parts.region);
        else
            step = step_chosen(at, strength, params.is_shared);
        walk.spent += step.spent;
        walk.regret += step.regret;
        if (params.recovery_limit > 0) {
            const float logit = target.row.logit(step.token);
            const bool is_low = target.probability(logit, step.token) < params.recovery_limit;
            walk.recovery_state = advance_recovery(walk.recovery_state, is_low);
        }
        if (step.child < 0) {
            write_results(job, request, walk, step.token, false, shared);
            return;
        }
        node = shared.children[step.child];
        __syncthreads();
        if (threadIdx.x == 0)
            shared.path[walk.length] = node;
        walk.length++;
        __syncthreads();
    }
}

} // namespace draftsmith

#endif
