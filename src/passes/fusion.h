/* passes/fusion.h -- shared by the passes that make fusions. */
#ifndef WEFT_PASSES_FUSION_H
#define WEFT_PASSES_FUSION_H

#include "hlo/hlo.h"

/* Sets kind, strategy (backend_config) and in-place aliases of a finished fusion from its root; see fusion_kind.c.
 * `strategy`, if not NULL, is one that does not follow from the root ("row", "loop"). */
WEFT_NODISCARD weft_status *pass_fusion_classify(hlo_instr *fusion, const char *strategy);

/* Rough work of one element of the result, in simple arithmetic operations; 0 for instructions that only move or repeat
 * data. */
double pass_element_cost(const hlo_instr *instr);

#endif
