/* Products of 16 rows with 8 rows by a warp, from operands as they lie in memory.
 *
 * Both operands are row-major along the summed dimension. A chunk is what 16 bytes a thread hold of it: CHUNK elements,
 * of which thread `lane` has those at (lane % 4) * 16 bytes, of rows lane / 4 and lane / 4 + 8 of the first operand (x),
 * and of row lane / 4 of the second (w). The order in which a chunk is summed is the hardware's, the same for both.
 * Sums: [0], [1]: x row lane / 4, w rows 2 (lane % 4) and one more; [2], [3]: x row lane / 4 + 8. */
#ifndef DRAFTSMITH_WARP_MMA_CUH
#define DRAFTSMITH_WARP_MMA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

namespace draftsmith {

template <class T> __device__ __forceinline__ void multiply_step(float (&sum)[4], uint2 low, uint2 high, uint2 w);

/* 16 elements: x row lane / 4 (low) and + 8 (high). */
template <>
__device__ __forceinline__ void multiply_step<__half>(float (&sum)[4], uint2 low, uint2 high, uint2 w)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(low.x), "r"(high.x), "r"(low.y), "r"(high.y), "r"(w.x), "r"(w.y));
#else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(low.x), "r"(high.x), "r"(w.x));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(low.y), "r"(high.y), "r"(w.y));
#endif
}

/* The launch refuses bfloat16 below SM 8.0. */
template <>
__device__ __forceinline__ void multiply_step<__nv_bfloat16>(float (&sum)[4], uint2 low, uint2 high, uint2 w)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(low.x), "r"(high.x), "r"(low.y), "r"(high.y), "r"(w.x), "r"(w.y));
#else
    __trap();
#endif
}

/* A chunk of 32 elements of T (__half or __nv_bfloat16). */
template <class T>
__device__ __forceinline__ void multiply_chunk(float (&sum)[4], const uint4 &low, const uint4 &high, const uint4 &w)
{
    multiply_step<T>(sum, make_uint2(low.x, low.y), make_uint2(high.x, high.y), make_uint2(w.x, w.y));
    multiply_step<T>(sum, make_uint2(low.z, low.w), make_uint2(high.z, high.w), make_uint2(w.z, w.w));
}

/* 32 elements of int8. */
__device__ __forceinline__ void multiply_step_int8(int (&sum)[4], uint2 low, uint2 high, uint2 w)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
        : "r"(low.x), "r"(high.x), "r"(low.y), "r"(high.y), "r"(w.x), "r"(w.y));
#else
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
        : "+r"(sum[0]), "+r"(sum[1]) : "r"(low.x), "r"(w.x));
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
        : "+r"(sum[0]), "+r"(sum[1]) : "r"(low.y), "r"(w.y));
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
        : "+r"(sum[2]), "+r"(sum[3]) : "r"(high.x), "r"(w.x));
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
        : "+r"(sum[2]), "+r"(sum[3]) : "r"(high.y), "r"(w.y));
#endif
}

/* A chunk of 64 elements of int8. */
__device__ __forceinline__ void multiply_chunk_int8(int (&sum)[4], const uint4 &low, const uint4 &high, const uint4 &w)
{
    multiply_step_int8(sum, make_uint2(low.x, low.y), make_uint2(high.x, high.y), make_uint2(w.x, w.y));
    multiply_step_int8(sum, make_uint2(low.z, low.w), make_uint2(high.z, high.w), make_uint2(w.z, w.w));
}

/* Four e4m3 to four of T, exactly. */
template <class T> __device__ __forceinline__ uint2 widen_float8(uint32_t four);

template <> __device__ __forceinline__ uint2 widen_float8<__half>(uint32_t four)
{
    const __half2_raw low = __nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)(four & 0xffffu), __NV_E4M3);
    const __half2_raw high = __nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)(four >> 16), __NV_E4M3);
    return make_uint2((uint32_t)low.x | (uint32_t)low.y << 16, (uint32_t)high.x | (uint32_t)high.y << 16);
}

template <> __device__ __forceinline__ uint2 widen_float8<__nv_bfloat16>(uint32_t four)
{
    uint32_t pairs[2];
    for (int i = 0; i < 2; i++) {
        const __half2_raw two =
            __nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)(four >> 16 * i & 0xffffu), __NV_E4M3);
        const uint32_t first = __float_as_uint(__half2float(__ushort_as_half(two.x)));
        const uint32_t second = __float_as_uint(__half2float(__ushort_as_half(two.y)));
        pairs[i] = first >> 16 | (second & 0xffff0000u);
    }
    return make_uint2(pairs[0], pairs[1]);
}

} // namespace draftsmith

#endif
