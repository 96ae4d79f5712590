/* Products with row-major weights: sixteen rows are turned into a panel in the first-level cache, and multiplied. */
#ifndef DRAFTSMITH_VOCABULARY_ROWS_H
#define DRAFTSMITH_VOCABULARY_ROWS_H

#include "linear_dot.h"
#include "transpose.h"

/* The sums of a panel's 16 outputs over `depth` inputs; left as they are where products do not need them. */
INLINE void sum_panel(const int8_t *panel, int64_t depth, int32_t sums[PANEL_COLUMNS])
{
#if defined(__AVX512VNNI__)
    __m512i total[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    const __m512i ones = _mm512_set1_epi8(1);
    int64_t k = 0;
    for (; k + 2 * DEPTH_GROUP <= depth; k += 2 * DEPTH_GROUP, panel += 128) {
        total[0] = _mm512_dpbusd_epi32(total[0], ones, _mm512_loadu_si512(panel));
        total[1] = _mm512_dpbusd_epi32(total[1], ones, _mm512_loadu_si512(panel + 64));
    }
    if (k < depth)
        total[0] = _mm512_dpbusd_epi32(total[0], ones, _mm512_loadu_si512(panel));
    _mm512_storeu_si512(sums, _mm512_add_epi32(total[0], total[1]));
#elif defined(__AVXVNNI__)
    __m256i total[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    const __m256i ones = _mm256_set1_epi8(1);
    for (int64_t k = 0; k < depth; k += DEPTH_GROUP, panel += 64)
        for (int i = 0; i < 2; i++)
            total[i] = _mm256_dpbusd_avx_epi32(total[i], ones, _mm256_loadu_si256((const __m256i *)panel + i));
    for (int i = 0; i < 2; i++)
        _mm256_storeu_si256((__m256i *)sums + i, total[i]);
#else
    (void)panel, (void)depth, (void)sums;
#endif
}

/* `job`, whose first panel are 16 weight rows: sums [16] and memory [16, padded depth] are the caller's. */
INLINE void take_rows(struct linear_job *job, const int8_t *const rows[PANEL_COLUMNS], int8_t *memory, int32_t *sums)
{
    for (int64_t k = 0; k < job->padded_depth; k += DEPTH_STEP)
        transpose_step(rows, k, memory + k * PANEL_COLUMNS);
    sum_panel(memory, job->padded_depth, sums);
    job->weights = memory;
    job->sums = sums;
}

static void multiply_vocabulary(const struct linear_job *job, int64_t first, int64_t last)
{
    const int64_t depth = job->padded_depth;
    int8_t memory[PANEL_COLUMNS * depth] __attribute__((aligned(64)));
    int32_t sums[PANEL_COLUMNS];
    for (int64_t panel = first; panel < last; panel++) {
        const int64_t output = panel * PANEL_COLUMNS;
        const int8_t *rows[PANEL_COLUMNS];
        for (int i = 0; i < PANEL_COLUMNS; i++)
            rows[i] = job->weights + (output + i) * depth;
        struct linear_job part = *job;
        take_rows(&part, rows, memory, sums);
        part.num_outputs = job->num_outputs - output;
        part.scales += output;
        part.bias += part.bias ? output : 0;
        part.y += output;
        multiply_panels(&part, 0, 1);
    }
}

#endif
