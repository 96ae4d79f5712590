/* Outputs: the best `out` of every row's slots, and the log-sum-exp of all of them. */
#include "best_outputs.cuh"
#include "head_general_launch.cuh"

namespace draftsmith {

namespace {

struct RowCandidates {
    const int32_t *tokens;
    const uint64_t *masks;
    const float *logits;
    uint64_t row_bit;
    int num_slots;

    __device__ int count() const { return num_slots; }

    __device__ bool logit(int i, float &value) const
    {
        if (!(masks[i] & row_bit))
            return false;
        value = logits[i];
        return true;
    }

    __device__ uint64_t key(int i) const
    {
        float value;
        return logit(i, value) ? candidate_key(value, tokens[i]) : 0;
    }
};

/* Grid: rows. */
__global__ void __launch_bounds__(BEST_THREADS) write_outputs(const GeneralJob job)
{
    __shared__ BestShared shared;
    const GeneralWorkspace &workspace = job.workspace;
    const int m = blockIdx.x, num_outputs = job.shape.num_outputs;
    wait_for_earlier_phases();
    int32_t *const ids = job.arguments.candidate_ids + (size_t)m * num_outputs;
    float *const logits = job.arguments.candidate_logits + (size_t)m * num_outputs;
    if (workspace.rows[m].is_broken) {
        write_broken_row(num_outputs, ids, logits, job.arguments.log_sum_exp + m);
        return;
    }
    const RowCandidates candidates = {workspace.slot_tokens, workspace.slot_masks,
                                      workspace.slot_logits + m * workspace.max_slots, 1ull << m,
                                      workspace.slice_starts[workspace.num_slices] * job.shape.group_size};
    write_best_outputs(candidates, num_outputs, ids, logits, job.arguments.log_sum_exp + m, shared);
}

} // namespace

void launch_outputs(const GeneralJob &job)
{
    launch_phase(job, write_outputs, job.shape.num_rows, BEST_THREADS);
}

} // namespace draftsmith
