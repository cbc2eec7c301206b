/* passes/pipeline_common.c -- the groups of passes that every platform runs first, in this order: legality, which
 * removes the forms that later stages do not handle, and simplification. */
#include <config.h>

#include "passes/pipeline.h"

static const struct pass_entry legality_entries[] = {
  PASS(dce), PASS(normalize_layouts), PASS(async_expander), PASS(remove_annotations), PASS(one_form), PASS(scan_expander),
  PASS(call_inliner), PASS(flatten), PASS(scopes), PASS(spmd_partitioner),
  PASS(normalize_entry_layout), PASS(flatten), PASS(map_inliner),
  PASS(batch_norm_expander), PASS(rng_expander), PASS(elementwise_expander), PASS(erfc), PASS(dynamic_dimensions),
  PASS(reduce_window_rewriter), PASS(dot_expander), PASS(tuple_simplifier), PASS(dim_orders), PASS(dot_canonicalizer), PASS(dce),
};
const pass_pipeline pass_legality = {"legality", ENTRIES(legality_entries), .rounds = 1};

static const struct pass_entry simplify_entries[] = {
  PASS(tuple_simplifier), PASS(algebraic_simplifier), PASS(constant_folding), PASS(conditional_simplifier),
  PASS(sort_simplifier), PASS(zero_sized), PASS(while_simplifier), PASS(licm), PASS(tuple_simplifier), PASS(cse),
  PASS(dce),
};
const pass_pipeline pass_simplify = {"simplify", ENTRIES(simplify_entries), .rounds = 8};
