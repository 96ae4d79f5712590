/* Internal: what the fused path needs for a shape: sizes of tiles and rings, shared memory, workspace. */
#ifndef DRAFTSMITH_HEAD_HOPPER_LAYOUT_H
#define DRAFTSMITH_HEAD_HOPPER_LAYOUT_H

#include "head_hopper.h"

namespace draftsmith {

/* Everything of a pass over `num_rows` rows but pointers to arguments; false where it does not fit. `base`: the
 * workspace, or null for its size alone. */
bool lay_out_fused(const draftsmith_head_shape &shape, const Device &device, int num_rows, void *base, FusedJob &job);

} // namespace draftsmith

#endif
