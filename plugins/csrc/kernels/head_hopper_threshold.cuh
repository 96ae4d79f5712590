/* A row's threshold from the counts of its keys, the same in every block: first its bin, then, where that must be
 * exact, the last item of the bin that is kept. Warp m looks for row m. */
#ifndef DRAFTSMITH_HEAD_HOPPER_THRESHOLD_CUH
#define DRAFTSMITH_HEAD_HOPPER_THRESHOLD_CUH

#include "block_scan.cuh"
#include "head_hopper_shared.cuh"

namespace draftsmith {

constexpr int WINDOW = 512;

struct FoundBin {
    int bin; /* -1: all of the bins hold fewer than are wanted */
    unsigned num_above, num_inside;
};

/* Sixteen counts a lane of the window from bin `base`, the last for lane 0. */
struct CountWindow {
    uint4 fours[4];

    __device__ __forceinline__ void load(const unsigned *all, int base)
    {
        const uint4 *const mine = reinterpret_cast<const uint4 *>(all + base + (31 - (threadIdx.x & 31)) * 16);
#pragma unroll
        for (int i = 0; i < 4; i++)
            fours[i] = __ldcg(mine + i);
    }

    static __device__ __forceinline__ unsigned sum_of(const uint4 &four) { return four.x + four.y + four.z + four.w; }

    /* The greatest bin with which `wanted` are reached, given `num_above` in greater windows; adds the window's to
     * it. */
    __device__ __forceinline__ FoundBin find(int base, unsigned wanted, unsigned &num_above) const
    {
        const int lane = threadIdx.x & 31;
        const unsigned sum = sum_of(fours[0]) + sum_of(fours[1]) + sum_of(fours[2]) + sum_of(fours[3]);
        const unsigned inclusive = (unsigned)warp_inclusive_sum((int)sum);
        unsigned above = num_above + inclusive - sum;
        const unsigned here = __ballot_sync(0xffffffffu, above < wanted && above + sum >= wanted);
        int bin = base + (31 - lane) * 16 + 12;
        uint4 four = fours[3];
#pragma unroll
        for (int i = 2; i >= 0; i--)
            if (bin == base + (31 - lane) * 16 + 4 * (i + 1) && above + sum_of(four) < wanted)
                above += sum_of(four), bin -= 4, four = fours[i];
        unsigned inside = four.w;
        bin += 3;
        if (above + inside < wanted)
            above += inside, inside = four.z, bin--;
        if (above + inside < wanted)
            above += inside, inside = four.y, bin--;
        if (above + inside < wanted)
            above += inside, inside = four.x, bin--;
        num_above += __shfl_sync(0xffffffffu, inclusive, 31);
        const int from = here ? __ffs((int)here) - 1 : 0;
        bin = __shfl_sync(0xffffffffu, bin, from);
        return {here ? bin : -1, __shfl_sync(0xffffffffu, above, from), __shfl_sync(0xffffffffu, inside, from)};
    }
};

/* From `last_bin` downwards; none above it is counted. What is rarely needed is called, to keep the kernel's code
 * small. */
static __device__ __noinline__ FoundBin search_bins(const unsigned *counts, int last_bin, unsigned wanted)
{
    unsigned num_above = 0;
    for (int base = last_bin / WINDOW * WINDOW; base >= 0; base -= WINDOW) {
        CountWindow window;
        window.load(counts, base);
        const FoundBin found = window.find(base, wanted, num_above);
        if (found.bin >= 0)
            return found;
    }
    return {-1, 0, 0};
}

/* What the counts hold: GUESS: not yet all keys, COUNTED: all from the blocks' floors on, ALL. */
enum Look { GUESS, COUNTED, ALL };

/* By warp m: certain_from, bin_from, num_in_bin, num_needed, or is_missed where keys may lack that count. The first
 * look is where this block expects the threshold, and most often the last. GUESS: a bin_from that is most likely not
 * too high. */
__device__ __forceinline__ void find_bin(const Block &block, int look)
{
    const FusedJob &job = block.job;
    FusedShared &shared = block.shared;
    const int m = block.warp();
    if (m >= job.num_rows || shared.is_broken[m])
        return;
    const unsigned *const counts = job.workspace.key_counts + m * KEY_BINS;
    const int floor = shared.floors[m] >> BIN_SHIFT, base = min(floor & ~3, KEY_BINS - WINDOW);
    CountWindow window;
    window.load(counts, base);
    const int last_bin = __ldcg(job.workspace.greatest_keys + m) >> BIN_SHIFT;
    const int first_bin = look == ALL ? 0 : __ldcg(job.workspace.floors + m) >> BIN_SHIFT;
    unsigned num_above = 0;
    FoundBin found = window.find(base, job.num_kept, num_above);
    if (look == GUESS)
        found = {max(found.bin, floor), 0, 0};
    else if (found.bin < 0 || last_bin >= base + WINDOW)
        found = search_bins(counts, last_bin, job.num_kept);
    if (block.lane() != 0)
        return;
    const int from = max(found.bin << BIN_SHIFT, 1); /* not 0, which no item has */
    if (look == GUESS) {
        shared.bin_from[m] = from;
        return;
    }
    if (from < (int)shared.bin_from[m] && shared.bin_from[m] != NO_KEY)
        shared.is_stray = 1;
    if (found.bin < first_bin) {
        shared.is_missed = shared.is_stray = 1;
        return;
    }
    const unsigned needed = job.num_kept - found.num_above;
    const bool is_whole = needed == found.num_inside;
    shared.bin_from[m] = from;
    shared.certain_from[m] = is_whole ? from : (found.bin + 1) << BIN_SHIFT;
    shared.num_in_bin[m] = is_whole ? 0 : found.num_inside;
    shared.num_needed[m] = is_whole ? 0 : needed;
    if (!is_whole && found.num_inside > job.most_uncertain)
        shared.is_exact = 1;
}

/* Keys below this block's floor are counted too, when no block reads the counts. */
static __device__ __noinline__ void count_all(const FusedJob &job, char *memory)
{
    const Block block(job, memory);
    meet_all(job, Arrival::MISSED);
    for (int m = 0; m < job.num_rows; m++) {
        const uint32_t floor = block.shared.floors[m];
        for (int place = threadIdx.x; place < block.num_keys() && !block.shared.is_broken[m]; place += FUSED_THREADS) {
            const uint32_t key = block.keys(m)[place];
            if (key != 0 && key < floor)
                count_up(job.workspace.key_counts + m * KEY_BINS + (key >> BIN_SHIFT));
        }
    }
    meet_all(job, Arrival::RECOUNTED);
}

/* The place of an item in its bin: the greater comes first. */
__device__ __forceinline__ uint32_t order_in_bin(uint32_t key, int item)
{
    return (key & ((1u << BIN_SHIFT) - 1)) << 20 | (0xfffffu - (uint32_t)item);
}

template <class Use> __device__ __forceinline__ void visit_bin(const Block &block, const Use &use)
{
    for (int m = 0; m < block.job.num_rows; m++) {
        if (block.shared.is_broken[m] || block.shared.num_in_bin[m] == 0)
            continue;
        const uint32_t from = block.shared.bin_from[m], to = block.shared.certain_from[m];
        for (int place = threadIdx.x; place < block.num_keys(); place += FUSED_THREADS) {
            const uint32_t key = block.keys(m)[place];
            if (key >= from && key < to)
                use(m, order_in_bin(key, block.item_of(place)));
        }
    }
}

/* The cutoff of every row whose bin is not kept as a whole, digit after digit. */
static __device__ __noinline__ void find_cutoffs(const FusedJob &job, char *memory)
{
    const Block block(job, memory);
    FusedShared &shared = block.shared;
    const int m = block.warp();
    visit_bin(block, [&](int row, uint32_t order) {
        count_up(job.workspace.first_counts + row * FIRST_BINS + (order >> SECOND_BITS));
    });
    meet_all(job, Arrival::FIRST_COUNTED);
    const bool is_mine = m < job.num_rows && !shared.is_broken[m] && shared.num_in_bin[m] != 0;
    FoundBin first = {0, 0, 0};
    if (is_mine) {
        first = search_bins(job.workspace.first_counts + m * FIRST_BINS, FIRST_BINS - 1, shared.num_needed[m]);
        if (block.lane() == 0)
            shared.cutoff[m] = (uint32_t)first.bin << SECOND_BITS;
    }
    __syncthreads();
    visit_bin(block, [&](int row, uint32_t order) {
        if (order >> SECOND_BITS == shared.cutoff[row] >> SECOND_BITS)
            count_up(job.workspace.second_counts + row * SECOND_BINS + (order & (SECOND_BINS - 1)));
    });
    meet_all(job, Arrival::SECOND_COUNTED);
    if (is_mine) {
        const FoundBin second = search_bins(job.workspace.second_counts + m * SECOND_BINS, SECOND_BINS - 1,
                                            shared.num_needed[m] - first.num_above);
        if (block.lane() == 0)
            shared.cutoff[m] |= (uint32_t)second.bin;
    }
    __syncthreads();
}

/* By the whole block, when all blocks have counted. */
__device__ __forceinline__ void find_thresholds(const Block &block)
{
    find_bin(block, COUNTED);
    __syncthreads();
    if (block.shared.is_missed) {
        count_all(block.job, block.memory);
        find_bin(block, ALL);
        __syncthreads();
    }
    if (block.shared.is_exact)
        find_cutoffs(block.job, block.memory);
}

} // namespace draftsmith

#endif
