/* Checks of SpecVocabHead's parameters, and the choice of its path. */
#include "spec_vocab_head.h"
#include "head_paths.h"
#include "status_detail.h"

using namespace draftsmith;

namespace {

enum { MOST_HIDDEN = 65536, MOST_RANK = 8192, MOST_VOCAB = 1 << 20, MOST_GROUP = 256 };

draftsmith_status check_types(const draftsmith_head_shape &shape, const Device &device)
{
    if (shape.hidden_type != DRAFTSMITH_FLOAT16 && shape.hidden_type != DRAFTSMITH_BFLOAT16)
        return fail(DRAFTSMITH_UNSUPPORTED_TYPE, "hidden_type: expected float16 (0) or bfloat16 (1), found %d",
                    shape.hidden_type);
    if (shape.ranking_type != shape.hidden_type && shape.ranking_type != DRAFTSMITH_INT8 &&
        shape.ranking_type != DRAFTSMITH_FLOAT8_E4M3)
        return fail(DRAFTSMITH_UNSUPPORTED_TYPE,
                    "ranking_type: expected hidden_type (%d), int8 (2) or float8_e4m3 (3), found %d",
                    shape.hidden_type, shape.ranking_type);
    if (device.major * 10 + device.minor < 75)
        return fail(DRAFTSMITH_UNSUPPORTED_DEVICE, "device: expected compute capability 7.5 or later, found %d.%d",
                    device.major, device.minor);
    if (shape.hidden_type == DRAFTSMITH_BFLOAT16 && device.major < 8)
        return fail(DRAFTSMITH_UNSUPPORTED_DEVICE,
                    "hidden_type: bfloat16 needs compute capability 8.0 or later, found %d.%d", device.major,
                    device.minor);
    return DRAFTSMITH_OK;
}

draftsmith_status check_sizes(const draftsmith_head_shape &shape)
{
    if (shape.num_rows > DRAFTSMITH_HEAD_MAX_ROWS)
        return fail(DRAFTSMITH_TOO_MANY_ROWS, "num_rows: expected at most %d, found %d", DRAFTSMITH_HEAD_MAX_ROWS,
                    shape.num_rows);
    const struct {
        const char *name;
        int value, most;
    } sizes[] = {{"num_rows", shape.num_rows, DRAFTSMITH_HEAD_MAX_ROWS},
                 {"hidden_size", shape.hidden_size, MOST_HIDDEN},
                 {"rank", shape.rank, MOST_RANK},
                 {"num_vocab", shape.num_vocab, MOST_VOCAB},
                 {"group_size", shape.group_size, MOST_GROUP}};
    for (const auto &size : sizes)
        if (const draftsmith_status status = check_range(size.name, size.value, 1, size.most))
            return status;
    return DRAFTSMITH_OK;
}

draftsmith_status check_counts(const draftsmith_head_shape &shape)
{
    if (shape.num_candidates > shape.num_vocab)
        return fail(DRAFTSMITH_TOO_MANY_CANDIDATES, "num_candidates: expected at most num_vocab, %d, found %d",
                    shape.num_vocab, shape.num_candidates);
    if (const draftsmith_status status = check_range("num_candidates", shape.num_candidates, 1, shape.num_vocab))
        return status;
    if (shape.num_candidates % shape.group_size != 0 && shape.num_candidates != shape.num_vocab)
        return fail(DRAFTSMITH_INVALID_SHAPE,
                    "num_candidates: expected a multiple of group_size, %d, or num_vocab, %d, found %d",
                    shape.group_size, shape.num_vocab, shape.num_candidates);
    const int most = shape.num_candidates < DRAFTSMITH_HEAD_MAX_OUTPUTS ? shape.num_candidates
                                                                       : (int)DRAFTSMITH_HEAD_MAX_OUTPUTS;
    if (shape.num_outputs > most)
        return fail(DRAFTSMITH_TOO_MANY_OUTPUTS, "num_outputs: expected at most %d, found %d", most,
                    shape.num_outputs);
    if (const draftsmith_status status = check_range("num_outputs", shape.num_outputs, 1, most))
        return status;
    if (shape.path < DRAFTSMITH_HEAD_AUTO || shape.path > DRAFTSMITH_HEAD_FUSED)
        return fail(DRAFTSMITH_INVALID_PARAMETER, "path: expected auto (0), general (1) or fused (2), found %d",
                    shape.path);
    return DRAFTSMITH_OK;
}

/* Everything that can be known without pointers. */
draftsmith_status check_shape(const draftsmith_head_shape *shape, Device &device)
{
    if (!shape)
        return fail(DRAFTSMITH_NULL_POINTER, "shape: expected a pointer, found null");
    draftsmith_status status = find_device(device);
    if (status == DRAFTSMITH_OK)
        status = check_types(*shape, device);
    if (status == DRAFTSMITH_OK)
        status = check_sizes(*shape);
    if (status == DRAFTSMITH_OK)
        status = check_counts(*shape);
    if (status == DRAFTSMITH_OK && shape->path == DRAFTSMITH_HEAD_FUSED && !hopper_supports(*shape, device))
        return fail(DRAFTSMITH_INVALID_SHAPE,
                    "path: the fused path does not take this shape on this device. Use auto (0) or general (1).");
    return status;
}

bool may_be_fused(const draftsmith_head_shape &shape, const Device &device)
{
    return shape.path != DRAFTSMITH_HEAD_GENERAL && hopper_supports(shape, device);
}

/* Of whatever path the pointers allow. */
size_t needed_bytes(const draftsmith_head_shape &shape, const Device &device)
{
    const size_t general = shape.path == DRAFTSMITH_HEAD_FUSED ? 0 : general_workspace_bytes(shape, device);
    const size_t fused = may_be_fused(shape, device) ? hopper_workspace_bytes(shape, device) : 0;
    return general > fused ? general : fused;
}

draftsmith_status check_arguments(const draftsmith_head_shape &shape, const draftsmith_head_arguments *arguments,
                                  const Device &device)
{
    if (!arguments)
        return fail(DRAFTSMITH_NULL_POINTER, "arguments: expected a pointer, found null");
    const bool is_8_bit = shape.ranking_type == DRAFTSMITH_INT8 || shape.ranking_type == DRAFTSMITH_FLOAT8_E4M3;
    const PointerCheck pointers[] = {{"hidden", arguments->hidden, true, 2},
                    {"w_down", arguments->w_down, true, 2},
                    {"w_vocab", arguments->w_vocab, true, is_8_bit ? 1u : 2u},
                    {"w_vocab_scales", arguments->w_vocab_scales, is_8_bit, 4},
                    {"w_head", arguments->w_head, true, 2},
                    {"request_of_row", arguments->request_of_row, false, 4},
                    {"candidate_ids", arguments->candidate_ids, true, 4},
                    {"candidate_logits", arguments->candidate_logits, true, 4},
                    {"log_sum_exp", arguments->log_sum_exp, true, 4},
                    {"chosen_ids", arguments->chosen_ids, false, 4},
                    {"workspace", arguments->workspace, true, DRAFTSMITH_WORKSPACE_ALIGNMENT}};
    if (const draftsmith_status status = check_pointers(pointers))
        return status;
    return check_workspace(needed_bytes(shape, device), arguments->workspace_bytes);
}

} // namespace

extern "C" {

draftsmith_status draftsmith_head_workspace_bytes(const draftsmith_head_shape *shape, size_t *num_bytes)
{
    Device device;
    if (const draftsmith_status status = check_shape(shape, device))
        return status;
    if (!num_bytes)
        return fail(DRAFTSMITH_NULL_POINTER, "num_bytes: expected a pointer, found null");
    *num_bytes = needed_bytes(*shape, device);
    return DRAFTSMITH_OK;
}

draftsmith_status draftsmith_head_chosen_path(const draftsmith_head_shape *shape, int32_t *path)
{
    Device device;
    if (const draftsmith_status status = check_shape(shape, device))
        return status;
    if (!path)
        return fail(DRAFTSMITH_NULL_POINTER, "path: expected a pointer, found null");
    *path = may_be_fused(*shape, device) ? DRAFTSMITH_HEAD_FUSED : DRAFTSMITH_HEAD_GENERAL;
    return DRAFTSMITH_OK;
}

draftsmith_status draftsmith_head_launch(const draftsmith_head_shape *shape,
                                         const draftsmith_head_arguments *arguments, void *stream)
{
    Device device;
    draftsmith_status status = check_shape(shape, device);
    if (status == DRAFTSMITH_OK)
        status = check_arguments(*shape, arguments, device);
    if (status != DRAFTSMITH_OK)
        return status;
    const bool is_fused = may_be_fused(*shape, device) && hopper_takes_pointers(*shape, *arguments, device);
    if (shape->path == DRAFTSMITH_HEAD_FUSED && !is_fused)
        return fail(DRAFTSMITH_INVALID_PARAMETER,
                    "path: the fused path takes tensors at multiples of 16 bytes, and request_of_row for as many rows "
                    "as fit in one pass. Use auto (0) or general (1).");
    if (is_fused)
        return hopper_launch(*shape, *arguments, device, static_cast<cudaStream_t>(stream));
    return general_launch(*shape, *arguments, device, static_cast<cudaStream_t>(stream));
}

} // extern "C"
