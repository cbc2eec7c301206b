/* codegen/nvptx/grid.c -- the walker of a grid: a thread for each element, or a block for each row whose threads
 * share the columns and combine what they have accumulated by shuffles inside a warp and by shared memory between
 * warps. */
#include <config.h>

#include "codegen/nvptx/grid.h"

#include <string.h>

enum { LOOP_THREADS = 128, MOST_ROW_THREADS = 256, COLUMNS_A_THREAD = 4 };

/* ---- threads --------------------------------------------------------------------------------------------------- */

static gen_ssa intrinsic(gen_emit *e, const char *name, int count, gen_ssa *args)
{
  gen_ssa fn = LLVMGetIntrinsicDeclaration(e->part->mod, LLVMLookupIntrinsicID(name, strlen(name)), NULL, 0);
  return LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, args, (unsigned)count, "");
}

static gen_ssa thread_id(gen_emit *e) { return intrinsic(e, "llvm.nvvm.read.ptx.sreg.tid.x", 0, NULL); }
static gen_ssa block_id(gen_emit *e) { return intrinsic(e, "llvm.nvvm.read.ptx.sreg.ctaid.x", 0, NULL); }
static gen_ssa wide(gen_emit *e, gen_ssa v) { return LLVMBuildZExt(e->b, v, e->part->i64, ""); }
static gen_ssa small(gen_emit *e, int v) { return LLVMConstInt(e->part->i32, (unsigned)v, 0); }

/* Waits for all threads of the block; afterwards they see what each of them stored before. */
static void barrier(gen_emit *e)
{
  static const char newer[] = "llvm.nvvm.barrier.cta.sync.aligned.all";

  if (LLVMLookupIntrinsicID(newer, strlen(newer))) intrinsic(e, newer, 1, (gen_ssa[]){small(e, 0)});
  else intrinsic(e, "llvm.nvvm.barrier0", 0, NULL);
}

int gen_grid_loop_threads(const gen_target *target) { return WEFT_MIN(LOOP_THREADS, target->block_threads); }

/* ---- memory ---------------------------------------------------------------------------------------------------- */

static gen_ssa load_part(gen_emit *e, const gen_buffer *buf, gen_affine linear)
{
  gen_ssa at = gen_affine_ssa(e, linear);

  if (e->mask) at = gen_select(e, e->mask, at, gen_i64(e, 0));
  return gen_from_storage(e, buf->type, gen_load_plain(e, buf, gen_storage_type(e->part, buf->type), at, 1));
}

static gen_value load(gen_emit *e, const gen_buffer *buf, gen_affine linear)
{
  bool is_complex = weft_dtype_is_complex(buf->type);

  if (buf->elems == 0) {
    gen_ssa zero = LLVMConstNull(gen_register_type(e->part, buf->type));
    return (gen_value){zero, is_complex ? zero : NULL};
  }
  if (!is_complex) return (gen_value){.re = load_part(e, buf, linear)};
  gen_affine re = gen_affine_scale(e, linear, 2);
  return (gen_value){load_part(e, buf, re), load_part(e, buf, gen_affine_offset(re, 1))};
}

static void store_part(gen_emit *e, const gen_buffer *buf, gen_affine linear, gen_ssa v)
{
  gen_store_plain(e, buf, gen_storage_type(e->part, buf->type), gen_affine_ssa(e, linear),
                  gen_to_storage(e, buf->type, v));
}

static void store(gen_emit *e, const gen_buffer *buf, gen_affine linear, const gen_value *values, int apart, int count)
{
  for (int i = 0; i < count; i++) {
    gen_affine at = gen_affine_offset(linear, i);
    gen_value v = values[i * apart];
    if (weft_dtype_is_complex(buf->type)) {
      gen_affine re = gen_affine_scale(e, at, 2);
      store_part(e, buf, re, v.re);
      store_part(e, buf, gen_affine_offset(re, 1), v.im);
    } else {
      store_part(e, buf, at, v.re);
    }
  }
}

/* ---- loops: a thread an element -------------------------------------------------------------------------------- */

static weft_status *walk(gen_walk *w, bool split, int64_t *units)
{
  gen_emit *e = &w->f->e;
  int64_t n = hlo_shape_elems(hlo_shape_leaf(w->f->fusion->shape, w->first));
  gen_if inside;

  (void)split; /* results of different sizes are walked one after another, each by as many threads as it has elements */
  *units = n;
  if (n == 0) return NULL;
  gen_ssa before = LLVMBuildNSWMul(e->b, wide(e, block_id(e)), gen_i64(e, gen_grid_loop_threads(e->part->target)), "");
  gen_ssa id = LLVMBuildNSWAdd(e->b, before, wide(e, thread_id(e)), "");
  gen_if_begin(e, &inside, LLVMBuildICmp(e->b, LLVMIntULT, id, gen_i64(e, n), ""));
  int mark = gen_memo_push(e);
  int var = gen_add_var(e, (gen_var){.value = id, .lo = 0, .hi = n, .align = 1});
  weft_status *st = gen_walk_body(w, e, gen_affine_var(e, var));
  gen_memo_pop(e, mark);
  gen_if_end(e, &inside);
  return st;
}

/* ---- rows: a block a row --------------------------------------------------------------------------------------- */

typedef struct grid_row {
  gen_row base; /* first */
  int threads;
  gen_ssa tid, lane, warp; /* i32; lane: in the warp */
} grid_row;

static weft_status *columns(gen_row *row, gen_emit *e, gen_body_fn *body, void *ctx)
{
  grid_row *r = (grid_row *)row;
  int64_t cols = row->form.cols;
  gen_loop loop;

  gen_loop_begin(e, &loop, wide(e, r->tid), gen_i64(e, cols), r->threads, 0, cols, 1);
  int mark = gen_memo_push(e);
  weft_status *st = body(ctx, e, gen_affine_var(e, loop.var));
  gen_memo_pop(e, mark);
  gen_loop_end(e, &loop);
  return st;
}

static weft_status *once(gen_row *row, gen_emit *e, gen_body_fn *body, void *ctx)
{
  gen_if first;

  gen_if_begin(e, &first, LLVMBuildICmp(e->b, LLVMIntEQ, ((grid_row *)row)->tid, small(e, 0), ""));
  int mark = gen_memo_push(e);
  weft_status *st = body(ctx, e, gen_affine_const(0));
  gen_memo_pop(e, mark);
  gen_if_end(e, &first);
  return st;
}

/* The value of the thread whose number in the warp differs from this thread's by the bits of `mask`. */
static gen_ssa shuffle_word(gen_emit *e, gen_ssa v, int mask)
{
  gen_ssa args[4] = {LLVMConstInt(e->part->i32, 0xffffffffu, 0), v, small(e, mask), small(e, GEN_WARP - 1)};
  return intrinsic(e, "llvm.nvvm.shfl.sync.bfly.i32", 4, args);
}

static gen_ssa shuffle(gen_emit *e, gen_ssa v, int mask)
{
  LLVMTypeRef type = LLVMTypeOf(v), i32 = e->part->i32, i64 = e->part->i64;

  if (type == e->part->f32)
    return LLVMBuildBitCast(e->b, shuffle_word(e, LLVMBuildBitCast(e->b, v, i32, ""), mask), type, "");
  if (type == e->part->f64)
    return LLVMBuildBitCast(e->b, shuffle(e, LLVMBuildBitCast(e->b, v, i64, ""), mask), type, "");
  if (type == i32) return shuffle_word(e, v, mask);
  if (type != i64) return LLVMBuildTrunc(e->b, shuffle_word(e, LLVMBuildZExt(e->b, v, i32, ""), mask), type, "");
  gen_ssa low = shuffle_word(e, LLVMBuildTrunc(e->b, v, i32, ""), mask);
  gen_ssa high = shuffle_word(e, LLVMBuildTrunc(e->b, LLVMBuildLShr(e->b, v, gen_i64(e, 32), ""), i32, ""), mask);
  return LLVMBuildOr(e->b, wide(e, low), LLVMBuildShl(e->b, wide(e, high), gen_i64(e, 32), ""), "");
}

/* Every thread of the warp gets the combination of the values of all its threads. */
static gen_value combine_warp(gen_emit *e, const gen_acc *acc, gen_value v)
{
  for (int mask = GEN_WARP / 2; mask > 0; mask /= 2) {
    gen_value other = {shuffle(e, v.re, mask), v.im ? shuffle(e, v.im, mask) : NULL};
    v = gen_combine(e, acc->op, acc->type, v, other);
  }
  return v;
}

/* An array in shared memory with one element for each thread of a warp. */
static gen_buffer shared_array(gen_emit *e, LLVMTypeRef element)
{
  LLVMTypeRef type = LLVMArrayType2(element, GEN_WARP);
  gen_ssa array = LLVMAddGlobalInAddressSpace(e->part->mod, type, "shared", 3);

  LLVMSetLinkage(array, LLVMInternalLinkage);
  LLVMSetInitializer(array, LLVMGetPoison(type));
  LLVMSetAlignment(array, 16);
  return (gen_buffer){.ptr = array, .elems = GEN_WARP};
}

/* Passes one part of a value from each warp to all threads: thread i of every warp gets the value of warp i, or
 * `otherwise` if there is no warp i. */
static gen_ssa exchange(grid_row *r, gen_emit *e, gen_ssa v, gen_ssa otherwise)
{
  LLVMTypeRef type = LLVMTypeOf(v), element = type == e->part->i1 ? e->part->i8 : type; /* i1 has no place in memory */
  gen_buffer shared = shared_array(e, element);
  gen_ssa is_warp = LLVMBuildICmp(e->b, LLVMIntULT, r->lane, small(e, r->threads / GEN_WARP), "");
  gen_if first;

  gen_if_begin(e, &first, LLVMBuildICmp(e->b, LLVMIntEQ, r->lane, small(e, 0), ""));
  gen_store_plain(e, &shared, element, wide(e, r->warp), element == type ? v : LLVMBuildZExt(e->b, v, element, ""));
  gen_if_end(e, &first);
  barrier(e);
  gen_ssa at = LLVMBuildSelect(e->b, is_warp, r->lane, small(e, 0), "");
  gen_ssa x = gen_load_plain(e, &shared, element, wide(e, at), 1);
  if (element != type) x = LLVMBuildTrunc(e->b, x, type, "");
  return LLVMBuildSelect(e->b, is_warp, x, otherwise, "");
}

static gen_value combine_block(grid_row *r, gen_emit *e, const gen_acc *acc, gen_value v)
{
  gen_value none = gen_identity(e, acc->op, acc->type);

  v = combine_warp(e, acc, v);
  if (r->threads == GEN_WARP) return v;
  v = (gen_value){exchange(r, e, v.re, none.re), v.im ? exchange(r, e, v.im, none.im) : NULL};
  return combine_warp(e, acc, v);
}

typedef struct accumulating {
  gen_row *row;
  gen_acc *accs;
  gen_value *slots;
  int count;
} accumulating;

static weft_status *step(void *ctx, gen_emit *e, gen_affine col)
{
  accumulating *a = ctx;
  return gen_row_step(a->row, e, col, a->accs, a->count, a->slots);
}

static weft_status *accumulate(gen_row *row, gen_emit *e, int stage, gen_acc *accs, int count, gen_value *out)
{
  accumulating a = {row, accs, WEFT_ARENA_ARRAY(e->arena, gen_value, count), count};

  (void)stage;
  WEFT_TRY_ALLOC(a.slots);
  for (int i = 0; i < count; i++) {
    gen_value first;
    WEFT_TRY(gen_row_first(row, e, &accs[i], &first));
    a.slots[i] = gen_acc_slot(e, accs[i].type, 1);
    gen_acc_set(e, a.slots[i], first);
  }
  WEFT_TRY(columns(row, e, step, &a));
  for (int i = 0; i < count; i++) out[i] = combine_block((grid_row *)row, e, &accs[i], gen_acc_get(e, a.slots[i]));
  return NULL;
}

weft_status *gen_grid_rows(gen_part *part, gen_kernel_spec *spec, gen_artefact *out)
{
  grid_row r = {0};
  gen_emit probe = {.part = part, .arena = part->arena};
  gen_frame f;
  gen_emit *e = &f.e;
  gen_acc *accs;
  bool is_rows;
  int count;

  WEFT_TRY(gen_rows_of(part->arena, spec->fusion->called[0], &r.base.form, &is_rows));
  if (!is_rows) return gen_wrong_form(spec->info->strategy);
  WEFT_TRY(gen_accs_of(&probe, r.base.form.reduces, r.base.form.reduce_count, &accs, &count));
  for (int i = 0; i < count; i++)
    if (accs[i].op == HLO_OPCODE_COUNT)
      return WEFT_ERR(UNIMPLEMENTED, "nvptx: rows that are reduced by \"%s\"", accs[i].reduce->called[0]->name);
  int64_t threads = WEFT_ALIGN_UP((r.base.form.cols + COLUMNS_A_THREAD - 1) / COLUMNS_A_THREAD, (int64_t)GEN_WARP);
  r.threads = (int)WEFT_MIN(threads, WEFT_MIN(MOST_ROW_THREADS, part->target->block_threads));
  WEFT_TRY(gen_frame_open(part, spec, 0, &f));
  r.base.f = &f;
  r.tid = thread_id(e);
  r.lane = LLVMBuildAnd(e->b, r.tid, small(e, GEN_WARP - 1), "");
  r.warp = LLVMBuildLShr(e->b, r.tid, small(e, 5), "");
  WEFT_TRY(gen_row_hoist(&r.base, e));
  int var = gen_add_var(e, (gen_var){.value = wide(e, block_id(e)), .lo = 0, .hi = r.base.form.rows, .align = 1});
  r.base.at = gen_affine_var(e, var);
  WEFT_TRY(gen_emit_row(&r.base, e));
  gen_frame_close(&f);
  out->blocks = r.base.form.rows;
  out->threads = r.threads;
  return NULL;
}

const gen_walker gen_grid_walker = {
  .name = "nvptx", .load = load, .store = store, .walk = walk, .accumulate = accumulate, .columns = columns, .once = once,
};
