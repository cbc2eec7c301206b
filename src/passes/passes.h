/* passes/passes.h -- every pass of this module by name, for the pipeline tables and for tests. The contract of each
 * pass stands at the head of its file. */
#ifndef WEFT_PASSES_PASSES_H
#define WEFT_PASSES_PASSES_H

#include "passes/pass.h"
#include "passes/util.h"

/* Passes that remove forms which later stages do not handle. */
extern const hlo_pass pass_normalize_layouts;
extern const hlo_pass pass_normalize_entry_layout;
extern const hlo_pass pass_async_expander;
extern const hlo_pass pass_remove_annotations, pass_remove_barriers; /* no_ops.c */
extern const hlo_pass pass_one_form, pass_scan_expander;
extern const hlo_pass pass_call_inliner, pass_flatten, pass_scopes, pass_map_inliner;
extern const hlo_pass pass_spmd_partitioner; /* spmd/ */
extern const hlo_pass pass_batch_norm_expander, pass_rng_expander, pass_elementwise_expander, pass_erfc;
extern const hlo_pass pass_dynamic_dimensions, pass_dot_expander, pass_dot_canonicalizer, pass_reduce_window_rewriter;
extern const hlo_pass pass_dim_orders;         /* before dot-canonicalizer */
extern const hlo_pass pass_conv_canonicalizer; /* for platforms with a convolution library */
extern const hlo_pass pass_conv_patches;       /* convolutions that no library has, as dots of patches */
extern const hlo_pass pass_library_epilogues;  /* likewise: bias and activation of a dot */
extern const hlo_pass pass_library_dots;       /* for platforms with a library of products */
extern const hlo_pass pass_features_last;      /* for platforms whose convolutions are faster in that order */
extern const hlo_pass pass_dot_joins;          /* for the platforms of dot-parts, before it */
extern const hlo_pass pass_dot_groups;         /* likewise */
extern const hlo_pass pass_narrow_weights;     /* for platforms whose library multiplies operands of two types */
extern const hlo_pass pass_dot_rounding;       /* for platforms with products of two narrow floats */
extern const hlo_pass pass_dot_parts;          /* for platforms whose library reads parts of arrays in place */
extern const hlo_pass pass_conv_blocks;        /* for platforms whose library calls a kernel for blocks of pixels */
extern const hlo_pass pass_strip_groups; /* for platforms of strips, before it: dots and kernels that share scores */
extern const hlo_pass pass_strips;       /* for platforms whose library computes chains by strips of rows */
extern const hlo_pass pass_triangular_calls; /* for CPUs, before all others */
extern const hlo_pass pass_eigenvalues;      /* for CPUs */
extern const hlo_pass pass_library_linalg;   /* for platforms with a library of factorizations */
extern const hlo_pass pass_scatter_sorter;   /* for platforms that scatter in parallel */
extern const hlo_pass pass_reduce_splitter;

/* Simplification. */
extern const hlo_pass pass_algebraic_simplifier, pass_constant_folding, pass_cse, pass_dce, pass_tuple_simplifier;
extern const hlo_pass pass_conditional_simplifier, pass_sort_simplifier, pass_zero_sized;
extern const hlo_pass pass_while_simplifier, pass_licm;

/* Towards the machine. */
extern const hlo_pass pass_all_reduce_combiner, pass_all_gather_combiner, pass_reduce_scatter_combiner;
extern const hlo_pass pass_small_loops, pass_element_loops, pass_fusion, pass_multi_output_fusion, pass_wrap,
  pass_schedule;
extern const hlo_pass pass_copy_insertion, pass_regions, pass_loop_pairs, pass_strategies;

#endif
