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
#define EVEN_TILES 1
enum { TILE_ROWS = 6, FEW_ROWS = 2, SAFE_DEPTH = 1024, SHORT_DEPTH = 512 };
/* Sums that still fit in 31 bits: 32,512 * 127 * 1,024 / 2 of half the inputs, 32,512 * 127 * 512 of all. */

/* Vectors of four outputs that a tile takes at a time: the whole panel for few rows, else one half after the other. The
 * sums of 6 rows, two vectors of weights and two temporaries are all 16 registers. */
#define TILE_PARTS(num_rows) ((num_rows) <= FEW_ROWS ? 4 : 2)

/* Memory that a tile asks for: `line`, and `pace` bytes on with each DEPTH_GROUP of inputs. FEW_ROWS, as a rule a
 * panel's only tile, ask for the weights PREFETCH_BYTES on instead. */
struct stream {
    const int8_t *line;
    int64_t pace;
};

/* Sums over inputs [first, last): every 256-bit register has two partial sums of four outputs. */
INLINE void multiply_part(const int16_t *a, int64_t depth, const int8_t *w, struct stream next, int64_t first,
                          int64_t last, const int num_rows, __m256i sums[TILE_ROWS][4])
{
    for (int i = 0; i < num_rows; i++)
        for (int j = 0; j < TILE_PARTS(num_rows); j++)
            sums[i][j] = _mm256_setzero_si256();
    next.line += first / DEPTH_GROUP * next.pace;
    for (int64_t k = first; k < last; k += DEPTH_GROUP, next.line += next.pace) {
        const int8_t *group = w + k * PANEL_COLUMNS;
        __builtin_prefetch(num_rows <= FEW_ROWS ? group + PREFETCH_BYTES : next.line);
        __m256i wide[4];
        for (int j = 0; j < TILE_PARTS(num_rows); j++)
            wide[j] = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)group + j));
        for (int i = 0; i < num_rows; i++) {
            int64_t four;
            memcpy(&four, a + i * depth + k, 8);
            const __m256i x = _mm256_set1_epi64x(four);
            for (int j = 0; j < TILE_PARTS(num_rows); j++)
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

/* Up to SHORT_DEPTH: without the way by doubles. */
INLINE void multiply_short(const int16_t *a, int64_t depth, const int8_t *w, struct stream next, const int num_rows,
                           float *y)
{
    __m256i sums[TILE_ROWS][4];
    multiply_part(a, depth, w, next, 0, depth, num_rows, sums);
    for (int i = 0; i < num_rows; i++)
        for (int j = 0; j < TILE_PARTS(num_rows); j += 2) {
            /* Outputs in the order 0, 1, 4, 5, 2, 3, 6, 7 */
            const __m256i eight = _mm256_permute4x64_epi64(_mm256_hadd_epi32(sums[i][j], sums[i][j + 1]), 0xd8);
            _mm256_storeu_ps(y + i * PANEL_COLUMNS + 4 * j, _mm256_cvtepi32_ps(eight));
        }
}

INLINE void multiply_long(const int16_t *a, int64_t depth, const int8_t *w, struct stream next, const int num_rows,
                          float *y)
{
    __m256d totals[TILE_ROWS][4];
    for (int64_t first = 0; first < depth; first += SAFE_DEPTH) {
        const int64_t last = first + SAFE_DEPTH < depth ? first + SAFE_DEPTH : depth;
        __m256i sums[TILE_ROWS][4];
        multiply_part(a, depth, w, next, first, last, num_rows, sums);
        for (int i = 0; i < num_rows; i++)
            for (int j = 0; j < TILE_PARTS(num_rows); j++)
                totals[i][j] = first ? _mm256_add_pd(totals[i][j], add_pairs(sums[i][j])) : add_pairs(sums[i][j]);
    }
    for (int i = 0; i < num_rows; i++)
        for (int j = 0; j < TILE_PARTS(num_rows); j++)
            _mm_storeu_ps(y + i * PANEL_COLUMNS + 4 * j, _mm256_cvtpd_ps(totals[i][j]));
}

INLINE void multiply_tile(const struct linear_job *job, int64_t row, const int num_rows, int64_t panel,
                          struct stream next)
{
    const int64_t depth = job->padded_depth;
    const int8_t *w = job->weights + panel * PANEL_COLUMNS * depth;
    const int16_t *a = (const int16_t *)job->activations + row * depth;
    float y[TILE_ROWS][PANEL_COLUMNS];
    for (int part = 0; part < 4; part += TILE_PARTS(num_rows)) {
        if (depth <= SHORT_DEPTH)
            multiply_short(a, depth, w + 16 * part, next, num_rows, y[0] + 4 * part);
        else
            multiply_long(a, depth, w + 16 * part, next, num_rows, y[0] + 4 * part);
        next.line += depth / DEPTH_GROUP * next.pace;
    }
    for (int i = 0; i < num_rows; i++)
        store_outputs(job, row + i, panel, lanes_load(y[i]));
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

#if defined(EVEN_TILES)

/* The number of rows is a constant in each copy of the tile kernel. */
static void multiply_some(const struct linear_job *job, int64_t row, int64_t num_rows, int64_t panel,
                          struct stream next)
{
    switch (num_rows) {
    case 1: multiply_tile(job, row, 1, panel, next); break;
    case 2: multiply_tile(job, row, 2, panel, next); break;
    case 3: multiply_tile(job, row, 3, panel, next); break;
    case 4: multiply_tile(job, row, 4, panel, next); break;
    case 5: multiply_tile(job, row, 5, panel, next); break;
    default: multiply_tile(job, row, TILE_ROWS, panel, next);
    }
}

/* As few tiles as hold all rows, of about one size, each in two halves, over which the next panel is asked for evenly.
 * With tiles of 2 rows, of which only the first waited for memory while the others had all in cache, 4 to 6 rows took
 * 1.13 to 1.23 times as long, 8 to 16 rows 1.03 to 1.08 times (all layers of a model, from memory, 2 threads). */
static void multiply_panels(const struct linear_job *job, int64_t first, int64_t last)
{
    const int64_t num_tiles = (job->num_rows + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t tile_rows = (job->num_rows + num_tiles - 1) / num_tiles;
    const int64_t pace = (PANEL_COLUMNS * DEPTH_GROUP / 2 + num_tiles - 1) / num_tiles;
    for (int64_t panel = first; panel < last; panel++) {
        struct stream next = {job->weights + (panel + 1) * PANEL_COLUMNS * job->padded_depth, pace};
        for (int64_t row = 0; row < job->num_rows; row += tile_rows) {
            const int64_t left = job->num_rows - row;
            multiply_some(job, row, left < tile_rows ? left : tile_rows, panel, next);
            next.line += job->padded_depth / DEPTH_GROUP * 2 * pace;
        }
    }
}

#else

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
#endif
