/* The fused path's choice of shapes, and its passes over the rows. */
#include "head_hopper.h"
#include "head_hopper_launches.h"
#include "head_hopper_layout.h"
#include "status_detail.h"

namespace draftsmith {

namespace {

enum { MOST_HIDDEN = 4096, MOST_RANK = 256, MOST_BLOCKS_OF_GRID = 256 };

/* Rows a pass: equal parts of as many as fit; 0 where not even one does. */
int rows_of_pass(const draftsmith_head_shape &shape, const Device &device, FusedJob &job)
{
    for (int most = FUSED_ROWS; most > 0; most /= 2) {
        const int num_passes = (shape.num_rows + most - 1) / most;
        const int num_rows = (shape.num_rows + num_passes - 1) / num_passes;
        if (lay_out_fused(shape, device, num_rows, nullptr, job))
            return num_rows;
    }
    return 0;
}

cudaError_t launch_pass(const draftsmith_head_shape &shape, const FusedJob &job, const Device &device,
                        cudaStream_t stream)
{
    const bool is_half = shape.hidden_type == DRAFTSMITH_FLOAT16, is_int8 = shape.ranking_type == DRAFTSMITH_INT8;
    const auto launch = is_half ? is_int8 ? launch_fused_float16_int8 : launch_fused_float16
                                : is_int8 ? launch_fused_bfloat16_int8 : launch_fused_bfloat16;
    const cudaError_t error = launch(job, device.num_multiprocessors, stream);
    if (error == cudaSuccess && job.chosen_ids)
        launch_fused_chosen(job, stream);
    return error != cudaSuccess ? error : cudaGetLastError();
}

} // namespace

bool hopper_supports(const draftsmith_head_shape &shape, const Device &device)
{
    const bool is_int8 = shape.ranking_type == DRAFTSMITH_INT8;
    if (device.major < 9 || device.num_multiprocessors < FUSED_OUTPUTS ||
        device.num_multiprocessors > MOST_BLOCKS_OF_GRID || shape.num_outputs > FUSED_OUTPUTS)
        return false;
    if (shape.ranking_type != shape.hidden_type && !is_int8)
        return false;
    if (shape.hidden_size > MOST_HIDDEN || shape.hidden_size % 8 != 0 || shape.rank > MOST_RANK ||
        shape.rank % 8 != 0)
        return false;
    FusedJob job;
    return rows_of_pass(shape, device, job) > 0;
}

bool hopper_takes_pointers(const draftsmith_head_shape &shape, const draftsmith_head_arguments &arguments,
                           const Device &device)
{
    const void *const pointers[] = {arguments.hidden, arguments.w_down, arguments.w_vocab, arguments.w_vocab_scales,
                                    arguments.w_head};
    for (const void *pointer : pointers)
        if (reinterpret_cast<uintptr_t>(pointer) % 16 != 0)
            return false;
    FusedJob job;
    return !arguments.request_of_row || rows_of_pass(shape, device, job) == shape.num_rows;
}

size_t hopper_workspace_bytes(const draftsmith_head_shape &shape, const Device &device)
{
    FusedJob job;
    rows_of_pass(shape, device, job);
    return job.workspace.num_bytes;
}

draftsmith_status hopper_launch(const draftsmith_head_shape &shape, const draftsmith_head_arguments &arguments,
                                const Device &device, cudaStream_t stream)
{
    FusedJob job;
    const int most = rows_of_pass(shape, device, job);
    for (int first = 0; first < shape.num_rows; first += most) {
        const int num_rows = shape.num_rows - first < most ? shape.num_rows - first : most;
        lay_out_fused(shape, device, num_rows, arguments.workspace, job);
        job.hidden = static_cast<const uint16_t *>(arguments.hidden) + (size_t)first * shape.hidden_size;
        job.w_down = arguments.w_down;
        job.w_vocab = arguments.w_vocab;
        job.w_vocab_scales = shape.ranking_type == DRAFTSMITH_INT8 ? arguments.w_vocab_scales : nullptr;
        job.w_head = arguments.w_head;
        job.request_of_row = arguments.request_of_row;
        if (job.request_of_row && shape.group_size == 1)
            job.most_uncertain = MOST_SHARING_UNCERTAIN;
        job.candidate_ids = arguments.candidate_ids + (size_t)first * shape.num_outputs;
        job.candidate_logits = arguments.candidate_logits + (size_t)first * shape.num_outputs;
        job.log_sum_exp = arguments.log_sum_exp + first;
        job.chosen_ids =
            arguments.chosen_ids ? arguments.chosen_ids + (size_t)first * shape.num_candidates : nullptr;
        const cudaError_t error = launch_pass(shape, job, device, stream);
        if (error != cudaSuccess)
            return fail(DRAFTSMITH_CUDA_ERROR, "fused path: launch failed: %s", cudaGetErrorString(error));
    }
    return DRAFTSMITH_OK;
}

} // namespace draftsmith
