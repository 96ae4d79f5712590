/* A request's parameters and tree, as the kernel reads them. */
#ifndef DRAFTSMITH_ACCEPT_PARAMS_CUH
#define DRAFTSMITH_ACCEPT_PARAMS_CUH

#include "accept_job.h"
#include "accept_rules.cuh"

namespace draftsmith {

constexpr float GREEDY_TEMPERATURE = 1e-4f;

struct RowParams {
    int rule, top_k, recovery_state;
    float first, second, temperature, top_p, min_p, recovery_limit;
    double kl_cap, kl_spent;
    uint64_t seed, position;
    bool is_greedy, is_shared, is_sampled, is_truncated;

    __device__ RowParams(const AcceptJob &job, int request)
    {
        const draftsmith_accept_arguments &arguments = job.arguments;
        const float *floats = arguments.row_floats + (size_t)request * DRAFTSMITH_ACCEPT_NUM_FLOATS;
        const int32_t *ints = arguments.row_ints + (size_t)request * DRAFTSMITH_ACCEPT_NUM_INTS;
        rule = ints[DRAFTSMITH_ACCEPT_RULE];
        top_k = ints[DRAFTSMITH_ACCEPT_TOP_K];
        recovery_state = ints[DRAFTSMITH_ACCEPT_RECOVERY_STATE];
        first = floats[DRAFTSMITH_ACCEPT_FIRST];
        second = floats[DRAFTSMITH_ACCEPT_SECOND];
        temperature = floats[DRAFTSMITH_ACCEPT_TEMPERATURE];
        top_p = floats[DRAFTSMITH_ACCEPT_TOP_P];
        min_p = floats[DRAFTSMITH_ACCEPT_MIN_P];
        recovery_limit = floats[DRAFTSMITH_ACCEPT_RECOVERY_LIMIT];
        kl_cap = floats[DRAFTSMITH_ACCEPT_KL_CAP];
        kl_spent = floats[DRAFTSMITH_ACCEPT_KL_SPENT];
        seed = (uint64_t)arguments.row_keys[2 * (size_t)request];
        position = (uint64_t)arguments.row_keys[2 * (size_t)request + 1];
        is_greedy = !(temperature >= GREEDY_TEMPERATURE) || top_k == 1 || rule == DRAFTSMITH_ACCEPT_TOP_DELTA;
        const int flags = ints[DRAFTSMITH_ACCEPT_FLAGS];
        is_shared = flags & DRAFTSMITH_ACCEPT_SHARED_NOISE;
        is_sampled = (flags & DRAFTSMITH_ACCEPT_SAMPLED) && job.shape.num_candidates > 0 && !is_greedy &&
                     rule != DRAFTSMITH_ACCEPT_THRESHOLD; /* that one takes children as given */
        if (top_k >= job.shape.num_vocab || top_k < 0)
            top_k = 0;
        is_truncated = !is_greedy && (top_k > 0 || top_p < 1 || min_p > 0);
        if (is_greedy)
            temperature = 1;
    }

    /* Whether a greedy row's probabilities matter. */
    __device__ bool wants_sums() const
    {
        return !is_greedy || rule == DRAFTSMITH_ACCEPT_TOP_DELTA || recovery_limit > 0;
    }

    __device__ bool wants_moments() const { return rule == DRAFTSMITH_ACCEPT_TYPICAL && !is_greedy; }
};

__device__ __forceinline__ int count_nodes(const AcceptJob &job, int request)
{
    return min(max(job.arguments.num_nodes[request], 1), job.shape.max_nodes);
}

/* Nodes above `node`. A parent that is not below its node ends the way. */
__device__ __forceinline__ int find_depth(const int *parents, int node)
{
    int depth = 0;
    while (node > 0 && parents[node] >= 0 && parents[node] < node) {
        node = parents[node];
        depth++;
    }
    return depth;
}

} // namespace draftsmith

#endif
