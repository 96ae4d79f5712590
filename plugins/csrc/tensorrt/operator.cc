#include "operator.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace draftsmith {
namespace tensorrt {

void log_error(const char *plugin, const char *format, ...)
{
    char facts[384], text[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(facts, sizeof facts, format, arguments);
    va_end(arguments);
    std::snprintf(text, sizeof text, "draftsmith plugin %s version %s: %s", plugin, plugin_version, facts);
    if (nvinfer1::ILogger *logger = getLogger())
        logger->log(nvinfer1::ILogger::Severity::kERROR, text);
    else
        std::fprintf(stderr, "%s\n", text);
}

int32_t report_launch(const char *plugin, draftsmith_status status)
{
    if (status == DRAFTSMITH_OK)
        return 0;
    log_error(plugin, "%s: %s", draftsmith_status_name(status), draftsmith_status_detail());
    return status;
}

/* Attributes with which a graph tells the parser which plugin it means. */
static bool belongs_to_the_parser(const char *name)
{
    return std::strcmp(name, "plugin_version") == 0 || std::strcmp(name, "plugin_namespace") == 0;
}

static int32_t find_field(const Field *fields, int32_t num_fields, const char *name)
{
    for (int32_t i = 0; i < num_fields; i++)
        if (std::strcmp(fields[i].name, name) == 0)
            return i;
    return -1;
}

bool read_fields(const char *plugin, const Field *fields, int32_t num_fields,
                 const nvinfer1::PluginFieldCollection *given, int32_t *values)
{
    uint32_t seen = 0;
    for (int32_t i = 0; i < num_fields; i++)
        values[i] = fields[i].fallback;
    for (int32_t i = 0; given != nullptr && i < given->nbFields; i++) {
        const nvinfer1::PluginField &field = given->fields[i];
        const int32_t index = find_field(fields, num_fields, field.name);
        if (index < 0) {
            if (belongs_to_the_parser(field.name))
                continue;
            log_error(plugin, "attribute %s: expected none of this name", field.name);
            return false;
        }
        if (field.type != nvinfer1::PluginFieldType::kINT32 || field.length != 1 || field.data == nullptr) {
            log_error(plugin, "attribute %s: expected one int32, found type %d, length %d", field.name,
                      static_cast<int>(field.type), field.length);
            return false;
        }
        std::memcpy(&values[index], field.data, sizeof values[index]);
        seen |= 1u << index;
    }
    for (int32_t i = 0; i < num_fields; i++) {
        if (fields[i].is_required && !(seen >> i & 1u)) {
            log_error(plugin, "attribute %s: expected to be given, found nothing", fields[i].name);
            return false;
        }
        if (values[i] < fields[i].low || values[i] > fields[i].high) {
            log_error(plugin, "attribute %s: expected %d to %d, found %d", fields[i].name, fields[i].low,
                      fields[i].high, values[i]);
            return false;
        }
    }
    return true;
}

bool check_dims(const char *plugin, const char *tensor_name, const PluginTensorDesc &tensor, int32_t num_dims,
                const int32_t *expected)
{
    bool fits = tensor.dims.nbDims == num_dims;
    for (int32_t i = 0; fits && i < num_dims; i++)
        fits = expected[i] < 0 ? dim(tensor, i) >= 0 : dim(tensor, i) == expected[i];
    if (fits)
        return true;
    char wanted[96] = "", found[96] = "";
    for (int32_t i = 0, at = 0; i < num_dims && at < 80; i++)
        at += std::snprintf(wanted + at, sizeof wanted - at, expected[i] < 0 ? "%sany" : "%s%d", i ? ", " : "",
                            expected[i]);
    for (int32_t i = 0, at = 0; i < tensor.dims.nbDims && at < 80; i++)
        at += std::snprintf(found + at, sizeof found - at, "%s%lld", i ? ", " : "",
                            static_cast<long long>(tensor.dims.d[i]));
    log_error(plugin, "%s: expected [%s], found [%s]", tensor_name, wanted, found);
    return false;
}

int32_t kernel_type(DataType type)
{
    switch (type) {
    case DataType::kFLOAT: return DRAFTSMITH_FLOAT32;
    case DataType::kHALF: return DRAFTSMITH_FLOAT16;
    case DataType::kINT8: return DRAFTSMITH_INT8;
#if NV_TENSORRT_MAJOR >= 10
    case DataType::kBF16: return DRAFTSMITH_BFLOAT16;
    case DataType::kFP8: return DRAFTSMITH_FLOAT8_E4M3;
#endif
    default: return -1;
    }
}

} // namespace tensorrt
} // namespace draftsmith
