/* Device memory filled from a case, CUDA graphs of a piece of work, and the time of their replays. */
#ifndef DRAFTSMITH_TESTS_DEVICE_H
#define DRAFTSMITH_TESTS_DEVICE_H

#include <algorithm>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <functional>
#include <memory>

#include "case_file.h"

inline void check_cuda(cudaError_t status, const char *what)
{
    if (status != cudaSuccess)
        throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

class Buffer {
  public:
    explicit Buffer(size_t num_bytes) : num_bytes_(num_bytes)
    {
        check_cuda(cudaMalloc(&data_, std::max<size_t>(num_bytes, 1)), "cudaMalloc");
    }
    ~Buffer() { cudaFree(data_); }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;

    void *data() const { return data_; }
    size_t num_bytes() const { return num_bytes_; }

    std::vector<char> read() const
    {
        std::vector<char> bytes(num_bytes_);
        check_cuda(cudaMemcpy(bytes.data(), data_, num_bytes_, cudaMemcpyDeviceToHost), "read");
        return bytes;
    }
    void fill(int value) { check_cuda(cudaMemset(data_, value, num_bytes_), "cudaMemset"); }

  private:
    void *data_ = nullptr;
    size_t num_bytes_;
};

/* Uniform in [-scale, scale), the same numbers for a seed every time. */
__device__ inline float random_number(uint32_t seed, uint64_t index, float scale)
{
    uint64_t word = (index + 1) * 0x9E3779B97F4A7C15ull + seed * 0xD1B54A32D192ED03ull;
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ull;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBull;
    return (static_cast<float>((word >> 40) & 0xFFFFFF) / 8388608.0f - 1.0f) * scale;
}

template <class T> __global__ void fill_random(T *values, int64_t total, uint32_t seed, float scale)
{
    for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < total; i += int64_t(gridDim.x) * blockDim.x)
        values[i] = static_cast<T>(random_number(seed, i, scale));
}

inline void fill_randomly(const CaseTensor &tensor, Buffer &buffer)
{
    const size_t first = tensor.source.find(':'), second = tensor.source.find(':', first + 1);
    const auto seed = static_cast<uint32_t>(std::stoul(tensor.source.substr(first + 1, second - first - 1)));
    const float scale = std::stof(tensor.source.substr(second + 1));
    const int64_t total = count(tensor.shape);
    if (tensor.type == "half")
        fill_random<<<1024, 256>>>(static_cast<__half *>(buffer.data()), total, seed, scale);
    else if (tensor.type == "bf16")
        fill_random<<<1024, 256>>>(static_cast<__nv_bfloat16 *>(buffer.data()), total, seed, scale);
    else if (tensor.type == "float")
        fill_random<<<1024, 256>>>(static_cast<float *>(buffer.data()), total, seed, scale);
    else if (tensor.type == "int8")
        fill_random<<<1024, 256>>>(static_cast<int8_t *>(buffer.data()), total, seed, scale);
    else
        throw std::runtime_error("random " + tensor.type + ": expected half, bf16, float or int8");
    check_cuda(cudaDeviceSynchronize(), "fill_random");
}

inline std::unique_ptr<Buffer> load_input(const CaseTensor &tensor)
{
    auto buffer = std::make_unique<Buffer>(count(tensor.shape) * item_bytes(tensor.type));
    if (tensor.source == "zeros")
        buffer->fill(0);
    else if (tensor.source.rfind("random:", 0) == 0)
        fill_randomly(tensor, *buffer);
    else {
        std::ifstream file(tensor.source, std::ios::binary);
        std::vector<char> bytes(buffer->num_bytes());
        if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())) || file.peek() != EOF)
            throw std::runtime_error(tensor.source + ": expected exactly " + std::to_string(bytes.size()) + " bytes");
        check_cuda(cudaMemcpy(buffer->data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "load_input");
    }
    return buffer;
}

inline void write_file(const std::string &path, const void *data, size_t num_bytes)
{
    std::ofstream file(path, std::ios::binary);
    if (!file.write(static_cast<const char *>(data), static_cast<std::streamsize>(num_bytes)))
        throw std::runtime_error(path + ": expected to be writable");
}

using Work = std::function<void(cudaStream_t)>;

/* `work`, captured `repeats` times in one CUDA graph. */
class Graph {
  public:
    Graph(const Work &work, int repeats, cudaStream_t stream)
    {
        cudaGraph_t graph;
        check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin capture");
        for (int i = 0; i < repeats; i++)
            work(stream);
        check_cuda(cudaStreamEndCapture(stream, &graph), "end capture");
        check_cuda(cudaGraphInstantiate(&graph_, graph, 0), "instantiate");
        check_cuda(cudaGraphDestroy(graph), "destroy");
    }
    ~Graph() { cudaGraphExecDestroy(graph_); }
    Graph(const Graph &) = delete;
    Graph &operator=(const Graph &) = delete;

    void replay(cudaStream_t stream) const { check_cuda(cudaGraphLaunch(graph_, stream), "replay"); }

  private:
    cudaGraphExec_t graph_ = nullptr;
};

/* Median microseconds of one call of `work`: graphs of 8 calls, 100 replays after 10. */
inline double time_work(const Work &work, cudaStream_t stream)
{
    constexpr int calls = 8, warm_ups = 10, replays = 100;
    const Graph graph(work, calls, stream);
    cudaEvent_t start, end;
    check_cuda(cudaEventCreate(&start), "event");
    check_cuda(cudaEventCreate(&end), "event");
    std::vector<float> times;
    for (int i = 0; i < warm_ups + replays; i++) {
        check_cuda(cudaEventRecord(start, stream), "record");
        graph.replay(stream);
        check_cuda(cudaEventRecord(end, stream), "record");
        check_cuda(cudaEventSynchronize(end), "wait");
        float milliseconds = 0;
        check_cuda(cudaEventElapsedTime(&milliseconds, start, end), "elapsed");
        if (i >= warm_ups)
            times.push_back(milliseconds * 1000 / calls);
    }
    cudaEventDestroy(start);
    cudaEventDestroy(end);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

#endif
