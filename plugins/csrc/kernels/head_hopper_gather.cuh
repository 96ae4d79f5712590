/* Logits of a block's candidates: their rows of w_head come eight at a time into shared memory, the warps share the
 * depth, and warp m keeps row m's best and its sum of exponentials. */
#ifndef DRAFTSMITH_HEAD_HOPPER_GATHER_CUH
#define DRAFTSMITH_HEAD_HOPPER_GATHER_CUH

#include "head_hopper_listing.cuh"
#include "head_hopper_projection.cuh"

namespace draftsmith {

/* By warp 0: asks for the stage's eight rows. */
__device__ __forceinline__ void fetch_stage(const Block &block, int num_slots, int group, int stage)
{
    const FusedJob &job = block.job;
    const int lane = block.lane(), slot = group * STAGE_SLOTS + lane, num_bytes = job.hidden_size * 2;
    const uint32_t barrier = shared_address(block.shared.stage_barriers + stage);
    const int token = lane < STAGE_SLOTS && slot < num_slots ? block.slots()[slot].token : -1;
    const int count = __popc(__ballot_sync(0xffffffffu, token >= 0));
    if (lane == 0)
        expect_bytes(barrier, count * num_bytes);
    __syncwarp();
    if (token >= 0)
        copy_bulk(shared_address(block.memory) + (stage * STAGE_SLOTS + lane) * job.stage_stride,
                  static_cast<const char *>(job.w_head) + (size_t)token * num_bytes, num_bytes, barrier);
}

/* By warp 0: stages from `first` on of the first num_slots slots, as far as they fit. */
__device__ __forceinline__ void fetch_stages(const Block &block, int first, int num_slots)
{
#pragma unroll 1
    for (int stage = first; stage < block.job.stages && stage * STAGE_SLOTS < num_slots; stage++)
        fetch_stage(block, num_slots, stage, stage);
}

/* By a thread a row: places in the row's list for this block's uncertain candidates. */
__device__ __forceinline__ void reserve_places(const Block &block, int m)
{
    FusedShared &shared = block.shared;
    if (m >= 0 && m < FUSED_ROWS && shared.num_uncertain[m] != 0)
        shared.first_uncertain[m] =
            (int)atomicAdd(block.job.workspace.num_uncertain + m, (unsigned)shared.num_uncertain[m]);
}

/* A thread's part of the hidden states: chunks warp, warp + FUSED_WARPS, ... of rows lane / 4 and + 8. */
template <class T, int HALVES, int CHUNKS> struct HiddenRows {
    uint4 low[CHUNKS], high[HALVES == 2 ? CHUNKS : 1];

    __device__ __forceinline__ void load(const Block &block)
    {
        const int row = block.lane() / 4, first = block.warp() * 32 + block.lane() % 4 * 8;
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            low[chunk] = load_hidden(block.job, row, first + chunk * FUSED_WARPS * 32);
            if (HALVES == 2)
                high[HALVES == 2 ? chunk : 0] = load_hidden(block.job, row + 8, first + chunk * FUSED_WARPS * 32);
        }
    }

    /* This warp's share of a stage's logits. */
    __device__ __forceinline__ void multiply(const Block &block, int stage, float *sums) const
    {
        constexpr int PART = HALVES == 2 && CHUNKS > 1 ? CHUNKS / 2 : CHUNKS; /* all at once would spill registers */
        const int lane = block.lane(), first = block.warp() * 32 + lane % 4 * 8;
        const char *const mine = block.memory + (stage * STAGE_SLOTS + lane / 4) * block.job.stage_stride + first * 2;
        float even[4] = {0.0f, 0.0f, 0.0f, 0.0f}, odd[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int start = 0; start < CHUNKS; start += PART) {
            uint4 w[PART];
#pragma unroll
            for (int i = 0; i < PART; i++)
                w[i] = first + (start + i) * FUSED_WARPS * 32 < block.job.hidden_size
                           ? *reinterpret_cast<const uint4 *>(mine + (start + i) * FUSED_WARPS * 64)
                           : make_uint4(0, 0, 0, 0);
#pragma unroll
            for (int i = 0; i < PART; i++)
                multiply_split<T, HALVES>(even, odd, low[start + i], high[HALVES == 2 ? start + i : 0], w[i]);
        }
        float all[4];
        join_split<HALVES>(all, even, odd);
#pragma unroll
        for (int half = 0; half < HALVES; half++)
            *reinterpret_cast<float2 *>(sums + (lane / 4 + 8 * half) * 8 + lane % 4 * 2) =
                make_float2(all[2 * half], all[2 * half + 1]);
    }
};

/* By the upper warps: a stage's logits. */
__device__ __forceinline__ void sum_logits(const Block &block, int group, int buffer)
{
    const int index = (int)threadIdx.x - FUSED_THREADS / 2;
    if (index < 0 || index >= block.job.num_rows * STAGE_SLOTS)
        return;
    float logit = 0.0f;
#pragma unroll
    for (int warp = 0; warp < FUSED_WARPS; warp++)
        logit += block.sums(buffer, warp)[index];
    block.logits(index / STAGE_SLOTS)[group * STAGE_SLOTS % BATCH_SLOTS + index % STAGE_SLOTS] = logit;
}

/* What warp m knows of row m. Candidates are settled by as many as a batch has slots, wherever stages and batches
 * begin and end, so that the sum's bits depend on the row's candidates alone. */
struct RowBest {
    float greatest; /* logit */
    float sum;      /* a lane's share of the exponentials, relative to it */
    int num_best, num_fresh, num_uncertain;
    bool has_nan;

    __device__ __forceinline__ RowBest()
        : greatest(-INFINITY), sum(0.0f), num_best(0), num_fresh(0), num_uncertain(0), has_nan(false)
    {
    }

    /* Slots from `first` on: this row's certain candidates behind its fresh ones, the uncertain to their list. */
    __device__ __forceinline__ void read_batch(const Block &block, int first)
    {
        const int m = block.warp(), lane = block.lane(), num_slots = block.shared.num_slots;
        uint64_t *const fresh = block.fresh(m) + FUSED_OUTPUTS;
        uint4 *const list = block.job.workspace.uncertain + m * MOST_UNCERTAIN + block.shared.first_uncertain[m];
        const unsigned below = (1u << lane) - 1;
#pragma unroll 1
        for (int start = 0; start < BATCH_SLOTS && first + start < num_slots; start += 32) {
            const Slot slot = first + start + lane < num_slots ? block.slots()[first + start + lane] : Slot{-1, 0};
            const float logit = block.logits(m)[start + lane];
            const bool is_certain = slot.rows >> m & 1, is_uncertain = slot.rows >> (16 + m) & 1;
            const unsigned certain = __ballot_sync(0xffffffffu, is_certain);
            const unsigned uncertain = __ballot_sync(0xffffffffu, is_uncertain);
            has_nan |= is_certain && logit != logit;
            if (is_certain)
                fresh[num_fresh + __popc(certain & below)] = logit != logit ? 0 : candidate_key(logit, slot.token);
            if (is_uncertain)
                list[num_uncertain + __popc(uncertain & below)] = make_uint4(
                    block.keys(m)[block.place_of(slot.token)], (uint32_t)slot.token, __float_as_uint(logit), 0);
            num_fresh += __popc(certain);
            num_uncertain += __popc(uncertain);
        }
        __syncwarp();
    }

    /* The first `count` of the fresh. */
    __device__ __forceinline__ void settle(const Block &block, int count)
    {
        const int m = block.warp(), lane = block.lane(), num_outputs = block.job.num_outputs;
        uint64_t *const best = block.best(m), *const fresh = block.fresh(m) + FUSED_OUTPUTS;
        uint64_t *const all = fresh - num_best; /* the best so far, then the fresh */
        if (lane < num_best)
            all[lane] = best[lane];
        __syncwarp();
        uint32_t most = 0;
        for (int i = lane; i < count; i += 32)
            most = max(most, (uint32_t)(fresh[i] >> 32));
        most = __reduce_max_sync(0xffffffffu, most);
        const float raised = most != 0 ? fmaxf(greatest, logit_of_key(most)) : greatest;
        if (raised != greatest)
            sum *= expf(greatest - raised);
        greatest = raised;
        const float reference = isfinite(greatest) ? greatest : 0.0f;
#pragma unroll 1
        for (int i = lane; i < num_best + count; i += 32) {
            const uint64_t mine = all[i];
            int num_above = 0;
#pragma unroll 8
            for (int j = 0; j < num_best + count; j++)
                num_above += all[j] > mine;
            if (num_above < num_outputs && mine != 0)
                best[num_above] = mine;
            if (i >= num_best && mine != 0)
                sum += expf(logit_of_candidate(mine) - reference);
        }
        num_best = min(num_best + count, num_outputs);
        num_fresh -= count;
        const uint64_t left[2] = {lane < num_fresh ? fresh[count + lane] : 0,
                                  lane + 32 < num_fresh ? fresh[count + lane + 32] : 0};
        __syncwarp();
        fresh[lane] = left[0];
        fresh[lane + 32] = left[1];
        __syncwarp();
    }

    __device__ __forceinline__ void add_batch(const Block &block, int first, bool is_last)
    {
        read_batch(block, first);
#pragma unroll 1
        while (num_fresh >= BATCH_SLOTS || (is_last && num_fresh > 0))
            settle(block, min(num_fresh, (int)BATCH_SLOTS));
    }

    __device__ __forceinline__ void publish(const Block &block)
    {
        const FusedJob &job = block.job;
        const int m = block.warp(), lane = block.lane();
        const size_t at = (size_t)m * gridDim.x + blockIdx.x;
        const float all = sum_lanes(sum);
        has_nan = __any_sync(0xffffffffu, has_nan);
        if (lane == 0)
            job.workspace.sums[at] = make_float2(greatest, has_nan ? NAN : all);
        if (lane < job.num_outputs)
            job.workspace.best[at * job.num_outputs + lane] = lane < num_best ? block.best(m)[lane] : 0;
    }
};

/* Logits of all slots, and what they come to, in the workspace. The first stages are on their way. */
template <class T, int HALVES, int CHUNKS>
__device__ __forceinline__ void gather_slots(const Block &block, const HiddenRows<T, HALVES, CHUNKS> &hidden)
{
    constexpr int BATCH_GROUPS = BATCH_SLOTS / STAGE_SLOTS;
    const FusedJob &job = block.job;
    const int warp = block.warp(), num_slots = block.shared.num_slots;
    const int num_groups = (num_slots + STAGE_SLOTS - 1) / STAGE_SLOTS;
    const bool has_row = warp < job.num_rows && !block.shared.is_broken[warp];
    RowBest row;
    int stage = 0, phase = 0;
#pragma unroll 1
    for (int group = 0; group < num_groups; group++) {
        const int buffer = group & 1;
        wait_for_copies(shared_address(block.shared.stage_barriers + stage), phase);
        hidden.multiply(block, stage, block.sums(buffer, warp));
        __syncthreads();
        if (warp == 0 && group + job.stages < num_groups)
            fetch_stage(block, num_slots, group + job.stages, stage);
        sum_logits(block, group, buffer);
        if (group % BATCH_GROUPS == BATCH_GROUPS - 1 || group == num_groups - 1) {
            __syncthreads();
            if (has_row)
                row.add_batch(block, group / BATCH_GROUPS * BATCH_SLOTS, group == num_groups - 1);
        }
        if (++stage == job.stages)
            stage = 0, phase ^= 1;
    }
    if (has_row)
        row.publish(block);
}

} // namespace draftsmith

#endif
