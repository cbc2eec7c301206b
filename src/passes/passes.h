/* passes/passes.h -- every pass of this module by name, for the pipeline tables and tests.  The contract of each stands
 * at the head of its file. */
#ifndef WEFT_PASSES_PASSES_H
#define WEFT_PASSES_PASSES_H

#include "passes/pass.h"
#include "passes/util.h"

/* Legality: what later stages need not know. */
extern const hlo_pass pass_normalize_layouts; /* normalize_layouts.c */
extern const hlo_pass pass_remove_annotations, pass_remove_barriers; /* no_ops.c */
extern const hlo_pass pass_call_inliner;      /* call_inliner.c */
extern const hlo_pass pass_flatten;           /* flatten.c */
extern const hlo_pass pass_map_inliner;       /* map_inliner.c */
extern const hlo_pass pass_batch_norm_expander;
extern const hlo_pass pass_rng_expander, pass_rng_bit_generator_expander;
extern const hlo_pass pass_elementwise_expander;
extern const hlo_pass pass_dynamic_dimensions;
extern const hlo_pass pass_dot_canonicalizer;
extern const hlo_pass pass_gather_scatter_normalizer;
extern const hlo_pass pass_conditional_to_select;
extern const hlo_pass pass_reduce_window_rewriter;

/* Simplification. */
extern const hlo_pass pass_dce, pass_cse, pass_constant_folding, pass_algebraic_simplifier, pass_tuple_simplifier;
extern const hlo_pass pass_while_simplifier, pass_licm, pass_sort_simplifier, pass_zero_sized, pass_reshape_mover;
extern const hlo_pass pass_transpose_folding, pass_tree_reduction;

/* Towards the machine. */
extern const hlo_pass pass_fusion, pass_wrap, pass_region, pass_schedule;
extern const hlo_pass pass_copy_insertion;    /* owner: buffer */

#endif
