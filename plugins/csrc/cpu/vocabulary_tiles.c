/* Products with row-major weights by AMX tiles: 16 weight rows, as they lie, times 16 columns (8 rows of x, two planes
 * each), 64 inputs an instruction. Activations are those of the 512-bit table, made signed. */
#include "linear_tiles.h"

#include "tiles.h"
#include "transpose.h"

/* Up to FEW_ROWS rows of x leave most of a tile empty: dot products along rows then wait for memory alone. */
enum { MOST_GROUPS = 2, FEW_ROWS = 2 };

extern const struct kernels kernels_avx512vnni;

/* All full. 4 and 5: columns. 6 and 7: weights. */
static const int full_tiles[NUM_TILES] = {16, 16, 16, 16, 16, 16, 16, 16};

struct columns {
    const struct linear_job *job;
    int64_t row, num_rows; /* of x: up to 16 */
    const int8_t *groups;  /* [2, padded K / 4, 16, 4]: columns hi, lo of 8 rows each */
};

/* The planes of up to 8 rows of x as a panel of signed bytes; columns that are not used repeat the first. */
static void arrange_columns(const struct linear_job *job, int64_t row, int64_t num_rows, int8_t *panel)
{
    const int64_t depth = job->padded_depth;
    const int8_t *planes = (const int8_t *)job->activations + row * 2 * depth, *rows[PANEL_COLUMNS];
    for (int64_t i = 0; i < PANEL_COLUMNS; i++)
        rows[i] = planes + (i < 2 * num_rows ? i : 0) * depth;
    const __m512i sign = _mm512_set1_epi8(-128);
    for (int64_t k = 0; k < depth; k += DEPTH_STEP) {
        int8_t *step = panel + k * PANEL_COLUMNS;
        transpose_step(rows, k, step);
        for (int i = 0; i < 1024; i += 64)
            _mm512_storeu_si512(step + i, _mm512_xor_si512(_mm512_loadu_si512(step + i), sign));
    }
}

/* One tile of sums: 16 outputs of up to 8 rows of x. */
static void store_columns(const struct linear_job *job, const int32_t *sums, int64_t row, int64_t num_rows,
                          int64_t panel)
{
    const __m512i at = _mm512_setr_epi64(0, 64, 128, 192, 256, 320, 384, 448);
    const __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odds = _mm512_add_epi32(evens, _mm512_set1_epi32(1));
    for (int64_t i = 0; i < num_rows; i++) {
        /* The pairs hi, lo of 8 outputs each. */
        const __m512i first = _mm512_i64gather_epi64(at, sums + 2 * i, 1);
        const __m512i last = _mm512_i64gather_epi64(at, sums + 2 * i + 128, 1);
        const __m512i high = _mm512_permutex2var_epi32(first, evens, last);
        const __m512i low = _mm512_permutex2var_epi32(first, odds, last);
        store_outputs(job, row + i, panel, join_planes(high, low, _mm512_setzero_si512()));
    }
}

/* Two panels, one or two groups of columns. */
INLINE void multiply_pair(const struct columns *x, int64_t panel, const bool both)
{
    const struct linear_job *job = x->job;
    const int64_t depth = job->padded_depth;
    const int8_t *w = job->weights + panel * PANEL_COLUMNS * depth, *next = w + PANEL_COLUMNS * depth;
    const int8_t *ahead = next + PANEL_COLUMNS * depth;
    const int8_t *left = x->groups, *right = left + PANEL_COLUMNS * depth;
    clear_sums();
    for (int64_t k = 0; k < depth; k += DEPTH_STEP, ahead += PANEL_COLUMNS * DEPTH_STEP) {
        /* The next two panels, each as a stream of its own, into the second-level cache: measured best. */
        for (int i = 0; i < PANEL_COLUMNS; i++) {
            __builtin_prefetch(ahead + i * DEPTH_STEP, 0, 2);
            __builtin_prefetch(ahead + PANEL_COLUMNS * depth + i * DEPTH_STEP, 0, 2);
        }
        _tile_loadd(4, left + k * PANEL_COLUMNS, 64);
        _tile_loadd(6, w + k, depth);
        _tile_dpbssd(0, 6, 4);
        _tile_loadd(7, next + k, depth);
        _tile_dpbssd(1, 7, 4);
        if (both) {
            _tile_loadd(5, right + k * PANEL_COLUMNS, 64);
            _tile_dpbssd(2, 6, 5);
            _tile_dpbssd(3, 7, 5);
        }
    }
    int32_t sums[4][TILE_NUMBERS] __attribute__((aligned(64)));
    store_sums(sums, both);
    for (int i = 0; i < (both ? 4 : 2); i++) {
        const int64_t above = i / 2 * TILE_TOKENS, count = x->num_rows - above;
        store_columns(job, sums[i], x->row + above, tile_tokens(count), panel + i % 2);
    }
}

/* A last panel without a neighbour. */
static void multiply_single(const struct columns *x, int64_t group, int64_t panel)
{
    const int64_t depth = x->job->padded_depth, above = group * TILE_TOKENS, count = x->num_rows - above;
    const int8_t *w = x->job->weights + panel * PANEL_COLUMNS * depth;
    const int8_t *columns = x->groups + group * PANEL_COLUMNS * depth;
    _tile_zero(0);
    for (int64_t k = 0; k < depth; k += DEPTH_STEP) {
        _tile_loadd(4, columns + k * PANEL_COLUMNS, 64);
        _tile_loadd(6, w + k, depth);
        _tile_dpbssd(0, 6, 4);
    }
    int32_t sums[TILE_NUMBERS] __attribute__((aligned(64)));
    _tile_stored(0, sums, 64);
    store_columns(x->job, sums, x->row + above, tile_tokens(count), panel);
}

void multiply_vocabulary_tiles(const struct linear_job *job, int64_t first, int64_t last)
{
    if (job->num_rows <= FEW_ROWS) {
        kernels_avx512vnni.multiply_vocabulary(job, first, last);
        return;
    }
    int8_t groups[MOST_GROUPS * PANEL_COLUMNS * job->padded_depth] __attribute__((aligned(64)));
    configure_tiles(full_tiles);
    for (int64_t row = 0; row < job->num_rows; row += MOST_GROUPS * TILE_TOKENS) {
        const int64_t left = job->num_rows - row;
        const struct columns x = {job, row, left < MOST_GROUPS * TILE_TOKENS ? left : MOST_GROUPS * TILE_TOKENS, groups};
        const bool both = x.num_rows > TILE_TOKENS;
        arrange_columns(job, row, tile_tokens(x.num_rows), groups);
        if (both)
            arrange_columns(job, row + TILE_TOKENS, x.num_rows - TILE_TOKENS, groups + PANEL_COLUMNS * job->padded_depth);
        int64_t panel = first;
        for (; panel + 2 <= last; panel += 2)
            both ? multiply_pair(&x, panel, true) : multiply_pair(&x, panel, false);
        for (int64_t group = 0; panel < last && group <= both; group++)
            multiply_single(&x, group, panel);
    }
    _tile_release();
}
