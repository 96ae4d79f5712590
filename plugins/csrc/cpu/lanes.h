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
/* value * 2^n, where the lowest bits of `n_bits` taken as an integer are n and the result is a normal number. */
INLINE lanes lanes_scale(lanes value, lanes n_bits)
{
    const __m512i shifted = _mm512_slli_epi32(_mm512_castps_si512(n_bits), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(value), shifted));
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
INLINE __m256 scale_half(__m256 value, __m256 n_bits)
{
    const __m256i shifted = _mm256_slli_epi32(_mm256_castps_si256(n_bits), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(value), shifted));
}
INLINE lanes lanes_scale(lanes value, lanes n_bits)
{
    return (lanes){scale_half(value.low, n_bits.low), scale_half(value.high, n_bits.high)};
}

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
INLINE lanes lanes_scale(lanes value, lanes n_bits)
{
    lanes r;
    for (int i = 0; i < 16; i++) {
        uint32_t bits, shift;
        memcpy(&bits, &value.at[i], 4);
        memcpy(&shift, &n_bits.at[i], 4);
        bits += shift << 23;
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

/* Halves onto each other until one is left: 8, 4, 2, 1. */
#if defined(__AVX2__)

#if defined(__AVX512F__)
INLINE __m256 lower_half(lanes a) { return _mm512_castps512_ps256(a); }
INLINE __m256 upper_half(lanes a) { return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1)); }
#else
INLINE __m256 lower_half(lanes a) { return a.low; }
INLINE __m256 upper_half(lanes a) { return a.high; }
#endif

#define LANES_FOLD(name, op)                                                                                           \
    INLINE float name(lanes a)                                                                                         \
    {                                                                                                                  \
        const __m256 eight = _mm256_##op##_ps(lower_half(a), upper_half(a));                                           \
        const __m128 four = _mm_##op##_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));             \
        const __m128 two = _mm_##op##_ps(four, _mm_movehl_ps(four, four));                                             \
        return _mm_cvtss_f32(_mm_##op##_ss(two, _mm_movehdup_ps(two)));                                                \
    }
LANES_FOLD(lanes_sum, add)
LANES_FOLD(lanes_largest, max)

#else

INLINE float lanes_sum(lanes a)
{
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            a.at[i] = a.at[i] + a.at[i + half];
    return a.at[0];
}

INLINE float lanes_largest(lanes a)
{
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            a.at[i] = a.at[i] > a.at[i + half] ? a.at[i] : a.at[i + half];
    return a.at[0];
}

#endif

/* exp(x), relative error below 3e-7; exactly 0 below -87, 2.2e38 above 88.3, NaN for NaN.
 * x = n ln(2) + r with |r| <= ln(2) / 2; n is rounded by adding 1.5 * 2^23, whose last bits then are n. */
INLINE lanes lanes_exp(lanes x)
{
    const lanes magic = lanes_splat(12582912.0f);
    const lanes bounded = lanes_min(lanes_splat(88.3f), lanes_max(lanes_splat(-87.0f), x)); /* this order keeps NaN */
    const lanes n_bits = lanes_fma(bounded, lanes_splat(1.44269504088896341f), magic);
    const lanes n = lanes_sub(n_bits, magic);
    lanes r = lanes_fma(n, lanes_splat(-0.693359375f), bounded);
    r = lanes_fma(n, lanes_splat(2.12194440e-4f), r);
    lanes p = lanes_splat(1.0f / 720.0f);
    p = lanes_fma(p, r, lanes_splat(1.0f / 120.0f));
    p = lanes_fma(p, r, lanes_splat(1.0f / 24.0f));
    p = lanes_fma(p, r, lanes_splat(1.0f / 6.0f));
    p = lanes_fma(p, r, lanes_splat(0.5f));
    p = lanes_fma(p, r, lanes_splat(1.0f));
    p = lanes_fma(p, r, lanes_splat(1.0f));
    return lanes_zero_below(x, -87.0f, lanes_scale(p, n_bits));
}

#endif
