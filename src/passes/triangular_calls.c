/* passes/triangular_calls.c -- triangular-calls: lapack_{s,d,c,z}trsm_ffi becomes triangular-solve.
 *
 * JAX makes the custom call for a single matrix on a CPU. Its layouts are column-major, so the program would transpose
 * what goes in and what comes out, and a handler runs on one thread. Runs before normalize-layouts, where a call's
 * shapes are still the logical ones: LAPACK's terms and HLO's are then the same. Calls in other layouts, or with other
 * attributes than LAPACK's letters, are left as they are. */
#include <config.h>

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "passes/build.h"
#include "passes/passes.h"

/* The letter that an attribute has, from a text such as {diag = 78 : ui8, side = 76 : ui8}; 0 if it is none of
 * `allowed`. */
static char letter_of(const char *attributes, const char *name, const char *allowed)
{
  size_t length = strlen(name);

  for (const char *at = attributes; (at = strstr(at, name)); at += length) {
    const char *value = at + length;
    if (at == attributes || isalnum((unsigned char)at[-1]) || at[-1] == '_') continue;
    value += strspn(value, " ");
    if (*value != '=') continue;
    long letter = strtol(value + 1, NULL, 10);
    return letter > 0 && letter < 128 && strchr(allowed, (int)letter) ? (char)letter : 0;
  }
  return 0;
}

/* Whether the matrices of the last two dimensions lie one behind the other, each column by column. */
static bool is_column_major(const hlo_shape *shape)
{
  int rank = shape->rank;

  if (!shape->layout || rank < 2) return false;
  const int64_t *order = shape->layout->minor_to_major;
  for (int d = 2; d < rank; d++)
    if (order[d] != rank - 1 - d) return false;
  return order[0] == rank - 2 && order[1] == rank - 1;
}

static bool is_trsm(const hlo_instr *instr)
{
  static const struct { const char *target; weft_dtype type; } calls[] = {
    {"lapack_strsm_ffi", WEFT_F32}, {"lapack_dtrsm_ffi", WEFT_F64}, {"lapack_ctrsm_ffi", WEFT_C64}, {"lapack_ztrsm_ffi", WEFT_C128},
  };
  const hlo_custom_call_attrs *attrs = instr->op == HLO_CUSTOM_CALL ? instr->u.custom : NULL;

  if (!attrs || instr->operand_count != 2 || attrs->layout_count != 2 || !hlo_shape_is_array(instr->shape) ||
      pass_has_control_edges(instr))
    return false;
  for (size_t i = 0; i < WEFT_COUNT(calls); i++)
    if (strcmp(attrs->target, calls[i].target) == 0) return instr->shape->type == calls[i].type;
  return false;
}

/* Whether a and b are operands of a triangular-solve. */
static bool shapes_fit(const hlo_shape *a, const hlo_shape *b, bool left)
{
  int rank = b->rank;

  if (!hlo_shape_is_array(a) || a->rank != rank || a->type != b->type) return false;
  for (int d = 0; d < rank - 2; d++)
    if (a->dims[d] != b->dims[d]) return false;
  int64_t n = b->dims[left ? rank - 2 : rank - 1];
  return a->dims[rank - 2] == n && a->dims[rank - 1] == n;
}

static weft_status *expand(hlo_instr *call, bool *changed)
{
  const hlo_custom_call_attrs *attrs = call->u.custom;
  const char *text = call->extra && call->extra->backend_config ? call->extra->backend_config : "";
  char side = letter_of(text, "side", "LR"), uplo = letter_of(text, "uplo", "LU");
  char trans = letter_of(text, "trans_x", "NTC"), diag = letter_of(text, "diag", "NU");
  pass_build b = PASS_BUILD_AT(call);

  if (!side || !uplo || !trans || !diag || !is_column_major(call->shape) ||
      !is_column_major(attrs->operand_layouts[0]) || !is_column_major(attrs->operand_layouts[1]) ||
      !shapes_fit(call->operands[0]->shape, call->shape, side == 'L') ||
      !hlo_shape_equal(call->operands[1]->shape, call->shape, false))
    return NULL;
  const hlo_shape *shape = hlo_shape_without_layout(&b.comp->module->arena, call->shape);
  WEFT_TRY_ALLOC(shape);
  hlo_instr *solve = pb_instr(&b, HLO_TRIANGULAR_SOLVE, shape, 2, call->operands);
  if (solve) {
    solve->u.triangular.left_side = side == 'L';
    solve->u.triangular.lower = uplo == 'L';
    solve->u.triangular.unit_diagonal = diag == 'U';
    solve->u.triangular.transpose_a = trans == 'N' ? HLO_NO_TRANSPOSE : trans == 'T' ? HLO_DO_TRANSPOSE : HLO_ADJOINT;
    if (call->extra && call->extra->sharding) {
      hlo_extra *extra = WEFT_ARENA_NEW(&b.comp->module->arena, hlo_extra);
      WEFT_TRY_ALLOC(extra);
      extra->sharding = call->extra->sharding;
      solve->extra = extra;
    }
  }
  *changed = true;
  return pass_build_replace(&b, call, solve);
}

static weft_status *triangular_calls_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  (void)ctx;
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp)
      if (is_trsm(instr)) WEFT_TRY(expand(instr, changed));
  return NULL;
}
const hlo_pass pass_triangular_calls = {"triangular-calls", triangular_calls_run};
