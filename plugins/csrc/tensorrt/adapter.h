/* What the adapters of all TensorRT versions share. */
#ifndef DRAFTSMITH_TENSORRT_ADAPTER_H
#define DRAFTSMITH_TENSORRT_ADAPTER_H

#include <new>

#include "layout.h"
#include "operator.h"

namespace draftsmith {
namespace tensorrt {

using DynamicDesc = nvinfer1::DynamicPluginTensorDesc;

/* The greatest shapes of a profile into `largest`, [max_tensors]; false: there are more tensors. */
inline bool take_largest(const DynamicDesc *inputs, int32_t num_inputs, PluginTensorDesc *largest)
{
    if (num_inputs > max_tensors)
        return false;
    for (int32_t i = 0; i < num_inputs; i++) {
        largest[i] = inputs[i].desc;
        largest[i].dims = inputs[i].max;
    }
    return true;
}

inline const PluginTensorDesc &description_of(const PluginTensorDesc &tensor) { return tensor; }
inline const PluginTensorDesc &description_of(const DynamicDesc &tensor) { return tensor.desc; }

/* Whether the tensor at `position`, given those before it, has a type and a format that the operator takes. */
template <class Operator, class Tensor>
bool supports_tensor(const typename Operator::Attributes &attributes, int32_t position, const Tensor *tensors,
                     int32_t num_inputs, int32_t num_outputs)
{
    if (num_inputs + num_outputs > max_tensors || description_of(tensors[position]).format != TensorFormat::kLINEAR)
        return false;
    DataType types[max_tensors];
    for (int32_t i = 0; i <= position; i++)
        types[i] = description_of(tensors[i]).type;
    return Operator::supports(attributes, position, types, num_inputs);
}

/* Names and fields of an operator's creator. */
template <class Operator, class Interface> class NamedCreator : public Interface {
  public:
    NamedCreator()
    {
        for (int32_t i = 0; i < Operator::num_fields; i++)
            fields_[i] = {Operator::fields[i].name, nullptr, nvinfer1::PluginFieldType::kINT32, 1};
        names_.nbFields = Operator::num_fields;
        names_.fields = fields_;
    }

    const char *getPluginName() const noexcept override { return Operator::name; }
    const char *getPluginVersion() const noexcept override { return plugin_version; }
    const char *getPluginNamespace() const noexcept override { return plugin_namespace; }
    const nvinfer1::PluginFieldCollection *getFieldNames() noexcept override { return &names_; }

  private:
    nvinfer1::PluginField fields_[Operator::num_fields];
    nvinfer1::PluginFieldCollection names_{};
};

} // namespace tensorrt
} // namespace draftsmith

#endif
