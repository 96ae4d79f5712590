/* Dot products of 16 rows of bytes, wherever they lie, with rows of activations. */
#ifndef DRAFTSMITH_ROW_DOT_H
#define DRAFTSMITH_ROW_DOT_H

#include "activations.h"
#include "panel_result.h"

/* Memory that is needed next, a pointer for each of the 16 rows in use: while 64 bytes of row i are read, those at
 * lines[i] are asked for, and then those `step` bytes on. */
struct ahead {
    const int8_t *const *lines; /* or NULL */
    int64_t step;
    int64_t num_tiles;          /* tiles of rows of x that ask, */
    int64_t tile_bytes, offset; /* each this far behind the one before; the present one's distance from `lines` */
};

INLINE void ask_line(struct ahead ahead, int i, int64_t k)
{
    if (ahead.lines)
        __builtin_prefetch(ahead.lines[i] + ahead.offset + k / DEPTH_STEP * ahead.step);
}

INLINE struct ahead next_tile(struct ahead ahead)
{
    ahead.offset += ahead.tile_bytes;
    if (--ahead.num_tiles == 0)
        ahead.lines = NULL;
    return ahead;
}

INLINE struct ahead skip_lines(struct ahead ahead, int count)
{
    ahead.lines += ahead.lines ? count : 0;
    return ahead;
}

#if defined(__AVX512VNNI__)
enum { DOT_ROWS = 1, DOT_OUTPUTS = 1 };

/* Sums of 16 registers, lane i those of register i. */
INLINE __m512i sum_each(const __m512i v[16])
{
    __m512i t[4];
    for (int i = 0; i < 4; i++) { /* each 128 bits: sums of four registers, in their order */
        const __m512i *r = v + 4 * i;
        const __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(r[0], r[1]), _mm512_unpackhi_epi32(r[0], r[1]));
        const __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(r[2], r[3]), _mm512_unpackhi_epi32(r[2], r[3]));
        t[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    }
    for (int i = 0; i < 4; i += 2)
        t[i] = _mm512_add_epi32(_mm512_shuffle_i32x4(t[i], t[i + 1], 0x88), _mm512_shuffle_i32x4(t[i], t[i + 1], 0xdd));
    return _mm512_add_epi32(_mm512_shuffle_i32x4(t[0], t[2], 0x88), _mm512_shuffle_i32x4(t[0], t[2], 0xdd));
}

INLINE void dot_rows(const struct linear_job *job, int64_t row, const int num_rows,
                     const int8_t *const rows[PANEL_COLUMNS], struct ahead ahead)
{
    (void)num_rows;
    const int64_t depth = job->padded_depth;
    const uint8_t *high_plane = (const uint8_t *)job->activations + row * 2 * depth, *low_plane = high_plane + depth;
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i highs[PANEL_COLUMNS], lows[PANEL_COLUMNS];
    for (int i = 0; i < PANEL_COLUMNS; i++) {
        __m512i high = _mm512_setzero_si512(), low = high, sum = high;
        for (int64_t k = 0; k < depth; k += DEPTH_STEP) {
            ask_line(ahead, i, k);
            const __m512i w = _mm512_loadu_si512(rows[i] + k);
            high = _mm512_dpbusd_epi32(high, _mm512_loadu_si512(high_plane + k), w);
            low = _mm512_dpbusd_epi32(low, _mm512_loadu_si512(low_plane + k), w);
            sum = _mm512_dpbusd_epi32(sum, ones, w);
        }
        sum = _mm512_slli_epi32(sum, 7);
        highs[i] = _mm512_sub_epi32(high, sum);
        lows[i] = _mm512_sub_epi32(low, sum);
    }
    store_outputs(job, row, 0, join_planes(sum_each(highs), sum_each(lows), _mm512_setzero_si512()));
}

#elif defined(__AVXVNNI__)
enum { DOT_ROWS = 1, DOT_OUTPUTS = 4 };

/* Sums of 4 registers, lane i those of register i. */
INLINE __m128i sum_each(const __m256i v[DOT_OUTPUTS])
{
    const __m256i halves = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    return _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
}

/* The exact sums of 4 outputs of a row of x, each rounded once. */
INLINE __m128 dot_four(const uint8_t *high_plane, int64_t depth, const int8_t *const rows[DOT_OUTPUTS],
                       struct ahead ahead)
{
    const __m256i ones = _mm256_set1_epi8(1);
    __m256i highs[DOT_OUTPUTS], lows[DOT_OUTPUTS], sums[DOT_OUTPUTS];
    for (int i = 0; i < DOT_OUTPUTS; i++)
        highs[i] = lows[i] = sums[i] = _mm256_setzero_si256();
    for (int64_t k = 0; k < depth; k += 32) {
        const __m256i high = _mm256_loadu_si256((const __m256i *)(high_plane + k));
        const __m256i low = _mm256_loadu_si256((const __m256i *)(high_plane + depth + k));
#pragma GCC unroll 4
        for (int i = 0; i < DOT_OUTPUTS; i++) {
            if (k % DEPTH_STEP == 0)
                ask_line(ahead, i, k);
            const __m256i w = _mm256_loadu_si256((const __m256i *)(rows[i] + k));
            highs[i] = _mm256_dpbusd_avx_epi32(highs[i], high, w);
            lows[i] = _mm256_dpbusd_avx_epi32(lows[i], low, w);
            sums[i] = _mm256_dpbusd_avx_epi32(sums[i], ones, w);
        }
    }
    for (int i = 0; i < DOT_OUTPUTS; i++) {
        const __m256i offset = _mm256_slli_epi32(sums[i], 7);
        highs[i] = _mm256_sub_epi32(highs[i], offset);
        lows[i] = _mm256_sub_epi32(lows[i], offset);
    }
    const __m256d high = _mm256_cvtepi32_pd(sum_each(highs)), low = _mm256_cvtepi32_pd(sum_each(lows));
    return _mm256_cvtpd_ps(_mm256_fmadd_pd(high, _mm256_set1_pd(256.0), low));
}

INLINE void dot_rows(const struct linear_job *job, int64_t row, const int num_rows,
                     const int8_t *const rows[PANEL_COLUMNS], struct ahead ahead)
{
    (void)num_rows;
    const uint8_t *planes = (const uint8_t *)job->activations + row * 2 * job->padded_depth;
    float y[PANEL_COLUMNS];
    for (int i = 0; i < PANEL_COLUMNS; i += DOT_OUTPUTS)
        _mm_storeu_ps(y + i, dot_four(planes, job->padded_depth, rows + i, skip_lines(ahead, i)));
    store_outputs(job, row, 0, lanes_load(y));
}

#elif defined(__AVX2__)
enum { DOT_ROWS = 2, DOT_OUTPUTS = 4, SAFE_DOT_DEPTH = 2048 };
/* SAFE_DOT_DEPTH: two lanes of eight together still fit in 31 bits, 32,512 * 127 * 2,048 / 4. */

/* Sums over inputs [first, last): every 256-bit register has eight partial sums of one output. */
INLINE void dot_part(const int16_t *x, int64_t depth, const int8_t *const rows[DOT_OUTPUTS],
                     struct ahead ahead, int64_t first, int64_t last, const int num_rows,
                     __m256i sums[DOT_ROWS][DOT_OUTPUTS])
{
    for (int i = 0; i < num_rows; i++)
        for (int j = 0; j < DOT_OUTPUTS; j++)
            sums[i][j] = _mm256_setzero_si256();
    for (int64_t k = first; k < last; k += DEPTH_STEP) {
        for (int j = 0; j < DOT_OUTPUTS; j++)
            ask_line(ahead, j, k);
#pragma GCC unroll 4
        for (int64_t at = k; at < k + DEPTH_STEP; at += 16) {
            __m256i a[DOT_ROWS];
            for (int i = 0; i < num_rows; i++)
                a[i] = _mm256_loadu_si256((const __m256i *)(x + i * depth + at));
            for (int j = 0; j < DOT_OUTPUTS; j++) {
                const __m256i w = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(rows[j] + at)));
                for (int i = 0; i < num_rows; i++)
                    sums[i][j] = _mm256_add_epi32(sums[i][j], _mm256_madd_epi16(w, a[i]));
            }
        }
    }
}

/* Eight partial sums as four. */
INLINE __m256d widen(__m256i sums)
{
    return _mm256_cvtepi32_pd(_mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1)));
}

/* Sums of 4 registers, lane i those of register i, rounded once. */
INLINE __m128 sum_each(const __m256d v[DOT_OUTPUTS])
{
    const __m256d a = _mm256_hadd_pd(v[0], v[1]), b = _mm256_hadd_pd(v[2], v[3]);
    return _mm256_cvtpd_ps(_mm256_add_pd(_mm256_permute2f128_pd(a, b, 0x20), _mm256_permute2f128_pd(a, b, 0x31)));
}

INLINE void dot_rows(const struct linear_job *job, int64_t row, const int num_rows,
                     const int8_t *const rows[PANEL_COLUMNS], struct ahead ahead)
{
    const int64_t depth = job->padded_depth;
    const int16_t *x = (const int16_t *)job->activations + row * depth;
    float y[DOT_ROWS][PANEL_COLUMNS];
    for (int output = 0; output < PANEL_COLUMNS; output += DOT_OUTPUTS) {
        __m256d totals[DOT_ROWS][DOT_OUTPUTS];
        for (int64_t first = 0; first < depth; first += SAFE_DOT_DEPTH) {
            const int64_t last = first + SAFE_DOT_DEPTH < depth ? first + SAFE_DOT_DEPTH : depth;
            __m256i sums[DOT_ROWS][DOT_OUTPUTS];
            dot_part(x, depth, rows + output, skip_lines(ahead, output), first, last, num_rows, sums);
            for (int i = 0; i < num_rows; i++)
                for (int j = 0; j < DOT_OUTPUTS; j++) {
                    const __m256d more = widen(sums[i][j]);
                    totals[i][j] = first ? _mm256_add_pd(totals[i][j], more) : more;
                }
        }
        for (int i = 0; i < num_rows; i++)
            _mm_storeu_ps(y[i] + output, sum_each(totals[i]));
    }
    for (int i = 0; i < num_rows; i++)
        store_outputs(job, row + i, 0, lanes_load(y[i]));
}

#else
enum { DOT_ROWS = 1, DOT_OUTPUTS = 1, SAFE_DOT_DEPTH = 256 };

INLINE void dot_rows(const struct linear_job *job, int64_t row, const int num_rows,
                     const int8_t *const rows[PANEL_COLUMNS], struct ahead ahead)
{
    (void)num_rows, (void)ahead;
    const int64_t depth = job->padded_depth;
    const int16_t *x = (const int16_t *)job->activations + row * depth;
    float y[PANEL_COLUMNS];
    for (int i = 0; i < PANEL_COLUMNS; i++) {
        int64_t total = 0;
        for (int64_t first = 0; first < depth; first += SAFE_DOT_DEPTH) {
            const int64_t last = first + SAFE_DOT_DEPTH < depth ? first + SAFE_DOT_DEPTH : depth;
            int32_t sum = 0;
            for (int64_t k = first; k < last; k++)
                sum += (int32_t)x[k] * rows[i][k];
            total += sum;
        }
        y[i] = (float)total;
    }
    store_outputs(job, row, 0, lanes_load(y));
}

#endif

/* Outputs of 16 weight rows for all rows of x; scales, bias and y of `job` begin with those of the 16. */
INLINE void multiply_rows(const struct linear_job *job, const int8_t *const rows[PANEL_COLUMNS],
                          struct ahead ahead)
{
    int64_t row = 0;
    for (; row + DOT_ROWS <= job->num_rows; row += DOT_ROWS, ahead = next_tile(ahead))
        dot_rows(job, row, DOT_ROWS, rows, ahead);
    for (; row < job->num_rows; row++, ahead = next_tile(ahead))
        dot_rows(job, row, 1, rows, ahead);
}

#endif
