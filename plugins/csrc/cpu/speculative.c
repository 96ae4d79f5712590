#include "speculative.h"

#include <math.h>
#include <string.h>

#include "selection.h"

void project_hidden(void *data, int64_t first, int64_t last)
{
    const struct speculative_job *job = data;
    const struct projection projection = {.num_rows = job->num_rows,
                                          .depth = job->hidden_size,
                                          .num_outputs = job->rank,
                                          .x = job->hidden,
                                          .weights = job->down,
                                          .y = job->projected};
    job->kernels->project(&projection, first, last);
}

/* The first panel of sample `index`. */
static int64_t sample_panel(const struct speculative_job *job, int64_t index)
{
    return (job->num_ranked + PANEL_COLUMNS - 1) / PANEL_COLUMNS * index / SAMPLE_PANELS;
}

void rank_sample(void *data, int64_t first, int64_t last)
{
    const struct speculative_job *job = data;
    for (int64_t i = first; i < last; i++)
        job->kernels->rank_panels(&job->ranking, sample_panel(job, i), sample_panel(job, i) + 1);
}

static int64_t gather_sample(const struct speculative_job *job, const float *scores, float *sample)
{
    int64_t count = 0;
    for (int64_t i = 0; i < SAMPLE_PANELS; i++) {
        const int64_t first = sample_panel(job, i) * PANEL_COLUMNS, left = job->num_ranked - first;
        const int64_t taken = left < PANEL_COLUMNS ? left : PANEL_COLUMNS;
        memcpy(sample + count, scores + first, (size_t)taken * sizeof(float));
        count += taken;
    }
    return count;
}

bool has_sample(const struct speculative_job *job) { return job->num_ranked >= 4 * SAMPLE_PANELS * PANEL_COLUMNS; }

void estimate_floors(void *data, int64_t first, int64_t last)
{
    const struct speculative_job *job = data;
    for (int64_t i = first; i < last; i++) {
        struct speculative_row *row = &job->rows[i];
        row->floor = -INFINITY;
        const double share = (double)row->num_kept / (double)job->num_ranked;
        if (row->broken || share > 0.5 || !has_sample(job))
            continue;
        float sample[SAMPLE_PANELS * PANEL_COLUMNS];
        uint32_t keys[SAMPLE_PANELS * PANEL_COLUMNS];
        const int64_t count = gather_sample(job, job->ranking.y + i * job->ranking.y_stride, sample);
        const double expected = share * (double)count; /* neighbours are alike: a wide margin */
        row->floor = estimate_floor(sample, count, (int64_t)(expected + 4.0 * sqrt(expected) + 4.0), keys);
    }
}

void rank_chunks(void *data, int64_t first, int64_t last)
{
    const struct speculative_job *job = data;
    for (int64_t panel = first; panel < last; panel += CHUNK_PANELS) {
        const int64_t end = panel + CHUNK_PANELS < last ? panel + CHUNK_PANELS : last;
        const int64_t start = panel * PANEL_COLUMNS, left = job->num_ranked - start;
        job->kernels->rank_panels(&job->ranking, panel, end);
        for (int64_t i = 0; i < job->num_rows; i++) {
            const struct speculative_row *row = &job->rows[i];
            if (!row->broken)
                row->chunk_counts[panel / CHUNK_PANELS] = (int32_t)job->kernels->keep_above(
                    job->ranking.y + i * job->ranking.y_stride, start, start + (left < CHUNK ? left : CHUNK), row->floor,
                    row->kept + start);
        }
    }
}

/* What the chunks kept, one behind the other; everything where the floor was too high. */
static int64_t join_chunks(const struct speculative_job *job, const struct speculative_row *row, const float *scores)
{
    int64_t count = 0;
    for (int64_t chunk = 0; chunk < job->num_chunks; chunk++) {
        const int64_t more = row->chunk_counts[chunk];
        memmove(row->kept + count, row->kept + chunk * CHUNK, (size_t)more * sizeof(int32_t));
        count += more;
    }
    return count < row->num_kept ? job->kernels->keep_above(scores, 0, job->num_ranked, -INFINITY, row->kept) : count;
}

static void take_groups(const struct speculative_job *job, struct speculative_row *row, int64_t num_groups)
{
    for (int64_t i = 0; i < num_groups; i++)
        for (int64_t j = 0; j < job->group_size; j++) {
            const int32_t id = job->groups[row->kept[i] * job->group_size + j];
            if (id >= 0 && id < job->num_vocab)
                row->candidates[row->count++] = id;
        }
}

void choose_candidates(void *data, int64_t first, int64_t last)
{
    const struct speculative_job *job = data;
    for (int64_t i = first; i < last; i++) {
        struct speculative_row *row = &job->rows[i];
        row->count = 0;
        if (row->broken)
            continue;
        const float *scores = job->ranking.y + i * job->ranking.y_stride;
        const int64_t joined = join_chunks(job, row, scores);
        const int64_t kept = keep_best(scores, row->kept, joined, row->num_kept, row->keys);
        if (job->groups) {
            take_groups(job, row, kept);
            continue;
        }
        memcpy(row->candidates, row->kept, (size_t)kept * sizeof(int32_t));
        row->count = kept;
        if (!job->is_exact)
            for (int64_t j = 0; j < kept; j++)
                row->logits[j] = scores[row->kept[j]];
    }
}

void multiply_blocks(void *data, int64_t first, int64_t last)
{
    const struct speculative_job *job = data;
    const int64_t row_bytes = job->kernels->activation_bytes(1, job->head.padded_depth);
    for (int64_t item = first; item < last; item++) {
        /* The same part of all rows first: neighbours share candidates, and those lie in the cache then. */
        const int64_t index = item % job->num_rows, start = item / job->num_rows * LOGIT_BLOCK;
        const struct speculative_row *row = &job->rows[index];
        if (start >= row->count)
            continue;
        struct linear_job part = job->head;
        part.num_rows = 1;
        part.activations = (char *)job->head.activations + index * row_bytes;
        part.row_scales += index;
        part.y = row->logits + start;
        const int64_t left = row->count - start;
        job->kernels->multiply_candidates(&part, row->candidates + start, left < LOGIT_BLOCK ? left : LOGIT_BLOCK);
    }
}

void finish_rows(void *data, int64_t first, int64_t last)
{
    const struct speculative_job *job = data;
    for (int64_t i = first; i < last; i++) {
        const struct speculative_row *row = &job->rows[i];
        int32_t *ids = job->ids + i * job->num_outputs;
        float *logits = job->logits + i * job->num_outputs;
        if (row->broken) {
            store_broken(job->num_outputs, ids, logits, job->log_sum_exp + i);
            continue;
        }
        struct best_tokens best;
        const struct token_list list = {.ids = row->candidates, .logits = row->logits, .count = row->count};
        begin_best(&best, job->num_outputs, job->inverse_temperature[i], job->noise_keys[i]);
        offer_tokens(&best, job->kernels, &list);
        store_best(&best, ids, logits, job->log_sum_exp + i);
    }
}
