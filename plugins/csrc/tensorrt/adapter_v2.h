/* An operator as IPluginV2DynamicExt, for TensorRT 8.6 (JetPack 6.0). Attributes travel as bytes of layout.h. */
#ifndef DRAFTSMITH_TENSORRT_ADAPTER_V2_H
#define DRAFTSMITH_TENSORRT_ADAPTER_V2_H

#include "adapter.h"

namespace draftsmith {
namespace tensorrt {

template <class Operator> class PluginV2 final : public nvinfer1::IPluginV2DynamicExt {
  public:
    using Attributes = typename Operator::Attributes;

    /* `is_whole` false: stored attributes were damaged. TensorRT 8.6 does not survive a null plugin from deserializePlugin,
     * so such a plugin exists and refuses to start. */
    explicit PluginV2(const Attributes &attributes, bool is_whole = true) : attributes_(attributes), is_whole_(is_whole)
    {
    }

    const char *getPluginType() const noexcept override { return Operator::name; }
    const char *getPluginVersion() const noexcept override { return plugin_version; }
    const char *getPluginNamespace() const noexcept override { return plugin_namespace; }
    void setPluginNamespace(const char *) noexcept override {}
    int32_t getNbOutputs() const noexcept override { return Operator::num_outputs; }
    int32_t initialize() noexcept override { return is_whole_ ? 0 : 1; }
    void terminate() noexcept override {}
    void destroy() noexcept override { delete this; }
    IPluginV2DynamicExt *clone() const noexcept override
    {
        return new (std::nothrow) PluginV2(attributes_, is_whole_);
    }

    DataType getOutputDataType(int32_t index, const DataType *, int32_t) const noexcept override
    {
        return Operator::output_type(index);
    }

    DimsExprs getOutputDimensions(int32_t index, const DimsExprs *inputs, int32_t,
                                  IExprBuilder &builder) noexcept override
    {
        return Operator::output_dims(attributes_, index, inputs, builder);
    }

    bool supportsFormatCombination(int32_t position, const PluginTensorDesc *tensors, int32_t num_inputs,
                                   int32_t num_outputs) noexcept override
    {
        return supports_tensor<Operator>(attributes_, position, tensors, num_inputs, num_outputs);
    }

    /* TensorRT 8 takes no refusal here: a wrong shape is logged now, and refused by every enqueue. */
    void configurePlugin(const DynamicDesc *inputs, int32_t num_inputs, const DynamicDesc *, int32_t) noexcept override
    {
        PluginTensorDesc largest[max_tensors];
        if (take_largest(inputs, num_inputs, largest))
            Operator::check(attributes_, largest, num_inputs);
    }

    size_t getWorkspaceSize(const PluginTensorDesc *inputs, int32_t, const PluginTensorDesc *,
                            int32_t) const noexcept override
    {
        return Operator::workspace_bytes(attributes_, inputs);
    }

    int32_t enqueue(const PluginTensorDesc *descriptions, const PluginTensorDesc *, const void *const *inputs,
                    void *const *outputs, void *workspace, cudaStream_t stream) noexcept override
    {
        if (!is_whole_)
            return 1;
        return Operator::enqueue(attributes_, descriptions, inputs, outputs, workspace, stream);
    }

    size_t getSerializationSize() const noexcept override { return layout_bytes(Operator::num_fields); }

    void serialize(void *bytes) const noexcept override
    {
        write_layout(Operator::code, attributes_.data(), Operator::num_fields, bytes);
    }

  private:
    Attributes attributes_;
    bool is_whole_;
};

template <class Operator> class CreatorV2 final : public NamedCreator<Operator, nvinfer1::IPluginCreator> {
  public:
    void setPluginNamespace(const char *) noexcept override {}

    PluginV2<Operator> *createPlugin(const char *, const nvinfer1::PluginFieldCollection *given) noexcept override
    {
        typename Operator::Attributes attributes{};
        if (!read_fields(Operator::name, Operator::fields, Operator::num_fields, given, attributes.data()))
            return nullptr;
        return new (std::nothrow) PluginV2<Operator>(attributes);
    }

    PluginV2<Operator> *deserializePlugin(const char *, const void *bytes, size_t num_bytes) noexcept override
    {
        typename Operator::Attributes attributes{};
        const bool is_whole =
            read_layout(Operator::name, Operator::code, bytes, num_bytes, attributes.data(), Operator::num_fields);
        return new (std::nothrow) PluginV2<Operator>(attributes, is_whole);
    }
};

} // namespace tensorrt
} // namespace draftsmith

#endif
