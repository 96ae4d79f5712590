/* Kernels of speculative vocabularies: cheap scores of all tokens, exact logits of some, sums of exponentials. */
#ifndef DRAFTSMITH_CANDIDATE_KERNELS_H
#define DRAFTSMITH_CANDIDATE_KERNELS_H

#include "vocabulary_rows.h"

enum { PROJECTED_ROWS = 4 };

#if defined(__AVX512VNNI__)

/* A panel of the ranking for some rows; the sums of its weights come along. */
INLINE void rank_tile(const struct linear_job *job, int64_t row, const int num_rows, int64_t panel)
{
    const int64_t depth = job->padded_depth;
    const int8_t *w = job->weights + panel * PANEL_COLUMNS * depth;
    const uint8_t *a = (const uint8_t *)job->activations + row * 2 * depth;
    __m512i sums[8], total = _mm512_setzero_si512();
    for (int i = 0; i < 2 * num_rows; i++)
        sums[i] = _mm512_setzero_si512();
    for (int64_t k = 0; k < depth; k += DEPTH_GROUP, w += 64) {
        __builtin_prefetch(w + PREFETCH_BYTES);
        const __m512i group = _mm512_loadu_si512(w);
        total = _mm512_dpbusd_epi32(total, _mm512_set1_epi8(1), group);
#pragma GCC unroll 8
        for (int i = 0; i < 2 * num_rows; i++) {
            int32_t four;
            memcpy(&four, a + i * depth + k, 4);
            sums[i] = _mm512_dpbusd_epi32(sums[i], _mm512_set1_epi32(four), group);
        }
    }
    total = _mm512_slli_epi32(total, 7);
    for (int i = 0; i < num_rows; i++)
        store_outputs(job, row + i, panel, join_planes(sums[2 * i], sums[2 * i + 1], total));
}

static void rank_panels(const struct linear_job *job, int64_t first, int64_t last)
{
    for (int64_t panel = first; panel < last; panel++) {
        int64_t row = 0;
        for (; row + 4 <= job->num_rows; row += 4)
            rank_tile(job, row, 4, panel);
        if (row + 2 <= job->num_rows) {
            rank_tile(job, row, 2, panel);
            row += 2;
        }
        if (row < job->num_rows)
            rank_tile(job, row, 1, panel);
    }
}

#elif defined(ACTIVATION_PLANES)

static void rank_panels(const struct linear_job *job, int64_t first, int64_t last)
{
    for (int64_t panel = first; panel < last; panel++) {
        struct linear_job part = from_panel(job, panel);
        int32_t sums[PANEL_COLUMNS];
        part.weights = job->weights + panel * PANEL_COLUMNS * job->padded_depth;
        part.sums = sums;
        sum_panel(part.weights, job->padded_depth, sums);
        multiply_panels(&part, 0, 1);
    }
}

#else

static void rank_panels(const struct linear_job *job, int64_t first, int64_t last)
{
    multiply_panels(job, first, last);
}

#endif

/* The rows and scales of ids [first, first + 16); the last id again behind the end. */
INLINE void find_rows(const struct linear_job *job, const int32_t *ids, int64_t first, int64_t count,
                      const int8_t *rows[PANEL_COLUMNS], float scales[PANEL_COLUMNS])
{
    for (int64_t i = 0; i < PANEL_COLUMNS; i++) {
        const int64_t id = ids[first + i < count ? first + i : count - 1];
        rows[i] = job->weights + id * job->padded_depth;
        scales[i] = job->scales[id];
    }
}

static void multiply_candidates(const struct linear_job *job, const int32_t *ids, int64_t count)
{
    const int8_t *rows[PANEL_COLUMNS], *next[PANEL_COLUMNS];
    float scales[PANEL_COLUMNS], next_scales[PANEL_COLUMNS];
    find_rows(job, ids, 0, count, rows, scales);
    for (int64_t i = 0; i < count; i += PANEL_COLUMNS) {
        find_rows(job, ids, i + PANEL_COLUMNS, count, next, next_scales);
        struct linear_job part = *job;
        part.num_outputs = count - i;
        part.scales = scales;
        part.y += i;
        multiply_rows(&part, rows, (struct ahead){next, DEPTH_STEP, 1, 0, 0});
        memcpy(rows, next, sizeof rows);
        memcpy(scales, next_scales, sizeof scales);
    }
}

/* One output of some rows: the weights are read once for them. */
INLINE void project_rows(const struct projection *job, int64_t row, const int num_rows, int64_t output)
{
    const int64_t depth = job->depth;
    const float *weights = job->weights + output * depth, *x = job->x + row * depth;
    lanes sums[PROJECTED_ROWS];
    for (int i = 0; i < num_rows; i++)
        sums[i] = lanes_splat(0.0f);
    for (int64_t k = 0; k < depth; k += 16) {
        const lanes w = lanes_load_part(weights + k, depth - k);
        for (int i = 0; i < num_rows; i++)
            sums[i] = lanes_fma(w, lanes_load_part(x + i * depth + k, depth - k), sums[i]);
    }
    for (int i = 0; i < num_rows; i++)
        job->y[(row + i) * job->num_outputs + output] = lanes_sum(sums[i]);
}

static void project(const struct projection *job, int64_t first, int64_t last)
{
    for (int64_t output = first; output < last; output++) {
        int64_t row = 0;
        for (; row + PROJECTED_ROWS <= job->num_rows; row += PROJECTED_ROWS)
            project_rows(job, row, PROJECTED_ROWS, output);
        for (; row < job->num_rows; row++)
            project_rows(job, row, 1, output);
    }
}

static int64_t keep_above(const float *scores, int64_t first, int64_t last, float floor, int32_t *ids)
{
    int64_t kept = 0, i = first;
#if defined(__AVX512F__)
    const __m512i count_up = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (; i + 16 <= last; i += 16) {
        const __mmask16 keep = _mm512_cmp_ps_mask(_mm512_loadu_ps(scores + i), _mm512_set1_ps(floor), _CMP_NLT_UQ);
        const __m512i at = _mm512_add_epi32(_mm512_set1_epi32((int)i), count_up);
        /* Never past the end: no more can be kept than were looked at. */
        _mm512_storeu_si512(ids + kept, _mm512_maskz_compress_epi32(keep, at));
        kept += __builtin_popcount(keep);
    }
#elif defined(__AVX2__)
    const __m256 least = _mm256_set1_ps(floor);
    for (; i + 16 <= last; i += 16) {
        const lanes score = lanes_load(scores + i);
        unsigned keep = (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(score.low, least, _CMP_NLT_UQ)) |
                        (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(score.high, least, _CMP_NLT_UQ)) << 8;
        for (; keep; keep &= keep - 1)
            ids[kept++] = (int32_t)i + __builtin_ctz(keep);
    }
#endif
    for (; i < last; i++) {
        ids[kept] = (int32_t)i;
        kept += !(scores[i] < floor);
    }
    return kept;
}

static void sum_exponentials(const float *logits, int64_t count, float factor, float *largest, float *sum)
{
    lanes most = lanes_splat(-INFINITY), total = lanes_splat(0.0f);
    for (int64_t i = 0; i < count; i += 16) {
        float padded[16];
        const int64_t left = count - i < 16 ? count - i : 16;
        for (int64_t j = left; j < 16; j++)
            padded[j] = logits[i];
        if (left < 16)
            memcpy(padded, logits + i, (size_t)left * sizeof(float));
        most = lanes_max(lanes_mul(lanes_load(left < 16 ? padded : logits + i), lanes_splat(factor)), most);
    }
    *largest = lanes_largest(most);
    if (*largest == -INFINITY || *largest == INFINITY) {
        *sum = *largest > 0 ? 1.0f : 0.0f;
        for (int64_t i = 0; i < count; i++)
            *sum = logits[i] == logits[i] ? *sum : NAN;
        return;
    }
    for (int64_t i = 0; i < count; i += 16) {
        float part[16];
        const lanes x = lanes_sub(lanes_mul(lanes_load_part(logits + i, count - i), lanes_splat(factor)),
                                  lanes_splat(*largest));
        lanes_store(part, lanes_exp(x));
        for (int64_t j = count - i; j < 16; j++)
            part[j] = 0.0f;
        total = lanes_add(total, lanes_load(part));
    }
    *sum = lanes_sum(total);
}

#endif
