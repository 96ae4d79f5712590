/* Status codes of every kernel launch, their names, and the version of the kernel archive. */
#ifndef DRAFTSMITH_STATUS_H
#define DRAFTSMITH_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DRAFTSMITH_API __attribute__((visibility("default")))
#else
#define DRAFTSMITH_API
#endif

/* Raised whenever a structure or a function of the C interface changes. */
enum { DRAFTSMITH_KERNELS_VERSION = 1 };

typedef enum draftsmith_status {
    DRAFTSMITH_OK = 0,
    DRAFTSMITH_NULL_POINTER = 1,        /* a required pointer is null */
    DRAFTSMITH_MISALIGNED_POINTER = 2,  /* a pointer is not aligned to its element (workspace: 256 bytes) */
    DRAFTSMITH_UNSUPPORTED_TYPE = 3,    /* an element type, or a combination of them, has no kernel */
    DRAFTSMITH_UNSUPPORTED_DEVICE = 4,  /* the device is older than the kernel needs */
    DRAFTSMITH_INVALID_SHAPE = 5,       /* a dimension is out of its range */
    DRAFTSMITH_TOO_MANY_ROWS = 6,       /* more rows than one launch takes */
    DRAFTSMITH_TOO_MANY_CANDIDATES = 7, /* k is above V */
    DRAFTSMITH_TOO_MANY_OUTPUTS = 8,    /* `out` is above k, or above what one launch takes */
    DRAFTSMITH_WORKSPACE_TOO_SMALL = 9, /* fewer bytes than the query function asks for */
    DRAFTSMITH_INVALID_PARAMETER = 10,  /* a parameter is out of its range or not known */
    DRAFTSMITH_CUDA_ERROR = 11          /* the CUDA runtime refused; see draftsmith_status_detail */
} draftsmith_status;

/* Element types of tensors. */
typedef enum draftsmith_type {
    DRAFTSMITH_FLOAT16 = 0,
    DRAFTSMITH_BFLOAT16 = 1,
    DRAFTSMITH_INT8 = 2,
    DRAFTSMITH_FLOAT8_E4M3 = 3,
    DRAFTSMITH_FLOAT32 = 4
} draftsmith_type;

/* DRAFTSMITH_KERNELS_VERSION of the library that was loaded. */
DRAFTSMITH_API int32_t draftsmith_kernels_version(void);

/* "misaligned_pointer"; "unknown" for a number that is no status. Static text. */
DRAFTSMITH_API const char *draftsmith_status_name(int32_t status);

/* What the last call of this thread that did not return DRAFTSMITH_OK found: "w_head: expected ..., found ...".
 * Valid until the thread's next call. */
DRAFTSMITH_API const char *draftsmith_status_detail(void);

#ifdef __cplusplus
}
#endif

#endif
