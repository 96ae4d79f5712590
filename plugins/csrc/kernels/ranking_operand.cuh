/* h' of all rows in shared memory as the first operand of the ranking products: rounded, or as two planes of int8. */
#ifndef DRAFTSMITH_RANKING_OPERAND_CUH
#define DRAFTSMITH_RANKING_OPERAND_CUH

#include "warp_mma.cuh"

namespace draftsmith {

enum class Ranking { SAME, INT8, FLOAT8 }; /* w_vocab's type: hidden's, int8, e4m3 */

/* |q| of int8 ranking: q = 256 high + low, both in eight bits. */
constexpr float MOST_QUANTUM = 32512.0f;

__device__ __forceinline__ float round_to(float value, __half) { return __half2float(__float2half_rn(value)); }
__device__ __forceinline__ float round_to(float value, __nv_bfloat16)
{
    return __bfloat162float(__float2bfloat16_rn(value));
}
__device__ __forceinline__ uint32_t bits_of(float value, __half) { return __half_as_ushort(__float2half_rn(value)); }
__device__ __forceinline__ uint32_t bits_of(float value, __nv_bfloat16)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

struct RowScale {
    float factor;  /* of the integers; 1 for rounded rows, 0 for rows of (almost) zeros */
    float inverse; /* what h' is multiplied with before it is rounded to an integer */
    bool is_finite;
};

/* By a warp: what all of h' [rank] of a row say. */
template <class T, Ranking RANKING>
__device__ __forceinline__ RowScale scale_row(const float *projected, int rank)
{
    float most = 0.0f;
    bool is_finite = true;
    for (int i = threadIdx.x & 31; i < rank; i += 32) {
        const float value = RANKING == Ranking::INT8 ? projected[i] : round_to(projected[i], T());
        is_finite &= isfinite(value);
        most = fmaxf(most, fabsf(value));
    }
    for (int step = 16; step > 0; step /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
    is_finite = __all_sync(0xffffffffu, is_finite);
    if (RANKING != Ranking::INT8)
        return {1.0f, 1.0f, is_finite};
    if (!(most >= 1e-30f))
        return {0.0f, 0.0f, is_finite};
    return {most / MOST_QUANTUM, MOST_QUANTUM / most, is_finite};
}

/* Strides keep the 16-byte loads of a warp off each other's banks. */
template <class T, Ranking RANKING, int ROW_TILES> struct RankingOperand {
    static constexpr int NUM_ROWS = 16 * ROW_TILES;
    static constexpr int DEPTH = 1024 / ROW_TILES; /* of one filling */
    static constexpr int CHUNK = RANKING == Ranking::SAME ? 32 : 64;
    static constexpr int NUM_PLANES = RANKING == Ranking::INT8 ? 2 : 1;
    static constexpr int STRIDE = RANKING == Ranking::INT8 ? DEPTH + 64 : 2 * DEPTH + (RANKING == Ranking::SAME ? 64 : 16);

    uint4 bytes[NUM_PLANES * NUM_ROWS * STRIDE / 16];

    __device__ char *at(int plane, int row, int offset)
    {
        return reinterpret_cast<char *>(bytes) + (plane * NUM_ROWS + row) * STRIDE + offset;
    }

    /* By the whole block: four elements from `k` of row m; zeros behind `rank`, and in rows from num_rows on. */
    __device__ void fill(const float *projected, const RowScale *scales, int num_rows, int rank, int first)
    {
        const int count = min(DEPTH, (rank - first + 63) / 64 * 64) / 4;
        for (int i = threadIdx.x; i < NUM_ROWS * count; i += blockDim.x) {
            const int m = i / count, k = i % count * 4;
            float values[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                values[j] = m < num_rows && first + k + j < rank ? projected[(size_t)m * rank + first + k + j] : 0.0f;
            store(m, k, values, m < num_rows ? scales[m].inverse : 0.0f);
        }
    }

    __device__ void store(int m, int k, const float (&values)[4], float inverse)
    {
        uint32_t words[2] = {0, 0};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (RANKING == Ranking::INT8) {
                const int q = __float2int_rn(values[j] * inverse), high = (q + 128) >> 8, low = q - 256 * high;
                words[0] |= (uint32_t)(high & 255) << 8 * j;
                words[1] |= (uint32_t)(low & 255) << 8 * j;
            } else {
                words[j / 2] |= bits_of(values[j], T()) << j % 2 * 16;
            }
        }
        if (RANKING == Ranking::INT8) {
            *reinterpret_cast<uint32_t *>(at(0, m, k)) = words[0];
            *reinterpret_cast<uint32_t *>(at(NUM_PLANES - 1, m, k)) = words[1];
        } else {
            *reinterpret_cast<uint2 *>(at(0, m, 2 * k)) = make_uint2(words[0], words[1]);
        }
    }

    __device__ uint4 load(int plane, int row, int offset)
    {
        return *reinterpret_cast<const uint4 *>(at(plane, row, offset));
    }
};

} // namespace draftsmith

#endif
