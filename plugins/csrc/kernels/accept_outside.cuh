/* What p leaves to the tokens outside a node's children: its mass, and a draw from it. */
#ifndef DRAFTSMITH_ACCEPT_OUTSIDE_CUH
#define DRAFTSMITH_ACCEPT_OUTSIDE_CUH

#include "accept_node.cuh"

namespace draftsmith {

/* The children as a walk over them sees them; `first` -1: none. */
struct Siblings {
    const WalkShared &shared;
    int first, shift;

    __device__ bool any_in(int chunk) const
    {
        bool is_any = false;
        for (int child = first; child >= 0; child = shared.next_sibling[child])
            is_any |= (shared.tokens[child] + shift) / CHUNK == chunk;
        return is_any;
    }

    /* A bit for each place of this lane's part of a chunk that a child's token has. */
    template <class T> __device__ uint32_t places_in(int chunk) const
    {
        using Part = ChunkPart<T>;
        uint32_t places = 0;
        for (int child = first; child >= 0; child = shared.next_sibling[child]) {
            const int at = shared.tokens[child] + shift - chunk * CHUNK;
            if (at >= 0 && at < CHUNK && at % Part::STEP / Part::SIZE == (int)(threadIdx.x & 31))
                places |= 1u << (at / Part::STEP * Part::SIZE + at % Part::SIZE);
        }
        return places;
    }
};

/* p of a chunk's tokens outside: the same in every lane. */
template <class T>
__device__ __forceinline__ float sum_outside(const TargetRow<T> &target, const Siblings &siblings, int chunk,
                                             float unit)
{
    ChunkPart<T> part;
    part.load(target.row, chunk);
    const uint32_t inside = siblings.places_in<T>(chunk);
    int first = ChunkPart<T>::first_id(target.row, chunk), place = 0;
    float sum = 0;
#pragma unroll 1
    for (int v = 0; v < ChunkPart<T>::NUM; v++, first += ChunkPart<T>::STEP) {
#pragma unroll
        for (int e = 0; e < ChunkPart<T>::SIZE; e++, place++)
            sum += inside >> place & 1 ? 0.0f : target.kept_weight(part.logit(0, e), first + e);
        part.turn();
    }
    return warp_sum(sum) * unit;
}

/* Calls done(chunk, p of its tokens outside), in one lane each, for the chunks of warp `team` of `num_teams`. */
template <class T, class Done>
__device__ __forceinline__ void visit_outside(const VisitedNode<T> &at, const Siblings &siblings, int team,
                                              int num_teams, const Done &done)
{
    const TargetRow<T> &target = at.target;
    const float unit = (float)(1.0 / target.total);
    const float least = target.cut != 0 ? logit_of_key((uint32_t)(target.cut >> 32)) : -INFINITY;
    const int lane = threadIdx.x & 31;
    for (int base = team; base < at.num_chunks; base += 32 * num_teams) {
        const int mine = base + lane * num_teams;
        bool is_read = false;
        if (mine < at.num_chunks) {
            const float2 chunk = __ldcg(reinterpret_cast<const float2 *>(at.chunks + mine)); /* greatest, sum */
            const bool is_empty = chunk.x == -INFINITY || !(chunk.x >= least);
            is_read = !is_empty && (target.cut != 0 || siblings.any_in(mine));
            if (!is_read)
                done(mine, is_empty ? 0.0 : (double)chunk.y * target.weight(chunk.x) * unit);
        }
        for (unsigned reads = __ballot_sync(FULL_WARP, is_read); reads; reads &= reads - 1) {
            const int chunk = base + (__ffs((int)reads) - 1) * num_teams;
            const float sum = sum_outside(target, siblings, chunk, unit);
            if (chunk == mine)
                done(chunk, (double)sum);
        }
    }
}

/* p of all tokens outside the children, by a warp: summed where a difference from 1 would not tell. */
template <class T> __device__ __noinline__ double mass_outside(const VisitedNode<T> &at, double inside)
{
    if (inside < 0.9)
        return 1 - inside;
    double sum = 0;
    visit_outside(at, {at.shared, at.first_child(), at.target.row.shift}, 0, 1,
                  [&](int, double mass) { sum += mass; });
    return warp_sum(sum);
}

/* A token outside the children, in proportion to p; from all where no mass is left there. By the block. `sums`:
 * [num_chunks]. */
template <class T>
__device__ __noinline__ int draw_outside(const VisitedNode<T> &at, double uniform, double *sums, WalkShared &shared)
{
    const int warp = threadIdx.x >> 5;
    const float unit = (float)(1.0 / at.target.total);
    for (int first = at.first_child();; first = -1) {
        const Siblings siblings = {shared, first, at.target.row.shift};
        __syncthreads();
        visit_outside(at, siblings, warp, ACCEPT_WARPS, [&](int chunk, double mass) { sums[chunk] = mass; });
        __syncthreads();
        if (warp == 0) {
            uint32_t inside = 0;
            const int token = pick_token(
                at.target.row, sums, at.num_chunks, uniform, [&](int chunk) { inside = siblings.places_in<T>(chunk); },
                [&](int place, int id, float logit) {
                    return inside >> place & 1 ? 0.0f : at.target.kept_weight(logit, id) * unit;
                });
            if (threadIdx.x == 0)
                shared.token = token;
        }
        __syncthreads();
        const int token = shared.token;
        if (token >= 0 || first < 0)
            return max(token, 0);
    }
}

} // namespace draftsmith

#endif
