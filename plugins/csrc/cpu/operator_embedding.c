/* PackedRows: ids int32 [...], weights int8 [V, padded K], scales float [V] -> y float [..., K]: rows of a vocabulary's
 * matrix, looked up as embeddings; VocabularyLinear multiplies with the same memory. Attributes num_outputs, depth: K. */
#include <stdlib.h>

#include "ort_node.h"

struct rows {
    int64_t num_outputs, depth;
};

static void unpack_row(const int8_t *codes, float scale, int64_t depth, float *y)
{
    for (int64_t k = 0; k < depth; k++)
        y[k] = (float)codes[k] * scale;
}

static ort_status *compute(void *kernel, ort_context *context)
{
    const struct rows *rows = kernel;
    struct tensor ids;
    const int8_t *weights;
    const float *scales;
    float *y;
    TRY(read_tensor(context, 0, &ids));
    TRY(read_data(context, 1, &weights));
    TRY(read_data(context, 2, &scales));
    if (ids.rank >= MOST_DIMS)
        return fail("PackedRows ids: expected at most 3 dimensions");
    const int64_t padded = (rows->depth + DEPTH_STEP - 1) / DEPTH_STEP * DEPTH_STEP;
    int64_t count = 1;
    for (size_t i = 0; i < ids.rank; i++)
        count *= ids.dims[i];
    ids.dims[ids.rank] = rows->depth;
    TRY(make_output(context, 0, ids.dims, ids.rank + 1, &y));
    for (int64_t i = 0; i < count; i++) {
        const int64_t id = ((const int32_t *)ids.data)[i];
        if (id < 0 || id >= rows->num_outputs)
            return fail("PackedRows ids: expected ids of rows that exist");
        unpack_row(weights + id * padded, scales[id], rows->depth, y + i * rows->depth);
    }
    return NULL;
}

static ort_status *create(const ort_operator *op, const ort_table *table, const ort_info *info, void **kernel)
{
    (void)op, (void)table;
    TRY(make_kernel(sizeof(struct rows), kernel));
    struct rows *rows = *kernel;
    TRY(ort_get_int(info, "num_outputs", &rows->num_outputs));
    return ort_get_int(info, "depth", &rows->depth);
}

NODE_OPERATOR(operator_packed_rows, "PackedRows", create, compute, .inputs = {ORT_INT32, ORT_INT8, ORT_FLOAT},
              .outputs = {ORT_FLOAT});
