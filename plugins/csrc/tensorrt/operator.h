/* What an operator tells the plugin adapters, and what they share: attributes, checks, messages.
 *
 * An operator is a structure of static functions over its attributes' values (see spec_vocab_head_operator.h); it knows
 * TensorRT's plain types, and nothing of the plugin interfaces of one version. */
#ifndef DRAFTSMITH_TENSORRT_OPERATOR_H
#define DRAFTSMITH_TENSORRT_OPERATOR_H

#include <NvInferRuntime.h>
#include <array>
#include <cstddef>
#include <cstdint>

#include "../kernels/status.h"

namespace draftsmith {
namespace tensorrt {

using nvinfer1::DataType;
using nvinfer1::DimsExprs;
using nvinfer1::IExprBuilder;
using nvinfer1::PluginTensorDesc;
using nvinfer1::TensorFormat;

constexpr const char *plugin_namespace = "draftsmith";
constexpr const char *plugin_version = "1";
constexpr int32_t max_tensors = 20; /* inputs and outputs of any operator together */

/* An attribute: an int32 from `low` to `high`. Without `is_required`, `fallback` where it is not given. */
struct Field {
    const char *name;
    int32_t low, high;
    bool is_required;
    int32_t fallback;
};

template <int32_t count> using Values = std::array<int32_t, count>;

/* A line of the given severity to TensorRT's logger, or to stderr where there is none: "SpecVocabHead: ...". */
void log_error(const char *plugin, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* Reads attributes by name. False, with a message, for an unknown name, a wrong type, a value out of range, or a required
 * one that is missing. */
bool read_fields(const char *plugin, const Field *fields, int32_t num_fields,
                 const nvinfer1::PluginFieldCollection *given, int32_t *values);

/* A dimension as int32, or -1 where it is not one. */
inline int32_t dim(const PluginTensorDesc &tensor, int32_t axis)
{
    if (axis >= tensor.dims.nbDims || tensor.dims.d[axis] < 0 || tensor.dims.d[axis] > INT32_MAX)
        return -1;
    return static_cast<int32_t>(tensor.dims.d[axis]);
}

/* False, with a message, unless `tensor` has the shape `expected` (-1 fits all). */
bool check_dims(const char *plugin, const char *tensor_name, const PluginTensorDesc &tensor, int32_t num_dims,
                const int32_t *expected);

/* What an enqueue returns for a launch's status: 0, or the status with a message. */
int32_t report_launch(const char *plugin, draftsmith_status status);

/* draftsmith_type of a tensor's type, or -1. */
int32_t kernel_type(DataType type);

/* The workspace TensorRT gave, moved up to an aligned address; ask for `workspace_slack` bytes more. */
constexpr size_t workspace_slack = 256;
inline void *align_workspace(void *workspace)
{
    const auto address = reinterpret_cast<uintptr_t>(workspace);
    return reinterpret_cast<void *>((address + workspace_slack - 1) / workspace_slack * workspace_slack);
}

} // namespace tensorrt
} // namespace draftsmith

#endif
