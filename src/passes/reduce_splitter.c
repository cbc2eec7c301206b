/* passes/reduce_splitter.c -- reduce-splitter: a reduce over the last dimensions and over earlier ones, with kept
 * dimensions between them, becomes two: first the rows, which are read in the order of memory, then the rest, which is
 * small.
 *
 *     f32[n,c,hw] over {0,2}  ->  f32[n,c] over {0}  ->  f32[c]
 *
 * The initial value comes in twice, so it must be the reducer's identity; types that round what lies between the two
 * (narrower than f32) are left alone. */
#include <config.h>

#include "codegen/model/target.h"
#include "passes/build.h"
#include "passes/passes.h"

enum {
  LEAST_ROW = 16,          /* elements that are read in one run */
  LEAST_GPU_ROW = 4,       /* the same on a GPU, if the results are too few to give each multiprocessor ROW_THREADS */
  ROW_THREADS = 128,
  LEAST_ELEMENTS = 1 << 14 /* elements of the operand: for fewer, another kernel costs more than it saves */
};

/* The number of trailing dimensions that are reduced. */
static int trailing(const hlo_instr *reduce)
{
  int rank = reduce->operands[0]->shape->rank, count = 0;

  while (count < rank && pass_ints_contain(reduce->dims, rank - 1 - count)) count++;
  return count;
}

static bool is_exact_between(weft_dtype type)
{
  return weft_dtype_is_float(type) ? type == WEFT_F32 || type == WEFT_F64 : !weft_dtype_is_complex(type);
}

static bool splits(const gen_target *target, const hlo_instr *reduce)
{
  int64_t row = 1, least = LEAST_ROW;
  int last;

  if (reduce->op != HLO_REDUCE || reduce->operand_count != 2 || !is_exact_between(reduce->shape->type)) return false;
  const hlo_shape *x = reduce->operands[0]->shape;
  last = trailing(reduce);
  if (target->block_threads > 1 && hlo_shape_elems(reduce->shape) < (int64_t)target->cores * ROW_THREADS)
    least = LEAST_GPU_ROW;
  for (int d = x->rank - last; d < x->rank; d++) row *= x->dims[d];
  return last > 0 && last < reduce->dims.count && row >= least && hlo_shape_elems(x) >= LEAST_ELEMENTS &&
         pass_is_identity(hlo_reducer_op(reduce->called[0]), reduce->operands[1]);
}

static weft_status *split(hlo_instr *reduce)
{
  pass_build b = PASS_BUILD_AT(reduce);
  int rank = reduce->operands[0]->shape->rank, last = trailing(reduce), rest = 0;
  int64_t rows[HLO_MAX_RANK], others[HLO_MAX_RANK];

  for (int i = 0; i < last; i++) rows[i] = rank - last + i;
  for (int d = 0; d < rank - last; d++)
    if (pass_ints_contain(reduce->dims, d)) others[rest++] = d;
  hlo_instr *part = pb_reduce(&b, reduce->operands[0], reduce->operands[1], last, rows, reduce->called[0]);
  return pass_build_replace(&b, reduce, pb_reduce(&b, part, reduce->operands[1], rest, others, reduce->called[0]));
}

static weft_status *reduce_splitter_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int i = 0; i < comps.count; i++)
    HLO_FOREACH(instr, comps.v[i]) {
      if (!splits(pass_target(ctx), instr)) continue;
      WEFT_TRY(split(instr));
      *changed = true;
    }
  return NULL;
}
const hlo_pass pass_reduce_splitter = {"reduce-splitter", reduce_splitter_run};
