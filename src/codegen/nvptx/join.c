/* codegen/nvptx/join.c -- a concatenate of many operands: one launch moves their words.
 *
 * An operand is rows of neighbouring words, which are a part of each row of the result. A word is the largest access
 * that divides the rows of all operands, up to 16 bytes. Each operand has blocks of its own: a block finds its operand
 * by binary search in the code, so that all threads of a warp take the same branches. */
#include <config.h>

#include "codegen/nvptx/grid.h"

enum { THREADS = 128, WORDS = 4 /* of a thread */, MOST_WORD = 16 /* bytes */ };

/* An operand that is not empty. */
typedef struct piece {
  int operand;
  int64_t row, words, offset; /* words of a row, of all rows; where its rows begin in those of the result */
  int64_t first_block;
} piece;

typedef struct joining {
  gen_frame f;
  piece *pieces;
  int count;
  int64_t word, row, blocks; /* bytes of a word; words of a row of the result */
  gen_ssa from, length, width, offset, begin; /* slots of a block: its operand's pointer and numbers, its first word */
} joining;

/* Fills in the pieces, first in bytes and then in words. */
static weft_status *measure(joining *j, const hlo_instr *instr, weft_arena *arena)
{
  int64_t dim = instr->dims.v[0], inner = weft_dtype_bytes(instr->shape->type), rows = 1;

  for (int64_t d = 0; d < instr->shape->rank; d++) *(d < dim ? &rows : &inner) *= d == dim ? 1 : instr->shape->dims[d];
  j->pieces = WEFT_ARENA_ARRAY(arena, piece, instr->operand_count);
  WEFT_TRY_ALLOC(j->pieces);
  j->word = MOST_WORD;
  for (int i = 0; i < instr->operand_count; i++) {
    int64_t row = instr->operands[i]->shape->dims[dim] * inner;
    if (row == 0) continue;
    j->pieces[j->count++] = (piece){.operand = i, .row = row};
    while (row % j->word != 0) j->word /= 2;
  }
  for (int i = 0; i < j->count; i++) {
    piece *p = &j->pieces[i];
    p->row /= j->word;
    p->words = p->row * rows;
    p->offset = j->row;
    p->first_block = j->blocks;
    j->row += p->row;
    j->blocks += (p->words + THREADS * WORDS - 1) / (THREADS * WORDS);
  }
  return NULL;
}

/* Stores what the block needs to know of its operand, one of [first, end). */
static void find_operand(joining *j, gen_ssa block, int first, int end, LLVMBasicBlockRef found)
{
  gen_emit *e = &j->f.e;

  if (end - first == 1) {
    const piece *p = &j->pieces[first];
    LLVMBuildStore(e->b, j->f.operands[p->operand].ptr, j->from);
    LLVMBuildStore(e->b, gen_i64(e, p->words), j->length);
    LLVMBuildStore(e->b, gen_i64(e, p->row), j->width);
    LLVMBuildStore(e->b, gen_i64(e, p->offset), j->offset);
    gen_ssa before = LLVMBuildNSWSub(e->b, block, gen_i64(e, p->first_block), "");
    LLVMBuildStore(e->b, LLVMBuildNSWMul(e->b, before, gen_i64(e, THREADS * WORDS), ""), j->begin);
    LLVMBuildBr(e->b, found);
    return;
  }
  int middle = first + (end - first) / 2;
  LLVMBasicBlockRef low = LLVMAppendBasicBlockInContext(e->part->ctx, e->fn, ""),
                    high = LLVMAppendBasicBlockInContext(e->part->ctx, e->fn, "");
  LLVMBuildCondBr(e->b, gen_icmp(e, LLVMIntULT, block, gen_i64(e, j->pieces[middle].first_block)), low, high);
  LLVMPositionBuilderAtEnd(e->b, low);
  find_operand(j, block, first, middle, found);
  LLVMPositionBuilderAtEnd(e->b, high);
  find_operand(j, block, middle, end, found);
}

/* The number in a slot, which is a constant if all operands have the same. */
static gen_ssa number(const joining *j, gen_emit *e, gen_ssa slot, size_t field)
{
  int64_t first = *(const int64_t *)((const char *)&j->pieces[0] + field);
  bool same = true;

  for (int i = 1; i < j->count; i++) same = same && *(const int64_t *)((const char *)&j->pieces[i] + field) == first;
  return same ? gen_i64(e, first) : LLVMBuildLoad2(e->b, e->part->i64, slot, "");
}

/* Where word `at` of an operand goes in the result. Rows of the result are fewer than 2^31 words as a rule,
 * and then the division is one of 32 bits. */
static gen_ssa place_of(const joining *j, gen_emit *e, gen_ssa at, gen_ssa width, gen_ssa offset, bool is_small)
{
  LLVMTypeRef type = is_small ? e->part->i32 : e->part->i64;
  gen_ssa n = gen_cast(e, is_small ? LLVMTrunc : LLVMZExt, at, type);
  gen_ssa row = LLVMBuildUDiv(e->b, n, gen_cast(e, is_small ? LLVMTrunc : LLVMZExt, width, type), "");

  row = gen_cast(e, LLVMZExt, row, e->part->i64);
  gen_ssa column = LLVMBuildNSWSub(e->b, at, LLVMBuildNSWMul(e->b, row, width, ""), "");
  gen_ssa begin = LLVMBuildNSWMul(e->b, row, gen_i64(e, j->row), "");
  return LLVMBuildNSWAdd(e->b, LLVMBuildNSWAdd(e->b, begin, offset, ""), column, "");
}

static gen_ssa word_at(gen_emit *e, LLVMTypeRef type, gen_ssa base, gen_ssa at)
{
  return LLVMBuildInBoundsGEP2(e->b, type, base, &at, 1, "");
}

/* Moves this thread's words: all are loaded before the first is stored, so that the loads are under way at the same
 * time. */
static void move_words(joining *j, gen_emit *e, bool is_small, bool is_one_row)
{
  LLVMTypeRef type = j->word == MOST_WORD ? LLVMVectorType(e->part->i32, 4)
                                          : LLVMIntTypeInContext(e->part->ctx, (unsigned)(8 * j->word));
  gen_ssa from = LLVMBuildLoad2(e->b, e->part->ptr, j->from, ""), at[WORDS], inside[WORDS], v[WORDS];
  gen_ssa length = number(j, e, j->length, offsetof(piece, words)),
          width = number(j, e, j->width, offsetof(piece, row));
  gen_ssa offset = number(j, e, j->offset, offsetof(piece, offset));
  gen_ssa first = LLVMBuildLoad2(e->b, e->part->i64, j->begin, "");

  first = LLVMBuildNSWAdd(e->b, first, gen_wide(e, gen_thread_id(e)), "");
  for (int k = 0; k < WORDS; k++) {
    at[k] = LLVMBuildNSWAdd(e->b, first, gen_i64(e, (int64_t)k * THREADS), "");
    inside[k] = gen_icmp(e, LLVMIntULT, at[k], length);
    gen_ssa source = word_at(e, type, from, gen_select(e, inside[k], at[k], gen_i64(e, 0)));
    v[k] = LLVMBuildLoad2(e->b, type, source, "");
    LLVMSetAlignment(v[k], (unsigned)j->word);
  }
  for (int k = 0; k < WORDS; k++) {
    gen_if stores;
    gen_if_begin(e, &stores, inside[k]);
    gen_ssa to = is_one_row ? LLVMBuildNSWAdd(e->b, offset, at[k], "") : place_of(j, e, at[k], width, offset, is_small);
    gen_ssa store = LLVMBuildStore(e->b, v[k], word_at(e, type, j->f.results[0].ptr, to));
    LLVMSetAlignment(store, (unsigned)j->word);
    gen_if_end(e, &stores);
  }
}

weft_status *gen_grid_join(gen_grid *g)
{
  const hlo_instr *instr = g->spec->fusion;
  joining j = {.count = 0};
  gen_emit *e = &j.f.e;

  if (hlo_shape_elems(instr->shape) == 0) return NULL;
  WEFT_TRY(measure(&j, instr, g->part->arena));
  WEFT_TRY(gen_grid_open(g, false, &j.f));
  j.from = gen_alloca(e, e->part->ptr, "from");
  j.length = gen_alloca(e, e->part->i64, "length");
  j.width = gen_alloca(e, e->part->i64, "width");
  j.offset = gen_alloca(e, e->part->i64, "offset");
  j.begin = gen_alloca(e, e->part->i64, "begin");
  gen_ssa block = gen_wide(e, gen_block_id(e));
  LLVMBasicBlockRef found = LLVMAppendBasicBlockInContext(e->part->ctx, e->fn, "found");
  find_operand(&j, block, 0, j.count, found);
  LLVMPositionBuilderAtEnd(e->b, found);
  int64_t words = hlo_shape_bytes(instr->shape) / j.word;
  move_words(&j, e, words <= INT32_MAX, j.pieces[0].row == j.pieces[0].words);
  return gen_grid_close(g, &j.f, j.blocks, THREADS);
}
