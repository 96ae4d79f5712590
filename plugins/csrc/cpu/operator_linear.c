/* QuantizedLinear: x float [..., K], weights int8 [P, K/4, 16, 4], scales float [16 P], sums int32 [16 P],
 * bias float [N] (optional) -> y float [..., N]. Attribute num_outputs: N.
 * VocabularyLinear: the same product with weights int8 [16 P, padded K], row-major, and no sums. */
#include <stdlib.h>

#include "ort_node.h"
#include "scratch.h"

enum { TASK_BYTES = 48 << 10, MOST_TASKS = 64, SERIAL_ELEMENTS = 1 << 15 };
/* MOST_ROW_DEPTH: tasks of VocabularyLinear keep up to 32 rows of bytes on their stack. */
enum { MOST_ROW_DEPTH = 16384, MOST_ROW_TASKS = 32 };

struct linear {
    const struct kernels *kernels;
    bool row_major;
    int64_t num_outputs;
};

static void quantize(void *data, int64_t first, int64_t last)
{
    const struct linear_job *job = data;
    job->kernels->quantize_rows(job, first, last);
}

static void multiply(void *data, int64_t first, int64_t last)
{
    const struct linear_job *job = data;
    job->kernels->multiply_panels(job, first, last);
}

static void multiply_rows(void *data, int64_t first, int64_t last)
{
    const struct linear_job *job = data;
    job->kernels->multiply_vocabulary(job, first, last);
}

static int64_t between(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

static ort_status *run_linear(const ort_context *context, struct linear_job *job, work work)
{
    const int64_t panels = (job->num_outputs + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
    const int64_t elements = job->num_rows * job->depth;
    const int64_t row_tasks = between(elements / SERIAL_ELEMENTS, 1, between(job->num_rows, 1, MOST_TASKS));
    TRY(run_tasks(context, quantize, job, job->num_rows, row_tasks, 1));
    const int64_t bytes = panels * PANEL_COLUMNS * job->padded_depth;
    /* A task of VocabularyLinear arranges the activations anew: fewer of them. */
    const int64_t most = work == multiply_rows ? MOST_ROW_TASKS : MOST_TASKS;
    return run_tasks(context, work, job, panels, between(bytes / TASK_BYTES, 1, most), 2);
}

static ort_status *compute(void *kernel, ort_context *context)
{
    const struct linear *linear = kernel;
    struct tensor x;
    struct linear_job job = {.kernels = linear->kernels, .num_rows = 1, .num_outputs = linear->num_outputs};
    TRY(read_tensor(context, 0, &x));
    TRY(read_data(context, 1, &job.weights));
    TRY(read_data(context, 2, &job.scales));
    if (!linear->row_major)
        TRY(read_data(context, 3, &job.sums));
    TRY(read_data(context, linear->row_major ? 3 : 4, &job.bias));
    if (x.rank < 1)
        return fail("linear operator x: expected at least 1 dimension, found none");
    if (linear->row_major && x.dims[x.rank - 1] > MOST_ROW_DEPTH)
        return fail("VocabularyLinear x: expected at most 16,384 inputs");
    for (size_t i = 0; i + 1 < x.rank; i++)
        job.num_rows *= x.dims[i];
    job.x = x.data;
    job.depth = x.dims[x.rank - 1];
    job.padded_depth = (job.depth + DEPTH_STEP - 1) / DEPTH_STEP * DEPTH_STEP;
    x.dims[x.rank - 1] = job.y_stride = job.num_outputs;
    TRY(make_output(context, 0, x.dims, x.rank, &job.y));
    if (job.num_rows == 0)
        return NULL;
    const size_t bytes = (size_t)job.kernels->activation_bytes(job.num_rows, job.padded_depth);
    job.activations = thread_scratch(bytes + (size_t)job.num_rows * sizeof(float));
    if (!job.activations)
        return fail("linear operator: out of memory");
    job.row_scales = (float *)((char *)job.activations + bytes);
    return run_linear(context, &job, linear->row_major ? multiply_rows : multiply);
}

static ort_status *create(const ort_operator *op, const ort_table *table, const ort_info *info, void **kernel)
{
    (void)table;
    TRY(make_kernel(sizeof(struct linear), kernel));
    struct linear *linear = *kernel;
    linear->kernels = registered_kernels;
    linear->row_major = op == &operator_vocabulary_linear.base;
    return ort_get_int(info, "num_outputs", &linear->num_outputs);
}

NODE_OPERATOR(operator_quantized_linear, "QuantizedLinear", create, compute,
              .inputs = {ORT_FLOAT, ORT_INT8, ORT_FLOAT, ORT_INT32, ORT_FLOAT | OPTIONAL}, .outputs = {ORT_FLOAT});
NODE_OPERATOR(operator_vocabulary_linear, "VocabularyLinear", create, compute,
              .inputs = {ORT_FLOAT, ORT_INT8, ORT_FLOAT, ORT_FLOAT | OPTIONAL}, .outputs = {ORT_FLOAT});
