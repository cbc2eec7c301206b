/* codegen/emit/element_loop.c -- the values after a while that changes arrays element by element (gen_element_loop), at
 * one index: a loop around one vector of elements, with the state in registers. A vector whose elements are all done
 * leaves its loop; other vectors go on. */
#include <config.h>

#include "codegen/emit/emit.h"

typedef struct element_state {
  gen_element_loop form;
  gen_env *outer;       /* of the while */
  int count;
  gen_value *slots;     /* of what changes; re NULL: the element does not change */
} element_state;

static const gen_index *index_of(gen_emit *e, const hlo_shape *shape, const gen_index *idx)
{
  return hlo_shape_is_scalar(shape) ? gen_index_seal(gen_index_new(e, 0)) : idx;
}

/* Narrow floats are rounded from one round to the next, as they would be in memory. */
static void set_state(gen_emit *e, gen_value slot, weft_dtype type, gen_value v)
{
  if (weft_dtype_is_float(type) && weft_dtype_bits(type) < 32)
    v.re = gen_from_storage(e, type, gen_to_storage(e, type, v.re));
  gen_acc_set(e, slot, v);
}

/* Elements that do not change are computed here if the body reads them at `idx`: the loop finds them in the memo. */
static weft_status *open_state(gen_emit *e, element_state *s, const gen_index *idx)
{
  const hlo_instr *init = s->form.loop->operands[0];
  int lanes = gen_lanes_at(e, idx);

  for (int k = 0; k < s->count; k++) {
    const hlo_instr *x = init->operands[k];
    bool is_scalar = hlo_shape_is_scalar(x->shape);
    gen_value v;
    s->slots[k] = (gen_value){NULL, NULL};
    if (!is_scalar && !hlo_shape_same_dims(x->shape, s->form.shape)) continue;
    WEFT_TRY(gen_emit_leaf(e, s->outer, x, 0, index_of(e, x->shape, idx), &v));
    if (!gen_element_loop_changes(&s->form, k)) continue;
    s->slots[k] = gen_acc_slot(e, x->shape->type, is_scalar ? 1 : lanes);
    set_state(e, s->slots[k], x->shape->type, v);
  }
  return NULL;
}

/* An environment for the body or the condition, in which the elements of the parameter stand for the state. */
static weft_status *open_env(gen_emit *e, element_state *s, const hlo_computation *comp, gen_env *env)
{
  const hlo_instr *state = comp->params[0];

  gen_env_init(e, env, comp);
  for (int i = 0; i < state->user_count; i++) {
    const hlo_instr *x = state->users[i];
    int k = (int)x->u.tuple_index;
    gen_source source = {.kind = GEN_SOURCE_INSTR, .env = s->outer, .instr = s->form.loop->operands[0]->operands[k]};
    if (s->slots[k].re) {
      gen_value *v = WEFT_ARENA_NEW(e->arena, gen_value);
      WEFT_TRY_ALLOC(v);
      *v = gen_acc_get(e, s->slots[k]);
      source = (gen_source){.kind = GEN_SOURCE_VALUE, .values = v};
    }
    WEFT_TRY(gen_env_bind(e, env, x, source));
  }
  return NULL;
}

/* Is there a round for this vector? */
static weft_status *emit_condition(gen_emit *e, element_state *s, const gen_index *idx, gen_ssa *out)
{
  const hlo_computation *cond = s->form.loop->called[1];
  gen_env *env = WEFT_ARENA_NEW(e->arena, gen_env);
  gen_value v, *any = WEFT_ARENA_NEW(e->arena, gen_value);

  WEFT_TRY_ALLOC(env);
  WEFT_TRY_ALLOC(any);
  WEFT_TRY(open_env(e, s, cond, env));
  if (s->form.any) {
    WEFT_TRY(gen_emit_leaf(e, env, s->form.any->operands[0], 0, idx, any));
    if (gen_is_vector(any->re)) any->re = gen_intrinsic1(e, "llvm.vector.reduce.or", any->re);
    WEFT_TRY(gen_env_bind(e, env, s->form.any, (gen_source){.kind = GEN_SOURCE_VALUE, .values = any}));
  }
  WEFT_TRY(gen_emit_leaf(e, env, cond->root, 0, gen_index_seal(gen_index_new(e, 0)), &v));
  *out = v.re;
  return NULL;
}

static weft_status *emit_round(gen_emit *e, element_state *s, const gen_index *idx)
{
  const hlo_computation *body = s->form.loop->called[0];
  gen_env *env = WEFT_ARENA_NEW(e->arena, gen_env);
  gen_value *next = WEFT_ARENA_ARRAY(e->arena, gen_value, s->count);

  WEFT_TRY_ALLOC(env);
  WEFT_TRY_ALLOC(next);
  WEFT_TRY(open_env(e, s, body, env));
  for (int k = 0; k < s->count; k++)
    if (s->slots[k].re)
      WEFT_TRY(gen_emit_leaf(e, env, body->root, k, index_of(e, body->root->operands[k]->shape, idx), &next[k]));
  for (int k = 0; k < s->count; k++)
    if (s->slots[k].re) set_state(e, s->slots[k], body->root->operands[k]->shape->type, next[k]);
  return NULL;
}

weft_status *gen_emit_element_loop(gen_emit *e, gen_env *env, const hlo_instr *loop, const gen_index *idx,
                                   gen_value *out)
{
  element_state s = {.outer = env, .count = loop->operands[0]->operand_count};
  gen_while rounds;
  gen_ssa goes_on;
  bool is_one;

  WEFT_TRY(gen_element_loop_of(e->arena, loop, &s.form, &is_one));
  if (!is_one) return gen_unimplemented(e, loop, "rounds of all elements together");
  s.slots = WEFT_ARENA_ARRAY(e->arena, gen_value, s.count);
  WEFT_TRY_ALLOC(s.slots);
  WEFT_TRY(open_state(e, &s, idx));
  gen_while_begin(e, &rounds);
  int mark = gen_memo_push(e);
  WEFT_TRY(emit_condition(e, &s, idx, &goes_on));
  gen_while_test(e, &rounds, goes_on);
  WEFT_TRY(emit_round(e, &s, idx));
  gen_memo_pop(e, mark);
  gen_while_end(e, &rounds);
  for (int k = 0; k < s.count; k++) out[k] = s.slots[k].re ? gen_acc_get(e, s.slots[k]) : (gen_value){NULL, NULL};
  return NULL;
}
