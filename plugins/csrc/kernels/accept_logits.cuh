/* A row of logits by chunks: vectors of 16 bytes, whatever the row's address. */
#ifndef DRAFTSMITH_ACCEPT_LOGITS_CUH
#define DRAFTSMITH_ACCEPT_LOGITS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "accept_block.cuh"
#include "ordered_keys.cuh"

namespace draftsmith {

__device__ __forceinline__ float greater_or_nan(float a, float b)
{
#if __CUDA_ARCH__ >= 800
    float greater;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(greater) : "f"(a), "f"(b));
    return greater;
#else
    return a != a || b != b ? NAN : fmaxf(a, b);
#endif
}

/* 2 to the power of x, within two units in the last place; 0 where it is less than a normal number. */
__device__ __forceinline__ float fast_exp2(float x)
{
#if defined(__CUDA_ARCH__)
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
#else
    return exp2f(x);
#endif
}

/* Elements of a type in a vector's 32-bit words. */
template <class T> struct LogitWords;

template <> struct LogitWords<float> {
    static constexpr uint32_t lowest = 0xff800000u;
    static __device__ __forceinline__ float unpack(uint32_t word, int) { return __uint_as_float(word); }
    static __device__ __forceinline__ uint32_t pack(const float *values) { return __float_as_uint(*values); }
    static __device__ __forceinline__ float to_float(float value) { return value; }
    static __device__ __forceinline__ uint32_t greater(uint32_t a, uint32_t b)
    {
        return __float_as_uint(greater_or_nan(__uint_as_float(a), __uint_as_float(b)));
    }
};

template <> struct LogitWords<__half> {
    static constexpr uint32_t lowest = 0xfc00fc00u;
    static __device__ __forceinline__ __half2 pair(uint32_t word) { return *reinterpret_cast<const __half2 *>(&word); }
    static __device__ __forceinline__ uint32_t word(__half2 pair) { return *reinterpret_cast<const uint32_t *>(&pair); }
    static __device__ __forceinline__ float to_float(__half value) { return __half2float(value); }
    static __device__ __forceinline__ float unpack(uint32_t word, int half)
    {
        return half ? __high2float(pair(word)) : __low2float(pair(word));
    }
    static __device__ __forceinline__ uint32_t pack(const __half *values)
    {
        return word(__halves2half2(values[0], values[1]));
    }
    static __device__ __forceinline__ uint32_t greater(uint32_t a, uint32_t b)
    {
        return word(__hmax2_nan(pair(a), pair(b)));
    }
};

template <> struct LogitWords<__nv_bfloat16> {
    static constexpr uint32_t lowest = 0xff80ff80u;
    static __device__ __forceinline__ __nv_bfloat162 pair(uint32_t word)
    {
        return *reinterpret_cast<const __nv_bfloat162 *>(&word);
    }
    static __device__ __forceinline__ uint32_t word(__nv_bfloat162 pair)
    {
        return *reinterpret_cast<const uint32_t *>(&pair);
    }
    static __device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
    static __device__ __forceinline__ float unpack(uint32_t word, int half)
    {
        return __uint_as_float(half ? word & 0xffff0000u : word << 16);
    }
    static __device__ __forceinline__ uint32_t pack(const __nv_bfloat16 *values)
    {
        return word(__halves2bfloat162(values[0], values[1]));
    }
    static __device__ __forceinline__ uint32_t greater(uint32_t a, uint32_t b)
    {
        return word(__hmax2_nan(pair(a), pair(b)));
    }
};

/* A row [V]. Token t lies at place t + shift of the chunks, so that vectors are aligned. */
template <class T> struct LogitRow {
    const T *logits;
    int num_vocab, shift;

    __device__ LogitRow(const AcceptJob &job, size_t row)
        : logits(static_cast<const T *>(job.arguments.logits) + row * job.shape.num_vocab),
          num_vocab(job.shape.num_vocab),
          shift((int)(reinterpret_cast<uintptr_t>(logits) % sizeof(uint4) / sizeof(T)))
    {
    }

    __device__ float logit(int id) const { return LogitWords<T>::to_float(logits[id]); }
    __device__ int chunk_of(int id) const { return (id + shift) / CHUNK; }
};

/* A lane's part of a chunk: vectors of SIZE tokens, those of a warp side by side. */
template <class T> struct ChunkPart {
    static constexpr int SIZE = sizeof(uint4) / sizeof(T), NUM = LANE_TOKENS / SIZE, STEP = 32 * SIZE;
    static constexpr int WORD_TOKENS = sizeof(uint32_t) / sizeof(T);

    uint4 vectors[NUM];

    static __device__ __forceinline__ int first_id(const LogitRow<T> &row, int chunk)
    {
        return chunk * CHUNK - row.shift + (int)(threadIdx.x & 31) * SIZE;
    }

    /* Tokens that are none are -infinity. */
    __device__ __forceinline__ void load(const LogitRow<T> &row, int chunk)
    {
        const int begin = chunk * CHUNK - row.shift, first = first_id(row, chunk);
        if (begin >= 0 && begin + CHUNK <= row.num_vocab) {
#pragma unroll
            for (int v = 0; v < NUM; v++)
                vectors[v] = __ldcg(reinterpret_cast<const uint4 *>(row.logits + first + v * STEP));
            return;
        }
#pragma unroll
        for (int v = 0; v < NUM; v++)
            vectors[v] = load_at_end(row.logits, row.num_vocab, first + v * STEP);
    }

    __device__ __forceinline__ uint32_t word(int v, int i) const
    {
        return i == 0 ? vectors[v].x : i == 1 ? vectors[v].y : i == 2 ? vectors[v].z : vectors[v].w;
    }

    /* Token e of vector v. */
    __device__ __forceinline__ float logit(int v, int e) const
    {
        return LogitWords<T>::unpack(word(v, e / WORD_TOKENS), e % WORD_TOKENS);
    }

    /* Vector 1 becomes vector 0, and so on: a loop over them stays short that way. */
    __device__ __forceinline__ void turn()
    {
#pragma unroll
        for (int v = 0; v + 1 < NUM; v++)
            vectors[v] = vectors[v + 1];
    }

    /* NaN where a token is. */
    __device__ __forceinline__ float greatest() const
    {
        uint32_t best = vectors[0].x;
#pragma unroll
        for (int v = 0; v < NUM; v++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                best = LogitWords<T>::greater(best, word(v, i));
        float value = LogitWords<T>::unpack(best, 0);
        if (WORD_TOKENS == 2)
            value = greater_or_nan(value, LogitWords<T>::unpack(best, 1));
        return value;
    }

    /* Of vector 0. */
    __device__ __forceinline__ float greatest_of_first() const
    {
        const uint32_t best = LogitWords<T>::greater(LogitWords<T>::greater(word(0, 0), word(0, 1)),
                                                     LogitWords<T>::greater(word(0, 2), word(0, 3)));
        const float value = LogitWords<T>::unpack(best, 0);
        return WORD_TOKENS == 2 ? fmaxf(value, LogitWords<T>::unpack(best, 1)) : value;
    }

  private:
    static __device__ __noinline__ uint4 load_at_end(const T *logits, int num_vocab, int first)
    {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            words[i] = LogitWords<T>::lowest;
            T values[WORD_TOKENS];
            memcpy(values, &words[i], sizeof words[i]);
#pragma unroll
            for (int e = 0; e < WORD_TOKENS; e++) {
                const int id = first + i * WORD_TOKENS + e;
                if (id >= 0 && id < num_vocab)
                    values[e] = logits[id];
            }
            words[i] = LogitWords<T>::pack(values);
        }
        return make_uint4(words[0], words[1], words[2], words[3]);
    }
};

/* p of a row up to its total: weights relative to the greatest logit, 0 below the cut. */
template <class T> struct TargetRow {
    LogitRow<T> row;
    float greatest, inverse; /* 1 / temperature */
    uint64_t cut;
    double total;

    __device__ float score(float logit) const { return (logit - greatest) * inverse; }
    __device__ float weight(float logit) const { return expf(score(logit)); }

    /* `logit` is above -infinity. */
    __device__ bool keeps(float logit, int id) const { return candidate_key(logit, id) >= cut; }

    __device__ float kept_weight(float logit, int id) const
    {
        return logit > -INFINITY && keeps(logit, id) ? weight(logit) : 0.0f;
    }

    __device__ float probability(float logit, int id) const { return kept_weight(logit, id) / (float)total; }
};

/* Calls visit(id, logit) for the tokens of `least` or more (and above -infinity) in the chunks that `wants` asks for,
 * and done(chunk) behind each that may have any; a warp takes every ACCEPT_WARPS-th chunk. */
template <class T, class Wants, class Visit, class Done>
__device__ __forceinline__ void visit_chunks(const LogitRow<T> &row, const ChunkSummary *chunks, int num_chunks,
                                             float least, const Wants &wants, const Visit &visit, const Done &done)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int base = 0; base < num_chunks; base += ACCEPT_THREADS) {
        const int mine = base + lane * ACCEPT_WARPS + warp;
        bool is_wanted = mine < num_chunks;
        if (is_wanted) {
            const float greatest = __ldcg(&chunks[mine].greatest);
            is_wanted = greatest > -INFINITY && greatest >= least && wants(mine);
        }
        unsigned wanted = __ballot_sync(FULL_WARP, is_wanted);
        ChunkPart<T> next;
        if (wanted)
            next.load(row, base + (__ffs((int)wanted) - 1) * ACCEPT_WARPS + warp);
        while (wanted) {
            const int chunk = base + (__ffs((int)wanted) - 1) * ACCEPT_WARPS + warp;
            ChunkPart<T> part = next;
            wanted &= wanted - 1;
            if (wanted)
                next.load(row, base + (__ffs((int)wanted) - 1) * ACCEPT_WARPS + warp);
            int first = ChunkPart<T>::first_id(row, chunk);
#pragma unroll 1
            for (int v = 0; v < ChunkPart<T>::NUM; v++, first += ChunkPart<T>::STEP) {
                if (part.greatest_of_first() >= least) {
#pragma unroll
                    for (int e = 0; e < ChunkPart<T>::SIZE; e++) {
                        const float logit = part.logit(0, e);
                        if (logit >= least && logit > -INFINITY)
                            visit(first + e, logit);
                    }
                }
                part.turn();
            }
            done(chunk);
        }
    }
}

} // namespace draftsmith

#endif
