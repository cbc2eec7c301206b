/* codegen/host/column.c -- reductions that keep the innermost dimensions: sums over rows.
 * A unit is a block of adjacent columns. Its sums stay in registers while the reduced dimensions are walked, and
 * each step reads one contiguous piece. Where there are few columns, the outermost reduced dimension is cut into
 * blocks: phase 0 writes partial results to the shared buffer, phase 1 combines them in order.
 *
 * Where the computation treats neighbouring columns differently (nest->period), a lane stands for as many neighbours,
 * which have accumulators of their own. Columns that do not fill a vector are reduced in vectors along the innermost
 * reduced dimension. */
#include <config.h>

#include "codegen/host/host.h"

#include <string.h>

enum { VECTORS = 8, MOST_BLOCKS = 32, HEAVY = 24 };

typedef struct columns {
  gen_frame *f;
  gen_columns form;
  int64_t blocks, block;                 /* of the outermost reduced dimension */
  /* A strip has lanes * vectors places, the last one `last`; a place is `period` neighbouring columns. Narrow columns
   * have one strip. */
  int lanes, vectors, period;
  int64_t last, places;
  bool narrow;
  gen_acc *accs;
  int count;
  gen_buffer partial[GEN_MOST_COLUMN_REDUCES];
} columns;

/* A vector of columns, or a single column: column `part` of `lanes` places, from place `offset` of the strip on. */
typedef struct piece {
  int64_t offset;
  int lanes, part;
  gen_value *slots; /* of its accumulators */
} piece;

/* Columns of outer row `outer`, all pieces in one walk. The first reduced dimension runs over
 * [lo, hi). */
typedef struct tile {
  columns *c;
  gen_affine outer;
  int var; /* the loop over places */
  int count;
  piece *pieces;
  gen_affine at[HLO_MAX_RANK];
} tile;

/* Makes the loop over places stand for the lanes of `p`. Returns the piece's
 * first column, an element of the result. */
static gen_affine enter_piece(const tile *t, gen_emit *e, const piece *p)
{
  gen_affine col;

  e->lanes = p->lanes;
  e->vars[t->var].lane = p->lanes > 1;
  col = gen_affine_scale(e, gen_affine_offset(gen_affine_var(e, t->var), p->offset), t->c->period);
  col = gen_affine_offset(col, p->part);
  return gen_affine_add(e, gen_affine_scale(e, t->outer, t->c->form.cols), col);
}

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
  for (int i = 0; i < t->count; i++) {
    gen_affine kept = enter_piece(t, e, &t->pieces[i]);
    WEFT_TRY(
      gen_accs_step(e, &c->f->env, c->accs, c->count, t->pieces[i].slots, gen_columns_index(e, &c->form, kept, t->at)));
  }
  return NULL;
}

/* Stores the kernel's results at `kept`, where the reduces have the values `v`. */
static weft_status *finish(columns *c, gen_emit *e, gen_affine kept, gen_value *v)
{
  return gen_columns_finish(c->f, e, kept, c->accs, c->count, v);
}

/* The pieces of `width` places: whole vectors, a narrower vector for each half that is left, and single places. */
static weft_status *cut(const columns *c, gen_emit *e, int64_t width, tile *t)
{
  int64_t at = 0;

  t->pieces = WEFT_ARENA_ARRAY(e->arena, piece, (width / c->lanes + c->lanes) * c->period);
  WEFT_TRY_ALLOC(t->pieces);
  for (int lanes = c->lanes; at < width; at += lanes) {
    while (lanes > width - at) lanes /= 2;
    if (lanes < GEN_LEAST_TAIL && lanes < c->lanes) lanes = 1;
    for (int part = 0; part < c->period; part++) {
      piece *p = &t->pieces[t->count++];
      *p = (piece){at, lanes, part, WEFT_ARENA_ARRAY(e->arena, gen_value, c->count)};
      WEFT_TRY_ALLOC(p->slots);
      for (int i = 0; i < c->count; i++) p->slots[i] = gen_acc_slot(e, c->accs[i].type, lanes);
    }
  }
  return NULL;
}

/* The value that column sums begin with: that of the reduce, or the identity if blocks are combined later. */
static weft_status *first_value(columns *c, gen_emit *e, int i, gen_value *out)
{
  if (c->blocks == 1) return gen_acc_init(e, &c->f->env, &c->accs[i], out);
  *out = gen_identity(e, c->accs[i].op, c->accs[i].type);
  return NULL;
}

/* Stores the results at `kept`, whose sums are `v`, or these sums as those of a block. */
static weft_status *keep(columns *c, gen_emit *e, gen_affine kept, gen_affine block, gen_value *v)
{
  if (c->blocks == 1) return finish(c, e, kept, v);
  for (int i = 0; i < c->count; i++)
    gen_store(e, &c->partial[i], gen_affine_add(e, gen_affine_scale(e, block, c->form.results), kept), v[i]);
  return NULL;
}

/* The strips of `width` places of [lo, hi). */
static weft_status *strip(columns *c, gen_emit *e, gen_affine outer, gen_ssa lo, gen_ssa hi, int64_t width,
                          gen_ssa r_lo, gen_ssa r_hi, gen_affine block)
{
  gen_loop loop;
  tile t = {.c = c, .outer = outer};

  WEFT_TRY(cut(c, e, width, &t));
  gen_loop_begin(e, &loop, lo, hi, width, 0, c->places - width + t.pieces[0].lanes, c->lanes);
  t.var = loop.var;
  int mark = gen_memo_push(e);
  for (int k = 0; k < t.count; k++)
    for (int i = 0; i < c->count; i++) {
      gen_value first;
      WEFT_TRY(first_value(c, e, i, &first));
      gen_acc_set(e, t.pieces[k].slots[i], first);
    }
  WEFT_TRY(walk(&t, e, 0, r_lo, r_hi));
  for (int k = 0; k < t.count; k++) {
    gen_affine kept = enter_piece(&t, e, &t.pieces[k]);
    gen_value *sums = WEFT_ARENA_ARRAY(e->arena, gen_value, c->count);
    WEFT_TRY_ALLOC(sums);
    for (int i = 0; i < c->count; i++) sums[i] = gen_acc_get(e, t.pieces[k].slots[i]);
    WEFT_TRY(keep(c, e, kept, block, sums));
  }
  gen_memo_pop(e, mark);
  e->lanes = 1;
  gen_loop_end(e, &loop);
  e->vars[loop.var].lane = false;
  return NULL;
}

/* The strip that begins at place `lo`. The last one has code of its own where its width is not that of the others. */
static weft_status *columns_of(columns *c, gen_emit *e, gen_affine outer, gen_ssa lo, gen_ssa r_lo, gen_ssa r_hi,
                               gen_affine block)
{
  int64_t wide = (int64_t)c->lanes * c->vectors, before = c->places - c->last;
  gen_ssa last = lo, hi = gen_i64(e, c->places);

  if (c->last == wide)
    return strip(c, e, outer, lo, LLVMBuildNSWAdd(e->b, lo, gen_i64(e, wide), ""), wide, r_lo, r_hi, block);
  if (before) {
    gen_ssa is_last = gen_icmp(e, LLVMIntEQ, lo, gen_i64(e, before));
    gen_ssa end = gen_select(e, is_last, lo, LLVMBuildNSWAdd(e->b, lo, gen_i64(e, wide), ""));
    WEFT_TRY(strip(c, e, outer, lo, end, wide, r_lo, r_hi, block));
    last = gen_select(e, is_last, lo, hi);
  }
  return strip(c, e, outer, last, hi, c->last, r_lo, r_hi, block);
}

/* ---- narrow columns -------------------------------------------------------------------------------------------- */

/* The sums of all columns of an outer row: of whole vectors along the innermost reduced dimension, and of the elements
 * that are left, by column and accumulator. */
typedef struct narrow_tile {
  columns *c;
  gen_affine outer, at[HLO_MAX_RANK];
  gen_value *sums, *rest;
} narrow_tile;

/* Elements [lo, hi) of the innermost reduced dimension, `lanes` in a step. */
static weft_status *walk_vectors(narrow_tile *t, gen_emit *e, gen_ssa lo, gen_ssa hi, int lanes, gen_value *slots)
{
  columns *c = t->c;
  int dim = c->form.walk[c->form.walk_count - 1];
  gen_loop loop;

  gen_loop_begin(e, &loop, lo, hi, lanes, 0, c->form.in->dims[dim], 1);
  e->vars[loop.var].lane = lanes > 1;
  e->lanes = lanes;
  int mark = gen_memo_push(e);
  t->at[dim] = gen_affine_var(e, loop.var);
  for (int64_t col = 0; col < c->form.cols; col++) {
    gen_affine kept = gen_affine_offset(gen_affine_scale(e, t->outer, c->form.cols), col);
    const gen_index *idx = gen_columns_index(e, &c->form, kept, t->at);
    WEFT_TRY(gen_accs_step(e, &c->f->env, c->accs, c->count, slots + col * c->count, idx));
  }
  gen_memo_pop(e, mark);
  e->lanes = 1;
  gen_loop_end(e, &loop);
  e->vars[loop.var].lane = false;
  return NULL;
}

static weft_status *walk_narrow(narrow_tile *t, gen_emit *e, int k, gen_ssa lo, gen_ssa hi)
{
  const gen_columns *form = &t->c->form;
  int64_t size = form->in->dims[form->walk[k]];
  gen_loop loop;

  if (!lo) lo = gen_i64(e, 0), hi = gen_i64(e, size);
  if (k == form->walk_count - 1) {
    gen_ssa length = LLVMBuildNSWSub(e->b, hi, lo, ""), whole;
    whole = LLVMBuildNSWAdd(e->b, lo, LLVMBuildAnd(e->b, length, gen_i64(e, -(int64_t)t->c->lanes), ""), "");
    WEFT_TRY(walk_vectors(t, e, lo, whole, t->c->lanes, t->sums));
    return walk_vectors(t, e, whole, hi, 1, t->rest);
  }
  gen_loop_begin(e, &loop, lo, hi, 1, 0, size, 1);
  int mark = gen_memo_push(e);
  t->at[form->walk[k]] = gen_affine_var(e, loop.var);
  WEFT_TRY(walk_narrow(t, e, k + 1, NULL, NULL));
  gen_memo_pop(e, mark);
  gen_loop_end(e, &loop);
  return NULL;
}

static weft_status *narrow_columns(columns *c, gen_emit *e, gen_affine outer, gen_ssa r_lo, gen_ssa r_hi,
                                   gen_affine block)
{
  int64_t n = c->form.cols * c->count;
  narrow_tile t = {.c = c, .outer = outer, .sums = WEFT_ARENA_ARRAY(e->arena, gen_value, n),
                   .rest = WEFT_ARENA_ARRAY(e->arena, gen_value, n)};

  WEFT_TRY_ALLOC(t.sums);
  WEFT_TRY_ALLOC(t.rest);
  for (int64_t k = 0; k < n; k++) {
    int i = (int)(k % c->count);
    gen_value first;
    t.sums[k] = gen_acc_slot(e, c->accs[i].type, c->lanes);
    t.rest[k] = gen_acc_slot(e, c->accs[i].type, 1);
    gen_acc_set(e, t.sums[k], gen_identity(e, c->accs[i].op, c->accs[i].type));
    WEFT_TRY(first_value(c, e, i, &first));
    gen_acc_set(e, t.rest[k], first);
  }
  WEFT_TRY(walk_narrow(&t, e, 0, r_lo, r_hi));
  for (int64_t col = 0; col < c->form.cols; col++) {
    gen_value *v = WEFT_ARENA_ARRAY(e->arena, gen_value, c->count);
    WEFT_TRY_ALLOC(v);
    for (int i = 0; i < c->count; i++) {
      gen_value lanes = gen_acc_get(e, t.sums[col * c->count + i]), rest = gen_acc_get(e, t.rest[col * c->count + i]);
      lanes = gen_combine_lanes(e, c->accs[i].op, c->accs[i].type, lanes);
      v[i] = gen_combine(e, c->accs[i].op, c->accs[i].type, rest, lanes);
    }
    gen_affine kept = gen_affine_offset(gen_affine_scale(e, outer, c->form.cols), col);
    WEFT_TRY(keep(c, e, kept, block, v));
  }
  return NULL;
}

/* ---- blocks ---------------------------------------------------------------------------------------------------- */

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

/* Chooses the form of strips: narrow ones, or how many places they have and how many columns a place has. */
static weft_status *choose_strips(columns *c, gen_part *part, int64_t *out_strips)
{
  const hlo_instr *roots[GEN_MOST_COLUMN_REDUCES];
  const gen_columns *form = &c->form;
  int widest = gen_widest_bytes(form->comp), ops = 0;
  gen_nest nest;

  c->narrow = gen_columns_are_narrow(form);
  c->period = 1;
  *out_strips = 1;
  if (c->narrow) {
    c->lanes = part->target->vector_bytes / widest;
    return NULL;
  }
  for (int i = 0; i < form->reduce_count; i++) roots[i] = form->reduces[i]->operands[0];
  WEFT_TRY(gen_nest_of(part->arena, form->comp, roots, form->reduce_count, form->in, &nest));
  WEFT_TRY(gen_nest_join(part->arena, form->comp, roots, form->reduce_count, &nest));
  if (nest.period > 1 && form->cols % nest.period == 0 &&
      form->cols / nest.period >= part->target->vector_bytes / widest)
    c->period = nest.period;
  c->places = form->cols / c->period;
  c->lanes = gen_choose_lanes(part->target, widest, c->places);
  HLO_FOREACH(x, form->comp) ops += 1 + 8 * hlo_opcode_is_transcendental(x->op);
  c->vectors = form->reduce_count > 1 || ops > HEAVY ? VECTORS / 2 : VECTORS;
  while (c->vectors > 1 && c->vectors * c->period > VECTORS) c->vectors /= 2;
  while (c->vectors > 1 && c->places < (int64_t)c->lanes * c->vectors) c->vectors /= 2;
  int64_t wide = (int64_t)c->lanes * c->vectors;
  c->last = c->places % wide;
  if (c->last < wide / 2) c->last += wide; /* few columns alone would take as long as a whole strip */
  *out_strips = (c->places - c->last) / wide + 1;
  return NULL;
}

weft_status *gen_emit_column_kernel(gen_part *part, gen_kernel_spec *spec)
{
  gen_kernel *info = spec->info;
  columns c = {.blocks = 1};
  bool is_columns;
  int64_t strips;
  gen_frame f;
  gen_emit *e = &f.e;
  gen_loop loop;

  WEFT_TRY(gen_columns_of(part->arena, spec->fusion->called[0], &c.form, &is_columns));
  if (!is_columns) return gen_wrong_form(spec->info->strategy);
  WEFT_TRY(choose_strips(&c, part, &strips));
  int64_t first = c.form.in->dims[c.form.walk[0]];
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
  gen_ssa lo = gen_affine_ssa(e, gen_affine_scale(e, strip_no, (int64_t)c.lanes * c.vectors)), r_lo = NULL, r_hi = NULL;
  if (c.blocks > 1) {
    r_lo = gen_affine_ssa(e, gen_affine_scale(e, block, c.block));
    r_hi = gen_intrinsic2(e, "llvm.smin", LLVMBuildNSWAdd(e->b, r_lo, gen_i64(e, c.block), ""), gen_i64(e, first));
  }
  if (c.narrow) WEFT_TRY(narrow_columns(&c, e, outer, r_lo, r_hi, block));
  else WEFT_TRY(columns_of(&c, e, outer, lo, r_lo, r_hi, block));
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
