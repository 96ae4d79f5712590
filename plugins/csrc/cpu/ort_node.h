/* What the operators share: reading a node's tensors, making outputs, tasks on the runtime's threads. */
#ifndef DRAFTSMITH_ORT_NODE_H
#define DRAFTSMITH_ORT_NODE_H

#include "kernels.h"
#include "ort_interface.h"

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        ort_status *status_ = (call);                                                                                  \
        if (status_)                                                                                                   \
            return status_;                                                                                            \
    } while (0)

enum { MOST_DIMS = 4 };

struct tensor {
    void *data; /* NULL: an optional input that is not given */
    int64_t dims[MOST_DIMS];
    size_t rank;
};

/* What operators that are created now get: set when the library is registered, kept by each operator. */
extern const struct kernels *registered_kernels;

ort_status *fail(const char *message);
/* Data alone. */
ort_status *read_data(const ort_context *context, size_t index, void *data);
ort_status *read_tensor(const ort_context *context, size_t index, struct tensor *tensor);
/* What an operator keeps, `num_bytes` of zeros. */
ort_status *make_kernel(size_t num_bytes, void **kernel);
ort_status *make_output(ort_context *context, size_t index, const int64_t *dims, size_t rank, void *data);

/* Work on items [first, last). */
typedef void (*work)(void *job, int64_t first, int64_t last);
/* Split `total` items into `num_tasks` ranges that begin at multiples of `step`. */
ort_status *run_tasks(const ort_context *context, work work, void *job, int64_t total, int64_t num_tasks, int64_t step);

enum { MOST_INPUTS = 12, MOST_OUTPUTS = 4, OPTIONAL = 0x100 };

/* An operator as its file states it: a name, types (0 ends them; | OPTIONAL where one may be left out), functions. */
struct node_operator {
    ort_operator base;
    const char *name;
    int inputs[MOST_INPUTS], outputs[MOST_OUTPUTS];
};

const char *node_name(const ort_operator *op);
size_t node_num_inputs(const ort_operator *op);
size_t node_num_outputs(const ort_operator *op);
int node_input_type(const ort_operator *op, size_t index);
int node_output_type(const ort_operator *op, size_t index);
int node_input_presence(const ort_operator *op, size_t index);

/* `create_function` makes what `compute_function` gets, with make_kernel. */
#define NODE_OPERATOR(variable, text, create_function, compute_function, ...)                                          \
    const struct node_operator variable = {                                                                            \
        .base = {.version = ORT_INTERFACE_VERSION,                                                                     \
                 .get_name = node_name,                                                                                \
                 .get_provider = cpu_provider,                                                                         \
                 .get_input_type = node_input_type,                                                                    \
                 .count_inputs = node_num_inputs,                                                                      \
                 .get_output_type = node_output_type,                                                                  \
                 .count_outputs = node_num_outputs,                                                                    \
                 .destroy = free,                                                                                      \
                 .get_input_presence = node_input_presence,                                                            \
                 .get_output_presence = all_required,                                                                  \
                 .get_input_memory = default_memory,                                                                   \
                 .create_checked = create_function,                                                                    \
                 .compute_checked = compute_function,                                                                  \
                 .get_start_version = first_version,                                                                   \
                 .get_end_version = last_version},                                                                     \
        .name = text,                                                                                                  \
        __VA_ARGS__}

extern const struct node_operator operator_rms_norm, operator_add_rms_norm, operator_gated_activation,
    operator_packed_rows, operator_quantized_linear, operator_vocabulary_linear, operator_cached_attention,
    operator_top_candidates, operator_speculative_head;

int first_version(const ort_operator *op);
int last_version(const ort_operator *op);
const char *cpu_provider(const ort_operator *op);
int all_required(const ort_operator *op, size_t index);
int default_memory(const ort_operator *op, size_t index);

#endif
