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
ort_status *make_output(ort_context *context, size_t index, const int64_t *dims, size_t rank, void *data);

/* Work on items [first, last). */
typedef void (*work)(void *job, int64_t first, int64_t last);
/* Split `total` items into `num_tasks` ranges that begin at multiples of `step`. */
ort_status *run_tasks(const ort_context *context, work work, void *job, int64_t total, int64_t num_tasks, int64_t step);

/* What an operator's file fills in; the rest of `ort_operator` is the same for all. */
extern const ort_operator operator_quantized_linear, operator_rms_norm, operator_add_rms_norm, operator_gated_activation,
    operator_cached_attention, operator_packed_rows;

int first_version(const ort_operator *op);
int last_version(const ort_operator *op);
const char *cpu_provider(const ort_operator *op);
int all_floats(const ort_operator *op, size_t index);
int all_required(const ort_operator *op, size_t index);
int default_memory(const ort_operator *op, size_t index);

#endif
