/* codegen/host/kernel.c -- a fusion's kernel: the strategy that fills it, and the walk of the plainest one. */
#include <config.h>

#include "codegen/host/host.h"
#include "codegen/model/cost.h"

enum {
  /* vectors of the target, each of which may be two of the processor */
  SUMS_AT_ONCE = 4,
  CHAINS_AT_ONCE = 2,
  MOST_FUNCTIONS = 4, /* of a kernel that is computed in CHAINS_AT_ONCE vectors */
  /* loops by elements: vectors at once, operations of their round, those of a transcendental one; registers for what is
   * no state; units, if there are elements enough, and elements of a unit */
  MOST_AT_ONCE = 4,
  MOST_WORK = 200,
  LONG_CHAIN = 20,
  SPARE_REGISTERS = 3,
  GOOD_UNITS = 16,
  LEAST_ELEMENTS = 64,
  MOST_ELEMENTS = 256,
};

/* Is the fusion little more than a dot whose right operand has `least` columns or more side by side? */
static bool is_dot_of_columns(const hlo_computation *comp, int64_t least)
{
  const hlo_instr *dot = NULL;

  HLO_FOREACH(x, comp) {
    switch (x->op) {
    case HLO_PARAMETER:
    case HLO_CONSTANT:
    case HLO_BROADCAST:
    case HLO_RESHAPE:
    case HLO_BITCAST:
    case HLO_CONVERT:
    case HLO_ADD:
    case HLO_SUBTRACT:
    case HLO_MULTIPLY:
    case HLO_MAXIMUM: continue;
    case HLO_DOT: break;
    default: return false;
    }
    if (dot || weft_dtype_is_complex(x->shape->type)) return false;
    dot = x;
  }
  if (!dot) return false;
  const hlo_dot_attrs *attrs = dot->u.dot;
  int last = dot->operands[1]->shape->rank - 1;
  int64_t total = 1;
  for (int i = 0; i < attrs->rhs_contracting.count; i++) {
    if (attrs->rhs_contracting.v[i] == last) return false;
    total *= dot->operands[1]->shape->dims[attrs->rhs_contracting.v[i]];
  }
  bool has_columns = last >= attrs->rhs_batch.count + attrs->rhs_contracting.count;
  return total > GEN_UNROLLED_DOT && has_columns && dot->operands[1]->shape->dims[last] >= least;
}

/* Do two vectors at a time pay? They do for functions that are long chains of operations, each of which waits for the
 * one before: the processor's queue is full of waiting ones before it reaches the next vector. And they do where one
 * instruction rounds two vectors to bf16. Of many functions LLVM would make twice the code for little. */
static bool pays_in_pairs(const gen_frame *f)
{
  bool pays = f->e.part->target->has_avx512_bf16 && hlo_shape_leaf(f->fusion->shape, 0)->type == WEFT_BF16;
  int functions = 0;

  HLO_FOREACH(x, f->comp) {
    if (!hlo_opcode_is_transcendental(x->op) || x->shape->rank == 0) continue;
    functions++;
    pays = pays || x->op == HLO_ERFC || x->op == HLO_SIN || x->op == HLO_COS || x->op == HLO_TANH;
  }
  return pays && functions <= MOST_FUNCTIONS;
}

/* True if no value of the kernel depends on which lane it is in, and all arrays that it reads and writes are of bf16:
 * then lanes may be in another order. */
static bool is_lanewise_bf16(const gen_frame *f)
{
  for (int r = 0; r < f->result_count; r++)
    if (hlo_shape_leaf(f->fusion->shape, r)->type != WEFT_BF16) return false;
  HLO_FOREACH(x, f->comp) {
    if (!hlo_shape_is_array(x->shape) && x->op != HLO_TUPLE) return false;
    switch (x->op) {
    case HLO_PARAMETER:
      if (x->shape->rank > 0 && x->shape->type != WEFT_BF16) return false;
      break;
    case HLO_CONSTANT:
      if (x->shape->rank > 0) return false;
      break;
    case HLO_BROADCAST: case HLO_RESHAPE: case HLO_BITCAST: case HLO_TUPLE: break;
    default:
      if (!hlo_opcode_is_elementwise(x->op) || x->called_count > 0) return false;
    }
  }
  return true;
}

/* Numbers of such an array that belong to one of `elems` elements, but at least 1, and at most as many as a row has. */
static int numbers_of(const hlo_shape *shape, int64_t elems)
{
  enum { MOST_NUMBERS = 16 };
  return shape->rank == 0 ? 0 : (int)WEFT_MAX(WEFT_MIN(hlo_shape_elems(shape) / elems, MOST_NUMBERS), 1);
}

/* How the elements of a loop by elements are walked. Operations of a round wait for each other, and each round for the
 * one before, so short rounds are made of several vectors at once, as many as have registers. Units are small, since
 * rounds are many. */
static void walk_rounds(const gen_frame *f, const hlo_instr *loop, int64_t elems, gen_nest *nest)
{
  const hlo_instr *state = loop->operands[0];
  int work = 0, arrays = SPARE_REGISTERS, registers = f->e.part->target->has_avx512 ? 32 : 16;

  HLO_FOREACH(x, loop->called[0])
    if (hlo_shape_is_array(x->shape) && x->shape->rank > 0 && hlo_opcode_is_elementwise(x->op))
      work += (hlo_opcode_is_transcendental(x->op) ? LONG_CHAIN : 1) * numbers_of(x->shape, elems);
  for (int k = 0; k < state->operand_count; k++) arrays += numbers_of(state->operands[k]->shape, elems);
  if (!f->e.part->target->has_avx512) arrays *= 2; /* a vector of the target has two registers */
  nest->vectors = 1;
  while (nest->vectors < MOST_AT_ONCE && 2 * nest->vectors * arrays <= registers &&
         2 * nest->vectors * work <= MOST_WORK)
    nest->vectors *= 2;
  nest->block = WEFT_MIN(WEFT_ALIGN_UP(elems / GOOD_UNITS + 1, LEAST_ELEMENTS), MOST_ELEMENTS);
  nest->overlaps = true;
}

/* The walk of the host: nested loops. Units are pieces of the outermost ones. A kernel in a region is one unit, whose
 * bounds are constants: the elements that do not fill a vector are then computed in narrower ones. */
weft_status *gen_host_walk(gen_walk *w, bool split, int64_t *units)
{
  gen_frame *f = w->f;
  weft_arena *arena = f->e.arena;
  gen_nest nest;

  if (w->is_flat) {
    nest = (gen_nest){.count = 1, .extent[0] = hlo_shape_elems(w->shape), .stride[0] = 1};
  } else {
    const hlo_shape *shape = w->shape ? w->shape : hlo_shape_leaf(f->fusion->shape, w->first);
    WEFT_TRY(gen_nest_of(arena, f->comp, w->roots, w->count, shape, &nest));
    WEFT_TRY(gen_nest_join(arena, f->comp, w->roots, w->count, &nest));
  }
  w->period = WEFT_MAX(nest.period, 1);
  int widest = gen_widest_bytes(f->comp), vector = f->e.part->target->vector_bytes / widest;
  /* a vector's sum waits for its last product to be added; other vectors are added up meanwhile */
  if (w->period == 1 && is_dot_of_columns(f->comp, 2 * vector)) nest.vectors = SUMS_AT_ONCE;
  else if (w->body) walk_rounds(f, w->roots[0], hlo_shape_elems(w->shape), &nest);
  else if (f->e.part->target->has_avx512 && widest == 4 && pays_in_pairs(f)) nest.vectors = CHAINS_AT_ONCE;
  gen_ssa begin = split && !f->nested ? f->begin : NULL;
  f->e.even_odd = nest.vectors == CHAINS_AT_ONCE && w->period == 1 && is_lanewise_bf16(f);
  weft_status *st = gen_emit_nest(&f->e, &nest, widest, begin, f->end, units, w->body ? w->body : gen_walk_body, w);
  f->e.even_odd = false;
  return st;
}

static weft_status *emit_by_strategy(gen_part *part, gen_kernel_spec *spec)
{
  WEFT_TRY(gen_decide(part->target, part->arena, spec->fusion, &spec->info->strategy));
  switch (spec->info->strategy) {
  case GEN_STRATEGY_REGION: return gen_emit_region_kernel(part, spec);
  case GEN_STRATEGY_SMALL_LOOP: part->unrolled_scalars = true; return gen_emit_small_loop_kernel(part, spec);
  case GEN_STRATEGY_ELEMENT_LOOP: return gen_emit_element_loop_kernel(part, spec);
  case GEN_STRATEGY_SCATTER: return gen_emit_scatter_kernel(part, spec);
  case GEN_STRATEGY_PICK: return gen_emit_select_and_scatter_kernel(part, spec);
  case GEN_STRATEGY_UPDATE: return gen_emit_dus_kernel(part, spec);
  case GEN_STRATEGY_ROWS: return gen_emit_row_kernel(part, spec);
  case GEN_STRATEGY_COLUMNS: return gen_emit_column_kernel(part, spec);
  case GEN_STRATEGY_TURN: return gen_emit_transpose_kernel(part, spec);
  case GEN_STRATEGY_LOOP: return gen_emit_loop_kernel(part, spec);
  default: return gen_wrong_form(spec->info->strategy);
  }
}

weft_status *gen_emit_kernel(gen_part *part, gen_kernel_spec *spec)
{
  bool outer = part->raw_narrow;

  part->raw_narrow = gen_only_moves_narrow(spec->fusion->called[0]);
  weft_status *st = emit_by_strategy(part, spec);
  part->raw_narrow = outer;
  if (!st) gen_price(part->target, part->arena, spec->fusion, spec->info);
  return st;
}
