/* How a plugin's attributes lie in an engine: a plain, versioned layout with a checksum, read with every check.
 *
 *     char[4] "DSPL" | uint32 layout version | uint32 operator code | uint32 count | int32 values[count] | uint32 FNV-1a
 *
 * Little-endian, as every processor that TensorRT runs on. */
#ifndef DRAFTSMITH_TENSORRT_LAYOUT_H
#define DRAFTSMITH_TENSORRT_LAYOUT_H

#include <cstddef>
#include <cstdint>

namespace draftsmith {
namespace tensorrt {

constexpr uint32_t layout_version = 1;

constexpr size_t layout_bytes(int32_t count) { return 4 * (4 + static_cast<size_t>(count) + 1); }

/* Writes layout_bytes(count) bytes. */
void write_layout(uint32_t code, const int32_t *values, int32_t count, void *bytes);

/* Reads what write_layout wrote for the same operator. False, with a message, for anything else. */
bool read_layout(const char *plugin, uint32_t code, const void *bytes, size_t num_bytes, int32_t *values,
                 int32_t count);

} // namespace tensorrt
} // namespace draftsmith

#endif
