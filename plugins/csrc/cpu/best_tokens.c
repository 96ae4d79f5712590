#include "best_tokens.h"

#include <math.h>

#define GOLDEN 0x9E3779B97F4A7C15ull
#define NOISE_SLACK 1e-9

/* 32 uniform bits of a token. */
static uint32_t token_bits(uint64_t key, int32_t id)
{
    uint64_t word = (uint64_t)(int64_t)id * GOLDEN + key + 2 * GOLDEN;
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9ull;
    word = (word ^ word >> 27) * 0x94D049BB133111EBull;
    return (uint32_t)((word ^ word >> 31) >> 32);
}

/* w = (bits + 0.5) / 2^32, noise -log(-log(1 - w)). */
static double gumbel(uint32_t bits) { return -log(-log1p(-(bits + 0.5) * 0x1p-32)); }

/* What the noise cannot exceed, without a logarithm: -log(1 - w) >= w, and w >= 2^-(leading zeros + 1). */
static double largest_noise(uint32_t bits)
{
    const int leading = bits ? __builtin_clz(bits) : 32;
    return (leading + 1) * 0.69314718055994531 + NOISE_SLACK;
}

void begin_best(struct best_tokens *best, int64_t most, float factor, int64_t noise_key)
{
    best->factor = factor;
    best->noise_key = (uint64_t)noise_key;
    best->most = most;
    best->count = 0;
    best->largest = -INFINITY;
    best->sum = 0.0f;
}

static void insert(struct best_tokens *best, double value, int32_t id, float logit)
{
    int64_t at = best->count;
    while (at > 0 && (value > best->values[at - 1] || (value == best->values[at - 1] && id < best->ids[at - 1])))
        at--;
    if (at == best->most)
        return;
    best->count += best->count < best->most;
    for (int64_t i = best->count - 1; i > at; i--) {
        best->values[i] = best->values[i - 1];
        best->logits[i] = best->logits[i - 1];
        best->ids[i] = best->ids[i - 1];
    }
    best->values[at] = value;
    best->logits[at] = logit;
    best->ids[at] = id;
}

/* exp(a - b) where b is the larger; 0 for two of -infinity. */
static float decay(float a, float b) { return a == b ? 1.0f : (float)exp((double)a - (double)b); }

static void add_sum(struct best_tokens *best, float largest, float sum)
{
    const float joint = largest > best->largest ? largest : best->largest;
    best->sum = best->sum * decay(best->largest, joint) + sum * decay(largest, joint);
    best->largest = joint;
}

static void offer_plain(struct best_tokens *best, const struct token_list *list, int64_t first, int64_t last)
{
    for (int64_t i = first; i < last; i++) {
        const double value = best->factor * list->logits[i];
        if (best->count == best->most && value < best->values[best->most - 1])
            continue;
        insert(best, value, list->ids ? list->ids[i] : list->first_id + (int32_t)i, list->logits[i]);
    }
}

static void offer_noisy(struct best_tokens *best, const struct token_list *list, int64_t first, int64_t last)
{
    for (int64_t i = first; i < last; i++) {
        const int32_t id = list->ids ? list->ids[i] : list->first_id + (int32_t)i;
        const uint32_t bits = token_bits(best->noise_key, id);
        const double scaled = best->factor * list->logits[i];
        if (best->count == best->most && scaled + largest_noise(bits) < best->values[best->most - 1])
            continue;
        insert(best, scaled + gumbel(bits), id, list->logits[i]);
    }
}

void offer_tokens(struct best_tokens *best, const struct kernels *kernels, const struct token_list *list)
{
    for (int64_t first = 0; first < list->count; first += SUM_BLOCK) {
        const int64_t last = first + SUM_BLOCK < list->count ? first + SUM_BLOCK : list->count;
        float largest, sum;
        kernels->sum_exponentials(list->logits + first, last - first, best->factor, &largest, &sum);
        add_sum(best, largest, sum);
        if (best->noise_key)
            offer_noisy(best, list, first, last);
        else
            offer_plain(best, list, first, last);
    }
}

void join_best(struct best_tokens *best, const struct best_tokens *other)
{
    add_sum(best, other->largest, other->sum);
    for (int64_t i = 0; i < other->count; i++)
        insert(best, other->values[i], other->ids[i], other->logits[i]);
}

void store_best(const struct best_tokens *best, int32_t *ids, float *logits, float *log_sum_exp)
{
    if (!(best->sum == best->sum)) {
        store_broken(best->most, ids, logits, log_sum_exp);
        return;
    }
    for (int64_t i = 0; i < best->most; i++) {
        ids[i] = i < best->count ? best->ids[i] : -1;
        logits[i] = i < best->count ? best->logits[i] : -INFINITY;
    }
    *log_sum_exp = (float)((double)best->largest + log((double)best->sum));
}

void store_broken(int64_t most, int32_t *ids, float *logits, float *log_sum_exp)
{
    for (int64_t i = 0; i < most; i++) {
        ids[i] = -1;
        logits[i] = NAN;
    }
    *log_sum_exp = NAN;
}
