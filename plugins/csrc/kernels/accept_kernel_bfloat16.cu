#include "accept_kernel.cuh"

namespace draftsmith {

cudaError_t launch_accept_bfloat16(const AcceptJob &job, int num_blocks, size_t shared_bytes, cudaStream_t stream)
{
    return launch_typed<__nv_bfloat16>(job, num_blocks, shared_bytes, stream);
}

} // namespace draftsmith
