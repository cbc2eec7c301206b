/* passes/pipeline.h -- how the tables of the pipelines are written, and the groups that they share. */
#ifndef WEFT_PASSES_PIPELINE_H
#define WEFT_PASSES_PIPELINE_H

#include "passes/passes.h"

#define PASS(name) {.pass = &pass_##name}
#define GROUP(name) {.group = &name}
#define ENTRIES(table) .entries = (table), .count = (int)WEFT_COUNT(table)

extern const pass_pipeline pass_legality, pass_simplify; /* pipeline_common.c */

#endif
