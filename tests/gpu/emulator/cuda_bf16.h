/* bfloat16 on the host: what LossyAccept's kernel uses of it. */
#ifndef DRAFTSMITH_EMULATOR_CUDA_BF16_H
#define DRAFTSMITH_EMULATOR_CUDA_BF16_H

#include "cuda_runtime.h"

struct __nv_bfloat16 {
    unsigned short word;
};
struct __nv_bfloat162 {
    __nv_bfloat16 low, high;
};

inline float __bfloat162float(__nv_bfloat16 value) { return __uint_as_float((unsigned)value.word << 16); }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) { return {low, high}; }
inline __nv_bfloat16 __hmax_nan(__nv_bfloat16 a, __nv_bfloat16 b)
{
    const float x = __bfloat162float(a), y = __bfloat162float(b);
    return x != x || (y == y && x >= y) ? a : b;
}
inline __nv_bfloat162 __hmax2_nan(__nv_bfloat162 a, __nv_bfloat162 b)
{
    return {__hmax_nan(a.low, b.low), __hmax_nan(a.high, b.high)};
}

#endif
