/* Activations as 16-bit numbers, a scale a row: |q| <= 32,512, so that q = 256 hi + lo with hi, lo in 8 bits.
 * Dot instructions take them as two planes of unsigned bytes (hi + 128, lo + 128), others as they are. */
#ifndef DRAFTSMITH_ACTIVATIONS_H
#define DRAFTSMITH_ACTIVATIONS_H

#include "kernels.h"
#include "lanes.h"

#define LARGEST_ACTIVATION 32512.0f

/* What q is multiplied with to give x; 0 for a row of zeros, NaN for a row with NaN or infinity in it. */
INLINE float row_scale(const float *x, int64_t depth, float *inverse)
{
    lanes largest = lanes_splat(0.0f), check = lanes_splat(0.0f);
    for (int64_t i = 0; i < depth; i += 16) {
        const lanes v = lanes_load_part(x + i, depth - i);
        largest = lanes_max(lanes_abs(v), largest);
        check = lanes_fma(v, lanes_splat(0.0f), check); /* 0, or NaN once something is not finite */
    }
    const float most = lanes_largest(largest), zero = lanes_sum(check);
    *inverse = 0.0f;
    if (!(zero == 0.0f))
        return NAN;
    if (most < 1e-30f)
        return 0.0f;
    *inverse = LARGEST_ACTIVATION / most;
    return most / LARGEST_ACTIVATION;
}

/* 16 values q of a row as whole floats; zeros behind its end. */
INLINE lanes quantize_lanes(const float *x, int64_t count, float inverse)
{
    if (inverse == 0.0f || count <= 0)
        return lanes_splat(0.0f);
    const lanes scaled = lanes_round(lanes_mul(lanes_load_part(x, count), lanes_splat(inverse)));
    const lanes limit = lanes_splat(LARGEST_ACTIVATION);
    return lanes_min(lanes_max(scaled, lanes_sub(lanes_splat(0.0f), limit)), limit);
}

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#define ACTIVATION_PLANES 1
#endif

#if defined(ACTIVATION_PLANES)

/* 16 numbers q to 16 bytes of each plane, of `high` first. */
INLINE void store_planes(lanes whole, uint8_t *high, uint8_t *low)
{
#if defined(__AVX512F__)
    const __m512i q = _mm512_add_epi32(_mm512_cvtps_epi32(whole), _mm512_set1_epi32(128 * 256 + 128));
    const __m512i shifted = _mm512_srli_epi32(q, 8); /* hi + 128; the lowest byte of q is lo + 128 */
    _mm_storeu_si128((__m128i *)high, _mm512_cvtepi32_epi8(shifted));
    _mm_storeu_si128((__m128i *)low, _mm512_cvtepi32_epi8(q));
#else
    float f[16];
    uint8_t highs[16], lows[16];
    lanes_store(f, whole);
    for (int i = 0; i < 16; i++) {
        const int32_t q = (int32_t)f[i] + 128 * 256 + 128;
        highs[i] = (uint8_t)(q >> 8);
        lows[i] = (uint8_t)q;
    }
    memcpy(high, highs, 16);
    memcpy(low, lows, 16);
#endif
}

/* uint8 [M, 2, padded K]: hi + 128, then lo + 128. */
static int64_t activation_bytes(int64_t num_rows, int64_t padded_depth) { return num_rows * 2 * padded_depth; }

static void quantize_rows(const struct linear_job *job, int64_t first, int64_t last)
{
    for (int64_t row = first; row < last; row++) {
        const float *x = job->x + row * job->depth;
        uint8_t *high = (uint8_t *)job->activations + row * 2 * job->padded_depth, *low = high + job->padded_depth;
        float inverse;
        job->row_scales[row] = row_scale(x, job->depth, &inverse);
        /* From the end on: with a depth that is no multiple of 16, what is stored too far is overwritten. */
        for (int64_t i = (job->padded_depth - 1) / 16 * 16; i >= 0; i -= 16)
            store_planes(quantize_lanes(x + i, job->depth - i, inverse), high + i, low + i);
    }
}

#else

/* int16 [M, padded K]. */
static int64_t activation_bytes(int64_t num_rows, int64_t padded_depth) { return num_rows * 2 * padded_depth; }

static void quantize_rows(const struct linear_job *job, int64_t first, int64_t last)
{
    for (int64_t row = first; row < last; row++) {
        const float *x = job->x + row * job->depth;
        int16_t *stored = (int16_t *)job->activations + row * job->padded_depth;
        float inverse;
        job->row_scales[row] = row_scale(x, job->depth, &inverse);
        for (int64_t i = 0; i < job->padded_depth; i += 16) {
            float q[16];
            lanes_store(q, quantize_lanes(x + i, job->depth - i, inverse));
            for (int j = 0; j < 16; j++)
                stored[i + j] = (int16_t)q[j];
        }
    }
}

#endif
#endif
