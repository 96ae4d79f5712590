/* The cut of a truncation in a window of scores: its tokens are counted in bins, and listed as long as they fit; those
 * above it are summed. A window whose list overflows is narrowed to the bins in which the cut can lie. */
#ifndef DRAFTSMITH_ACCEPT_WINDOW_CUH
#define DRAFTSMITH_ACCEPT_WINDOW_CUH

#include "accept_list.cuh"

namespace draftsmith {

/* Scores nearer than this are one. */
constexpr float LEAST_WINDOW = 1e-12f;
constexpr float LOG2_E = 1.44269504088896f;

/* Distances of scores below the greatest: from `low` on, below `high`. */
struct CutWindow {
    float low, high, span; /* span: what the bins cover */

    __device__ bool holds(float distance) const { return distance >= low && distance < high; }
};

/* Reads what lies in the window or above it. */
template <class T>
__device__ __forceinline__ TokenSum read_window(const CutRow<T> &row, const CutWindow &window, CutShared &shared,
                                                BlockScratch &scratch)
{
    __syncthreads();
    for (int i = threadIdx.x; i < CUT_BINS; i += ACCEPT_THREADS)
        shared.bins[i] = 0;
    if (threadIdx.x == 0)
        shared.num_listed = 0;
    __syncthreads();
    TokenSum above = {};
    float weight = 0, moment = 0; /* of a chunk */
    bool is_full = false;
    const float bins_a_distance = CUT_BINS / window.span;
    visit_chunks(
        row.target.row, row.chunks, row.num_chunks, row.least_logit(window.high), [](int) { return true; },
        [&](int id, float logit) {
            const float distance = row.distance(logit);
            if (distance < window.low) {
                const float own = fast_exp2(distance * -LOG2_E);
                above.count++;
                weight += own;
                moment -= own * distance;
            } else if (distance < window.high) {
                const float bin = (distance - window.low) * bins_a_distance;
                atomicAdd(&shared.bins[bin < CUT_BINS - 1 ? (int)bin : CUT_BINS - 1], 1u);
                if (!is_full) {
                    const unsigned slot = atomicAdd(&shared.num_listed, 1u);
                    is_full = slot >= CUT_LIST;
                    if (!is_full)
                        shared.list[slot] = candidate_key(logit, id);
                }
            }
        },
        [&](int) {
            above.weight += weight;
            above.moment += moment;
            weight = moment = 0;
        });
    __syncthreads();
    return sum_of_block(above, scratch);
}

/* The bins in which the goal's cut can lie. Weights within a bin are known but for its width. */
__device__ __forceinline__ CutWindow narrow_window(const CutWindow &window, const TokenSum &above, const CutGoal &goal,
                                                   const CutShared &shared, BlockScratch &scratch)
{
    const float width = window.span / CUT_BINS;
    const int begin = (int)threadIdx.x * BINS_A_THREAD;
    int count = 0;
    double most = 0, least = 0, total;
    for (int j = begin; j < begin + BINS_A_THREAD; j++) {
        const float edge = window.low + (float)j * width;
        const bool is_open = j == CUT_BINS - 1 && window.high == INFINITY;
        count += (int)shared.bins[j];
        most += shared.bins[j] * (double)expf(-edge);
        least += is_open ? 0.0 : shared.bins[j] * (double)expf(-edge - width);
    }
    int all;
    int reached = above.count + block_exclusive_sum(count, scratch.counts, all);
    most = above.weight + block_sum_below(most, scratch, total);
    least = above.weight + block_sum_below(least, scratch, total);
    int first = CUT_BINS - 1, last = CUT_BINS - 1;
    for (int j = begin; j < begin + BINS_A_THREAD; j++) {
        const float edge = window.low + (float)j * width, end = edge + width;
        const bool is_open = j == CUT_BINS - 1 && window.high == INFINITY;
        reached += (int)shared.bins[j];
        most += shared.bins[j] * (double)expf(-edge) * 1.00001;
        least += is_open ? 0.0 : shared.bins[j] * (double)expf(-end) * 0.99999;
        if (reached > goal.count || most >= goal.need || expf(-end) * 0.9999f < goal.min_p)
            first = min(first, j);
        if (reached >= goal.count || least >= goal.need || expf(-edge) * 1.0001f < goal.min_p)
            last = min(last, j);
    }
    first = block_least(first, scratch);
    last = max(block_least(last, scratch), first);
    CutWindow next;
    const float slack = 0.02f * width + 1e-6f * (window.low + (float)(last + 1) * width);
    next.low = first == 0 ? window.low : fmaxf(window.low, window.low + (float)first * width - slack);
    next.high = last == CUT_BINS - 1 ? window.high : window.low + (float)(last + 1) * width + slack;
    next.span = next.high < INFINITY ? next.high - next.low : 32 * window.span;
    return next;
}

/* Tokens that cannot be told apart: those with the lowest ids are kept. */
template <class T>
__device__ __noinline__ Cut cut_equals(const CutRow<T> &row, const CutWindow &window, const TokenSum &above,
                                       const CutGoal &goal, CutShared &shared, BlockScratch &scratch)
{
    const float weight = expf(-window.low);
    int in_window = 0;
    for (int i = threadIdx.x; i < CUT_BINS; i += ACCEPT_THREADS)
        in_window += (int)shared.bins[i];
    in_window = block_count(in_window, scratch);
    double kept = goal.count - above.count;
    if (goal.need < INFINITY)
        kept = fmin(kept, ceil((goal.need - above.weight) / weight));
    if (weight < goal.min_p)
        kept = 0;
    const int wanted = (int)fmin(fmax(kept, above.count > 0 ? 0.0 : 1.0), (double)in_window);
    if (threadIdx.x == 0)
        shared.found = ((uint64_t)logit_key(row.target.greatest - window.low / row.target.inverse) + 1) << 32;
    /* Chunks in order, one a warp at a time. */
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int before = 0;
    for (int base = 0; base < row.num_chunks && before < wanted; base += ACCEPT_WARPS) {
        ChunkPart<T> part;
        unsigned mine = 0;
        int num_mine = 0;
        if (base + warp < row.num_chunks) {
            part.load(row.target.row, base + warp);
            for (int v = 0; v < ChunkPart<T>::NUM; v++)
                for (int e = 0; e < ChunkPart<T>::SIZE; e++)
                    mine |= (unsigned)window.holds(row.distance(part.logit(v, e))) << (v * ChunkPart<T>::SIZE + e);
            num_mine = __popc(mine);
        }
        const int in_warp = warp_sum(num_mine);
        int in_chunks;
        int passed = before + block_exclusive_sum(lane == 0 ? in_warp : 0, scratch.counts, in_chunks);
        passed = __shfl_sync(FULL_WARP, passed, 0);
        /* Ids within a chunk: vector after vector, lane after lane. */
#pragma unroll 1
        for (int v = 0; v < ChunkPart<T>::NUM; v++) {
            const unsigned of_vector = mine >> (v * ChunkPart<T>::SIZE) & ((1u << ChunkPart<T>::SIZE) - 1);
            const int count = __popc(of_vector), inclusive = warp_inclusive_sum(count);
            int rank = passed + inclusive - count;
            for (int e = 0; e < ChunkPart<T>::SIZE; e++)
                if (of_vector >> e & 1 && ++rank == wanted) {
                    const int id = ChunkPart<T>::first_id(row.target.row, base + warp) + v * ChunkPart<T>::STEP + e;
                    shared.found = candidate_key(row.target.row.logit(id), id);
                }
            passed += __shfl_sync(FULL_WARP, inclusive, 31);
        }
        before += in_chunks;
    }
    __syncthreads();
    Cut cut = {shared.found, {}, -1, true};
    TokenSum sum = {};
    visit_chunks(
        row.target.row, row.chunks, row.num_chunks, row.least_logit(window.high), [](int) { return true; },
        [&](int id, float logit) {
            if (candidate_key(logit, id) >= cut.key)
                add_token(sum, row.distance(logit));
        },
        [](int) {});
    cut.kept = sum_of_block(sum, scratch);
    return cut;
}

} // namespace draftsmith

#endif
