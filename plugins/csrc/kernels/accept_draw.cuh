/* Draws from p with some tokens' weights replaced, by the cumulative sum over the vocabulary. */
#ifndef DRAFTSMITH_ACCEPT_DRAW_CUH
#define DRAFTSMITH_ACCEPT_DRAW_CUH

#include "accept_logits.cuh"

namespace draftsmith {

enum { FLAG_WORDS = (DRAFTSMITH_ACCEPT_MAX_VOCAB / CHUNK + 2 + 31) / 32 };

struct DrawShared {
    unsigned chunk_flags[FLAG_WORDS]; /* chunks with replaced tokens */
    int token;
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

/* Sum over the lanes below this one and its own. */
__device__ __forceinline__ double warp_sum_up_to(double value)
{
    const int lane = threadIdx.x & 31;
    for (int step = 1; step < 32; step *= 2) {
        const double below = __shfl_up_sync(FULL_WARP, value, step);
        if (lane >= step)
            value += below;
    }
    return value;
}

/* The token at which the cumulative sum passes uniform * total, by a warp; where rounding keeps it from that, the last
 * that has any; -1 where the chunks' `sums` are all 0. enter(chunk) is called for the chunk that is read, and
 * weigh(place, id, logit) for its tokens above -infinity; place: vector * SIZE + element. */
template <class T, class Enter, class Weigh>
__device__ __forceinline__ int pick_token(const LogitRow<T> &row, const double *sums, int num_chunks, double uniform,
                                          const Enter &enter, const Weigh &weigh)
{
    using Part = ChunkPart<T>;
    const int lane = threadIdx.x & 31, each = (num_chunks + 31) / 32;
    const int begin = min(lane * each, num_chunks), end = min(begin + each, num_chunks);
    double own = 0;
    for (int i = begin; i < end; i++)
        own += sums[i];
    double reached = warp_sum_up_to(own);
    const double total = __shfl_sync(FULL_WARP, reached, 31), goal = uniform * total;
    if (!(total > 0))
        return -1;
    reached = __shfl_up_sync(FULL_WARP, reached, 1);
    reached = lane == 0 ? 0.0 : reached;
    double before = 0;
    int last = -1;
    bool passes = false;
    for (int i = begin; i < end && !passes; i++)
        if (sums[i] > 0) {
            last = i;
            before = reached;
            reached += sums[i];
            passes = reached > goal;
        }
    const unsigned passing = __ballot_sync(FULL_WARP, passes), any = __ballot_sync(FULL_WARP, last >= 0);
    const int owner = passing ? __ffs((int)passing) - 1 : 31 - __clz((int)any);
    const int chunk = __shfl_sync(FULL_WARP, last, owner);
    reached = __shfl_sync(FULL_WARP, before, owner);
    enter(chunk);
    Part part;
    part.load(row, chunk);
    int first = Part::first_id(row, chunk), token = -1;
#pragma unroll 1
    for (int v = 0; v < Part::NUM; v++, first += Part::STEP) {
        float masses[Part::SIZE];
        double mass = 0;
#pragma unroll
        for (int e = 0; e < Part::SIZE; e++) {
            const float logit = part.logit(0, e);
            masses[e] = logit > -INFINITY ? weigh(v * Part::SIZE + e, first + e, logit) : 0.0f;
            mass += masses[e];
        }
        part.turn();
        const double up_to = warp_sum_up_to(mass);
        const unsigned over = __ballot_sync(FULL_WARP, mass > 0 && reached + up_to > goal);
        const unsigned some = __ballot_sync(FULL_WARP, mass > 0);
        if (some) {
            double sum = reached + (up_to - mass);
            int best = -1;
            bool is_over = false;
#pragma unroll
            for (int e = 0; e < Part::SIZE; e++) {
                if (masses[e] > 0 && !is_over)
                    best = first + e;
                sum += masses[e];
                is_over |= sum > goal;
            }
            token = __shfl_sync(FULL_WARP, best, over ? __ffs((int)over) - 1 : 31 - __clz((int)some));
        }
        if (over)
            break;
        reached += __shfl_sync(FULL_WARP, up_to, 31);
    }
    return max(token, 0);
}

/* A token drawn from the replaced weights and from scale * p elsewhere; -1 where no weight is left. By the block. */
template <class T, class Replaced>
__device__ int draw_if_any(const DrawRow<T> &row, const Replaced &replaced, const TokenTable &table, double scale,
                           double uniform, DrawShared &shared, BlockScratch &scratch)
{
    sum_masses(row, replaced, table, scale, shared, scratch);
    const float unit = (float)(scale / row.target.total);
    if (threadIdx.x < 32) {
        const int token = pick_token(
            row.target.row, row.sums, row.num_chunks, uniform, [](int) {},
            [&](int, int id, float logit) { return mass_of(row.target, replaced, table, unit, logit, id); });
        if (threadIdx.x == 0)
            shared.token = token;
    }
    __syncthreads();
    return shared.token;
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
