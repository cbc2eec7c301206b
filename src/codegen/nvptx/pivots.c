/* codegen/nvptx/pivots.c -- JAX's custom call cu_lu_pivots_to_permutation: from the row exchanges of an LU
 * factorisation, counted from 0, to the permutation of the rows. Each exchange depends on those before it, so a block
 * takes a matrix, and one of its threads does the exchanges, in shared memory if the rows have room there. A pivot
 * that is no row exchanges nothing. */
#include <config.h>

#include "codegen/nvptx/grid.h"

#include <string.h>

enum { THREADS = 128 };

typedef struct permuting {
  gen_frame f;
  int64_t pivots, rows, matrices;
  bool is_shared;
  gen_shared shared;
  gen_ssa base; /* of the matrix's rows in the result */
} permuting;

bool gen_is_permutation(const hlo_instr *instr)
{
  return instr->op == HLO_CUSTOM_CALL && strcmp(instr->u.custom->target, "cu_lu_pivots_to_permutation") == 0;
}

static weft_status *measure(permuting *p, const hlo_instr *instr)
{
  const hlo_shape *out = instr->shape, *in = instr->operand_count == 1 ? instr->operands[0]->shape : NULL;

  if (!in || !hlo_shape_is_array(in) || !hlo_shape_is_array(out) || in->type != WEFT_S32 || out->type != WEFT_S32 ||
      out->rank < 1 || in->rank != out->rank)
    return WEFT_ERR(INVALID_ARGUMENT, "cu_lu_pivots_to_permutation: an s32 array goes to another one of the same rank");
  for (int d = 0; d < out->rank - 1; d++)
    if (in->dims[d] != out->dims[d])
      return WEFT_ERR(INVALID_ARGUMENT, "cu_lu_pivots_to_permutation: batch dimensions differ");
  p->rows = out->dims[out->rank - 1];
  p->pivots = in->dims[in->rank - 1];
  if (p->pivots > p->rows) return WEFT_ERR(INVALID_ARGUMENT, "cu_lu_pivots_to_permutation: more pivots than rows");
  if (p->rows > INT32_MAX) return WEFT_ERR(UNIMPLEMENTED, "cu_lu_pivots_to_permutation of 2^31 rows");
  p->matrices = p->rows ? hlo_shape_elems(out) / p->rows : 0;
  return NULL;
}

static gen_ssa in_result(const permuting *p, gen_emit *e, gen_ssa row)
{
  return LLVMBuildNSWAdd(e->b, p->base, row, "");
}

static gen_ssa get(const permuting *p, gen_emit *e, gen_ssa row)
{
  if (p->is_shared) return gen_shared_get(e, &p->shared, row);
  return gen_load_plain(e, &p->f.results[0], e->part->i32, in_result(p, e, row), 1);
}

static void put(const permuting *p, gen_emit *e, gen_ssa row, gen_ssa v)
{
  if (p->is_shared) gen_shared_put(e, &p->shared, row, v);
  else gen_store_plain(e, &p->f.results[0], e->part->i32, in_result(p, e, row), v);
}

/* A loop of all threads over the rows. */
static gen_ssa rows_begin(const permuting *p, gen_emit *e, gen_loop *loop)
{
  gen_loop_begin(e, loop, gen_wide(e, gen_thread_id(e)), gen_i64(e, p->rows), THREADS, 0, p->rows, 1);
  return e->vars[loop->var].value;
}

static void exchange_rows(const permuting *p, gen_emit *e, gen_ssa matrix)
{
  gen_ssa first = LLVMBuildNSWMul(e->b, matrix, gen_i64(e, p->pivots), "");
  gen_loop loop;
  gen_if is_row;

  gen_loop_static(e, &loop, 0, p->pivots, 1);
  gen_ssa row = e->vars[loop.var].value, at = LLVMBuildNSWAdd(e->b, first, row, "");
  gen_ssa other = gen_load_plain(e, &p->f.operands[0], e->part->i32, at, 1);
  gen_if_begin(e, &is_row, gen_icmp(e, LLVMIntULT, other, gen_small(e, p->rows)));
  other = gen_wide(e, other);
  gen_ssa mine = get(p, e, row), theirs = get(p, e, other);
  put(p, e, row, theirs);
  put(p, e, other, mine);
  gen_if_end(e, &is_row);
  gen_loop_end(e, &loop);
}

weft_status *gen_grid_permutation(gen_grid *g)
{
  permuting p = {.pivots = 0};
  gen_emit *e = &p.f.e;
  gen_loop loop;
  gen_if is_first;

  WEFT_TRY(measure(&p, g->spec->fusion));
  if (p.matrices == 0) return NULL;
  WEFT_TRY(gen_grid_open(g, false, &p.f));
  p.is_shared = p.rows * (int64_t)sizeof(int32_t) <= g->part->target->shared_bytes;
  if (p.is_shared) p.shared = gen_shared_array(e, e->part->i32, p.rows);
  gen_ssa matrix = gen_wide(e, gen_block_id(e));
  p.base = LLVMBuildNSWMul(e->b, matrix, gen_i64(e, p.rows), "");
  gen_ssa row = rows_begin(&p, e, &loop);
  put(&p, e, row, LLVMBuildTrunc(e->b, row, e->part->i32, ""));
  gen_loop_end(e, &loop);
  gen_barrier(e);
  gen_if_begin(e, &is_first, LLVMBuildICmp(e->b, LLVMIntEQ, gen_thread_id(e), gen_small(e, 0), ""));
  if (p.pivots > 0) exchange_rows(&p, e, matrix);
  gen_if_end(e, &is_first);
  if (p.is_shared) {
    gen_barrier(e);
    row = rows_begin(&p, e, &loop);
    gen_store_plain(e, &p.f.results[0], e->part->i32, in_result(&p, e, row), get(&p, e, row));
    gen_loop_end(e, &loop);
  }
  return gen_grid_close(g, &p.f, p.matrices, THREADS);
}
