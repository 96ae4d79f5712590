/* Draws from p with some tokens' weights replaced, by the cumulative sum over the vocabulary. */
#ifndef DRAFTSMITH_ACCEPT_DRAW_CUH
#define DRAFTSMITH_ACCEPT_DRAW_CUH

#include "accept_logits.cuh"

namespace draftsmith {

enum { FLAG_WORDS = (DRAFTSMITH_ACCEPT_MAX_VOCAB / CHUNK + 2 + 31) / 32 };

struct DrawShared {
    unsigned chunk_flags[FLAG_WORDS]; /* chunks with replaced tokens */
    double before;
};

/* Replaced tokens by id: a table of `num_slots`, a power of two, at least twice their number; in it 1 + the index. */
struct TokenTable {
    int *slots;
    int num_slots;

    __device__ int slot_of(int id) const { return (int)(((uint32_t)id * 2654435761u) >> 7) & (num_slots - 1); }

    /* Index of a token, -1: not replaced. */
    template <class Replaced> __device__ int find(const Replaced &replaced, int id) const
    {
        for (int slot = slot_of(id); slots[slot] != 0; slot = (slot + 1) & (num_slots - 1))
            if (replaced.id(slots[slot] - 1) == id)
                return slots[slot] - 1;
        return -1;
    }
};

/* A visited node as draws see it. */
template <class T> struct DrawRow {
    TargetRow<T> target;
    const ChunkSummary *chunks;
    double *sums; /* [num_chunks] */
    int num_chunks;
};

/* Replaced: int count(); int id(int i), distinct, -1: none; float weight(int i), in p's unit. */
struct NoneReplaced {
    __device__ int count() const { return 0; }
    __device__ int id(int) const { return -1; }
    __device__ float weight(int) const { return 0; }
};

template <class Replaced>
__device__ __forceinline__ void list_replaced(const Replaced &replaced, int shift, const TokenTable &table,
                                              DrawShared &shared)
{
    __syncthreads();
    for (int i = threadIdx.x; i < table.num_slots; i += ACCEPT_THREADS)
        table.slots[i] = 0;
    for (int i = threadIdx.x; i < FLAG_WORDS; i += ACCEPT_THREADS)
        shared.chunk_flags[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < replaced.count(); i += ACCEPT_THREADS) {
        const int id = replaced.id(i);
        if (id < 0)
            continue;
        int slot = table.slot_of(id);
        while (atomicCAS(&table.slots[slot], 0, i + 1) != 0)
            slot = (slot + 1) & (table.num_slots - 1);
        const int chunk = (id + shift) / CHUNK;
        atomicOr(&shared.chunk_flags[chunk / 32], 1u << chunk % 32);
    }
    __syncthreads();
}

/* scale * p, or the weight that replaces it. */
template <class T, class Replaced>
__device__ __forceinline__ float mass_of(const TargetRow<T> &target, const Replaced &replaced, const TokenTable &table,
                                         float scale, float logit, int id)
{
    const int index = table.find(replaced, id);
    return index >= 0 ? replaced.weight(index) : target.kept_weight(logit, id) * scale;
}

/* The chunks' masses into row.sums; returns their sum. */
template <class T, class Replaced>
__device__ __noinline__ double sum_masses(const DrawRow<T> &row, const Replaced &replaced, const TokenTable &table,
                                             double scale, DrawShared &shared, BlockScratch &scratch)
{
    const TargetRow<T> &target = row.target;
    const float unit = (float)(scale / target.total);
    const bool is_truncated = target.cut != 0;
    list_replaced(replaced, target.row.shift, table, shared);
    const float least = is_truncated ? logit_of_key((uint32_t)(target.cut >> 32)) : -INFINITY;
    for (int i = threadIdx.x; i < row.num_chunks; i += ACCEPT_THREADS) {
        const float greatest = __ldcg(&row.chunks[i].greatest);
        row.sums[i] = is_truncated || greatest == -INFINITY
                          ? 0.0
                          : (double)__ldcg(&row.chunks[i].sum) * target.weight(greatest) * unit;
    }
    __syncthreads();
    float own = 0;
    visit_chunks(
        target.row, row.chunks, row.num_chunks, least,
        [&](int chunk) { return is_truncated || (shared.chunk_flags[chunk / 32] >> chunk % 32 & 1) != 0; },
        [&](int id, float logit) { own += mass_of(target, replaced, table, unit, logit, id); },
        [&](int chunk) {
            const double sum = warp_sum((double)own);
            if ((threadIdx.x & 31) == 0)
                row.sums[chunk] = sum;
            own = 0;
        });
    __syncthreads();
    double total = 0;
    for (int i = threadIdx.x; i < row.num_chunks; i += ACCEPT_THREADS)
        total += row.sums[i];
    return block_sum(total, scratch);
}

/* The first chunk at which the cumulative sum passes `goal`, else the last that has any; `before` it. */
template <class T>
__device__ __forceinline__ int find_chunk(const DrawRow<T> &row, double uniform, double &goal, double &before,
                                          DrawShared &shared, BlockScratch &scratch)
{
    const int each = (row.num_chunks + ACCEPT_THREADS - 1) / ACCEPT_THREADS, begin = (int)threadIdx.x * each;
    const int end = min(begin + each, row.num_chunks);
    double own = 0, total;
    for (int i = begin; i < end; i++)
        own += row.sums[i];
    const double start = block_sum_below(own, scratch, total);
    goal = uniform * total;
    int passing = 0x7fffffff, last = 0;
    double reached = start;
    for (int i = begin; i < end; i++) {
        if (row.sums[i] > 0)
            last = i + 1;
        reached += row.sums[i];
        if (row.sums[i] > 0 && reached > goal && passing == 0x7fffffff)
            passing = i;
    }
    int chunk = block_least(passing, scratch);
    if (chunk == 0x7fffffff)
        chunk = (int)block_greatest((unsigned long long)last, scratch) - 1;
    if (chunk >= begin && chunk < end) {
        reached = start;
        for (int i = begin; i < chunk; i++)
            reached += row.sums[i];
        shared.before = reached;
    }
    __syncthreads();
    before = shared.before;
    return chunk;
}

/* A token drawn from the replaced weights and from scale * p elsewhere; -1 where no weight is left. */
template <class T, class Replaced>
__device__ int draw_if_any(const DrawRow<T> &row, const Replaced &replaced, const TokenTable &table, double scale,
                           double uniform, DrawShared &shared, BlockScratch &scratch)
{
    const LogitRow<T> &logits = row.target.row;
    if (!(sum_masses(row, replaced, table, scale, shared, scratch) > 0))
        return -1;
    const float unit = (float)(scale / row.target.total);
    double goal, before, total;
    const int chunk = find_chunk(row, uniform, goal, before, shared, scratch);
    const int first = chunk * CHUNK - logits.shift + 2 * (int)threadIdx.x;
    static_assert(CHUNK == 2 * ACCEPT_THREADS, "a thread takes two tokens");
    float masses[2];
    for (int i = 0; i < 2; i++) {
        const int id = first + i;
        const float logit = id >= 0 && id < logits.num_vocab ? logits.logit(id) : -INFINITY;
        masses[i] = logit > -INFINITY ? mass_of(row.target, replaced, table, unit, logit, id) : 0.0f;
    }
    double reached = before + block_sum_below((double)masses[0] + masses[1], scratch, total);
    int passing = 0x7fffffff, last = 0;
    for (int i = 0; i < 2; i++) {
        reached += masses[i];
        if (masses[i] > 0)
            last = first + i + 1;
        if (masses[i] > 0 && reached > goal && passing == 0x7fffffff)
            passing = first + i;
    }
    const int token = block_least(passing, scratch);
    if (token != 0x7fffffff)
        return token;
    return max((int)block_greatest((unsigned long long)last, scratch) - 1, 0);
}

/* The same; from p where no weight is left. */
template <class T, class Replaced>
__device__ __noinline__ int draw_weighted(const DrawRow<T> &row, const Replaced &replaced, const TokenTable &table,
                                          double scale, double uniform, DrawShared &shared, BlockScratch &scratch)
{
    const int token = draw_if_any(row, replaced, table, scale, uniform, shared, scratch);
    if (token >= 0)
        return token;
    return max(draw_if_any(row, NoneReplaced(), table, 1.0, uniform, shared, scratch), 0);
}

} // namespace draftsmith

#endif
