/* A stand-in for libnvinfer at link time alone: the two functions of it that the plugins call, under its name. So the
 * library is linked without unresolved symbols and without NVIDIA's library, and asks for the real one when loaded. */
extern "C" {
__attribute__((visibility("default"))) void *getPluginRegistry() noexcept { return nullptr; }
__attribute__((visibility("default"))) void *getLogger() noexcept { return nullptr; }
}
