/* A row's summary out of those of its chunks: its total, its truncation's cut, its shared draw, its argmax. */
#ifndef DRAFTSMITH_ACCEPT_SUMMARY_CUH
#define DRAFTSMITH_ACCEPT_SUMMARY_CUH

#include "accept_cut.cuh"
#include "accept_params.cuh"

namespace draftsmith {

/* A row's greatest logit, NaN where a token is, and the first chunk that has it. */
struct Greatest {
    float logit;
    int chunk;
};

__device__ __forceinline__ Greatest greatest_of_row(const ChunkSummary *chunks, int num_chunks, BlockScratch &scratch)
{
    unsigned long long best = 0;
    for (int i = threadIdx.x; i < num_chunks; i += ACCEPT_THREADS) {
        const float greatest = __ldcg(&chunks[i].greatest);
        const uint32_t upper = greatest != greatest ? 0xffffffffu : logit_key(greatest);
        const unsigned long long key = (uint64_t)upper << 32 | (0xffffffffu - (uint32_t)i);
        best = key > best ? key : best;
    }
    best = block_greatest(best, scratch);
    const uint32_t upper = (uint32_t)(best >> 32);
    return {upper == 0xffffffffu ? NAN : logit_of_key(upper), (int)(0xffffffffu - (uint32_t)best)};
}

/* The lowest id of the greatest logit. */
template <class T>
__device__ __forceinline__ int find_top(const LogitRow<T> &row, const Greatest &greatest, BlockScratch &scratch)
{
    int top = 0x7fffffff;
    for (int i = threadIdx.x; i < CHUNK; i += ACCEPT_THREADS) {
        const int id = greatest.chunk * CHUNK - row.shift + i;
        if (id >= 0 && id < row.num_vocab && row.logit(id) == greatest.logit)
            top = min(top, id);
    }
    return block_least(top, scratch);
}

/* Sums of two numbers and the greatest key over a block's threads. */
__device__ __forceinline__ void add_up(double &first, double &second, unsigned long long &key, BlockScratch &scratch)
{
    first = warp_sum(first);
    second = warp_sum(second);
    key = warp_greatest(key);
    if ((threadIdx.x & 31) == 0) {
        const int warp = threadIdx.x >> 5;
        scratch.sums[warp] = first;
        scratch.more_sums[warp] = second;
        scratch.keys[warp] = key;
    }
    __syncthreads();
    first = second = 0;
    for (int warp = 0; warp < ACCEPT_WARPS; warp++) {
        first += scratch.sums[warp];
        second += scratch.more_sums[warp];
        key = scratch.keys[warp] > key ? scratch.keys[warp] : key;
    }
    __syncthreads();
}

/* `total` of the whole row. */
template <class T>
__device__ __forceinline__ Cut truncate_row(const CutRow<T> &row, const RowParams &params, CutShared &shared,
                                            BlockScratch &scratch)
{
    const bool has_top_p = params.top_p < 1;
    const float of_min_p = params.min_p > 0 ? fmaxf(-logf(params.min_p), 0.0f) + 1e-3f : INFINITY;
    if (params.top_k == 0) {
        /* Tokens under this weight hold less than 1 - top_p together. */
        const float least = (1 - params.top_p) * (float)(row.target.total / row.target.row.num_vocab);
        const float of_top_p = has_top_p ? fmaxf(-logf(least), 0.0f) + 1e-3f : INFINITY;
        const double need = has_top_p ? (double)params.top_p * row.target.total : (double)INFINITY;
        return find_cut(row, fminf(of_min_p, of_top_p), {0x7fffffff, need, params.min_p}, shared, scratch);
    }
    if (!has_top_p)
        return find_cut(row, of_min_p, {params.top_k, (double)INFINITY, params.min_p}, shared, scratch);
    const Cut cut = find_cut(row, INFINITY, {params.top_k, (double)INFINITY, 0.0f}, shared, scratch);
    const CutGoal goal = {params.top_k, (double)params.top_p * cut.kept.weight, params.min_p};
    if (cut.num_listed < 0)
        return find_cut(row, INFINITY, goal, shared, scratch);
    return cut_list(row, 0.0f, {}, goal, shared, scratch);
}

/* The token of the best score + noise among those that a cut keeps. */
template <class T>
__device__ __forceinline__ int draw_kept(const CutRow<T> &row, const Cut &cut, uint64_t noise, const CutShared &shared,
                                         BlockScratch &scratch)
{
    unsigned long long best = 0;
    if (cut.num_listed >= 0) {
        for (int i = threadIdx.x; i < cut.num_listed; i += ACCEPT_THREADS) {
            const int id = id_of_candidate(shared.list[i]);
            const float score = row.target.score(logit_of_candidate(shared.list[i]));
            const unsigned long long key = candidate_key(score + gumbel_noise(noise, id), id);
            best = key > best ? key : best;
        }
        return id_of_candidate(block_greatest(best, scratch));
    }
    /* About twenty tokens reach the first floor; the greatest logit reaches the last. */
    for (float least = logf((float)cut.kept.weight) - 3.0f;; least -= 3.0f) {
        float floor = fmaxf(least, -LEAST_NOISE);
        visit_chunks(
            row.target.row, row.chunks, row.num_chunks, logit_of_key((uint32_t)(cut.key >> 32)),
            [](int) { return true; },
            [&](int id, float logit) {
                if (candidate_key(logit, id) < cut.key)
                    return;
                const float score = row.target.score(logit);
                const float word = (float)mix_upper(noise + (uint64_t)id * GOLDEN);
                if (word > 4294967296.0f * 1.0001f * expf(score - floor) + 512.0f)
                    return;
                const float value = score + gumbel_noise(noise, id);
                const unsigned long long key = candidate_key(value, id);
                floor = fmaxf(floor, value);
                best = key > best ? key : best;
            },
            [](int) {});
        best = block_greatest(best, scratch);
        if (least <= -LEAST_NOISE || logit_of_candidate(best) >= least)
            return id_of_candidate(best);
    }
}

/* `has_noise`: the row's chunks were drawn from, or are to be after truncation; `noise`: see noise_base. */
template <class T>
__device__ __noinline__ void summarize_node(const AcceptJob &job, int request, size_t row_index, bool has_noise,
                                            uint64_t noise, CutShared &shared, BlockScratch &scratch)
{
    const RowParams params(job, request);
    const LogitRow<T> row(job, row_index);
    const ChunkSummary *chunks = job.chunks + row_index * job.num_chunks;
    const int num_chunks = job.num_chunks;
    const Greatest greatest = greatest_of_row(chunks, num_chunks, scratch);
    NodeSummary summary = {0, NAN, greatest.logit, 0.0f, -1};
    TargetRow<T> target = {row, summary.greatest, 1 / params.temperature, 0, 1.0};
    const bool is_finite = fabsf(summary.greatest) < INFINITY;
    if (is_finite && params.wants_sums()) {
        double total = 0, moment = 0;
        unsigned long long best = 0;
        for (int i = threadIdx.x; i < num_chunks; i += ACCEPT_THREADS) {
            const float4 raw = __ldcg(reinterpret_cast<const float4 *>(chunks + i));
            const ChunkSummary chunk = {raw.x, raw.y, raw.z, raw.w};
            if (chunk.greatest == -INFINITY)
                continue;
            const float score = target.score(chunk.greatest), factor = expf(score);
            total += (double)factor * chunk.sum;
            if (params.wants_moments())
                moment += factor > 0 ? factor * ((double)chunk.moment + (double)chunk.sum * score) : 0.0;
            if (has_noise && !params.is_truncated) {
                const int id = __ldcg(job.noisy_ids + row_index * num_chunks + i);
                const unsigned long long key = id >= 0 ? candidate_key(chunk.noisy + score, id) : 0;
                best = key > best ? key : best;
            }
        }
        add_up(total, moment, best, scratch);
        summary.total = target.total = total;
        summary.moment = (float)moment;
        if (has_noise && !params.is_truncated)
            summary.token = id_of_candidate(best);
    } else if (is_finite) {
        summary.total = 1;
    }
    if (is_finite && params.is_greedy)
        summary.token = find_top(row, greatest, scratch);
    if (params.is_truncated && summary.total < INFINITY) {
        const CutRow<T> whole = {target, chunks, num_chunks};
        const Cut cut = truncate_row(whole, params, shared, scratch);
        summary.cut = cut.key;
        summary.total = cut.kept.weight;
        summary.moment = (float)cut.kept.moment;
        if (has_noise)
            summary.token = draw_kept(whole, cut, noise, shared, scratch);
    }
    if (threadIdx.x == 0)
        job.nodes[row_index] = summary;
}

} // namespace draftsmith

#endif
