/* RmsNorm: x float [..., d], weight float [d] -> y. AddRmsNorm: x, delta, weight -> y, total = x + delta.
 * GatedActivation: gate_up float [..., 2 I] -> y float [..., I]; attribute activation: 0 SiLU, 1 GELU (tanh). */
#include <stdlib.h>

#include "ort_node.h"

enum { TASK_ELEMENTS = 1 << 12, MOST_TASKS = 64 };

struct norm {
    const struct kernels *kernels;
    float epsilon;
};

struct gate {
    const struct kernels *kernels;
    int64_t activation;
};

static void norm(void *data, int64_t first, int64_t last)
{
    const struct norm_job *job = data;
    job->kernels->norm_rows(job, first, last);
}

static void gate(void *data, int64_t first, int64_t last)
{
    const struct gate_job *job = data;
    job->kernels->gate_rows(job, first, last);
}

static ort_status *run_rows(const ort_context *context, work work, void *job, int64_t num_rows, int64_t width)
{
    int64_t tasks = num_rows * width / TASK_ELEMENTS;
    tasks = tasks > MOST_TASKS ? MOST_TASKS : tasks;
    return run_tasks(context, work, job, num_rows, tasks < num_rows ? tasks : num_rows, 1);
}

static int64_t count_rows(const struct tensor *x)
{
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < x->rank; i++)
        rows *= x->dims[i];
    return rows;
}

static ort_status *run_norm(const struct norm *facts, ort_context *context, bool has_delta)
{
    struct tensor x;
    TRY(read_tensor(context, 0, &x));
    struct norm_job job = {.kernels = facts->kernels,
                           .num_rows = count_rows(&x),
                           .width = x.dims[x.rank - 1],
                           .epsilon = facts->epsilon,
                           .x = x.data};
    if (has_delta)
        TRY(read_data(context, 1, &job.delta));
    TRY(read_data(context, has_delta ? 2 : 1, &job.weight));
    TRY(make_output(context, 0, x.dims, x.rank, &job.y));
    if (has_delta)
        TRY(make_output(context, 1, x.dims, x.rank, &job.total));
    return run_rows(context, norm, &job, job.num_rows, job.width);
}

static ort_status *compute_norm(void *kernel, ort_context *context) { return run_norm(kernel, context, false); }
static ort_status *compute_add_norm(void *kernel, ort_context *context) { return run_norm(kernel, context, true); }

static ort_status *compute_gate(void *kernel, ort_context *context)
{
    struct tensor x;
    TRY(read_tensor(context, 0, &x));
    struct gate_job job = {.num_rows = count_rows(&x), .gate_up = x.data};
    const struct gate *facts = kernel;
    job.kernels = facts->kernels;
    job.activation = (enum activation)facts->activation;
    job.width = x.dims[x.rank - 1] /= 2;
    TRY(make_output(context, 0, x.dims, x.rank, &job.y));
    return run_rows(context, gate, &job, job.num_rows, job.width);
}

static ort_status *create_norm(const ort_operator *op, const ort_table *table, const ort_info *info, void **kernel)
{
    (void)op, (void)table;
    TRY(make_kernel(sizeof(struct norm), kernel));
    struct norm *norm = *kernel;
    norm->kernels = registered_kernels;
    return ort_get_float(info, "epsilon", &norm->epsilon);
}

static ort_status *create_gate(const ort_operator *op, const ort_table *table, const ort_info *info, void **kernel)
{
    (void)op, (void)table;
    TRY(make_kernel(sizeof(struct gate), kernel));
    struct gate *gate = *kernel;
    gate->kernels = registered_kernels;
    return ort_get_int(info, "activation", &gate->activation);
}

NODE_OPERATOR(operator_rms_norm, "RmsNorm", create_norm, compute_norm, .inputs = {ORT_FLOAT, ORT_FLOAT},
              .outputs = {ORT_FLOAT});
NODE_OPERATOR(operator_add_rms_norm, "AddRmsNorm", create_norm, compute_add_norm,
              .inputs = {ORT_FLOAT, ORT_FLOAT, ORT_FLOAT}, .outputs = {ORT_FLOAT, ORT_FLOAT});
NODE_OPERATOR(operator_gated_activation, "GatedActivation", create_gate, compute_gate, .inputs = {ORT_FLOAT},
              .outputs = {ORT_FLOAT});
