/* passes/library_linalg.c -- library-linalg: linear algebra in the forms that a GPU's platform does.
 *
 *   cholesky           cuSOLVER's custom call, if the platform has it (pass_options.has_solver). In the library's
 *                      column-major terms a matrix is its transpose, so the other triangle is asked for.  The library
 *                      does not write that triangle of its result, and reports which matrices have no factor: the
 *                      triangle becomes zeros, the results of these matrices NaN.
 *   cusolver_syrk_ffi  alpha a a^T + beta c, as a dot
 *   cuhybrid_*         eigenvalues of general matrices and QR with exchanges of columns, which the host does: the
 *                      custom calls that JAX makes for CPUs, whose arrays are the same */
#include <config.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "passes/build.h"
#include "passes/passes.h"

enum { API_TYPED_FFI = 4 };

static char letter_of(weft_dtype type)
{
  switch (type) {
  case WEFT_F32: return 's';
  case WEFT_F64: return 'd';
  case WEFT_C64: return 'c';
  case WEFT_C128: return 'z';
  default: return 0;
  }
}

/* Makes `call` a custom call of the typed FFI. */
static weft_status *set_call(hlo_instr *call, const char *target, const char *config)
{
  weft_arena *arena = &call->parent->module->arena;
  hlo_custom_call_attrs *attrs = call->u.custom ? weft_arena_memdup(arena, call->u.custom, sizeof *attrs)
                                                : WEFT_ARENA_NEW(arena, hlo_custom_call_attrs);
  hlo_extra *extra = call->extra ? weft_arena_memdup(arena, call->extra, sizeof *extra)
                                 : WEFT_ARENA_NEW(arena, hlo_extra);

  WEFT_TRY_ALLOC(attrs && extra);
  attrs->target = weft_arena_strdup(arena, target);
  attrs->api_version = API_TYPED_FFI;
  extra->backend_config = weft_arena_strdup(arena, config);
  extra->backend_config_is_json = true;
  WEFT_TRY_ALLOC(attrs->target && extra->backend_config);
  call->u.custom = attrs;
  call->extra = extra;
  return NULL;
}

/* The array without its last `count` dimensions. */
static const hlo_shape *without_last(pass_build *b, const hlo_shape *shape, int count, weft_dtype type)
{
  return hlo_shape_array(&b->comp->module->arena, type, shape->rank - count, shape->dims);
}

/* ---- cholesky -------------------------------------------------------------------------------------------------- */

static weft_status *expand_cholesky(hlo_instr *instr, bool *changed)
{
  const hlo_shape *shape = instr->shape;
  int rank = shape->rank;
  pass_build b = PASS_BUILD_AT(instr);
  int64_t batch_dims[HLO_MAX_RANK];

  if (!letter_of(shape->type) || hlo_shape_elems(shape) == 0) return NULL;
  for (int d = 0; d < rank; d++) batch_dims[d] = d;
  const hlo_shape *infos = without_last(&b, shape, 2, WEFT_S32), *results[] = {shape, infos};
  hlo_instr *call =
    pb_instr(&b, HLO_CUSTOM_CALL, hlo_shape_tuple(&b.comp->module->arena, 2, results), 1, instr->operands);
  if (call && !b.error)
    b.error = set_call(call, "cusolver_potrf_ffi", instr->u.lower ? "{lower = false}" : "{lower = true}");
  hlo_instr *factor = pb_gte(&b, call, 0), *info = pb_gte(&b, call, 1);
  hlo_instr *fails = info ? pb_compare(&b, HLO_NE, info, pb_splat_int(&b, info, 0)) : NULL;
  const hlo_shape *numbers = hlo_shape_array(&b.comp->module->arena, WEFT_S32, rank, shape->dims);
  hlo_instr *row = pb_iota(&b, numbers, rank - 2), *column = pb_iota(&b, numbers, rank - 1);
  hlo_instr *inside = pb_compare(&b, instr->u.lower ? HLO_GE : HLO_LE, row, column);
  hlo_instr *all_fail = pb_broadcast(&b, fails, rank, shape->dims, batch_dims);
  hlo_instr *out = pb_select(&b, inside, factor, pb_splat(&b, instr, 0));
  *changed = true;
  return pass_build_replace(&b, instr, pb_select(&b, all_fail, pb_splat(&b, instr, NAN), out));
}

/* ---- products -------------------------------------------------------------------------------------------------- */

/* Whether the call's attributes hold `transpose = true`. */
static bool is_transposed(const hlo_instr *call)
{
  const char *config = call->extra ? call->extra->backend_config : NULL;
  const char *at = config ? strstr(config, "transpose") : NULL;

  if (!at) return false;
  at += strlen("transpose");
  at += strspn(at, " =");
  return strncmp(at, "true", 4) == 0;
}

static hlo_instr *square(pass_build *b, hlo_instr *a, const hlo_shape *shape, bool transposed)
{
  static const hlo_precision highest[] = {HLO_PRECISION_HIGHEST, HLO_PRECISION_HIGHEST};
  int batch = a->shape->rank - 2;
  int64_t contracting = batch + !transposed, dims[HLO_MAX_RANK];
  hlo_dot_attrs *attrs = WEFT_ARENA_NEW(&b->comp->module->arena, hlo_dot_attrs);
  hlo_instr *dot = pb_instr(b, HLO_DOT, shape, 2, (hlo_instr *[]){a, a});

  if (!b->error && !attrs) b->error = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  if (b->error) return NULL;
  for (int d = 0; d < batch; d++) dims[d] = d;
  *attrs = (hlo_dot_attrs){.precision_count = 2, .precision = highest};
  attrs->lhs_contracting = attrs->rhs_contracting = pb_ints(b, 1, &contracting);
  attrs->lhs_batch = attrs->rhs_batch = pb_ints(b, batch, dims);
  dot->u.dot = attrs;
  return dot;
}

/* Whether the operands are matrices of one type and batch, and two scalars. */
static bool is_syrk(const hlo_instr *call, bool transposed)
{
  const hlo_shape *c = call->shape, *a = call->operand_count == 4 ? call->operands[0]->shape : NULL;

  if (!a || !hlo_shape_is_array(a) || !hlo_shape_is_array(c) || !letter_of(c->type) || a->type != c->type ||
      c->rank < 2 || a->rank != c->rank || !hlo_shape_equal(call->operands[1]->shape, c, true))
    return false;
  for (int d = 0; d < c->rank - 2; d++)
    if (a->dims[d] != c->dims[d]) return false;
  for (int i = 2; i < 4; i++)
    if (call->operands[i]->shape->type != c->type || hlo_shape_elems(call->operands[i]->shape) != 1) return false;
  int64_t order = a->dims[a->rank - 2 + transposed];
  return c->dims[c->rank - 2] == order && c->dims[c->rank - 1] == order;
}

static weft_status *expand_syrk(hlo_instr *call, bool *changed)
{
  bool transposed = is_transposed(call);
  pass_build b = PASS_BUILD_AT(call);
  hlo_instr *const *o = call->operands;

  if (!is_syrk(call, transposed))
    return WEFT_ERR(INVALID_ARGUMENT, "cusolver_syrk_ffi: a matrix, a square one and two scalars go together");
  hlo_instr *alpha = pb_fill(&b, pb_reshape(&b, o[2], 0, NULL), call->shape);
  hlo_instr *beta = pb_fill(&b, pb_reshape(&b, o[3], 0, NULL), call->shape);
  hlo_instr *product = pb_mul(&b, alpha, square(&b, o[0], call->shape, transposed));
  *changed = true;
  return pass_build_replace(&b, call, pb_add(&b, product, pb_mul(&b, beta, o[1])));
}

/* ---- what the host does ---------------------------------------------------------------------------------------- */

static weft_status *use_lapack(hlo_instr *call, const char *routine, bool has_vectors, bool *changed)
{
  char target[40], config[100] = "{}";
  const char *given = call->extra && call->extra->backend_config ? call->extra->backend_config : "";
  weft_dtype type = call->operand_count > 0 ? call->operands[0]->shape->type : WEFT_F32;

  if (!letter_of(type)) return WEFT_ERR(INVALID_ARGUMENT, "%s of %s", call->u.custom->target, weft_dtype_name(type));
  if (has_vectors)
    snprintf(config, sizeof config, "{compute_left = %d : ui8, compute_right = %d : ui8}",
             strstr(given, "left = true") ? 'V' : 'N', strstr(given, "right = true") ? 'V' : 'N');
  snprintf(target, sizeof target, "lapack_%c%s_ffi", letter_of(type), routine);
  *changed = true;
  return set_call(call, target, config);
}

/* ---- the pass -------------------------------------------------------------------------------------------------- */

static weft_status *rewrite_call(hlo_instr *call, bool *changed)
{
  const char *target = call->u.custom->target;

  if (pass_has_control_edges(call)) return NULL;
  if (strcmp(target, "cusolver_syrk_ffi") == 0) return expand_syrk(call, changed);
  if (strcmp(target, "cuhybrid_eig_real") == 0 || strcmp(target, "cuhybrid_eig_comp") == 0)
    return use_lapack(call, "geev", true, changed);
  if (strcmp(target, "cuhybrid_geqp3") == 0) return use_lapack(call, "geqp3", false, changed);
  return NULL;
}

static weft_status *library_linalg_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      if (instr->op == HLO_CHOLESKY && ctx->options->has_solver && !pass_has_control_edges(instr))
        WEFT_TRY(expand_cholesky(instr, changed));
      else if (instr->op == HLO_CUSTOM_CALL) WEFT_TRY(rewrite_call(instr, changed));
    }
  return NULL;
}
const hlo_pass pass_library_linalg = {"library-linalg", library_linalg_run};
