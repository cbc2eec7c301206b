/* codegen/nvptx/held.c -- long rows: columns for which a block has no registers stay in its shared memory.
 *
 * A stage that is the first to need a value of such a column loads it and leaves it in shared memory, where later
 * stages find it. Each thread takes only what it has left there itself, so the threads need no barrier. Only values
 * that several stages need are held, in the form that they have in memory. */
#include <config.h>

#include "codegen/nvptx/grid.h"

enum {
  COMBINED_BYTES = 2 * GEN_WARP * 8, /* of shared memory by which warps combine an accumulator (block.c) */
  MOST_STAGES = 30,                  /* as bits of 32, with the last pass */
};

/* Does an instruction take the elements of `x` at its own index? Then the emitters look for them in the memo. */
static bool is_taken(const gen_rows *form, const hlo_instr *x)
{
  HLO_FOREACH(user, form->comp) {
    bool takes = hlo_opcode_is_elementwise(user->op);
    for (int i = 0; i < form->reduce_count; i++) takes = takes || form->reduces[i] == user;
    for (int i = 0; takes && i < user->operand_count; i++)
      if (user->operands[i] == x) return true;
  }
  return false;
}

/* The type that a value has in shared memory. A narrow float that is computed may have more bits than its type. */
static weft_dtype held_type(const gen_part *part, const hlo_instr *x)
{
  weft_dtype type = x->shape->type;
  bool is_wider = hlo_opcode_is_transcendental(x->op) && weft_dtype_is_float(type) && weft_dtype_bits(type) < 32 &&
                  part->options->allow_excess_precision;

  return is_wider ? WEFT_F32 : type;
}

/* Is the value, which so many stages need, one that is read from memory, or one that takes long to compute? */
static bool is_worth_holding(const gen_rows *form, const hlo_instr *x, uint32_t stages, bool computed)
{
  if (!hlo_shape_is_array(x->shape) || weft_dtype_is_complex(x->shape->type)) return false;
  if (hlo_shape_elems(x->shape) != form->rows * form->cols || (stages & (stages - 1)) == 0) return false;
  if (hlo_opcode_is_transcendental(x->op)) return computed && is_taken(form, x);
  if (hlo_opcode_is_elementwise(x->op) || x->op == HLO_BROADCAST || x->op == HLO_IOTA || x->op == HLO_CONSTANT)
    return false;
  return x->op != HLO_GET_TUPLE_ELEMENT && gen_row_level(form, x) == 0 && is_taken(form, x);
}

/* The stages that `x` needs its operands for, if they need `x` itself in the stages `needs`. */
static uint32_t needs_of(const gen_rows *form, const hlo_instr *x, uint32_t needs, bool computed)
{
  for (int i = 0; i < form->reduce_count; i++)
    if (form->reduces[i] == x) return UINT32_C(1) << (gen_row_level(form, x) - 1);
  return is_worth_holding(form, x, needs, computed) ? needs & -needs : needs;
}

/* For each instruction of the form's computation the stages that need it, as bits: number form->stages is the last
 * pass, which stores results. The operands of a value that is held are needed once. */
static weft_status *stages_of(weft_arena *arena, const gen_rows *form, bool computed, uint32_t **out)
{
  const hlo_instr **order;
  int count = 0, n, low;

  hlo_id_range(form->comp, &low, &n);
  *out = WEFT_ARENA_ARRAY(arena, uint32_t, n);
  order = WEFT_ARENA_ARRAY(arena, const hlo_instr *, n);
  WEFT_TRY_ALLOC(*out);
  WEFT_TRY_ALLOC(order);
  HLO_FOREACH(x, form->comp) order[count++] = x;
  if (!form->per_row_only) (*out)[form->comp->root->id - low] = UINT32_C(1) << form->stages;
  while (count-- > 0) {
    const hlo_instr *x = order[count];
    uint32_t needs = needs_of(form, x, (*out)[x->id - low], computed);
    for (int i = 0; i < x->operand_count; i++) (*out)[x->operands[i]->id - low] |= needs;
  }
  return NULL;
}

/* The bytes of registers that the values of a column take between two stages, if they stay there. */
static int live_bytes(const gen_held *h, int stages)
{
  int most = 0;

  for (int s = 0; s < stages; s++) {
    int bytes = 0;
    for (int i = 0; i < h->count; i++) {
      bool is_live = (h->stages[i] & ((UINT32_C(2) << s) - 1)) != 0 && h->stages[i] >> (s + 1) != 0;
      if (is_live) bytes += WEFT_MAX((int)weft_dtype_bytes(h->values[i]->shape->type), 4);
    }
    most = WEFT_MAX(most, bytes);
  }
  return most;
}

weft_status *gen_held_find(gen_part *part, const gen_rows *form, const gen_acc *accs, int acc_count, bool computed,
                           gen_held *out)
{
  uint32_t *stages;
  int low, n;

  *out = (gen_held){.room = part->target->most_shared_bytes - (int64_t)acc_count * COMBINED_BYTES};
  if (part->block) out->room = 0;
  for (int i = 0; i < acc_count; i++) /* a thread that walks the whole row needs the columns of the others */
    if (!gen_team_combines(&accs[i])) out->room = 0;
  if (form->stages >= MOST_STAGES) return NULL;
  hlo_id_range(form->comp, &low, &n);
  WEFT_TRY(stages_of(part->arena, form, computed, &stages));
  HLO_FOREACH(x, form->comp) {
    if (out->count == GEN_MOST_HELD || !is_worth_holding(form, x, stages[x->id - low], computed)) continue;
    out->values[out->count] = x;
    out->stages[out->count++] = stages[x->id - low];
    out->column_bytes += (int)weft_dtype_bytes(held_type(part, x));
  }
  out->live_bytes = live_bytes(out, form->stages);
  return NULL;
}

/* The dynamic shared memory of the kernel. */
static gen_ssa dynamic_memory(gen_part *p)
{
  static const char name[] = "held";
  gen_ssa global = LLVMGetNamedGlobal(p->mod, name);

  if (global) return global;
  global = LLVMAddGlobalInAddressSpace(p->mod, LLVMArrayType2(p->i8, 0), name, 3);
  LLVMSetLinkage(global, LLVMExternalLinkage);
  LLVMSetAlignment(global, 16);
  return global;
}

int64_t gen_held_place(gen_held *h, gen_emit *e, int64_t columns)
{
  gen_ssa memory = dynamic_memory(e->part);
  int64_t at = 0;

  for (int i = 0; i < h->count; i++) {
    weft_dtype held = held_type(e->part, h->values[i]);
    LLVMTypeRef type = gen_storage_type(e->part, held);
    h->arrays[i] =
      (gen_shared){.buffer = {.ptr = gen_byte_ptr(e, memory, at), .elems = columns}, .type = type, .element = type};
    at += WEFT_ALIGN_UP(columns * (int64_t)weft_dtype_bytes(held), 16);
  }
  return at;
}

weft_status *gen_held_open(const gen_held *h, gen_emit *e, gen_env *env, int stage, gen_affine linear, gen_ssa place,
                           int count)
{
  for (int i = 0; i < h->count; i++) {
    const hlo_instr *x = h->values[i];
    weft_dtype type = held_type(e->part, x);
    bool is_first = (h->stages[i] & ((UINT32_C(1) << stage) - 1)) == 0;
    if (!(h->stages[i] >> stage & 1)) continue;
    for (int k = 0; k < count; k++) {
      const gen_index *at = gen_delinearize(e, x->shape, gen_affine_offset(linear, k));
      gen_ssa to = LLVMBuildNSWAdd(e->b, place, gen_i64(e, k), "");
      gen_value v;
      if (is_first) {
        WEFT_TRY(gen_emit_leaf(e, env, x, 0, at, &v));
        gen_shared_put(e, &h->arrays[i], to, gen_to_storage(e, type, v.re));
      } else {
        v = (gen_value){.re = gen_from_storage(e, type, gen_shared_get(e, &h->arrays[i], to))};
        WEFT_TRY(gen_remember(e, env, x, at, v));
      }
    }
  }
  return NULL;
}
