/* From exact integer sums of a panel to outputs: float(sum) * row scale * output scale + bias, in this order. */
#ifndef DRAFTSMITH_PANEL_RESULT_H
#define DRAFTSMITH_PANEL_RESULT_H

#include "kernels.h"
#include "lanes.h"

/* `sums`: 16 exact sums, each rounded once to float. */
INLINE void store_outputs(const struct linear_job *job, int64_t row, int64_t panel, lanes sums)
{
    const int64_t first = panel * PANEL_COLUMNS, left = job->num_outputs - first;
    lanes y = lanes_mul(lanes_mul(sums, lanes_splat(job->row_scales[row])), lanes_load(job->scales + first));
    if (job->bias)
        y = lanes_add(y, lanes_load_part(job->bias + first, left));
    lanes_store_part(job->y + row * job->y_stride + first, y, left);
}

/* 256 hi + lo of two planes whose activations were 128 too large: `offset` is 128 times the sums of the weights. */
#if defined(__AVX512F__)

INLINE __m256 join_half(__m256i high, __m256i low)
{
    const __m512d sum = _mm512_fmadd_pd(_mm512_cvtepi32_pd(high), _mm512_set1_pd(256.0), _mm512_cvtepi32_pd(low));
    return _mm512_cvtpd_ps(sum);
}

INLINE lanes join_planes(__m512i high, __m512i low, __m512i offset)
{
    high = _mm512_sub_epi32(high, offset), low = _mm512_sub_epi32(low, offset);
    const __m256 a = join_half(_mm512_castsi512_si256(high), _mm512_castsi512_si256(low));
    const __m256 b = join_half(_mm512_extracti64x4_epi64(high, 1), _mm512_extracti64x4_epi64(low, 1));
    return _mm512_insertf32x8(_mm512_castps256_ps512(a), b, 1);
}

INLINE __m512i plane_offset(const struct linear_job *job, int64_t panel)
{
    return _mm512_slli_epi32(_mm512_loadu_si512(job->sums + panel * PANEL_COLUMNS), 7);
}

#elif defined(__AVXVNNI__)

INLINE __m256 join_planes(__m256i high, __m256i low, __m256i offset)
{
    high = _mm256_sub_epi32(high, offset), low = _mm256_sub_epi32(low, offset);
    const __m256d scale = _mm256_set1_pd(256.0);
    const __m256d a = _mm256_fmadd_pd(_mm256_cvtepi32_pd(_mm256_castsi256_si128(high)), scale,
                                      _mm256_cvtepi32_pd(_mm256_castsi256_si128(low)));
    const __m256d b = _mm256_fmadd_pd(_mm256_cvtepi32_pd(_mm256_extracti128_si256(high, 1)), scale,
                                      _mm256_cvtepi32_pd(_mm256_extracti128_si256(low, 1)));
    return _mm256_set_m128(_mm256_cvtpd_ps(b), _mm256_cvtpd_ps(a));
}

#endif
#endif
