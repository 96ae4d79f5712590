/* What the plugin library exports besides its plugins: who it is, readable with and without loading it. */
#ifndef DRAFTSMITH_TENSORRT_LIBRARY_H
#define DRAFTSMITH_TENSORRT_LIBRARY_H

#include <stdint.h>

#include "../kernels/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when a plugin's inputs, outputs, attributes or stored layout change: an engine needs the library of its own. */
enum { DRAFTSMITH_PLUGINS_VERSION = 1 };

/* "draftsmith-plugins:" and a JSON object: version, kernels_version, tensorrt (major), cuda (major), machine,
 * architectures, plugins. plugins/tensorrt_library.py finds it in the file. */
DRAFTSMITH_API extern const char draftsmith_plugins_metadata[];

DRAFTSMITH_API int32_t draftsmith_plugins_version(void);

/* Makes TensorRT's registry know the plugins; loading the library does it. How many of them are registered now. */
DRAFTSMITH_API int32_t draftsmith_plugins_register(void);

#ifdef __cplusplus
}
#endif

#endif
