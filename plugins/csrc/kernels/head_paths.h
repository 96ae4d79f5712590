/* Internal: how SpecVocabHead runs. spec_vocab_head.cu checks everything (types, ranges, null, alignment to the
 * element, workspace size) before it calls this. */
#ifndef DRAFTSMITH_HEAD_PATHS_H
#define DRAFTSMITH_HEAD_PATHS_H

#include "launch_checks.h"
#include "spec_vocab_head.h"

namespace draftsmith {

/* Rows of w_vocab. */
inline int num_ranked(const draftsmith_head_shape &shape)
{
    return (shape.num_vocab + shape.group_size - 1) / shape.group_size;
}

/* Ranked rows that a row keeps. */
inline int num_kept(const draftsmith_head_shape &shape)
{
    return (shape.num_candidates + shape.group_size - 1) / shape.group_size;
}

/* Sizes are a function of the shape and the device alone, never of data or pointers. */
size_t general_workspace_bytes(const draftsmith_head_shape &shape, const Device &device);
draftsmith_status general_launch(const draftsmith_head_shape &shape, const draftsmith_head_arguments &arguments,
                                 const Device &device, cudaStream_t stream);

bool hopper_supports(const draftsmith_head_shape &shape, const Device &device);
/* Of a supported shape: whether it takes these, the workspace apart. */
bool hopper_takes_pointers(const draftsmith_head_shape &shape, const draftsmith_head_arguments &arguments,
                           const Device &device);
size_t hopper_workspace_bytes(const draftsmith_head_shape &shape, const Device &device);
draftsmith_status hopper_launch(const draftsmith_head_shape &shape, const draftsmith_head_arguments &arguments,
                                const Device &device, cudaStream_t stream);

} // namespace draftsmith

#endif
