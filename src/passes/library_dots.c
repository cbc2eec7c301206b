/* passes/library_dots.c -- library-dots: the dots that a GPU's library multiplies, in types and orders that it has.
 * The dots are canonical (dot_canonicalizer.c).
 *
 *   floats of different types      both operands become the widest of the three types, or f32; the result is converted
 *   floats of 8 bits or less       operands become bf16, which holds them exactly; the result comes in bf16 or f32
 *   integers of 8 bits or less     lhs [M, K], rhs [N, K], with N and K padded by zeros to multiples of 4
 *
 * Other integer dots are kernels (gen_dot_needs_kernel). */
#include <config.h>

#include "codegen/model/library.h"
#include "passes/build.h"
#include "passes/passes.h"

enum { S8_WORD = 4 /* elements of s8 that the library multiplies at a time */ };

static bool is_narrow_float(weft_dtype type) { return weft_dtype_is_float(type) && weft_dtype_bytes(type) < 2; }

static bool is_half(weft_dtype type) { return type == WEFT_F16 || type == WEFT_BF16; }

/* The types in which a dot of floats or complex numbers is done. */
static void types_of(weft_dtype lhs, weft_dtype rhs, weft_dtype out, weft_dtype *operand, weft_dtype *result)
{
  bool is_complex = weft_dtype_is_complex(lhs) || weft_dtype_is_complex(rhs) || weft_dtype_is_complex(out),
       is_wide = false;
  const weft_dtype all[] = {lhs, rhs, out};

  for (int i = 0; i < 3; i++) is_wide |= all[i] == WEFT_F64 || all[i] == WEFT_C128;
  *operand = is_complex ? (is_wide ? WEFT_C128 : WEFT_C64) : is_wide ? WEFT_F64 : WEFT_F32;
  if (*operand == WEFT_F32 && is_narrow_float(lhs) && is_narrow_float(rhs)) *operand = WEFT_BF16;
  if (*operand == WEFT_F32 && lhs == rhs && is_half(lhs)) *operand = lhs;
  *result = !is_half(*operand) || out == *operand ? *operand : WEFT_F32;
}

static hlo_instr *dot_like(pass_build *b, const hlo_instr *dot, hlo_instr *lhs, hlo_instr *rhs, const hlo_shape *shape,
                           int64_t lhs_k, int64_t rhs_k)
{
  hlo_dot_attrs *attrs = weft_arena_memdup(&b->comp->module->arena, dot->u.dot, sizeof *attrs);
  hlo_instr *out = pb_instr(b, HLO_DOT, shape, 2, (hlo_instr *[]){lhs, rhs});

  if (!b->error && !attrs) b->error = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  if (b->error) return NULL;
  attrs->lhs_contracting = pb_ints(b, 1, &lhs_k);
  attrs->rhs_contracting = pb_ints(b, 1, &rhs_k);
  out->u.dot = attrs;
  out->extra = dot->extra;
  out->metadata = dot->metadata;
  return out;
}

/* ---- floats ---------------------------------------------------------------------------------------------------- */

static weft_status *convert_floats(hlo_instr *dot, bool *changed)
{
  weft_dtype lhs = dot->operands[0]->shape->type, rhs = dot->operands[1]->shape->type, operand, result;
  pass_build b = PASS_BUILD_AT(dot);

  types_of(lhs, rhs, dot->shape->type, &operand, &result);
  if (lhs == operand && rhs == operand && dot->shape->type == result) return NULL;
  hlo_instr *x = pb_convert(&b, dot->operands[0], operand), *y = pb_convert(&b, dot->operands[1], operand);
  const hlo_shape *shape = hlo_shape_array(&dot->parent->module->arena, result, dot->shape->rank, dot->shape->dims);
  hlo_instr *out = dot_like(&b, dot, x, y, shape, dot->u.dot->lhs_contracting.v[0], dot->u.dot->rhs_contracting.v[0]);
  *changed = true;
  return pass_build_replace(&b, dot, pb_convert(&b, out, dot->shape->type));
}

/* ---- s8 -------------------------------------------------------------------------------------------------------- */

/* The operand as s8 [B, rows, K], with K and, if `pads_rows`, the rows padded to whole words. */
static hlo_instr *rows_of_words(pass_build *b, hlo_instr *x, int batch, bool swapped, bool pads_rows)
{
  int64_t order[] = {0, 1, 2};
  hlo_pad_dim pads[HLO_MAX_RANK] = {{0}};

  order[batch] = batch + swapped;
  order[batch + 1] = batch + !swapped;
  x = pb_transpose(b, pb_convert(b, x, WEFT_S8), order);
  if (b->error) return NULL;
  for (int d = batch + !pads_rows; d < batch + 2; d++)
    pads[d].high = WEFT_ALIGN_UP(x->shape->dims[d], (int64_t)S8_WORD) - x->shape->dims[d];
  return pads[batch].high || pads[batch + 1].high ? pb_pad(b, x, pb_int(b, WEFT_S8, 0), pads) : x;
}

static weft_status *order_s8(hlo_instr *dot, bool *changed)
{
  const hlo_dot_attrs *a = dot->u.dot;
  int batch = a->lhs_batch.count;
  bool lhs_swapped = a->lhs_contracting.v[0] == batch, rhs_swapped = a->rhs_contracting.v[0] == batch;
  hlo_instr *lhs = dot->operands[0], *rhs = dot->operands[1];
  int64_t n = dot->shape->dims[batch + 1], k = lhs->shape->dims[a->lhs_contracting.v[0]], dims[3];
  pass_build b = PASS_BUILD_AT(dot);

  if (!lhs_swapped && !rhs_swapped && n % S8_WORD == 0 && k % S8_WORD == 0 && lhs->shape->type == WEFT_S8 &&
      rhs->shape->type == WEFT_S8)
    return NULL;
  lhs = rows_of_words(&b, lhs, batch, lhs_swapped, false);
  rhs = rows_of_words(&b, rhs, batch, rhs_swapped, true);
  for (int d = 0; d < dot->shape->rank; d++) dims[d] = dot->shape->dims[d];
  dims[batch + 1] = WEFT_ALIGN_UP(n, (int64_t)S8_WORD);
  const hlo_shape *shape = hlo_shape_array(&dot->parent->module->arena, WEFT_S32, dot->shape->rank, dims);
  hlo_instr *out = dot_like(&b, dot, lhs, rhs, shape, batch + 1, batch + 1);
  *changed = true;
  return pass_build_replace(&b, dot, dims[batch + 1] == n ? out : pb_slice_dim(&b, out, batch + 1, 0, n));
}

/* ---- the pass -------------------------------------------------------------------------------------------------- */

static bool is_matrices(const hlo_instr *dot)
{
  const hlo_dot_attrs *a = dot->u.dot;
  int batch = a->lhs_batch.count;

  return dot->operand_count == 2 && !a->sparsity && batch <= 1 && a->lhs_contracting.count == 1 &&
         a->rhs_contracting.count == 1 && dot->operands[0]->shape->rank == batch + 2 &&
         dot->operands[1]->shape->rank == batch + 2 &&
         (batch == 0 || (a->lhs_batch.v[0] == 0 && a->rhs_batch.v[0] == 0)) && !pass_has_control_edges(dot);
}

static weft_status *library_dots_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int i = 0; i < comps.count; i++)
    HLO_FOREACH(dot, comps.v[i]) {
      if (dot->op != HLO_DOT || gen_dot_needs_kernel(pass_target(ctx), dot, false) || !is_matrices(dot)) continue;
      bool is_integer = weft_dtype_is_integer(dot->shape->type);
      WEFT_TRY(is_integer ? order_s8(dot, changed) : convert_floats(dot, changed));
    }
  return NULL;
}
const hlo_pass pass_library_dots = {"library-dots", library_dots_run};
