/* Half precision on the host: what LossyAccept's kernel uses of it. */
#ifndef DRAFTSMITH_EMULATOR_CUDA_FP16_H
#define DRAFTSMITH_EMULATOR_CUDA_FP16_H

#include "cuda_runtime.h"

struct __half {
    _Float16 value;
};
struct __half2 {
    __half low, high;
};

inline float __half2float(__half value) { return (float)value.value; }
inline __half __float2half_rn(float value) { return {(_Float16)value}; }
inline float __low2float(__half2 pair) { return __half2float(pair.low); }
inline float __high2float(__half2 pair) { return __half2float(pair.high); }
inline __half2 __halves2half2(__half low, __half high) { return {low, high}; }
inline unsigned short __half_as_ushort(__half value)
{
    unsigned short word;
    std::memcpy(&word, &value, sizeof word);
    return word;
}
inline __half __hmax_nan(__half a, __half b)
{
    const float x = __half2float(a), y = __half2float(b);
    return x != x || (y == y && x >= y) ? a : b;
}
inline __half2 __hmax2_nan(__half2 a, __half2 b) { return {__hmax_nan(a.low, b.low), __hmax_nan(a.high, b.high)}; }

#endif
