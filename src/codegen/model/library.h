/* codegen/model/library.h -- which instructions become (part of) a compiled kernel, and which a call of a library. */
#ifndef WEFT_CODEGEN_MODEL_LIBRARY_H
#define WEFT_CODEGEN_MODEL_LIBRARY_H

#include "codegen/model/target.h"
#include "hlo/hlo.h"

/* Does an instruction of a sequential computation become a kernel? If not, it is a library call, control flow, a
 * collective or an alias. */
bool gen_needs_kernel(const gen_target *target, const hlo_instr *instr);
/* The same question for a dot. Inside a region a kernel costs less, since nothing dispatches it. */
bool gen_dot_needs_kernel(const gen_target *target, const hlo_instr *dot, bool in_region);
/* The backend_config of a fusion that is one step of a library: a dot, and what is done to each element of its result
 * (pass library-epilogues, for GPUs), or a dot that reads parts of arrays where they lie (pass dot-parts, for CPUs). */
#define GEN_LIBRARY_FUSION "library"
/* The backend_config of a fusion that is one step of the CPU's library, too: a dot, a kernel over the rows of its
 * result, and a dot of the kernel's result, computed strip by strip (pass strips). Both dots may be library fusions. */
#define GEN_STRIPS_FUSION "strips"
/* The backend_config of a fusion that is one step of the CPU's library, too: a convolution whose features come last,
 * and a kernel over the pixels of its result, called for each block of pixels (pass conv-blocks). */
#define GEN_CONV_BLOCKS_FUSION "conv-blocks"
/* The backend_config of a fusion that is one step of the CPU's library, too: dots that give arrays of scores, one
 * kernel over the rows of these, and dots that read the kernel's results as their left side (pass strip-groups). */
#define GEN_STRIP_GROUP "strip-group"
bool gen_is_library_fusion(const hlo_instr *instr); /* of any of these kinds */
bool gen_is_strips_fusion(const hlo_instr *instr);  /* a chain or a group: it has a kernel */
bool gen_is_strip_group(const hlo_instr *instr);
bool gen_is_conv_blocks_fusion(const hlo_instr *instr);
/* Is it one of the library's fusions that call a compiled kernel, a fusion inside of them? */
bool gen_calls_kernel(const hlo_instr *instr);
/* The dot that `instr` is, or that it is the root of if it is a library fusion; NULL: neither. */
const hlo_instr *gen_library_dot(const hlo_instr *instr);
/* The operand of `instr` that is the left side of its dot; NULL: it is a part of an array, or there is no such dot. */
hlo_instr *gen_library_left(const hlo_instr *instr);
/* True if the dot that `instr` is or has multiplies what is stored, not weights that it makes of that. */
bool gen_multiplies_stored(const hlo_instr *instr);
/* Does a concatenate have so many operands and elements that the library does it? Its kernel would have a loop for
 * each operand. */
bool gen_is_wide_concatenate(const hlo_instr *instr);

#endif
