#include "ort_node.h"

#include <stdlib.h>
#include <string.h>

#define ORT_DEFINE(index, name, result, parameters) result(*ort_##name) parameters;
ORT_ENTRIES(ORT_DEFINE)
#undef ORT_DEFINE

const struct kernels *registered_kernels;

ort_status *fail(const char *message) { return ort_create_status(ORT_INVALID_ARGUMENT, message); }

ort_status *read_data(const ort_context *context, size_t index, void *data)
{
    const ort_value *value = NULL;
    memset(data, 0, sizeof(void *));
    TRY(ort_get_input(context, index, &value));
    return value ? ort_get_data((ort_value *)value, data) : NULL;
}

static ort_status *read_dims(const ort_shape *shape, struct tensor *tensor)
{
    TRY(ort_get_rank(shape, &tensor->rank));
    if (tensor->rank > MOST_DIMS)
        return fail("draftsmith operator: expected at most 4 dimensions");
    return ort_get_dims(shape, tensor->dims, tensor->rank);
}

ort_status *read_tensor(const ort_context *context, size_t index, struct tensor *tensor)
{
    const ort_value *value = NULL;
    memset(tensor, 0, sizeof *tensor);
    TRY(ort_get_input(context, index, &value));
    if (!value)
        return NULL;
    TRY(ort_get_data((ort_value *)value, &tensor->data));
    ort_shape *shape = NULL;
    TRY(ort_get_shape(value, &shape));
    ort_status *status = read_dims(shape, tensor);
    ort_release_shape(shape);
    return status;
}

ort_status *make_kernel(size_t num_bytes, void **kernel)
{
    *kernel = calloc(1, num_bytes);
    return *kernel ? NULL : fail("draftsmith operator: out of memory");
}

ort_status *make_output(ort_context *context, size_t index, const int64_t *dims, size_t rank, void *data)
{
    ort_value *value = NULL;
    TRY(ort_get_output(context, index, dims, rank, &value));
    return ort_get_data(value, data);
}

struct task_range {
    work work;
    void *job;
    int64_t total, num_tasks, step;
};

static int64_t border(const struct task_range *range, int64_t task)
{
    const int64_t steps = (range->total + range->step - 1) / range->step;
    const int64_t at = steps * task / range->num_tasks * range->step;
    return at < range->total ? at : range->total;
}

static void run_task(void *data, size_t task)
{
    const struct task_range *range = data;
    range->work(range->job, border(range, (int64_t)task), border(range, (int64_t)task + 1));
}

ort_status *run_tasks(const ort_context *context, work work, void *job, int64_t total, int64_t num_tasks, int64_t step)
{
    if (num_tasks <= 1) {
        work(job, 0, total);
        return NULL;
    }
    struct task_range range = {work, job, total, num_tasks, step};
    return ort_parallel_for(context, run_task, (size_t)num_tasks, 0, &range);
}

static const struct node_operator *node(const ort_operator *op) { return (const struct node_operator *)op; }

static size_t count_types(const int *types, size_t most)
{
    size_t count = 0;
    while (count < most && types[count])
        count++;
    return count;
}

const char *node_name(const ort_operator *op) { return node(op)->name; }
size_t node_num_inputs(const ort_operator *op) { return count_types(node(op)->inputs, MOST_INPUTS); }
size_t node_num_outputs(const ort_operator *op) { return count_types(node(op)->outputs, MOST_OUTPUTS); }
int node_input_type(const ort_operator *op, size_t index) { return node(op)->inputs[index] & ~OPTIONAL; }
int node_output_type(const ort_operator *op, size_t index) { return node(op)->outputs[index]; }
int node_input_presence(const ort_operator *op, size_t index)
{
    return node(op)->inputs[index] & OPTIONAL ? ORT_OPTIONAL : ORT_REQUIRED;
}

int first_version(const ort_operator *op) { return (void)op, 1; }
int last_version(const ort_operator *op) { return (void)op, INT32_MAX; }
const char *cpu_provider(const ort_operator *op) { return (void)op, NULL; }
int all_required(const ort_operator *op, size_t index) { return (void)op, (void)index, ORT_REQUIRED; }
int default_memory(const ort_operator *op, size_t index) { return (void)op, (void)index, 0; }
