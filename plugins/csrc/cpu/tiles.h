/* What the AMX kernels share: 8 rows of x, two planes each, fill the 16 rows or columns of a tile; tiles 0 to 3 hold
 * sums. */
#ifndef DRAFTSMITH_TILES_H
#define DRAFTSMITH_TILES_H

#include <immintrin.h>

#include "panel_result.h"

enum { TILE_TOKENS = 8, NUM_TILES = 8, TILE_ROWS = 16, TILE_ROW_BYTES = 64, TILE_NUMBERS = 256 };

/* Another library may have configured this thread's tiles since the last time: to be called anew in every task. */
INLINE void configure_tiles(const int rows[NUM_TILES])
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config;
    memset(&config, 0, sizeof config);
    config.palette = 1;
    for (int i = 0; i < NUM_TILES; i++) {
        config.rows[i] = (uint8_t)(rows[i] ? rows[i] : 1);
        config.row_bytes[i] = TILE_ROW_BYTES;
    }
    /* The memory clobber keeps gcc 12 from dropping the stores above. */
    __asm__ volatile("ldtilecfg %0" : : "m"(config) : "memory");
}

INLINE void clear_sums(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

/* The sums of the first two tiles, or of all four. */
INLINE void store_sums(int32_t sums[4][TILE_NUMBERS], const bool all)
{
    _tile_stored(0, sums[0], TILE_ROW_BYTES);
    _tile_stored(1, sums[1], TILE_ROW_BYTES);
    if (all) {
        _tile_stored(2, sums[2], TILE_ROW_BYTES);
        _tile_stored(3, sums[3], TILE_ROW_BYTES);
    }
}

/* Of `count` rows of x that are left, those that one tile takes. */
INLINE int64_t tile_tokens(int64_t count) { return count < TILE_TOKENS ? count : TILE_TOKENS; }

#endif
