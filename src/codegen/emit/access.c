/* codegen/emit/access.c -- one access to memory, with what is known of its alignment and aliasing. */
#include <config.h>

#include "codegen/emit/emit.h"

void gen_annotate(gen_emit *e, const gen_buffer *buf, gen_ssa access, bool is_load)
{
  gen_part *p = e->part;

  if (buf->scope) LLVMSetMetadata(access, p->md_scope, LLVMMetadataAsValue(p->ctx, buf->scope));
  if (buf->noalias) LLVMSetMetadata(access, p->md_noalias, LLVMMetadataAsValue(p->ctx, buf->noalias));
  if (is_load && buf->invariant) LLVMSetMetadata(access, p->md_invariant, LLVMMetadataAsValue(p->ctx, p->empty_node));
}

gen_ssa gen_element_ptr(gen_emit *e, const gen_buffer *buf, LLVMTypeRef type, gen_ssa index)
{
  return LLVMBuildInBoundsGEP2(e->b, type, buf->ptr, &index, 1, "");
}

unsigned gen_type_bytes(gen_part *p, LLVMTypeRef t)
{
  return t == p->i8 ? 1 : t == p->i16 ? 2 : t == p->i32 || t == p->f32 ? 4 : 8;
}

gen_ssa gen_load_plain(gen_emit *e, const gen_buffer *buf, LLVMTypeRef element, gen_ssa index, int lanes)
{
  LLVMTypeRef t = lanes > 1 ? LLVMVectorType(element, (unsigned)lanes) : element;
  gen_ssa v = LLVMBuildLoad2(e->b, t, gen_element_ptr(e, buf, element, index), "");

  LLVMSetAlignment(v, gen_type_bytes(e->part, element));
  gen_annotate(e, buf, v, true);
  return v;
}

void gen_store_plain(gen_emit *e, const gen_buffer *buf, LLVMTypeRef element, gen_ssa index, gen_ssa v)
{
  gen_ssa store = LLVMBuildStore(e->b, v, gen_element_ptr(e, buf, element, index));

  LLVMSetAlignment(store, gen_type_bytes(e->part, element));
  gen_annotate(e, buf, store, false);
}
