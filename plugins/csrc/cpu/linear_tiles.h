/* The AMX forms of `multiply_panels` and `multiply_vocabulary`. */
#ifndef DRAFTSMITH_LINEAR_TILES_H
#define DRAFTSMITH_LINEAR_TILES_H

#include "kernels.h"

void multiply_panels_tiles(const struct linear_job *job, int64_t first, int64_t last);
void multiply_vocabulary_tiles(const struct linear_job *job, int64_t first, int64_t last);

#endif
