#include "layout.h"

#include <cstring>

#include "operator.h"

namespace draftsmith {
namespace tensorrt {

static const char magic[4] = {'D', 'S', 'P', 'L'};

struct Header {
    char magic[4];
    uint32_t version, code, count;
};

static uint32_t checksum(const void *bytes, size_t num_bytes)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < num_bytes; i++)
        hash = (hash ^ static_cast<const unsigned char *>(bytes)[i]) * 16777619u;
    return hash;
}

void write_layout(uint32_t code, const int32_t *values, int32_t count, void *bytes)
{
    Header header{{0, 0, 0, 0}, layout_version, code, static_cast<uint32_t>(count)};
    std::memcpy(header.magic, magic, sizeof magic);
    auto *out = static_cast<unsigned char *>(bytes);
    std::memcpy(out, &header, sizeof header);
    std::memcpy(out + sizeof header, values, 4 * static_cast<size_t>(count));
    const size_t body = layout_bytes(count) - 4;
    const uint32_t sum = checksum(bytes, body);
    std::memcpy(out + body, &sum, sizeof sum);
}

bool read_layout(const char *plugin, uint32_t code, const void *bytes, size_t num_bytes, int32_t *values,
                 int32_t count)
{
    Header header{};
    if (bytes == nullptr || num_bytes < sizeof header) {
        log_error(plugin, "stored attributes: expected %zu bytes, found %zu", layout_bytes(count), num_bytes);
        return false;
    }
    const auto *in = static_cast<const unsigned char *>(bytes);
    std::memcpy(&header, in, sizeof header);
    if (std::memcmp(header.magic, magic, sizeof magic) != 0 || header.code != code) {
        log_error(plugin, "stored attributes: expected those of this plugin (code %u), found code %u", code,
                  header.code);
        return false;
    }
    if (header.version != layout_version) {
        log_error(plugin,
                  "stored attributes: expected layout %u, found %u. Build the engine again with this library, or load "
                  "the library it was built with",
                  layout_version, header.version);
        return false;
    }
    if (header.count != static_cast<uint32_t>(count) || num_bytes != layout_bytes(count)) {
        log_error(plugin, "stored attributes: expected %d values in %zu bytes, found %u in %zu", count,
                  layout_bytes(count), header.count, num_bytes);
        return false;
    }
    uint32_t sum = 0;
    std::memcpy(&sum, in + num_bytes - 4, sizeof sum);
    if (sum != checksum(bytes, num_bytes - 4)) {
        log_error(plugin, "stored attributes: expected checksum %08x, found %08x (damaged engine)",
                  checksum(bytes, num_bytes - 4), sum);
        return false;
    }
    std::memcpy(values, in + sizeof header, 4 * static_cast<size_t>(count));
    return true;
}

} // namespace tensorrt
} // namespace draftsmith
