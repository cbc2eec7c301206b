/* codegen/nvptx/block_radix.c -- sorts by a single key whose slices fit into shared memory: a block takes a slice, and
 * one launch does all.
 *
 * The threads hold the slice's keys, and the positions that the keys had, in registers. Each pass deals the elements by
 * a few bits of their keys, the lowest bits first:
 *
 *   count    each warp numbers its elements of each digit, in their order
 *   sum      a thread for each digit makes of the warps' counts the places where the elements of each warp begin
 *   deal     keys go through shared memory to the threads of their new places; then positions do
 *
 * The counts and the dealt elements use the same shared memory, one after the other. In the end a thread stores its
 * keys, and the elements of other operands, which it takes by the positions. A result may lie on its operand: all
 * threads have read an operand before one stores its result. */
#include <config.h>

#include "codegen/nvptx/sort.h"

enum {
  THREADS = 512, WARPS = THREADS / GEN_WARP,
  MOST_DIGIT_BITS = 8,  /* no more digits than a block has threads */
  MOST_ITEMS = 20,      /* elements of a slice for each thread: so many fit into its registers */
  TABLE_BYTES = 48128,  /* of the 48 KiB of shared memory that every kernel may have; the rest is for the warps' sums */
  RANK_SHIFT = 16,
};

/* A kernel while it is emitted. */
typedef struct hall {
  gen_sorting *s;
  const gen_key *key;
  weft_dtype type;          /* whose size a key has */
  bool numbered;            /* there are other operands, for which positions go with the keys */
  int bits, digits, passes, items;
  gen_team team;
  gen_ssa tid, slice;       /* i64 */
  gen_ssa table;            /* the shared memory of `ranks`, `keys` and `positions` */
  gen_shared ranks;         /* for each warp and digit: how many elements have come; then, where the warp's begin */
  gen_shared keys, positions;
  gen_shared sums;          /* of each warp, for sums over the block */
  gen_ssa at[MOST_ITEMS];   /* i64: the places of the thread's elements */
  gen_ssa has[MOST_ITEMS];  /* does the slice have this place? */
  gen_ssa key_of[MOST_ITEMS], position_of[MOST_ITEMS]; /* variables */
} hall;

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/* The shared memory as an array of elements of `type`. */
static gen_shared view(const hall *h, LLVMTypeRef type, int64_t elems)
{
  return (gen_shared){.buffer = {.ptr = h->table, .elems = elems}, .type = type, .element = type};
}

/* Do the elements of an operand, which are as large as those of `type`, fit into the shared memory? */
static bool is_staged(const hall *h, weft_dtype type)
{
  return !weft_dtype_is_complex(type) && h->s->n * (int64_t)weft_dtype_bytes(type) <= TABLE_BYTES;
}

static int64_t rank_count(const hall *h) { return (int64_t)WARPS * (h->digits + 1); }

static void open_hall(hall *h, gen_emit *e)
{
  LLVMTypeRef type = gen_register_type(e->part, h->type);
  int64_t n = h->s->n, bytes = WEFT_MAX(n * (int64_t)weft_dtype_bytes(h->type), rank_count(h) * 4);

  if (h->numbered) bytes = WEFT_MAX(bytes, n * 4);
  for (int i = 0; i < h->s->operands; i++) {
    weft_dtype other = gen_sort_bits(h->s->f->operands[i]).type;
    if (is_staged(h, other)) bytes = WEFT_MAX(bytes, n * (int64_t)weft_dtype_bytes(other));
  }
  h->team = gen_team_of(e, THREADS);
  h->tid = gen_wide(e, h->team.id);
  h->slice = gen_wide(e, gen_block_id(e));
  h->table = gen_shared_global(e->part, LLVMArrayType2(e->part->i8, (uint64_t)bytes));
  h->ranks = view(h, e->part->i32, rank_count(h));
  h->keys = view(h, type, n);
  h->positions = view(h, e->part->i32, n);
  h->sums = gen_shared_array(e, e->part->i32, WARPS);
  for (int k = 0; k < h->items; k++) {
    h->key_of[k] = gen_alloca(e, type, "key");
    h->position_of[k] = gen_alloca(e, e->part->i32, "position");
  }
}

static gen_affine place_of(const hall *h, gen_emit *e, gen_ssa at)
{
  return gen_sort_place(h->s, e, h->slice, at, h->s->n);
}

/* Loads an array's elements at the thread's places. The loads are in branches, rather than of a place that a select
 * chooses: so all their addresses are one with constant offsets, in one register. */
static void load_own(const hall *h, gen_emit *e, const gen_buffer *in, const gen_ssa *vars)
{
  gen_if present;

  for (int k = 0; k < h->items; k++) {
    gen_if_begin(e, &present, h->has[k]);
    LLVMBuildStore(e->b, gen_load(e, in, place_of(h, e, h->at[k])).re, vars[k]);
    gen_if_end(e, &present);
  }
}

static void get_own(const hall *h, gen_emit *e, const gen_shared *array, const gen_ssa *vars)
{
  gen_if present;

  for (int k = 0; k < h->items; k++) {
    gen_if_begin(e, &present, h->has[k]);
    LLVMBuildStore(e->b, gen_shared_get(e, array, h->at[k]), vars[k]);
    gen_if_end(e, &present);
  }
}

/* A warp has neighbouring elements, of which a thread has every 32nd. A variable for a place behind the slice keeps
 * what it holds. */
static void take(hall *h, gen_emit *e)
{
  gen_buffer in = gen_sort_bits(h->s->f->operands[h->key->operand]);
  gen_ssa warp = LLVMBuildNSWMul(e->b, gen_wide(e, h->team.warp), gen_i64(e, GEN_WARP * h->items), "");
  gen_ssa own = LLVMBuildNSWAdd(e->b, warp, gen_wide(e, h->team.lane), "");

  for (int k = 0; k < h->items; k++) {
    h->at[k] = LLVMBuildNSWAdd(e->b, own, gen_i64(e, k * GEN_WARP), "");
    h->has[k] = gen_icmp(e, LLVMIntULT, h->at[k], gen_i64(e, h->s->n));
    LLVMBuildStore(e->b, LLVMConstNull(h->keys.type), h->key_of[k]);
    LLVMBuildStore(e->b, LLVMBuildTrunc(e->b, h->at[k], e->part->i32, ""), h->position_of[k]);
  }
  load_own(h, e, &in, h->key_of);
}

/* ---- a pass ---------------------------------------------------------------------------------------------------- */

static void clear_ranks(const hall *h, gen_emit *e)
{
  gen_loop loop;

  gen_loop_begin(e, &loop, h->tid, gen_i64(e, rank_count(h)), THREADS, 0, rank_count(h), 1);
  gen_shared_put(e, &h->ranks, e->vars[loop.var].value, gen_small(e, 0));
  gen_loop_end(e, &loop);
}

static gen_ssa rank_at(const hall *h, gen_emit *e, gen_ssa warp, gen_ssa digit)
{
  gen_ssa row = LLVMBuildMul(e->b, warp, gen_small(e, h->digits + 1), "");
  return gen_wide(e, LLVMBuildAdd(e->b, row, digit, ""));
}

/* Numbers the elements of each digit that the warp has, in their order. mark[k]: the digit of element k, and above
 * RANK_SHIFT its number. What is behind the slice has the digit behind all others. */
static void count(const hall *h, gen_emit *e, gen_ssa shift, gen_ssa *mark)
{
  gen_ssa is_first, below;
  gen_if stores;

  for (int k = 0; k < h->items; k++) {
    gen_ssa bits = LLVMBuildLoad2(e->b, h->keys.type, h->key_of[k], "");
    gen_ssa digit = gen_sort_digit(e, h->key, bits, shift, h->digits);
    digit = gen_select(e, h->has[k], digit, gen_small(e, h->digits));
    gen_ssa alike = gen_sort_lanes(e, &h->team, digit, &is_first, &below), at = rank_at(h, e, h->team.warp, digit);
    gen_ssa so_far = gen_shared_get(e, &h->ranks, at), number = LLVMBuildAdd(e->b, so_far, below, "");
    mark[k] = LLVMBuildOr(e->b, digit, LLVMBuildShl(e->b, number, gen_small(e, RANK_SHIFT), ""), "");
    gen_warp_barrier(e, h->team.mask);
    gen_if_begin(e, &stores, is_first);
    gen_shared_put(e, &h->ranks, at, LLVMBuildAdd(e->b, so_far, alike, ""));
    gen_if_end(e, &stores);
    gen_warp_barrier(e, h->team.mask);
  }
}

/* The sum of `v`, an i32, over the threads before this one. */
static gen_ssa sum_of_block(const hall *h, gen_emit *e, gen_ssa v)
{
  gen_ssa up_to = gen_sort_sum_lanes(e, &h->team, v), before = LLVMBuildSub(e->b, up_to, v, "");
  gen_if is_last;

  gen_if_begin(e, &is_last, gen_icmp(e, LLVMIntEQ, h->team.lane, gen_small(e, GEN_WARP - 1)));
  gen_shared_put(e, &h->sums, gen_wide(e, h->team.warp), up_to);
  gen_if_end(e, &is_last);
  gen_barrier(e);
  int last = (h->digits - 1) / GEN_WARP; /* the warps behind it have no digits */
  for (int w = 0; w < last; w++) {
    gen_ssa is_before = gen_icmp(e, LLVMIntUGT, h->team.warp, gen_small(e, w));
    gen_ssa theirs = gen_shared_get(e, &h->sums, gen_i64(e, w));
    before = LLVMBuildAdd(e->b, before, gen_select(e, is_before, theirs, gen_small(e, 0)), "");
  }
  return before;
}

/* Makes each warp's counts the places where its elements begin. */
static void sum(const hall *h, gen_emit *e, gen_ssa total)
{
  gen_ssa own = gen_icmp(e, LLVMIntULT, h->team.id, gen_small(e, h->digits)), all = gen_small(e, 0);
  gen_if has_digit;

  LLVMBuildStore(e->b, gen_small(e, 0), total);
  gen_if_begin(e, &has_digit, own);
  for (int w = 0; w < WARPS; w++) {
    gen_ssa theirs = gen_shared_get(e, &h->ranks, rank_at(h, e, gen_small(e, w), h->team.id));
    all = LLVMBuildAdd(e->b, all, theirs, "");
  }
  LLVMBuildStore(e->b, all, total);
  gen_if_end(e, &has_digit);
  gen_ssa place = sum_of_block(h, e, LLVMBuildLoad2(e->b, e->part->i32, total, ""));
  gen_if_begin(e, &has_digit, own);
  for (int w = 0; w < WARPS; w++) {
    gen_ssa at = rank_at(h, e, gen_small(e, w), h->team.id), theirs = gen_shared_get(e, &h->ranks, at);
    gen_shared_put(e, &h->ranks, at, place);
    place = LLVMBuildAdd(e->b, place, theirs, "");
  }
  gen_if_end(e, &has_digit);
}

/* Passes variables through shared memory, from thread to thread: to place to[k] of the slice. */
static void deal(const hall *h, gen_emit *e, const gen_shared *array, const gen_ssa *vars, const gen_ssa *to)
{
  gen_if present;

  gen_barrier(e);
  for (int k = 0; k < h->items; k++) {
    gen_if_begin(e, &present, h->has[k]);
    gen_shared_put(e, array, gen_wide(e, to[k]), LLVMBuildLoad2(e->b, array->type, vars[k], ""));
    gen_if_end(e, &present);
  }
  gen_barrier(e);
  get_own(h, e, array, vars);
}

static void pass(const hall *h, gen_emit *e, gen_ssa shift, gen_ssa total)
{
  gen_ssa mark[MOST_ITEMS], to[MOST_ITEMS];

  clear_ranks(h, e);
  gen_barrier(e);
  count(h, e, shift, mark);
  gen_barrier(e);
  sum(h, e, total);
  gen_barrier(e);
  for (int k = 0; k < h->items; k++) {
    gen_ssa digit = LLVMBuildAnd(e->b, mark[k], gen_small(e, (1 << RANK_SHIFT) - 1), "");
    gen_ssa first = gen_shared_get(e, &h->ranks, rank_at(h, e, h->team.warp, digit));
    to[k] = LLVMBuildAdd(e->b, first, LLVMBuildLShr(e->b, mark[k], gen_small(e, RANK_SHIFT), ""), "");
  }
  deal(h, e, &h->keys, h->key_of, to);
  if (h->numbered) deal(h, e, &h->positions, h->position_of, to);
  gen_barrier(e);
}

/* ---- results --------------------------------------------------------------------------------------------------- */

/* A place in an array, or that of one part (0, 1) of a complex number in an array of their parts. */
enum { WHOLE = -1 };
static gen_affine at_part(const hall *h, gen_emit *e, gen_ssa at, int part)
{
  gen_affine place = place_of(h, e, at);
  return part == WHOLE ? place : gen_affine_offset(gen_affine_scale(e, place, 2), part);
}

static void store_own(const hall *h, gen_emit *e, const gen_buffer *out, const gen_ssa *vars, int part)
{
  gen_if present;

  for (int k = 0; k < h->items; k++) {
    LLVMTypeRef type = gen_register_type(e->part, out->type);
    gen_if_begin(e, &present, h->has[k]);
    gen_store(e, out, at_part(h, e, h->at[k], part), (gen_value){LLVMBuildLoad2(e->b, type, vars[k], ""), NULL});
    gen_if_end(e, &present);
  }
}

/* Brings the elements of `in` that the positions name to `out`. They go through shared memory if they fit into it, so
 * that neighbouring threads read neighbouring elements. `vars` are of the elements' type. */
static void move(const hall *h, gen_emit *e, gen_buffer in, gen_buffer out, const gen_ssa *vars, int part)
{
  gen_shared array = view(h, gen_register_type(e->part, in.type), h->s->n);
  bool staged = part == WHOLE && is_staged(h, in.type);
  gen_if present;

  if (staged) {
    load_own(h, e, &in, vars);
    gen_barrier(e);
    for (int k = 0; k < h->items; k++) {
      gen_if_begin(e, &present, h->has[k]);
      gen_shared_put(e, &array, h->at[k], LLVMBuildLoad2(e->b, array.type, vars[k], ""));
      gen_if_end(e, &present);
    }
  }
  if (staged) gen_barrier(e);
  for (int k = 0; k < h->items; k++) {
    gen_if_begin(e, &present, h->has[k]);
    gen_ssa from = gen_wide(e, LLVMBuildLoad2(e->b, e->part->i32, h->position_of[k], ""));
    gen_ssa v = staged ? gen_shared_get(e, &array, from) : gen_load(e, &in, at_part(h, e, from, part)).re;
    LLVMBuildStore(e->b, v, vars[k]);
    gen_if_end(e, &present);
  }
  if (!staged) gen_barrier(e);
  store_own(h, e, &out, vars, part);
}

/* Stores the elements of an operand. Complex numbers are moved as two arrays: a thread has no registers for all. */
static void store(const hall *h, gen_emit *e, int operand)
{
  gen_buffer in = gen_sort_bits(h->s->f->operands[operand]), out = gen_sort_bits(h->s->f->results[operand]);
  bool is_complex = weft_dtype_is_complex(in.type);
  gen_ssa vars[MOST_ITEMS] = {NULL};

  if (operand == h->key->operand) {
    store_own(h, e, &out, h->key_of, WHOLE);
    return;
  }
  if (is_complex) {
    in.type = out.type = WEFT_U64;
    in.elems *= 2;
    out.elems *= 2;
  }
  LLVMTypeRef type = gen_register_type(e->part, in.type);
  for (int k = 0; k < h->items; k++) {
    vars[k] = gen_alloca(e, type, "element");
    LLVMBuildStore(e->b, LLVMConstNull(type), vars[k]);
  }
  for (int part = is_complex ? 0 : WHOLE; part < (is_complex ? 2 : 0); part++) move(h, e, in, out, vars, part);
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

/* The elements of a thread. */
static int items_of(const gen_sorting *s) { return (int)((s->n + THREADS - 1) / THREADS); }

bool gen_block_radix_fits(const gen_sorting *s)
{
  if (s->instr->op != HLO_SORT || s->key_count != 1 || !gen_key_is_bits(s->keys[0].type)) return false;
  if (s->n <= GEN_SORT_TILE || items_of(s) > MOST_ITEMS) return false;
  return s->g->part->target->block_threads >= THREADS &&
         s->n * (int64_t)weft_dtype_bytes(s->keys[0].type) <= TABLE_BYTES;
}

weft_status *gen_block_radix(gen_sorting *s)
{
  hall h = {.s = s, .key = &s->keys[0], .numbered = s->operands > 1, .items = items_of(s)};
  int key_bits = h.key->type == WEFT_PRED ? 1 : 8 * (int)weft_dtype_bytes(h.key->type);
  gen_frame f;
  gen_emit *e = &f.e;
  gen_loop passes;

  h.type = gen_sort_bits((gen_buffer){.type = h.key->type}).type;
  h.passes = (key_bits + MOST_DIGIT_BITS - 1) / MOST_DIGIT_BITS;
  h.bits = (key_bits + h.passes - 1) / h.passes;
  h.digits = 1 << h.bits;
  WEFT_TRY(gen_grid_open(s->g, false, &f));
  s->f = &f;
  open_hall(&h, e);
  take(&h, e);
  gen_ssa total = gen_alloca(e, e->part->i32, "total");
  gen_loop_static(e, &passes, 0, (int64_t)h.passes * h.bits, h.bits);
  pass(&h, e, e->vars[passes.var].value, total);
  gen_loop_end(e, &passes);
  for (int i = 0; i < s->operands; i++) store(&h, e, i);
  return gen_grid_close(s->g, &f, s->slices, THREADS);
}
