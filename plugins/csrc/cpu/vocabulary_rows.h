/* Products with row-major weights, sixteen rows at a time: dot products along each; with 512 bits and many rows of x, a
 * panel made of the sixteen in the first-level cache. */
#ifndef DRAFTSMITH_VOCABULARY_ROWS_H
#define DRAFTSMITH_VOCABULARY_ROWS_H

#include "linear_dot.h"
#include "row_dot.h"
#include "transpose.h"

#if defined(ACTIVATION_PLANES)

/* The sums of a panel's 16 outputs over `depth` inputs. */
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
#else
    __m256i total[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    const __m256i ones = _mm256_set1_epi8(1);
    for (int64_t k = 0; k < depth; k += DEPTH_GROUP, panel += 64)
        for (int i = 0; i < 2; i++)
            total[i] = _mm256_dpbusd_avx_epi32(total[i], ones, _mm256_loadu_si256((const __m256i *)panel + i));
    for (int i = 0; i < 2; i++)
        _mm256_storeu_si256((__m256i *)sums + i, total[i]);
#endif
}

#endif

/* Rows of weights of a panel: 16, one behind the other. */
INLINE void list_rows(const struct linear_job *job, int64_t panel, const int8_t *rows[PANEL_COLUMNS])
{
    for (int i = 0; i < PANEL_COLUMNS; i++)
        rows[i] = job->weights + (panel * PANEL_COLUMNS + i) * job->padded_depth;
}

/* MOST_ASKING: more gained nothing; where a tile is one row of x, several were not measured. */
enum { AHEAD_ROWS = 4, MOST_ASKING = DOT_ROWS > 1 ? 4 : 1 };

/* What multiply_rows is to ask for: memory AHEAD_ROWS on, in its order; streams side by side took twice as long. Where
 * several tiles of rows of x ask: the next panel, a part each. When the first asked alone, it waited for memory while
 * the others had all in cache: 3 to 8 rows of x took 1.1 to 1.18 times as long. */
INLINE struct ahead list_lines(const struct linear_job *job, int64_t panel, const int8_t *lines[PANEL_COLUMNS])
{
    const int64_t depth = job->padded_depth, num_tiles = (job->num_rows + DOT_ROWS - 1) / DOT_ROWS;
    const int64_t asking = num_tiles < MOST_ASKING ? num_tiles : MOST_ASKING;
    const int64_t distance = asking > 1 ? PANEL_COLUMNS : AHEAD_ROWS;
    const int8_t *next = job->weights + (panel * PANEL_COLUMNS + distance) * depth;
    for (int i = 0; i < PANEL_COLUMNS; i++)
        lines[i] = next + i % DOT_OUTPUTS * (DEPTH_STEP / asking) + i / DOT_OUTPUTS * (DOT_OUTPUTS * depth / asking);
    const int64_t step = (DOT_OUTPUTS * DEPTH_STEP + asking - 1) / asking;
    return (struct ahead){lines, step, asking, PANEL_COLUMNS * depth / asking, 0};
}

/* `job` without its outputs before `panel`. */
INLINE struct linear_job from_panel(const struct linear_job *job, int64_t panel)
{
    const int64_t output = panel * PANEL_COLUMNS;
    struct linear_job part = *job;
    part.num_outputs -= output;
    part.scales += output;
    part.bias += part.bias ? output : 0;
    part.y += output;
    return part;
}

#if defined(__AVX512VNNI__)

/* From this number of rows of x on a panel is worth making: counted instructions. */
enum { MANY_ROWS = 5 };

static void multiply_transposed(const struct linear_job *job, int64_t first, int64_t last)
{
    int8_t memory[PANEL_COLUMNS * job->padded_depth] __attribute__((aligned(64)));
    int32_t sums[PANEL_COLUMNS];
    const int8_t *rows[PANEL_COLUMNS];
    for (int64_t panel = first; panel < last; panel++) {
        struct linear_job part = from_panel(job, panel);
        list_rows(job, panel, rows);
        for (int64_t k = 0; k < job->padded_depth; k += DEPTH_STEP)
            transpose_step(rows, k, memory + k * PANEL_COLUMNS);
        sum_panel(memory, job->padded_depth, sums);
        part.weights = memory;
        part.sums = sums;
        multiply_panels(&part, 0, 1);
    }
}

#endif

static void multiply_vocabulary(const struct linear_job *job, int64_t first, int64_t last)
{
#if defined(__AVX512VNNI__)
    if (job->num_rows >= MANY_ROWS) {
        multiply_transposed(job, first, last);
        return;
    }
#endif
    const int8_t *rows[PANEL_COLUMNS], *lines[PANEL_COLUMNS];
    for (int64_t panel = first; panel < last; panel++) {
        const struct linear_job part = from_panel(job, panel);
        list_rows(job, panel, rows);
        multiply_rows(&part, rows, list_lines(job, panel, lines));
    }
}

#endif
