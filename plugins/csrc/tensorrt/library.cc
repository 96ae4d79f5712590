#include "library.h"

#include <cstring>
#include <cuda_runtime_api.h>

#include "lossy_accept_operator.h"
#include "operator.h"
#include "spec_vocab_head_operator.h"

#if NV_TENSORRT_MAJOR >= 10
#include "adapter_v3.h"
#else
#include "adapter_v2.h"
#endif

#ifndef DRAFTSMITH_ARCHITECTURES
#error "DRAFTSMITH_ARCHITECTURES: expected the list of GPU architectures (CMakeLists.txt defines it)"
#endif
#if defined(__x86_64__)
#define DRAFTSMITH_MACHINE "x86_64"
#elif defined(__aarch64__)
#define DRAFTSMITH_MACHINE "aarch64"
#else
#error "machine: expected x86_64 or aarch64"
#endif
#define DRAFTSMITH_TEXT_OF(value) #value
#define DRAFTSMITH_TEXT(value) DRAFTSMITH_TEXT_OF(value)
#if CUDART_VERSION >= 13000
#define DRAFTSMITH_CUDA_MAJOR 13
#else
#define DRAFTSMITH_CUDA_MAJOR 12
#endif

extern "C" {

const char draftsmith_plugins_metadata[] =
    "draftsmith-plugins:{\"version\": 1, \"kernels_version\": 1, \"tensorrt\": " DRAFTSMITH_TEXT(NV_TENSORRT_MAJOR) ", "
    "\"cuda\": " DRAFTSMITH_TEXT(DRAFTSMITH_CUDA_MAJOR) ", \"machine\": \"" DRAFTSMITH_MACHINE "\", "
    "\"architectures\": \"" DRAFTSMITH_ARCHITECTURES "\", \"plugins\": [\"SpecVocabHead\", \"LossyAccept\"]}";
static_assert(DRAFTSMITH_PLUGINS_VERSION == 1 && DRAFTSMITH_KERNELS_VERSION == 1, "the metadata names the versions");

int32_t draftsmith_plugins_version(void) { return DRAFTSMITH_PLUGINS_VERSION; }

} // extern "C"

namespace draftsmith {
namespace tensorrt {

#if NV_TENSORRT_MAJOR >= 10
template <class Operator> using Creator = CreatorV3<Operator>;
#else
template <class Operator> using Creator = CreatorV2<Operator>;
#endif

template <class Operator> static bool register_operator()
{
    static Creator<Operator> creator;
    static bool is_registered = false;
    nvinfer1::IPluginRegistry *registry = getPluginRegistry();
    if (!is_registered && registry != nullptr) {
        is_registered = registry->registerCreator(creator, plugin_namespace);
        if (!is_registered)
            log_error(Operator::name, "expected to be registered once, found another of this name and version. Load "
                                      "one draftsmith plugin library a process");
    }
    return is_registered;
}

/* Static initialisation is where Triton's --backend-config=tensorrt,plugins=... and trtexec --staticPlugins expect it. */
static const int32_t registered_at_load = draftsmith_plugins_register();

} // namespace tensorrt
} // namespace draftsmith

extern "C" int32_t draftsmith_plugins_register(void)
{
    using namespace draftsmith::tensorrt;
    return register_operator<SpecVocabHeadOperator>() + register_operator<LossyAcceptOperator>();
}
