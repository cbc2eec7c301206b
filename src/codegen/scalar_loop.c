/* codegen/scalar_loop.c -- a fusion around a while whose changing state is scalars: the whole loop in one kernel.
 * The state is in stack slots, which become registers; what the loop does not change stands for what it started as. */
#include <config.h>

#include "codegen/codegen_internal.h"

typedef struct scalar_loop {
  gen_frame *f;
  const hlo_instr *loop, *init;
  gen_ssa (*slots)[2]; /* by element: re and im; NULL: does not change */
} scalar_loop;

static const hlo_instr *find_while(const hlo_computation *comp)
{
  for (const hlo_instr *x = comp->first; x; x = x->next)
    if (x->op == HLO_WHILE) return x;
  return NULL;
}

static const gen_index *at_scalar(gen_emit *e) { return gen_index_seal(gen_index_new(e, 0)); }

static gen_value load_slot(scalar_loop *l, int i)
{
  gen_emit *e = &l->f->e;
  LLVMTypeRef type = gen_register_type(e->part, l->init->operands[i]->shape->type);
  gen_value v = {.re = LLVMBuildLoad2(e->b, type, l->slots[i][0], "")};

  if (l->slots[i][1]) v.im = LLVMBuildLoad2(e->b, type, l->slots[i][1], "");
  return v;
}

/* Narrow floats are rounded from one iteration to the next, as they would be in memory. */
static void store_slot(scalar_loop *l, int i, gen_value v)
{
  weft_dtype type = l->init->operands[i]->shape->type;

  if (weft_dtype_is_float(type) && weft_dtype_bits(type) < 32) v.re = gen_round_to(&l->f->e, type, v.re);
  LLVMBuildStore(l->f->e.b, v.re, l->slots[i][0]);
  if (l->slots[i][1]) LLVMBuildStore(l->f->e.b, v.im, l->slots[i][1]);
}

/* An environment for the body or the condition: elements of its parameter are slots' values or the initial ones. */
static weft_status *open_env(scalar_loop *l, const hlo_computation *comp, gen_env *env)
{
  gen_emit *e = &l->f->e;

  gen_env_init(e, env, comp);
  for (const hlo_instr *x = comp->first; x; x = x->next) {
    if (x->op != HLO_GET_TUPLE_ELEMENT || x->operands[0] != comp->params[0]) continue;
    int i = (int)x->u.tuple_index;
    gen_source source = {.kind = GEN_SOURCE_INSTR, .env = &l->f->env, .instr = l->init->operands[i]};
    if (l->slots[i][0]) {
      gen_value *v = WEFT_ARENA_NEW(e->arena, gen_value);
      WEFT_TRY_ALLOC(v);
      *v = load_slot(l, i);
      source = (gen_source){.kind = GEN_SOURCE_VALUE, .values = v};
    }
    WEFT_TRY(gen_env_bind(e, env, x, source));
  }
  return NULL;
}

static weft_status *emit_loop(scalar_loop *l)
{
  gen_emit *e = &l->f->e;
  const hlo_computation *body = l->loop->called[0], *cond = l->loop->called[1];
  int count = l->init->operand_count, mark;
  gen_value *next = WEFT_ARENA_ARRAY(e->arena, gen_value, count), go_on;
  LLVMBasicBlockRef head, inside, after;
  gen_env *env = WEFT_ARENA_ARRAY(e->arena, gen_env, 2);

  WEFT_TRY_ALLOC(next);
  WEFT_TRY_ALLOC(env);
  for (int i = 0; i < count; i++) {
    if (!l->slots[i][0]) continue;
    WEFT_TRY(gen_emit_leaf(e, &l->f->env, l->init->operands[i], 0, at_scalar(e), &next[i]));
    store_slot(l, i, next[i]);
  }
  head = LLVMAppendBasicBlockInContext(e->part->ctx, e->fn, "loop");
  inside = LLVMAppendBasicBlockInContext(e->part->ctx, e->fn, "body");
  after = LLVMAppendBasicBlockInContext(e->part->ctx, e->fn, "after");
  LLVMBuildBr(e->b, head);
  LLVMPositionBuilderAtEnd(e->b, head);
  mark = gen_memo_push(e);
  WEFT_TRY(open_env(l, cond, &env[0]));
  WEFT_TRY(gen_emit_leaf(e, &env[0], cond->root, 0, at_scalar(e), &go_on));
  LLVMBuildCondBr(e->b, go_on.re, inside, after);
  LLVMPositionBuilderAtEnd(e->b, inside);
  WEFT_TRY(open_env(l, body, &env[1]));
  for (int i = 0; i < count; i++) /* all, before the first is stored */
    if (l->slots[i][0]) WEFT_TRY(gen_emit_leaf(e, &env[1], body->root->operands[i], 0, at_scalar(e), &next[i]));
  for (int i = 0; i < count; i++)
    if (l->slots[i][0]) store_slot(l, i, next[i]);
  LLVMBuildBr(e->b, head);
  LLVMPositionBuilderAtEnd(e->b, after);
  gen_memo_pop(e, mark);
  return NULL;
}

weft_status *gen_emit_scalar_loop_kernel(gen_part *part, gen_kernel_spec *spec, bool *out_done)
{
  const hlo_computation *comp = spec->fusion->called[0];
  const hlo_instr *loop = find_while(comp);
  gen_frame frame, *f = &frame;
  scalar_loop l = {.f = f, .loop = loop, .init = loop ? loop->operands[0] : NULL};

  *out_done = false;
  if (!loop || l.init->op != HLO_TUPLE || loop->called[0]->root->op != HLO_TUPLE) return NULL;
  int count = l.init->operand_count;
  gen_value *values = WEFT_ARENA_ARRAY(part->arena, gen_value, count);
  l.slots = weft_arena_alloc_array(part->arena, (size_t)count, sizeof *l.slots);
  WEFT_TRY_ALLOC(values);
  WEFT_TRY_ALLOC(l.slots);
  WEFT_TRY(gen_frame_open(part, spec, 0, f));
  for (int i = 0; i < count; i++) {
    const hlo_instr *next = loop->called[0]->root->operands[i];
    const hlo_shape *shape = l.init->operands[i]->shape;
    bool is_same = next->op == HLO_GET_TUPLE_ELEMENT && next->operands[0] == loop->called[0]->params[0] &&
                   next->u.tuple_index == i;
    if (is_same) continue;
    if (!hlo_shape_is_scalar(shape)) return gen_unimplemented(&f->e, loop, "a loop kernel with an array in its state");
    l.slots[i][0] = gen_alloca(&f->e, gen_register_type(part, shape->type), "state");
    if (weft_dtype_is_complex(shape->type))
      l.slots[i][1] = gen_alloca(&f->e, gen_register_type(part, shape->type), "state");
  }
  WEFT_TRY(emit_loop(&l));
  for (int i = 0; i < count; i++)
    if (l.slots[i][0]) values[i] = load_slot(&l, i);
  WEFT_TRY(gen_env_bind(&f->e, &f->env, loop, (gen_source){.kind = GEN_SOURCE_VALUE, .values = values}));
  for (int r = 0; r < f->result_count; r++) {
    gen_value v;
    WEFT_TRY(gen_emit_leaf(&f->e, &f->env, comp->root, r, at_scalar(&f->e), &v));
    gen_store(&f->e, &f->results[r], gen_affine_const(0), v);
  }
  gen_frame_close(f);
  spec->info->phase_count = 1;
  spec->info->phases[0] = (gen_phase){.units = 1, .unit_ns = 1000};
  *out_done = true;
  return NULL;
}
