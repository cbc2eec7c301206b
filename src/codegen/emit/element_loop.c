/* codegen/emit/element_loop.c -- a fusion around a while that changes arrays element by element (gen_element_loop): a
 * loop around one vector of elements, with their state in registers, inside of the walk over the elements. A vector
 * whose elements are all done leaves its loop; other vectors go on. */
#include <config.h>

#include "codegen/emit/emit.h"

typedef struct element_walk {
  gen_walk walk;        /* first: the body's ctx is the walk */
  gen_element_loop form;
  int count;            /* elements of the state */
} element_walk;

/* The rounds of the elements at some neighbouring places. */
typedef struct rounds {
  element_walk *w;
  gen_env *outer;       /* of the fusion */
  int places;
  gen_affine first;     /* linear index of the first place */
  const gen_index **at; /* by place */
  gen_value *slots;     /* by place, then by element of the state: what changes; re NULL: it does not, or is a stack */
} rounds;

static const hlo_shape *shape_of(const rounds *r, int k)
{
  return r->w->form.loop->operands[0]->operands[k]->shape;
}

static gen_value *slot_of(rounds *r, int place, int k)
{
  return &r->slots[(hlo_shape_is_scalar(shape_of(r, k)) ? 0 : place) * r->w->count + k];
}

static const gen_index *index_of(gen_emit *e, rounds *r, int place, const hlo_shape *shape)
{
  return hlo_shape_is_scalar(shape) ? gen_index_seal(gen_index_new(e, 0)) : r->at[place];
}

/* Narrow floats are rounded from one round to the next, as they would be in memory. */
static void set_state(gen_emit *e, gen_value slot, weft_dtype type, gen_value v)
{
  if (weft_dtype_is_float(type) && weft_dtype_bits(type) < 32)
    v.re = gen_from_storage(e, type, gen_to_storage(e, type, v.re));
  gen_acc_set(e, slot, v);
}

static int places_of(const rounds *r, int k) { return hlo_shape_is_scalar(shape_of(r, k)) ? 1 : r->places; }

/* Elements that do not change are computed here where the body reads them: the loop finds them in the memo. */
static weft_status *open_state(gen_emit *e, rounds *r)
{
  const gen_element_loop *form = &r->w->form;
  int lanes = gen_lanes_at(e, r->at[0]);

  for (int k = 0; k < r->w->count; k++) {
    const hlo_shape *shape = shape_of(r, k);
    bool is_scalar = hlo_shape_is_scalar(shape), changes = gen_element_loop_changes(form, k);
    if ((!is_scalar && !hlo_shape_same_dims(shape, form->shape)) || gen_element_loop_stack(form, k)) continue;
    for (int p = 0; p < places_of(r, k); p++) {
      gen_value v, *slot = slot_of(r, p, k);
      WEFT_TRY(gen_emit_leaf(e, r->outer, form->loop->operands[0]->operands[k], 0, index_of(e, r, p, shape), &v));
      if (!changes) continue;
      *slot = gen_acc_slot(e, shape->type, is_scalar ? 1 : lanes);
      set_state(e, *slot, shape->type, v);
    }
  }
  return NULL;
}

/* An environment for the body or the condition at one place, in which the elements of the parameter stand for the
 * state. */
static weft_status *open_env(gen_emit *e, rounds *r, int place, const hlo_computation *comp, gen_env **out)
{
  const hlo_instr *state = comp->params[0], *init = r->w->form.loop->operands[0];

  WEFT_TRY_ALLOC(*out = WEFT_ARENA_NEW(e->arena, gen_env));
  gen_env_init(e, *out, comp);
  for (int i = 0; i < state->user_count; i++) {
    const hlo_instr *x = state->users[i];
    gen_value slot = *slot_of(r, place, (int)x->u.tuple_index);
    gen_source source = {.kind = GEN_SOURCE_INSTR, .env = r->outer, .instr = init->operands[x->u.tuple_index]};
    if (slot.re) {
      gen_value *v = WEFT_ARENA_NEW(e->arena, gen_value);
      WEFT_TRY_ALLOC(v);
      *v = gen_acc_get(e, slot);
      source = (gen_source){.kind = GEN_SOURCE_VALUE, .values = v};
    }
    WEFT_TRY(gen_env_bind(e, *out, x, source));
  }
  return NULL;
}

/* Is there a round for these elements? */
static weft_status *emit_condition(gen_emit *e, rounds *r, gen_ssa *out)
{
  const hlo_computation *cond = r->w->form.loop->called[1];
  const hlo_instr *any = r->w->form.any;
  gen_env *env = NULL;
  gen_value v, *all = WEFT_ARENA_NEW(e->arena, gen_value);

  WEFT_TRY_ALLOC(all);
  for (int p = 0; p < (any ? r->places : 1); p++) {
    WEFT_TRY(open_env(e, r, p, cond, &env));
    if (!any) continue;
    WEFT_TRY(gen_emit_leaf(e, env, any->operands[0], 0, r->at[p], &v));
    all->re = p ? gen_bin(e, LLVMOr, all->re, v.re) : v.re;
  }
  if (any) {
    if (gen_is_vector(all->re)) all->re = gen_intrinsic1(e, "llvm.vector.reduce.or", all->re);
    WEFT_TRY(gen_env_bind(e, env, any, (gen_source){.kind = GEN_SOURCE_VALUE, .values = all}));
  }
  WEFT_TRY(gen_emit_leaf(e, env, cond->root, 0, gen_index_seal(gen_index_new(e, 0)), &v));
  *out = v.re;
  return NULL;
}

/* The result that holds element `k` of the state after the loop, or -1. */
static int result_of(const gen_frame *f, int k)
{
  const hlo_instr *root = f->comp->root;

  if (root->op != HLO_TUPLE) return root->u.tuple_index == k ? 0 : -1;
  for (int r = 0; r < root->operand_count; r++)
    if (root->operands[r]->u.tuple_index == k) return r;
  return -1;
}

/* What a round gives for element `k` at one place: of a stack, the element of its row. */
static weft_status *emit_next(gen_emit *e, rounds *r, gen_env *env, int place, int k, gen_value *out)
{
  const hlo_instr *x = r->w->form.loop->called[0]->root->operands[k], *stack = gen_element_loop_stack(&r->w->form, k);

  if (stack) {
    x = stack->operands[1];
    if ((x->op == HLO_RESHAPE || x->op == HLO_BITCAST) &&
        hlo_shape_same_dims(x->operands[0]->shape, r->w->form.shape)) /* with the index of the state: the memo has it */
      return gen_emit_leaf(e, env, x->operands[0], 0, r->at[place], out);
    gen_index *row = gen_index_new(e, x->shape->rank);
    row->d[0] = gen_affine_const(0);
    for (int d = 1; d < x->shape->rank; d++) row->d[d] = r->at[place]->d[d - 1];
    return gen_emit_leaf(e, env, x, 0, gen_index_seal(row), out);
  }
  return gen_emit_leaf(e, env, x, 0, index_of(e, r, place, x->shape), out);
}

/* Stores a row's elements of a stack. */
static weft_status *store_row(gen_emit *e, rounds *r, gen_env *env, int k, const gen_value *values)
{
  const hlo_instr *stack = gen_element_loop_stack(&r->w->form, k);
  const gen_frame *f = r->w->walk.f;
  gen_affine starts[HLO_MAX_RANK], at;
  int result = result_of(f, k);

  if (result < 0) return NULL;
  WEFT_TRY(gen_emit_starts(e, env, stack, 2, stack->shape, stack->operands[1]->shape->dims, starts));
  at = gen_affine_add(e, gen_affine_scale(e, starts[0], hlo_shape_elems(r->w->form.shape)), r->first);
  e->part->walker->store(e, &f->results[result], at, values, r->w->count, r->places);
  return NULL;
}

static weft_status *emit_round(gen_emit *e, rounds *r)
{
  const hlo_computation *body = r->w->form.loop->called[0];
  int count = r->w->count;
  gen_value *next = WEFT_ARENA_ARRAY(e->arena, gen_value, r->places * count);
  gen_env *env, *last = NULL;

  WEFT_TRY_ALLOC(next);
  for (int p = 0; p < r->places; p++) {
    WEFT_TRY(open_env(e, r, p, body, &env));
    for (int k = 0; k < count; k++)
      if ((p < places_of(r, k) && slot_of(r, p, k)->re) || gen_element_loop_stack(&r->w->form, k))
        WEFT_TRY(emit_next(e, r, env, p, k, &next[p * count + k]));
    last = env;
  }
  for (int k = 0; k < count; k++) {
    if (gen_element_loop_stack(&r->w->form, k)) WEFT_TRY(store_row(e, r, last, k, &next[k]));
    for (int p = 0; p < places_of(r, k) && slot_of(r, p, k)->re; p++)
      set_state(e, *slot_of(r, p, k), shape_of(r, k)->type, next[p * count + k]);
  }
  return NULL;
}

static weft_status *emit_elements(void *ctx, gen_emit *e, gen_affine at)
{
  element_walk *w = ctx;
  const gen_frame *f = w->walk.f;
  rounds r = {.w = w, .outer = &w->walk.f->env, .places = w->walk.period, .first = at};
  gen_while loop;
  gen_ssa goes_on;

  r.at = WEFT_ARENA_ARRAY(e->arena, const gen_index *, r.places);
  r.slots = WEFT_ARENA_ARRAY(e->arena, gen_value, r.places * w->count);
  WEFT_TRY_ALLOC(r.at);
  WEFT_TRY_ALLOC(r.slots);
  for (int p = 0; p < r.places; p++) r.at[p] = gen_delinearize(e, w->form.shape, gen_affine_offset(at, p));
  WEFT_TRY(open_state(e, &r));
  gen_while_begin(e, &loop);
  int mark = gen_memo_push(e);
  WEFT_TRY(emit_condition(e, &r, &goes_on));
  gen_while_test(e, &loop, goes_on);
  WEFT_TRY(emit_round(e, &r));
  gen_memo_pop(e, mark);
  gen_while_end(e, &loop);
  for (int k = 0; k < w->count; k++) {
    int result = result_of(f, k);
    gen_value *values = WEFT_ARENA_ARRAY(e->arena, gen_value, r.places);
    WEFT_TRY_ALLOC(values);
    if (result < 0 || gen_element_loop_stack(&w->form, k)) continue;
    for (int p = 0; p < r.places; p++) values[p] = gen_acc_get(e, *slot_of(&r, p, k));
    e->part->walker->store(e, &f->results[result], at, values, 1, r.places);
  }
  return NULL;
}

weft_status *gen_emit_element_loop_kernel(gen_part *part, gen_kernel_spec *spec)
{
  gen_frame frame, *f = &frame;
  element_walk w = {.walk = {.f = f, .count = 1, .period = 1, .body = emit_elements}};
  int64_t units = 0;
  bool is_one;

  WEFT_TRY(gen_element_loop_in(part->arena, spec->fusion->called[0], &w.form, &is_one));
  if (!is_one) return gen_wrong_form(spec->info->strategy);
  w.count = w.form.loop->operands[0]->operand_count;
  w.walk.shape = w.form.shape;
  w.walk.roots = &w.form.loop;
  WEFT_TRY(gen_frame_open(part, spec, 0, f));
  WEFT_TRY(part->walker->walk(&w.walk, true, &units));
  gen_frame_close(f);
  spec->info->phase_count = 1;
  spec->info->phases[0] = (gen_phase){.units = units};
  return NULL;
}
