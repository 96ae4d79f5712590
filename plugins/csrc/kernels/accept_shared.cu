/* How much shared memory a block of LossyAccept takes. */
#include "accept_kernel.cuh"

namespace draftsmith {

size_t accept_shared_bytes(int num_candidates)
{
    size_t power = 1;
    while (power < (size_t)num_candidates)
        power *= 2;
    const size_t slots = 2 * (power > DRAFTSMITH_ACCEPT_MAX_NODES ? power : (size_t)DRAFTSMITH_ACCEPT_MAX_NODES);
    const size_t sizes[] = {slots * sizeof(int), 3 * ((size_t)num_candidates + 1) * sizeof(float),
                            (power > 2 ? power : 2) * sizeof(unsigned long long)};
    size_t region = 0;
    for (const size_t size : sizes)
        region = size > region ? size : region;
    const size_t walk = sizeof(WalkShared) + (3 * (size_t)num_candidates * sizeof(float) + 15) / 16 * 16 + region;
    return walk > sizeof(CutShared) ? walk : sizeof(CutShared);
}

} // namespace draftsmith
