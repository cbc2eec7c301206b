/* passes/fusion.h -- what the passes that make fusions share. */
#ifndef WEFT_PASSES_FUSION_H
#define WEFT_PASSES_FUSION_H

#include "hlo/hlo.h"

/* Sets kind, strategy (backend_config) and in-place aliases of a finished fusion from its root; see fusion_kind.c. */
WEFT_NODISCARD weft_status *pass_fusion_classify(hlo_instr *fusion);

#endif
