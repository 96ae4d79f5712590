/* LossyAccept's random numbers, as plugins/reference/accept_noise.py defines them. */
#ifndef DRAFTSMITH_ACCEPT_RANDOM_CUH
#define DRAFTSMITH_ACCEPT_RANDOM_CUH

#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define DRAFTSMITH_BOTH __host__ __device__ __forceinline__
#else
#define DRAFTSMITH_BOTH inline
#endif

namespace draftsmith {

constexpr uint64_t GOLDEN = 0x9E3779B97F4A7C15ull, FIRST_FACTOR = 0xBF58476D1CE4E5B9ull,
                   SECOND_FACTOR = 0x94D049BB133111EBull;
enum RandomStream { COIN_STREAM = 1, RESIDUAL_STREAM = 2 };

/* No noise is greater, and none is less than minus LEAST_NOISE. */
constexpr float MOST_NOISE = 22.88f, LEAST_NOISE = 3.14f;

DRAFTSMITH_BOTH uint64_t mix_word(uint64_t word)
{
    word = (word ^ (word >> 30)) * FIRST_FACTOR;
    word = (word ^ (word >> 27)) * SECOND_FACTOR;
    return word ^ (word >> 31);
}

/* The upper half of mix_word, but for its lowest bit. */
DRAFTSMITH_BOTH uint32_t mix_upper(uint64_t word)
{
    word = (word ^ (word >> 30)) * FIRST_FACTOR;
    word = (word ^ (word >> 27)) * SECOND_FACTOR;
    return (uint32_t)(word >> 32);
}

DRAFTSMITH_BOTH uint64_t position_key(uint64_t seed, uint64_t position)
{
    return mix_word(mix_word(seed + GOLDEN) + position * GOLDEN + GOLDEN);
}

/* Uniform in (0, 1), exact. */
DRAFTSMITH_BOTH double position_uniform(uint64_t key, RandomStream stream)
{
    const uint64_t word = mix_word((key ^ mix_word(stream + GOLDEN)) + GOLDEN);
    return ((double)(uint32_t)(word >> 32) + 0.5) * (1.0 / 4294967296.0);
}

/* The word whose mix is the noise of token 0; that of token t is t * GOLDEN further. */
DRAFTSMITH_BOTH uint64_t noise_base(uint64_t key) { return key + 2 * GOLDEN; }

/* Standard Gumbel noise of a word's mix. */
DRAFTSMITH_BOTH float gumbel_noise(uint64_t base, int32_t id)
{
    const uint32_t word = (uint32_t)(mix_word(base + (uint64_t)id * GOLDEN) >> 32);
    const float step = 1.0f / 4294967296.0f;
    const float exponential = word < 0x80000000u ? -log1pf(-((float)word + 0.5f) * step)
                                                 : -logf(((float)~word + 0.5f) * step);
    return -logf(exponential);
}

} // namespace draftsmith

#endif
