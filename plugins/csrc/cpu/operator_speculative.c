/* SpeculativeHead: hidden float [B, N, d], down float [r, d], ranking codes int8 [P, ceil(r / 4), 16, 4] and scales
 * float [16 P] (V or G rows in P panels), head rows int8 [V padded to 16, d padded to 64] and scales float [V padded]
 * (both optional where is_exact is 0), prior float [V or G] (optional), groups int32 [G, S] (optional; -1: none),
 * noise_keys int64 [B, N] (0: no noise), inverse_temperature float [B, N], num_candidates int32 [B, N] (0: the
 * attribute) -> ids int32 [B, N, c], logits float [B, N, c], log_sum_exp float [B, N] over all candidates.
 * Attributes num_outputs: c, num_candidates: k, num_vocab: V, is_exact: 0 takes the scores for logits.
 *
 * Candidates are the k tokens (the k / S groups) with the best scores, ties to the lowest id; scores are those of a
 * QuantizedLinear of down times hidden, and logits have the bits of a VocabularyLinear. */
#include <math.h>
#include <stdlib.h>

#include "ort_node.h"
#include "scratch.h"
#include "speculative.h"

enum { MOST_TASKS = 64, PROJECT_ELEMENTS = 1 << 16, ACTIVATION_SLACK = 64, MOST_HEAD_DEPTH = 16384 };

struct speculative {
    const struct kernels *kernels;
    int64_t num_outputs, num_candidates, num_vocab, is_exact;
};

struct inputs {
    struct tensor hidden, down, codes, groups;
    const int32_t *num_candidates;
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t round_up(int64_t count, int64_t step) { return (count + step - 1) / step * step; }

static ort_status *read_inputs(const ort_context *context, struct inputs *given, struct speculative_job *job)
{
    TRY(read_tensor(context, 0, &given->hidden));
    TRY(read_tensor(context, 1, &given->down));
    TRY(read_tensor(context, 2, &given->codes));
    TRY(read_data(context, 3, &job->ranking.scales));
    TRY(read_data(context, 4, &job->head.weights));
    TRY(read_data(context, 5, &job->head.scales));
    TRY(read_data(context, 6, &job->ranking.bias));
    TRY(read_tensor(context, 7, &given->groups));
    TRY(read_data(context, 8, &job->noise_keys));
    TRY(read_data(context, 9, &job->inverse_temperature));
    TRY(read_data(context, 10, &given->num_candidates));
    if (given->hidden.rank != 3 || given->down.rank != 2 || given->codes.rank != 4 ||
        given->hidden.dims[2] != given->down.dims[1] || given->hidden.dims[2] > MOST_HEAD_DEPTH)
        return fail("SpeculativeHead: expected hidden [B, N, d], down [r, d], ranking codes [P, r / 4, 16, 4]");
    if (given->codes.dims[1] * DEPTH_GROUP != round_up(given->down.dims[0], DEPTH_GROUP))
        return fail("SpeculativeHead ranking codes: expected as many inputs as down has rows");
    if (job->is_exact && (!job->head.weights || !job->head.scales))
        return fail("SpeculativeHead head: expected rows and scales where is_exact is 1");
    if (given->groups.data && (given->groups.rank != 2 || given->groups.dims[1] < 1))
        return fail("SpeculativeHead groups: expected [G, S]");
    if (given->groups.data && !job->is_exact)
        return fail("SpeculativeHead is_exact: expected 1 with groups");
    return NULL;
}

static void set_sizes(const struct inputs *given, struct speculative_job *job)
{
    job->hidden = given->hidden.data;
    job->down = given->down.data;
    job->num_rows = given->hidden.dims[0] * given->hidden.dims[1];
    job->hidden_size = given->hidden.dims[2];
    job->rank = given->down.dims[0];
    job->groups = given->groups.data;
    job->group_size = job->groups ? given->groups.dims[1] : 1;
    job->num_ranked = job->groups ? given->groups.dims[0] : job->num_vocab;
    job->num_chunks = (job->num_ranked + CHUNK - 1) / CHUNK;
    struct linear_job *ranking = &job->ranking, *head = &job->head;
    ranking->kernels = head->kernels = job->kernels;
    ranking->num_rows = head->num_rows = job->num_rows;
    ranking->weights = given->codes.data;
    ranking->depth = job->rank;
    ranking->padded_depth = round_up(job->rank, DEPTH_GROUP);
    ranking->num_outputs = job->num_ranked;
    ranking->y_stride = round_up(job->num_ranked, PANEL_COLUMNS);
    head->x = job->hidden;
    head->depth = job->hidden_size;
    head->padded_depth = round_up(job->hidden_size, DEPTH_STEP);
    head->num_outputs = job->num_vocab;
}

/* Pieces of one allocation, each aligned to a cache line; with no memory behind it: only counts. */
struct arena {
    char *memory;
    size_t used;
};

static void *take(struct arena *arena, int64_t num_bytes)
{
    void *piece = arena->memory ? arena->memory + arena->used : NULL;
    arena->used += (size_t)round_up(num_bytes, 64);
    return piece;
}

static void take_memory(struct speculative_job *job, struct arena *arena)
{
    const int64_t rows = job->num_rows, ranked = job->ranking.y_stride;
    job->rows = take(arena, rows * (int64_t)sizeof *job->rows);
    job->projected = take(arena, rows * job->rank * 4);
    job->ranking.x = job->projected;
    job->ranking.activations =
        take(arena, job->kernels->activation_bytes(rows, job->ranking.padded_depth) + ACTIVATION_SLACK);
    job->ranking.row_scales = take(arena, rows * 4);
    job->ranking.y = take(arena, rows * ranked * 4);
    job->head.activations = take(arena, job->kernels->activation_bytes(rows, job->head.padded_depth));
    job->head.row_scales = take(arena, rows * 4);
    for (int64_t i = 0; i < rows; i++) {
        struct speculative_row row = {0};
        row.candidates = take(arena, job->most_candidates * 4);
        row.logits = take(arena, job->most_candidates * 4);
        row.kept = take(arena, (ranked + PANEL_COLUMNS) * 4);
        row.chunk_counts = take(arena, job->num_chunks * 4);
        row.keys = take(arena, ranked * 4);
        if (arena->memory)
            job->rows[i] = row;
    }
}

static int64_t count_kept(const struct speculative *op, const struct speculative_job *job, int32_t wanted)
{
    const int64_t tokens = wanted > 0 ? wanted : op->num_candidates;
    return most(1, least(tokens / job->group_size, job->num_ranked));
}

static ort_status *allocate(const struct speculative *op, const struct inputs *given, struct speculative_job *job)
{
    int64_t largest = 1;
    for (int64_t i = 0; i < job->num_rows; i++)
        largest = most(largest, count_kept(op, job, given->num_candidates[i]));
    job->most_candidates = largest * job->group_size;
    struct arena arena = {NULL, 0};
    take_memory(job, &arena);
    arena.memory = thread_scratch(arena.used);
    if (!arena.memory)
        return fail("SpeculativeHead: out of memory");
    arena.used = 0;
    take_memory(job, &arena);
    for (int64_t i = 0; i < job->num_rows; i++)
        job->rows[i].num_kept = count_kept(op, job, given->num_candidates[i]);
    return NULL;
}

static bool all_finite(const float *x, int64_t count)
{
    float check = 0.0f;
    for (int64_t i = 0; i < count; i++)
        check += x[i] * 0.0f;
    return check == 0.0f;
}

/* h' and both kinds of activations. */
static ort_status *prepare(const ort_context *context, struct speculative_job *job)
{
    const int64_t elements = job->num_rows * job->rank * job->hidden_size;
    const int64_t tasks = most(1, least(elements / PROJECT_ELEMENTS, least(job->rank, MOST_TASKS)));
    TRY(run_tasks(context, project_hidden, job, job->rank, tasks, 1));
    job->kernels->quantize_rows(&job->ranking, 0, job->num_rows);
    if (job->is_exact)
        job->kernels->quantize_rows(&job->head, 0, job->num_rows);
    for (int64_t i = 0; i < job->num_rows; i++)
        job->rows[i].broken = !all_finite(job->hidden + i * job->hidden_size, job->hidden_size) ||
                              !all_finite(job->projected + i * job->rank, job->rank);
    return NULL;
}

static ort_status *run_steps(const ort_context *context, struct speculative_job *job)
{
    const int64_t panels = (job->num_ranked + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
    const int64_t row_tasks = least(job->num_rows, MOST_TASKS);
    TRY(prepare(context, job));
    if (has_sample(job)) /* these scores are computed once more among all: 1 to 4 % */
        rank_sample(job, 0, SAMPLE_PANELS);
    TRY(run_tasks(context, estimate_floors, job, job->num_rows, row_tasks, 1));
    TRY(run_tasks(context, rank_chunks, job, panels, least(job->num_chunks, MOST_TASKS), CHUNK_PANELS));
    TRY(run_tasks(context, choose_candidates, job, job->num_rows, row_tasks, 1));
    if (job->is_exact) {
        const int64_t blocks = job->num_rows * ((job->most_candidates + LOGIT_BLOCK - 1) / LOGIT_BLOCK);
        TRY(run_tasks(context, multiply_blocks, job, blocks, least(blocks, MOST_TASKS), 1));
    }
    return run_tasks(context, finish_rows, job, job->num_rows, row_tasks, 1);
}

static ort_status *compute(void *kernel, ort_context *context)
{
    const struct speculative *op = kernel;
    struct speculative_job job = {.kernels = op->kernels,
                                  .is_exact = op->is_exact != 0,
                                  .num_vocab = op->num_vocab,
                                  .num_outputs = op->num_outputs};
    struct inputs given;
    TRY(read_inputs(context, &given, &job));
    set_sizes(&given, &job);
    if (given.codes.dims[0] * PANEL_COLUMNS < job.num_ranked)
        return fail("SpeculativeHead ranking codes: expected a row for every token or group");
    const int64_t dims[] = {given.hidden.dims[0], given.hidden.dims[1], job.num_outputs};
    TRY(make_output(context, 0, dims, 3, &job.ids));
    TRY(make_output(context, 1, dims, 3, &job.logits));
    TRY(make_output(context, 2, dims, 2, &job.log_sum_exp));
    if (job.num_rows == 0)
        return NULL;
    TRY(allocate(op, &given, &job));
    return run_steps(context, &job);
}

static ort_status *create(const ort_operator *op, const ort_table *table, const ort_info *info, void **kernel)
{
    (void)op, (void)table;
    TRY(make_kernel(sizeof(struct speculative), kernel));
    struct speculative *made = *kernel;
    made->kernels = registered_kernels;
    TRY(ort_get_int(info, "num_outputs", &made->num_outputs));
    TRY(ort_get_int(info, "num_candidates", &made->num_candidates));
    TRY(ort_get_int(info, "num_vocab", &made->num_vocab));
    TRY(ort_get_int(info, "is_exact", &made->is_exact));
    if (made->num_outputs < 1 || made->num_outputs > MOST_BEST)
        return fail("SpeculativeHead num_outputs: expected 1 to 64");
    if (made->num_candidates < 1 || made->num_vocab < 1)
        return fail("SpeculativeHead: expected num_candidates and num_vocab of 1 or more");
    return NULL;
}

NODE_OPERATOR(operator_speculative_head, "SpeculativeHead", create, compute,
              .inputs = {ORT_FLOAT, ORT_FLOAT, ORT_INT8, ORT_FLOAT, ORT_INT8 | OPTIONAL, ORT_FLOAT | OPTIONAL,
                         ORT_FLOAT | OPTIONAL, ORT_INT32 | OPTIONAL, ORT_INT64, ORT_FLOAT, ORT_INT32},
              .outputs = {ORT_INT32, ORT_FLOAT, ORT_FLOAT});
