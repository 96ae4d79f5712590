/* Linear layers with vector instructions: 512-bit and 256-bit byte dot products, 256-bit 16-bit products, plain C. */
#ifndef DRAFTSMITH_LINEAR_DOT_H
#define DRAFTSMITH_LINEAR_DOT_H

#include "activations.h"
#include "panel_result.h"

/* Bytes that are asked for ahead of the weights in use; measured best of 0, 2,048 and 8,192. */
#define PREFETCH_BYTES 2048

#if defined(__AVX512VNNI__)
enum { TILE_ROWS = 8 };

INLINE void multiply_tile(const struct linear_job *job, int64_t row, const int num_rows, int64_t panel)
{
    const int64_t depth = job->padded_depth;
    const int8_t *w = job->weights + panel * PANEL_COLUMNS * depth;
    const uint8_t *a = (const uint8_t *)job->activations + row * 2 * depth;
    __m512i sums[2 * TILE_ROWS];
    for (int i = 0; i < 2 * num_rows; i++)
        sums[i] = _mm512_setzero_si512();
    for (int64_t k = 0; k < depth; k += DEPTH_GROUP, w += 64) {
        __builtin_prefetch(w + PREFETCH_BYTES);
        const __m512i group = _mm512_loadu_si512(w);
#pragma GCC unroll 16
        for (int i = 0; i < 2 * num_rows; i++) {
            int32_t four;
            memcpy(&four, a + i * depth + k, 4);
            sums[i] = _mm512_dpbusd_epi32(sums[i], _mm512_set1_epi32(four), group);
        }
    }
    for (int i = 0; i < num_rows; i++)
        store_outputs(job, row + i, panel, join_planes(sums[2 * i], sums[2 * i + 1], plane_offset(job, panel)));
}

#elif defined(__AVXVNNI__)
enum { TILE_ROWS = 2 };

INLINE void multiply_tile(const struct linear_job *job, int64_t row, const int num_rows, int64_t panel)
{
    const int64_t depth = job->padded_depth;
    const int8_t *w = job->weights + panel * PANEL_COLUMNS * depth;
    const uint8_t *a = (const uint8_t *)job->activations + row * 2 * depth;
    __m256i sums[2 * TILE_ROWS][2];
    for (int i = 0; i < 2 * num_rows; i++)
        sums[i][0] = sums[i][1] = _mm256_setzero_si256();
    for (int64_t k = 0; k < depth; k += DEPTH_GROUP, w += 64) {
        __builtin_prefetch(w + PREFETCH_BYTES);
        const __m256i left = _mm256_loadu_si256((const __m256i *)w), right = _mm256_loadu_si256((const __m256i *)w + 1);
#pragma GCC unroll 4
        for (int i = 0; i < 2 * num_rows; i++) {
            int32_t four;
            memcpy(&four, a + i * depth + k, 4);
            const __m256i x = _mm256_set1_epi32(four);
            sums[i][0] = _mm256_dpbusd_avx_epi32(sums[i][0], x, left);
            sums[i][1] = _mm256_dpbusd_avx_epi32(sums[i][1], x, right);
        }
    }
    const __m256i *weight_sums = (const __m256i *)(job->sums + panel * PANEL_COLUMNS);
    const __m256i offset[2] = {_mm256_slli_epi32(_mm256_loadu_si256(weight_sums), 7),
                               _mm256_slli_epi32(_mm256_loadu_si256(weight_sums + 1), 7)};
    for (int i = 0; i < num_rows; i++) {
        const lanes y = {join_planes(sums[2 * i][0], sums[2 * i + 1][0], offset[0]),
                         join_planes(sums[2 * i][1], sums[2 * i + 1][1], offset[1])};
        store_outputs(job, row + i, panel, y);
    }
}

#elif defined(__AVX2__)
enum { TILE_ROWS = 2, SAFE_DEPTH = 1024, SHORT_DEPTH = 512 };
/* Sums that still fit in 31 bits: 32,512 * 127 * 1,024 / 2 of half the inputs, 32,512 * 127 * 512 of all. */

/* Sums over inputs [first, last): every 256-bit register has two partial sums of four outputs. */
INLINE void multiply_part(const int16_t *a, int64_t depth, const int8_t *w, int64_t first, int64_t last,
                          const int num_rows, __m256i sums[TILE_ROWS][4])
{
    for (int i = 0; i < num_rows; i++)
        for (int j = 0; j < 4; j++)
            sums[i][j] = _mm256_setzero_si256();
    for (int64_t k = first; k < last; k += DEPTH_GROUP) {
        const int8_t *group = w + k * PANEL_COLUMNS;
        __builtin_prefetch(group + PREFETCH_BYTES);
        __m256i wide[4];
        for (int j = 0; j < 4; j++)
            wide[j] = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)group + j));
        for (int i = 0; i < num_rows; i++) {
            int64_t four;
            memcpy(&four, a + i * depth + k, 8);
            const __m256i x = _mm256_set1_epi64x(four);
            for (int j = 0; j < 4; j++)
                sums[i][j] = _mm256_add_epi32(sums[i][j], _mm256_madd_epi16(wide[j], x));
        }
    }
}

/* Two partial sums of four outputs to one each. */
INLINE __m256d add_pairs(__m256i sums)
{
    const __m256d low = _mm256_cvtepi32_pd(_mm256_castsi256_si128(sums));
    const __m256d high = _mm256_cvtepi32_pd(_mm256_extracti128_si256(sums, 1));
    return _mm256_permute4x64_pd(_mm256_hadd_pd(low, high), 0xd8); /* from the order 0, 2, 1, 3 */
}

/* multiply_tile up to SHORT_DEPTH, without the way by doubles. */
INLINE void multiply_short(const struct linear_job *job, int64_t row, const int num_rows, int64_t panel,
                           const int8_t *w, const int16_t *a)
{
    __m256i sums[TILE_ROWS][4];
    multiply_part(a, job->padded_depth, w, 0, job->padded_depth, num_rows, sums);
    for (int i = 0; i < num_rows; i++) {
        /* Outputs in the order 0, 1, 4, 5, 2, 3, 6, 7 */
        const __m256i first = _mm256_hadd_epi32(sums[i][0], sums[i][1]);
        const __m256i last = _mm256_hadd_epi32(sums[i][2], sums[i][3]);
        const lanes y = {_mm256_cvtepi32_ps(_mm256_permute4x64_epi64(first, 0xd8)),
                         _mm256_cvtepi32_ps(_mm256_permute4x64_epi64(last, 0xd8))};
        store_outputs(job, row + i, panel, y);
    }
}

INLINE void multiply_tile(const struct linear_job *job, int64_t row, const int num_rows, int64_t panel)
{
    const int64_t depth = job->padded_depth;
    const int8_t *w = job->weights + panel * PANEL_COLUMNS * depth;
    const int16_t *a = (const int16_t *)job->activations + row * depth;
    if (depth <= SHORT_DEPTH) {
        multiply_short(job, row, num_rows, panel, w, a);
        return;
    }
    __m256d totals[TILE_ROWS][4];
    for (int64_t first = 0; first < depth; first += SAFE_DEPTH) {
        __m256i sums[TILE_ROWS][4];
        multiply_part(a, depth, w, first, first + SAFE_DEPTH < depth ? first + SAFE_DEPTH : depth, num_rows, sums);
        for (int i = 0; i < num_rows; i++)
            for (int j = 0; j < 4; j++)
                totals[i][j] = first ? _mm256_add_pd(totals[i][j], add_pairs(sums[i][j])) : add_pairs(sums[i][j]);
    }
    for (int i = 0; i < num_rows; i++) {
        float y[PANEL_COLUMNS];
        for (int j = 0; j < 4; j++)
            _mm_storeu_ps(y + 4 * j, _mm256_cvtpd_ps(totals[i][j]));
        store_outputs(job, row + i, panel, lanes_load(y));
    }
}

#else
enum { TILE_ROWS = 1 };

INLINE void multiply_tile(const struct linear_job *job, int64_t row, const int num_rows, int64_t panel)
{
    (void)num_rows;
    const int64_t depth = job->padded_depth;
    const int8_t *w = job->weights + panel * PANEL_COLUMNS * depth;
    const int16_t *a = (const int16_t *)job->activations + row * depth;
    int64_t totals[PANEL_COLUMNS] = {0};
    for (int64_t first = 0; first < depth; first += 256) {
        const int64_t last = first + 256 < depth ? first + 256 : depth;
        int32_t sums[PANEL_COLUMNS] = {0};
        for (int64_t k = first; k < last; k += DEPTH_GROUP)
            for (int c = 0; c < PANEL_COLUMNS; c++)
                for (int j = 0; j < DEPTH_GROUP; j++)
                    sums[c] += (int32_t)a[k + j] * w[k * PANEL_COLUMNS + c * DEPTH_GROUP + j];
        for (int c = 0; c < PANEL_COLUMNS; c++)
            totals[c] += sums[c];
    }
    float y[PANEL_COLUMNS];
    for (int c = 0; c < PANEL_COLUMNS; c++)
        y[c] = (float)totals[c];
    store_outputs(job, row, panel, lanes_load(y));
}

#endif

/* Whole tiles first, then the rest; the number of rows is a constant in each copy of the tile kernel. */
static void multiply_panels(const struct linear_job *job, int64_t first, int64_t last)
{
    for (int64_t panel = first; panel < last; panel++) {
        int64_t row = 0;
        for (; row + TILE_ROWS <= job->num_rows; row += TILE_ROWS)
            multiply_tile(job, row, TILE_ROWS, panel);
#if defined(__AVX512VNNI__)
        if (job->num_rows - row >= 4) {
            multiply_tile(job, row, 4, panel);
            row += 4;
        }
        if (job->num_rows - row >= 2) {
            multiply_tile(job, row, 2, panel);
            row += 2;
        }
#endif
        for (; row < job->num_rows; row++)
            multiply_tile(job, row, 1, panel);
    }
}

#endif
