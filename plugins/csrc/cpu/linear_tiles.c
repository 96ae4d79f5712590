/* Linear layers with AMX tiles: 16 rows (8 rows of x, two planes each) times 16 outputs, 64 inputs an instruction.
 * Activations are those of the 512-bit table. */
#include "linear_tiles.h"

#include <immintrin.h>

#include "panel_result.h"

enum { TILE_TOKENS = 8, PREFETCH_BYTES = 2048 };

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Tiles 0 to 3: sums. 4 and 5: activations, `rows` (0: tile not used) rows each. 6 and 7: weights. */
static void configure_tiles(int first_rows, int second_rows)
{
    struct tile_config config;
    memset(&config, 0, sizeof config);
    config.palette = 1;
    const int rows[8] = {first_rows, first_rows, second_rows, second_rows, first_rows, second_rows, 16, 16};
    for (int i = 0; i < 8; i++) {
        config.rows[i] = (uint8_t)(rows[i] ? rows[i] : 1);
        config.row_bytes[i] = 64;
    }
    /* The memory clobber keeps gcc 12 from dropping the stores above. */
    __asm__ volatile("ldtilecfg %0" : : "m"(config) : "memory");
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
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
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
    int32_t sums[4][256] __attribute__((aligned(64)));
    _tile_stored(0, sums[0], 64);
    _tile_stored(1, sums[1], 64);
    if (both) {
        _tile_stored(2, sums[2], 64);
        _tile_stored(3, sums[3], 64);
    }
    for (int i = 0; i < (both ? 4 : 2); i++) {
        const int64_t above = i / 2 * TILE_TOKENS, count = num_rows - above;
        store_tile(job, sums[i], row + above, count < TILE_TOKENS ? count : TILE_TOKENS, panel + i % 2);
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
    int32_t sums[256] __attribute__((aligned(64)));
    _tile_stored(0, sums, 64);
    store_tile(job, sums, row, num_rows, panel);
}

void multiply_panels_tiles(const struct linear_job *job, int64_t first, int64_t last)
{
    for (int64_t row = 0; row < job->num_rows;) {
        const int64_t left = job->num_rows - row, taken = left < 2 * TILE_TOKENS ? left : 2 * TILE_TOKENS;
        const int64_t above = taken < TILE_TOKENS ? taken : TILE_TOKENS;
        /* Another library may have configured this thread's tiles since the last time. */
        configure_tiles(2 * (int)above, 2 * (int)(taken - above));
        int64_t panel = first;
        for (; panel + 2 <= last; panel += 2)
            taken > TILE_TOKENS ? multiply_pair(job, row, taken, panel, true)
                                : multiply_pair(job, row, taken, panel, false);
        if (panel < last) {
            multiply_single(job, row, above, panel);
            if (taken > TILE_TOKENS) {
                configure_tiles(2 * (int)(taken - above), 0);
                multiply_single(job, row + above, taken - above, panel);
            }
        }
        row += taken;
    }
    _tile_release();
}
