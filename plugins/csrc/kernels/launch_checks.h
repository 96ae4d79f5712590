/* Internal: what both plugins' launch functions ask before they enqueue: the device, ranges, pointers. */
#ifndef DRAFTSMITH_LAUNCH_CHECKS_H
#define DRAFTSMITH_LAUNCH_CHECKS_H

#include <cuda_runtime.h>

#include "status_detail.h"

namespace draftsmith {

/* What the choice of a path and of tile sizes depends on. */
struct Device {
    int major, minor;
    int num_multiprocessors;
    int max_shared_bytes; /* of a block, opted in */
};

/* Attributes of the current device, asked once a device. */
inline draftsmith_status find_device(Device &device)
{
    enum { CACHED = 16 };
    static thread_local Device known[CACHED] = {};
    int index = 0;
    cudaError_t error = cudaGetDevice(&index);
    if (error == cudaSuccess && index < CACHED && known[index].major != 0) {
        device = known[index];
        return DRAFTSMITH_OK;
    }
    const struct {
        cudaDeviceAttr attribute;
        int *value;
    } wanted[] = {{cudaDevAttrComputeCapabilityMajor, &device.major},
                  {cudaDevAttrComputeCapabilityMinor, &device.minor},
                  {cudaDevAttrMultiProcessorCount, &device.num_multiprocessors},
                  {cudaDevAttrMaxSharedMemoryPerBlockOptin, &device.max_shared_bytes}};
    for (const auto &one : wanted)
        if (error == cudaSuccess)
            error = cudaDeviceGetAttribute(one.value, one.attribute, index);
    if (error != cudaSuccess)
        return fail(DRAFTSMITH_CUDA_ERROR, "device: %s", cudaGetErrorString(error));
    if (index < CACHED)
        known[index] = device;
    return DRAFTSMITH_OK;
}

inline draftsmith_status check_range(const char *name, int value, int least, int most)
{
    if (value >= least && value <= most)
        return DRAFTSMITH_OK;
    return fail(DRAFTSMITH_INVALID_SHAPE, "%s: expected %d to %d, found %d", name, least, most, value);
}

inline draftsmith_status check_pointer(const char *name, const void *pointer, bool is_required, size_t alignment)
{
    if (!pointer && is_required)
        return fail(DRAFTSMITH_NULL_POINTER, "%s: expected a device pointer, found null", name);
    if (reinterpret_cast<uintptr_t>(pointer) % alignment != 0)
        return fail(DRAFTSMITH_MISALIGNED_POINTER, "%s: expected an address that is a multiple of %zu, found %p", name,
                    alignment, pointer);
    return DRAFTSMITH_OK;
}

struct PointerCheck {
    const char *name;
    const void *pointer;
    bool is_required;
    size_t alignment;
};

template <size_t count> draftsmith_status check_pointers(const PointerCheck (&pointers)[count])
{
    for (const PointerCheck &one : pointers)
        if (const auto status = check_pointer(one.name, one.pointer, one.is_required, one.alignment))
            return status;
    return DRAFTSMITH_OK;
}

inline draftsmith_status check_workspace(size_t needed, size_t found)
{
    if (found >= needed)
        return DRAFTSMITH_OK;
    return fail(DRAFTSMITH_WORKSPACE_TOO_SMALL, "workspace: expected at least %zu bytes, found %zu", needed, found);
}

} // namespace draftsmith

#endif
