/* h' = w_down h by all blocks: each some ranks and a part of d; then its rounding to the ranking's operand. */
#ifndef DRAFTSMITH_HEAD_HOPPER_PROJECTION_CUH
#define DRAFTSMITH_HEAD_HOPPER_PROJECTION_CUH

#include "head_hopper_shared.cuh"
#include "operand_loads.cuh"
#include "ranking_operand.cuh"

namespace draftsmith {

/* 16 bytes of a row of hidden states, for a chunk that may lie behind its end; zeros in rows that are not. */
__device__ __forceinline__ uint4 load_hidden(const FusedJob &job, int m, int element)
{
    if (m >= job.num_rows || element >= job.hidden_size)
        return make_uint4(0, 0, 0, 0);
    return load_streamed(static_cast<const uint16_t *>(job.hidden) + (size_t)m * job.hidden_size + element);
}

/* A warp's share of this block's part: some ranks, a part of d. HALVES: of the 16 rows of a product. */
template <class T, int HALVES> struct Projection {
    enum { CHUNK = 32, BATCH = 4 };
    const Block &block;
    const uint16_t *weights; /* null: no rank for this thread */
    int chunk, last_chunk;
    uint4 w[BATCH], low[BATCH], high[HALVES == 2 ? BATCH : 1];

    __device__ __forceinline__ explicit Projection(const Block &block) : block(block)
    {
        const FusedJob &job = block.job;
        const int split = blockIdx.x % job.num_splits, first_rank = blockIdx.x / job.num_splits * job.ranks_a_block;
        const int num_chunks = (job.hidden_size + CHUNK - 1) / CHUNK, row = block.lane() / 4;
        const int rank = first_rank + row;
        weights = row < job.ranks_a_block && rank < job.rank
                      ? static_cast<const uint16_t *>(job.w_down) + (size_t)rank * job.hidden_size
                      : nullptr;
        chunk = split * num_chunks / job.num_splits + block.warp();
        last_chunk = first_rank < job.rank ? (split + 1) * num_chunks / job.num_splits : 0;
    }

    /* Of this warp's next chunks, not waited for. */
    __device__ __forceinline__ void load()
    {
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const int at = chunk + i * FUSED_WARPS, row = block.lane() / 4;
            const int element = at < last_chunk ? at * CHUNK + block.lane() % 4 * 8 : block.job.hidden_size;
            w[i] = weights && element < block.job.hidden_size ? load_streamed(weights + element)
                                                              : make_uint4(0, 0, 0, 0);
            low[i] = load_hidden(block.job, row, element);
            if (HALVES == 2)
                high[i % (HALVES == 2 ? BATCH : 1)] = load_hidden(block.job, row + 8, element);
        }
    }

    /* The sums of all chunks, the first of which are loaded, to this warp's place. */
    __device__ __forceinline__ void multiply()
    {
        float even[4] = {0.0f, 0.0f, 0.0f, 0.0f}, odd[4] = {0.0f, 0.0f, 0.0f, 0.0f}, sum[4];
        while (true) {
#pragma unroll
            for (int i = 0; i < BATCH; i++)
                multiply_split<T, HALVES>(even, odd, low[i], high[i % (HALVES == 2 ? BATCH : 1)], w[i]);
            chunk += BATCH * FUSED_WARPS;
            if (chunk >= last_chunk)
                break;
            load();
        }
        join_split<HALVES>(sum, even, odd);
        const int lane = block.lane();
        float *const mine = block.sums(0, block.warp());
#pragma unroll
        for (int half = 0; half < HALVES; half++)
            *reinterpret_cast<float2 *>(mine + (lane / 4 + 8 * half) * 8 + lane % 4 * 2) =
                make_float2(sum[2 * half], sum[2 * half + 1]);
    }
};

/* After a barrier of the block. */
__device__ __forceinline__ void publish_part(const Block &block)
{
    const FusedJob &job = block.job;
    const int split = blockIdx.x % job.num_splits, first_rank = blockIdx.x / job.num_splits * job.ranks_a_block;
    const int m = threadIdx.x / 8, n = threadIdx.x % 8;
    if (m >= job.num_rows || n >= job.ranks_a_block || first_rank + n >= job.rank)
        return;
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < FUSED_WARPS; warp++)
        sum += block.sums(0, warp)[threadIdx.x];
    job.workspace.projected[((size_t)split * job.num_rows + m) * job.rank + first_rank + n] = sum;
}

/* h' as the ranking's first operand, in scratch memory: planes of rows. */
template <class T, Ranking RANKING, int HALVES, int MOST_RANK> struct FusedOperand {
    static constexpr int ELEMENT = RANKING == Ranking::INT8 ? 1 : 2;
    static constexpr int CHUNKS = MOST_RANK * ELEMENT / 64;
    static constexpr int STRIDE = MOST_RANK * ELEMENT + 16;
    static constexpr int PLANES = RANKING == Ranking::INT8 ? 2 : 1;
    static constexpr int ROUNDS = (MOST_RANK + 127) / 128, NUM_ROWS = 8 * HALVES;
    static_assert(PLANES * STRIDE <= 2 * FUSED_WARPS * 8 * 4, "the operand takes the sums' place");

    static __device__ __forceinline__ char *at(const Block &block, int plane, int row)
    {
        return block.scratch() + (plane * NUM_ROWS + row) * STRIDE;
    }

    /* By a warp: row m of h', four values a lane and round. */
    static __device__ __forceinline__ void load(const Block &block, int m, float (&values)[ROUNDS][4])
    {
        const FusedJob &job = block.job;
#pragma unroll
        for (int round = 0; round < ROUNDS; round++) {
            const int k = round * 128 + block.lane() * 4;
            float4 parts[MOST_SPLITS];
#pragma unroll
            for (int split = 0; split < MOST_SPLITS; split++)
                parts[split] = m < job.num_rows && k < job.rank && split < job.num_splits
                                   ? __ldcg(reinterpret_cast<const float4 *>(
                                         job.workspace.projected + ((size_t)split * job.num_rows + m) * job.rank + k))
                                   : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            values[round][0] = parts[0].x + parts[1].x + parts[2].x + parts[3].x;
            values[round][1] = parts[0].y + parts[1].y + parts[2].y + parts[3].y;
            values[round][2] = parts[0].z + parts[1].z + parts[2].z + parts[3].z;
            values[round][3] = parts[0].w + parts[1].w + parts[2].w + parts[3].w;
        }
    }

    /* By a warp: rounds them to row m of the operand, zeros where the row is broken. */
    static __device__ __forceinline__ void store(const Block &block, int m, const float (&values)[ROUNDS][4])
    {
        float most = 0.0f;
        bool is_finite = true;
#pragma unroll
        for (int round = 0; round < ROUNDS; round++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float value = values[round][i];
                is_finite &= isfinite(RANKING == Ranking::INT8 ? value : round_to(value, T()));
                most = fmaxf(most, fabsf(value));
            }
        is_finite = __all_sync(0xffffffffu, is_finite);
        most = __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(most)));
        const bool is_zero = !is_finite || (RANKING == Ranking::INT8 && !(most >= 1e-30f));
        const float inverse = is_zero ? 0.0f : MOST_QUANTUM / most;
        if (block.lane() == 0) {
            block.shared.is_broken[m] = !is_finite;
            block.shared.factors[m] = RANKING != Ranking::INT8 ? 1.0f : is_zero ? 0.0f : most / MOST_QUANTUM;
        }
#pragma unroll
        for (int round = 0; round < ROUNDS; round++) {
            const int k = round * 128 + block.lane() * 4;
            if (k >= MOST_RANK)
                continue;
            uint32_t words[2] = {0, 0};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float value = is_zero ? 0.0f : values[round][i];
                if (RANKING == Ranking::INT8) {
                    const int q = __float2int_rn(value * inverse), high = (q + 128) >> 8, low = q - 256 * high;
                    words[0] |= (uint32_t)(high & 255) << 8 * i;
                    words[1] |= (uint32_t)(low & 255) << 8 * i;
                } else {
                    words[i / 2] |= bits_of(value, T()) << i % 2 * 16;
                }
            }
            if (RANKING == Ranking::INT8) {
                *reinterpret_cast<uint32_t *>(at(block, 0, m) + k) = words[0];
                *reinterpret_cast<uint32_t *>(at(block, PLANES - 1, m) + k) = words[1];
            } else {
                *reinterpret_cast<uint2 *>(at(block, 0, m) + 2 * k) = make_uint2(words[0], words[1]);
            }
        }
    }
};

} // namespace draftsmith

#endif
