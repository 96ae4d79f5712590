/* A row's best tokens as a list, and the cut of a truncation within it. */
#ifndef DRAFTSMITH_ACCEPT_LIST_CUH
#define DRAFTSMITH_ACCEPT_LIST_CUH

#include "accept_logits.cuh"
#include "accept_sort.cuh"

namespace draftsmith {

enum {
    CUT_LIST = 4096,
    CUT_BINS = 2048,
    LIST_A_THREAD = CUT_LIST / ACCEPT_THREADS,
    BINS_A_THREAD = CUT_BINS / ACCEPT_THREADS
};

struct CutShared {
    unsigned long long list[CUT_LIST]; /* candidate_key of the window's tokens; once sorted, greatest first */
    unsigned bins[CUT_BINS];
    unsigned num_listed;
    unsigned long long found;
};

/* What is dropped first: the token before which `count` tokens or the weight `need` lie, or whose own weight is under
 * min_p; never the very first. */
struct CutGoal {
    int count;
    double need;
    float min_p;
};

/* The tokens above something. */
struct TokenSum {
    int count;
    double weight, moment;
};

/* A cut and what it keeps; `num_listed`: how many of the list's first, -1 where tokens above the list are kept too. */
struct Cut {
    uint64_t key;
    TokenSum kept;
    int num_listed;
    bool is_reached; /* the list holds a token that is dropped */
};

template <class T> struct CutRow {
    TargetRow<T> target; /* of cut 0 */
    const ChunkSummary *chunks;
    int num_chunks;

    __device__ float distance(float logit) const { return -target.score(logit); }

    /* A logit under which no token's distance is below `high`. */
    __device__ float least_logit(float high) const
    {
        if (high == INFINITY)
            return -INFINITY;
        const float logit = target.greatest - high / target.inverse;
        return logit - 1e-5f * (fabsf(logit) + fabsf(target.greatest));
    }
};

__device__ __forceinline__ TokenSum sum_of_block(const TokenSum &part, BlockScratch &scratch)
{
    return {block_count(part.count, scratch), block_sum(part.weight, scratch), block_sum(part.moment, scratch)};
}

__device__ __forceinline__ void add_token(TokenSum &sum, float distance)
{
    const float weight = expf(-distance);
    sum.count++;
    sum.weight += weight;
    sum.moment -= weight > 0 ? weight * distance : 0.0f;
}

/* A distance within which about three tokens a chunk lie: seven eighths of the chunks' greatest, or `count` of them. */
template <class T>
__device__ __forceinline__ float reach_of_list(const CutRow<T> &row, int count, CutShared &shared)
{
    const int num_chunks = row.num_chunks, share = num_chunks - num_chunks / 8;
    if (row.target.row.num_vocab <= CUT_LIST || num_chunks > CUT_BINS)
        return INFINITY;
    const int place = (count < share ? count : share) - 1;
    __syncthreads();
    for (int i = threadIdx.x; i < num_chunks; i += ACCEPT_THREADS)
        shared.bins[i] = logit_key(__ldcg(&row.chunks[i].greatest));
    __syncthreads();
    for (int i = threadIdx.x; i < num_chunks; i += ACCEPT_THREADS) {
        const unsigned mine = shared.bins[i];
        int rank = 0;
        for (int j = 0; j < num_chunks; j++)
            rank += shared.bins[j] > mine || (shared.bins[j] == mine && j < i);
        if (rank == place)
            shared.found = mine;
    }
    __syncthreads();
    return row.distance(logit_of_key((uint32_t)shared.found)) * 1.00001f + 1e-5f;
}

/* Lists the tokens of a distance below `high`, as long as they fit. */
template <class T>
__device__ __forceinline__ void list_tokens(const CutRow<T> &row, float high, CutShared &shared)
{
    __syncthreads();
    if (threadIdx.x == 0)
        shared.num_listed = 0;
    __syncthreads();
    bool is_full = false;
    visit_chunks(
        row.target.row, row.chunks, row.num_chunks, row.least_logit(high), [&](int) { return !is_full; },
        [&](int id, float logit) {
            if (is_full || !(row.distance(logit) < high))
                return;
            const unsigned slot = atomicAdd(&shared.num_listed, 1u);
            is_full = slot >= CUT_LIST;
            if (!is_full)
                shared.list[slot] = candidate_key(logit, id);
        },
        [](int) {});
    __syncthreads();
}

/* The cut by the sorted list of the tokens from a distance of `low` on. */
template <class T>
__device__ __noinline__ Cut cut_list(const CutRow<T> &row, float low, const TokenSum &above, const CutGoal &goal,
                                     const CutShared &shared, BlockScratch &scratch)
{
    const int num_listed = (int)shared.num_listed, begin = (int)threadIdx.x * LIST_A_THREAD;
    float distances[LIST_A_THREAD];
    double own = 0, all;
    for (int i = 0; i < LIST_A_THREAD; i++) {
        const bool is_there = begin + i < num_listed;
        distances[i] = is_there ? row.distance(logit_of_candidate(shared.list[begin + i])) : INFINITY;
        own += is_there ? expf(-distances[i]) : 0.0f;
    }
    double before = above.weight + block_sum_below(own, scratch, all);
    int stop = num_listed;
    for (int i = 0; i < LIST_A_THREAD && begin + i < num_listed; i++) {
        const float weight = expf(-distances[i]);
        const int position = above.count + begin + i;
        if (position > 0 && (position >= goal.count || before >= goal.need || weight < goal.min_p)) {
            stop = min(stop, begin + i);
            break;
        }
        before += weight;
    }
    stop = block_least(stop, scratch);
    TokenSum kept = {};
    for (int i = 0; i < LIST_A_THREAD && begin + i < stop; i++)
        add_token(kept, distances[i]);
    kept = sum_of_block(kept, scratch);
    const TokenSum all_kept = {above.count + kept.count, above.weight + kept.weight, above.moment + kept.moment};
    Cut cut = {0, all_kept, stop, stop < num_listed};
    if (stop > 0)
        cut.key = shared.list[stop - 1];
    else if (num_listed > 0)
        cut.key = shared.list[0] + 1;
    else
        cut.key = (uint64_t)logit_key(row.target.greatest - low / row.target.inverse) << 32;
    if (above.count > 0)
        cut.num_listed = -1;
    return cut;
}

} // namespace draftsmith

#endif
