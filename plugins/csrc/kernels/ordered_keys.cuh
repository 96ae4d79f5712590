/* Numbers as unsigned keys: the greater key is the greater number. */
#ifndef DRAFTSMITH_ORDERED_KEYS_CUH
#define DRAFTSMITH_ORDERED_KEYS_CUH

#include <cuda_fp16.h>

#include <cstdint>

namespace draftsmith {

/* `score` rounded to fp16, as 16 bits in order. NaN is 0, below all others; both zeros are 0x8000; an overflow is
 * infinity. */
__device__ __forceinline__ uint32_t score_key(float score)
{
    const uint32_t bits = __half_as_ushort(__float2half_rn(score));
    const uint32_t key = (bits & 0x8000u) ? (~bits & 0xffffu) : (bits | 0x8000u);
    if (bits == 0x8000u)
        return 0x8000u;
    return score != score ? 0u : key;
}

/* A logit that is not NaN, as 32 bits in order, never 0. Both zeros are one key. */
__device__ __forceinline__ uint32_t logit_key(float logit)
{
    const uint32_t bits = __float_as_uint(logit + 0.0f);
    return (bits & 0x80000000u) ? ~bits : (bits | 0x80000000u);
}

__device__ __forceinline__ float logit_of_key(uint32_t key)
{
    return __uint_as_float((key & 0x80000000u) ? (key & 0x7fffffffu) : ~key);
}

/* One number to rank candidates by: the greatest logit first, the lowest id among equals. Never 0; no two candidates of
 * a row have the same. */
__device__ __forceinline__ uint64_t candidate_key(float logit, int32_t id)
{
    return ((uint64_t)logit_key(logit) << 32) | (uint32_t)~id;
}

__device__ __forceinline__ int32_t id_of_candidate(uint64_t key) { return (int32_t) ~(uint32_t)key; }
__device__ __forceinline__ float logit_of_candidate(uint64_t key) { return logit_of_key((uint32_t)(key >> 32)); }

} // namespace draftsmith

#endif
