/* Sixteen byte rows as a panel: the four bytes of a 32-bit lane beside each other, then the rows. */
#ifndef DRAFTSMITH_TRANSPOSE_H
#define DRAFTSMITH_TRANSPOSE_H

#include "kernels.h"
#include "lanes.h"

#if defined(__AVX512F__)

/* 16 x 16 numbers of 32 bits. */
INLINE void transpose_lanes(__m512i v[16])
{
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) /* v[i + j]: column 4 q + j of rows i to i + 3 in quarter q */
        for (int j = 0; j < 2; j++) {
            v[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
            v[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
        }
    for (int j = 0; j < 4; j++) {
        const __m512i a = _mm512_shuffle_i32x4(v[j], v[4 + j], 0x88), b = _mm512_shuffle_i32x4(v[j], v[4 + j], 0xdd);
        const __m512i c = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0x88);
        const __m512i d = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0xdd);
        t[j] = _mm512_shuffle_i32x4(a, c, 0x88);
        t[8 + j] = _mm512_shuffle_i32x4(a, c, 0xdd);
        t[4 + j] = _mm512_shuffle_i32x4(b, d, 0x88);
        t[12 + j] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
    for (int i = 0; i < 16; i++)
        v[i] = t[i];
}

/* Bytes [k, k + DEPTH_STEP) of 16 rows to panel [DEPTH_STEP / 4, 16, 4]. */
INLINE void transpose_step(const int8_t *const rows[PANEL_COLUMNS], int64_t k, int8_t *panel)
{
    __m512i v[16];
    for (int i = 0; i < 16; i++)
        v[i] = _mm512_loadu_si512(rows[i] + k);
    transpose_lanes(v);
    for (int i = 0; i < 16; i++)
        _mm512_storeu_si512(panel + 64 * i, v[i]);
}

#endif
#endif
