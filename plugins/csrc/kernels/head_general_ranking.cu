/* Ranking: scores of all ranked rows for all rows of hidden states, as 16-bit keys. */
#include "head_general_launch.cuh"
#include "operand_loads.cuh"
#include "ordered_keys.cuh"
#include "ranking_operand.cuh"

namespace draftsmith {

namespace {

enum { RANK_WARPS = 8, RANK_THREADS = 32 * RANK_WARPS, RANK_PARTS = 2, TILE_ITEMS = 8 * RANK_PARTS, BATCH = 4 };

template <class T, Ranking RANKING, int ROW_TILES> struct RankShared {
    RankingOperand<T, RANKING, ROW_TILES> operand;
    RowScale scales[16 * ROW_TILES];
};

/* Sums of 16 rows and 8 items. Of int8 the two planes apart. */
template <Ranking RANKING> struct RankSum {
    float values[4];
};
template <> struct RankSum<Ranking::INT8> {
    int high[4], low[4];
};

template <class T, int ROW_TILES>
__device__ __forceinline__ void add_chunk(RankSum<Ranking::SAME> &sum, RankShared<T, Ranking::SAME, ROW_TILES> &shared,
                                          int row, int chunk, const uint4 &w)
{
    const int offset = chunk * 64 + threadIdx.x % 4 * 16;
    multiply_chunk<T>(sum.values, shared.operand.load(0, row, offset), shared.operand.load(0, row + 8, offset), w);
}

template <class T, int ROW_TILES>
__device__ __forceinline__ void add_chunk(RankSum<Ranking::INT8> &sum, RankShared<T, Ranking::INT8, ROW_TILES> &shared,
                                          int row, int chunk, const uint4 &w)
{
    const int offset = chunk * 64 + threadIdx.x % 4 * 16;
    multiply_chunk_int8(sum.high, shared.operand.load(0, row, offset), shared.operand.load(0, row + 8, offset), w);
    multiply_chunk_int8(sum.low, shared.operand.load(1, row, offset), shared.operand.load(1, row + 8, offset), w);
}

template <class T, int ROW_TILES>
__device__ __forceinline__ void add_chunk(RankSum<Ranking::FLOAT8> &sum,
                                          RankShared<T, Ranking::FLOAT8, ROW_TILES> &shared, int row, int chunk,
                                          const uint4 &w)
{
    const int offset = chunk * 128 + threadIdx.x % 4 * 32;
    const uint2 first = widen_float8<T>(w.x), second = widen_float8<T>(w.y);
    const uint2 third = widen_float8<T>(w.z), fourth = widen_float8<T>(w.w);
    multiply_chunk<T>(sum.values, shared.operand.load(0, row, offset), shared.operand.load(0, row + 8, offset),
                      make_uint4(first.x, first.y, second.x, second.y));
    multiply_chunk<T>(sum.values, shared.operand.load(0, row, offset + 16), shared.operand.load(0, row + 8, offset + 16),
                      make_uint4(third.x, third.y, fourth.x, fourth.y));
}

template <Ranking RANKING> __device__ __forceinline__ float score_of(const RankSum<RANKING> &sum, int i, float scale)
{
    return sum.values[i] * scale;
}
template <> __device__ __forceinline__ float score_of(const RankSum<Ranking::INT8> &sum, int i, float scale)
{
    return fmaf(256.0f, (float)sum.high[i], (float)sum.low[i]) * scale;
}

/* Sums of a warp's tile over the depth that the operand holds: from `first`, `depth` elements. */
template <class T, Ranking RANKING, bool IS_ALIGNED, int ROW_TILES, class Word>
__device__ __forceinline__ void rank_tile(const Word *const (&rows)[RANK_PARTS], int rank, int first, int depth,
                                          RankShared<T, RANKING, ROW_TILES> &shared,
                                          RankSum<RANKING> (&sums)[ROW_TILES][RANK_PARTS])
{
    constexpr int CHUNK = RankingOperand<T, RANKING, ROW_TILES>::CHUNK, IN_LOAD = 16 / sizeof(Word);
    const int lane = threadIdx.x & 31, num_chunks = (depth + CHUNK - 1) / CHUNK;
    for (int start = 0; start < num_chunks; start += BATCH) {
        uint4 w[BATCH][RANK_PARTS];
#pragma unroll
        for (int i = 0; i < BATCH; i++)
#pragma unroll
            for (int part = 0; part < RANK_PARTS; part++)
                w[i][part] = rows[part] ? load_operand<IS_ALIGNED, false>(
                                              rows[part], first + (start + i) * CHUNK + lane % 4 * IN_LOAD, rank)
                                        : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            if (start + i >= num_chunks)
                break;
#pragma unroll
            for (int tile = 0; tile < ROW_TILES; tile++)
#pragma unroll
                for (int part = 0; part < RANK_PARTS; part++)
                    add_chunk<T, ROW_TILES>(sums[tile][part], shared, tile * 16 + lane / 4, start + i, w[i][part]);
        }
    }
}

/* Keys of a tile: two items a thread, beside each other. */
template <class T, Ranking RANKING, int ROW_TILES>
__device__ __forceinline__ void store_keys(const GeneralJob &job, int first_item,
                                           const RankShared<T, RANKING, ROW_TILES> &shared,
                                           const RankSum<RANKING> (&sums)[ROW_TILES][RANK_PARTS])
{
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int part = 0; part < RANK_PARTS; part++) {
        const int item = first_item + part * 8 + lane % 4 * 2;
        float scales[2] = {1.0f, 1.0f};
        if (RANKING != Ranking::SAME)
            for (int i = 0; i < 2; i++)
                scales[i] = item + i < job.workspace.num_ranked ? __ldg(job.arguments.w_vocab_scales + item + i) : 0.0f;
#pragma unroll
        for (int tile = 0; tile < ROW_TILES; tile++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int m = tile * 16 + lane / 4 + 8 * half;
                if (m >= job.shape.num_rows)
                    continue;
                const float factor = shared.scales[m].factor;
                const uint32_t low = score_key(score_of(sums[tile][part], 2 * half, scales[0] * factor));
                const uint32_t high = score_key(score_of(sums[tile][part], 2 * half + 1, scales[1] * factor));
                uint16_t *const keys = job.workspace.keys + (size_t)m * job.workspace.key_stride + item;
                *reinterpret_cast<uint32_t *>(keys) = low | high << 16;
            }
    }
}

/* Asks for a warp's first weights, which no earlier phase changes. */
__device__ __forceinline__ void prefetch_tile(const char *weights, size_t row_bytes, int first_item, int num_items)
{
    enum { LINE = 128, MOST_BYTES = 16384 };
    const size_t count = min(max(num_items - first_item, 0), (int)TILE_ITEMS) * row_bytes;
    const char *const first = weights + first_item * row_bytes;
    for (int i = threadIdx.x % 32 * LINE; i < (int)min(count, (size_t)MOST_BYTES); i += 32 * LINE)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(first + i));
}

template <class T, Ranking RANKING, bool IS_ALIGNED, int ROW_TILES>
__global__ void __launch_bounds__(RANK_THREADS, 2) rank_items(const GeneralJob job)
{
    using Word = typename std::conditional<RANKING == Ranking::SAME, uint16_t, uint8_t>::type;
    using Operand = RankingOperand<T, RANKING, ROW_TILES>;
    __shared__ RankShared<T, RANKING, ROW_TILES> shared;
    const GeneralWorkspace &workspace = job.workspace;
    const int num_rows = job.shape.num_rows, rank = job.shape.rank, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    prefetch_tile(static_cast<const char *>(job.arguments.w_vocab), rank * sizeof(Word),
                  (blockIdx.x * RANK_WARPS + warp) * TILE_ITEMS, workspace.num_ranked);
    wait_for_earlier_phases();
    for (int m = warp; m < num_rows; m += RANK_WARPS) {
        const RowScale scale = scale_row<T, RANKING>(workspace.projected + (size_t)m * rank, rank);
        if (lane == 0)
            shared.scales[m] = scale;
        if (lane == 0 && blockIdx.x == 0)
            workspace.rows[m].is_broken = !scale.is_finite;
    }
    __syncthreads();
    const bool is_whole = rank <= Operand::DEPTH;
    if (is_whole)
        shared.operand.fill(workspace.projected, shared.scales, num_rows, rank, 0);
    __syncthreads();
    const int num_tiles = (workspace.num_ranked + TILE_ITEMS - 1) / TILE_ITEMS;
    const Word *const weights = static_cast<const Word *>(job.arguments.w_vocab);
    for (int start = blockIdx.x * RANK_WARPS; start < num_tiles; start += gridDim.x * RANK_WARPS) {
        const int first_item = (start + warp) * TILE_ITEMS;
        const Word *rows[RANK_PARTS];
#pragma unroll
        for (int part = 0; part < RANK_PARTS; part++) {
            const int item = first_item + part * 8 + lane / 4;
            rows[part] = item < workspace.num_ranked ? weights + (size_t)item * rank : nullptr;
        }
        const Word *const(&found)[RANK_PARTS] = rows;
        RankSum<RANKING> sums[ROW_TILES][RANK_PARTS] = {};
        for (int first = 0; first < rank; first += Operand::DEPTH) {
            if (!is_whole) {
                __syncthreads();
                shared.operand.fill(workspace.projected, shared.scales, num_rows, rank, first);
                __syncthreads();
            }
            rank_tile<T, RANKING, IS_ALIGNED>(found, rank, first, min(rank - first, Operand::DEPTH), shared, sums);
        }
        if (first_item < workspace.num_ranked)
            store_keys(job, first_item, shared, sums);
    }
}

template <class T, Ranking RANKING, bool IS_ALIGNED, int ROW_TILES> void launch_rows(const GeneralJob &job)
{
    const int num_tiles = (job.workspace.num_ranked + TILE_ITEMS - 1) / TILE_ITEMS;
    const int all_blocks = (num_tiles + RANK_WARPS - 1) / RANK_WARPS, most_blocks = 2 * job.device.num_multiprocessors;
    const int num_blocks = all_blocks < most_blocks ? all_blocks : most_blocks;
    launch_phase(job, rank_items<T, RANKING, IS_ALIGNED, ROW_TILES>, num_blocks, RANK_THREADS);
}

template <class T, Ranking RANKING> void choose_kernel(const GeneralJob &job)
{
    const int row_bytes = job.shape.rank * (RANKING == Ranking::SAME ? 2 : 1);
    const bool is_aligned = reinterpret_cast<uintptr_t>(job.arguments.w_vocab) % 16 == 0 && row_bytes % 16 == 0;
    if (job.shape.num_rows <= 16)
        is_aligned ? launch_rows<T, RANKING, true, 1>(job) : launch_rows<T, RANKING, false, 1>(job);
    else if (job.shape.num_rows <= 32)
        is_aligned ? launch_rows<T, RANKING, true, 2>(job) : launch_rows<T, RANKING, false, 2>(job);
    else
        is_aligned ? launch_rows<T, RANKING, true, 4>(job) : launch_rows<T, RANKING, false, 4>(job);
}

template <class T> void choose_ranking(const GeneralJob &job)
{
    if (job.shape.ranking_type == DRAFTSMITH_INT8)
        choose_kernel<__half, Ranking::INT8>(job); /* takes h' as it is, whatever hidden's type */
    else if (job.shape.ranking_type == DRAFTSMITH_FLOAT8_E4M3)
        choose_kernel<T, Ranking::FLOAT8>(job);
    else
        choose_kernel<T, Ranking::SAME>(job);
}

} // namespace

void launch_ranking(const GeneralJob &job)
{
    if (job.shape.hidden_type == DRAFTSMITH_FLOAT16)
        choose_ranking<__half>(job);
    else
        choose_ranking<__nv_bfloat16>(job);
}

} // namespace draftsmith
