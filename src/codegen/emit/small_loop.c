/* codegen/emit/small_loop.c -- a fusion around a while with little state: the whole loop in one kernel.
 *
 *   an element of the state that       is
 *   does not change                    its value at the start, at each use
 *   is a scalar                        a stack slot, which becomes a register
 *   is a small array                   a buffer on the stack
 *   is only updated in place           the result's buffer, into which the start value is brought first
 *   (dynamic-update-slice of itself)
 *
 * In an iteration everything is computed before anything is stored, so that all of it sees the old state.  Indices into
 * small arrays are constants: each element of each value is computed once (the memo of the elemental emitter). */
#include <config.h>

#include "codegen/emit/emit.h"

typedef enum element_kind { ELEMENT_SAME, ELEMENT_SCALAR, ELEMENT_ARRAY, ELEMENT_UPDATED } element_kind;

typedef struct element {
  element_kind kind;
  const hlo_shape *shape;
  const hlo_instr *init;  /* in the fusion */
  const hlo_instr *next;  /* in the body; UPDATED: the dynamic-update-slice */
  gen_value slot;         /* SCALAR */
  gen_buffer buffer;      /* ARRAY, UPDATED */
  int64_t count;          /* values of an iteration: of the array, or of the update */
  gen_value *values;
  gen_affine *starts;     /* UPDATED */
} element;

typedef struct small_loop {
  gen_frame *f;
  const hlo_instr *loop;
  element *elements;
  int count;
} small_loop;

static const gen_index *constant_index(gen_emit *e, const hlo_shape *shape, int64_t k)
{
  return gen_delinearize(e, shape, gen_affine_const(k));
}

/* ---- the state --------------------------------------------------------------------------------------------------- */

static weft_status *open_updated(small_loop *l, element *el, int i)
{
  gen_emit *e = &l->f->e;
  int r = gen_loop_result_of(l->f->comp, i);
  const gen_buffer *from;
  gen_if moved;

  if (r < 0 || el->init->op != HLO_PARAMETER)
    return gen_unimplemented(e, l->loop, "an updated array that is no result");
  el->kind = ELEMENT_UPDATED;
  el->count = hlo_shape_elems(el->next->operands[1]->shape);
  el->buffer = l->f->results[r];
  from = l->f->env.params[el->init->u.parameter_number].buffers;
  gen_if_begin(e, &moved,
               gen_icmp(e, LLVMIntNE, LLVMBuildPtrToInt(e->b, from->ptr, e->part->i64, ""),
                        LLVMBuildPtrToInt(e->b, el->buffer.ptr, e->part->i64, "")));
  LLVMBuildMemCpy(e->b, el->buffer.ptr, 1, from->ptr, 1, gen_i64(e, hlo_shape_bytes(el->shape)));
  gen_if_end(e, &moved);
  return NULL;
}

static weft_status *open_array(small_loop *l, element *el)
{
  gen_emit *e = &l->f->e;

  el->kind = ELEMENT_ARRAY;
  el->count = hlo_shape_elems(el->shape);
  el->buffer = (gen_buffer){.type = el->shape->type, .elems = el->count};
  el->buffer.ptr = gen_alloca(e, LLVMArrayType2(e->part->i8, (uint64_t)hlo_shape_bytes(el->shape)), "state");
  LLVMSetAlignment(el->buffer.ptr, 64);
  for (int64_t k = 0; k < el->count; k++) {
    gen_value v;
    WEFT_TRY(gen_emit_leaf(e, &l->f->env, el->init, 0, constant_index(e, el->shape, k), &v));
    gen_store(e, &el->buffer, gen_affine_const(k), v);
  }
  return NULL;
}

static weft_status *open_scalar(small_loop *l, element *el)
{
  gen_emit *e = &l->f->e;
  gen_value v;

  el->kind = ELEMENT_SCALAR;
  el->count = 1;
  el->slot = gen_acc_slot(e, el->shape->type, 1);
  WEFT_TRY(gen_emit_leaf(e, &l->f->env, el->init, 0, constant_index(e, el->shape, 0), &v));
  gen_state_set(e, el->slot, el->shape->type, v);
  return NULL;
}

static weft_status *open_state(small_loop *l)
{
  const hlo_computation *body = l->loop->called[0];

  for (int i = 0; i < l->count; i++) {
    element *el = &l->elements[i];
    *el = (element){.init = l->loop->operands[0]->operands[i], .next = body->root->operands[i]};
    el->shape = el->init->shape;
    if (gen_state_element(el->next) == i) continue;
    if (hlo_shape_is_scalar(el->shape)) WEFT_TRY(open_scalar(l, el));
    else if (el->next->op == HLO_DYNAMIC_UPDATE_SLICE && gen_state_element(el->next->operands[0]) == i)
      WEFT_TRY(open_updated(l, el, i));
    else WEFT_TRY(open_array(l, el));
    el->values = WEFT_ARENA_ARRAY(l->f->e.arena, gen_value, el->count);
    el->starts = WEFT_ARENA_ARRAY(l->f->e.arena, gen_affine, el->shape->rank + 1);
    WEFT_TRY_ALLOC(el->values);
    WEFT_TRY_ALLOC(el->starts);
  }
  return NULL;
}

/* ---- an iteration ------------------------------------------------------------------------------------------------ */

/* An environment for the body or the condition, in which the elements of the parameter stand for the state. */
static weft_status *open_env(small_loop *l, const hlo_computation *comp, gen_env *env)
{
  gen_emit *e = &l->f->e;

  gen_env_init(e, env, comp);
  for (const hlo_instr *x = comp->first; x; x = x->next) {
    if (x->op != HLO_GET_TUPLE_ELEMENT || x->operands[0] != comp->params[0]) continue;
    element *el = &l->elements[x->u.tuple_index];
    gen_source source = {.kind = GEN_SOURCE_BUFFER, .buffers = &el->buffer};
    if (el->kind == ELEMENT_SAME) {
      source = (gen_source){.kind = GEN_SOURCE_INSTR, .env = &l->f->env, .instr = el->init};
    } else if (el->kind == ELEMENT_SCALAR) {
      gen_value *v = WEFT_ARENA_NEW(e->arena, gen_value);
      WEFT_TRY_ALLOC(v);
      *v = gen_acc_get(e, el->slot);
      source = (gen_source){.kind = GEN_SOURCE_VALUE, .values = v};
    }
    WEFT_TRY(gen_env_bind(e, env, x, source));
  }
  return NULL;
}

static weft_status *compute_element(small_loop *l, gen_env *env, element *el)
{
  gen_emit *e = &l->f->e;
  const hlo_instr *what = el->next;

  if (el->kind == ELEMENT_UPDATED) {
    what = el->next->operands[1];
    WEFT_TRY(gen_emit_starts(e, env, el->next, 2, el->shape, what->shape->dims, el->starts));
  }
  for (int64_t k = 0; k < el->count; k++)
    WEFT_TRY(gen_emit_leaf(e, env, what, 0, constant_index(e, what->shape, k), &el->values[k]));
  return NULL;
}

static void store_element(gen_emit *e, const element *el)
{
  if (el->kind == ELEMENT_SCALAR) gen_state_set(e, el->slot, el->shape->type, el->values[0]);
  if (el->kind == ELEMENT_ARRAY)
    for (int64_t k = 0; k < el->count; k++) gen_store(e, &el->buffer, gen_affine_const(k), el->values[k]);
  if (el->kind != ELEMENT_UPDATED) return;
  const hlo_shape *update = el->next->operands[1]->shape;
  for (int64_t k = 0; k < el->count; k++) {
    const gen_index *from = constant_index(e, update, k);
    gen_index *to = gen_index_new(e, update->rank);
    for (int d = 0; d < update->rank; d++) to->d[d] = gen_affine_add(e, from->d[d], el->starts[d]);
    gen_store(e, &el->buffer, gen_linearize(e, el->shape, gen_index_seal(to)), el->values[k]);
  }
}

static weft_status *emit_loop(small_loop *l)
{
  gen_emit *e = &l->f->e;
  gen_env *env = WEFT_ARENA_ARRAY(e->arena, gen_env, 2);
  LLVMBasicBlockRef head, inside, after;
  gen_value go_on;
  int mark;

  WEFT_TRY_ALLOC(env);
  head = LLVMAppendBasicBlockInContext(e->part->ctx, e->fn, "loop");
  inside = LLVMAppendBasicBlockInContext(e->part->ctx, e->fn, "body");
  after = LLVMAppendBasicBlockInContext(e->part->ctx, e->fn, "after");
  LLVMBuildBr(e->b, head);
  LLVMPositionBuilderAtEnd(e->b, head);
  mark = gen_memo_push(e);
  WEFT_TRY(open_env(l, l->loop->called[1], &env[0]));
  WEFT_TRY(gen_emit_leaf(e, &env[0], l->loop->called[1]->root, 0, gen_index_seal(gen_index_new(e, 0)), &go_on));
  LLVMBuildCondBr(e->b, go_on.re, inside, after);
  LLVMPositionBuilderAtEnd(e->b, inside);
  WEFT_TRY(open_env(l, l->loop->called[0], &env[1]));
  for (int i = 0; i < l->count; i++) WEFT_TRY(compute_element(l, &env[1], &l->elements[i]));
  for (int i = 0; i < l->count; i++) store_element(e, &l->elements[i]);
  LLVMBuildBr(e->b, head);
  LLVMPositionBuilderAtEnd(e->b, after);
  gen_memo_pop(e, mark);
  return NULL;
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

static void store_result(small_loop *l, int r, const element *el)
{
  gen_emit *e = &l->f->e;

  if (el->kind == ELEMENT_SCALAR) gen_store(e, &l->f->results[r], gen_affine_const(0), gen_acc_get(e, el->slot));
  if (el->kind == ELEMENT_ARRAY)
    for (int64_t k = 0; k < el->count; k++)
      gen_store(e, &l->f->results[r], gen_affine_const(k), gen_load(e, &el->buffer, gen_affine_const(k)));
}

weft_status *gen_emit_small_loop_kernel(gen_part *part, gen_kernel_spec *spec)
{
  const hlo_computation *comp = spec->fusion->called[0];
  gen_frame frame, *f = &frame;
  small_loop l = {.f = f, .loop = gen_small_loop_of(comp)};

  if (!l.loop) return gen_wrong_form(spec->info->strategy);
  l.count = l.loop->operands[0]->operand_count;
  l.elements = WEFT_ARENA_ARRAY(part->arena, element, l.count);
  WEFT_TRY_ALLOC(l.elements);
  WEFT_TRY(gen_frame_open(part, spec, 0, f));
  WEFT_TRY(open_state(&l));
  WEFT_TRY(emit_loop(&l));
  for (int r = 0; r < f->result_count; r++) {
    const hlo_instr *result = comp->root->op == HLO_TUPLE ? comp->root->operands[r] : comp->root;
    store_result(&l, r, &l.elements[result->u.tuple_index]);
  }
  gen_frame_close(f);
  spec->info->phase_count = 1;
  spec->info->phases[0] = (gen_phase){.units = 1};
  return NULL;
}
