#include "spec_vocab_head_operator.h"

#include <algorithm>

namespace draftsmith {
namespace tensorrt {

constexpr Field SpecVocabHeadOperator::fields[];

namespace {

enum Input { HIDDEN, W_DOWN, W_VOCAB, W_HEAD, REQUEST_OF_ROW, W_VOCAB_SCALES };
enum Output { CANDIDATE_IDS, CANDIDATE_LOGITS, LOG_SUM_EXP };
enum Attribute { K, OUT, GROUP_SIZE, SHARE_CANDIDATES };
constexpr int32_t least_inputs = 5;

bool is_8_bit(DataType type)
{
    const int32_t known = kernel_type(type);
    return known == DRAFTSMITH_INT8 || known == DRAFTSMITH_FLOAT8_E4M3;
}

int32_t count_inputs(const SpecVocabHeadOperator::Attributes &, const PluginTensorDesc *inputs)
{
    return is_8_bit(inputs[W_VOCAB].type) ? W_VOCAB_SCALES + 1 : least_inputs;
}

bool is_hidden_type(DataType type)
{
    const int32_t known = kernel_type(type);
    return known == DRAFTSMITH_FLOAT16 || known == DRAFTSMITH_BFLOAT16;
}

draftsmith_head_shape make_shape(const SpecVocabHeadOperator::Attributes &attributes, const PluginTensorDesc *inputs)
{
    draftsmith_head_shape shape{};
    shape.num_rows = dim(inputs[HIDDEN], 0);
    shape.hidden_size = dim(inputs[HIDDEN], 1);
    shape.rank = dim(inputs[W_DOWN], 0);
    shape.num_vocab = dim(inputs[W_HEAD], 0);
    shape.num_candidates = attributes[K];
    shape.num_outputs = attributes[OUT];
    shape.group_size = attributes[GROUP_SIZE];
    shape.hidden_type = kernel_type(inputs[HIDDEN].type);
    shape.ranking_type = kernel_type(inputs[W_VOCAB].type);
    shape.path = DRAFTSMITH_HEAD_AUTO;
    return shape;
}

} // namespace

bool SpecVocabHeadOperator::supports(const Attributes &, int32_t position, const DataType *types, int32_t num_inputs)
{
    const DataType type = types[position];
    if (position >= num_inputs)
        return type == output_type(position - num_inputs);
    switch (position) {
    case HIDDEN: return is_hidden_type(type);
    case W_DOWN:
    case W_HEAD: return type == types[HIDDEN];
    case W_VOCAB: return num_inputs > least_inputs ? is_8_bit(type) : type == types[HIDDEN];
    case REQUEST_OF_ROW: return type == DataType::kINT32;
    case W_VOCAB_SCALES: return type == DataType::kFLOAT;
    default: return false;
    }
}

DataType SpecVocabHeadOperator::output_type(int32_t index)
{
    return index == CANDIDATE_IDS ? DataType::kINT32 : DataType::kFLOAT;
}

DimsExprs SpecVocabHeadOperator::output_dims(const Attributes &attributes, int32_t index, const DimsExprs *inputs,
                                             IExprBuilder &builder)
{
    DimsExprs dims{};
    dims.nbDims = index == LOG_SUM_EXP ? 1 : 2;
    dims.d[0] = inputs[HIDDEN].d[0];
    if (index != LOG_SUM_EXP)
        dims.d[1] = builder.constant(attributes[OUT]);
    return dims;
}

bool SpecVocabHeadOperator::check(const Attributes &attributes, const PluginTensorDesc *inputs, int32_t num_inputs)
{
    if (num_inputs < least_inputs || num_inputs != count_inputs(attributes, inputs)) {
        log_error(name, "inputs: expected 6 with an 8-bit w_vocab, else 5, found %d", num_inputs);
        return false;
    }
    const draftsmith_head_shape shape = make_shape(attributes, inputs);
    const int32_t any[] = {-1, -1}, down[] = {shape.rank, shape.hidden_size}, head[] = {-1, shape.hidden_size};
    if (!check_dims(name, "hidden", inputs[HIDDEN], 2, any) || !check_dims(name, "w_down", inputs[W_DOWN], 2, down) ||
        !check_dims(name, "w_head", inputs[W_HEAD], 2, head))
        return false;
    const int32_t ranked = (shape.num_vocab + shape.group_size - 1) / shape.group_size;
    const int32_t vocab[] = {ranked, shape.rank}, rows[] = {shape.num_rows}, scales[] = {ranked};
    if (!check_dims(name, "w_vocab", inputs[W_VOCAB], 2, vocab) ||
        !check_dims(name, "request_of_row", inputs[REQUEST_OF_ROW], 1, rows) ||
        (num_inputs == 6 && !check_dims(name, "w_vocab_scales", inputs[W_VOCAB_SCALES], 1, scales)))
        return false;
    size_t num_bytes = 0;
    if (draftsmith_head_workspace_bytes(&shape, &num_bytes) != DRAFTSMITH_OK) {
        log_error(name, "%s", draftsmith_status_detail());
        return false;
    }
    return true;
}

size_t SpecVocabHeadOperator::workspace_bytes(const Attributes &attributes, const PluginTensorDesc *inputs)
{
    draftsmith_head_shape shape = make_shape(attributes, inputs);
    size_t most = 0;
    for (int32_t rows = shape.num_rows; rows >= 1; rows--) {
        size_t num_bytes = 0;
        shape.num_rows = rows;
        if (draftsmith_head_workspace_bytes(&shape, &num_bytes) != DRAFTSMITH_OK) {
            log_error(name, "workspace: %s", draftsmith_status_detail());
            return 0;
        }
        most = std::max(most, num_bytes);
    }
    return most + workspace_slack;
}

int32_t SpecVocabHeadOperator::enqueue(const Attributes &attributes, const PluginTensorDesc *descriptions,
                                       const void *const *inputs, void *const *outputs, void *workspace,
                                       cudaStream_t stream)
{
    if (dim(descriptions[HIDDEN], 0) == 0)
        return 0;
    if (!check(attributes, descriptions, count_inputs(attributes, descriptions)))
        return DRAFTSMITH_INVALID_SHAPE;
    const draftsmith_head_shape shape = make_shape(attributes, descriptions);
    draftsmith_head_arguments arguments{};
    arguments.hidden = inputs[HIDDEN];
    arguments.w_down = inputs[W_DOWN];
    arguments.w_vocab = inputs[W_VOCAB];
    if (is_8_bit(descriptions[W_VOCAB].type))
        arguments.w_vocab_scales = static_cast<const float *>(inputs[W_VOCAB_SCALES]);
    arguments.w_head = inputs[W_HEAD];
    if (attributes[SHARE_CANDIDATES])
        arguments.request_of_row = static_cast<const int32_t *>(inputs[REQUEST_OF_ROW]);
    arguments.candidate_ids = static_cast<int32_t *>(outputs[CANDIDATE_IDS]);
    arguments.candidate_logits = static_cast<float *>(outputs[CANDIDATE_LOGITS]);
    arguments.log_sum_exp = static_cast<float *>(outputs[LOG_SUM_EXP]);
    arguments.workspace = align_workspace(workspace);
    draftsmith_status status = draftsmith_head_workspace_bytes(&shape, &arguments.workspace_bytes);
    if (status == DRAFTSMITH_OK)
        status = draftsmith_head_launch(&shape, &arguments, stream);
    return report_launch(name, status);
}

} // namespace tensorrt
} // namespace draftsmith
