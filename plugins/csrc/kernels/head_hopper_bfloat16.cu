#include "head_hopper_kernel.cuh"
#include "head_hopper_launches.h"

namespace draftsmith {

cudaError_t launch_fused_bfloat16(const FusedJob &job, int num_blocks, cudaStream_t stream)
{
    return launch_class<__nv_bfloat16, Ranking::SAME>(job, num_blocks, stream);
}

} // namespace draftsmith
