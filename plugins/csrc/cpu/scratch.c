#include "scratch.h"

#include <pthread.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(memory, num_bytes)
#define ASAN_UNPOISON_MEMORY_REGION(memory, num_bytes)
#endif

struct block {
    size_t num_bytes;
    void *memory;
};

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void release(void *value)
{
    struct block *block = value;
    ASAN_UNPOISON_MEMORY_REGION(block->memory, block->num_bytes);
    free(block->memory);
    free(block);
}

static void create_key(void) { pthread_key_create(&key, release); }

void *thread_scratch(size_t num_bytes)
{
    pthread_once(&once, create_key);
    struct block *block = pthread_getspecific(key);
    if (!block) {
        block = calloc(1, sizeof *block);
        if (!block || pthread_setspecific(key, block)) {
            free(block);
            return NULL;
        }
    }
    ASAN_UNPOISON_MEMORY_REGION(block->memory, block->num_bytes);
    if (block->num_bytes < num_bytes) {
        free(block->memory);
        block->num_bytes = 0;
        const size_t rounded = (num_bytes + 4095) / 4096 * 4096;
        block->memory = aligned_alloc(64, rounded);
        if (!block->memory)
            return NULL;
        block->num_bytes = rounded;
    }
    ASAN_POISON_MEMORY_REGION((char *)block->memory + num_bytes, block->num_bytes - num_bytes);
    return block->memory;
}
