/* An operator as IPluginV3, for TensorRT 10 and 11. Attributes travel as one field that holds the bytes of layout.h. */
#ifndef DRAFTSMITH_TENSORRT_ADAPTER_V3_H
#define DRAFTSMITH_TENSORRT_ADAPTER_V3_H

#include <cstring>

#include "adapter.h"

namespace draftsmith {
namespace tensorrt {

constexpr const char *layout_field = "layout";

template <class Operator>
class PluginV3 final : public nvinfer1::IPluginV3,
                       public nvinfer1::IPluginV3OneCore,
                       public nvinfer1::IPluginV3OneBuild,
                       public nvinfer1::IPluginV3OneRuntime {
  public:
    using Attributes = typename Operator::Attributes;

    explicit PluginV3(const Attributes &attributes) : attributes_(attributes) {}

    nvinfer1::IPluginCapability *getCapabilityInterface(nvinfer1::PluginCapabilityType type) noexcept override
    {
        switch (type) {
        case nvinfer1::PluginCapabilityType::kCORE: return static_cast<nvinfer1::IPluginV3OneCore *>(this);
        case nvinfer1::PluginCapabilityType::kBUILD: return static_cast<nvinfer1::IPluginV3OneBuild *>(this);
        case nvinfer1::PluginCapabilityType::kRUNTIME: return static_cast<nvinfer1::IPluginV3OneRuntime *>(this);
        }
        return nullptr;
    }

    nvinfer1::IPluginV3 *clone() noexcept override { return new (std::nothrow) PluginV3(attributes_); }
    nvinfer1::IPluginV3 *attachToContext(nvinfer1::IPluginResourceContext *) noexcept override { return clone(); }

    const char *getPluginName() const noexcept override { return Operator::name; }
    const char *getPluginVersion() const noexcept override { return plugin_version; }
    const char *getPluginNamespace() const noexcept override { return plugin_namespace; }
    int32_t getNbOutputs() const noexcept override { return Operator::num_outputs; }

    int32_t getOutputDataTypes(DataType *types, int32_t num_outputs, const DataType *,
                               int32_t) const noexcept override
    {
        if (num_outputs != Operator::num_outputs)
            return 1;
        for (int32_t i = 0; i < num_outputs; i++)
            types[i] = Operator::output_type(i);
        return 0;
    }

    int32_t getOutputShapes(const DimsExprs *inputs, int32_t, const DimsExprs *, int32_t, DimsExprs *outputs,
                            int32_t num_outputs, IExprBuilder &builder) noexcept override
    {
        if (num_outputs != Operator::num_outputs)
            return 1;
        for (int32_t i = 0; i < num_outputs; i++)
            outputs[i] = Operator::output_dims(attributes_, i, inputs, builder);
        return 0;
    }

    bool supportsFormatCombination(int32_t position, const DynamicDesc *tensors, int32_t num_inputs,
                                   int32_t num_outputs) noexcept override
    {
        return supports_tensor<Operator>(attributes_, position, tensors, num_inputs, num_outputs);
    }

    int32_t configurePlugin(const DynamicDesc *inputs, int32_t num_inputs, const DynamicDesc *,
                            int32_t) noexcept override
    {
        PluginTensorDesc largest[max_tensors];
        return take_largest(inputs, num_inputs, largest) && Operator::check(attributes_, largest, num_inputs) ? 0 : 1;
    }

    size_t getWorkspaceSize(const DynamicDesc *inputs, int32_t num_inputs, const DynamicDesc *,
                            int32_t) const noexcept override
    {
        PluginTensorDesc largest[max_tensors];
        return take_largest(inputs, num_inputs, largest) ? Operator::workspace_bytes(attributes_, largest) : 0;
    }

    int32_t onShapeChange(const PluginTensorDesc *inputs, int32_t num_inputs, const PluginTensorDesc *,
                          int32_t) noexcept override
    {
        return Operator::check(attributes_, inputs, num_inputs) ? 0 : 1;
    }

    int32_t enqueue(const PluginTensorDesc *descriptions, const PluginTensorDesc *, const void *const *inputs,
                    void *const *outputs, void *workspace, cudaStream_t stream) noexcept override
    {
        return Operator::enqueue(attributes_, descriptions, inputs, outputs, workspace, stream);
    }

    const nvinfer1::PluginFieldCollection *getFieldsToSerialize() noexcept override
    {
        write_layout(Operator::code, attributes_.data(), Operator::num_fields, layout_);
        stored_ = {layout_field, layout_, nvinfer1::PluginFieldType::kCHAR, static_cast<int32_t>(sizeof layout_)};
        collection_.nbFields = 1;
        collection_.fields = &stored_;
        return &collection_;
    }

  private:
    Attributes attributes_;
    unsigned char layout_[layout_bytes(Operator::num_fields)];
    nvinfer1::PluginField stored_;
    nvinfer1::PluginFieldCollection collection_{};
};

template <class Operator> class CreatorV3 final : public NamedCreator<Operator, nvinfer1::IPluginCreatorV3One> {
  public:
    nvinfer1::IPluginV3 *createPlugin(const char *, const nvinfer1::PluginFieldCollection *given,
                                      nvinfer1::TensorRTPhase phase) noexcept override
    {
        typename Operator::Attributes attributes{};
        const bool is_read =
            phase == nvinfer1::TensorRTPhase::kRUNTIME
                ? read_stored(given, attributes)
                : read_fields(Operator::name, Operator::fields, Operator::num_fields, given, attributes.data());
        return is_read ? new (std::nothrow) PluginV3<Operator>(attributes) : nullptr;
    }

  private:
    static bool read_stored(const nvinfer1::PluginFieldCollection *given, typename Operator::Attributes &attributes)
    {
        for (int32_t i = 0; given != nullptr && i < given->nbFields; i++) {
            const nvinfer1::PluginField &field = given->fields[i];
            if (std::strcmp(field.name, layout_field) == 0)
                return read_layout(Operator::name, Operator::code, field.data, static_cast<size_t>(field.length),
                                   attributes.data(), Operator::num_fields);
        }
        log_error(Operator::name, "stored attributes: expected the field %s, found none", layout_field);
        return false;
    }
};

} // namespace tensorrt
} // namespace draftsmith

#endif
