/* codegen/nvptx/rows.c -- rows over a grid: a team of threads takes a row and shares its columns.
 *
 *   short rows, or few of them     a block of several warps takes a row
 *   many short rows                a team of at most one warp takes a row, several teams share a block
 *   few long rows, only reduced    blocks of columns write partial results; a second launch combines them
 *
 * If a thread has few columns, its code is straight, without a loop over them: the emitters' memo then finds in a later
 * stage what an earlier one has loaded and computed, so every element is read once and stays in registers. Of a longer
 * row, as many columns as have room stay there, and of the others as many as have room in shared memory (held.c). Each
 * stage walks these in a loop, and what is left in another one, for which it reads memory again.
 *
 * A team whose rows have weights in common takes several rows, one after another, and keeps its part of the weights in
 * registers, if enough teams are left. */
#include <config.h>

#include "codegen/nvptx/grid.h"

enum {
  MOST_BYTES = 64,      /* of one operand's columns that a thread keeps in registers */
  MOST_WORK = 2048,     /* of a straight thread: LLVM's time and the instruction cache bound it */
  COSTLY_WORK = 12,     /* of a transcendental; an element-wise operation counts 1 */
  SHORT_ROW = 1024,     /* columns of a row that a team of one warp may take */
  BLOCK_THREADS = 128,  /* of a block with several teams */
  VECTOR_FROM = 32,     /* columns from which on a thread takes neighbours */
  SECTOR_BYTES = 32,    /* bytes that memory moves at once: a team reads as many side by side */
  BUSY_THREADS = 256,   /* of a multiprocessor: with fewer, a thread takes fewer columns */
  LONG_PART = 1 << 13,  /* columns that are worth a block of their own */
  PARTS_A_CORE = 2,
  MANY_ROWS = 8,        /* of a multiprocessor: with four rows a block, it has two blocks */
  MOST_ELEMS = 16,      /* columns of a thread, if there are enough threads */
  MOST_PIECES = 32,     /* of straight code */
  HELD_COLUMNS = 8,     /* of all operands that a round of a loop over shared memory takes */
  HELD_WORK = 128,      /* of such a round */
  REGISTER_BYTES = 1 << 18, /* of a multiprocessor */
};

typedef struct grid_row {
  gen_row base;  /* first */
  gen_team team;
  int vector;    /* neighbours that a thread takes: a piece of the row */
  int pieces;    /* that a thread has in registers */
  bool rest;     /* walks others in a loop */
  gen_affine at[MOST_PIECES];  /* first column of each piece */
  gen_ssa inside[MOST_PIECES]; /* is there such a piece? NULL: in every thread */
  gen_ssa from, to;            /* the team's range of pieces that are walked in a loop, i64 */
  gen_held held;               /* what is in shared memory of the pieces before that range, and behind `pieces` */
  int64_t held_from, held_to;
  int stage;                   /* that walks columns now; number form.stages is the last pass */
} grid_row;

/* ---- columns --------------------------------------------------------------------------------------------------- */

/* The values of the piece that begins with column `col` are in shared memory, or this stage brings them there. */
static weft_status *open_held(grid_row *r, gen_emit *e, gen_affine col)
{
  gen_affine linear = gen_affine_add(e, gen_affine_scale(e, r->base.at, r->base.form.cols), col);
  gen_ssa place = gen_affine_ssa(e, gen_affine_offset(col, -r->held_from * r->vector));

  return gen_held_open(&r->held, e, &r->base.f->env, r->stage, linear, place, r->vector);
}

/* Calls body(first column) for this thread's pieces of the row that are neither in registers nor in shared memory, one
 * after another. */
static weft_status *over_rest(grid_row *r, gen_emit *e, gen_body_fn *body, void *ctx)
{
  int64_t pieces = r->base.form.cols / r->vector;
  gen_loop loop;

  gen_ssa first = LLVMBuildNSWAdd(e->b, r->from, gen_wide(e, r->team.id), "");
  gen_loop_begin(e, &loop, first, r->to, r->team.count, 0, pieces, 1);
  int mark = gen_memo_push(e);
  WEFT_TRY(body(ctx, e, gen_affine_scale(e, gen_affine_var(e, loop.var), r->vector)));
  gen_memo_pop(e, mark);
  gen_loop_end(e, &loop);
  return NULL;
}

/* The operands that have an element for each column. */
static int operands_of(const gen_rows *form)
{
  int count = 0;

  HLO_FOREACH(x, form->comp)
    count += x->op == HLO_PARAMETER && hlo_shape_is_array(x->shape) && hlo_shape_elems(x->shape) >= form->cols;
  return WEFT_MAX(count, 1);
}

/* Calls body for the piece that begins with column `col`, which is in shared memory or goes there. */
static weft_status *at_held(grid_row *r, gen_emit *e, gen_affine piece, gen_body_fn *body, void *ctx)
{
  gen_affine col = gen_affine_scale(e, piece, r->vector);
  int mark = gen_memo_push(e);

  WEFT_TRY(open_held(r, e, col));
  WEFT_TRY(body(ctx, e, col));
  gen_memo_pop(e, mark);
  return NULL;
}

/* The pieces in shared memory: this thread's, several side by side in a round of a loop, and the others as straight
 * code. */
static weft_status *over_held(grid_row *r, gen_emit *e, gen_body_fn *body, void *ctx)
{
  const gen_rows *form = &r->base.form;
  int64_t columns = WEFT_MIN(HELD_WORK / gen_work_of(form->comp), HELD_COLUMNS / operands_of(form));
  int64_t team = r->team.count, side = WEFT_MAX(columns / r->vector, 1);
  int64_t from = r->held_from, to = r->held_to, rounds = (to - from) / (team * side);
  gen_ssa first = LLVMBuildNSWAdd(e->b, gen_i64(e, from), gen_wide(e, r->team.id), "");
  gen_loop loop;

  if (rounds > 0) {
    int64_t end = from + rounds * team * side;
    gen_loop_begin(e, &loop, first, gen_i64(e, end), team * side, from, end - (side - 1) * team, 1);
    for (int64_t k = 0; k < side; k++)
      WEFT_TRY(at_held(r, e, gen_affine_offset(gen_affine_var(e, loop.var), k * team), body, ctx));
    gen_loop_end(e, &loop);
    from = end;
  }
  for (; from < to; from += team) {
    gen_if inside;
    gen_ssa piece = LLVMBuildNSWAdd(e->b, gen_i64(e, from), gen_wide(e, r->team.id), "");
    bool is_last = to - from < team;
    if (is_last) gen_if_begin(e, &inside, LLVMBuildICmp(e->b, LLVMIntULT, piece, gen_i64(e, to), ""));
    int var = gen_add_var(e, (gen_var){.value = piece, .lo = from, .hi = WEFT_MIN(from + team, to), .align = 1});
    WEFT_TRY(at_held(r, e, gen_affine_var(e, var), body, ctx));
    if (is_last) gen_if_end(e, &inside);
  }
  return NULL;
}

/* The pieces that are not in registers. */
static weft_status *loop_over(grid_row *r, gen_emit *e, gen_body_fn *body, void *ctx)
{
  if (r->held_to > r->held_from) WEFT_TRY(over_held(r, e, body, ctx));
  return r->rest ? over_rest(r, e, body, ctx) : NULL;
}

weft_status *gen_grid_columns_of_row(gen_row *row, gen_emit *e, gen_body_fn *body, void *ctx)
{
  grid_row *r = (grid_row *)row;

  r->stage = r->base.form.stages;
  for (int k = 0; k < r->pieces; k++) {
    gen_if inside;
    if (r->inside[k]) gen_if_begin(e, &inside, r->inside[k]);
    int mark = gen_memo_push(e);
    WEFT_TRY(body(ctx, e, r->at[k]));
    gen_memo_pop(e, mark);
    if (r->inside[k]) gen_if_end(e, &inside);
  }
  return loop_over(r, e, body, ctx);
}

weft_status *gen_grid_once(gen_row *row, gen_emit *e, gen_body_fn *body, void *ctx)
{
  grid_row *r = (grid_row *)row;
  gen_if first;

  /* A result may lie on an operand with one element a row, which the other threads have read for their columns. */
  if (!row->form.per_row_only) gen_team_barrier(e, &r->team);
  gen_if_begin(e, &first, LLVMBuildICmp(e->b, LLVMIntEQ, r->team.id, gen_small(e, 0), ""));
  int mark = gen_memo_push(e);
  weft_status *st = body(ctx, e, gen_affine_const(0));
  gen_memo_pop(e, mark);
  gen_if_end(e, &first);
  return st;
}

/* The first `count` pieces of this thread as straight code; `held` others of the team are in shared memory. */
static void open_pieces(grid_row *r, gen_emit *e, int count, int64_t held)
{
  int64_t pieces = r->base.form.cols / r->vector, kept = (int64_t)count * r->team.count;

  r->pieces = count;
  r->held_from = kept;
  r->held_to = kept + held;
  r->rest = r->held_to < pieces;
  if (r->rest) r->from = gen_i64(e, r->held_to);
  for (int k = 0; k < count; k++) {
    int64_t least = (int64_t)k * r->team.count, end = least + r->team.count;
    gen_ssa id = LLVMBuildNSWAdd(e->b, gen_wide(e, r->team.id), gen_i64(e, least), "");
    r->inside[k] = NULL;
    if (end > pieces) {
      r->inside[k] = LLVMBuildICmp(e->b, LLVMIntULT, id, gen_i64(e, pieces), "");
      id = gen_select(e, r->inside[k], id, gen_i64(e, pieces - 1));
    }
    int var = gen_add_var(
      e, (gen_var){.value = id, .lo = WEFT_MIN(least, pieces - 1), .hi = WEFT_MIN(end, pieces), .align = 1});
    r->at[k] = gen_affine_scale(e, gen_affine_var(e, var), r->vector);
  }
}

/* ---- accumulating ---------------------------------------------------------------------------------------------- */

typedef struct accumulating {
  grid_row *row;
  gen_acc *accs;
  gen_value *slots;
  int count;
  gen_ssa inside; /* does the column count? NULL: yes */
} accumulating;

static weft_status *step(accumulating *a, gen_emit *e, gen_affine col)
{
  gen_value *before = WEFT_ARENA_ARRAY(e->arena, gen_value, a->count);

  WEFT_TRY_ALLOC(before);
  for (int i = 0; i < a->count && a->inside; i++) before[i] = gen_acc_get(e, a->slots[i]);
  WEFT_TRY(gen_row_step(&a->row->base, e, col, a->accs, a->count, a->slots));
  for (int i = 0; i < a->count && a->inside; i++) {
    gen_value after = gen_acc_get(e, a->slots[i]);
    after.re = gen_select(e, a->inside, after.re, before[i].re);
    if (after.im) after.im = gen_select(e, a->inside, after.im, before[i].im);
    gen_acc_set(e, a->slots[i], after);
  }
  return NULL;
}

static weft_status *step_piece(void *ctx, gen_emit *e, gen_affine first)
{
  accumulating *a = ctx;

  for (int i = 0; i < a->row->vector; i++) WEFT_TRY(step(a, e, gen_affine_offset(first, i)));
  return NULL;
}

/* Every thread walks the whole row: its reducer is known neither to be associative nor to be commutative. */
static weft_status *in_order(accumulating *a, gen_emit *e)
{
  gen_loop loop;

  gen_loop_static(e, &loop, 0, a->row->base.form.cols, 1);
  int mark = gen_memo_push(e);
  WEFT_TRY(step(a, e, gen_affine_var(e, loop.var)));
  gen_memo_pop(e, mark);
  gen_loop_end(e, &loop);
  gen_team_barrier(e, &a->row->team); /* a result may lie on an operand of which other threads read all columns */
  return NULL;
}

static weft_status *by_columns(accumulating *a, gen_emit *e)
{
  grid_row *r = a->row;

  for (int k = 0; k < r->pieces; k++) {
    a->inside = r->inside[k];
    WEFT_TRY(step_piece(a, e, r->at[k]));
  }
  a->inside = NULL;
  return loop_over(r, e, step_piece, a);
}

weft_status *gen_grid_accumulate(gen_row *row, gen_emit *e, int stage, gen_acc *accs, int count, gen_value *out)
{
  grid_row *r = (grid_row *)row;
  gen_value *first = WEFT_ARENA_ARRAY(e->arena, gen_value, count);
  accumulating a = {r, accs, WEFT_ARENA_ARRAY(e->arena, gen_value, count), count, NULL};
  bool together = true;

  r->stage = stage;
  WEFT_TRY_ALLOC(a.slots);
  WEFT_TRY_ALLOC(first);
  for (int i = 0; i < count; i++) {
    together = together && gen_team_combines(&accs[i]);
    WEFT_TRY(gen_row_first(row, e, &accs[i], &first[i]));
    a.slots[i] = gen_acc_slot(e, accs[i].type, 1);
    gen_acc_set(e, a.slots[i], first[i]);
  }
  WEFT_TRY(together ? by_columns(&a, e) : in_order(&a, e));
  for (int i = 0; i < count; i++) out[i] = gen_acc_get(e, a.slots[i]);
  return together ? gen_team_combine(e, &r->team, accs, count, first, out) : NULL;
}

/* ---- the shape of teams ---------------------------------------------------------------------------------------- */

typedef struct shape {
  int team, pieces, vector; /* as in grid_row */
  int64_t held;             /* pieces of the team in shared memory */
  int rows;                 /* that a team makes, one after another */
} shape;

static int64_t power_of_2_from(int64_t n)
{
  int64_t p = 1;

  while (p < n) p *= 2;
  return p;
}

int64_t gen_work_of(const hlo_computation *comp)
{
  int64_t work = 0;

  HLO_FOREACH(x, comp) {
    if (hlo_opcode_is_transcendental(x->op)) work += COSTLY_WORK;
    else if (x->op == HLO_DOT || x->op == HLO_REDUCE_WINDOW || (x->op == HLO_REDUCE && x->dims.count == 0))
      work += MOST_WORK;
    else if (x->op != HLO_PARAMETER && x->op != HLO_CONSTANT) work++;
    for (int i = 0; i < x->called_count && x->op != HLO_REDUCE; i++) work += gen_work_of(x->called[i]);
  }
  return WEFT_MAX(work, 1);
}

/* How many of `kept` pieces stay in registers if loops go over others: the loops need registers, for a piece of each
 * operand. */
static int pieces_beside_loops(const gen_rows *form, int64_t kept)
{
  return (int)(operands_of(form) > 1 && kept > 1 ? kept - 1 : kept);
}

/* column_bytes: of registers for a column that is read once. */
static shape shape_of(const gen_part *part, const gen_rows *form, int column_bytes)
{
  const gen_target *target = part->target;
  int widest = WEFT_MAX(gen_widest_bytes(form->comp), 1), most = target->block_threads;
  int64_t elems = WEFT_MIN(MOST_ELEMS, MOST_BYTES / widest); /* of a thread */
  shape s = {.vector = 1, .rows = 1};

  for (int v = WEFT_MIN(4, 16 / widest); v > 1 && s.vector == 1; v /= 2)
    if (form->cols % v == 0 && form->cols >= VECTOR_FROM) s.vector = v;
  while (elems > s.vector && gen_work_of(form->comp) * elems > MOST_WORK) elems /= 2;
  while (elems > s.vector && form->rows * form->cols / elems < (int64_t)target->cores * BUSY_THREADS) elems /= 2;
  int64_t pieces = form->cols / s.vector, each = WEFT_MAX(elems / s.vector, 1), team = (pieces + each - 1) / each;
  bool many = form->rows >= (int64_t)target->cores * MANY_ROWS;
  if (form->cols <= GEN_WARP || (many && form->cols <= SHORT_ROW)) {
    team = WEFT_MAX(team, WEFT_MIN(pieces, SECTOR_BYTES / (s.vector * widest)));
    team = WEFT_MIN(power_of_2_from(team), GEN_WARP);
  } else {
    team = part->block ? GEN_BLOCK_THREADS : WEFT_ALIGN_UP(team, (int64_t)GEN_WARP);
  }
  s.team = (int)WEFT_MIN(team, most);
  int64_t have = (pieces + s.team - 1) / s.team;
  /* the other half of the registers is for computed values */
  int64_t room = WEFT_MIN(4 * MOST_BYTES, REGISTER_BYTES / 2 / s.team);
  int64_t kept = WEFT_MIN(room / column_bytes, 2 * MOST_WORK / gen_work_of(form->comp)) / s.vector;
  kept = WEFT_MIN(kept, MOST_PIECES);
  if (have <= kept) s.pieces = (int)have;
  else if (form->stages + !form->per_row_only > 1)
    s.pieces = pieces_beside_loops(form, column_bytes > widest ? kept / 2 : kept * 3 / 4);
  return s;
}

/* Decides how many pieces a block has in shared memory, of those that are not in registers. If there is no room for all
 * of them, only what is read from memory stays there. */
static weft_status *hold_pieces(gen_part *part, grid_row *r, const gen_acc *accs, int count, shape *s)
{
  enum { ALIGNMENT = 16 * GEN_MOST_HELD };
  int64_t others = r->base.form.cols / s->vector - (int64_t)s->pieces * s->team;

  for (int computed = 1; computed >= 0 && s->pieces && s->team > GEN_WARP && s->held < others; computed--) {
    WEFT_TRY(gen_held_find(part, &r->base.form, accs, count, computed, &r->held));
    if (r->held.count == 0 || r->held.room == 0) continue;
    int64_t fits = (r->held.room - ALIGNMENT) / (r->held.column_bytes * s->vector);
    s->held = WEFT_MAX(WEFT_MIN(others, fits), 0);
  }
  return NULL;
}

/* ---- weights --------------------------------------------------------------------------------------------------- */

/* The bytes that a column's values of the weights take in registers. */
static int weight_registers(const gen_weights *w)
{
  int bytes = 0;

  for (int i = 0; i < w->count; i++) bytes += WEFT_MAX((int)weft_dtype_bytes(w->arrays[i]->shape->type), 4);
  return bytes;
}

/* How many rows a team makes: one, unless all columns and their weights fit into registers. */
static int rows_of_team(const gen_part *part, const gen_rows *form, const gen_weights *w, shape s, int column_bytes)
{
  int threads = s.team <= GEN_WARP ? BLOCK_THREADS : s.team;
  int64_t room = WEFT_MIN(8 * MOST_BYTES, REGISTER_BYTES / 2 / threads);

  if (part->block || s.pieces == 0 || (int64_t)s.pieces * s.team * s.vector < form->cols) return 1;
  if ((int64_t)s.pieces * s.vector * (column_bytes + weight_registers(w)) > room) return 1;
  return gen_weights_rows(w, part->target, form->cols, form->rows * form->cols * w->read_bytes);
}

/* Loads the weights of this thread's columns. The emitters find them in the memo. */
static weft_status *take_weights(grid_row *r, gen_emit *e, const gen_weights *w)
{
  gen_env *env = &r->base.f->env;
  gen_value ignored;

  for (int i = 0; i < w->count; i++) {
    const hlo_shape *shape = w->arrays[i]->shape;
    if (gen_row_level(&r->base.form, w->arrays[i]) > 0 || r->base.form.cols % hlo_shape_elems(shape) != 0) continue;
    for (int k = 0; k < r->pieces; k++)
      for (int c = 0; c < r->vector; c++) {
        const gen_index *at = gen_delinearize(e, shape, gen_affine_offset(r->at[k], c));
        WEFT_TRY(gen_emit_leaf(e, env, w->arrays[i], 0, at, &ignored));
      }
  }
  return NULL;
}

/* ---- kernels --------------------------------------------------------------------------------------------------- */

/* What this thread's team takes, or an `if` that the rest of the kernel stands in. */
typedef struct row_of_team {
  gen_affine item;
  gen_blocks blocks;
  gen_if inside;
  bool has_if;
} row_of_team;

static row_of_team open_row(grid_row *r, gen_emit *e, int teams, int64_t items)
{
  row_of_team open = {.has_if = teams > 1 && items % teams != 0};
  gen_ssa item = gen_blocks_begin(e, &open.blocks, (items + teams - 1) / teams);

  if (teams > 1) {
    gen_ssa team = LLVMBuildUDiv(e->b, gen_thread_id(e), gen_small(e, r->team.count), "");
    item = LLVMBuildNSWMul(e->b, item, gen_i64(e, teams), "");
    item = LLVMBuildNSWAdd(e->b, item, gen_wide(e, team), "");
  }
  if (open.has_if) gen_if_begin(e, &open.inside, LLVMBuildICmp(e->b, LLVMIntULT, item, gen_i64(e, items), ""));
  open.item = gen_affine_var(e, gen_add_var(e, (gen_var){.value = item, .lo = 0, .hi = items, .align = 1}));
  return open;
}

static void close_row(gen_emit *e, row_of_team *open)
{
  if (open->has_if) gen_if_end(e, &open->inside);
  gen_blocks_end(e, &open->blocks);
}

static weft_status *open_kernel(gen_grid *g, grid_row *r, gen_frame *f, shape s)
{
  WEFT_TRY(gen_grid_open(g, false, f));
  r->base.f = f;
  r->vector = r->base.period = s.vector;
  r->pieces = 0;
  r->held_from = r->held_to = 0;
  r->rest = true;
  r->team = gen_team_of(&f->e, s.team);
  r->from = gen_i64(&f->e, 0);
  r->to = gen_i64(&f->e, r->base.form.cols / s.vector);
  return gen_row_hoist(&r->base, &f->e);
}

/* The rows of group number `group`, one after another. */
static weft_status *emit_rows(grid_row *r, gen_emit *e, gen_affine group, int count)
{
  int64_t rows = r->base.form.rows;
  gen_loop loop;

  gen_ssa first = gen_affine_ssa(e, gen_affine_scale(e, group, count));
  gen_ssa end = gen_intrinsic2(e, "llvm.smin", LLVMBuildNSWAdd(e->b, first, gen_i64(e, count), ""), gen_i64(e, rows));
  gen_loop_begin(e, &loop, first, end, 1, 0, rows, 1);
  int mark = gen_memo_push(e);
  r->base.at = gen_affine_var(e, loop.var);
  WEFT_TRY(gen_emit_row(&r->base, e));
  gen_memo_pop(e, mark);
  /* the next row's values go through the same shared memory */
  if (r->team.count > GEN_WARP) gen_barrier(e);
  gen_loop_end(e, &loop);
  return NULL;
}

/* The bytes of registers that a column takes. */
static weft_status *column_bytes_of(gen_part *part, const gen_rows *form, const gen_acc *accs, int count, int *out)
{
  gen_held held;

  WEFT_TRY(gen_held_find(part, form, accs, count, true, &held));
  *out = WEFT_MAX(WEFT_MAX(gen_widest_bytes(form->comp), 1), held.live_bytes);
  return NULL;
}

static weft_status *one_launch(gen_grid *g, grid_row *r, const gen_acc *accs, int count, shape s, int column_bytes)
{
  int threads = g->part->block ? GEN_BLOCK_THREADS : BLOCK_THREADS, teams = s.team <= GEN_WARP ? threads / s.team : 1;
  int64_t rows = r->base.form.rows;
  gen_weights weights;
  gen_frame f;

  WEFT_TRY(hold_pieces(g->part, r, accs, count, &s));
  gen_weights_of(r->base.form.comp, rows * r->base.form.cols, &weights);
  s.rows = rows_of_team(g->part, &r->base.form, &weights, s, column_bytes);
  int64_t groups = (rows + s.rows - 1) / s.rows;
  WEFT_TRY(open_kernel(g, r, &f, s));
  row_of_team open = open_row(r, &f.e, teams, groups);
  if (s.pieces) open_pieces(r, &f.e, s.pieces, s.held);
  int64_t shared = s.held ? gen_held_place(&r->held, &f.e, s.held * s.vector) : 0;
  if (s.rows > 1) {
    WEFT_TRY(take_weights(r, &f.e, &weights));
    WEFT_TRY(emit_rows(r, &f.e, open.item, s.rows));
  } else {
    r->base.at = open.item;
    WEFT_TRY(gen_emit_row(&r->base, &f.e));
  }
  close_row(&f.e, &open);
  g->out->launches[g->out->launch_count - 1].shared_bytes = (int)shared;
  return gen_grid_close(g, &f, (groups + teams - 1) / teams, s.team * teams);
}

/* ---- long rows ------------------------------------------------------------------------------------------------- */

typedef struct parts {
  int64_t count;  /* of a row; 1: rows are not cut */
  int64_t pieces; /* of a part; the last one may have fewer */
} parts;

static parts parts_of(const gen_target *target, const gen_rows *form, const gen_acc *accs, int count, int vector)
{
  int64_t most = form->cols / LONG_PART, wanted = (int64_t)target->cores * PARTS_A_CORE / WEFT_MAX(form->rows, 1);
  int64_t all = form->cols / vector;
  parts p = {1, all};

  if (!form->per_row_only || form->stages != 1 || !gen_accs_are_plain(accs, count)) return p;
  p.count = WEFT_MIN(most, wanted);
  if (p.count < 2) return (parts){1, all};
  p.pieces = (all + p.count - 1) / p.count;
  p.count = (all + p.pieces - 1) / p.pieces;
  return p;
}

static weft_status *first_launch(gen_grid *g, grid_row *r, parts p, shape s)
{
  int64_t rows = r->base.form.rows, all = r->base.form.cols / s.vector;
  gen_frame f;
  gen_emit *e = &f.e;
  gen_acc *accs;
  gen_if first;
  int count;

  WEFT_TRY(open_kernel(g, r, &f, s));
  gen_affine item = open_row(r, e, 1, rows * p.count).item;
  r->base.at = gen_affine_digit(e, item, p.count, 0);
  r->from = gen_affine_ssa(e, gen_affine_scale(e, gen_affine_digit(e, item, 1, p.count), p.pieces));
  r->to = gen_intrinsic2(e, "llvm.smin", LLVMBuildNSWAdd(e->b, r->from, gen_i64(e, p.pieces), ""), gen_i64(e, all));
  WEFT_TRY(gen_accs_of(e, r->base.form.reduces, r->base.form.reduce_count, &accs, &count));
  gen_value *v = WEFT_ARENA_ARRAY(e->arena, gen_value, count);
  WEFT_TRY_ALLOC(v);
  WEFT_TRY(gen_grid_accumulate(&r->base, e, 0, accs, count, v));
  gen_if_begin(e, &first, LLVMBuildICmp(e->b, LLVMIntEQ, r->team.id, gen_small(e, 0), ""));
  for (int i = 0; i < count; i++) {
    gen_buffer partial = gen_partial(e, &f, &accs[i], i, rows * p.count);
    gen_store(e, &partial, item, v[i]);
  }
  gen_if_end(e, &first);
  return gen_grid_close(g, &f, rows * p.count, s.team);
}

/* The sums of parts, one row's after the other's, as columns of the second launch. */
static weft_status *second_launch(gen_grid *g, grid_row *r, parts p)
{
  int64_t rows = r->base.form.rows;
  gen_frame f;
  gen_emit *e = &f.e;
  gen_acc *accs;
  gen_loop loop;
  int count;

  WEFT_TRY(open_kernel(g, r, &f, (shape){.team = GEN_WARP, .vector = 1}));
  r->base.at = open_row(r, e, 1, rows).item;
  WEFT_TRY(gen_accs_of(e, r->base.form.reduces, r->base.form.reduce_count, &accs, &count));
  gen_value *v = WEFT_ARENA_ARRAY(e->arena, gen_value, count), *none = WEFT_ARENA_ARRAY(e->arena, gen_value, count);
  WEFT_TRY_ALLOC(v);
  WEFT_TRY_ALLOC(none);
  for (int i = 0; i < count; i++) {
    gen_acc_reset(e, &accs[i], 1);
    none[i] = gen_identity(e, accs[i].op, accs[i].type);
  }
  gen_loop_begin(e, &loop, gen_wide(e, r->team.id), gen_i64(e, p.count), GEN_WARP, 0, p.count, 1);
  gen_affine at = gen_affine_add(e, gen_affine_scale(e, r->base.at, p.count), gen_affine_var(e, loop.var));
  for (int i = 0; i < count; i++) {
    gen_buffer partial = gen_partial(e, &f, &accs[i], i, rows * p.count);
    gen_value sum = gen_acc_get(e, accs[i].slot);
    gen_acc_set(e, accs[i].slot, gen_combine(e, accs[i].op, accs[i].type, sum, gen_load(e, &partial, at)));
  }
  gen_loop_end(e, &loop);
  for (int i = 0; i < count; i++) v[i] = gen_acc_get(e, accs[i].slot);
  WEFT_TRY(gen_team_combine(e, &r->team, accs, count, none, v));
  WEFT_TRY(gen_row_bind(&r->base, e, accs, count, v));
  WEFT_TRY(gen_row_finish(&r->base, e));
  f.env.bound_count = 0;
  return gen_grid_close(g, &f, rows, GEN_WARP);
}

weft_status *gen_grid_rows(gen_grid *g)
{
  grid_row r = {0};
  gen_emit probe = {.part = g->part, .arena = g->part->arena};
  gen_acc *accs;
  bool is_rows;
  int count, column_bytes;

  WEFT_TRY(gen_rows_of(g->part->arena, g->spec->fusion->called[0], &r.base.form, &is_rows));
  if (!is_rows) return gen_wrong_form(g->spec->info->strategy);
  WEFT_TRY(gen_accs_of(&probe, r.base.form.reduces, r.base.form.reduce_count, &accs, &count));
  WEFT_TRY(column_bytes_of(g->part, &r.base.form, accs, count, &column_bytes));
  shape s = shape_of(g->part, &r.base.form, column_bytes);
  parts p = parts_of(g->part->target, &r.base.form, accs, count, s.vector);
  if (p.count == 1 || g->part->block) return one_launch(g, &r, accs, count, s, column_bytes);
  g->spec->info->shared_bytes = count * r.base.form.rows * p.count * GEN_PARTIAL_BYTES;
  s.team = WEFT_MIN(s.team, 256);
  WEFT_TRY(first_launch(g, &r, p, s));
  return second_launch(g, &r, p);
}
