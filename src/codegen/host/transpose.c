/* codegen/host/transpose.c -- loop fusions that read transposed arrays, by tiles.
 * A tile is W x W elements of two loops: the result's innermost loop, and loop h, which is innermost in the
 * transposed operand. Each transposed value is computed with its lanes along h and turned in registers. It then
 * stands for the transpose while the rest of the fusion is computed with lanes along the result's innermost loop. */
#include <config.h>

#include "codegen/host/host.h"

#include <string.h>

enum {
  DEEP = 8,                              /* tiles of a unit along loop h */
  LINE_BYTES = 64,
  ENOUGH_UNITS = 16, LEAST_COLUMNS = 64, /* fewer units than that are cut into parts of so many columns, at least */
};

typedef struct tiles {
  gen_frame *f;
  gen_turned form;
  const hlo_shape *shape; /* of the results' dimensions */
  int width;
  gen_affine outer;
  gen_affine h_at;
  gen_ssa first_col, end_col; /* columns of the unit, which are variables of the result's innermost loop */
  bool is_cut;                /* into parts of the columns */
} tiles;

static int scalar_bytes(gen_ssa v)
{
  LLVMTypeRef type = gen_scalar_type(v);

  switch (LLVMGetTypeKind(type)) {
  case LLVMHalfTypeKind: case LLVMBFloatTypeKind: return 2;
  case LLVMFloatTypeKind: return 4;
  case LLVMIntegerTypeKind: return (int)(LLVMGetIntTypeWidth(type) + 7) / 8;
  default: return 8;
  }
}

/* Turns the squares of `side` x `side` elements that lie side by side in `side` vectors. In each step the vectors of
 * the first half are interleaved with those of the second. A square is as wide as the processor's unpacking
 * instructions are, so that each shuffle is one of them. */
static void turn_squares(gen_emit *e, gen_ssa *v, int width, int side)
{
  int low[64], high[64];
  gen_ssa next[64];

  for (int m = 0; m < width; m++) {
    int square = m - m % side, at = square + m % side / 2;
    low[m] = m & 1 ? width + at : at;
    high[m] = low[m] + side / 2;
  }
  for (int s = 1; s < side; s *= 2) {
    for (int i = 0; i < side / 2; i++) {
      next[2 * i] = gen_shuffle(e, v[i], v[i + side / 2], width, low);
      next[2 * i + 1] = gen_shuffle(e, v[i], v[i + side / 2], width, high);
    }
    memcpy(v, next, sizeof *v * (size_t)side);
  }
}

/* Turns W vectors: element (i, j) goes to (j, i). */
static void turn(gen_emit *e, gen_ssa *v, int width)
{
  enum { UNPACKED_BYTES = 16 };
  int side = WEFT_MIN(width, WEFT_MAX(UNPACKED_BYTES / scalar_bytes(v[0]), 1));

  for (int i = 0; i < width && side > 1; i += side) turn_squares(e, v + i, width, side);
  for (int s = side; s < width; s *= 2) {
    int low[64], high[64];
    for (int m = 0; m < width; m++) {
      low[m] = m & s ? width + m - s : m;
      high[m] = m & s ? width + m : m + s;
    }
    for (int i = 0; i < width; i++) {
      if (i & s) continue;
      gen_ssa a = v[i], b = v[i + s];
      v[i] = gen_shuffle(e, a, b, width, low);
      v[i + s] = gen_shuffle(e, a, b, width, high);
    }
  }
}

/* The tile at the variables `h_var` (of loop h) and `col_var`, both of which start it at multiples of W. */
static weft_status *emit_tile(tiles *t, gen_emit *e, int h_var, int col_var)
{
  int w = t->width, last = t->form.nest.count - 1;
  gen_affine h = gen_affine_var(e, h_var), col = gen_affine_var(e, col_var);
  gen_value *values[GEN_MOST_TURNED];

  e->lanes = w;
  e->vars[h_var].lane = true;
  /* The columns from col to col + W - 1 exist; without this bound, the digits of their indices would be divisions, and
   * the loads gathers. */
  int64_t end_col = e->vars[col_var].hi;
  e->vars[col_var].hi = end_col - (w - 1);
  int unturned = gen_memo_push(e); /* values in the memo have their lanes along h */
  for (int k = 0; k < t->form.turned_count; k++) {
    const hlo_instr *x = t->form.turned[k];
    gen_ssa re[64], im[64];
    WEFT_TRY_ALLOC(values[k] = WEFT_ARENA_ARRAY(e->arena, gen_value, w));
    for (int i = 0; i < w; i++) {
      gen_affine linear = gen_affine_add(e, t->outer, gen_affine_scale(e, h, t->form.nest.stride[t->form.h]));
      linear = gen_affine_add(e, linear, gen_affine_scale(e, gen_affine_offset(col, i), t->form.nest.stride[last]));
      WEFT_TRY(gen_emit_leaf(e, &t->f->env, x, 0, gen_delinearize(e, x->shape, linear), &values[k][i]));
      re[i] = gen_splat(e, values[k][i].re, w);
      if (values[k][i].im) im[i] = gen_splat(e, values[k][i].im, w);
    }
    turn(e, re, w);
    if (values[k][0].im) turn(e, im, w);
    for (int i = 0; i < w; i++) values[k][i] = (gen_value){re[i], values[k][i].im ? im[i] : NULL};
  }
  gen_memo_pop(e, unturned);
  e->vars[h_var].lane = false;
  e->vars[col_var].hi = end_col;
  e->vars[col_var].lane = true;
  for (int j = 0; j < w; j++) {
    int mark = gen_memo_push(e);
    for (int k = 0; k < t->form.turned_count; k++)
      WEFT_TRY(gen_env_bind(e, &t->f->env, t->form.turned[k],
                            (gen_source){.kind = GEN_SOURCE_VALUE, .values = &values[k][j]}));
    gen_affine linear =
      gen_affine_add(e, t->outer, gen_affine_scale(e, gen_affine_offset(h, j), t->form.nest.stride[t->form.h]));
    WEFT_TRY(
      gen_store_results(t->f, e, gen_affine_add(e, linear, gen_affine_scale(e, col, t->form.nest.stride[last]))));
    gen_memo_pop(e, mark);
  }
  t->f->env.bound_count = 0;
  e->vars[col_var].lane = false;
  e->lanes = 1;
  return NULL;
}

static weft_status *plain_body(void *ctx, gen_emit *e, gen_affine col)
{
  tiles *t = ctx;
  gen_affine linear = gen_affine_add(e, t->outer, gen_affine_scale(e, t->h_at, t->form.nest.stride[t->form.h]));
  return gen_store_results(
    t->f, e, gen_affine_add(e, linear, gen_affine_scale(e, col, t->form.nest.stride[t->form.nest.count - 1])));
}

/* Rows [h_lo, h_hi) of loop h and columns [from, the unit's end), without tiles. `lo` is the least value of `from`. */
static weft_status *emit_plain(tiles *t, gen_emit *e, gen_ssa h_lo, gen_ssa h_hi, gen_ssa from, int64_t lo)
{
  int64_t cols = t->form.nest.extent[t->form.nest.count - 1];
  gen_loop loop;

  if (lo >= cols) return NULL;
  gen_loop_begin(e, &loop, h_lo, h_hi, 1, 0, t->form.nest.extent[t->form.h], 1);
  int mark = gen_memo_push(e);
  t->h_at = gen_affine_var(e, loop.var);
  WEFT_TRY(
    gen_emit_lanes(e, from, t->end_col, lo, cols, gen_choose_lanes(e->part->target, 8, cols - lo), 1, plain_body, t));
  gen_memo_pop(e, mark);
  gen_loop_end(e, &loop);
  return NULL;
}

/* Emits the outer loops that are neither h, nor the last, nor part of the unit, and the tiles inside them. */
static weft_status *emit_block(tiles *t, gen_emit *e, int g, gen_ssa block)
{
  int last = t->form.nest.count - 1, w = t->width;
  int64_t rows = t->form.nest.extent[t->form.h], cols = t->form.nest.extent[last], full = rows - rows % w;
  gen_loop loop, one, lines;
  gen_affine outer = t->outer;

  while (g == t->form.h) g++;
  if (g < last) {
    gen_loop_static(e, &loop, 0, t->form.nest.extent[g], 1);
    int mark = gen_memo_push(e);
    t->outer = gen_affine_add(e, outer, gen_affine_scale(e, gen_affine_var(e, loop.var), t->form.nest.stride[g]));
    WEFT_TRY(emit_block(t, e, g + 1, block));
    t->outer = outer;
    gen_memo_pop(e, mark);
    gen_loop_end(e, &loop);
    return NULL;
  }
  /* Several tiles follow each other along h, so that the piece of an operand's row that is read is longer than a
   * cache line. */
  gen_ssa from = LLVMBuildNSWMul(e->b, block, gen_i64(e, DEEP * w), ""),
          to = LLVMBuildNSWAdd(e->b, from, gen_i64(e, DEEP * w), "");
  gen_ssa whole = rows == full && full % (DEEP * w) == 0 ? to : gen_intrinsic2(e, "llvm.smin", to, gen_i64(e, full));
  gen_ssa end = t->end_col; /* of the tiles */
  if (cols % w && t->is_cut) end = gen_intrinsic2(e, "llvm.smin", end, gen_i64(e, cols - cols % w));
  else if (cols % w) end = gen_i64(e, cols - cols % w);
  /* The tiles of columns that fill a cache line of the result come one after another: a line that is stored in pieces
   * may have to leave the first cache in between, since rows are often a power of two apart. */
  int64_t span = WEFT_MAX(w, LINE_BYTES / (int64_t)weft_dtype_bytes(t->shape->type));
  gen_loop_begin(e, &lines, t->first_col, end, span, 0, cols - cols % w, w);
  int mark = gen_memo_push(e);
  gen_ssa line_end = LLVMBuildNSWAdd(e->b, e->vars[lines.var].value, gen_i64(e, span), "");
  line_end = gen_intrinsic2(e, "llvm.smin", line_end, end);
  gen_loop_begin(e, &one, from, whole, w, 0, full, w);
  int inner = gen_memo_push(e);
  gen_loop_begin(e, &loop, e->vars[lines.var].value, line_end, w, 0, cols - cols % w, w);
  int innermost = gen_memo_push(e);
  WEFT_TRY(emit_tile(t, e, one.var, loop.var));
  gen_memo_pop(e, innermost);
  gen_loop_end(e, &loop);
  gen_memo_pop(e, inner);
  gen_loop_end(e, &one);
  gen_memo_pop(e, mark);
  gen_loop_end(e, &lines);
  WEFT_TRY(emit_plain(t, e, from, whole, end, cols - cols % w));
  if (rows != full) {
    gen_ssa last_row = gen_intrinsic2(e, "llvm.smin", to, gen_i64(e, rows));
    WEFT_TRY(emit_plain(t, e, gen_intrinsic2(e, "llvm.smax", from, gen_i64(e, full)), last_row, t->first_col, 0));
  }
  return NULL;
}

/* The width of tiles. Where elements are only moved, each row of a tile is a whole cache line of operand and result if
 * the extents allow it. Narrower rows come back to a line that may have left the first cache, since the rows of an
 * array are often a power of two apart. */
static int choose_width(const gen_turned *form, const hlo_computation *comp)
{
  enum { WIDEST = 32 };
  int64_t rows = form->nest.extent[form->h], cols = form->nest.extent[form->nest.count - 1], bytes = 1;

  HLO_FOREACH(x, comp) {
    if (x->op != HLO_PARAMETER && x->op != HLO_TRANSPOSE && x->op != HLO_RESHAPE && x->op != HLO_BITCAST &&
        x->op != HLO_COPY)
      return GEN_TURNED_WIDTH;
    bytes = WEFT_MAX(bytes, (int64_t)weft_dtype_bytes(x->shape->type));
  }
  int width = (int)WEFT_MIN(WIDEST, WEFT_MAX(LINE_BYTES / bytes, GEN_TURNED_WIDTH));
  while (width > GEN_TURNED_WIDTH && (rows % width || cols % width)) width /= 2;
  return width;
}

weft_status *gen_emit_transpose_kernel(gen_part *part, gen_kernel_spec *spec)
{
  gen_kernel *info = spec->info;
  tiles t = {.shape = hlo_shape_leaf(spec->fusion->shape, 0)};
  gen_frame f;
  gen_loop loop;
  bool is_turned;

  WEFT_TRY(gen_turned_of(part->arena, spec->fusion, &t.form, &is_turned));
  if (!is_turned) return gen_wrong_form(spec->info->strategy);
  t.width = choose_width(&t.form, spec->fusion->called[0]);
  WEFT_TRY(gen_frame_open(part, spec, 0, &f));
  gen_emit *e = &f.e;
  t.f = &f;
  /* Units: the outermost loop that is not one of the two, times blocks of h, times parts of the columns. */
  int outermost = t.form.h == 0;
  int64_t deep = DEEP * t.width, blocks = (t.form.nest.extent[t.form.h] + deep - 1) / deep,
          first = t.form.nest.count == 2 ? 1 : t.form.nest.extent[outermost];
  int64_t cols = t.form.nest.extent[t.form.nest.count - 1], wanted = WEFT_MAX(1, ENOUGH_UNITS / (blocks * first));
  int64_t part_cols = WEFT_ALIGN_UP(WEFT_MAX(LEAST_COLUMNS, (cols + wanted - 1) / wanted), t.width);
  int64_t parts = (cols + part_cols - 1) / part_cols;
  info->phases[0].units = parts * blocks * first;
  gen_loop_begin(e, &loop, f.begin, f.end, 1, 0, info->phases[0].units, 1);
  int mark = gen_memo_push(e);
  gen_affine unit = gen_affine_var(e, loop.var);
  t.outer = gen_affine_const(0);
  if (first > 1)
    t.outer = gen_affine_scale(e, gen_affine_digit(e, unit, parts * blocks, 0), t.form.nest.stride[outermost]);
  gen_ssa block = gen_affine_ssa(e, gen_affine_digit(e, unit, parts, blocks));
  t.first_col = gen_i64(e, 0);
  t.end_col = gen_i64(e, cols);
  t.is_cut = parts > 1;
  if (t.is_cut) {
    t.first_col = gen_affine_ssa(e, gen_affine_scale(e, gen_affine_digit(e, unit, 1, parts), part_cols));
    gen_ssa end = LLVMBuildNSWAdd(e->b, t.first_col, gen_i64(e, part_cols), "");
    t.end_col = cols % part_cols ? gen_intrinsic2(e, "llvm.smin", end, gen_i64(e, cols)) : end;
  }
  WEFT_TRY(emit_block(&t, e, first > 1 ? outermost + 1 : 0, block));
  gen_memo_pop(e, mark);
  gen_loop_end(e, &loop);
  gen_frame_close(&f);
  info->phase_count = 1;
  return NULL;
}
