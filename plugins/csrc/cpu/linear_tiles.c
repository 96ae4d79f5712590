/* Linear layers with AMX tiles: 16 rows (8 rows of x, two planes each) times 16 outputs, 64 inputs an instruction.
 * Activations are those of the 512-bit table. */
#include "linear_tiles.h"

#include "tiles.h"

enum { PREFETCH_BYTES = 2048 };

/* 4 and 5: activations, `first_rows` and `second_rows` (0: tile not used) rows each. 6 and 7: weights. */
static void configure_rows(int first_rows, int second_rows)
{
    const int rows[NUM_TILES] = {first_rows, first_rows,  second_rows, second_rows,
                                 first_rows, second_rows, TILE_ROWS,   TILE_ROWS};
    configure_tiles(rows);
}

INLINE void prefetch_group(const int8_t *w)
{
    for (int i = 0; i < 16; i++)
        __builtin_prefetch(w + PREFETCH_BYTES + 64 * i);
}

static void store_tile(const struct linear_job *job, const int32_t *sums, int64_t row, int64_t num_rows, int64_t panel)
{
    const __m512i offset = plane_offset(job, panel);
    for (int64_t i = 0; i < num_rows; i++) {
        const __m512i high = _mm512_loadu_si512(sums + 32 * i), low = _mm512_loadu_si512(sums + 32 * i + 16);
        store_outputs(job, row + i, panel, join_planes(high, low, offset));
    }
}

/* Up to 8 rows, or with `both` 9 to 16, and two panels: activations are read once for the two. */
INLINE void multiply_pair(const struct linear_job *job, int64_t row, int64_t num_rows, int64_t panel, const bool both)
{
    const int64_t depth = job->padded_depth;
    const uint8_t *a = (const uint8_t *)job->activations + row * 2 * depth;
    const int8_t *w = job->weights + panel * PANEL_COLUMNS * depth, *next = w + PANEL_COLUMNS * depth;
    clear_sums();
    for (int64_t k = 0; k < depth; k += DEPTH_STEP, w += 1024, next += 1024) {
        prefetch_group(w);
        prefetch_group(next);
        _tile_loadd(4, a + k, depth);
        _tile_loadd(6, w, 64);
        _tile_dpbusd(0, 4, 6);
        _tile_loadd(7, next, 64);
        _tile_dpbusd(1, 4, 7);
        if (both) {
            _tile_loadd(5, a + 2 * TILE_TOKENS * depth + k, depth);
            _tile_dpbusd(2, 5, 6);
            _tile_dpbusd(3, 5, 7);
        }
    }
    int32_t sums[4][TILE_NUMBERS] __attribute__((aligned(64)));
    store_sums(sums, both);
    for (int i = 0; i < (both ? 4 : 2); i++) {
        const int64_t above = i / 2 * TILE_TOKENS, count = num_rows - above;
        store_tile(job, sums[i], row + above, tile_tokens(count), panel + i % 2);
    }
}

/* Up to 8 rows, one panel. */
static void multiply_single(const struct linear_job *job, int64_t row, int64_t num_rows, int64_t panel)
{
    const int64_t depth = job->padded_depth;
    const uint8_t *a = (const uint8_t *)job->activations + row * 2 * depth;
    const int8_t *w = job->weights + panel * PANEL_COLUMNS * depth;
    _tile_zero(0);
    for (int64_t k = 0; k < depth; k += DEPTH_STEP, w += 1024) {
        prefetch_group(w);
        _tile_loadd(4, a + k, depth);
        _tile_loadd(6, w, 64);
        _tile_dpbusd(0, 4, 6);
    }
    int32_t sums[TILE_NUMBERS] __attribute__((aligned(64)));
    _tile_stored(0, sums, 64);
    store_tile(job, sums, row, num_rows, panel);
}

void multiply_panels_tiles(const struct linear_job *job, int64_t first, int64_t last)
{
    for (int64_t row = 0; row < job->num_rows;) {
        const int64_t left = job->num_rows - row, taken = left < 2 * TILE_TOKENS ? left : 2 * TILE_TOKENS;
        const int64_t above = tile_tokens(taken);
        configure_rows(2 * (int)above, 2 * (int)(taken - above));
        int64_t panel = first;
        for (; panel + 2 <= last; panel += 2)
            taken > TILE_TOKENS ? multiply_pair(job, row, taken, panel, true)
                                : multiply_pair(job, row, taken, panel, false);
        if (panel < last) {
            multiply_single(job, row, above, panel);
            if (taken > TILE_TOKENS) {
                configure_rows(2 * (int)(taken - above), 0);
                multiply_single(job, row + above, taken - above, panel);
            }
        }
        row += taken;
    }
    _tile_release();
}
