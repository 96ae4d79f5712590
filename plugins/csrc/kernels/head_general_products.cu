/* Products of all rows with few chosen rows of a wide matrix: h' = w_down h, and the candidates' logits. */
#include "block_scan.cuh"
#include "head_general_launch.cuh"
#include "operand_loads.cuh"
#include "warp_mma.cuh"

namespace draftsmith {

namespace {

enum { PRODUCT_WARPS = 8, PRODUCT_THREADS = 32 * PRODUCT_WARPS, MOST_SLICES = (1 << 20) / SLICE };

/* Sums of one tile: PARTS * 8 rows of w with ROW_TILES * 16 rows of x; the warps share the depth. */
template <int ROW_TILES, int PARTS> struct ProductShared {
    float sums[PRODUCT_WARPS][ROW_TILES * 16][PARTS * 8];
};

/* This warp's part of the depth: pairs of chunks, 128 bytes a row. `rows`: this thread's row of w in each part, or null. */
template <class T, bool IS_ALIGNED, int ROW_TILES, int PARTS>
__device__ __forceinline__ void multiply_rows(const uint16_t *x, int num_rows, const uint16_t *const (&rows)[PARTS],
                                              int depth, float (&sums)[ROW_TILES][PARTS][4])
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, row = lane / 4;
    const int num_pairs = (depth + 63) / 64;
    const uint4 zeros = make_uint4(0, 0, 0, 0);
#pragma unroll 2
    for (int pair = warp; pair < num_pairs; pair += PRODUCT_WARPS) {
        const int first = pair * 64 + lane % 4 * 8;
        uint4 w[PARTS][2];
#pragma unroll
        for (int part = 0; part < PARTS; part++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                w[part][half] = rows[part] ? load_operand<IS_ALIGNED, false>(rows[part], first + 32 * half, depth)
                                           : zeros;
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int tile = 0; tile < ROW_TILES; tile++) {
                const int m = tile * 16 + row;
                const uint16_t *low = x + (size_t)m * depth, *high = low + (size_t)8 * depth;
                const int at = first + 32 * half;
                const uint4 a = m < num_rows ? load_operand<IS_ALIGNED, true>(low, at, depth) : zeros;
                const uint4 b = m + 8 < num_rows ? load_operand<IS_ALIGNED, true>(high, at, depth) : zeros;
#pragma unroll
                for (int part = 0; part < PARTS; part++)
                    multiply_chunk<T>(sums[tile][part], a, b, w[part][half]);
            }
    }
}

/* The whole block: sums of all warps in their order, to write(m, n, value). */
template <class T, bool IS_ALIGNED, int ROW_TILES, int PARTS, class Write>
__device__ __forceinline__ void multiply_tile(const uint16_t *x, int num_rows, const uint16_t *const (&rows)[PARTS],
                                              int depth, ProductShared<ROW_TILES, PARTS> &shared, const Write &write)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float sums[ROW_TILES][PARTS][4] = {};
    multiply_rows<T, IS_ALIGNED>(x, num_rows, rows, depth, sums);
#pragma unroll
    for (int tile = 0; tile < ROW_TILES; tile++)
#pragma unroll
        for (int part = 0; part < PARTS; part++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                shared.sums[warp][tile * 16 + lane / 4 + i / 2 * 8][part * 8 + lane % 4 * 2 + i % 2] =
                    sums[tile][part][i];
    __syncthreads();
    for (int i = threadIdx.x; i < num_rows * PARTS * 8; i += PRODUCT_THREADS) {
        const int m = i / (PARTS * 8), n = i % (PARTS * 8);
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < PRODUCT_WARPS; k++)
            sum += shared.sums[k][m][n];
        write(m, n, sum);
    }
    __syncthreads();
}

template <class T, bool IS_ALIGNED, int ROW_TILES>
__global__ void __launch_bounds__(PRODUCT_THREADS) project_rows(const GeneralJob job)
{
    __shared__ ProductShared<ROW_TILES, 1> shared;
    const int num_rows = job.shape.num_rows, rank = job.shape.rank, depth = job.shape.hidden_size;
    wait_for_earlier_phases();
    if (blockIdx.x == 0)
        for (int i = threadIdx.x; i < 2 * num_rows + 1; i += PRODUCT_THREADS)
            job.workspace.num_done[i] = 0;
    const int first = blockIdx.x * 8, n = first + threadIdx.x % 32 / 4;
    const uint16_t *const weights = static_cast<const uint16_t *>(job.arguments.w_down);
    const uint16_t *const rows[1] = {n < rank ? weights + (size_t)n * depth : nullptr};
    float *const projected = job.workspace.projected;
    multiply_tile<T, IS_ALIGNED>(static_cast<const uint16_t *>(job.arguments.hidden), num_rows, rows, depth, shared,
                                 [&](int m, int i, float value) {
                                     if (first + i < rank)
                                         projected[(size_t)m * rank + first + i] = value;
                                 });
}

enum { SLOT_PARTS = 2, TILE_SLOTS = 8 * SLOT_PARTS };

struct SlotShared {
    int32_t slice_starts[MOST_SLICES + 1];
    int32_t tokens[2][TILE_SLOTS];
};

/* Finds the token of `slot`, -1 where there is none, and keeps it with its mask for the outputs. */
__device__ __forceinline__ int32_t find_token(const GeneralJob &job, const SlotShared &shared, int slot)
{
    const GeneralWorkspace &workspace = job.workspace;
    const int entry = slot / job.shape.group_size;
    if (entry >= shared.slice_starts[workspace.num_slices])
        return -1;
    int low = 0, high = workspace.num_slices; /* the last slice that starts at or before the entry */
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (shared.slice_starts[middle] <= entry)
            low = middle;
        else
            high = middle;
    }
    const size_t at = (size_t)low * SLICE + (entry - shared.slice_starts[low]);
    const int token = workspace.entry_items[at] * job.shape.group_size + slot % job.shape.group_size;
    const bool is_token = token < job.shape.num_vocab;
    workspace.slot_tokens[slot] = is_token ? token : -1;
    workspace.slot_masks[slot] = is_token ? workspace.entry_masks[at] : 0;
    return is_token ? token : -1;
}

template <class T, bool IS_ALIGNED, int ROW_TILES>
__global__ void __launch_bounds__(PRODUCT_THREADS) multiply_slots(const GeneralJob job)
{
    __shared__ ProductShared<ROW_TILES, SLOT_PARTS> products;
    __shared__ SlotShared shared;
    const GeneralWorkspace &workspace = job.workspace;
    const int thread = threadIdx.x, depth = job.shape.hidden_size;
    wait_for_earlier_phases();
    for (int i = thread; i <= workspace.num_slices; i += PRODUCT_THREADS)
        shared.slice_starts[i] = workspace.slice_starts[i];
    __syncthreads();
    const int num_slots = shared.slice_starts[workspace.num_slices] * job.shape.group_size;
    const int num_tiles = (num_slots + TILE_SLOTS - 1) / TILE_SLOTS;
    const uint16_t *const weights = static_cast<const uint16_t *>(job.arguments.w_head);
    if (thread < TILE_SLOTS && (int)blockIdx.x < num_tiles)
        shared.tokens[0][thread] = find_token(job, shared, blockIdx.x * TILE_SLOTS + thread);
    __syncthreads();
    int current = 0;
    for (int tile = blockIdx.x; tile < num_tiles; tile += gridDim.x, current ^= 1) {
        const int next = tile + gridDim.x;
        const uint16_t *rows[SLOT_PARTS];
#pragma unroll
        for (int part = 0; part < SLOT_PARTS; part++) {
            const int32_t token = shared.tokens[current][part * 8 + thread % 32 / 4];
            rows[part] = token >= 0 ? weights + (size_t)token * depth : nullptr;
        }
        if (thread < TILE_SLOTS && next < num_tiles)
            shared.tokens[current ^ 1][thread] = find_token(job, shared, next * TILE_SLOTS + thread);
        const uint16_t *const(&found)[SLOT_PARTS] = rows;
        const size_t first = (size_t)tile * TILE_SLOTS;
        multiply_tile<T, IS_ALIGNED>(static_cast<const uint16_t *>(job.arguments.hidden), job.shape.num_rows, found,
                                     depth, products, [&](int m, int n, float value) {
                                         if (first + n < (size_t)num_slots)
                                             workspace.slot_logits[m * workspace.max_slots + first + n] = value;
                                     });
    }
}

bool is_aligned(const GeneralJob &job, const void *weights)
{
    const uintptr_t bits = reinterpret_cast<uintptr_t>(weights) | reinterpret_cast<uintptr_t>(job.arguments.hidden);
    return bits % 16 == 0 && job.shape.hidden_size % 8 == 0;
}

enum class Product { PROJECTION, SLOTS };

template <Product PRODUCT, class T, bool IS_ALIGNED, int ROW_TILES> void launch_product(const GeneralJob &job)
{
    if (PRODUCT == Product::PROJECTION) {
        const int num_blocks = (job.shape.rank + 7) / 8;
        launch_phase(job, project_rows<T, IS_ALIGNED, ROW_TILES>, num_blocks, PRODUCT_THREADS);
    } else {
        const size_t most_tiles = (job.workspace.max_slots + TILE_SLOTS - 1) / TILE_SLOTS;
        const size_t most_blocks = 2 * (size_t)job.device.num_multiprocessors;
        const int num_blocks = (int)(most_tiles < most_blocks ? most_tiles : most_blocks);
        launch_phase(job, multiply_slots<T, IS_ALIGNED, ROW_TILES>, num_blocks, PRODUCT_THREADS);
    }
}

template <Product PRODUCT, class T, bool IS_ALIGNED> void choose_rows(const GeneralJob &job)
{
    if (job.shape.num_rows <= 16)
        launch_product<PRODUCT, T, IS_ALIGNED, 1>(job);
    else if (job.shape.num_rows <= 32)
        launch_product<PRODUCT, T, IS_ALIGNED, 2>(job);
    else
        launch_product<PRODUCT, T, IS_ALIGNED, 4>(job);
}

template <Product PRODUCT, class T> void choose_alignment(const GeneralJob &job, const void *weights)
{
    if (is_aligned(job, weights))
        choose_rows<PRODUCT, T, true>(job);
    else
        choose_rows<PRODUCT, T, false>(job);
}

template <Product PRODUCT> void choose_type(const GeneralJob &job, const void *weights)
{
    if (job.shape.hidden_type == DRAFTSMITH_FLOAT16)
        choose_alignment<PRODUCT, __half>(job, weights);
    else
        choose_alignment<PRODUCT, __nv_bfloat16>(job, weights);
}

} // namespace

void launch_projection(const GeneralJob &job) { choose_type<Product::PROJECTION>(job, job.arguments.w_down); }
void launch_logits(const GeneralJob &job) { choose_type<Product::SLOTS>(job, job.arguments.w_head); }

} // namespace draftsmith
