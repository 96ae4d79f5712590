/* Sixteen floats as one value, on every instruction set with the same bits: one 512-bit register, two of 256 bits, or
 * an array. `lanes_fma` rounds once everywhere; nothing else may be contracted (-ffp-contract=off). */
#ifndef DRAFTSMITH_LANES_H
#define DRAFTSMITH_LANES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)

typedef __m512 lanes;
INLINE lanes lanes_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void lanes_store(float *p, lanes a) { _mm512_storeu_ps(p, a); }
INLINE lanes lanes_splat(float a) { return _mm512_set1_ps(a); }
INLINE lanes lanes_add(lanes a, lanes b) { return _mm512_add_ps(a, b); }
INLINE lanes lanes_sub(lanes a, lanes b) { return _mm512_sub_ps(a, b); }
INLINE lanes lanes_mul(lanes a, lanes b) { return _mm512_mul_ps(a, b); }
INLINE lanes lanes_div(lanes a, lanes b) { return _mm512_div_ps(a, b); }
INLINE lanes lanes_fma(lanes a, lanes b, lanes c) { return _mm512_fmadd_ps(a, b, c); }
INLINE lanes lanes_max(lanes a, lanes b) { return _mm512_max_ps(a, b); } /* a > b ? a : b */
INLINE lanes lanes_min(lanes a, lanes b) { return _mm512_min_ps(a, b); } /* a < b ? a : b */
INLINE lanes lanes_abs(lanes a) { return _mm512_abs_ps(a); }
INLINE lanes lanes_round(lanes a) { return _mm512_roundscale_ps(a, 8); }
INLINE lanes lanes_zero_below(lanes a, float limit, lanes b) /* a < limit ? 0 : b */
{
    return _mm512_maskz_mov_ps((__mmask16)~_mm512_cmp_ps_mask(a, lanes_splat(limit), _CMP_LT_OQ), b);
}
INLINE lanes lanes_power_of_two(lanes n) /* 2^n of whole n in -126 to 127 */
{
    __m512i bits = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 23));
}

#elif defined(__AVX2__) && defined(__FMA__)

typedef struct { __m256 low, high; } lanes;
#define LANES_BOTH(f) ((lanes){f(a.low, b.low), f(a.high, b.high)})
INLINE lanes lanes_load(const float *p) { return (lanes){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
INLINE void lanes_store(float *p, lanes a) { _mm256_storeu_ps(p, a.low), _mm256_storeu_ps(p + 8, a.high); }
INLINE lanes lanes_splat(float a) { return (lanes){_mm256_set1_ps(a), _mm256_set1_ps(a)}; }
INLINE lanes lanes_add(lanes a, lanes b) { return LANES_BOTH(_mm256_add_ps); }
INLINE lanes lanes_sub(lanes a, lanes b) { return LANES_BOTH(_mm256_sub_ps); }
INLINE lanes lanes_mul(lanes a, lanes b) { return LANES_BOTH(_mm256_mul_ps); }
INLINE lanes lanes_div(lanes a, lanes b) { return LANES_BOTH(_mm256_div_ps); }
INLINE lanes lanes_max(lanes a, lanes b) { return LANES_BOTH(_mm256_max_ps); }
INLINE lanes lanes_min(lanes a, lanes b) { return LANES_BOTH(_mm256_min_ps); }
INLINE lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return (lanes){_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
INLINE lanes lanes_abs(lanes a)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (lanes){_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
INLINE lanes lanes_round(lanes a) { return (lanes){_mm256_round_ps(a.low, 8), _mm256_round_ps(a.high, 8)}; }
INLINE lanes lanes_zero_below(lanes a, float limit, lanes b)
{
    const __m256 l = _mm256_set1_ps(limit);
    return (lanes){_mm256_andnot_ps(_mm256_cmp_ps(a.low, l, _CMP_LT_OQ), b.low),
                   _mm256_andnot_ps(_mm256_cmp_ps(a.high, l, _CMP_LT_OQ), b.high)};
}
INLINE __m256 half_power_of_two(__m256 n)
{
    __m256i bits = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 23));
}
INLINE lanes lanes_power_of_two(lanes n) { return (lanes){half_power_of_two(n.low), half_power_of_two(n.high)}; }

#else

typedef struct { float at[16]; } lanes;
#define LANES_EACH(expression) lanes r; for (int i = 0; i < 16; i++) r.at[i] = (expression); return r
INLINE lanes lanes_load(const float *p) { lanes r; memcpy(&r, p, sizeof r); return r; }
INLINE void lanes_store(float *p, lanes a) { memcpy(p, &a, sizeof a); }
INLINE lanes lanes_splat(float a) { LANES_EACH(a); }
INLINE lanes lanes_add(lanes a, lanes b) { LANES_EACH(a.at[i] + b.at[i]); }
INLINE lanes lanes_sub(lanes a, lanes b) { LANES_EACH(a.at[i] - b.at[i]); }
INLINE lanes lanes_mul(lanes a, lanes b) { LANES_EACH(a.at[i] * b.at[i]); }
INLINE lanes lanes_div(lanes a, lanes b) { LANES_EACH(a.at[i] / b.at[i]); }
INLINE lanes lanes_fma(lanes a, lanes b, lanes c) { LANES_EACH(fmaf(a.at[i], b.at[i], c.at[i])); }
INLINE lanes lanes_max(lanes a, lanes b) { LANES_EACH(a.at[i] > b.at[i] ? a.at[i] : b.at[i]); }
INLINE lanes lanes_min(lanes a, lanes b) { LANES_EACH(a.at[i] < b.at[i] ? a.at[i] : b.at[i]); }
INLINE lanes lanes_abs(lanes a) { LANES_EACH(fabsf(a.at[i])); }
INLINE lanes lanes_round(lanes a) { LANES_EACH(rintf(a.at[i])); }
INLINE lanes lanes_zero_below(lanes a, float limit, lanes b) { LANES_EACH(a.at[i] < limit ? 0.0f : b.at[i]); }
INLINE lanes lanes_power_of_two(lanes n)
{
    lanes r;
    for (int i = 0; i < 16; i++) {
        const uint32_t bits = (uint32_t)((int32_t)n.at[i] + 127) << 23;
        memcpy(&r.at[i], &bits, 4);
    }
    return r;
}

#endif

/* The first `count` (1 to 16) floats at p, zeros behind them. */
INLINE lanes lanes_load_part(const float *p, int64_t count)
{
    if (count >= 16)
        return lanes_load(p);
    float full[16] = {0};
    memcpy(full, p, (size_t)count * sizeof(float));
    return lanes_load(full);
}

INLINE void lanes_store_part(float *p, lanes a, int64_t count)
{
    if (count >= 16) {
        lanes_store(p, a);
        return;
    }
    float full[16];
    lanes_store(full, a);
    memcpy(p, full, (size_t)count * sizeof(float));
}

INLINE float lanes_sum(lanes a)
{
    float v[16];
    lanes_store(v, a);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            v[i] = v[i] + v[i + half];
    return v[0];
}

INLINE float lanes_largest(lanes a)
{
    float v[16];
    lanes_store(v, a);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            v[i] = v[i] > v[i + half] ? v[i] : v[i + half];
    return v[0];
}

/* exp(x), relative error below 2e-7; exactly 0 below -87, infinity where it overflows, NaN for NaN.
 * Reduction to |r| <= ln(2) / 2 and the Taylor polynomial of degree 7 there. */
INLINE lanes lanes_exp(lanes x)
{
    const lanes bounded = lanes_min(lanes_max(x, lanes_splat(-87.0f)), lanes_splat(88.0f));
    const lanes n = lanes_round(lanes_mul(bounded, lanes_splat(1.44269504088896341f)));
    lanes r = lanes_fma(n, lanes_splat(-0.693359375f), x);
    r = lanes_fma(n, lanes_splat(2.12194440e-4f), r);
    lanes p = lanes_splat(1.0f / 5040.0f);
    p = lanes_fma(p, r, lanes_splat(1.0f / 720.0f));
    p = lanes_fma(p, r, lanes_splat(1.0f / 120.0f));
    p = lanes_fma(p, r, lanes_splat(1.0f / 24.0f));
    p = lanes_fma(p, r, lanes_splat(1.0f / 6.0f));
    p = lanes_fma(p, r, lanes_splat(0.5f));
    p = lanes_fma(p, r, lanes_splat(1.0f));
    p = lanes_fma(p, r, lanes_splat(1.0f));
    return lanes_zero_below(x, -87.0f, lanes_mul(p, lanes_power_of_two(n)));
}

#endif
