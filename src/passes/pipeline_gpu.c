/* passes/pipeline_gpu.c -- the pipeline of GPUs, from its first pass to its last.  It differs from the CPU's in the
 * last group, where work is given to libraries. */
#include <config.h>

#include "passes/pipeline.h"

static const struct pass_entry backend_entries[] = {
  PASS(remove_barriers), PASS(tuple_simplifier), PASS(library_linalg), PASS(conv_canonicalizer), PASS(conv_patches), PASS(dot_canonicalizer), PASS(library_dots), PASS(scatter_sorter), PASS(cse), PASS(dce), PASS(library_epilogues), PASS(all_reduce_combiner),
  PASS(all_gather_combiner), PASS(reduce_scatter_combiner), PASS(reduce_splitter), PASS(small_loops), PASS(fusion), PASS(multi_output_fusion),
  PASS(wrap), PASS(cse), PASS(schedule), PASS(copy_insertion), PASS(regions), PASS(strategies),
};
static const pass_pipeline backend = {"backend", ENTRIES(backend_entries), .rounds = 1};

static const struct pass_entry gpu_entries[] = {GROUP(pass_legality), GROUP(pass_simplify), GROUP(backend)};
const pass_pipeline pass_gpu_pipeline = {"gpu", ENTRIES(gpu_entries), .rounds = 1};
