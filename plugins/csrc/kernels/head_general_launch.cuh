/* How the phases follow each other: on SM 9.0 and later a phase's blocks are set up while the one before runs. */
#ifndef DRAFTSMITH_HEAD_GENERAL_LAUNCH_CUH
#define DRAFTSMITH_HEAD_GENERAL_LAUNCH_CUH

#include "head_general.h"

namespace draftsmith {

/* Before a phase reads or writes the workspace: what earlier phases wrote is there afterwards, and the next one's blocks
 * may take their places. They in turn wait for all of this one to end. */
__device__ __forceinline__ void wait_for_earlier_phases()
{
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

inline void launch_phase(const GeneralJob &job, void (*phase)(GeneralJob), dim3 grid, int num_threads)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(num_threads);
    config.stream = job.stream;
    config.attrs = &attribute;
    config.numAttrs = job.device.major >= 9 ? 1 : 0;
    cudaLaunchKernelEx(&config, phase, job);
}

} // namespace draftsmith

#endif
