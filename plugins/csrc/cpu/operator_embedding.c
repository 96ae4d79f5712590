/* PackedRows: ids int32 [...], weights int8 [P, K/4, 16, 4], scales float [16 P] -> y float [..., K]: the rows of a
 * QuantizedLinear, which a model with a tied head looks up as embeddings. Attributes num_outputs, depth: K. */
#include <stdlib.h>

#include "ort_node.h"

struct rows {
    int64_t num_outputs, depth;
};

static void unpack_row(const int8_t *weights, float scale, int64_t id, int64_t depth, float *y)
{
    const int64_t padded = (depth + DEPTH_STEP - 1) / DEPTH_STEP * DEPTH_STEP;
    const int8_t *panel = weights + id / PANEL_COLUMNS * PANEL_COLUMNS * padded + id % PANEL_COLUMNS * DEPTH_GROUP;
    for (int64_t k = 0; k < depth; k++)
        y[k] = (float)panel[k / DEPTH_GROUP * PANEL_COLUMNS * DEPTH_GROUP + k % DEPTH_GROUP] * scale;
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
    int64_t count = 1;
    for (size_t i = 0; i < ids.rank; i++)
        count *= ids.dims[i];
    ids.dims[ids.rank] = rows->depth;
    TRY(make_output(context, 0, ids.dims, ids.rank + 1, &y));
    for (int64_t i = 0; i < count; i++) {
        const int64_t id = ((const int32_t *)ids.data)[i];
        if (id < 0 || id >= rows->num_outputs)
            return fail("PackedRows ids: expected ids of rows that exist");
        unpack_row(weights, scales[id], id, rows->depth, y + i * rows->depth);
    }
    return NULL;
}

static ort_status *create(const ort_operator *op, const ort_table *table, const ort_info *info, void **kernel)
{
    (void)op, (void)table;
    struct rows *rows = calloc(1, sizeof *rows);
    *kernel = rows;
    if (!rows)
        return fail("PackedRows: out of memory");
    TRY(ort_get_int(info, "num_outputs", &rows->num_outputs));
    return ort_get_int(info, "depth", &rows->depth);
}

static const char *get_name(const ort_operator *op) { return (void)op, "PackedRows"; }
static size_t count_inputs(const ort_operator *op) { return (void)op, 3; }
static size_t count_outputs(const ort_operator *op) { return (void)op, 1; }
static int get_input_type(const ort_operator *op, size_t index)
{
    static const int types[] = {ORT_INT32, ORT_INT8, ORT_FLOAT};
    return (void)op, types[index];
}

const ort_operator operator_packed_rows = {
    .version = ORT_INTERFACE_VERSION,
    .get_name = get_name,
    .get_provider = cpu_provider,
    .get_input_type = get_input_type,
    .count_inputs = count_inputs,
    .get_output_type = all_floats,
    .count_outputs = count_outputs,
    .destroy = free,
    .get_input_presence = all_required,
    .get_output_presence = all_required,
    .get_input_memory = default_memory,
    .create_checked = create,
    .compute_checked = compute,
    .get_start_version = first_version,
    .get_end_version = last_version,
};
