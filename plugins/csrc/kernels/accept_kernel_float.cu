#include "accept_kernel.cuh"

namespace draftsmith {

cudaError_t launch_accept_float(const AcceptJob &job, int num_blocks, size_t shared_bytes, cudaStream_t stream)
{
    return launch_typed<float>(job, num_blocks, shared_bytes, stream);
}

} // namespace draftsmith
