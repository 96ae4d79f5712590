/* pi = clip(q, low p, high p), the closest to q of what a rule allows (plugins/reference/accept_rules.py).
 *
 * Candidates are sorted by q / p; with sums up to each, mass and divergence of any bounds take two binary searches. */
#ifndef DRAFTSMITH_ACCEPT_CLIP_CUH
#define DRAFTSMITH_ACCEPT_CLIP_CUH

#include "accept_rules.cuh"
#include "accept_sort.cuh"
#include "ordered_keys.cuh"

namespace draftsmith {

/* low p outside the candidates; low <= 1 <= high. */
struct Clip {
    float low, high;
};

/* q's support: its tokens, q > 0 of each (0: no candidate) and p; p of all other tokens. Arrays in shared memory. */
struct Candidates {
    int *ids;
    float *q, *p;
    int count;
    float p_outside;
};

/* The candidates with positive p in order of q / p. Sums, [num_positive + 1]: p of each and those after it, which may
 * be tiny; q and q log(q / p) of those before it. */
struct ClipTable {
    const float *q, *p;
    float *p_from, *q_before, *kl_before;
    int num_positive;
    float p_outside;

    __device__ __forceinline__ float ratio(int i) const { return q[i] / p[i]; }

    /* How many ratios are below `bound`, or at most that. */
    __device__ __forceinline__ int count_below(float bound, bool or_equal) const
    {
        int low = 0, high = num_positive;
        while (low < high) {
            const int middle = (low + high) / 2;
            const float value = ratio(middle);
            if (value < bound || (or_equal && value == bound))
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }

    /* p of the tokens outside and of those before `i`. */
    __device__ __forceinline__ double p_outside_and_before(int i) const
    {
        return (double)p_from[0] - p_from[i] + p_outside;
    }

    /* Sum of pi over all tokens. */
    __device__ __forceinline__ double mass(const Clip &bounds) const
    {
        const int lower = count_below(bounds.low, false), upper = count_below(bounds.high, true);
        return lifted_before(bounds.low, lower, upper) + (double)bounds.high * p_from[upper];
    }

    /* KL(pi || p). */
    __device__ __forceinline__ float divergence(const Clip &bounds) const
    {
        const int lower = count_below(bounds.low, false), upper = count_below(bounds.high, true);
        const float lifted = divergence_term(bounds.low, 1.0f), cut = divergence_term(bounds.high, 1.0f);
        return lifted * (float)p_outside_and_before(lower) + (kl_before[upper] - kl_before[lower]) +
               (upper < num_positive ? cut * p_from[upper] : 0.0f);
    }

    /* Candidates before `i`, each at least low p, and low p outside. */
    __device__ __forceinline__ double lifted_before(float low, int lower, int i) const
    {
        const int lifted = min(i, lower);
        return (double)low * p_outside_and_before(lifted) + ((double)q_before[i] - q_before[lifted]);
    }

    /* The upper bound at which pi's mass is 1; false where no bound reaches it. */
    __device__ __forceinline__ bool find_high(float low, Clip &bounds) const
    {
        const int lower = count_below(low, false);
        int first = 0, end = num_positive;
        while (first < end) {
            const int middle = (first + end) / 2;
            if (lifted_before(low, lower, middle + 1) + (double)ratio(middle) * p_from[middle + 1] >= 1)
                end = middle;
            else
                first = middle + 1;
        }
        if (first == num_positive)
            return false;
        bounds = {low, fmaxf(1.0f, (float)((1 - lifted_before(low, lower, first)) / p_from[first]))};
        return true;
    }
};

/* The table's sums; a thread takes a few candidates side by side. */
__device__ __forceinline__ void sum_ratios(const ClipTable &table, BlockScratch &scratch)
{
    constexpr int EACH = DRAFTSMITH_ACCEPT_MAX_CANDIDATES / ACCEPT_THREADS;
    const int count = table.num_positive, begin = (int)threadIdx.x * EACH, end = min(begin + EACH, count);
    double p = 0, q = 0, kl = 0, total;
    for (int i = begin; i < end; i++) {
        p += table.p[count - 1 - i]; /* from the end: small ones first */
        q += table.q[i];
        kl += divergence_term(table.q[i], table.p[i]);
    }
    p = block_sum_below(p, scratch, total);
    q = block_sum_below(q, scratch, total);
    kl = block_sum_below(kl, scratch, total);
    if (threadIdx.x == 0)
        table.p_from[count] = table.q_before[0] = table.kl_before[0] = 0;
    for (int i = begin; i < end; i++) {
        p += table.p[count - 1 - i];
        q += table.q[i];
        kl += divergence_term(table.q[i], table.p[i]);
        table.p_from[count - 1 - i] = (float)p;
        table.q_before[i + 1] = (float)q;
        table.kl_before[i + 1] = (float)kl;
    }
}

/* Sorts the candidates' arrays by q / p, those with p = 0 last. `region`: shared memory, clip_region_bytes. */
__device__ __forceinline__ ClipTable sort_by_ratio(Candidates &candidates, void *region, BlockScratch &scratch)
{
    constexpr int EACH = DRAFTSMITH_ACCEPT_MAX_CANDIDATES / ACCEPT_THREADS;
    unsigned long long *const keys = static_cast<unsigned long long *>(region);
    const int count = candidates.count, thread = threadIdx.x;
    int num_mine = 0;
    __syncthreads();
    for (int i = thread; i < count; i += ACCEPT_THREADS) {
        const bool is_positive = candidates.p[i] > 0 && candidates.q[i] > 0;
        const float ratio = is_positive ? candidates.q[i] / candidates.p[i] : INFINITY;
        num_mine += is_positive;
        keys[i] = candidate_key(-ratio, i);
    }
    const int num_positive = block_count(num_mine, scratch);
    sort_descending(keys, count);
    int ids[EACH];
    float q[EACH], p[EACH];
    for (int e = 0, i = thread; e < EACH && i < count; e++, i += ACCEPT_THREADS) {
        const int from = id_of_candidate(keys[i]);
        ids[e] = candidates.ids[from];
        q[e] = candidates.q[from];
        p[e] = candidates.p[from];
    }
    __syncthreads();
    for (int e = 0, i = thread; e < EACH && i < count; e++, i += ACCEPT_THREADS) {
        candidates.ids[i] = ids[e];
        candidates.q[i] = q[e];
        candidates.p[i] = p[e];
    }
    __syncthreads();
    float *const sums = static_cast<float *>(region);
    const int size = count + 1;
    const ClipTable table = {candidates.q,    candidates.p, sums, sums + size, sums + 2 * size,
                             num_positive, candidates.p_outside};
    sum_ratios(table, scratch);
    __syncthreads();
    return table;
}

/* The least number at which `holds`, which holds from there on, at `high` at the latest. A warp tries 32
 * numbers at a time, and six times narrows the interval to a 33rd. */
template <class Holds> __device__ __forceinline__ float find_least(float low, float high, const Holds &holds)
{
    for (int round = 0; round < 6; round++) {
        const float step = (high - low) / 33;
        const unsigned held = __ballot_sync(FULL_WARP, holds(low + step * (float)((threadIdx.x & 31) + 1)));
        const int first = held ? __ffs((int)held) - 1 : 32;
        const float start = low;
        low = start + step * (float)first;
        high = first == 32 ? high : start + step * (float)(first + 1);
    }
    return high;
}

/* The pi closest to q (most sum min(q, pi)) with KL(pi || p) <= budget, which q itself exceeds. */
__device__ __forceinline__ Clip clip_by_budget(const ClipTable &table, float budget)
{
    const float low = find_least(0.0f, 1.0f, [&](float value) {
        Clip bounds;
        return table.find_high(value, bounds) && table.divergence(bounds) <= budget;
    });
    Clip bounds = {1.0f, 1.0f};
    if (low < 1)
        table.find_high(low, bounds);
    return bounds;
}

/* The pi with high / low = exp(price). */
__device__ __forceinline__ Clip clip_by_price(const ClipTable &table, float price)
{
    const float factor = expf(price);
    const float low = find_least(expf(-price), 1.0f, [&](float value) {
        return table.mass({value, fmaxf(1.0f, value * factor)}) >= 1;
    });
    return {low, fmaxf(1.0f, low * factor)};
}

} // namespace draftsmith

#endif
