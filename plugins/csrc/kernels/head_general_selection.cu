/* Selection: the exact threshold by two counts of keys, ties to the lowest, then the kept items of all rows as one list
 * with a mask of rows. Places come from counts a slice and their sums, never from the order in which blocks arrive. */
#include "block_scan.cuh"
#include "head_general_launch.cuh"

namespace draftsmith {

namespace {

/* This thread's eight keys of a slice of row m; `count` of them exist. */
struct KeyLine {
    uint4 words;
    int count;

    __device__ uint32_t operator[](int i) const
    {
        const uint32_t word = i < 2 ? words.x : i < 4 ? words.y : i < 6 ? words.z : words.w;
        return i % 2 ? word >> 16 : word & 0xffffu;
    }
};

__device__ __forceinline__ KeyLine load_keys(const GeneralWorkspace &workspace, int m, int slice)
{
    const int first = slice * SLICE + threadIdx.x * KEYS_A_THREAD;
    const uint4 words = *reinterpret_cast<const uint4 *>(workspace.keys + (size_t)m * workspace.key_stride + first);
    return {words, min(max(workspace.num_ranked - first, 0), (int)KEYS_A_THREAD)};
}

struct CountShared {
    int bins[NUM_BINS];
    int scan[33];
    int flag;
};

/* Thread's bin, summed over all slices. */
__device__ __forceinline__ int sum_slices(const uint16_t *counts, int num_slices)
{
    int sum = 0;
#pragma unroll 8
    for (int slice = 0; slice < num_slices; slice++)
        sum += __ldcg(counts + (size_t)slice * NUM_BINS + threadIdx.x);
    return sum;
}

/* The greatest bin with which at least `wanted` keys are reached: true in its thread, `above`: keys in greater ones. */
__device__ __forceinline__ bool is_threshold_bin(int count, int wanted, CountShared &shared, int &above)
{
    int total;
    const int below = block_exclusive_sum(count, shared.scan, total);
    above = total - below - count;
    return above < wanted && above + count >= wanted;
}

/* Grid: slices, rows. The last block of a row finds the bin of its threshold. */
__global__ void __launch_bounds__(SELECT_THREADS) count_keys(const GeneralJob job)
{
    __shared__ CountShared shared;
    const GeneralWorkspace &workspace = job.workspace;
    const int slice = blockIdx.x, m = blockIdx.y, thread = threadIdx.x;
    uint16_t *const counts = workspace.upper_counts + (size_t)m * workspace.num_slices * NUM_BINS;
    wait_for_earlier_phases();
    shared.bins[thread] = 0;
    const KeyLine keys = load_keys(workspace, m, slice);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < KEYS_A_THREAD; i++)
        if (i < keys.count)
            atomicAdd(&shared.bins[keys[i] >> 8], 1);
    __syncthreads();
    counts[(size_t)slice * NUM_BINS + thread] = (uint16_t)shared.bins[thread];
    if (!is_last_block(workspace.num_done + m, gridDim.x, &shared.flag))
        return;
    int above;
    if (is_threshold_bin(sum_slices(counts, workspace.num_slices), workspace.num_kept, shared, above)) {
        workspace.rows[m].bin = thread;
        workspace.rows[m].num_above_bin = above;
    }
}

/* Of a row's slices: keys equal to the threshold in earlier ones. */
__device__ __forceinline__ void sum_ties(const GeneralWorkspace &workspace, int m, int low, CountShared &shared)
{
    const int num_slices = workspace.num_slices, most = (num_slices + SELECT_THREADS - 1) / SELECT_THREADS;
    const uint16_t *const counts = workspace.lower_counts + (size_t)m * num_slices * NUM_BINS + low;
    const int first = threadIdx.x * most, last = min(first + most, num_slices);
    int sum = 0, total;
    for (int slice = first; slice < last; slice++)
        sum += __ldcg(counts + (size_t)slice * NUM_BINS);
    int below = block_exclusive_sum(sum, shared.scan, total);
    for (int slice = first; slice < last; slice++) {
        workspace.ties_below[(size_t)m * num_slices + slice] = below;
        below += __ldcg(counts + (size_t)slice * NUM_BINS);
    }
}

/* Grid: slices, rows. The last block of a row finds its threshold. */
__global__ void __launch_bounds__(SELECT_THREADS) refine_counts(const GeneralJob job)
{
    __shared__ CountShared shared;
    __shared__ int threshold_low;
    const GeneralWorkspace &workspace = job.workspace;
    const int slice = blockIdx.x, m = blockIdx.y, thread = threadIdx.x;
    uint16_t *const counts = workspace.lower_counts + (size_t)m * workspace.num_slices * NUM_BINS;
    wait_for_earlier_phases();
    shared.bins[thread] = 0;
    const uint32_t bin = workspace.rows[m].bin;
    const KeyLine keys = load_keys(workspace, m, slice);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < KEYS_A_THREAD; i++)
        if (i < keys.count && keys[i] >> 8 == bin)
            atomicAdd(&shared.bins[keys[i] & 255u], 1);
    __syncthreads();
    counts[(size_t)slice * NUM_BINS + thread] = (uint16_t)shared.bins[thread];
    if (!is_last_block(workspace.num_done + job.shape.num_rows + m, gridDim.x, &shared.flag))
        return;
    const int wanted = workspace.num_kept - workspace.rows[m].num_above_bin;
    int above;
    if (is_threshold_bin(sum_slices(counts, workspace.num_slices), wanted, shared, above)) {
        threshold_low = thread;
        workspace.rows[m].threshold = bin << 8 | thread;
        workspace.rows[m].num_ties = wanted - above;
    }
    __syncthreads();
    sum_ties(workspace, m, threshold_low, shared);
}

/* Bit i: this thread's key i is kept for row m. All threads of the block take part. */
__device__ __forceinline__ uint32_t select_keys(const GeneralWorkspace &workspace, int m, int slice, int *scan)
{
    const RowState row = workspace.rows[m];
    const KeyLine keys = load_keys(workspace, m, slice);
    uint32_t above = 0, equal = 0;
#pragma unroll
    for (int i = 0; i < KEYS_A_THREAD; i++) {
        above |= (uint32_t)(i < keys.count && keys[i] > (uint32_t)row.threshold) << i;
        equal |= (uint32_t)(i < keys.count && keys[i] == (uint32_t)row.threshold) << i;
    }
    const int slices_before = m * workspace.num_slices + slice;
    const int num_left = row.num_ties - workspace.ties_below[slices_before];
    const int num_here = workspace.lower_counts[(size_t)slices_before * NUM_BINS + (row.threshold & 255)];
    if (num_left <= 0)
        return above;
    if (num_left >= num_here)
        return above | equal;
    int total;
    int num_before = block_exclusive_sum(__popc(equal), scan, total);
    for (int i = 0; i < KEYS_A_THREAD; i++)
        if (equal >> i & 1)
            above |= (uint32_t)(num_before++ < num_left) << i;
    return above;
}

struct CompactShared {
    uint64_t unions[DRAFTSMITH_HEAD_MAX_ROWS];
    int scan[33];
    int flag;
};

/* Of every row, the rows that take its candidates too, itself among them. */
__device__ __forceinline__ void find_unions(const GeneralJob &job, CompactShared &shared)
{
    const int m = threadIdx.x;
    const int32_t *const requests = job.arguments.request_of_row;
    if (m < job.shape.num_rows) {
        uint64_t mask = 1ull << m;
        if (requests)
            for (int other = 0; other < job.shape.num_rows; other++)
                if (requests[other] == requests[m] && !job.workspace.rows[other].is_broken)
                    mask |= 1ull << other;
        shared.unions[m] = mask;
    }
    __syncthreads();
}

/* Of all slices: entries in earlier ones. */
__device__ __forceinline__ void sum_entries(const GeneralWorkspace &workspace, CompactShared &shared)
{
    const int num_slices = workspace.num_slices, most = (num_slices + SELECT_THREADS - 1) / SELECT_THREADS;
    const int first = threadIdx.x * most, last = min(first + most, num_slices);
    int sum = 0, total;
    for (int slice = first; slice < last; slice++)
        sum += __ldcg(workspace.slice_counts + slice);
    int below = block_exclusive_sum(sum, shared.scan, total);
    for (int slice = first; slice < last; slice++) {
        workspace.slice_starts[slice] = below;
        below += __ldcg(workspace.slice_counts + slice);
    }
    if (threadIdx.x == 0)
        workspace.slice_starts[num_slices] = total;
}

/* Grid: slices. Lists the items of a slice that any row keeps, ascending. */
__global__ void __launch_bounds__(SELECT_THREADS) compact_items(const GeneralJob job)
{
    __shared__ CompactShared shared;
    const GeneralWorkspace &workspace = job.workspace;
    const int slice = blockIdx.x, num_rows = job.shape.num_rows;
    wait_for_earlier_phases();
    find_unions(job, shared);
    uint64_t masks[KEYS_A_THREAD] = {};
#pragma unroll 2
    for (int m = 0; m < num_rows; m++) {
        if (workspace.rows[m].is_broken)
            continue;
        const uint32_t kept = select_keys(workspace, m, slice, shared.scan);
        const uint64_t rows = shared.unions[m];
#pragma unroll
        for (int i = 0; i < KEYS_A_THREAD; i++)
            masks[i] |= kept >> i & 1 ? rows : 0;
    }
    int count = 0, total;
#pragma unroll
    for (int i = 0; i < KEYS_A_THREAD; i++)
        count += masks[i] != 0;
    int entry = slice * SLICE + block_exclusive_sum(count, shared.scan, total);
#pragma unroll
    for (int i = 0; i < KEYS_A_THREAD; i++)
        if (masks[i] != 0) {
            workspace.entry_items[entry] = slice * SLICE + threadIdx.x * KEYS_A_THREAD + i;
            workspace.entry_masks[entry++] = masks[i];
        }
    if (threadIdx.x == 0)
        workspace.slice_counts[slice] = total;
    if (is_last_block(workspace.num_done + 2 * num_rows, gridDim.x, &shared.flag))
        sum_entries(workspace, shared);
}

/* Grid: rows. Every row's own candidates, slice after slice: for tests and tools, not for speed. */
__global__ void __launch_bounds__(SELECT_THREADS) list_chosen(const GeneralJob job)
{
    __shared__ int scan[33];
    const GeneralWorkspace &workspace = job.workspace;
    const int m = blockIdx.x, most = job.shape.num_candidates, group_size = job.shape.group_size;
    int32_t *const ids = job.arguments.chosen_ids + (size_t)m * most;
    wait_for_earlier_phases();
    int num_listed = 0;
    for (int slice = 0; slice < workspace.num_slices && !workspace.rows[m].is_broken; slice++) {
        const uint32_t kept = select_keys(workspace, m, slice, scan);
        const int item = slice * SLICE + threadIdx.x * KEYS_A_THREAD;
        int count = 0, total;
        for (int i = 0; i < KEYS_A_THREAD; i++)
            if (kept >> i & 1)
                count += min(group_size, job.shape.num_vocab - (item + i) * group_size);
        int at = num_listed + block_exclusive_sum(count, scan, total);
        for (int i = 0; i < KEYS_A_THREAD; i++)
            for (int j = 0; j < group_size && (kept >> i & 1); j++)
                if ((item + i) * group_size + j < job.shape.num_vocab)
                    ids[at++] = (item + i) * group_size + j;
        num_listed += total;
    }
    for (int i = num_listed + threadIdx.x; i < most; i += SELECT_THREADS)
        ids[i] = -1;
}

} // namespace

void launch_counting(const GeneralJob &job)
{
    const dim3 grid(job.workspace.num_slices, job.shape.num_rows);
    launch_phase(job, count_keys, grid, SELECT_THREADS);
}

void launch_refinement(const GeneralJob &job)
{
    const dim3 grid(job.workspace.num_slices, job.shape.num_rows);
    launch_phase(job, refine_counts, grid, SELECT_THREADS);
}

void launch_compaction(const GeneralJob &job)
{
    launch_phase(job, compact_items, job.workspace.num_slices, SELECT_THREADS);
}

void launch_chosen_listing(const GeneralJob &job)
{
    launch_phase(job, list_chosen, job.shape.num_rows, SELECT_THREADS);
}

} // namespace draftsmith
