/* The best `out` of a row's candidates in order, and the log-sum-exp of all, by one block. Same input, same bits. */
#ifndef DRAFTSMITH_BEST_OUTPUTS_CUH
#define DRAFTSMITH_BEST_OUTPUTS_CUH

#include "ordered_keys.cuh"
#include "spec_vocab_head.h"

namespace draftsmith {

/* Sum of exponentials, relative to the greatest. Neither infinity nor all -infinity makes a NaN. */
struct ExponentialSum {
    float greatest, sum;
};

__device__ __forceinline__ ExponentialSum no_exponentials() { return {-INFINITY, 0.0f}; }

__device__ __forceinline__ ExponentialSum add_exponentials(const ExponentialSum &a, const ExponentialSum &b)
{
    const float greatest = fmaxf(a.greatest, b.greatest);
    const float first = a.greatest == greatest ? a.sum : a.sum * expf(a.greatest - greatest);
    const float second = b.greatest == greatest ? b.sum : b.sum * expf(b.greatest - greatest);
    return {greatest, first + second};
}

enum { BEST_THREADS = 512, BEST_GROUPS = 128, BEST_LIST = DRAFTSMITH_HEAD_MAX_OUTPUTS };

struct BestShared {
    uint64_t list[BEST_LIST];
    uint64_t maxima[BEST_GROUPS];
    ExponentialSum sums[BEST_THREADS / 32];
    uint64_t floor;
    int bins[256];
    int num_listed, has_nan, num_wanted;
};

/* Row's outputs where it has no meaning. Every thread of the block takes part. */
__device__ __forceinline__ void write_broken_row(int num_outputs, int32_t *ids, float *logits, float *log_sum_exp)
{
    for (int i = threadIdx.x; i < num_outputs; i += blockDim.x) {
        ids[i] = -1;
        logits[i] = NAN;
    }
    if (threadIdx.x == 0)
        *log_sum_exp = NAN;
}

/* The num_outputs greatest of a list of distinct candidate_keys, best first; less than so many are followed by what
 * is missing. By the whole block, eight threads a key. */
__device__ __forceinline__ void write_best(const uint64_t *list, int num_listed, int num_outputs, int32_t *ids,
                                           float *logits)
{
    enum { SHARE = 8 };
    const int thread = threadIdx.x;
#pragma unroll 1
    for (int start = 0; start < num_listed; start += blockDim.x / SHARE) {
        const int i = start + thread / SHARE;
        const uint64_t key = i < num_listed ? list[i] : ~0ull;
        int rank = 0;
#pragma unroll 4
        for (int j = thread % SHARE; j < num_listed; j += SHARE)
            rank += list[j] > key;
        rank += __shfl_xor_sync(0xffffffffu, rank, 1);
        rank += __shfl_xor_sync(0xffffffffu, rank, 2);
        rank += __shfl_xor_sync(0xffffffffu, rank, 4);
        if (i < num_listed && thread % SHARE == 0 && rank < num_outputs) {
            ids[rank] = id_of_candidate(key);
            logits[rank] = logit_of_candidate(key);
        }
    }
    for (int i = num_listed + thread; i < num_outputs; i += blockDim.x) {
        ids[i] = -1;
        logits[i] = -INFINITY;
    }
}

/* The candidate_key that exactly `num_wanted` of the candidates reach; there must be as many. Digit after digit, from
 * the top. */
template <class Candidates>
__device__ uint64_t find_floor(const Candidates &candidates, int num_wanted, BestShared &shared)
{
    uint64_t prefix = 0;
    for (int shift = 56; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += blockDim.x)
            shared.bins[i] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < candidates.count(); i += blockDim.x) {
            const uint64_t key = candidates.key(i);
            if (key != 0 && (shift == 56 || (key >> (shift + 8)) == (prefix >> (shift + 8))))
                atomicAdd(&shared.bins[key >> shift & 255], 1);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int digit = 255, wanted = num_wanted;
            while (digit > 0 && shared.bins[digit] < wanted)
                wanted -= shared.bins[digit--];
            shared.floor = prefix | (uint64_t)digit << shift;
            shared.num_wanted = wanted;
        }
        __syncthreads();
        prefix = shared.floor;
        num_wanted = shared.num_wanted;
        __syncthreads();
    }
    return prefix;
}

/* The `num_wanted`-th greatest maximum of a group of threads: at least as many candidates reach it. 0 where there are
 * fewer groups that have any. */
__device__ __forceinline__ uint64_t guess_floor(uint64_t greatest, int num_wanted, BestShared &shared)
{
    constexpr int SIZE = BEST_THREADS / BEST_GROUPS;
    for (int step = 1; step < SIZE; step *= 2) {
        const uint64_t other = __shfl_xor_sync(0xffffffffu, (unsigned long long)greatest, step);
        greatest = other > greatest ? other : greatest;
    }
    if (threadIdx.x % SIZE == 0)
        shared.maxima[threadIdx.x / SIZE] = greatest;
    if (threadIdx.x == 0)
        shared.floor = 0;
    __syncthreads();
    if (threadIdx.x < BEST_GROUPS && num_wanted <= BEST_GROUPS) {
        const uint64_t mine = shared.maxima[threadIdx.x];
        int num_above = 0;
        for (int i = 0; i < BEST_GROUPS; i++)
            num_above += shared.maxima[i] > mine;
        if (num_above == num_wanted - 1)
            shared.floor = mine;
    }
    __syncthreads();
    return shared.floor;
}

template <class Candidates>
__device__ void list_above(const Candidates &candidates, uint64_t floor, BestShared &shared)
{
    __syncthreads();
    if (threadIdx.x == 0)
        shared.num_listed = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < candidates.count(); i += blockDim.x) {
        const uint64_t key = candidates.key(i);
        if (key != 0 && key >= floor) {
            const int slot = atomicAdd(&shared.num_listed, 1);
            if (slot < BEST_LIST)
                shared.list[slot] = key;
        }
    }
    __syncthreads();
}

/* By a block of BEST_THREADS threads. Candidates: int count(); bool logit(int i, float &value), false where i is no
 * candidate of this row; uint64_t key(int i), its candidate_key, 0 where it is none. */
template <class Candidates>
__device__ void write_best_outputs(const Candidates &candidates, int num_outputs, int32_t *ids, float *logits,
                                   float *log_sum_exp, BestShared &shared)
{
    const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
    if (thread == 0)
        shared.has_nan = 0;
    __syncthreads();
    ExponentialSum sum = no_exponentials();
    uint64_t greatest = 0;
    bool has_nan = false;
    for (int i = thread; i < candidates.count(); i += BEST_THREADS) {
        float logit;
        if (!candidates.logit(i, logit))
            continue;
        has_nan |= logit != logit;
        const uint64_t key = candidates.key(i);
        greatest = key > greatest ? key : greatest;
        sum = add_exponentials(sum, {logit, 1.0f});
    }
    for (int step = 1; step < 32; step *= 2) {
        const float other_greatest = __shfl_xor_sync(0xffffffffu, sum.greatest, step);
        const float other_sum = __shfl_xor_sync(0xffffffffu, sum.sum, step);
        sum = lane & step ? add_exponentials({other_greatest, other_sum}, sum)
                          : add_exponentials(sum, {other_greatest, other_sum});
    }
    if (lane == 0)
        shared.sums[warp] = sum;
    if (has_nan)
        shared.has_nan = 1;
    __syncthreads();
    if (shared.has_nan) {
        write_broken_row(num_outputs, ids, logits, log_sum_exp);
        return;
    }
    if (thread == 0) {
        for (int i = 1; i < BEST_THREADS / 32; i++)
            sum = add_exponentials(sum, shared.sums[i]);
        *log_sum_exp = sum.greatest + logf(sum.sum);
    }
    list_above(candidates, guess_floor(greatest, num_outputs, shared), shared);
    if (shared.num_listed > BEST_LIST)
        list_above(candidates, find_floor(candidates, num_outputs, shared), shared);
    write_best(shared.list, shared.num_listed, num_outputs, ids, logits);
}

} // namespace draftsmith

#endif
