/* The kernels of one instruction set: compiled once for each, with its flags and -DISA=name. */
#include "attention.h"
#include "attention_rotate.h"
#include "candidate_kernels.h"
#include "row_kernels.h"
#include "vocabulary_rows.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)

const struct kernels JOIN(kernels_, ISA) = {
    .name = TEXT(ISA),
    .activation_bytes = activation_bytes,
    .quantize_rows = quantize_rows,
    .multiply_panels = multiply_panels,
    .multiply_vocabulary = multiply_vocabulary,
    .rank_panels = rank_panels,
    .multiply_candidates = multiply_candidates,
    .project = project,
    .keep_above = keep_above,
    .sum_exponentials = sum_exponentials,
    .norm_rows = norm_rows,
    .gate_rows = gate_rows,
    .prepare_tokens = prepare_tokens,
    .attend_block = attend_block,
    .combine_tile = combine_tile,
};
