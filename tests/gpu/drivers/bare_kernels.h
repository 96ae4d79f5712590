/* The kernels of a case called without TensorRT, over the same inputs: what a plugin's bytes and time are held to. */
#ifndef DRAFTSMITH_TESTS_BARE_KERNELS_H
#define DRAFTSMITH_TESTS_BARE_KERNELS_H

#include "device.h"
#include "lossy_accept.h"
#include "spec_vocab_head.h"

inline void check_kernel(draftsmith_status status)
{
    if (status != DRAFTSMITH_OK)
        throw std::runtime_error(std::string(draftsmith_status_name(status)) + ": " + draftsmith_status_detail());
}

/* Addresses by tensor name; null where a case has no tensor of a name. */
using Addresses = std::map<std::string, void *>;

template <class T> T *find(const Addresses &addresses, const char *name)
{
    const auto found = addresses.find(name);
    return found == addresses.end() ? nullptr : static_cast<T *>(found->second);
}

/* A launch of the raw kernel of a case, with outputs and a workspace of its own. */
class BareKernel {
  public:
    BareKernel(const Case &made, const Addresses &inputs)
    {
        Addresses addresses = inputs;
        for (const CaseTensor &tensor : made.outputs) {
            outputs_[tensor.name] = std::make_unique<Buffer>(count(tensor.shape) * item_bytes(tensor.type));
            addresses[tensor.name] = outputs_[tensor.name]->data();
        }
        std::map<std::string, int32_t> attributes(made.attributes.begin(), made.attributes.end());
        std::map<std::string, const CaseTensor *> tensors;
        for (const CaseTensor &tensor : made.inputs)
            tensors[tensor.name] = &tensor;
        if (made.plugin == "SpecVocabHead")
            prepare_head(attributes, tensors, addresses);
        else
            prepare_accept(attributes, tensors, addresses);
    }

    void launch(cudaStream_t stream) const { launch_(stream); }
    std::vector<char> read(const std::string &output) const { return outputs_.at(output)->read(); }

  private:
    using Attributes = std::map<std::string, int32_t>;
    using Tensors = std::map<std::string, const CaseTensor *>;

    static int32_t size(const Tensors &tensors, const char *name, size_t axis)
    {
        return static_cast<int32_t>(tensors.at(name)->shape.at(axis));
    }

    static int32_t type_of(const CaseTensor &tensor)
    {
        static const std::map<std::string, int32_t> types = {{"half", DRAFTSMITH_FLOAT16},
                                                             {"bf16", DRAFTSMITH_BFLOAT16},
                                                             {"int8", DRAFTSMITH_INT8},
                                                             {"fp8", DRAFTSMITH_FLOAT8_E4M3},
                                                             {"float", DRAFTSMITH_FLOAT32}};
        return types.at(tensor.type);
    }

    void prepare_head(Attributes attributes, const Tensors &tensors, const Addresses &at)
    {
        draftsmith_head_shape shape{};
        shape.num_rows = size(tensors, "hidden", 0);
        shape.hidden_size = size(tensors, "hidden", 1);
        shape.rank = size(tensors, "w_down", 0);
        shape.num_vocab = size(tensors, "w_head", 0);
        shape.num_candidates = attributes.at("k");
        shape.num_outputs = attributes.at("out");
        shape.group_size = attributes.count("group_size") ? attributes["group_size"] : 1;
        shape.hidden_type = type_of(*tensors.at("hidden"));
        shape.ranking_type = type_of(*tensors.at("w_vocab"));
        shape.path = DRAFTSMITH_HEAD_AUTO;
        size_t num_bytes = 0;
        check_kernel(draftsmith_head_workspace_bytes(&shape, &num_bytes));
        workspace_ = std::make_unique<Buffer>(num_bytes);
        draftsmith_head_arguments arguments{};
        arguments.hidden = find<void>(at, "hidden"), arguments.w_down = find<void>(at, "w_down");
        arguments.w_vocab = find<void>(at, "w_vocab"), arguments.w_head = find<void>(at, "w_head");
        arguments.w_vocab_scales = find<float>(at, "w_vocab_scales");
        if (!attributes.count("share_candidates") || attributes["share_candidates"])
            arguments.request_of_row = find<int32_t>(at, "request_of_row");
        arguments.candidate_ids = find<int32_t>(at, "candidate_ids");
        arguments.candidate_logits = find<float>(at, "candidate_logits");
        arguments.log_sum_exp = find<float>(at, "log_sum_exp");
        arguments.workspace = workspace_->data(), arguments.workspace_bytes = num_bytes;
        launch_ = [=](cudaStream_t stream) { check_kernel(draftsmith_head_launch(&shape, &arguments, stream)); };
    }

    void prepare_accept(const Attributes &attributes, const Tensors &tensors, const Addresses &at)
    {
        draftsmith_accept_shape shape{};
        shape.num_requests = size(tensors, "logits", 0);
        shape.max_nodes = size(tensors, "logits", 1);
        shape.num_vocab = size(tensors, "logits", 2);
        shape.num_candidates = attributes.at("num_candidates");
        shape.logits_type = type_of(*tensors.at("logits"));
        size_t num_bytes = 0;
        check_kernel(draftsmith_accept_workspace_bytes(&shape, &num_bytes, nullptr));
        workspace_ = std::make_unique<Buffer>(num_bytes);
        draftsmith_accept_arguments arguments{};
        arguments.logits = find<void>(at, "logits");
        arguments.parents = find<int32_t>(at, "parents"), arguments.token_ids = find<int32_t>(at, "token_ids");
        arguments.num_nodes = find<int32_t>(at, "num_nodes");
        arguments.candidate_ids = find<int32_t>(at, "candidate_ids");
        arguments.candidate_log_probs = find<float>(at, "candidate_log_probs");
        arguments.row_floats = find<float>(at, "row_floats"), arguments.row_ints = find<int32_t>(at, "row_ints");
        arguments.row_keys = find<int64_t>(at, "row_keys"), arguments.relaxation = find<float>(at, "relaxation");
        arguments.accepted_nodes = find<int32_t>(at, "accepted_nodes");
        arguments.accepted_length = find<int32_t>(at, "accepted_length");
        arguments.bonus_token = find<int32_t>(at, "bonus_token");
        arguments.divergence = find<float>(at, "divergence"), arguments.regret_nats = find<float>(at, "regret_nats");
        arguments.flags = find<int32_t>(at, "flags");
        arguments.recovery_state = find<int32_t>(at, "recovery_state");
        arguments.workspace = workspace_->data(), arguments.workspace_bytes = num_bytes;
        launch_ = [=](cudaStream_t stream) { check_kernel(draftsmith_accept_launch(&shape, &arguments, stream)); };
    }

    std::map<std::string, std::unique_ptr<Buffer>> outputs_;
    std::unique_ptr<Buffer> workspace_;
    Work launch_;
};

/* Throws unless the outputs, in the case's order, are the raw kernel's byte for byte. */
inline void compare_with_kernel(const Case &made, const Addresses &inputs, const std::vector<std::vector<char>> &outputs,
                                cudaStream_t stream)
{
    const BareKernel bare(made, inputs);
    bare.launch(stream);
    check_cuda(cudaStreamSynchronize(stream), "bare kernel");
    for (size_t i = 0; i < outputs.size(); i++)
        if (bare.read(made.outputs[i].name) != outputs[i])
            throw std::runtime_error(made.plugin + "." + made.outputs[i].name + ": other bytes than the raw kernel's");
}

#endif
