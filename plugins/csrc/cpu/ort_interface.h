/* The part of ONNX Runtime's C interface that custom operators need, declared by ourselves: no vendor header is built in.
 *
 * Facts from onnxruntime_c_api.h: `OrtApi` is a table of functions that is only ever appended to, so an entry keeps its
 * index; `OrtCustomOp` has grown by its end only, and `version` tells how much of it is filled in. */
#ifndef DRAFTSMITH_ORT_INTERFACE_H
#define DRAFTSMITH_ORT_INTERFACE_H

#include <stddef.h>
#include <stdint.h>

#define ORT_INTERFACE_VERSION 17

typedef struct ort_status ort_status;   /* NULL: success */
typedef struct ort_info ort_info;       /* a node while its kernel is made */
typedef struct ort_context ort_context; /* a node while it runs */
typedef struct ort_value ort_value;
typedef struct ort_shape ort_shape;
typedef struct ort_options ort_options;
typedef struct ort_domain ort_domain;

enum ort_error { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2 };
enum ort_type { ORT_FLOAT = 1, ORT_INT8 = 3, ORT_INT32 = 6, ORT_INT64 = 7, ORT_BOOL = 9 };
enum ort_presence { ORT_REQUIRED = 0, ORT_OPTIONAL = 1 };

typedef void (*ort_function)(void);
typedef struct ort_table {
    ort_function entries[275];
} ort_table;

typedef struct ort_base {
    const ort_table *(*get_table)(uint32_t version);
    const char *(*get_version)(void);
} ort_base;

/* index in the table, our name, result, parameters */
#define ORT_ENTRIES(entry)                                                                                             \
    entry(0, create_status, ort_status *, (int code, const char *message))                                            \
    entry(26, create_domain, ort_status *, (const char *name, ort_domain **domain))                                   \
    entry(27, add_to_domain, ort_status *, (ort_domain * domain, const struct ort_operator *op))                      \
    entry(28, add_domain, ort_status *, (ort_options * options, ort_domain * domain))                                 \
    entry(51, get_data, ort_status *, (ort_value * value, void **data))                                               \
    entry(61, get_rank, ort_status *, (const ort_shape *shape, size_t *rank))                                         \
    entry(62, get_dims, ort_status *, (const ort_shape *shape, int64_t *dims, size_t rank))                           \
    entry(65, get_shape, ort_status *, (const ort_value *value, ort_shape **shape))                                   \
    entry(85, get_float, ort_status *, (const ort_info *info, const char *name, float *value))                        \
    entry(86, get_int, ort_status *, (const ort_info *info, const char *name, int64_t *value))                        \
    entry(90, get_input, ort_status *, (const ort_context *context, size_t index, const ort_value **value))           \
    entry(91, get_output, ort_status *,                                                                               \
          (ort_context * context, size_t index, const int64_t *dims, size_t rank, ort_value **value))                 \
    entry(99, release_shape, void, (ort_shape * shape))                                                               \
    entry(274, parallel_for, ort_status *,                                                                            \
          (const ort_context *context, void (*task)(void *, size_t), size_t total, size_t num_batches, void *data))

typedef struct ort_operator {
    uint32_t version;
    void *(*create)(const struct ort_operator *op, const ort_table *table, const ort_info *info);
    const char *(*get_name)(const struct ort_operator *op);
    const char *(*get_provider)(const struct ort_operator *op);
    int (*get_input_type)(const struct ort_operator *op, size_t index);
    size_t (*count_inputs)(const struct ort_operator *op);
    int (*get_output_type)(const struct ort_operator *op, size_t index);
    size_t (*count_outputs)(const struct ort_operator *op);
    void (*compute)(void *kernel, ort_context *context);
    void (*destroy)(void *kernel);
    int (*get_input_presence)(const struct ort_operator *op, size_t index);
    int (*get_output_presence)(const struct ort_operator *op, size_t index);
    int (*get_input_memory)(const struct ort_operator *op, size_t index);
    int (*variadic_input_arity)(const struct ort_operator *op);
    int (*variadic_input_same_type)(const struct ort_operator *op);
    int (*variadic_output_arity)(const struct ort_operator *op);
    int (*variadic_output_same_type)(const struct ort_operator *op);
    ort_status *(*create_checked)(const struct ort_operator *op, const ort_table *table, const ort_info *info,
                                  void **kernel);
    ort_status *(*compute_checked)(void *kernel, ort_context *context);
    ort_status *(*infer_shape)(const struct ort_operator *op, void *context);
    int (*get_start_version)(const struct ort_operator *op);
    int (*get_end_version)(const struct ort_operator *op);
    void *unused[8]; /* room for what later versions append */
} ort_operator;

#define ORT_DECLARE(index, name, result, parameters) extern result(*ort_##name) parameters;
ORT_ENTRIES(ORT_DECLARE)
#undef ORT_DECLARE

#endif
