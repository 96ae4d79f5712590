/* CUDA on the host, as much of it as LossyAccept's kernel uses: a block's threads are fibers of one thread of the host,
 * which change places where they meet (emulator.cc). Barriers order memory; shuffles and votes do not. */
#ifndef DRAFTSMITH_EMULATOR_CUDA_RUNTIME_H
#define DRAFTSMITH_EMULATOR_CUDA_RUNTIME_H

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ thread_local

using std::max;
using std::min;

struct dim3 {
    unsigned x, y = 1, z = 1;
    dim3(unsigned size) : x(size) {}
};

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

namespace emulator {

struct Index {
    unsigned x;
};

/* Of the fiber that runs. */
extern Index thread_index, block_index, block_size;

enum Exchange { SHUFFLE, SHUFFLE_UP, SHUFFLE_XOR, BALLOT, ANY };

/* Runs `thread` for every thread of every block; `shared_bytes`: of dynamic shared memory. */
void launch(unsigned num_blocks, unsigned block_size, size_t shared_bytes, const std::function<void()> &thread);
/* All threads of a block meet here. Returns whether `value` is true for any. */
bool meet(bool value);
/* The lanes of a warp meet in the same `kind` of exchange; the word that `lane` brought, as bytes. */
const uint64_t *exchange(Exchange kind, uint64_t word);

template <class T> T shuffle(Exchange kind, T value, unsigned lane)
{
    static_assert(sizeof(T) <= sizeof(uint64_t), "one word a lane");
    uint64_t word = 0;
    std::memcpy(&word, &value, sizeof value);
    word = exchange(kind, word)[lane];
    std::memcpy(&value, &word, sizeof value);
    return value;
}

} // namespace emulator

#define threadIdx emulator::thread_index
#define blockIdx emulator::block_index
#define blockDim emulator::block_size

inline void __syncthreads() { emulator::meet(false); }
inline int __syncthreads_or(int value) { return emulator::meet(value != 0); }
inline void __threadfence() {} /* atomics order all memory here */

template <class T> T __shfl_sync(unsigned, T value, int lane)
{
    return emulator::shuffle(emulator::SHUFFLE, value, (unsigned)lane & 31);
}
template <class T> T __shfl_xor_sync(unsigned, T value, int lanes)
{
    return emulator::shuffle(emulator::SHUFFLE_XOR, value, (threadIdx.x ^ (unsigned)lanes) & 31);
}
template <class T> T __shfl_up_sync(unsigned, T value, unsigned delta)
{
    const unsigned lane = threadIdx.x & 31;
    return emulator::shuffle(emulator::SHUFFLE_UP, value, lane < delta ? lane : lane - delta);
}
inline unsigned __ballot_sync(unsigned, int value)
{
    const uint64_t *const words = emulator::exchange(emulator::BALLOT, value != 0);
    unsigned ballot = 0;
    for (unsigned lane = 0; lane < 32; lane++)
        ballot |= (unsigned)words[lane] << lane;
    return ballot;
}
inline int __any_sync(unsigned, int value)
{
    const uint64_t *const words = emulator::exchange(emulator::ANY, value != 0);
    return std::any_of(words, words + 32, [](uint64_t word) { return word != 0; });
}

template <class T> T __ldcg(const T *address) { return *address; }
inline int __ffs(int word) { return __builtin_ffs(word); }
inline int __clz(int word) { return word == 0 ? 32 : __builtin_clz((unsigned)word); }
inline int __popc(unsigned word) { return __builtin_popcount(word); }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}
inline unsigned __float_as_uint(float value)
{
    unsigned word;
    std::memcpy(&word, &value, sizeof word);
    return word;
}
inline float __uint_as_float(unsigned word)
{
    float value;
    std::memcpy(&value, &word, sizeof value);
    return value;
}

inline unsigned atomicAdd(unsigned *address, unsigned value) { return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST); }
inline unsigned atomicOr(unsigned *address, unsigned value) { return __atomic_fetch_or(address, value, __ATOMIC_SEQ_CST); }
inline int atomicCAS(int *address, int expected, int value)
{
    __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}
inline unsigned atomicMax(unsigned *address, unsigned value)
{
    unsigned found = __atomic_load_n(address, __ATOMIC_SEQ_CST);
    while (found < value &&
           !__atomic_compare_exchange_n(address, &found, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    return found;
}

/* The runtime: one device, of an H200's kind. */
enum cudaError_t { cudaSuccess = 0 };
enum cudaDeviceAttr {
    cudaDevAttrComputeCapabilityMajor,
    cudaDevAttrComputeCapabilityMinor,
    cudaDevAttrMultiProcessorCount,
    cudaDevAttrMaxSharedMemoryPerBlockOptin
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
using cudaStream_t = void *;

cudaError_t cudaGetDevice(int *device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
inline const char *cudaGetErrorString(cudaError_t) { return "no error"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
template <class Kernel> cudaError_t cudaFuncSetAttribute(Kernel, cudaFuncAttribute, int) { return cudaSuccess; }
inline cudaError_t cudaMemsetAsync(void *memory, int value, size_t num_bytes, cudaStream_t)
{
    std::memset(memory, value, num_bytes);
    return cudaSuccess;
}

/* Kernels of one argument. */
template <class Argument>
cudaError_t cudaLaunchKernel(void (*kernel)(Argument), dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                             cudaStream_t)
{
    const auto &argument = *static_cast<const std::remove_const_t<Argument> *>(arguments[0]);
    emulator::launch(grid.x, block.x, shared_bytes, [&] { kernel(argument); });
    return cudaSuccess;
}

#endif
