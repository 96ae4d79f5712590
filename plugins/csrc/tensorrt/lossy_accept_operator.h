/* LossyAccept as a plugin.
 *
 * Inputs: logits [B, N, V] fp16, bf16 or float32; parents, token_ids int32 [B, N]; num_nodes int32 [B]; row_floats
 * float32 [B, 8]; row_ints int32 [B, 4]; row_keys int32 [B, 4] (low and high word of the seed, then of the position: an
 * int64 [B, 2] as 32-bit words, which every TensorRT has); relaxation float32 [B, N]; with num_candidates C > 0
 * candidate_ids int32 and candidate_log_probs float32 [B, N, C].
 * Outputs: accepted_nodes int32 [B, N]; accepted_length, bonus_token int32 [B]; divergence, regret_nats float32 [B];
 * flags, recovery_state int32 [B]. Attribute: num_candidates (0). */
#ifndef DRAFTSMITH_TENSORRT_LOSSY_ACCEPT_OPERATOR_H
#define DRAFTSMITH_TENSORRT_LOSSY_ACCEPT_OPERATOR_H

#include "../kernels/lossy_accept.h"
#include "operator.h"

namespace draftsmith {
namespace tensorrt {

/* See SpecVocabHeadOperator for what each function does. */
struct LossyAcceptOperator {
    static constexpr const char *name = "LossyAccept";
    static constexpr uint32_t code = 2;
    static constexpr int32_t num_outputs = 7;
    static constexpr int32_t num_fields = 1;
    static constexpr Field fields[num_fields] = {{"num_candidates", 0, DRAFTSMITH_ACCEPT_MAX_CANDIDATES, false, 0}};
    using Attributes = Values<num_fields>;

    static bool supports(const Attributes &attributes, int32_t position, const DataType *types, int32_t num_inputs);
    static DataType output_type(int32_t index);
    static DimsExprs output_dims(const Attributes &attributes, int32_t index, const DimsExprs *inputs,
                                 IExprBuilder &builder);
    static bool check(const Attributes &attributes, const PluginTensorDesc *inputs, int32_t num_inputs);
    static size_t workspace_bytes(const Attributes &attributes, const PluginTensorDesc *inputs);
    static int32_t enqueue(const Attributes &attributes, const PluginTensorDesc *descriptions,
                           const void *const *inputs, void *const *outputs, void *workspace, cudaStream_t stream);
};

} // namespace tensorrt
} // namespace draftsmith

#endif
