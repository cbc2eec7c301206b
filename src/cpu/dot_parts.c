/* cpu/dot_parts.c -- dots that read parts of arrays where they lie: the fusions of pass dot-parts.  The views of the
 * operands (codegen/model/view.h) are found when the step is planned; the addresses of their first elements, which
 * depend on the starts of dynamic slices, in each run.
 *
 * Stored weights to which zero points and scales are applied (codegen/model/weights.h) are read as they are, too.
 *
 * A part of a weight may be packed as a whole weight is (runtime/packed.h). Where a start that is known in the run
 * chooses one of several matrices, as a loop over layers does, all of them are packed together, one after the other. */
#include <config.h>

#include "cpu/dot_parts.h"

#include "codegen/model/library.h"
#include "codegen/model/weights.h"
#include "cpu/dot.h"
#include "cpu/makers.h"

typedef struct dot_parts {
  cpu_dot dot;
  cpu_source sides[2];
  cpu_source operands[GEN_WEIGHTS_STEPS]; /* of the steps of dot.affine */
  float constants[GEN_WEIGHTS_STEPS];     /* operands that are constants: their source has operand -1 */
  double bytes;      /* of both operands and the result */
  /* the packed forms of all matrices that the start of rhs chooses from; stack.base.bytes 0: there are none */
  cpu_packing stack;
  int64_t form_bytes; /* of one matrix */
} dot_parts;

typedef struct dot_parts_thunk {
  rt_thunk base;
  const dot_parts *plan;
} dot_parts_thunk;

/* ---- planning ---------------------------------------------------------------------------------------------------- */

/* The number of the parameter of the step's fusion that `value`, in `within` or in the fusion itself, stands for;
 * -1: it is computed inside. */
static int64_t outer_parameter(const hlo_instr *value, const hlo_instr *within)
{
  if (value->op == HLO_PARAMETER && within && value->parent == within->called[0])
    value = gen_through_views(within->operands[value->u.parameter_number]);
  return value->op == HLO_PARAMETER ? value->u.parameter_number : -1;
}

static weft_status *add_start(cpu_source *s, const gen_view_start *start, int64_t bytes, const hlo_instr *within)
{
  const hlo_instr *value = start->value;
  int64_t operand = outer_parameter(value, within);

  if (value->op == HLO_CONSTANT && hlo_shape_is_scalar(value->shape)) {
    int64_t at = hlo_literal_get_s64(value->u.literal, 0);
    if (value->shape->type == WEFT_U64 && at < 0) at = INT64_MAX; /* beyond the range of int64_t, as in read_integer */
    s->offset += WEFT_MIN(WEFT_MAX(at, 0), start->most) * start->step * bytes;
    return NULL;
  }
  if (operand < 0 || !hlo_shape_is_scalar(value->shape))
    return WEFT_ERR(UNIMPLEMENTED, "dot of parts of arrays: %s", "it would have to compute a start");
  s->starts[s->start_count++] = (struct cpu_start){
    .operand = (int)operand, .type = value->shape->type, .most = start->most, .step = start->step * bytes};
  return NULL;
}

weft_status *cpu_source_plan(cpu_source *s, const gen_view *view, const hlo_instr *within)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(view->array->shape->type), operand = outer_parameter(view->array, within);

  if (operand < 0) return WEFT_ERR(UNIMPLEMENTED, "dot of parts of arrays: %s", "it would have to compute an array");
  s->operand = (int)operand;
  s->offset = view->offset * bytes;
  for (int i = 0; i < view->start_count; i++) WEFT_TRY(add_start(s, &view->starts[i], bytes, within));
  return NULL;
}

static int64_t matrices_of(const cpu_source *s) { return s->starts[0].most + 1; }

static bool pack_stack(const rt_packing *packing, rt_pool *pool, const void *from, void *to)
{
  const dot_parts *plan = ((const cpu_packing *)packing)->plan;
  const cpu_source *rhs = &plan->sides[1];

  cpu_pack_matrices(&plan->dot.gemm, pool, matrices_of(rhs), rhs->starts[0].step, from, to);
  return true;
}

/* Matrices that overlap, as windows over rows do, have no forms: together these would be larger than the array. */
static void plan_stack(dot_parts *plan, const gen_view *rhs_view, const hlo_shape *rhs_shape)
{
  const cpu_source *rhs = &plan->sides[1];
  const cpu_packing *one = &plan->dot.packing;

  if (rhs->start_count != 1 || one->base.bytes == 0) return;
  int64_t count = matrices_of(rhs), bytes = hlo_shape_bytes(rhs_shape);
  if (count > hlo_shape_bytes(rhs_view->array->shape) / bytes) return;
  plan->form_bytes = one->base.bytes;
  int keys = cpu_packing_begin(&plan->stack, plan, &plan->dot.gemm, count * plan->form_bytes, pack_stack);
  plan->stack.key[keys++] = count;
  plan->stack.key[keys++] = rhs->starts[0].step;
  plan->stack.base.key_bytes = keys * (int64_t)sizeof plan->stack.key[0];
  plan->stack.base.whole = one->base.whole;
}

/* ---- weights ---- */

static bool is_scalar_constant(const hlo_instr *x) { return x->op == HLO_CONSTANT && hlo_shape_is_scalar(x->shape); }

static weft_status *plan_step(dot_parts *plan, int i, const gen_stored_step *step, cpu_affine *affine)
{
  const hlo_instr *array = step->view.array;
  struct cpu_step *to = &affine->steps[i];

  to->kind = step->op == HLO_MULTIPLY ? CPU_STEP_MULTIPLY : step->op == HLO_ADD ? CPU_STEP_ADD : CPU_STEP_SUBTRACT;
  if (!is_scalar_constant(array)) {
    to->type = array->shape->type;
    to->row = step->row;
    to->column = step->column;
    return cpu_source_plan(&plan->operands[i], &step->view, NULL);
  }
  to->type = WEFT_F32;
  cpu_convert(WEFT_F32, &plan->constants[i], array->shape->type, array->u.literal->data, 1, 1);
  plan->operands[i].operand = -1;
  return NULL;
}

/* A dot by weights that are made of what is stored. *out_is_one false: it is none. */
static weft_status *plan_weights(dot_parts *plan, const hlo_instr *dot, bool *out_is_one)
{
  const hlo_instr *value = dot->operands[1];
  gen_view lhs = gen_view_of(dot->operands[0]);
  cpu_affine affine = {0};
  gen_stored w;

  *out_is_one = dot->u.dot->rhs_contracting.count == 1 && dot->u.dot->algorithm == HLO_ALG_UNSET &&
                gen_stored_of(value, true, &w) && gen_stored_lie(&w, value->shape, dot->u.dot->rhs_contracting.v[0]);
  if (!*out_is_one) return NULL;
  hlo_shape stored = *value->shape;
  stored.type = w.view.array->shape->type;
  affine.group = w.group;
  affine.count = w.count;
  for (int i = 0; i < w.count; i++) WEFT_TRY(plan_step(plan, i, &w.steps[i], &affine));
  WEFT_TRY(cpu_source_plan(&plan->sides[0], &lhs, NULL));
  WEFT_TRY(cpu_source_plan(&plan->sides[1], &w.view, NULL));
  plan->bytes = (double)(hlo_shape_total_bytes(dot->operands[0]->shape) + hlo_shape_total_bytes(&stored) +
                         hlo_shape_total_bytes(dot->shape));
  return cpu_dot_init_affine(&plan->dot, dot->u.dot, dot->operands[0]->shape, &lhs, &stored, &w.view, dot->shape,
                             &affine);
}

weft_status *cpu_dot_parts_plan(const cpu_target *target, weft_arena *arena, const hlo_instr *instr, low_plan *out)
{
  const hlo_instr *dot = instr->called[0]->root;
  dot_parts *plan = WEFT_ARENA_NEW(arena, dot_parts);
  gen_view views[2];
  bool is_of_weights;

  (void)target;
  WEFT_TRY_ALLOC(plan);
  if (dot->op != HLO_DOT || dot->operand_count != 2)
    return WEFT_ERR(UNIMPLEMENTED, "dot of parts of arrays: %s", "it is no dot of two operands");
  WEFT_TRY(plan_weights(plan, dot, &is_of_weights));
  for (int i = 0; i < 2 && !is_of_weights; i++) {
    views[i] = gen_view_of(dot->operands[i]);
    WEFT_TRY(cpu_source_plan(&plan->sides[i], &views[i], NULL));
    plan->bytes += (double)hlo_shape_total_bytes(dot->operands[i]->shape);
  }
  if (!is_of_weights) {
    plan->bytes += (double)hlo_shape_total_bytes(dot->shape);
    WEFT_TRY(cpu_dot_init_views(&plan->dot, dot->u.dot, dot->operands[0]->shape, &views[0], dot->operands[1]->shape,
                                &views[1], dot->shape));
    plan_stack(plan, &views[1], dot->operands[1]->shape);
  }
  out->data = plan;
  out->scratch_bytes = plan->dot.scratch_bytes;
  return NULL;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* `type` is an integer of whole bytes; a number beyond the range of int64_t counts as the largest. */
static int64_t read_integer(weft_dtype type, const void *at)
{
  switch (type) {
  case WEFT_S8: return *(const int8_t *)at;
  case WEFT_S16: return *(const int16_t *)at;
  case WEFT_S32: return *(const int32_t *)at;
  case WEFT_U8: return *(const uint8_t *)at;
  case WEFT_U16: return *(const uint16_t *)at;
  case WEFT_U32: return *(const uint32_t *)at;
  case WEFT_U64: return (int64_t)WEFT_MIN(*(const uint64_t *)at, (uint64_t)INT64_MAX);
  default: return *(const int64_t *)at;
  }
}

/* The value of a start, within its range. */
static int64_t read_start(const struct cpu_start *start, void *const *args)
{
  return WEFT_MIN(WEFT_MAX(read_integer(start->type, args[start->operand]), 0), start->most);
}

const void *cpu_source_at(const cpu_source *s, void *const *args)
{
  const char *at = (const char *)args[s->operand] + s->offset;

  for (int i = 0; i < s->start_count; i++) at += read_start(&s->starts[i], args) * s->starts[i].step;
  return at;
}

static weft_status *run_weights(const dot_parts *plan, rt_pool *pool, void *const *args, int result)
{
  const void *operands[GEN_WEIGHTS_STEPS];

  for (int i = 0; i < plan->dot.affine.count; i++)
    operands[i] = plan->operands[i].operand < 0 ? &plan->constants[i] : cpu_source_at(&plan->operands[i], args);
  return cpu_dot_run_affine(&plan->dot, pool, cpu_source_at(&plan->sides[0], args),
                            cpu_source_at(&plan->sides[1], args), operands, args[result],
                            plan->dot.scratch_bytes ? args[result + 1] : NULL);
}

static weft_status *dot_parts_execute(const rt_thunk *thunk, rt_ctx *ctx)
{
  const dot_parts *plan = ((const dot_parts_thunk *)thunk)->plan;
  void *const *args = rt_args(thunk, ctx);
  int result = thunk->use_count - 1 - (plan->dot.scratch_bytes > 0);
  const rt_form *packed = rt_packed_form(thunk, ctx);
  rt_form chosen;

  if (plan->dot.affine.group > 0) return run_weights(plan, cpu_pool_of(thunk, ctx), args, result);
  if (packed && plan->form_bytes > 0) {
    chosen = *packed;
    chosen.data = (const char *)packed->data + read_start(&plan->sides[1].starts[0], args) * plan->form_bytes;
    packed = &chosen;
  }
  return cpu_dot_run(&plan->dot, cpu_pool_of(thunk, ctx), cpu_source_at(&plan->sides[0], args),
                     cpu_source_at(&plan->sides[1], args), packed, args[result],
                     plan->dot.scratch_bytes ? args[result + 1] : NULL);
}
static const rt_thunk_ops dot_parts_ops = {.size = sizeof(rt_thunk_ops), .kind = "dot", .run = dot_parts_execute};

weft_status *cpu_dot_parts_make(low_step *step, rt_thunk **out_thunk)
{
  const dot_parts *plan = step->plan->data;
  const cpu_source *rhs = &plan->sides[1];

  WEFT_TRY(low_thunk_new(step, &dot_parts_ops, sizeof(dot_parts_thunk), out_thunk));
  ((dot_parts_thunk *)*out_thunk)->plan = plan;
  (*out_thunk)->splits = cpu_pays_to_share_bytes(step, (*out_thunk)->cost_ns, cpu_dot_is_cut(&plan->dot), plan->bytes);
  if (rhs->start_count == 0) cpu_packing_offer(&plan->dot.packing, *out_thunk, rhs->operand, rhs->offset);
  else cpu_packing_offer(&plan->stack, *out_thunk, rhs->operand, rhs->offset);
  return NULL;
}
