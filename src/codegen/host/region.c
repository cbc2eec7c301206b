/* codegen/host/region.c -- the host's part of regions (emit/region.c): one thread runs them. */
#include <config.h>

#include "codegen/host/host.h"

void gen_host_copy(gen_emit *e, gen_ssa to, gen_ssa from, int64_t bytes)
{
  LLVMBuildMemCpy(e->b, to, 1, from, 1, gen_i64(e, bytes));
}

void gen_host_sync(gen_emit *e) { (void)e; }

weft_status *gen_host_start(gen_part *part, gen_kernel_spec *spec, gen_frame *f)
{
  const hlo_instr *fusion = spec->fusion;
  gen_emit *e = &f->e;

  WEFT_TRY(gen_frame_open(part, spec, 0, f));
  for (int a = 0; a < fusion->u.fusion.alias_count; a++) {
    const hlo_output_alias *alias = &fusion->u.fusion.aliases[a];
    const hlo_instr *param = fusion->called[0]->params[alias->operand];
    if (!hlo_shape_is_array(param->shape)) continue;
    gen_ssa from = f->env.params[alias->operand].buffers->ptr, to = f->results[gen_alias_leaf(fusion, alias)].ptr;
    gen_if moved;
    gen_if_begin(
      e, &moved,
      gen_icmp(e, LLVMIntNE, LLVMBuildPtrToInt(e->b, from, part->i64, ""), LLVMBuildPtrToInt(e->b, to, part->i64, "")));
    gen_host_copy(e, to, from, hlo_shape_bytes(param->shape));
    gen_if_end(e, &moved);
  }
  return NULL;
}
