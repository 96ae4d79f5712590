#include "head_hopper_kernel.cuh"
#include "head_hopper_launches.h"

namespace draftsmith {

cudaError_t launch_fused_bfloat16_int8(const FusedJob &job, int num_blocks, cudaStream_t stream)
{
    return launch_class<__nv_bfloat16, Ranking::INT8>(job, num_blocks, stream);
}

} // namespace draftsmith
