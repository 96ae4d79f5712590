#include "status_detail.h"

#include <cstdarg>
#include <cstdio>

namespace draftsmith {

static thread_local char detail[256] = "";

draftsmith_status fail(draftsmith_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    return status;
}

} // namespace draftsmith

extern "C" {

int32_t draftsmith_kernels_version(void) { return DRAFTSMITH_KERNELS_VERSION; }

const char *draftsmith_status_detail(void) { return draftsmith::detail; }

const char *draftsmith_status_name(int32_t status)
{
    switch (status) {
    case DRAFTSMITH_OK: return "ok";
    case DRAFTSMITH_NULL_POINTER: return "null_pointer";
    case DRAFTSMITH_MISALIGNED_POINTER: return "misaligned_pointer";
    case DRAFTSMITH_UNSUPPORTED_TYPE: return "unsupported_type";
    case DRAFTSMITH_UNSUPPORTED_DEVICE: return "unsupported_device";
    case DRAFTSMITH_INVALID_SHAPE: return "invalid_shape";
    case DRAFTSMITH_TOO_MANY_ROWS: return "too_many_rows";
    case DRAFTSMITH_TOO_MANY_CANDIDATES: return "too_many_candidates";
    case DRAFTSMITH_TOO_MANY_OUTPUTS: return "too_many_outputs";
    case DRAFTSMITH_WORKSPACE_TOO_SMALL: return "workspace_too_small";
    case DRAFTSMITH_INVALID_PARAMETER: return "invalid_parameter";
    case DRAFTSMITH_CUDA_ERROR: return "cuda_error";
    default: return "unknown";
    }
}

} // extern "C"
