/* stablehlo/raise_loc.c -- metadata back as locations, which lower_loc.c reads as the same metadata: "name"(frames), or
 * fused["name", "file":3:7]. */
#include "hlo/frames.h"
#include "stablehlo/raise.h"

static mlir_location *named(raising *r, const char *name, const mlir_location *inner)
{
  mlir_location *loc = MAKE(r, mlir_location, 1);

  *loc = (mlir_location){.name = name, .inner = inner};
  return loc;
}

static const mlir_location *frame_location(raising *r, const hlo_frame *f)
{
  mlir_location *place = MAKE(r, mlir_location, 1);

  *place = (mlir_location){
    .file = f->file, .line = f->line, .column = f->column, .end_line = f->end_line, .end_column = f->end_column};
  return named(r, f->function, place);
}

/* The stack of a frame, made once: callsite(frame at callsite(caller at ...)). */
static const mlir_location *stack_location(raising *r, int id)
{
  const mlir_location *innermost = NULL;
  mlir_location *inside = NULL;
  hlo_frame frame;

  if (!r->stacks && r->module->stack_frames)
    r->stacks = MAKE(r, const mlir_location *, r->module->stack_frames->frame_count);
  for (; hlo_frame_get(r->module, id, &frame); id = frame.parent) {
    const mlir_location **stack = &r->stacks[id - 1];
    bool is_made = *stack, is_last = frame.parent == 0;
    mlir_location *site = NULL;
    if (!is_made && is_last) *stack = frame_location(r, &frame);
    if (!is_made && !is_last) {
      *stack = site = MAKE(r, mlir_location, 1);
      *site = (mlir_location){.inner = frame_location(r, &frame)};
    }
    if (inside) inside->caller = *stack;
    if (!innermost) innermost = *stack;
    if (is_made) break;
    inside = site;
  }
  return innermost;
}

const mlir_location *raise_location(raising *r, const hlo_instr *in)
{
  const hlo_metadata *m = in->metadata;
  const mlir_location *stack, **parts;
  mlir_location *loc = NULL, *place;

  if (!m) return NULL;
  stack = stack_location(r, m->stack_frame_id);
  if (stack) {
    loc = named(r, m->op_name ? m->op_name : "", stack);
  } else if (m->source_file) {
    place = MAKE(r, mlir_location, 1);
    *place = (mlir_location){.file = m->source_file,
                             .line = m->source_line,
                             .column = m->source_column,
                             .end_line = m->source_end_line,
                             .end_column = m->source_end_column};
    parts = MAKE(r, const mlir_location *, 2);
    parts[0] = m->op_name ? named(r, m->op_name, NULL) : place;
    parts[1] = place;
    loc = MAKE(r, mlir_location, 1);
    *loc = (mlir_location){.rest = parts + !m->op_name, .rest_count = 1 + !!m->op_name};
  } else if (m->op_name) {
    loc = named(r, m->op_name, NULL);
  }
  return m->op_type ? named(r, TEXT(r, "%s:", m->op_type), loc) : loc;
}
