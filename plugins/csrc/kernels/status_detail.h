/* Internal: how a launch function leaves its status with the words for it. */
#ifndef DRAFTSMITH_STATUS_DETAIL_H
#define DRAFTSMITH_STATUS_DETAIL_H

#include "status.h"

namespace draftsmith {

/* Keeps the formatted text for draftsmith_status_detail of this thread; returns `status`. */
draftsmith_status fail(draftsmith_status status, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

} // namespace draftsmith

#endif
