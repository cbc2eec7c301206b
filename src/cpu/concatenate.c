/* cpu/concatenate.c -- concatenation of many operands by a table of places and copies. A compiled kernel would need
 * one loop for each operand, so only concatenations of few operands are compiled, fused with their producers and
 * consumers. */
#include <config.h>

#include <string.h>

#include "base/macros.h"
#include "cpu/makers.h"
#include "runtime/pool.h"

enum { TASK_BYTES = 1 << 18 };

/* The result has `rows` rows. In each row, operand i provides the bytes from at[i] to at[i + 1]. */
typedef struct concatenate_thunk {
  rt_thunk base;
  int count;
  int64_t rows, pieces_per_task;
  int64_t at[];
} concatenate_thunk;

typedef struct concatenate_job {
  const concatenate_thunk *t;
  void *const *args; /* operands, then the result */
} concatenate_job;

/* A piece is the part that one operand provides of one row. */
static void concatenate_task(void *ctx, int64_t task)
{
  const concatenate_job *job = ctx;
  const concatenate_thunk *t = job->t;
  int64_t first = task * t->pieces_per_task, end = WEFT_MIN(first + t->pieces_per_task, t->rows * t->count);
  char *out = job->args[t->count];

  for (int64_t piece = first; piece < end; piece++) {
    int64_t row = piece / t->count, i = piece % t->count, bytes = t->at[i + 1] - t->at[i];
    memcpy(out + row * t->at[t->count] + t->at[i], (const char *)job->args[i] + row * bytes, (size_t)bytes);
  }
}

static weft_status *concatenate_execute(const rt_thunk *thunk, rt_ctx *ctx)
{
  const concatenate_thunk *t = (const concatenate_thunk *)thunk;
  concatenate_job job = {t, rt_args(thunk, ctx)};

  rt_parallel_for(cpu_pool_of(thunk, ctx), (t->rows * t->count + t->pieces_per_task - 1) / t->pieces_per_task,
                  concatenate_task, &job);
  return NULL;
}

static const rt_thunk_ops concatenate_ops = {.size = sizeof(rt_thunk_ops), .kind = "concatenate", .run = concatenate_execute};

weft_status *cpu_concatenate_make(low_step *step, rt_thunk **out_thunk)
{
  const hlo_instr *instr = step->instr;
  const hlo_shape *shape = instr->shape;
  int n = instr->operand_count;
  int64_t rows = 1, inner = (int64_t)weft_dtype_bytes(shape->type);

  for (int d = 0; d < instr->dims.v[0]; d++) rows *= shape->dims[d];
  for (int d = (int)instr->dims.v[0] + 1; d < shape->rank; d++) inner *= shape->dims[d];
  WEFT_TRY(
    low_thunk_new(step, &concatenate_ops, sizeof(concatenate_thunk) + (size_t)(n + 1) * sizeof(int64_t), out_thunk));
  concatenate_thunk *t = (concatenate_thunk *)*out_thunk;
  t->count = n;
  t->rows = rows;
  for (int i = 0; i < n; i++) t->at[i + 1] = t->at[i] + instr->operands[i]->shape->dims[instr->dims.v[0]] * inner;
  t->pieces_per_task = WEFT_MAX(1, TASK_BYTES / WEFT_MAX(1, t->at[n] / n));
  t->base.splits = cpu_pays_to_share(step, t->base.cost_ns, false);
  return NULL;
}
