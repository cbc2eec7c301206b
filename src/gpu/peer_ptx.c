/* gpu/peer_ptx.c -- writes the kernels of collectives between GPUs (peer_ptx.h).
 *
 * A fold goes through its elements in steps of 16 bytes, and then one by one.  The loads of all ranks come before the
 * first operation, so that they are under way at the same time.  Types narrower than 32 bits are unpacked; floats among
 * them are folded in f32 and rounded once, as the collectives of the host do.
 *
 * The thread that handles an element depends only on the grid.  So after the barrier of a block a thread reads what the
 * blocks of the same number have written on the other ranks, and no barrier of the whole grid is needed.
 *
 * The memory of a scratch has two addresses, its own and the one at which multicast joins all scratches.  PTX orders
 * accesses of one memory by two addresses only if a fence.proxy.alias lies on the way from the first to the second
 * (Memory Consistency Model, causality order).  In the kernels of modules with multicast, which alone access such
 * memory, each thread executes one when it comes to a barrier, so there is one on every way through the barrier: behind
 * the access, and before the signal, whose release and acquire in the scope of the system order the access before what
 * the other ranks do behind the barrier.  The barriers of the other modules have no such fence.  One of them may lie
 * between two kernels that use the same scratch; there the end of the first grid orders its accesses, by both
 * addresses, before all that follows on its stream, the barrier's signal among it.  multimem instructions are relaxed,
 * in the scope of the system; they need no order of their own. */
#include <config.h>

#include "gpu/peer_ptx.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/macros.h"

enum { SPINS = 64 /* loads of a slot between two looks at `abort` */, NAP_NS = 40 };

typedef enum form { FLOAT, SIGNED, UNSIGNED } form;

typedef struct writer {
  FILE *out;
  weft_dtype dtype;
  weft_reduction reduction;
  int ranks;
  int bytes;          /* of an element */
  form form;
  bool bitwise;       /* the operation takes whole words */
  bool multicast;     /* memory has two addresses */
  int label;          /* the number of the next label */
} writer;

#define AT(field) ((int)offsetof(gpu_peer_args, field))

bool gpu_peer_reduces(weft_dtype dtype, weft_reduction reduction, weft_dtype *out_dtype, int *out_per_elem)
{
  bool is_complex = dtype == WEFT_C64 || dtype == WEFT_C128;

  *out_per_elem = is_complex ? 2 : 1;
  *out_dtype = dtype == WEFT_C64 ? WEFT_F32 : dtype == WEFT_C128 ? WEFT_F64 : dtype;
  switch (dtype) {
  case WEFT_F16: case WEFT_BF16: case WEFT_F32: case WEFT_F64: return reduction >= WEFT_SUM && reduction <= WEFT_MAX;
  case WEFT_C64: case WEFT_C128: return reduction == WEFT_SUM;
  case WEFT_PRED: case WEFT_S8: case WEFT_U8: case WEFT_S16: case WEFT_U16: case WEFT_S32: case WEFT_U32: case WEFT_S64:
  case WEFT_U64: return reduction >= WEFT_SUM && reduction <= WEFT_XOR;
  default: return false;
  }
}

/* ---- one operation ---------------------------------------------------------------------------------------------- */

/* "b64" or "b32": what a word of the element's type is. */
static int word_bits(const writer *w) { return w->bytes == 8 ? 64 : 32; }
static const char *word_register(const writer *w) { return w->bytes == 8 ? "%l" : "%v"; }

static const char *bitwise_name(weft_reduction reduction)
{
  return reduction == WEFT_AND ? "and" : reduction == WEFT_OR ? "or" : "xor";
}

/* acc = minimum or maximum of acc and x as IEEE 754-2019 has it: NaN wins, -0 < +0. */
static void put_float_extreme(const writer *w, const char *acc, const char *x)
{
  int bits = word_bits(w);
  const char *t = bits == 64 ? "%lt" : "%t";
  bool least = w->reduction == WEFT_MIN;

  fprintf(w->out, "  %s.b%d %s, %s, %s;\n", least ? "or" : "and", bits, t, acc, x);
  fprintf(w->out, "  setp.eq.f%d %%p, %s, %s;\n  selp.b%d %s, %s, %s, %%p;\n", bits, acc, x, bits, t, t, x);
  fprintf(w->out, "  setp.%s.f%d %%p, %s, %s;\n  setp.nan.f%d %%q, %s, %s;\n  or.pred %%p, %%p, %%q;\n",
          least ? "lt" : "gt", bits, acc, x, bits, acc, acc);
  fprintf(w->out, "  selp.b%d %s, %s, %s, %%p;\n", bits, acc, acc, t);
}

/* acc = acc (+) x, both in registers of a word. */
static void put_operation(const writer *w, const char *acc, const char *x)
{
  int bits = word_bits(w);
  const char *extreme = w->reduction == WEFT_MIN ? "min" : "max";

  if (w->bitwise) {
    fprintf(w->out, "  %s.b%d %s, %s, %s;\n", bitwise_name(w->reduction), bits, acc, acc, x);
  } else if (w->form == FLOAT) {
    if (w->reduction == WEFT_SUM) fprintf(w->out, "  add.rn.f%d %s, %s, %s;\n", bits, acc, acc, x);
    else if (w->reduction == WEFT_PRODUCT) fprintf(w->out, "  mul.rn.f%d %s, %s, %s;\n", bits, acc, acc, x);
    else put_float_extreme(w, acc, x);
  } else if (w->reduction == WEFT_SUM) {
    fprintf(w->out, "  add.u%d %s, %s, %s;\n", bits, acc, acc, x);
  } else if (w->reduction == WEFT_PRODUCT) {
    fprintf(w->out, "  mul.lo.u%d %s, %s, %s;\n", bits, acc, acc, x);
  } else {
    fprintf(w->out, "  %s.%c%d %s, %s, %s;\n", extreme, w->form == SIGNED ? 's' : 'u', bits, acc, acc, x);
  }
}

/* ---- elements in words ------------------------------------------------------------------------------------------ */

/* `to` = element `lane` of the word %v<word>, in 32 bits. */
static void put_unpack(const writer *w, const char *to, int word, int lane)
{
  int bits = 8 * w->bytes, up = 32 - bits - lane * bits;

  if (w->dtype == WEFT_BF16) {
    if (lane == 0) fprintf(w->out, "  shl.b32 %s, %%v%d, 16;\n", to, word);
    else fprintf(w->out, "  and.b32 %s, %%v%d, 0xffff0000;\n", to, word);
  } else if (w->dtype == WEFT_F16) {
    fprintf(w->out, "  mov.b32 {%%h0, %%h1}, %%v%d;\n  cvt.f32.f16 %s, %%h%d;\n", word, to, lane);
  } else {
    fprintf(w->out, "  shl.b32 %s, %%v%d, %d;\n  shr.%c32 %s, %s, %d;\n", to, word, up, w->form == SIGNED ? 's' : 'u',
            to, to, 32 - bits);
  }
}

/* Adds %a as element `lane` to the word %r; of bf16 and f16 it is an f32, which is rounded to the nearest, ties to
 * even. (sm_75 has no instruction for bf16.) */
static void put_pack(const writer *w, int lane)
{
  int bits = 8 * w->bytes;

  if (w->dtype == WEFT_BF16)
    fprintf(w->out, "  setp.nan.f32 %%p, %%a, %%a;\n  or.b32 %%t, %%a, 0x400000;\n  bfe.u32 %%x, %%a, 16, 1;\n"
                    "  add.u32 %%a, %%a, %%x;\n  add.u32 %%a, %%a, 0x7fff;\n  selp.b32 %%a, %%t, %%a, %%p;\n"
                    "  shr.u32 %%a, %%a, 16;\n");
  else if (w->dtype == WEFT_F16) fprintf(w->out, "  cvt.rn.f16.f32 %%h0, %%a;\n  cvt.u32.u16 %%a, %%h0;\n");
  else fprintf(w->out, "  and.b32 %%a, %%a, %d;\n", (1 << bits) - 1);
  if (lane == 0) fprintf(w->out, "  mov.b32 %%r, %%a;\n");
  else fprintf(w->out, "  shl.b32 %%a, %%a, %d;\n  or.b32 %%r, %%r, %%a;\n", lane * bits);
}

/* Folds word `word` of the ranks; the words of rank k begin at number k * words. */
static void put_word(const writer *w, int ranks, int words, int word, int lanes)
{
  char acc[16], x[16];

  if (ranks == 1) return;
  snprintf(acc, sizeof acc, "%s%d", word_register(w), word);
  if (w->bitwise || w->bytes >= 4) {
    for (int k = 1; k < ranks; k++) {
      snprintf(x, sizeof x, "%s%d", word_register(w), k * words + word);
      put_operation(w, acc, x);
    }
    return;
  }
  for (int lane = 0; lane < lanes; lane++) {
    put_unpack(w, "%a", word, lane);
    for (int k = 1; k < ranks; k++) {
      put_unpack(w, "%x", k * words + word, lane);
      put_operation(w, "%a", "%x");
    }
    put_pack(w, lane);
  }
  fprintf(w->out, "  mov.b32 %%v%d, %%r;\n", word);
}

/* ---- loops ------------------------------------------------------------------------------------------------------ */

/* "ld.global.v4.b32 {%v0, %v1, %v2, %v3}" and the like, as the instruction and its registers. */
static void put_access(const writer *w, const char *instruction, bool wide, int first, char *out, size_t size)
{
  const char *name = word_register(w);

  if (!wide)
    snprintf(out, size, "%s.global.%c%d %s%d", instruction, w->bytes < 4 ? 'u' : 'b', 8 * w->bytes, name, first);
  else if (w->bytes == 8)
    snprintf(out, size, "%s.global.v2.b64 {%s%d, %s%d}", instruction, name, first, name, first + 1);
  else
    snprintf(out, size, "%s.global.v4.b32 {%s%d, %s%d, %s%d, %s%d}", instruction, name, first, name, first + 1, name,
             first + 2, name, first + 3);
}

/* Loads, folds and stores what lies `%off` behind the pointers. */
static void put_body(const writer *w, int ranks, bool wide)
{
  int words = wide ? GPU_PEER_STEP_BYTES * 8 / word_bits(w) : 1, lanes = wide && w->bytes < 4 ? 4 / w->bytes : 1;
  char access[100], *registers;

  for (int k = 0; k < ranks; k++) {
    put_access(w, "ld", wide, k * words, access, sizeof access);
    fprintf(w->out, "  add.s64 %%at, %%in%d, %%off;\n  %s, [%%at];\n", k, access);
  }
  for (int word = 0; word < words; word++) put_word(w, ranks, words, word, lanes);
  put_access(w, "st", wide, 0, access, sizeof access);
  for (registers = access; *registers != ' '; registers++) {}
  fprintf(w->out, "  add.s64 %%at, %%out, %%off;\n  %.*s [%%at],%s;\n", (int)(registers - access), access, registers);
}

/* A loop over [%i, `end`) with the grid's stride; an index counts `unit` bytes. */
static void put_loop_over(writer *w, int ranks, bool wide, const char *end, int unit)
{
  int loop = w->label++, done = w->label++;

  fprintf(w->out, "$L%d:\n  setp.ge.u64 %%p, %%i, %s;\n  @%%p bra $L%d;\n  mul.lo.u64 %%off, %%i, %d;\n", loop, end,
          done, unit);
  put_body(w, ranks, wide);
  fprintf(w->out, "  add.s64 %%i, %%i, %%stride;\n  bra $L%d;\n$L%d:\n", loop, done);
}

/* A place in the parameter where an address is, and the number of a block behind that address. */
typedef struct place { int at, block; } place;

static void put_address(const writer *w, const char *name, place p)
{
  fprintf(w->out, "  ld.param.u64 %s, [args+%d];\n", name, p.at);
  if (p.block)
    fprintf(w->out, "  ld.param.u64 %%off, [args+%d];\n  mad.lo.u64 %s, %%off, %d, %s;\n", AT(block), name, p.block,
            name);
  fprintf(w->out, "  cvta.to.global.u64 %s, %s;\n", name, name);
}

/* to = the fold of `ranks` arrays, whose addresses stand one after the other from `from` on. */
static void put_fold(writer *w, int ranks, place from, place to)
{
  char name[16];

  for (int k = 0; k < ranks; k++) {
    snprintf(name, sizeof name, "%%in%d", k);
    put_address(w, name, (place){from.at + 8 * k, from.block});
  }
  put_address(w, "%out", to);
  fprintf(w->out, "  ld.param.u64 %%steps, [args+%d];\n  ld.param.u64 %%count, [args+%d];\n", AT(steps), AT(count));
  fprintf(w->out,
          "  mov.u32 %%t, %%ctaid.x;\n  mov.u32 %%x, %%ntid.x;\n  cvt.u64.u32 %%i, %%me;\n"
          "  mad.wide.u32 %%first, %%t, %%x, %%i;\n  mov.u32 %%t, %%nctaid.x;\n  mul.wide.u32 %%stride, %%t, %%x;\n"
          "  mov.u64 %%i, %%first;\n");
  put_loop_over(w, ranks, true, "%steps", GPU_PEER_STEP_BYTES);
  fprintf(w->out, "  mad.lo.u64 %%i, %%steps, %d, %%first;\n", GPU_PEER_STEP_BYTES / w->bytes);
  put_loop_over(w, ranks, false, "%count", w->bytes);
}

/* ---- the barrier ------------------------------------------------------------------------------------------------ */

/* The block waits for the blocks of its number on all ranks.  Thread k tells rank k, and then waits for rank k.  What
 * the block has written before can be read behind the barrier, on every rank. */
static void put_barrier(writer *w)
{
  int spin = w->label++, met = w->label++, end = w->label++;

  if (w->multicast) fprintf(w->out, "  fence.proxy.alias;\n");
  fprintf(w->out, "  barrier.sync 0;\n  setp.ge.u32 %%p, %%me, %d;\n  @%%p bra $L%d;\n", w->ranks, met);
  fprintf(w->out, "  ld.param.u32 %%t, [args+%d];\n  mov.u32 %%x, %%ctaid.x;\n", AT(rank));
  fprintf(w->out, "  mad.lo.u32 %%r, %%x, %d, %%t;\n  mul.wide.u32 %%off, %%r, 4;\n",
          GPU_PEER_RANKS); /* own slot at a peer */
  for (int k = 0; k < w->ranks; k++) {
    fprintf(w->out, "  setp.eq.u32 %%p, %%me, %d;\n  @%%p ld.param.u64 %%at, [args+%d];\n", k, AT(area) + 8 * k);
    fprintf(w->out, "  setp.eq.u32 %%q, %%t, %d;\n  @%%q ld.param.u64 %%area, [args+%d];\n", k, AT(area) + 8 * k);
  }
  fprintf(w->out,
          "  cvta.to.global.u64 %%at, %%at;\n  cvta.to.global.u64 %%area, %%area;\n  add.s64 %%at, %%at, %%off;\n");
  fprintf(w->out, "  mul.wide.u32 %%off, %%x, 4;\n  add.s64 %%counter, %%area, %%off;\n");
  fprintf(w->out, "  ld.global.u32 %%round, [%%counter+%d];\n  add.u32 %%round, %%round, 1;\n", GPU_PEER_COUNTERS_AT);
  fprintf(w->out, "  st.release.sys.global.u32 [%%at+%d], %%round;\n", GPU_PEER_SLOTS_AT);
  fprintf(w->out, "  mad.lo.u32 %%r, %%x, %d, %%me;\n  mul.wide.u32 %%off, %%r, 4;\n  add.s64 %%at, %%area, %%off;\n",
          GPU_PEER_RANKS);
  fprintf(w->out, "  ld.param.u64 %%abort, [args+%d];\n  cvta.to.global.u64 %%abort, %%abort;\n  mov.u32 %%x, 0;\n",
          AT(abort));
  fprintf(w->out, "$L%d:\n  ld.acquire.sys.global.u32 %%t, [%%at+%d];\n", spin, GPU_PEER_SLOTS_AT);
  fprintf(w->out, "  sub.u32 %%t, %%t, %%round;\n  setp.ge.s32 %%p, %%t, 0;\n  @%%p bra $L%d;\n", met);
  fprintf(w->out, "  add.u32 %%x, %%x, 1;\n  and.b32 %%t, %%x, %d;\n  setp.ne.u32 %%p, %%t, 0;\n  @%%p bra $L%d;\n",
          SPINS - 1, spin);
  fprintf(w->out, "  ld.relaxed.sys.global.u32 %%t, [%%abort];\n  setp.ne.u32 %%p, %%t, 0;\n  @%%p bra $L%d;\n", met);
  fprintf(w->out, "  nanosleep.u32 %d;\n  bra $L%d;\n", NAP_NS, spin);
  fprintf(w->out, "$L%d:\n  barrier.sync 0;\n  setp.ne.u32 %%p, %%me, 0;\n  @%%p bra $L%d;\n", met, end);
  fprintf(w->out, "  st.global.u32 [%%counter+%d], %%round;\n$L%d:\n", GPU_PEER_COUNTERS_AT, end);
}

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

static void put_begin(const writer *w, const char *name)
{
  fprintf(w->out, "\n.visible .entry %s(.param .align 8 .b8 args[%zu])\n{\n", name, sizeof(gpu_peer_args));
  fprintf(w->out,
          "  .reg .pred %%p, %%q;\n  .reg .b16 %%h<2>;\n  .reg .b32 %%me, %%a, %%x, %%t, %%r, %%round, %%v<%d>;\n",
          4 * w->ranks);
  fprintf(w->out,
          "  .reg .b64 %%in<%d>, %%out, %%at, %%off, %%i, %%first, %%stride, %%steps, %%count, %%lt, %%l<%d>;\n",
          w->ranks, 2 * w->ranks);
  if (w->multicast)
    fprintf(w->out, "  .reg .b64 %%send, %%own, %%all, %%to, %%bytes, %%block, %%slot, %%rank, %%step, %%outs;\n");
  fprintf(w->out, "  .reg .b64 %%area, %%counter, %%abort;\n  mov.u32 %%me, %%tid.x;\n");
}

static void put_end(const writer *w) { fprintf(w->out, "  ret;\n}\n"); }

static void put_gather(writer *w)
{
  put_begin(w, "gather");
  put_fold(w, 1, (place){AT(send), 0}, (place){AT(scratch), 0});
  put_barrier(w);
  for (int k = 0; k < w->ranks; k++) put_fold(w, 1, (place){AT(in) + 8 * k, 0}, (place){AT(out), k});
  put_end(w);
}

/* A thread copies the elements of each block that its peers with the same number fold. */
static void put_scatter(writer *w)
{
  put_begin(w, "scatter");
  for (int k = 0; k < w->ranks; k++) put_fold(w, 1, (place){AT(send), k}, (place){AT(scratch), k});
  put_barrier(w);
  put_fold(w, w->ranks, (place){AT(in), 0}, (place){AT(out), 0});
  put_end(w);
}

/* Copies what is left of the piece in units of `bytes` bytes: from byte %first to byte `end`. Thread %i of the %stride
 * threads does every %stride-th unit. */
static void put_copies(writer *w, const char *type, const char *registers, int bytes, const char *end)
{
  int loop = w->label++, done = w->label++;

  fprintf(w->out, "  mad.lo.u64 %%off, %%i, %d, %%first;\n  mul.lo.u64 %%step, %%stride, %d;\n", bytes, bytes);
  fprintf(w->out, "$L%d:\n  setp.ge.u64 %%p, %%off, %s;\n  @%%p bra $L%d;\n", loop, end, done);
  fprintf(w->out, "  add.s64 %%at, %%from, %%off;\n  ld.global.%s %s, [%%at];\n", type, registers);
  fprintf(w->out, "  add.s64 %%at, %%to, %%off;\n  st.global.%s [%%at], %s;\n", type, registers);
  fprintf(w->out, "  add.s64 %%off, %%off, %%step;\n  bra $L%d;\n$L%d:\n", loop, done);
}

/* %end = the end of the last whole unit behind %first; `%end` is %first if an address is not aligned. */
static void put_end_of_units(const writer *w, int bytes)
{
  fprintf(w->out, "  and.b64 %%off, %%both, %d;\n  setp.ne.u64 %%p, %%off, 0;\n", bytes - 1);
  fprintf(w->out, "  and.b64 %%end, %%bytes, %d;\n  selp.b64 %%end, %%first, %%end, %%p;\n", -bytes);
}

/* In units of 16 bytes as far as they go, then of 4 bytes, then byte by byte. */
static void put_pieces(writer *w)
{
  fprintf(w->out, "\n.visible .entry pieces(.param .align 8 .b8 args[%zu])\n{\n", sizeof(gpu_peer_pieces));
  fprintf(w->out, "  .reg .pred %%p;\n  .reg .b32 %%t, %%x, %%v<4>;\n"
                  "  .reg .b64 %%from, %%to, %%bytes, %%both, %%i, %%first, %%end, %%stride, %%step, %%off, %%at;\n");
  fprintf(w->out,
          "  mov.u32 %%t, %%ctaid.y;\n  mov.u64 %%at, args;\n  mul.wide.u32 %%off, %%t, %zu;\n"
          "  add.s64 %%at, %%at, %%off;\n",
          sizeof(gpu_peer_piece));
  fprintf(w->out,
          "  ld.param.u64 %%from, [%%at+%zu];\n  ld.param.u64 %%to, [%%at+%zu];\n"
          "  ld.param.u64 %%bytes, [%%at+%zu];\n",
          offsetof(gpu_peer_pieces, piece) + offsetof(gpu_peer_piece, from),
          offsetof(gpu_peer_pieces, piece) + offsetof(gpu_peer_piece, to),
          offsetof(gpu_peer_pieces, piece) + offsetof(gpu_peer_piece, bytes));
  fprintf(w->out, "  cvta.to.global.u64 %%from, %%from;\n  cvta.to.global.u64 %%to, %%to;\n"
                  "  or.b64 %%both, %%from, %%to;\n");
  fprintf(w->out, "  mov.u32 %%t, %%tid.x;\n  cvt.u64.u32 %%i, %%t;\n  mov.u32 %%t, %%ctaid.x;\n"
                  "  mov.u32 %%x, %%ntid.x;\n  mad.wide.u32 %%i, %%t, %%x, %%i;\n  mov.u32 %%t, %%nctaid.x;\n"
                  "  mul.wide.u32 %%stride, %%t, %%x;\n  mov.u64 %%first, 0;\n");
  put_end_of_units(w, GPU_PEER_STEP_BYTES);
  put_copies(w, "v4.b32", "{%v0, %v1, %v2, %v3}", GPU_PEER_STEP_BYTES, "%end");
  fprintf(w->out, "  mov.u64 %%first, %%end;\n");
  put_end_of_units(w, 4);
  put_copies(w, "b32", "%v0", 4, "%end");
  fprintf(w->out, "  mov.u64 %%first, %%end;\n");
  put_copies(w, "u8", "%v0", 1, "%bytes");
  put_end(w);
}

static void put_module(writer *w)
{
  fprintf(w->out, ".version 7.0\n.target sm_75\n.address_size 64\n");
  put_begin(w, "barrier");
  put_barrier(w);
  put_end(w);
  if (w->reduction == WEFT_REDUCE_NONE) {
    put_gather(w);
    put_pieces(w);
    return;
  }
  put_begin(w, "fold");
  put_fold(w, w->ranks, (place){AT(in), 0}, (place){AT(out), 0});
  put_end(w);
  put_begin(w, "one_shot");
  put_fold(w, 1, (place){AT(send), 0}, (place){AT(scratch), 0});
  put_barrier(w);
  put_fold(w, w->ranks, (place){AT(in), 0}, (place){AT(out), 0});
  put_end(w);
  put_scatter(w);
}

/* ---- kernels with multicast -------------------------------------------------------------------------------------- */

enum { STEP_WORDS = GPU_PEER_STEP_BYTES / 4 };

static void put_pointer(const writer *w, const char *name, int at)
{
  fprintf(w->out, "  ld.param.u64 %s, [args+%d];\n  cvta.to.global.u64 %s, %s;\n", name, at, name, name);
}

static void put_begin_multicast(const writer *w, const char *name)
{
  put_begin(w, name);
  put_pointer(w, "%send", AT(send));
  put_pointer(w, "%own", AT(scratch));
  put_pointer(w, "%all", AT(all));
  put_pointer(w, "%out", AT(out));
  fprintf(w->out,
          "  ld.param.u64 %%bytes, [args+%d];\n  ld.param.u64 %%block, [args+%d];\n  ld.param.u64 %%slot, [args+%d];\n"
          "  ld.param.u64 %%steps, [args+%d];\n  ld.param.u64 %%outs, [args+%d];\n  ld.param.u32 %%t, [args+%d];\n",
          AT(bytes), AT(block), AT(slot), AT(steps), AT(out_steps), AT(rank));
  fprintf(w->out,
          "  cvt.u64.u32 %%rank, %%t;\n  add.s64 %%count, %%bytes, %d;\n  shr.u64 %%count, %%count, 4;\n"
          "  mov.u32 %%t, %%ctaid.x;\n  mov.u32 %%x, %%ntid.x;\n  cvt.u64.u32 %%i, %%me;\n"
          "  mad.wide.u32 %%first, %%t, %%x, %%i;\n  mov.u32 %%t, %%nctaid.x;\n  mul.wide.u32 %%stride, %%t, %%x;\n",
          GPU_PEER_STEP_BYTES - 1);
  _Static_assert(GPU_PEER_STEP_BYTES == 1 << 4, "the shift");
}

/* A loop over all steps, or over the rank's share of what each thread has: one of `ranks` in turn.  In it %off is where
 * step %i begins. */
typedef struct loop { int begin, end; } loop;

static loop put_loop_begin(writer *w, bool share)
{
  loop l = {w->label++, w->label++};

  fprintf(w->out,
          share ? "  mad.lo.u64 %%i, %%rank, %%stride, %%first;\n  mul.lo.u64 %%step, %%stride, %d;\n"
                : "  mov.u64 %%i, %%first;\n  mov.u64 %%step, %%stride;\n",
          w->ranks);
  fprintf(w->out, "$L%d:\n  setp.ge.u64 %%p, %%i, %%count;\n  @%%p bra $L%d;\n  shl.b64 %%off, %%i, 4;\n", l.begin,
          l.end);
  return l;
}

static void put_loop_end(const writer *w, loop l)
{
  fprintf(w->out, "  add.s64 %%i, %%i, %%step;\n  bra $L%d;\n$L%d:\n", l.begin, l.end);
}

/* Loads or stores the four words from %v<first> on, %off behind `base`. */
static void put_vector(const writer *w, const char *instruction, const char *base, int first, bool is_store)
{
  char registers[64];

  snprintf(registers, sizeof registers, "{%%v%d, %%v%d, %%v%d, %%v%d}", first, first + 1, first + 2, first + 3);
  fprintf(w->out, "  add.s64 %%at, %s, %%off;\n", base);
  if (is_store) fprintf(w->out, "  %s [%%at], %s;\n", instruction, registers);
  else fprintf(w->out, "  %s %s, [%%at];\n", instruction, registers);
}

/* The four words from %v<first> on = a step of an array of any alignment, with zeros behind its end. */
static void put_load_operand(writer *w, const char *base, int first)
{
  int bytewise = w->label++, done = w->label++;

  fprintf(w->out, "  setp.ge.u64 %%p, %%i, %%steps;\n  @%%p bra $L%d;\n", bytewise);
  put_vector(w, "ld.global.v4.b32", base, first, false);
  fprintf(w->out, "  bra $L%d;\n$L%d:\n  add.s64 %%at, %s, %%off;\n", done, bytewise, base);
  for (int b = 0; b < GPU_PEER_STEP_BYTES; b++) {
    int word = first + b / 4;
    if (b % 4 == 0) fprintf(w->out, "  mov.b32 %%v%d, 0;\n", word);
    fprintf(w->out,
            "  add.s64 %%lt, %%off, %d;\n  setp.lt.u64 %%p, %%lt, %%bytes;\n  mov.b32 %%t, 0;\n"
            "  @%%p ld.global.u8 %%t, [%%at+%d];\n  shl.b32 %%t, %%t, %d;\n  or.b32 %%v%d, %%v%d, %%t;\n",
            b, b, b % 4 * 8, word, word);
  }
  fprintf(w->out, "$L%d:\n", done);
}

/* The reverse, to an array of `%outs` whole steps. */
static void put_store_result(writer *w, const char *base)
{
  int bytewise = w->label++, done = w->label++;

  fprintf(w->out, "  setp.ge.u64 %%p, %%i, %%outs;\n  @%%p bra $L%d;\n", bytewise);
  put_vector(w, "st.global.v4.b32", base, 0, true);
  fprintf(w->out, "  bra $L%d;\n$L%d:\n  add.s64 %%at, %s, %%off;\n", done, bytewise, base);
  for (int b = 0; b < GPU_PEER_STEP_BYTES; b++)
    fprintf(w->out,
            "  add.s64 %%lt, %%off, %d;\n  setp.lt.u64 %%p, %%lt, %%bytes;\n  shr.u32 %%t, %%v%d, %d;\n"
            "  @%%p st.global.u8 [%%at+%d], %%t;\n",
            b, b / 4, b % 4 * 8, b);
  fprintf(w->out, "$L%d:\n", done);
}

static void put_load_step(writer *w, const char *base) { put_load_operand(w, base, 0); }
static void put_load_own(writer *w, const char *base) { put_vector(w, "ld.global.v4.b32", base, 0, false); }
static void put_store_own(writer *w, const char *base) { put_vector(w, "st.global.v4.b32", base, 0, true); }

/* The type only says how many bits there are. */
static void put_store_all(writer *w, const char *base)
{
  put_vector(w, "multimem.st.relaxed.sys.global.v4.f32", base, 0, true);
}

/* Words of 64 bits, as two of 32 bits, and the reverse. */
static void put_split(const writer *w)
{
  for (int k = 0; k < 2; k++) fprintf(w->out, "  mov.b64 {%%v%d, %%v%d}, %%l%d;\n", 2 * k, 2 * k + 1, k);
}
static void put_join(const writer *w, int ranks)
{
  for (int k = 0; k < 2 * ranks; k++) fprintf(w->out, "  mov.b64 %%l%d, {%%v%d, %%v%d};\n", k, 2 * k, 2 * k + 1);
}

/* The reduction of a step of all scratches.  There are no vectors of integers. */
static void put_load_reduce(writer *w, const char *base)
{
  bool wide = w->bytes == 8 || w->bitwise;
  char operation[16];

  if (w->bitwise) snprintf(operation, sizeof operation, "%s.b64", bitwise_name(w->reduction));
  else if (w->reduction == WEFT_SUM) snprintf(operation, sizeof operation, "add.u%d", 8 * w->bytes);
  else
    snprintf(operation, sizeof operation, "%s.%c%d", w->reduction == WEFT_MIN ? "min" : "max",
             w->form == SIGNED ? 's' : 'u', 8 * w->bytes);
  fprintf(w->out, "  add.s64 %%at, %s, %%off;\n", base);
  for (int k = 0; k < (wide ? STEP_WORDS / 2 : STEP_WORDS); k++)
    fprintf(w->out, "  multimem.ld_reduce.relaxed.sys.global.%s %s%d, [%%at+%d];\n", operation, wide ? "%l" : "%v", k,
            wide ? 8 * k : 4 * k);
  if (wide) put_split(w);
}

/* A loop over all steps, or over the rank's share, that loads and stores each. */
typedef void put_one(writer *w, const char *base);
static void put_each(writer *w, bool share, put_one *load, const char *from, put_one *store, const char *to)
{
  loop l = put_loop_begin(w, share);

  load(w, from);
  store(w, to);
  put_loop_end(w, l);
}

/* name = base + k blocks of the size that is in `unit`. */
static void put_block(const writer *w, const char *name, const char *base, const char *unit, int k)
{
  fprintf(w->out, "  mad.lo.u64 %s, %s, %d, %s;\n", name, unit, k, base);
}

static void put_multicast_reduce(writer *w)
{
  put_begin_multicast(w, "multicast_reduce");
  put_each(w, false, put_load_step, "%send", put_store_own, "%own");
  put_barrier(w);
  put_each(w, false, put_load_reduce, "%all", put_store_result, "%out");
  put_end(w);
}

static void put_multicast_two_shot(writer *w)
{
  put_begin_multicast(w, "multicast_two_shot");
  put_each(w, false, put_load_step, "%send", put_store_own, "%own");
  put_barrier(w);
  put_each(w, true, put_load_reduce, "%all", put_store_all, "%all");
  put_barrier(w);
  put_each(w, false, put_load_own, "%own", put_store_result, "%out");
  put_end(w);
}

static void put_multicast_scatter(writer *w)
{
  put_begin_multicast(w, "multicast_scatter");
  for (int k = 0; k < w->ranks; k++) {
    put_block(w, "%in0", "%send", "%block", k);
    put_block(w, "%to", "%own", "%slot", k);
    put_each(w, false, put_load_step, "%in0", put_store_own, "%to");
  }
  put_barrier(w);
  fprintf(w->out, "  mad.lo.u64 %%all, %%slot, %%rank, %%all;\n");
  put_each(w, false, put_load_reduce, "%all", put_store_result, "%out");
  put_end(w);
}

static void put_multicast_gather(writer *w)
{
  put_begin_multicast(w, "multicast_gather");
  fprintf(w->out, "  mad.lo.u64 %%to, %%slot, %%rank, %%all;\n");
  put_each(w, false, put_load_step, "%send", put_store_all, "%to");
  put_barrier(w);
  for (int k = 0; k < w->ranks; k++) {
    put_block(w, "%in0", "%own", "%slot", k);
    put_block(w, "%to", "%out", "%block", k);
    put_each(w, false, put_load_own, "%in0", put_store_result, "%to");
  }
  put_end(w);
}

static void put_multicast_broadcast(writer *w)
{
  int sent = w->label++, end = w->label++;

  put_begin_multicast(w, "multicast_broadcast");
  fprintf(w->out, "  ld.param.u64 %%at, [args+%d];\n  setp.eq.u64 %%p, %%at, 0;\n  @%%p bra $L%d;\n", AT(send), sent);
  put_each(w, false, put_load_step, "%send", put_store_all, "%all");
  fprintf(w->out, "$L%d:\n", sent);
  put_barrier(w);
  fprintf(w->out, "  ld.param.u64 %%at, [args+%d];\n  setp.eq.u64 %%p, %%at, 0;\n  @%%p bra $L%d;\n", AT(out), end);
  put_each(w, false, put_load_own, "%own", put_store_result, "%out");
  fprintf(w->out, "$L%d:\n", end);
  put_end(w);
}

static void put_multicast_spread(writer *w)
{
  char name[16];

  put_begin_multicast(w, "multicast_spread");
  for (int k = 0; k < w->ranks; k++) {
    snprintf(name, sizeof name, "%%in%d", k);
    put_pointer(w, name, AT(in) + 8 * k);
  }
  loop l = put_loop_begin(w, true);
  for (int k = 0; k < w->ranks; k++) {
    snprintf(name, sizeof name, "%%in%d", k);
    put_load_operand(w, name, k * STEP_WORDS);
  }
  if (w->bytes == 8) put_join(w, w->ranks);
  int words = w->bytes == 8 ? STEP_WORDS / 2 : STEP_WORDS;
  for (int word = 0; word < words; word++) put_word(w, w->ranks, words, word, w->bytes < 4 ? 4 / w->bytes : 1);
  if (w->bytes == 8) put_split(w);
  put_store_all(w, "%all");
  put_loop_end(w, l);
  put_barrier(w);
  put_each(w, false, put_load_own, "%own", put_store_result, "%out");
  put_end(w);
}

static void put_multicast_module(writer *w)
{
  fprintf(w->out, ".version 8.1\n.target sm_90\n.address_size 64\n");
  if (w->reduction == WEFT_REDUCE_NONE) {
    put_multicast_gather(w);
    put_multicast_broadcast(w);
    return;
  }
  put_multicast_spread(w);
  if (!gpu_peer_multicast_reduces(w->dtype, w->reduction)) return;
  put_multicast_reduce(w);
  put_multicast_two_shot(w);
  put_multicast_scatter(w);
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

/* On pred, sum and maximum are or, product and minimum are and. */
static weft_reduction of_pred(weft_reduction reduction)
{
  switch (reduction) {
  case WEFT_SUM: case WEFT_MAX: return WEFT_OR;
  case WEFT_PRODUCT: case WEFT_MIN: return WEFT_AND;
  default: return reduction;
  }
}

bool gpu_peer_multicast_reduces(weft_dtype dtype, weft_reduction reduction)
{
  weft_dtype kernels;
  int per_elem;

  if (!gpu_peer_reduces(dtype, reduction, &kernels, &per_elem)) return false;
  reduction = dtype == WEFT_PRED ? of_pred(reduction) : reduction;
  if (reduction == WEFT_AND || reduction == WEFT_OR || reduction == WEFT_XOR) return true;
  if (reduction != WEFT_SUM && reduction != WEFT_MIN && reduction != WEFT_MAX) return false;
  return dtype == WEFT_S32 || dtype == WEFT_U32 || dtype == WEFT_S64 || dtype == WEFT_U64;
}

static char *write_module(weft_dtype dtype, weft_reduction reduction, int ranks, bool multicast)
{
  writer w = {.dtype = dtype, .reduction = dtype == WEFT_PRED ? of_pred(reduction) : reduction, .ranks = ranks,
              .multicast = multicast};
  char *text = NULL;
  size_t size;

  w.bytes = WEFT_MAX((int)weft_dtype_bytes(dtype), 1);
  w.form = weft_dtype_is_float(dtype) ? FLOAT : weft_dtype_is_signed(dtype) ? SIGNED : UNSIGNED;
  w.bitwise = w.reduction == WEFT_AND || w.reduction == WEFT_OR || w.reduction == WEFT_XOR;
  w.out = open_memstream(&text, &size);
  if (!w.out) return NULL;
  if (multicast) put_multicast_module(&w);
  else put_module(&w);
  bool failed = ferror(w.out) != 0;
  if (fclose(w.out) != 0 || failed) {
    free(text);
    return NULL;
  }
  return text;
}

char *gpu_peer_ptx(weft_dtype dtype, weft_reduction reduction, int ranks)
{
  return write_module(dtype, reduction, ranks, false);
}

char *gpu_peer_multicast_ptx(weft_dtype dtype, weft_reduction reduction, int ranks)
{
  return write_module(dtype, reduction, ranks, true);
}
