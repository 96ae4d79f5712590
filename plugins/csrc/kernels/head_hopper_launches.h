/* Internal: the fused path's launches, a file each. */
#ifndef DRAFTSMITH_HEAD_HOPPER_LAUNCHES_H
#define DRAFTSMITH_HEAD_HOPPER_LAUNCHES_H

#include "head_hopper.h"

namespace draftsmith {

/* hidden's type, and w_vocab's where it is another. */
cudaError_t launch_fused_float16(const FusedJob &job, int num_blocks, cudaStream_t stream);
cudaError_t launch_fused_bfloat16(const FusedJob &job, int num_blocks, cudaStream_t stream);
cudaError_t launch_fused_float16_int8(const FusedJob &job, int num_blocks, cudaStream_t stream);
cudaError_t launch_fused_bfloat16_int8(const FusedJob &job, int num_blocks, cudaStream_t stream);

/* Expands workspace.chosen to chosen_ids. */
void launch_fused_chosen(const FusedJob &job, cudaStream_t stream);

} // namespace draftsmith

#endif
