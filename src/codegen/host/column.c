/* codegen/host/column.c -- reductions that keep the innermost dimensions: sums over rows.
 * A unit is a block of adjacent columns. Its sums stay in registers while the reduced dimensions are walked, and
 * each step reads one contiguous piece. Where there are few columns, the outermost reduced dimension is cut into
 * blocks: phase 0 writes partial results to the shared buffer, phase 1 combines them in order. */
#include <config.h>

#include "codegen/host/host.h"

#include <string.h>

enum { VECTORS = 8, MOST_BLOCKS = 32, HEAVY = 24 };

typedef struct columns {
  gen_frame *f;
  gen_columns form;
  int64_t blocks, block;                 /* of the outermost reduced dimension */
  int lanes, vectors;                    /* a strip has lanes * vectors columns, the last one `last` */
  int64_t last;
  gen_acc *accs;
  int count;
  gen_buffer partial[GEN_MOST_COLUMN_REDUCES];
} columns;

/* A vector of columns, or a single column: `lanes` of them from column `offset` of the strip on. */
typedef struct piece {
  int64_t offset;
  int lanes;
  gen_value *slots; /* of its accumulators */
} piece;

/* Columns from column `col` of outer row `outer` on, all pieces in one walk. The first reduced dimension runs over
 * [lo, hi). */
typedef struct tile {
  columns *c;
  gen_affine outer;
  int var; /* the loop over columns */
  int count;
  piece *pieces;
  gen_affine at[HLO_MAX_RANK];
} tile;

/* Makes the loop over columns stand for the lanes of `p`. Returns the piece's
 * first column, an element of the result. */
static gen_affine enter_piece(const tile *t, gen_emit *e, const piece *p)
{
  gen_affine col;

  e->lanes = p->lanes;
  e->vars[t->var].lane = p->lanes > 1;
  col = gen_affine_offset(gen_affine_var(e, t->var), p->offset);
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

/* The pieces of `width` columns: whole vectors, a narrower vector for each half that is left, and single columns. */
static weft_status *cut(const columns *c, gen_emit *e, int64_t width, tile *t)
{
  int64_t at = 0;

  t->pieces = WEFT_ARENA_ARRAY(e->arena, piece, width / c->lanes + c->lanes);
  WEFT_TRY_ALLOC(t->pieces);
  for (int lanes = c->lanes; at < width; at += lanes) {
    while (lanes > width - at) lanes /= 2;
    if (lanes < GEN_LEAST_TAIL && lanes < c->lanes) lanes = 1;
    piece *p = &t->pieces[t->count++];
    *p = (piece){.offset = at, .lanes = lanes, .slots = WEFT_ARENA_ARRAY(e->arena, gen_value, c->count)};
    WEFT_TRY_ALLOC(p->slots);
    for (int i = 0; i < c->count; i++) p->slots[i] = gen_acc_slot(e, c->accs[i].type, lanes);
  }
  return NULL;
}

/* The strips of `width` columns of [lo, hi). */
static weft_status *strip(columns *c, gen_emit *e, gen_affine outer, gen_ssa lo, gen_ssa hi, int64_t width,
                          gen_ssa r_lo, gen_ssa r_hi, gen_affine block)
{
  gen_loop loop;
  tile t = {.c = c, .outer = outer};
  bool split = c->blocks > 1;

  WEFT_TRY(cut(c, e, width, &t));
  gen_loop_begin(e, &loop, lo, hi, width, 0, c->form.cols - width + t.pieces[0].lanes, c->lanes);
  t.var = loop.var;
  int mark = gen_memo_push(e);
  for (int k = 0; k < t.count; k++)
    for (int i = 0; i < c->count; i++) {
      gen_value first;
      if (split) first = gen_identity(e, c->accs[i].op, c->accs[i].type);
      else WEFT_TRY(gen_acc_init(e, &c->f->env, &c->accs[i], &first));
      gen_acc_set(e, t.pieces[k].slots[i], first);
    }
  WEFT_TRY(walk(&t, e, 0, r_lo, r_hi));
  for (int k = 0; k < t.count; k++) {
    gen_affine kept = enter_piece(&t, e, &t.pieces[k]);
    gen_value *sums = WEFT_ARENA_ARRAY(e->arena, gen_value, c->count);
    WEFT_TRY_ALLOC(sums);
    for (int i = 0; i < c->count; i++) sums[i] = gen_acc_get(e, t.pieces[k].slots[i]);
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

/* The strip that begins at column `lo`. The last one has code of its own where its width is not that of the others. */
static weft_status *columns_of(columns *c, gen_emit *e, gen_affine outer, gen_ssa lo, gen_ssa r_lo, gen_ssa r_hi,
                               gen_affine block)
{
  int64_t wide = (int64_t)c->lanes * c->vectors, cols = c->form.cols, before = cols - c->last;
  gen_ssa last = lo, hi = gen_i64(e, cols);

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
  int ops = 0;
  gen_frame f;
  gen_emit *e = &f.e;
  gen_loop loop;

  WEFT_TRY(gen_columns_of(part->arena, spec->fusion->called[0], &c.form, &is_columns));
  if (!is_columns) return gen_wrong_form(spec->info->strategy);
  c.lanes = gen_choose_lanes(part->target, gen_widest_bytes(c.form.comp), c.form.cols);
  HLO_FOREACH(x, c.form.comp) ops += 1 + 8 * hlo_opcode_is_transcendental(x->op);
  c.vectors = c.form.reduce_count > 1 || ops > HEAVY ? VECTORS / 2 : VECTORS;
  while (c.vectors > 1 && c.form.cols < (int64_t)c.lanes * c.vectors) c.vectors /= 2;
  int64_t wide = (int64_t)c.lanes * c.vectors, first = c.form.in->dims[c.form.walk[0]];
  c.last = c.form.cols % wide;
  if (c.last < wide / 2) c.last += wide; /* few columns alone would take as long as a whole strip */
  int64_t strips = (c.form.cols - c.last) / wide + 1;
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
  gen_ssa lo = gen_affine_ssa(e, gen_affine_scale(e, strip_no, wide)), r_lo = NULL, r_hi = NULL;
  if (c.blocks > 1) {
    r_lo = gen_affine_ssa(e, gen_affine_scale(e, block, c.block));
    r_hi = gen_intrinsic2(e, "llvm.smin", LLVMBuildNSWAdd(e->b, r_lo, gen_i64(e, c.block), ""), gen_i64(e, first));
  }
  WEFT_TRY(columns_of(&c, e, outer, lo, r_lo, r_hi, block));
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
