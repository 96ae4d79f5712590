/* The one pass over all logits: a summary of every chunk of a slice. */
#ifndef DRAFTSMITH_ACCEPT_SCAN_CUH
#define DRAFTSMITH_ACCEPT_SCAN_CUH

#include "accept_logits.cuh"
#include "accept_params.cuh"

namespace draftsmith {

/* Noise above this has about one token of a chunk. */
constexpr float RARE_FLOOR = 6.9f;

/* What the rule of a row wants to know of its chunks. */
struct ScanPlan {
    bool has_sums, has_moments, has_noise;
    float inverse; /* 1 / temperature */
    float rate;    /* exp(logit / temperature) = 2 ^ (rate * logit) */
    uint64_t noise;
};

/* The best score + noise of a chunk, relative to its greatest logit; of equals the lowest id; -1: none is known. */
struct NoisyToken {
    float value;
    int id;
};

__device__ __forceinline__ NoisyToken best_of_warp(NoisyToken best)
{
    for (int step = 1; step < 32; step *= 2) {
        const float value = __shfl_xor_sync(FULL_WARP, best.value, step);
        const int id = __shfl_xor_sync(FULL_WARP, best.id, step);
        if (value > best.value || (value == best.value && (unsigned)id < (unsigned)best.id))
            best = {value, id};
    }
    return best;
}

/* Tokens whose noise can lift them to `floor`: those whose word is small enough. One bit each, by vector and place. */
template <class T>
__device__ __forceinline__ uint32_t find_hopeful(const ChunkPart<T> &part, const ScanPlan &plan, float offset,
                                                 uint64_t base, float floor)
{
    constexpr float unit = 8388608.0f; /* 2 ^ 23: words are compared by their upper 23 bits, as floats from `unit` on */
    const float scale = unit * expf(-floor) * 1.0001f;
    uint32_t hopeful = 0;
#pragma unroll
    for (int v = 0; v < ChunkPart<T>::NUM; v++)
#pragma unroll
        for (int e = 0; e < ChunkPart<T>::SIZE; e++) {
            const uint32_t word = mix_upper(base + (uint64_t)(v * ChunkPart<T>::STEP + e) * GOLDEN);
            const float weight = fast_exp2(fmaf(part.logit(v, e), plan.rate, -offset));
            const float limit = fmaf(weight, scale, unit + 1.0f);
            if (__uint_as_float(__funnelshift_r(word, 150u, 9)) <= limit)
                hopeful |= 1u << (v * ChunkPart<T>::SIZE + e);
        }
    return hopeful;
}

/* The same where few words are small enough even for the chunk's greatest logit: the logits do not count. */
template <class T> __device__ __forceinline__ uint32_t find_rare(uint64_t base, float floor)
{
    const uint32_t limit = (uint32_t)(4294967296.0f * 1.0001f * expf(-floor)) + 2;
    uint32_t hopeful = 0;
#pragma unroll 1
    for (int v = 0; v < ChunkPart<T>::NUM; v++, base += (uint64_t)ChunkPart<T>::STEP * GOLDEN) {
        uint32_t least = 0xffffffffu;
#pragma unroll
        for (int e = 0; e < ChunkPart<T>::SIZE; e++)
            least = min(least, mix_upper(base + (uint64_t)e * GOLDEN));
        if (least <= limit)
#pragma unroll 1
            for (int e = 0; e < ChunkPart<T>::SIZE; e++)
                if (mix_upper(base + (uint64_t)e * GOLDEN) <= limit)
                    hopeful |= 1u << (v * ChunkPart<T>::SIZE + e);
    }
    return hopeful;
}

/* `floor`: a value that a token of the row has, relative to the chunk's greatest logit. */
template <class T>
__device__ __forceinline__ NoisyToken find_noisy(const LogitRow<T> &row, int chunk, const ChunkPart<T> &part,
                                                 const ScanPlan &plan, float greatest, float floor)
{
    const int first = ChunkPart<T>::first_id(row, chunk);
    NoisyToken best = {-INFINITY, -1};
    if (floor > MOST_NOISE)
        return best;
    const uint64_t base = plan.noise + (uint64_t)(int64_t)first * GOLDEN;
    uint32_t hopeful = floor > RARE_FLOOR ? find_rare<T>(base, floor)
                                          : find_hopeful(part, plan, greatest * plan.rate, base, floor);
    while (__any_sync(FULL_WARP, hopeful != 0)) {
        if (hopeful == 0)
            continue;
        const int place = __ffs((int)hopeful) - 1;
        const int id = first + place / ChunkPart<T>::SIZE * ChunkPart<T>::STEP + place % ChunkPart<T>::SIZE;
        hopeful &= hopeful - 1;
        if (id < 0 || id >= row.num_vocab)
            continue;
        const float value = (row.logit(id) - greatest) * plan.inverse + gumbel_noise(plan.noise, id);
        if (value > best.value)
            best = {value, id};
    }
    return best_of_warp(best);
}

template <class T>
__device__ __forceinline__ void sum_chunk(const ChunkPart<T> &part, const ScanPlan &plan, ChunkSummary &summary)
{
    const float offset = summary.greatest * plan.rate;
    float sums[4] = {}, moment = 0;
    if (plan.has_moments) {
#pragma unroll
        for (int v = 0; v < ChunkPart<T>::NUM; v++)
#pragma unroll
            for (int e = 0; e < ChunkPart<T>::SIZE; e++) {
                const float power = fmaf(part.logit(v, e), plan.rate, -offset), weight = fast_exp2(power);
                sums[e % 4] += weight;
                moment += weight > 0 ? weight * power : 0.0f;
            }
    } else {
#pragma unroll
        for (int v = 0; v < ChunkPart<T>::NUM; v++)
#pragma unroll
            for (int e = 0; e < ChunkPart<T>::SIZE; e++)
                sums[e % 4] += fast_exp2(fmaf(part.logit(v, e), plan.rate, -offset));
    }
    /* What rounding of `offset` did to every power. */
    const float lost = fmaf(-summary.greatest, plan.rate, offset), factor = exp2f(lost);
    const float sum = warp_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
    summary.sum = sum * factor;
    if (plan.has_moments)
        summary.moment = (warp_sum(moment) + sum * lost) * factor * 0.693147180559945f;
}

/* Raises `best`, the ordered key of the best score + noise that this block knows, to `value`; what it is then. */
__device__ __forceinline__ float share_noisy(unsigned *best, float value)
{
    unsigned key = 0;
    if ((threadIdx.x & 31) == 0)
        key = atomicMax(best, value > -INFINITY ? logit_key(value) : 0u);
    key = __shfl_sync(FULL_WARP, key, 0);
    return key == 0 ? -INFINITY : logit_of_key(key);
}

/* The chunk's best score + noise. `known`: the best of this block so far. */
template <class T>
__device__ __forceinline__ NoisyToken draw_chunk(const LogitRow<T> &row, int chunk, const ChunkPart<T> &part,
                                                 const ScanPlan &plan, const ChunkSummary &summary, unsigned *known)
{
    const float level = summary.greatest * plan.inverse;
    const float shared = share_noisy(known, -INFINITY) - level, slack = 1e-3f + 1e-6f * fabsf(level);
    const float guess = logf(summary.sum) - 1.5f;
    const bool is_known = shared - slack >= guess;
    float floor = is_known ? shared - slack : guess;
    NoisyToken best;
    /* Of the chunk's tokens about 4.5 reach the guess, 20 what is tried next, and the greatest logit the last. */
#pragma unroll 1
    for (int tries = 0;; tries++) {
        best = find_noisy(row, chunk, part, plan, summary.greatest, floor);
        if (is_known || best.value >= floor || floor == -LEAST_NOISE)
            break;
        floor = tries == 0 ? fmaxf(guess - 1.5f, -LEAST_NOISE) : -LEAST_NOISE;
    }
    if (best.id >= 0)
        share_noisy(known, best.value + level);
    return best;
}

/* A warp's chunks of a slice: every ACCEPT_WARPS-th. */
struct SliceChunks {
    int first, end;

    __device__ SliceChunks(const AcceptJob &job, int slice)
        : first(slice * job.chunks_a_slice + (int)(threadIdx.x >> 5)),
          end(min((slice + 1) * job.chunks_a_slice, job.num_chunks))
    {
    }
};

/* `next`: the first chunk, where there is one. `known`: one word of shared memory, 0. */
template <class T>
__device__ __forceinline__ void scan_slice(const AcceptJob &job, size_t row_index, const SliceChunks &chunks,
                                           ChunkPart<T> &next, const ScanPlan &plan, unsigned *known)
{
    const LogitRow<T> row(job, row_index);
    const int lane = threadIdx.x & 31, end = chunks.end;
    int chunk = chunks.first;
    for (; chunk < end; chunk += ACCEPT_WARPS) {
        const ChunkPart<T> part = next;
        if (chunk + ACCEPT_WARPS < end)
            next.load(row, chunk + ACCEPT_WARPS);
        ChunkSummary summary = {part.greatest(), 0.0f, 0.0f, -INFINITY};
        NoisyToken noisy = {-INFINITY, -1};
        for (int step = 1; step < 32; step *= 2)
            summary.greatest = greater_or_nan(summary.greatest, __shfl_xor_sync(FULL_WARP, summary.greatest, step));
        if (plan.has_sums && fabsf(summary.greatest) < INFINITY) {
            sum_chunk(part, plan, summary);
            if (plan.has_noise && summary.sum > 0) {
                noisy = draw_chunk(row, chunk, part, plan, summary, known);
                summary.noisy = noisy.value;
            }
        }
        if (lane == 0) {
            job.chunks[row_index * job.num_chunks + chunk] = summary;
            if (plan.has_noise)
                job.noisy_ids[row_index * job.num_chunks + chunk] = noisy.id;
        }
    }
}

} // namespace draftsmith

#endif
