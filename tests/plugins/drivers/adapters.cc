/* The plugin adapters without a GPU and without TensorRT: kernels that only note what they were given. Ends with 1 and a
 * line for the first thing that is not as expected. */
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "lossy_accept_operator.h"
#include "spec_vocab_head_operator.h"
#if NV_TENSORRT_MAJOR >= 10
#include "adapter_v3.h"
#else
#include "adapter_v2.h"
#endif

using namespace draftsmith::tensorrt;

static std::string logged;
static draftsmith_head_shape head_shape;
static draftsmith_head_arguments head_arguments;
static draftsmith_accept_shape accept_shape;
static draftsmith_accept_arguments accept_arguments;

class Logger : public nvinfer1::ILogger {
    void log(Severity, const char *text) noexcept override { logged += std::string(text) + "\n"; }
} logger;

extern "C" {
nvinfer1::ILogger *getLogger() noexcept { return &logger; }
const char *draftsmith_status_name(int32_t) { return "too_many_candidates"; }
const char *draftsmith_status_detail(void) { return "k: the kernel's words"; }

/* More bytes for few rows than for many, as tiles may have it. */
draftsmith_status draftsmith_head_workspace_bytes(const draftsmith_head_shape *shape, size_t *num_bytes)
{
    *num_bytes = shape->num_rows == 3 ? 9000 : 1000;
    return shape->num_candidates > shape->num_vocab ? DRAFTSMITH_TOO_MANY_CANDIDATES : DRAFTSMITH_OK;
}
draftsmith_status draftsmith_head_launch(const draftsmith_head_shape *shape, const draftsmith_head_arguments *arguments,
                                         void *)
{
    head_shape = *shape, head_arguments = *arguments;
    return DRAFTSMITH_OK;
}
draftsmith_status draftsmith_accept_workspace_bytes(const draftsmith_accept_shape *, size_t *num_bytes, size_t *)
{
    *num_bytes = 5000;
    return DRAFTSMITH_OK;
}
draftsmith_status draftsmith_accept_launch(const draftsmith_accept_shape *shape,
                                           const draftsmith_accept_arguments *arguments, void *)
{
    accept_shape = *shape, accept_arguments = *arguments;
    return DRAFTSMITH_OK;
}
}

static void expect(bool holds, const char *what)
{
    if (holds)
        return;
    std::printf("not as expected: %s\nlogged: %s\n", what, logged.c_str());
    std::exit(1);
}

static void expect_logged(const char *words, const char *what)
{
    expect(logged.find(words) != std::string::npos, what);
    logged.clear();
}

static PluginTensorDesc describe(DataType type, std::initializer_list<int32_t> sizes)
{
    PluginTensorDesc tensor{};
    tensor.type = type, tensor.format = TensorFormat::kLINEAR, tensor.dims.nbDims = static_cast<int32_t>(sizes.size());
    int32_t axis = 0;
    for (int32_t size : sizes)
        tensor.dims.d[axis++] = size;
    return tensor;
}

using Tensors = std::vector<PluginTensorDesc>;
constexpr DataType half = DataType::kHALF, floats = DataType::kFLOAT, ints = DataType::kINT32, bytes = DataType::kINT8;

static Tensors head_inputs(bool int8)
{
    Tensors inputs = {describe(half, {5, 64}), describe(half, {8, 64}), describe(int8 ? bytes : half, {25, 8}),
                      describe(half, {100, 64}), describe(ints, {5})};
    if (int8)
        inputs.push_back(describe(floats, {25}));
    return inputs;
}

static Tensors accept_inputs(bool sampled)
{
    Tensors inputs = {describe(half, {2, 3, 50}), describe(ints, {2, 3}), describe(ints, {2, 3}), describe(ints, {2}),
                      describe(floats, {2, 8}),   describe(ints, {2, 4}), describe(ints, {2, 4}), describe(floats, {2, 3})};
    if (sampled)
        inputs.insert(inputs.end(), {describe(ints, {2, 3, 7}), describe(floats, {2, 3, 7})});
    return inputs;
}

template <class Operator> static bool is_supported(const typename Operator::Attributes &attributes, Tensors tensors)
{
    const auto num_inputs = static_cast<int32_t>(tensors.size());
    DataType types[max_tensors];
    for (int32_t i = 0; i < num_inputs + Operator::num_outputs; i++) {
        types[i] = i < num_inputs ? tensors[static_cast<size_t>(i)].type : Operator::output_type(i - num_inputs);
        if (!Operator::supports(attributes, i, types, num_inputs))
            return false;
    }
    return true;
}

static void test_types_and_shapes()
{
    using Head = SpecVocabHeadOperator;
    const Head::Attributes attributes{20, 4, 4, 1};
    for (bool int8 : {false, true}) {
        const Tensors good = head_inputs(int8);
        const auto count = static_cast<int32_t>(good.size());
        expect(is_supported<Head>(attributes, good), "the head's types");
        expect(Head::check(attributes, good.data(), count), "the head's shapes");
        for (size_t i = 0; i < good.size(); i++) {
            Tensors other = good;
            other[i].type = other[i].type == floats ? half : floats;
            expect(!is_supported<Head>(attributes, other), "a wrong type of the head");
            other = good, other[i].dims.d[0] += 1;
            if (i == 0 || i == 3) /* M and V are what other shapes are held to */
                other[i].dims.d[1] += 1;
            expect(!Head::check(attributes, other.data(), count), "a wrong shape of the head");
        }
        logged.clear();
    }
    expect(!Head::check({101, 4, 4, 1}, head_inputs(false).data(), 5), "k above V");
    expect_logged("the kernel's words", "the kernel's reason");
    expect(!Head::check(attributes, head_inputs(true).data(), 5), "8 bits without scales");
    expect_logged("expected 6 with an 8-bit w_vocab", "the number of inputs");

    using Accept = LossyAcceptOperator;
    for (bool sampled : {false, true}) {
        const Accept::Attributes candidates{sampled ? 7 : 0};
        const Tensors good = accept_inputs(sampled);
        const auto count = static_cast<int32_t>(good.size());
        expect(is_supported<Accept>(candidates, good), "the acceptance's types");
        expect(Accept::check(candidates, good.data(), count), "the acceptance's shapes");
        for (size_t i = 0; i < good.size(); i++) {
            Tensors other = good;
            other[i].type = bytes;
            expect(!is_supported<Accept>(candidates, other), "a wrong type of the acceptance");
            other = good, other[i].dims.d[0] += 1;
            expect(!Accept::check(candidates, other.data(), count), "a wrong shape of the acceptance");
        }
        logged.clear();
        expect(!is_supported<Accept>({sampled ? 0 : 7}, good), "candidates that the attribute does not announce");
    }
}

template <class Creator, class... Phase>
static auto create(Creator &creator, std::vector<std::pair<const char *, int32_t>> attributes, Phase... phase)
{
    std::vector<nvinfer1::PluginField> fields;
    for (auto &attribute : attributes)
        fields.push_back({attribute.first, &attribute.second, nvinfer1::PluginFieldType::kINT32, 1});
    nvinfer1::PluginFieldCollection collection{};
    collection.nbFields = static_cast<int32_t>(fields.size()), collection.fields = fields.data();
    return creator.createPlugin("name", &collection, phase...);
}

template <class Creator, class... Phase> static void test_attributes(Creator &creator, Phase... phase)
{
    expect(create(creator, {{"k", 20}}, phase...) == nullptr, "an attribute that is missing");
    expect_logged("attribute out: expected to be given", "the missing attribute's name");
    expect(create(creator, {{"k", 20}, {"out", 4}, {"groups", 1}}, phase...) == nullptr, "an unknown attribute");
    expect_logged("attribute groups: expected none of this name", "the unknown attribute's name");
    expect(create(creator, {{"k", 20}, {"out", 0}}, phase...) == nullptr, "a value out of range");
    expect_logged("attribute out: expected 1 to 1024, found 0", "the range");
    float wrong = 1;
    nvinfer1::PluginField field("k", &wrong, nvinfer1::PluginFieldType::kFLOAT32, 1);
    nvinfer1::PluginFieldCollection collection{};
    collection.nbFields = 1, collection.fields = &field;
    expect(creator.createPlugin("name", &collection, phase...) == nullptr, "a wrong type of attribute");
    expect_logged("attribute k: expected one int32", "the attribute's type");
}

static void test_layout()
{
    const int32_t values[4] = {1, -2, 3, 4};
    int32_t read[4] = {};
    std::vector<unsigned char> stored(layout_bytes(4));
    write_layout(7, values, 4, stored.data());
    expect(read_layout("P", 7, stored.data(), stored.size(), read, 4), "what was stored");
    expect(std::memcmp(values, read, sizeof values) == 0, "the stored values");
    expect(!read_layout("P", 8, stored.data(), stored.size(), read, 4), "another plugin's attributes");
    expect(!read_layout("P", 7, stored.data(), stored.size(), read, 3), "another number of values");
    expect(!read_layout("P", 7, nullptr, 0, read, 4), "nothing");
    for (size_t i = 0; i < stored.size(); i++) {
        expect(!read_layout("P", 7, stored.data(), i, read, 4), "a part of it");
        stored[i] ^= 1;
        expect(!read_layout("P", 7, stored.data(), stored.size(), read, 4), "a changed bit");
        stored[i] ^= 1;
    }
    expect_logged("damaged engine", "the checksum's words");
    stored[4] = 2;
    expect(!read_layout("P", 7, stored.data(), stored.size(), read, 4), "another layout");
    expect_logged("expected layout 1, found 2. Build the engine again", "the layout's versions");
}

/* Addresses that are told apart: the i-th tensor's is 4096 (i + 1). */
struct Pointers {
    std::vector<void *> all;
    explicit Pointers(int32_t count)
    {
        for (int32_t i = 0; i < count; i++)
            all.push_back(reinterpret_cast<void *>(static_cast<uintptr_t>(4096 * (i + 1))));
    }
};

static void expect_head_launch(int32_t num_rows)
{
    expect(head_shape.num_rows == num_rows && head_shape.hidden_size == 64 && head_shape.rank == 8, "M, d, r");
    expect(head_shape.num_vocab == 100 && head_shape.num_candidates == 20 && head_shape.num_outputs == 4, "V, k, out");
    expect(head_shape.group_size == 4 && head_shape.hidden_type == DRAFTSMITH_FLOAT16, "group size and type");
    expect(head_shape.ranking_type == DRAFTSMITH_INT8 && head_shape.path == DRAFTSMITH_HEAD_AUTO, "ranking type");
    const auto address = [](const void *pointer) { return reinterpret_cast<uintptr_t>(pointer) / 4096; };
    expect(address(head_arguments.hidden) == 1 && address(head_arguments.w_down) == 2, "hidden, w_down");
    expect(address(head_arguments.w_vocab) == 3 && address(head_arguments.w_head) == 4, "w_vocab, w_head");
    expect(address(head_arguments.request_of_row) == 5 && address(head_arguments.w_vocab_scales) == 6, "rows, scales");
    expect(address(head_arguments.candidate_ids) == 7 && address(head_arguments.candidate_logits) == 8, "ids, logits");
    expect(address(head_arguments.log_sum_exp) == 9 && head_arguments.chosen_ids == nullptr, "log-sum-exp");
    expect(reinterpret_cast<uintptr_t>(head_arguments.workspace) % 256 == 0, "the workspace's alignment");
    expect(head_arguments.workspace_bytes == (num_rows == 3 ? 9000 : 1000), "the workspace's bytes");
}

#if NV_TENSORRT_MAJOR >= 10
template <class Capability> static Capability *capability(nvinfer1::IPluginV3 &plugin, nvinfer1::PluginCapabilityType type)
{
    return static_cast<Capability *>(plugin.getCapabilityInterface(type));
}

static void test_plugin()
{
    using nvinfer1::PluginCapabilityType;
    CreatorV3<SpecVocabHeadOperator> creator;
    test_attributes(creator, nvinfer1::TensorRTPhase::kBUILD);
    std::unique_ptr<nvinfer1::IPluginV3> plugin(
        create(creator, {{"k", 20}, {"out", 4}, {"group_size", 4}}, nvinfer1::TensorRTPhase::kBUILD));
    auto *runs = capability<nvinfer1::IPluginV3OneRuntime>(*plugin, PluginCapabilityType::kRUNTIME);
    std::unique_ptr<nvinfer1::IPluginV3> restored(
        creator.createPlugin("name", runs->getFieldsToSerialize(), nvinfer1::TensorRTPhase::kRUNTIME));
    expect(restored != nullptr, "a plugin made from its stored attributes");
    nvinfer1::PluginFieldCollection nothing{};
    expect(creator.createPlugin("name", &nothing, nvinfer1::TensorRTPhase::kRUNTIME) == nullptr, "no stored attributes");
    expect_logged("expected the field layout", "the missing field");

    auto *core = capability<nvinfer1::IPluginV3OneCore>(*restored, PluginCapabilityType::kCORE);
    expect(!std::strcmp(core->getPluginName(), "SpecVocabHead") && !std::strcmp(core->getPluginVersion(), "1") &&
               !std::strcmp(core->getPluginNamespace(), "draftsmith"),
           "name, version, namespace");
    auto *builds = capability<nvinfer1::IPluginV3OneBuild>(*restored, PluginCapabilityType::kBUILD);
    auto *again = capability<nvinfer1::IPluginV3OneRuntime>(*restored, PluginCapabilityType::kRUNTIME);
    const Tensors inputs = head_inputs(true);
    std::vector<nvinfer1::DynamicPluginTensorDesc> dynamic;
    for (const PluginTensorDesc &tensor : inputs)
        dynamic.push_back({tensor, tensor.dims, tensor.dims, tensor.dims});
    expect(builds->configurePlugin(dynamic.data(), 6, nullptr, 3) == 0, "configurePlugin");
    expect(builds->getWorkspaceSize(dynamic.data(), 6, nullptr, 3) == 9000 + 256, "most bytes of all numbers of rows");
    dynamic[3].max.d[1] = 65;
    expect(builds->configurePlugin(dynamic.data(), 6, nullptr, 3) != 0, "a wrong shape refused");
    expect_logged("w_head: expected [any, 64], found [100, 65]", "the shape in words");
    const Pointers pointers(9);
    expect(again->enqueue(inputs.data(), nullptr, pointers.all.data(), pointers.all.data() + 6,
                          reinterpret_cast<void *>(uintptr_t{1 << 20 | 40}), nullptr) == 0,
           "enqueue");
    expect_head_launch(5);
}
#else
static void test_plugin()
{
    CreatorV2<SpecVocabHeadOperator> creator;
    test_attributes(creator);
    auto *plugin = create(creator, {{"k", 20}, {"out", 4}, {"group_size", 4}});
    std::vector<unsigned char> stored(plugin->getSerializationSize());
    plugin->serialize(stored.data());
    plugin->destroy();
    auto *restored = creator.deserializePlugin("name", stored.data(), stored.size());
    expect(restored != nullptr, "a plugin made from its stored attributes");
    auto *damaged = creator.deserializePlugin("name", stored.data(), stored.size() - 1);
    auto *copy = damaged->clone();
    expect(restored->initialize() == 0 && damaged->initialize() != 0 && copy->initialize() != 0, "a part of the attributes");
    damaged->destroy(), copy->destroy();
    logged.clear();
    expect(!std::strcmp(restored->getPluginType(), "SpecVocabHead") && !std::strcmp(restored->getPluginVersion(), "1") &&
               !std::strcmp(restored->getPluginNamespace(), "draftsmith"),
           "name, version, namespace");
    Tensors inputs = head_inputs(true);
    expect(restored->getWorkspaceSize(inputs.data(), 6, nullptr, 3) == 9000 + 256, "most bytes of all numbers of rows");
    const Pointers pointers(9);
    void *workspace = reinterpret_cast<void *>(uintptr_t{1 << 20 | 40});
    expect(restored->enqueue(inputs.data(), nullptr, pointers.all.data(), pointers.all.data() + 6, workspace, nullptr) == 0,
           "enqueue");
    expect_head_launch(5);
    inputs[3].dims.d[1] = 65;
    expect(restored->enqueue(inputs.data(), nullptr, pointers.all.data(), pointers.all.data() + 6, workspace, nullptr) != 0,
           "a wrong shape refused");
    expect_logged("w_head: expected [any, 64], found [100, 65]", "the shape in words");
    restored->destroy();
}
#endif

static void test_acceptance()
{
    const Tensors inputs = accept_inputs(true);
    const Pointers pointers(17);
    expect(LossyAcceptOperator::workspace_bytes({7}, inputs.data()) == 5000 + 256, "the acceptance's workspace");
    expect(LossyAcceptOperator::enqueue({7}, inputs.data(), pointers.all.data(), pointers.all.data() + 10,
                                        reinterpret_cast<void *>(uintptr_t{4096}), nullptr) == 0,
           "the acceptance's enqueue");
    expect(accept_shape.num_requests == 2 && accept_shape.max_nodes == 3 && accept_shape.num_vocab == 50, "B, N, V");
    expect(accept_shape.num_candidates == 7 && accept_shape.logits_type == DRAFTSMITH_FLOAT16, "C and type");
    expect(accept_shape.clean_counters == 0, "a workspace that others write to");
    const auto &given = accept_arguments;
    const void *const in_order[] = {given.logits,         given.parents,         given.token_ids,
                                    given.num_nodes,      given.row_floats,      given.row_ints,
                                    given.row_keys,       given.relaxation,      given.candidate_ids,
                                    given.candidate_log_probs, given.accepted_nodes, given.accepted_length,
                                    given.bonus_token,    given.divergence,      given.regret_nats,
                                    given.flags,          given.recovery_state};
    for (size_t i = 0; i < pointers.all.size(); i++)
        expect(in_order[i] == pointers.all[i], "a pointer of the acceptance");
}

int main()
{
    test_types_and_shapes();
    test_layout();
    test_plugin();
    test_acceptance();
    std::printf("as expected\n");
    return 0;
}
