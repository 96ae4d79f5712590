#include "tree_mask.h"

#include <string.h>

/* One token's row: what it may see are mask columns [first, last), of cache columns start + [first, last). */
struct row {
    const bool *mask;
    int64_t start, first, last;
    int64_t plain; /* mask columns [first, plain) are all seen, the one at `plain` is not */
};

/* Later tokens of the block are never seen, whatever their bits; nor is padding, which comes behind every token. */
static struct row find_row(const struct attention_job *job, int64_t b, int64_t t)
{
    const int64_t earlier = job->num_masked - job->num_tokens, past = job->past_lengths[b];
    struct row row = {.mask = job->tree_mask + (b * job->num_tokens + t) * job->num_masked, .start = past - earlier};
    row.first = row.start < 0 ? -row.start : 0;
    row.last = earlier + t + 1;
    const bool *hole = memchr(row.mask + row.first, 0, (size_t)(row.last - row.first));
    row.plain = hole ? hole - row.mask : row.last;
    return row;
}

static int64_t count_others(const struct row *row)
{
    int64_t count = 0;
    for (int64_t j = row->plain; j < row->last; j++)
        count += row->mask[j];
    return count;
}

const char *measure_mask(const struct attention_job *job, struct mask_size *size)
{
    *size = (struct mask_size){0, 1};
    for (int64_t b = 0; b < job->num_sequences; b++)
        for (int64_t t = 0; t < job->query_lengths[b]; t++) {
            const struct row row = find_row(job, b, t);
            if (!row.mask[row.last - 1])
                return "CachedAttention: expected a tree_mask in which each token sees itself";
            if (row.first && memchr(row.mask, 1, (size_t)row.first))
                return "CachedAttention: expected a tree_mask of columns that are in the cache";
            const int64_t others = count_others(&row), num_columns = row.start + row.plain + others;
            size->num_others += others;
            size->num_columns = num_columns > size->num_columns ? num_columns : size->num_columns;
        }
    return NULL;
}

void read_mask(const struct attention_job *job, int32_t *others)
{
    for (int64_t b = 0; b < job->num_sequences; b++)
        for (int64_t t = 0; t < job->query_lengths[b]; t++) {
            const struct row row = find_row(job, b, t);
            struct sight *sight = &job->sights[b * job->num_tokens + t];
            sight->plain_end = row.start + row.plain;
            sight->others = others;
            for (int64_t j = row.plain; j < row.last; j++)
                if (row.mask[j])
                    *others++ = (int32_t)(row.start + j);
            sight->num_columns = sight->plain_end + (others - sight->others);
        }
}
