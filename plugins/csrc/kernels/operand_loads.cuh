/* 16 bytes of an operand a thread, zeros behind the row's end; whole where the rows are aligned, else by element. */
#ifndef DRAFTSMITH_OPERAND_LOADS_CUH
#define DRAFTSMITH_OPERAND_LOADS_CUH

#include <cstdint>

namespace draftsmith {

/* Cached in L1, for what a block reads again. */
__device__ __forceinline__ uint4 load_kept(const void *address) { return __ldg(static_cast<const uint4 *>(address)); }

/* Not cached in L1, for what is read once. */
__device__ __forceinline__ uint4 load_streamed(const void *address)
{
    uint4 value;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(address));
    return value;
}

/* Elements [first, first + 16 / sizeof(Word)) of a row of `length`. Word: an unsigned integer of the element's size. */
template <class Word> __device__ __forceinline__ uint4 load_elements(const Word *row, int first, int length)
{
    constexpr int COUNT = 16 / sizeof(Word), IN_WORD = 4 / sizeof(Word);
    uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if (first + i < length)
            words[i / IN_WORD] |= (uint32_t)__ldg(row + first + i) << i % IN_WORD * 8 * sizeof(Word);
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* IS_ALIGNED: `row` is aligned to 16 bytes and `length` is a multiple of the elements in as many. */
template <bool IS_ALIGNED, bool IS_KEPT, class Word>
__device__ __forceinline__ uint4 load_operand(const Word *row, int first, int length)
{
    if (!IS_ALIGNED)
        return load_elements(row, first, length);
    if (first >= length)
        return make_uint4(0, 0, 0, 0);
    return IS_KEPT ? load_kept(row + first) : load_streamed(row + first);
}

} // namespace draftsmith

#endif
