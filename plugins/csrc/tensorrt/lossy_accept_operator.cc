#include "lossy_accept_operator.h"

namespace draftsmith {
namespace tensorrt {

constexpr Field LossyAcceptOperator::fields[];

namespace {

enum Input {
    LOGITS,
    PARENTS,
    TOKEN_IDS,
    NUM_NODES,
    ROW_FLOATS,
    ROW_INTS,
    ROW_KEYS,
    RELAXATION,
    CANDIDATE_IDS,
    CANDIDATE_LOG_PROBS
};
enum Output { ACCEPTED_NODES, ACCEPTED_LENGTH, BONUS_TOKEN, DIVERGENCE, REGRET_NATS, FLAGS, RECOVERY_STATE };
enum Attribute { NUM_CANDIDATES };
constexpr int32_t key_words = 4;

int32_t count_inputs(const LossyAcceptOperator::Attributes &attributes)
{
    return attributes[NUM_CANDIDATES] > 0 ? CANDIDATE_LOG_PROBS + 1 : RELAXATION + 1;
}

draftsmith_accept_shape make_shape(const LossyAcceptOperator::Attributes &attributes, const PluginTensorDesc *inputs)
{
    draftsmith_accept_shape shape{};
    shape.num_requests = dim(inputs[LOGITS], 0);
    shape.max_nodes = dim(inputs[LOGITS], 1);
    shape.num_vocab = dim(inputs[LOGITS], 2);
    shape.num_candidates = attributes[NUM_CANDIDATES];
    shape.logits_type = kernel_type(inputs[LOGITS].type);
    shape.clean_counters = 0; /* other layers write to the workspace between two launches */
    return shape;
}

bool is_float_output(int32_t index) { return index == DIVERGENCE || index == REGRET_NATS; }

} // namespace

bool LossyAcceptOperator::supports(const Attributes &attributes, int32_t position, const DataType *types,
                                   int32_t num_inputs)
{
    const DataType type = types[position];
    if (num_inputs != count_inputs(attributes))
        return false;
    if (position >= num_inputs)
        return type == output_type(position - num_inputs);
    switch (position) {
    case LOGITS: {
        const int32_t known = kernel_type(type);
        return known == DRAFTSMITH_FLOAT16 || known == DRAFTSMITH_BFLOAT16 || known == DRAFTSMITH_FLOAT32;
    }
    case ROW_FLOATS:
    case RELAXATION:
    case CANDIDATE_LOG_PROBS: return type == DataType::kFLOAT;
    default: return type == DataType::kINT32;
    }
}

DataType LossyAcceptOperator::output_type(int32_t index)
{
    return is_float_output(index) ? DataType::kFLOAT : DataType::kINT32;
}

DimsExprs LossyAcceptOperator::output_dims(const Attributes &, int32_t index, const DimsExprs *inputs, IExprBuilder &)
{
    DimsExprs dims{};
    dims.nbDims = index == ACCEPTED_NODES ? 2 : 1;
    dims.d[0] = inputs[PARENTS].d[0];
    if (index == ACCEPTED_NODES)
        dims.d[1] = inputs[PARENTS].d[1];
    return dims;
}

bool LossyAcceptOperator::check(const Attributes &attributes, const PluginTensorDesc *inputs, int32_t num_inputs)
{
    if (num_inputs != count_inputs(attributes)) {
        log_error(name, "inputs: expected %d (10 with num_candidates above 0, else 8), found %d",
                  count_inputs(attributes), num_inputs);
        return false;
    }
    const draftsmith_accept_shape shape = make_shape(attributes, inputs);
    const int32_t any[] = {-1, -1, -1}, rows[] = {shape.num_requests}, nodes[] = {shape.num_requests, shape.max_nodes};
    const int32_t floats[] = {shape.num_requests, DRAFTSMITH_ACCEPT_NUM_FLOATS};
    const int32_t ints[] = {shape.num_requests, DRAFTSMITH_ACCEPT_NUM_INTS}, keys[] = {shape.num_requests, key_words};
    const int32_t candidates[] = {shape.num_requests, shape.max_nodes, shape.num_candidates};
    if (!check_dims(name, "logits", inputs[LOGITS], 3, any) ||
        !check_dims(name, "parents", inputs[PARENTS], 2, nodes) ||
        !check_dims(name, "token_ids", inputs[TOKEN_IDS], 2, nodes) ||
        !check_dims(name, "num_nodes", inputs[NUM_NODES], 1, rows) ||
        !check_dims(name, "row_floats", inputs[ROW_FLOATS], 2, floats) ||
        !check_dims(name, "row_ints", inputs[ROW_INTS], 2, ints) ||
        !check_dims(name, "row_keys", inputs[ROW_KEYS], 2, keys) ||
        !check_dims(name, "relaxation", inputs[RELAXATION], 2, nodes))
        return false;
    if (shape.num_candidates > 0 &&
        (!check_dims(name, "candidate_ids", inputs[CANDIDATE_IDS], 3, candidates) ||
         !check_dims(name, "candidate_log_probs", inputs[CANDIDATE_LOG_PROBS], 3, candidates)))
        return false;
    size_t num_bytes = 0;
    if (draftsmith_accept_workspace_bytes(&shape, &num_bytes, nullptr) != DRAFTSMITH_OK) {
        log_error(name, "%s", draftsmith_status_detail());
        return false;
    }
    return true;
}

size_t LossyAcceptOperator::workspace_bytes(const Attributes &attributes, const PluginTensorDesc *inputs)
{
    const draftsmith_accept_shape shape = make_shape(attributes, inputs);
    size_t num_bytes = 0;
    if (draftsmith_accept_workspace_bytes(&shape, &num_bytes, nullptr) == DRAFTSMITH_OK)
        return num_bytes + workspace_slack;
    log_error(name, "workspace: %s", draftsmith_status_detail());
    return 0;
}

int32_t LossyAcceptOperator::enqueue(const Attributes &attributes, const PluginTensorDesc *descriptions,
                                     const void *const *inputs, void *const *outputs, void *workspace,
                                     cudaStream_t stream)
{
    if (dim(descriptions[LOGITS], 0) == 0)
        return 0;
    if (!check(attributes, descriptions, count_inputs(attributes)))
        return DRAFTSMITH_INVALID_SHAPE;
    const draftsmith_accept_shape shape = make_shape(attributes, descriptions);
    draftsmith_accept_arguments arguments{};
    arguments.logits = inputs[LOGITS];
    arguments.parents = static_cast<const int32_t *>(inputs[PARENTS]);
    arguments.token_ids = static_cast<const int32_t *>(inputs[TOKEN_IDS]);
    arguments.num_nodes = static_cast<const int32_t *>(inputs[NUM_NODES]);
    arguments.row_floats = static_cast<const float *>(inputs[ROW_FLOATS]);
    arguments.row_ints = static_cast<const int32_t *>(inputs[ROW_INTS]);
    arguments.row_keys = static_cast<const int64_t *>(inputs[ROW_KEYS]);
    arguments.relaxation = static_cast<const float *>(inputs[RELAXATION]);
    if (shape.num_candidates > 0) {
        arguments.candidate_ids = static_cast<const int32_t *>(inputs[CANDIDATE_IDS]);
        arguments.candidate_log_probs = static_cast<const float *>(inputs[CANDIDATE_LOG_PROBS]);
    }
    arguments.accepted_nodes = static_cast<int32_t *>(outputs[ACCEPTED_NODES]);
    arguments.accepted_length = static_cast<int32_t *>(outputs[ACCEPTED_LENGTH]);
    arguments.bonus_token = static_cast<int32_t *>(outputs[BONUS_TOKEN]);
    arguments.divergence = static_cast<float *>(outputs[DIVERGENCE]);
    arguments.regret_nats = static_cast<float *>(outputs[REGRET_NATS]);
    arguments.flags = static_cast<int32_t *>(outputs[FLAGS]);
    arguments.recovery_state = static_cast<int32_t *>(outputs[RECOVERY_STATE]);
    arguments.workspace = align_workspace(workspace);
    draftsmith_status status = draftsmith_accept_workspace_bytes(&shape, &arguments.workspace_bytes, nullptr);
    if (status == DRAFTSMITH_OK)
        status = draftsmith_accept_launch(&shape, &arguments, stream);
    return report_launch(name, status);
}

} // namespace tensorrt
} // namespace draftsmith
