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

/* The rounds of the elements at some neighbouring places. A number of an element's state is one of a row, or, if there
 * are no rows, of one of the places. */
typedef struct rounds {
  element_walk *w;
  gen_env *outer;       /* of the fusion */
  int places;
  gen_affine first;     /* linear index of the first place */
  const gen_index **at; /* by place: the index of the elements */
  gen_value **slots;    /* by element of the state, then by number: what changes; NULL: it does not, or is a stack */
} rounds;

static const hlo_instr *init_of(const rounds *r, int k) { return r->w->form.loop->operands[0]->operands[k]; }

/* How many numbers of an array belong to one element. */
static int row_of(const rounds *r, const hlo_shape *shape)
{
  return hlo_shape_is_scalar(shape) ? 1 : (int)(hlo_shape_elems(shape) / hlo_shape_elems(&r->w->form.elements));
}

/* How many numbers of an array, or of a row of a stack, are made together. */
static int numbers_of(const rounds *r, const hlo_shape *shape)
{
  return hlo_shape_is_scalar(shape) ? 1 : r->places * row_of(r, shape);
}

/* The index of such a number; `place`: the first of the dimensions that number the elements. */
static const gen_index *index_of(gen_emit *e, const rounds *r, const hlo_shape *shape, int place, int number)
{
  gen_index *idx = gen_index_new(e, shape->rank);
  int rank = r->w->form.elements.rank, row = 1;

  if (hlo_shape_is_scalar(shape)) return gen_index_seal(idx);
  for (int d = shape->rank - 1; d >= 0; d--) {
    if (d >= place && d < place + rank) continue;
    idx->d[d] = gen_affine_const(number / row % shape->dims[d]);
    row *= (int)shape->dims[d];
  }
  for (int d = 0; d < rank; d++) idx->d[place + d] = r->at[number / row]->d[d];
  return gen_index_seal(idx);
}

/* Stores numbers that were made together to an array of `shape`, the first element of which is `base` of the buffer. */
static void store_numbers(gen_emit *e, const rounds *r, const gen_buffer *to, gen_affine base, const hlo_shape *shape,
                          int place, const gen_value *values)
{
  int64_t behind = 1, elems = hlo_shape_elems(&r->w->form.elements);
  int count = numbers_of(r, shape);

  for (int d = place + r->w->form.elements.rank; d < shape->rank; d++) behind *= shape->dims[d];
  int together = (int)behind * r->places; /* they lie side by side */
  for (int n = 0; n < count; n += together) {
    gen_affine at = gen_affine_offset(gen_affine_scale(e, r->first, behind), n / together * elems * behind);
    e->part->walker->store(e, to, gen_affine_add(e, base, at), values + n, 1, together);
  }
}

/* Elements that do not change are computed here where the body reads them: the loop finds them in the memo. */
static weft_status *open_state(gen_emit *e, rounds *r)
{
  const gen_element_loop *form = &r->w->form;
  int lanes = gen_lanes_at(e, r->at[0]);

  for (int k = 0; k < r->w->count; k++) {
    const hlo_shape *shape = init_of(r, k)->shape;
    bool is_scalar = hlo_shape_is_scalar(shape), changes = gen_element_loop_changes(form, k);
    if (gen_element_loop_stack(form, k) || (!is_scalar && !changes && !hlo_shape_same_dims(shape, &form->elements)))
      continue;
    int count = numbers_of(r, shape);
    if (changes) WEFT_TRY_ALLOC(r->slots[k] = WEFT_ARENA_ARRAY(e->arena, gen_value, count));
    for (int n = 0; n < count; n++) {
      gen_value v;
      WEFT_TRY(
        gen_emit_leaf(e, r->outer, init_of(r, k), 0, index_of(e, r, shape, changes ? form->where[k] : 0, n), &v));
      if (!changes) continue;
      r->slots[k][n] = gen_acc_slot(e, shape->type, is_scalar ? 1 : lanes);
      gen_state_set(e, r->slots[k][n], shape->type, v);
    }
  }
  return NULL;
}

/* An environment for the body or the condition at one place, in which the elements of the parameter stand for the
 * state. */
static weft_status *open_env(gen_emit *e, rounds *r, int place, const hlo_computation *comp, gen_env **out)
{
  const hlo_instr *state = comp->params[0];

  WEFT_TRY_ALLOC(*out = WEFT_ARENA_NEW(e->arena, gen_env));
  gen_env_init(e, *out, comp);
  for (int i = 0; i < state->user_count; i++) {
    const hlo_instr *x = state->users[i];
    int k = (int)x->u.tuple_index, row = row_of(r, x->shape);
    gen_source source = {.kind = GEN_SOURCE_INSTR, .env = r->outer, .instr = init_of(r, k)};
    if (r->slots[k]) {
      gen_value *v = WEFT_ARENA_ARRAY(e->arena, gen_value, row);
      WEFT_TRY_ALLOC(v);
      for (int n = 0; n < row; n++)
        v[n] = gen_acc_get(e, r->slots[k][hlo_shape_is_scalar(x->shape) ? 0 : place * row + n]);
      source = (gen_source){.kind = GEN_SOURCE_NUMBERS,
                            .values = v,
                            .place = r->w->form.where[k],
                            .element_dims = r->w->form.elements.rank};
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

/* What a round makes of element `k` of the state: the next values, or the row of a stack, with the place of the
 * elements' dimensions in it. */
static const hlo_instr *made_by_round(const rounds *r, int k, int *place)
{
  const hlo_instr *stack = gen_element_loop_stack(&r->w->form, k);

  *place = r->w->form.where[k] + (stack != NULL);
  return stack ? stack->operands[1] : r->w->form.loop->called[0]->root->operands[k];
}

/* Stores a row of a stack. */
static weft_status *store_row(gen_emit *e, rounds *r, gen_env *env, int k, const gen_value *values)
{
  const hlo_instr *stack = gen_element_loop_stack(&r->w->form, k);
  const hlo_shape *row = stack->operands[1]->shape;
  const gen_frame *f = r->w->walk.f;
  gen_affine starts[HLO_MAX_RANK];
  int result = gen_loop_result_of(f->comp, k);

  if (result < 0) return NULL;
  WEFT_TRY(gen_emit_starts(e, env, stack, 2, stack->shape, row->dims, starts));
  store_numbers(e, r, &f->results[result], gen_affine_scale(e, starts[0], hlo_shape_elems(row)), row,
                r->w->form.where[k] + 1, values);
  return NULL;
}

static weft_status *emit_round(gen_emit *e, rounds *r)
{
  const hlo_computation *body = r->w->form.loop->called[0];
  gen_value **next = WEFT_ARENA_ARRAY(e->arena, gen_value *, r->w->count);
  gen_env **envs = WEFT_ARENA_ARRAY(e->arena, gen_env *, r->places);

  WEFT_TRY_ALLOC(next);
  WEFT_TRY_ALLOC(envs);
  for (int p = 0; p < r->places; p++) WEFT_TRY(open_env(e, r, p, body, &envs[p]));
  for (int k = 0; k < r->w->count; k++) {
    int place;
    const hlo_instr *made = made_by_round(r, k, &place);
    if (!r->slots[k] && !gen_element_loop_stack(&r->w->form, k)) continue;
    int count = numbers_of(r, made->shape);
    WEFT_TRY_ALLOC(next[k] = WEFT_ARENA_ARRAY(e->arena, gen_value, count));
    for (int n = 0; n < count; n++)
      WEFT_TRY(gen_emit_leaf(e, envs[hlo_shape_is_scalar(made->shape) ? 0 : n / row_of(r, made->shape)], made, 0,
                             index_of(e, r, made->shape, place, n), &next[k][n]));
    if (!r->slots[k]) WEFT_TRY(store_row(e, r, envs[0], k, next[k]));
  }
  for (int k = 0; k < r->w->count; k++)
    for (int n = 0; r->slots[k] && n < numbers_of(r, init_of(r, k)->shape); n++)
      gen_state_set(e, r->slots[k][n], init_of(r, k)->shape->type, next[k][n]);
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
  r.slots = WEFT_ARENA_ARRAY(e->arena, gen_value *, w->count);
  WEFT_TRY_ALLOC(r.at);
  WEFT_TRY_ALLOC(r.slots);
  for (int p = 0; p < r.places; p++) r.at[p] = gen_delinearize(e, &w->form.elements, gen_affine_offset(at, p));
  WEFT_TRY(open_state(e, &r));
  gen_while_begin(e, &loop);
  int mark = gen_memo_push(e);
  WEFT_TRY(emit_condition(e, &r, &goes_on));
  gen_while_test(e, &loop, goes_on);
  WEFT_TRY(emit_round(e, &r));
  gen_memo_pop(e, mark);
  gen_while_end(e, &loop);
  for (int k = 0; k < w->count; k++) {
    int result = gen_loop_result_of(f->comp, k), count = numbers_of(&r, init_of(&r, k)->shape);
    if (result < 0 || !r.slots[k]) continue;
    gen_value *values = WEFT_ARENA_ARRAY(e->arena, gen_value, count);
    WEFT_TRY_ALLOC(values);
    for (int n = 0; n < count; n++) values[n] = gen_acc_get(e, r.slots[k][n]);
    store_numbers(e, &r, &f->results[result], gen_affine_const(0), init_of(&r, k)->shape, w->form.where[k], values);
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
  w.walk.shape = &w.form.elements;
  w.walk.is_flat = w.form.has_rows;
  w.walk.roots = &w.form.loop;
  WEFT_TRY(gen_frame_open(part, spec, 0, f));
  WEFT_TRY(part->walker->walk(&w.walk, true, &units));
  gen_frame_close(f);
  spec->info->phase_count = 1;
  spec->info->phases[0] = (gen_phase){.units = units};
  return NULL;
}
