/* passes/pipeline_cpu.c -- the CPU's pipeline, from its first pass to its last. */
#include <config.h>

#include "passes/passes.h"

#define PASS(name) {.pass = &pass_##name}
#define GROUP(name) {.group = &name}
#define ENTRIES(table) .entries = (table), .count = (int)WEFT_COUNT(table)

static const struct pass_entry legality_entries[] = {
  PASS(dce), PASS(normalize_layouts), PASS(async_expander), PASS(remove_annotations), PASS(one_form), PASS(scan_expander),
  PASS(call_inliner), PASS(flatten), PASS(spmd_partitioner),
  PASS(normalize_entry_layout), PASS(flatten), PASS(map_inliner),
  PASS(batch_norm_expander), PASS(rng_expander), PASS(elementwise_expander), PASS(dynamic_dimensions),
  PASS(reduce_window_rewriter), PASS(dot_expander), PASS(dot_canonicalizer), PASS(dce),
};
static const pass_pipeline legality = {"legality", ENTRIES(legality_entries), .rounds = 1};

static const struct pass_entry simplify_entries[] = {
  PASS(tuple_simplifier), PASS(algebraic_simplifier), PASS(constant_folding), PASS(conditional_simplifier),
  PASS(sort_simplifier), PASS(zero_sized), PASS(while_simplifier), PASS(licm), PASS(tuple_simplifier), PASS(cse),
  PASS(dce),
};
static const pass_pipeline simplify = {"simplify", ENTRIES(simplify_entries), .rounds = 8};

static const struct pass_entry backend_entries[] = {
  PASS(remove_barriers), PASS(tuple_simplifier), PASS(dot_canonicalizer), PASS(cse), PASS(dce), PASS(all_reduce_combiner),
  PASS(all_gather_combiner), PASS(reduce_scatter_combiner), PASS(reduce_splitter), PASS(small_loops), PASS(fusion), PASS(multi_output_fusion),
  PASS(wrap), PASS(cse), PASS(schedule), PASS(copy_insertion), PASS(regions), PASS(strategies),
};
static const pass_pipeline backend = {"backend", ENTRIES(backend_entries), .rounds = 1};

static const struct pass_entry cpu_entries[] = {GROUP(legality), GROUP(simplify), GROUP(backend)};
const pass_pipeline pass_cpu_pipeline = {"cpu", ENTRIES(cpu_entries), .rounds = 1};
