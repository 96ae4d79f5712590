/* Working memory of the calling thread, kept from call to call and freed when the thread ends. */
#ifndef DRAFTSMITH_SCRATCH_H
#define DRAFTSMITH_SCRATCH_H

#include <stddef.h>

/* At least `num_bytes`, aligned to 64; what an earlier call returned is gone. NULL where memory is out. */
void *thread_scratch(size_t num_bytes);

#endif
