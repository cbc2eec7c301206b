/* codegen/host/column.c -- reductions that keep the innermost dimensions: sums over rows.
 * A unit is a block of adjacent columns. Its sums stay in registers while the reduced dimensions are walked, and
 * each step reads one contiguous piece. Where there are few columns, the outermost reduced dimension is cut into
 * blocks: phase 0 writes partial results to the shared buffer, phase 1 combines them in order. */
#include <config.h>

#include "codegen/host/host.h"

#include <string.h>

enum { VECTORS = 8, MOST_BLOCKS = 32 };

typedef struct columns {
  gen_frame *f;
  gen_columns form;
  int64_t blocks, block;                 /* of the outermost reduced dimension */
  int lanes, vectors;
  gen_acc *accs;
  int count;
  gen_buffer partial[GEN_MOST_COLUMN_REDUCES];
} columns;

/* Accumulates `vectors` vectors (with lanes 1: single columns) from column `col` of outer row `outer` on. The first
 * reduced dimension runs over [lo, hi). Accumulator i of vector v is slots[v * count + i]. */
typedef struct tile {
  columns *c;
  gen_affine outer, col;
  int vectors;
  gen_value *slots;
  gen_affine at[HLO_MAX_RANK];
} tile;

static weft_status *walk(tile *t, gen_emit *e, int k, gen_ssa lo, gen_ssa hi)
{
  columns *c = t->c;
  gen_loop loop;

  if (k < c->form.walk_count) {
    int64_t size = c->form.in->dims[c->form.walk[k]];
    gen_loop_begin(e, &loop, lo ? lo : gen_i64(e, 0), hi ? hi : gen_i64(e, size), 1, 0, size, 1);
    int mark = gen_memo_push(e);
    t->at[c->form.walk[k]] = gen_affine_var(e, loop.var);
    WEFT_TRY(walk(t, e, k + 1, NULL, NULL));
    gen_memo_pop(e, mark);
    gen_loop_end(e, &loop);
    return NULL;
  }
  for (int v = 0; v < t->vectors; v++) {
    gen_affine kept =
      gen_affine_add(e, gen_affine_scale(e, t->outer, c->form.cols), gen_affine_offset(t->col, (int64_t)v * e->lanes));
    WEFT_TRY(gen_accs_step(e, &c->f->env, c->accs, c->count, t->slots + v * c->count,
                           gen_columns_index(e, &c->form, kept, t->at)));
  }
  return NULL;
}

/* Stores the kernel's results at `kept`, where the reduces have the values `v`. */
static weft_status *finish(columns *c, gen_emit *e, gen_affine kept, gen_value *v)
{
  return gen_columns_finish(c->f, e, kept, c->accs, c->count, v);
}

/* Columns [lo, hi), lanes * vectors of them in a step. */
static weft_status *strip(columns *c, gen_emit *e, gen_affine outer, gen_ssa lo, gen_ssa hi, int lanes, int vectors,
                          gen_ssa r_lo, gen_ssa r_hi, gen_affine block)
{
  gen_loop loop;
  tile t = {.c = c, .outer = outer, .vectors = vectors, .slots = WEFT_ARENA_ARRAY(e->arena, gen_value, vectors * c->count)};
  bool split = c->blocks > 1;

  WEFT_TRY_ALLOC(t.slots);
  if (LLVMIsAConstantInt(lo) && LLVMIsAConstantInt(hi) && LLVMConstIntGetSExtValue(lo) >= LLVMConstIntGetSExtValue(hi))
    return NULL;
  gen_loop_begin(e, &loop, lo, hi, (int64_t)lanes * vectors, 0, c->form.cols - (int64_t)lanes * (vectors - 1), lanes);
  e->vars[loop.var].lane = lanes > 1;
  e->lanes = lanes;
  int mark = gen_memo_push(e);
  t.col = gen_affine_var(e, loop.var);
  for (int v = 0; v < vectors; v++)
    for (int i = 0; i < c->count; i++) {
      gen_value first;
      t.slots[v * c->count + i] = gen_acc_slot(e, c->accs[i].type, lanes);
      if (split) first = gen_identity(e, c->accs[i].op, c->accs[i].type);
      else WEFT_TRY(gen_acc_init(e, &c->f->env, &c->accs[i], &first));
      gen_acc_set(e, t.slots[v * c->count + i], first);
    }
  WEFT_TRY(walk(&t, e, 0, r_lo, r_hi));
  for (int v = 0; v < vectors; v++) {
    gen_affine kept =
      gen_affine_add(e, gen_affine_scale(e, outer, c->form.cols), gen_affine_offset(t.col, (int64_t)v * lanes));
    gen_value *sums = WEFT_ARENA_ARRAY(e->arena, gen_value, c->count);
    WEFT_TRY_ALLOC(sums);
    for (int i = 0; i < c->count; i++) sums[i] = gen_acc_get(e, t.slots[v * c->count + i]);
    if (!split) {
      WEFT_TRY(finish(c, e, kept, sums));
      continue;
    }
    for (int i = 0; i < c->count; i++)
      gen_store(e, &c->partial[i], gen_affine_add(e, gen_affine_scale(e, block, c->form.results), kept), sums[i]);
  }
  gen_memo_pop(e, mark);
  e->lanes = 1;
  gen_loop_end(e, &loop);
  e->vars[loop.var].lane = false;
  return NULL;
}

static weft_status *columns_of(columns *c, gen_emit *e, gen_affine outer, gen_ssa lo, gen_ssa hi, gen_ssa r_lo,
                               gen_ssa r_hi, gen_affine block)
{
  gen_ssa length = LLVMBuildNSWSub(e->b, hi, lo, "");
  int64_t wide = (int64_t)c->lanes * c->vectors;
  gen_ssa whole = LLVMBuildNSWAdd(e->b, lo, LLVMBuildAnd(e->b, length, gen_i64(e, -wide), ""), "");
  gen_ssa some = LLVMBuildNSWAdd(e->b, lo, LLVMBuildAnd(e->b, length, gen_i64(e, -(int64_t)c->lanes), ""), "");

  WEFT_TRY(strip(c, e, outer, lo, whole, c->lanes, c->vectors, r_lo, r_hi, block));
  if (c->vectors > 1) WEFT_TRY(strip(c, e, outer, whole, some, c->lanes, 1, r_lo, r_hi, block));
  return c->lanes > 1 ? strip(c, e, outer, some, hi, 1, 1, r_lo, r_hi, block) : NULL;
}

typedef struct combine_ctx {
  columns *c;
} combine_ctx;

static weft_status *combine_blocks(void *ctx, gen_emit *e, gen_affine kept)
{
  columns *c = ((combine_ctx *)ctx)->c;
  gen_value *v = WEFT_ARENA_ARRAY(e->arena, gen_value, c->count),
            *slots = WEFT_ARENA_ARRAY(e->arena, gen_value, c->count);
  gen_loop loop;

  WEFT_TRY_ALLOC(v);
  WEFT_TRY_ALLOC(slots);
  for (int i = 0; i < c->count; i++) {
    gen_value init;
    slots[i] = gen_acc_slot(e, c->accs[i].type, e->lanes);
    WEFT_TRY(gen_acc_init(e, &c->f->env, &c->accs[i], &init));
    gen_acc_set(e, slots[i], init);
  }
  gen_loop_static(e, &loop, 0, c->blocks, 1);
  gen_affine at = gen_affine_add(e, gen_affine_scale(e, gen_affine_var(e, loop.var), c->form.results), kept);
  for (int i = 0; i < c->count; i++) {
    gen_value sum = gen_acc_get(e, slots[i]);
    gen_acc_set(e, slots[i], gen_combine(e, c->accs[i].op, c->accs[i].type, sum, gen_load(e, &c->partial[i], at)));
  }
  gen_loop_end(e, &loop);
  for (int i = 0; i < c->count; i++) v[i] = gen_acc_get(e, slots[i]);
  return finish(c, e, kept, v);
}

static weft_status *open_phase(columns *c, gen_part *part, gen_kernel_spec *spec, int phase, gen_frame *f)
{
  WEFT_TRY(gen_frame_open(part, spec, phase, f));
  c->f = f;
  WEFT_TRY(gen_accs_of(&f->e, c->form.reduces, c->form.reduce_count, &c->accs, &c->count));
  for (int i = 0; i < c->count && c->blocks > 1; i++) {
    weft_dtype type = weft_dtype_is_float(c->accs[i].type) && c->accs[i].type != WEFT_F64 ? WEFT_F32 : c->accs[i].type;
    c->partial[i] = (gen_buffer){.ptr = gen_byte_ptr(&f->e, f->shared, (int64_t)i * c->form.results * c->blocks * 16),
                                 .type = type,
                                 .elems = c->form.results * c->blocks};
  }
  return NULL;
}

weft_status *gen_emit_column_kernel(gen_part *part, gen_kernel_spec *spec)
{
  gen_kernel *info = spec->info;
  columns c = {.blocks = 1};
  bool is_columns;
  gen_frame f;
  gen_emit *e = &f.e;
  gen_loop loop;

  WEFT_TRY(gen_columns_of(part->arena, spec->fusion->called[0], &c.form, &is_columns));
  if (!is_columns) return gen_wrong_form(spec->info->strategy);
  c.lanes = gen_choose_lanes(part->target, gen_widest_bytes(c.form.comp), c.form.cols);
  c.vectors = c.form.reduce_count > 1 ? VECTORS / 2 : VECTORS;
  while (c.vectors > 1 && c.form.cols < (int64_t)c.lanes * c.vectors) c.vectors /= 2;
  int64_t wide = (int64_t)c.lanes * c.vectors, strips = (c.form.cols + wide - 1) / wide,
          first = c.form.in->dims[c.form.walk[0]];
  gen_emit probe = {.part = part, .arena = part->arena};
  WEFT_TRY(gen_accs_of(&probe, c.form.reduces, c.form.reduce_count, &c.accs, &c.count));
  bool plain = gen_accs_are_plain(c.accs, c.count);
  for (int i = 0; i < c.count; i++) plain = plain && !weft_dtype_is_complex(c.accs[i].type);
  int64_t elems = hlo_shape_elems(c.form.in);
  if (plain && c.form.outer * strips < part->target->busy_units && elems >= part->target->split_elems &&
      c.count <= GEN_MOST_COLUMN_REDUCES) {
    c.blocks = WEFT_MIN(WEFT_MIN(elems / part->target->split_block_elems, MOST_BLOCKS), first);
    c.block = (first + c.blocks - 1) / c.blocks;
    c.blocks = (first + c.block - 1) / c.block;
  }
  info->shared_bytes = c.blocks > 1 ? c.count * c.form.results * c.blocks * 16 : 0;
  int64_t units = c.form.outer * strips * c.blocks;

  WEFT_TRY(open_phase(&c, part, spec, 0, &f));
  gen_loop_begin(e, &loop, f.begin, f.end, 1, 0, units, 1);
  int mark = gen_memo_push(e);
  gen_affine unit = gen_affine_var(e, loop.var), strip_no = gen_affine_digit(e, unit, 1, strips);
  gen_affine outer = gen_affine_digit(e, unit, strips, c.form.outer),
             block = gen_affine_digit(e, unit, strips * c.form.outer, 0);
  gen_ssa lo = gen_affine_ssa(e, gen_affine_scale(e, strip_no, wide)), hi = gen_i64(e, c.form.cols), r_lo = NULL,
          r_hi = NULL;
  if (strips > 1) hi = gen_intrinsic2(e, "llvm.smin", LLVMBuildNSWAdd(e->b, lo, gen_i64(e, wide), ""), hi);
  if (c.blocks > 1) {
    r_lo = gen_affine_ssa(e, gen_affine_scale(e, block, c.block));
    r_hi = gen_intrinsic2(e, "llvm.smin", LLVMBuildNSWAdd(e->b, r_lo, gen_i64(e, c.block), ""), gen_i64(e, first));
  }
  WEFT_TRY(columns_of(&c, e, outer, lo, hi, r_lo, r_hi, block));
  gen_memo_pop(e, mark);
  gen_loop_end(e, &loop);
  gen_frame_close(&f);
  info->phase_count = 1;
  info->phases[0].units = units;
  if (c.blocks > 1) {
    gen_nest all = {.count = 1, .extent = {c.form.results}, .stride = {1}};
    combine_ctx ctx = {&c};
    WEFT_TRY(open_phase(&c, part, spec, 1, &f));
    WEFT_TRY(gen_emit_nest(e, &all, gen_widest_bytes(c.form.comp), f.begin, f.end, &info->phases[1].units,
                           combine_blocks, &ctx));
    gen_frame_close(&f);
    info->phase_count = 2;
    info->phases[1].unit_ns = (double)(c.form.results * c.blocks) / 16 / (double)info->phases[1].units;
  }
  return NULL;
}
