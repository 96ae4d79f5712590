/* The entry point: ONNX Runtime calls it with its tables and gets the operators of the domain "draftsmith". */
#include <stdlib.h>
#include <string.h>

#include "ort_node.h"

__attribute__((visibility("default"))) ort_status *RegisterCustomOps(ort_options *options, const ort_base *base);
__attribute__((visibility("default"))) const char *draftsmith_kernels(void);

static void load_table(const ort_table *table)
{
#define ORT_LOAD(index, name, result, parameters) ort_##name = (result(*) parameters)table->entries[index];
    ORT_ENTRIES(ORT_LOAD)
#undef ORT_LOAD
}

/* The name of the kernels in use, for logs and tests. */
const char *draftsmith_kernels(void) { return registered_kernels ? registered_kernels->name : ""; }

ort_status *RegisterCustomOps(ort_options *options, const ort_base *base)
{
    static const ort_operator *const operators[] = {
        &operator_quantized_linear.base, &operator_vocabulary_linear.base, &operator_packed_rows.base,
        &operator_rms_norm.base,         &operator_add_rms_norm.base,      &operator_gated_activation.base,
        &operator_cached_attention.base, &operator_top_candidates.base,    &operator_speculative_head.base};
    const ort_table *table = base->get_table(ORT_INTERFACE_VERSION);
    if (!table) /* No status can be made without a table; later calls fail with "not a registered operator". */
        return NULL;
    load_table(table);
    registered_kernels = choose_kernels();
    if (!registered_kernels)
        return fail("DRAFTSMITH_CPU: expected kernels that this processor runs (generic, avx2, avxvnni, avx512vnni or "
                    "amx). Unset it.");
    ort_domain *domain = NULL;
    TRY(ort_create_domain("draftsmith", &domain));
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        TRY(ort_add_to_domain(domain, operators[i]));
    return ort_add_domain(options, domain);
}
