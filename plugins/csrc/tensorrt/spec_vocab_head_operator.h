/* SpecVocabHead as a plugin.
 *
 * Inputs: hidden [M, d] and w_down [r, d] fp16 or bf16; w_vocab [R, r] of hidden's type, INT8 or FP8 (R = V, or
 * ceil(V / group_size)); w_head [V, d] of hidden's type; request_of_row int32 [M]; with an 8-bit w_vocab its scales
 * float32 [R]. Outputs: candidate_ids int32 [M, out], candidate_logits float32 [M, out], log_sum_exp float32 [M].
 * Attributes: k, out, group_size (1), share_candidates (1: rows of one request share their candidates' union). */
#ifndef DRAFTSMITH_TENSORRT_SPEC_VOCAB_HEAD_OPERATOR_H
#define DRAFTSMITH_TENSORRT_SPEC_VOCAB_HEAD_OPERATOR_H

#include "../kernels/spec_vocab_head.h"
#include "operator.h"

namespace draftsmith {
namespace tensorrt {

struct SpecVocabHeadOperator {
    static constexpr const char *name = "SpecVocabHead";
    static constexpr uint32_t code = 1;
    static constexpr int32_t num_outputs = 3;
    static constexpr int32_t num_fields = 4;
    static constexpr Field fields[num_fields] = {{"k", 1, 1 << 24, true, 0},
                                                 {"out", 1, DRAFTSMITH_HEAD_MAX_OUTPUTS, true, 0},
                                                 {"group_size", 1, 256, false, 1},
                                                 {"share_candidates", 0, 1, false, 1}};
    using Attributes = Values<num_fields>;

    /* `types` of inputs, then outputs; those before `position` are settled. */
    static bool supports(const Attributes &attributes, int32_t position, const DataType *types, int32_t num_inputs);
    static DataType output_type(int32_t index);
    static DimsExprs output_dims(const Attributes &attributes, int32_t index, const DimsExprs *inputs,
                                 IExprBuilder &builder);
    /* Shapes of a launch (a profile's largest): false, with a message, where no kernel takes them. */
    static bool check(const Attributes &attributes, const PluginTensorDesc *inputs, int32_t num_inputs);
    /* Enough for every number of rows up to that of `inputs`. */
    static size_t workspace_bytes(const Attributes &attributes, const PluginTensorDesc *inputs);
    static int32_t enqueue(const Attributes &attributes, const PluginTensorDesc *descriptions,
                           const void *const *inputs, void *const *outputs, void *workspace, cudaStream_t stream);
};

} // namespace tensorrt
} // namespace draftsmith

#endif
