/* Kernels that walk along single rows: RMS norm with the residual, and the gated activation of the MLP. */
#ifndef DRAFTSMITH_ROW_KERNELS_H
#define DRAFTSMITH_ROW_KERNELS_H

#include "kernels.h"
#include "lanes.h"

/* 1 / sqrt(mean of squares + epsilon) of `width` floats. */
INLINE float inverse_rms(const float *x, int64_t width, float epsilon)
{
    lanes squares = lanes_splat(0.0f);
    for (int64_t i = 0; i < width; i += 16) {
        const lanes v = lanes_load_part(x + i, width - i);
        squares = lanes_fma(v, v, squares);
    }
    return 1.0f / sqrtf(lanes_sum(squares) / (float)width + epsilon);
}

/* y = x * factor * weight; x and y may be the same. */
INLINE void scale_row(const float *x, const float *weight, float factor, int64_t width, float *y)
{
    for (int64_t i = 0; i < width; i += 16) {
        const lanes v = lanes_mul(lanes_load_part(x + i, width - i), lanes_splat(factor));
        lanes_store_part(y + i, lanes_mul(v, lanes_load_part(weight + i, width - i)), width - i);
    }
}

static void norm_rows(const struct norm_job *job, int64_t first, int64_t last)
{
    const int64_t width = job->width;
    for (int64_t row = first; row < last; row++) {
        const float *x = job->x + row * width;
        if (job->delta) {
            float *total = job->total + row * width;
            for (int64_t i = 0; i < width; i += 16) {
                const lanes delta = lanes_load_part(job->delta + row * width + i, width - i);
                lanes_store_part(total + i, lanes_add(lanes_load_part(x + i, width - i), delta), width - i);
            }
            x = total;
        }
        scale_row(x, job->weight, inverse_rms(x, width, job->epsilon), width, job->y + row * width);
    }
}

/* x / (1 + exp(-x)) */
INLINE lanes silu(lanes x)
{
    const lanes one = lanes_splat(1.0f);
    return lanes_div(x, lanes_add(one, lanes_exp(lanes_sub(lanes_splat(0.0f), x))));
}

/* x times the tanh approximation of the normal distribution: x / (1 + exp(-2 sqrt(2/pi) (x + 0.044715 x^3))). */
INLINE lanes gelu_tanh(lanes x)
{
    const lanes cubic = lanes_fma(lanes_mul(lanes_mul(x, x), lanes_splat(0.044715f)), x, x);
    const lanes z = lanes_mul(cubic, lanes_splat(-1.5957691216057308f));
    return lanes_div(x, lanes_add(lanes_splat(1.0f), lanes_exp(z)));
}

static void gate_rows(const struct gate_job *job, int64_t first, int64_t last)
{
    const int64_t width = job->width;
    for (int64_t row = first; row < last; row++) {
        const float *gate = job->gate_up + row * 2 * width, *up = gate + width;
        for (int64_t i = 0; i < width; i += 16) {
            const lanes g = lanes_load_part(gate + i, width - i);
            const lanes a = job->activation == ACTIVATION_SILU ? silu(g) : gelu_tanh(g);
            lanes_store_part(job->y + row * width + i, lanes_mul(a, lanes_load_part(up + i, width - i)), width - i);
        }
    }
}

#endif
