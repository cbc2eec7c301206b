/* codegen/nvptx/grid.h -- what the files of this folder share. */
#ifndef WEFT_CODEGEN_NVPTX_GRID_H
#define WEFT_CODEGEN_NVPTX_GRID_H

#include "codegen/emit/emit.h"
#include "codegen/nvptx/nvptx.h"

enum { GEN_WARP = 32 };

extern const gen_walker gen_grid_walker;
/* The kernel of a fusion of rows: fills the artefact's launch shape. */
WEFT_NODISCARD weft_status *gen_grid_rows(gen_part *part, gen_kernel_spec *spec, gen_artefact *out);
/* The threads of a block of a loop kernel. */
int gen_grid_loop_threads(const gen_target *target);

#endif
