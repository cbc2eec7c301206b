/* codegen/model/scan.c -- which reduce-windows are scans. */
#include <config.h>

#include "codegen/model/strategy.h"

#include <string.h>

enum {
  LEAST_SIZE = 64,            /* shorter windows are reduced one by one */
  LEAST_LIBRARY_ELEMS = 4096, /* of a scan that is worth a step of its own */
  LEAST_COLUMNS = 16,         /* that the library scans side by side */
};

bool gen_is_scan(const hlo_instr *instr, gen_scan *out)
{
  const hlo_window *w = instr->u.window;
  int found = -1;

  if (instr->op != HLO_REDUCE_WINDOW || instr->operand_count != 2 ||
      !hlo_shape_equal(instr->shape, instr->operands[0]->shape, false))
    return false;
  for (int d = 0; d < w->rank; d++) {
    const hlo_window_dim *p = &w->dims[d];
    if (p->stride != 1 || p->window_dilation != 1 || p->base_dilation != 1 || p->reversal) return false;
    if (p->size == 1 && p->pad_low == 0 && p->pad_high == 0) continue;
    if (found >= 0) return false;
    found = d;
  }
  if (found < 0) return false;
  const hlo_window_dim *p = &w->dims[found];
  int64_t n = instr->shape->dims[found];
  if (p->size != n || p->pad_low + p->pad_high != n - 1 || (p->pad_low && p->pad_high)) return false;
  *out = (gen_scan){.dim = found, .n = n, .inner = 1, .is_reverse = p->pad_high > 0, .op = HLO_OPCODE_COUNT};
  for (int d = found + 1; d < instr->shape->rank; d++) out->inner *= instr->shape->dims[d];
  return true;
}

static bool is_marked(const hlo_instr *instr, const char *mark)
{
  return instr->extra && instr->extra->backend_config && strcmp(instr->extra->backend_config, mark) == 0;
}

int64_t gen_scan_block(int64_t n)
{
  for (int64_t size = GEN_SCAN_BLOCK; size <= 2 * GEN_SCAN_BLOCK; size++)
    if (n % size == 0) return size;
  for (int64_t size = GEN_SCAN_BLOCK - 1; size >= GEN_LEAST_SCAN_BLOCK; size--)
    if (n % size == 0) return size;
  return GEN_SCAN_BLOCK;
}

bool gen_library_scan(const hlo_instr *instr, gen_scan *out)
{
  if (!gen_is_scan(instr, out) || out->n < LEAST_SIZE || hlo_shape_elems(instr->shape) < LEAST_LIBRARY_ELEMS)
    return false;
  if (out->inner > 1 && out->inner < LEAST_COLUMNS) return false;
  out->op = hlo_reducer_op(instr->called[0]);
  switch (out->op) {
  case HLO_ADD: case HLO_MULTIPLY: case HLO_MAXIMUM: case HLO_MINIMUM: break;
  default: return false;
  }
  switch (instr->shape->type) {
  case WEFT_F32: case WEFT_F64: case WEFT_BF16: case WEFT_F16:
  case WEFT_S32: case WEFT_U32: case WEFT_S64: case WEFT_U64: return true;
  default: return false;
  }
}

bool gen_is_library_scan(const hlo_instr *instr)
{
  return instr->op == HLO_REDUCE_WINDOW && is_marked(instr, GEN_LIBRARY_SCAN);
}

bool gen_scan_of(const hlo_instr *instr, gen_scan *out)
{
  if (!gen_is_scan(instr, out) || out->n < LEAST_SIZE || hlo_shape_elems(instr->shape) == 0) return false;
  out->op = hlo_reducer_op(instr->called[0]);
  switch (out->op) {
  case HLO_ADD: case HLO_MULTIPLY: case HLO_MAXIMUM: case HLO_MINIMUM: case HLO_AND: case HLO_OR: case HLO_XOR: return true;
  default: out->op = HLO_OPCODE_COUNT; return is_marked(instr, GEN_ASSOCIATIVE_SCAN);
  }
}
