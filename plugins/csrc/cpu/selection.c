#include "selection.h"

#include <math.h>
#include <string.h>

enum { BUCKET_BITS = 10, BUCKETS = 1 << BUCKET_BITS };

/* Keys above `high` are kept, and of those in [low, high] the first `need`. */
struct cut {
    uint32_t low, high;
    int64_t need;
};

/* Integers in the order of floats; -0 as 0, NaN as -infinity. */
static uint32_t to_key(float score)
{
    uint32_t bits;
    score = score == score ? score + 0.0f : -INFINITY;
    memcpy(&bits, &score, 4);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

static float from_key(uint32_t key)
{
    float score;
    const uint32_t bits = key >> 31 ? key & 0x7fffffffu : ~key;
    memcpy(&score, &bits, 4);
    return score;
}

/* Where the k best of keys [count] begin; 0 < k <= count. */
static struct cut find_cut(const uint32_t *keys, int64_t count, int64_t k)
{
    struct cut cut = {UINT32_MAX, 0, k};
    for (int64_t i = 0; i < count; i++) {
        cut.low = keys[i] < cut.low ? keys[i] : cut.low;
        cut.high = keys[i] > cut.high ? keys[i] : cut.high;
    }
    for (;;) {
        const uint32_t range = cut.high - cut.low;
        const int bits = range ? 32 - __builtin_clz(range) : 0, shift = bits > BUCKET_BITS ? bits - BUCKET_BITS : 0;
        int32_t counts[BUCKETS] = {0};
        for (int64_t i = 0; i < count; i++)
            if (keys[i] - cut.low <= range)
                counts[(keys[i] - cut.low) >> shift]++;
        int bucket = (int)(range >> shift);
        for (; counts[bucket] < cut.need; bucket--)
            cut.need -= counts[bucket];
        const uint32_t low = cut.low + ((uint32_t)bucket << shift), last = low + ((1u << shift) - 1);
        if (bucket < (int)(range >> shift))
            cut.high = last;
        cut.low = low;
        if (shift == 0 || counts[bucket] == cut.need)
            return cut;
    }
}

float estimate_floor(const float *sample, int64_t count, int64_t rank, uint32_t *keys)
{
    if (rank >= count)
        return -INFINITY;
    for (int64_t i = 0; i < count; i++)
        keys[i] = to_key(sample[i]);
    return from_key(find_cut(keys, count, rank).low);
}

int64_t keep_best(const float *scores, int32_t *ids, int64_t count, int64_t k, uint32_t *keys)
{
    if (count <= k)
        return count;
    for (int64_t i = 0; i < count; i++)
        keys[i] = to_key(scores[ids[i]]);
    struct cut cut = find_cut(keys, count, k);
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        const int inside = keys[i] >= cut.low && keys[i] <= cut.high && cut.need > 0;
        cut.need -= inside;
        ids[kept] = ids[i];
        kept += inside || keys[i] > cut.high;
    }
    return kept;
}
