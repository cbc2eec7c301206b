/* passes/pipeline_cpu.c -- the CPU's pipeline, from its first pass to its last. */
#include <config.h>

#include "passes/pipeline.h"

static const struct pass_entry backend_entries[] = {
  PASS(remove_barriers), PASS(tuple_simplifier), PASS(dot_joins), PASS(dot_groups), PASS(dce), PASS(narrow_weights), PASS(dot_canonicalizer), PASS(dot_rounding), PASS(cse), PASS(dce), PASS(all_reduce_combiner),
  PASS(all_gather_combiner), PASS(reduce_scatter_combiner), PASS(reduce_splitter), PASS(element_loops), PASS(small_loops), PASS(dot_parts), PASS(fusion), PASS(multi_output_fusion),
  PASS(wrap), PASS(cse), PASS(strip_groups), PASS(strips), PASS(conv_blocks), PASS(schedule), PASS(copy_insertion), PASS(regions), PASS(loop_pairs), PASS(strategies),
};
static const pass_pipeline backend = {"backend", ENTRIES(backend_entries), .rounds = 1};

static const struct pass_entry cpu_entries[] = {PASS(triangular_calls), GROUP(pass_legality), GROUP(pass_simplify), PASS(eigenvalues), PASS(features_last), PASS(dce), GROUP(backend)};
const pass_pipeline pass_cpu_pipeline = {"cpu", ENTRIES(cpu_entries), .rounds = 1};
