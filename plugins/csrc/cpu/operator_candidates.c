/* TopCandidates: logits float [B, N, V], ids int32 [V] (optional: a logit's token; else its index), noise_keys int64
 * [B, N] (0: no noise), inverse_temperature float [B, N] -> ids int32 [B, N, c], logits float [B, N, c],
 * log_sum_exp float [B, N]. Attribute num_outputs: c. See best_tokens.h. */
#include <stdlib.h>

#include "best_tokens.h"
#include "ort_node.h"
#include "scratch.h"

enum { MOST_TASKS = 64 };

struct candidates {
    const struct kernels *kernels;
    int64_t num_outputs;
};

struct candidates_job {
    const struct kernels *kernels;
    int64_t width, num_outputs, num_blocks; /* V, c, SUM_BLOCKs of a row */
    const float *logits;
    const int32_t *ids;
    const int64_t *noise_keys;
    const float *inverse_temperature;
    struct best_tokens *parts; /* [rows, num_blocks] */
};

/* Items: blocks of all rows. */
static void find_best(void *data, int64_t first, int64_t last)
{
    const struct candidates_job *job = data;
    for (int64_t item = first; item < last; item++) {
        const int64_t row = item / job->num_blocks, start = item % job->num_blocks * SUM_BLOCK;
        const int64_t left = job->width - start;
        const struct token_list list = {.ids = job->ids ? job->ids + start : NULL,
                                        .logits = job->logits + row * job->width + start,
                                        .count = left < SUM_BLOCK ? left : SUM_BLOCK,
                                        .first_id = (int32_t)start};
        begin_best(&job->parts[item], job->num_outputs, job->inverse_temperature[row], job->noise_keys[row]);
        offer_tokens(&job->parts[item], job->kernels, &list);
    }
}

static ort_status *read_inputs(const ort_context *context, struct candidates_job *job, struct tensor *logits)
{
    TRY(read_tensor(context, 0, logits));
    TRY(read_data(context, 1, &job->ids));
    TRY(read_data(context, 2, &job->noise_keys));
    TRY(read_data(context, 3, &job->inverse_temperature));
    if (logits->rank != 3 || logits->dims[2] < 1)
        return fail("TopCandidates logits: expected three dimensions, the last not empty");
    job->logits = logits->data;
    job->width = logits->dims[2];
    job->num_blocks = (job->width + SUM_BLOCK - 1) / SUM_BLOCK;
    return NULL;
}

static ort_status *compute(void *kernel, ort_context *context)
{
    const struct candidates *candidates = kernel;
    struct candidates_job job = {.kernels = candidates->kernels, .num_outputs = candidates->num_outputs};
    struct tensor logits;
    int32_t *ids;
    float *best_logits, *log_sum_exp;
    TRY(read_inputs(context, &job, &logits));
    const int64_t num_rows = logits.dims[0] * logits.dims[1], items = num_rows * job.num_blocks;
    const int64_t dims[] = {logits.dims[0], logits.dims[1], job.num_outputs};
    TRY(make_output(context, 0, dims, 3, &ids));
    TRY(make_output(context, 1, dims, 3, &best_logits));
    TRY(make_output(context, 2, dims, 2, &log_sum_exp));
    if (num_rows == 0)
        return NULL;
    job.parts = thread_scratch((size_t)items * sizeof *job.parts);
    if (!job.parts)
        return fail("TopCandidates: out of memory");
    TRY(run_tasks(context, find_best, &job, items, items < MOST_TASKS ? items : MOST_TASKS, 1));
    for (int64_t row = 0; row < num_rows; row++) {
        struct best_tokens *best = &job.parts[row * job.num_blocks];
        for (int64_t block = 1; block < job.num_blocks; block++)
            join_best(best, best + block);
        store_best(best, ids + row * job.num_outputs, best_logits + row * job.num_outputs, log_sum_exp + row);
    }
    return NULL;
}

static ort_status *create(const ort_operator *op, const ort_table *table, const ort_info *info, void **kernel)
{
    (void)op, (void)table;
    TRY(make_kernel(sizeof(struct candidates), kernel));
    struct candidates *candidates = *kernel;
    candidates->kernels = registered_kernels;
    TRY(ort_get_int(info, "num_outputs", &candidates->num_outputs));
    if (candidates->num_outputs < 1 || candidates->num_outputs > MOST_BEST)
        return fail("TopCandidates num_outputs: expected 1 to 64");
    return NULL;
}

NODE_OPERATOR(operator_top_candidates, "TopCandidates", create, compute,
              .inputs = {ORT_FLOAT, ORT_INT32 | OPTIONAL, ORT_INT64, ORT_FLOAT},
              .outputs = {ORT_INT32, ORT_FLOAT, ORT_FLOAT});
