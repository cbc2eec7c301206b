/* tests/gpu/ptx_test.c -- the PTX interpreter: each family of instructions against exact arithmetic or the words of the
 * PTX manual, what warps and blocks do together, and that each check of a launch fires. */
#include "ptx_run.h"

#include <math.h>
#include <time.h>

#define HEAD ".version 7.8\n.target sm_90\n.address_size 64\n"

/* ---- one instruction on given operands ---- */

/* Registers %r, %h, %d, %f, %g hold the operands a, b, c as 1, 2, 3 in 32, 16 and 64 bits, f32 and f64; the result is
 * number 0 of the kind that `result` names. */
static const char frame[] = HEAD
  ".visible .entry k(.param .u64 out, .param .u64 in)\n{\n"
  ".reg .pred %%p<8>; .reg .b16 %%h<8>; .reg .b32 %%r<16>; .reg .b64 %%d<16>; .reg .f32 %%f<8>; .reg .f64 %%g<8>;\n"
  "ld.param.u64 %%d14, [out]; ld.param.u64 %%d15, [in]; mov.u32 %%r15, %%tid.x; mul.wide.u32 %%d13, %%r15, 24;\n"
  "add.s64 %%d15, %%d15, %%d13; mul.wide.u32 %%d13, %%r15, 8; add.s64 %%d14, %%d14, %%d13;\n"
  "ld.global.u64 %%d1, [%%d15]; ld.global.u64 %%d2, [%%d15+8]; ld.global.u64 %%d3, [%%d15+16];\n"
  "cvt.u32.u64 %%r1, %%d1; cvt.u32.u64 %%r2, %%d2; cvt.u32.u64 %%r3, %%d3; cvt.u16.u64 %%h1, %%d1; cvt.u16.u64 %%h2, %%d2;\n"
  "cvt.u16.u64 %%h3, %%d3; mov.b32 %%f1, %%r1; mov.b32 %%f2, %%r2; mov.b32 %%f3, %%r3; mov.b64 %%g1, %%d1; mov.b64 %%g2, %%d2;\n"
  "mov.b64 %%g3, %%d3; mov.u64 %%d0, 0;\n"
  "%s\n%s\nst.global.u64 [%%d14], %%d0;\nret;\n}\n";

static const char *widen(char kind)
{
  switch (kind) {
  case 'h': return "cvt.u64.u16 %d0, %h0;";
  case 'r': return "cvt.u64.u32 %d0, %r0;";
  case 'f': return "mov.b32 %r0, %f0; cvt.u64.u32 %d0, %r0;";
  case 'g': return "mov.b64 %d0, %g0;";
  case 'p': return "selp.u64 %d0, 1, 0, %p0;";
  default: return "";
  }
}

/* Runs `body` on n triples of operands, at most 1024 at once. */
static void evaluate(const char *body, char kind, const uint64_t (*in)[3], uint64_t *out, unsigned n)
{
  char text[4096], error[400];
  snprintf(text, sizeof text, frame, body, widen(kind));
  run_memory m = {.count = 0};
  ptx_module *module = run_load(&m, text);
  uint64_t params[2] = {run_add(&m, out, n * sizeof *out), run_add(&m, (void *)(uintptr_t)in, n * sizeof *in)};
  int rc = run_kernel(&m, module, (ptx_launch){.block = {n}}, params, NULL, error, sizeof error);
  if (rc) fail_msg("%s: %d %s", body, rc, error);
  ptx_free(module);
}

typedef struct row { char kind; const char *body; uint64_t in[3], want; } row;

static void check_rows(const row *rows, size_t n)
{
  for (size_t k = 0; k < n; k++) {
    uint64_t got;
    evaluate(rows[k].body, rows[k].kind, &rows[k].in, &got, 1);
    if (got != rows[k].want)
      fail_msg("%s of %#" PRIx64 " %#" PRIx64 " %#" PRIx64 ": got %#" PRIx64 ", want %#" PRIx64, rows[k].body,
               rows[k].in[0], rows[k].in[1], rows[k].in[2], got, rows[k].want);
  }
}
#define CHECK_ROWS(rows) check_rows(rows, sizeof(rows) / sizeof *(rows))

TEST(integer_arithmetic)
{
  static const row rows[] = {
    {'r', "add.s32 %r0, %r1, %r2;", {0x7fffffff, 1}, 0x80000000},
    {'r', "add.sat.s32 %r0, %r1, %r2;", {0x7fffffff, 1}, 0x7fffffff},
    {'r', "sub.sat.s32 %r0, %r1, %r2;", {0x80000000, 1}, 0x80000000},
    {'h', "add.s16 %h0, %h1, %h2;", {0xffff, 2}, 1},
    {'h', "sub.u16 %h0, %h1, %h2;", {1, 2}, 0xffff},
    {'d', "sub.s64 %d0, %d1, %d2;", {1, 2}, ~0ull},
    {'r', "mul.lo.s32 %r0, %r1, %r2;", {0x10001, 0x10001}, 0x20001},
    {'r', "mul.hi.s32 %r0, %r1, %r2;", {0xffffffff, 2}, 0xffffffff},
    {'r', "mul.hi.u32 %r0, %r1, %r2;", {0xffffffff, 2}, 1},
    {'d', "mul.hi.s64 %d0, %d1, %d2;", {~0ull, 2}, ~0ull},
    {'d', "mul.hi.u64 %d0, %d1, %d2;", {~0ull, ~0ull}, ~0ull - 1},
    {'d', "mul.wide.s32 %d0, %r1, %r2;", {0xffffffff, 3}, (uint64_t)-3},
    {'d', "mul.wide.u32 %d0, %r1, %r2;", {0xffffffff, 3}, 0x2fffffffdull},
    {'r', "mul.wide.s16 %r0, %h1, %h2;", {0x8000, 0x8000}, 0x40000000},
    {'r', "mad.lo.s32 %r0, %r1, %r2, %r3;", {7, 6, 5}, 47},
    {'d', "mad.wide.s32 %d0, %r1, %r2, %d3;", {0xffffffff, 5, 1ull << 40}, (1ull << 40) - 5},
    {'r', "mad.hi.u32 %r0, %r1, %r2, %r3;", {0x80000000, 6, 5}, 8},
    {'r', "mad.hi.sat.s32 %r0, %r1, %r2, %r3;", {0x7fffffff, 4, 0x7fffffff}, 0x7fffffff},
    {'r', "div.s32 %r0, %r1, %r2;", {(uint32_t)-7, 2}, (uint32_t)-3},
    {'r', "div.u32 %r0, %r1, %r2;", {7, 0}, 0xffffffff},
    {'r', "div.s32 %r0, %r1, %r2;", {0x80000000, 0xffffffff}, 0x80000000},
    {'r', "rem.s32 %r0, %r1, %r2;", {(uint32_t)-7, 2}, (uint32_t)-1},
    {'r', "rem.s32 %r0, %r1, %r2;", {0x80000000, 0xffffffff}, 0},
    {'d', "div.u64 %d0, %d1, %d2;", {~0ull, 10}, ~0ull / 10},
    {'h', "div.s16 %h0, %h1, %h2;", {0x8000, 2}, 0xc000},
    {'r', "min.s32 %r0, %r1, %r2;", {0x80000000, 1}, 0x80000000},
    {'r', "min.u32 %r0, %r1, %r2;", {0x80000000, 1}, 1},
    {'d', "max.s64 %d0, %d1, %d2;", {~0ull, 1}, 1},
    {'r', "abs.s32 %r0, %r1;", {(uint32_t)-5}, 5},
    {'h', "abs.s16 %h0, %h1;", {0x8000}, 0x8000},
    {'h', "neg.s16 %h0, %h1;", {1}, 0xffff},
    {'r', "sad.s32 %r0, %r1, %r2, %r3;", {(uint32_t)-3, 4, 10}, 17},
    {'r', "mul24.lo.s32 %r0, %r1, %r2;", {0xffffff, 3}, (uint32_t)-3},
    {'r', "mul24.hi.u32 %r0, %r1, %r2;", {0xffffff, 0xffffff}, 0xfffffe00},
    {'r', "dp4a.s32.s32 %r0, %r1, %r2, %r3;", {0xff02fe03, 0x01020304, 100}, 100 - 1 + 4 - 6 + 12},
    {'r', "dp4a.u32.u32 %r0, %r1, %r2, %r3;", {0xff010203, 0x02040608, 0}, 510 + 4 + 12 + 24},
    {'r', "dp2a.hi.s32.u32 %r0, %r1, %r2, %r3;", {0xffff0003, 0x02040608, 0}, 12 - 2},
    {'d', "add.cc.u32 %r4, %r1, %r2; addc.u32 %r5, %r1, %r1; mov.b64 %d0, {%r4, %r5};", {0xffffffff, 1}, 0xffffffff00000000ull},
    {'d', "sub.cc.u32 %r4, %r1, %r2; subc.u32 %r5, %r3, %r3; mov.b64 %d0, {%r4, %r5};", {1, 2, 9}, ~0ull},
    {'d', "mad.lo.cc.u32 %r4, %r1, %r2, %r3; madc.hi.u32 %r5, %r1, %r2, 0; mov.b64 %d0, {%r4, %r5};", {0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffff00000000ull},
    {'d', "add.cc.u64 %d4, %d1, %d2; addc.u64 %d0, %d3, 0;", {~0ull, 1, 5}, 6},
  };
  CHECK_ROWS(rows);
}

TEST(bits_shifts_and_fields)
{
  static const row rows[] = {
    {'r', "and.b32 %r0, %r1, %r2;", {0xff00ff, 0x0ff0}, 0xf0},
    {'d', "xor.b64 %d0, %d1, %d2;", {~0ull, 0xff}, ~0xffull},
    {'h', "not.b16 %h0, %h1;", {0xf0f0}, 0x0f0f},
    {'r', "cnot.b32 %r0, %r1;", {0}, 1},
    {'r', "shl.b32 %r0, %r1, %r2;", {1, 31}, 0x80000000},
    {'r', "shl.b32 %r0, %r1, %r2;", {1, 32}, 0},
    {'h', "shl.b16 %h0, %h1, %r2;", {0x8001, 1}, 2},
    {'r', "shr.s32 %r0, %r1, %r2;", {0x80000000, 40}, 0xffffffff},
    {'r', "shr.u32 %r0, %r1, %r2;", {0x80000000, 31}, 1},
    {'d', "shr.s64 %d0, %d1, %r2;", {1ull << 63, 63}, ~0ull},
    {'h', "shr.s16 %h0, %h1, %r2;", {0x8000, 3}, 0xf000},
    {'r', "shf.l.wrap.b32 %r0, %r1, %r2, %r3;", {0x80000000, 1, 33}, 3},
    {'r', "shf.r.clamp.b32 %r0, %r1, %r2, %r3;", {0x12345678, 0x9abcdef0, 40}, 0x9abcdef0},
    {'r', "shf.l.clamp.b32 %r0, %r1, %r2, %r3;", {0x12345678, 0x9abcdef0, 32}, 0x12345678},
    {'r', "popc.b64 %r0, %d1;", {~0ull}, 64},
    {'r', "clz.b32 %r0, %r1;", {0}, 32},
    {'r', "clz.b64 %r0, %d1;", {1}, 63},
    {'r', "brev.b32 %r0, %r1;", {1}, 0x80000000},
    {'d', "brev.b64 %d0, %d1;", {2}, 1ull << 62},
    {'r', "bfe.u32 %r0, %r1, 8, 8;", {0x12345678}, 0x56},
    {'r', "bfe.s32 %r0, %r1, 28, 8;", {0x90000000}, 0xfffffff9},
    {'r', "bfe.s32 %r0, %r1, 40, 3;", {0x80000000}, 0xffffffff},
    {'d', "bfe.u64 %d0, %d1, 60, 10;", {~0ull}, 15},
    {'r', "bfi.b32 %r0, %r1, %r2, 4, 8;", {0xab, 0xffffffff}, 0xfffffabf},
    {'d', "bfi.b64 %d0, %d1, %d2, 0, 64;", {5, ~0ull}, 5},
    {'r', "bfind.u32 %r0, %r1;", {0x8000}, 15},
    {'r', "bfind.s32 %r0, %r1;", {0xffffffff}, 0xffffffff},
    {'r', "bfind.shiftamt.u32 %r0, %r1;", {0x8000}, 16},
    {'r', "prmt.b32 %r0, %r1, %r2, 0x7531;", {0x33221100, 0x77665544}, 0x77553311},
    {'r', "prmt.b32 %r0, %r1, %r2, 0x8888;", {0x00000080, 0}, 0xffffffff},
    {'r', "prmt.b32.f4e %r0, %r1, %r2, %r3;", {0x33221100, 0x77665544, 1}, 0x44332211},
    {'r', "prmt.b32.rc16 %r0, %r1, %r2, %r3;", {0x33221100, 0, 1}, 0x33223322},
    {'r', "lop3.b32 %r0, %r1, %r2, %r3, 0x96;", {0xf0f0, 0xcccc, 0xaaaa}, 0xf0f0 ^ 0xcccc ^ 0xaaaa},
    {'r', "lop3.b32 %r0, %r1, %r2, %r3, 0xe8;", {0xf0f0, 0xcccc, 0xaaaa}, (0xf0f0 & 0xcccc) | (0xf0f0 & 0xaaaa) | (0xcccc & 0xaaaa)},
    {'r', "bmsk.clamp.b32 %r0, %r1, %r2;", {4, 8}, 0xff0},
    {'r', "szext.clamp.s32 %r0, %r1, %r2;", {0x80, 8}, 0xffffff80},
    {'r', "mov.b64 {%r4, %r0}, %d1;", {0x1234567890abcdefull}, 0x12345678},
    {'d', "mov.b64 %d0, {%h1, %h2, %h3, %h1};", {1, 2, 3}, 0x0001000300020001ull},
    {'r', "slct.b32.s32 %r0, %r1, %r2, %r3;", {1, 2, 0x80000000}, 2},
    {'r', "slct.b32.f32 %r0, %r1, %r2, %f3;", {1, 2, 0x80000000}, 1},
  };
  CHECK_ROWS(rows);
}

enum { NAN32 = 0x7fffffff };
#define F(x) ((union { float f; uint32_t u; }){.f = (x)}.u)
#define G(x) ((union { double f; uint64_t u; }){.f = (x)}.u)

TEST(floating_point_arithmetic)
{
  const row rows[] = {
    {'f', "add.f32 %f0, %f1, %f2;", {F(1.5f), F(2.25f)}, F(3.75f)},
    {'f', "add.f32 %f0, %f1, %f2;", {F(INFINITY), F(-INFINITY)}, NAN32},
    {'f', "add.f32 %f0, %f1, %f2;", {0xffc12345, F(1)}, NAN32},
    {'f', "add.rz.f32 %f0, %f1, %f2;", {F(1), F(0x1.8p-24f)}, F(1)},
    {'f', "add.rp.f32 %f0, %f1, %f2;", {F(1), F(0x1p-60f)}, F(0x1.000002p0f)},
    {'f', "add.rm.f32 %f0, %f1, %f2;", {F(-1), F(-0x1p-60f)}, F(-0x1.000002p0f)},
    {'f', "add.ftz.f32 %f0, %f1, %f2;", {1, 1}, 0},
    {'f', "add.f32 %f0, %f1, %f2;", {1, 1}, 2},
    {'f', "add.sat.f32 %f0, %f1, %f2;", {F(0.75f), F(0.75f)}, F(1)},
    {'f', "add.sat.f32 %f0, %f1, %f2;", {NAN32, F(0.75f)}, 0},
    {'f', "mul.f32 %f0, %f1, %f2;", {F(0x1p-100f), F(0x1p-40f)}, 0x200},
    {'f', "mul.ftz.f32 %f0, %f1, %f2;", {F(0x1p-100f), F(-0x1p-40f)}, 0x80000000},
    {'f', "fma.rn.f32 %f0, %f1, %f2, %f3;", {F(0x1.000002p0f), F(0x1.000002p0f), F(-0x1.000004p0f)}, F(0x1p-46f)},
    {'g', "fma.rn.f64 %g0, %g1, %g2, %g3;", {G(0x1.0000000000001p0), G(0x1.0000000000001p0), G(-0x1.0000000000002p0)}, G(0x1p-104)},
    {'f', "div.rn.f32 %f0, %f1, %f2;", {F(1), F(3)}, F(1.0f / 3.0f)},
    {'f', "div.rz.f32 %f0, %f1, %f2;", {F(1), F(3)}, F(0x1.555554p-2f)},
    {'f', "rcp.rn.f32 %f0, %f1;", {F(3)}, F(1.0f / 3.0f)},
    {'g', "rcp.rp.f64 %g0, %g1;", {G(3)}, G(0x1.5555555555556p-2)},
    {'f', "sqrt.rn.f32 %f0, %f1;", {F(2)}, F(0x1.6a09e6p0f)},
    {'f', "sqrt.rn.f32 %f0, %f1;", {F(-2)}, NAN32},
    {'f', "ex2.approx.f32 %f0, %f1;", {F(-3)}, F(0.125f)},
    {'f', "lg2.approx.f32 %f0, %f1;", {F(0.125f)}, F(-3)},
    {'f', "lg2.approx.ftz.f32 %f0, %f1;", {1}, F(-INFINITY)},
    {'f', "rsqrt.approx.f32 %f0, %f1;", {F(16)}, F(0.25f)},
    {'f', "sin.approx.f32 %f0, %f1;", {F(0)}, F(0)},
    {'f', "cos.approx.f32 %f0, %f1;", {F(0)}, F(1)},
    {'f', "tanh.approx.f32 %f0, %f1;", {F(100)}, F(1)},
    {'g', "rcp.approx.ftz.f64 %g0, %g1;", {G(3)}, G(1.0 / 3) & 0xffffffff00000000ull},
    {'f', "min.f32 %f0, %f1, %f2;", {0xffc00001, F(3)}, F(3)},
    {'f', "min.NaN.f32 %f0, %f1, %f2;", {0xffc00001, F(3)}, NAN32},
    {'f', "max.f32 %f0, %f1, %f2;", {0xffc00001, 0x7fc00000}, NAN32},
    {'f', "min.f32 %f0, %f1, %f2;", {F(0), F(-0.0f)}, F(-0.0f)},
    {'f', "max.f32 %f0, %f1, %f2;", {F(-0.0f), F(0)}, F(0)},
    {'f', "max.xorsign.abs.f32 %f0, %f1, %f2;", {F(-3), F(2)}, F(-3)},
    {'f', "neg.f32 %f0, %f1;", {F(0)}, F(-0.0f)},
    {'f', "abs.f32 %f0, %f1;", {F(-2)}, F(2)},
    {'g', "abs.f64 %g0, %g1;", {G(-2)}, G(2)},
    {'f', "copysign.f32 %f0, %f1, %f2;", {F(-1), F(2)}, F(-2)},
    {'h', "add.f16 %h0, %h1, %h2;", {0x3c00, 0x1000}, 0x3c00},           /* 1 + 2^-11: to even */
    {'h', "add.f16 %h0, %h1, %h2;", {0x3c01, 0x1000}, 0x3c02},
    {'h', "fma.rn.f16 %h0, %h1, %h2, %h3;", {0x3c01, 0x3c01, 0x0001}, 0x3c02},
    {'h', "mul.f16 %h0, %h1, %h2;", {0x7bff, 0x4000}, 0x7c00},
    {'h', "mul.bf16 %h0, %h1, %h2;", {0x3f80, 0x7f80}, 0x7f80},
    {'h', "fma.rn.bf16 %h0, %h1, %h2, %h3;", {0x3f80, 0x3f80, 0xff81}, 0x7fff},
    {'h', "fma.rn.relu.f16 %h0, %h1, %h2, %h3;", {0x3c00, 0xbc00, 0}, 0},
    {'r', "add.f16x2 %r0, %r1, %r2;", {0x3c004000, 0x40003c00}, 0x42004200},
    {'r', "fma.rn.bf16x2 %r0, %r1, %r2, %r3;", {0x3f804000, 0x40003f80, 0x00003f80}, 0x40004040},
    {'h', "max.NaN.bf16 %h0, %h1, %h2;", {0x7fc0, 0x3f80}, 0x7fff},
    {'h', "ex2.approx.f16 %h0, %h1;", {0x4000}, 0x4400},
    {'h', "neg.bf16 %h0, %h1;", {0x3f80}, 0xbf80},
  };
  CHECK_ROWS(rows);
}

TEST(comparisons)
{
  const row rows[] = {
    {'p', "setp.lt.s32 %p0, %r1, %r2;", {0xffffffff, 0}, 1},
    {'p', "setp.lo.u32 %p0, %r1, %r2;", {0xffffffff, 0}, 0},
    {'p', "setp.hs.u64 %p0, %d1, %d2;", {5, 5}, 1},
    {'p', "setp.ne.s16 %p0, %h1, %h2;", {0x10001, 1}, 0},
    {'p', "setp.eq.f32 %p0, %f1, %f2;", {NAN32, NAN32}, 0},
    {'p', "setp.ne.f32 %p0, %f1, %f2;", {NAN32, NAN32}, 0},
    {'p', "setp.neu.f32 %p0, %f1, %f2;", {NAN32, F(1)}, 1},
    {'p', "setp.ltu.f64 %p0, %g1, %g2;", {G(2), G(1)}, 0},
    {'p', "setp.num.f32 %p0, %f1, %f2;", {F(1), F(2)}, 1},
    {'p', "setp.nan.f32 %p0, %f1, %f2;", {NAN32, F(2)}, 1},
    {'p', "setp.eq.ftz.f32 %p0, %f1, %f2;", {1, 2}, 1},
    {'p', "setp.lt.f16 %p0, %h1, %h2;", {0xbc00, 0x3c00}, 1},
    {'p', "setp.gt.bf16 %p0, %h1, %h2;", {0x4000, 0x3f80}, 1},
    {'p', "setp.eq.s32 %p1, %r1, %r1; setp.lt.and.s32 %p0, %r1, %r2, !%p1;", {1, 2}, 0},
    {'p', "setp.eq.s32 %p1, %r1, %r1; setp.lt.xor.s32 %p2|%p0, %r1, %r2, %p1;", {1, 2}, 1},
    {'p', "setp.eq.s32 %p1, %r1, %r2; not.pred %p2, %p1; or.pred %p0, %p1, %p2;", {1, 2}, 1},
    {'p', "mov.pred %p0, -1;", {0}, 1},
    {'r', "set.lt.u32.f32 %r0, %f1, %f2;", {F(1), F(2)}, 0xffffffff},
    {'f', "set.gt.f32.s32 %f0, %r1, %r2;", {2, 1}, F(1)},
    {'p', "testp.infinite.f32 %p0, %f1;", {F(INFINITY)}, 1},
    {'p', "testp.subnormal.f64 %p0, %g1;", {1}, 1},
    {'r', "setp.eq.s32 %p1, %r1, 5; @%p1 bra L; mov.u32 %r0, 1; bra M; L: mov.u32 %r0, 2; M:", {5}, 2},
  };
  CHECK_ROWS(rows);
}

TEST(conversions)
{
  const row rows[] = {
    {'r', "cvt.rzi.s32.f32 %r0, %f1;", {F(-2.75f)}, (uint32_t)-2},
    {'r', "cvt.rni.s32.f32 %r0, %f1;", {F(2.5f)}, 2},
    {'r', "cvt.rmi.s32.f32 %r0, %f1;", {F(-2.25f)}, (uint32_t)-3},
    {'r', "cvt.rpi.u32.f32 %r0, %f1;", {F(-2.25f)}, 0},
    {'r', "cvt.rzi.s32.f32 %r0, %f1;", {F(1e20f)}, 0x7fffffff},
    {'r', "cvt.rzi.s32.f32 %r0, %f1;", {NAN32}, 0},
    {'r', "cvt.rzi.s32.f64 %r0, %g1;", {G(NAN)}, 0x80000000},
    {'d', "cvt.rzi.s64.f32 %d0, %f1;", {NAN32}, 1ull << 63},
    {'d', "cvt.rzi.u64.f64 %d0, %g1;", {G(1e30)}, ~0ull},
    {'r', "cvt.rzi.s8.f32 %r0, %f1;", {F(200)}, 127},
    {'r', "cvt.rzi.u8.f32 %r0, %f1;", {F(300)}, 255},
    {'f', "cvt.rn.f32.s32 %f0, %r1;", {0x7fffffff}, F(0x1p31f)},
    {'f', "cvt.rz.f32.s32 %f0, %r1;", {0x7fffffff}, F(0x1.fffffep30f)},
    {'f', "cvt.rn.f32.u64 %f0, %d1;", {~0ull}, F(0x1p64f)},
    {'g', "cvt.rn.f64.u64 %g0, %d1;", {~0ull}, G(0x1p64)},
    {'g', "cvt.rp.f64.s64 %g0, %d1;", {(1ull << 53) + 1}, G(0x1.0000000000001p53)},
    {'f', "cvt.rn.f32.f64 %f0, %g1;", {G(1 + 0x1p-24)}, F(1)},
    {'f', "cvt.rp.f32.f64 %f0, %g1;", {G(1 + 0x1p-24)}, F(0x1.000002p0f)},
    {'f', "cvt.rn.f32.f64 %f0, %g1;", {G(NAN)}, NAN32},
    {'g', "cvt.f64.f32 %g0, %f1;", {F(1.5f)}, G(1.5)},
    {'f', "cvt.rni.f32.f32 %f0, %f1;", {F(-0.5f)}, F(-0.0f)},
    {'f', "cvt.sat.f32.f32 %f0, %f1;", {F(7)}, F(1)},
    {'f', "cvt.rpi.ftz.f32.f32 %f0, %f1;", {1}, 0},
    {'d', "cvt.s64.s32 %d0, %r1;", {0x80000000}, 0xffffffff80000000ull},
    {'d', "cvt.u64.s16 %d0, %h1;", {0x8000}, 0xffffffffffff8000ull},
    {'r', "cvt.s32.s8 %r0, %r1;", {0x1ff}, 0xffffffff},
    {'r', "cvt.sat.u8.s32 %r0, %r1;", {0xffffffff}, 0},
    {'r', "cvt.sat.s8.s32 %r0, %r1;", {1000}, 127},
    {'h', "cvt.rn.f16.f64 %h0, %g1;", {G(1 + 0x1p-11 + 0x1p-40)}, 0x3c01},
    {'h', "cvt.rn.f16.f32 %h0, %f1;", {F(1e6f)}, 0x7c00},
    {'h', "cvt.rz.f16.f32 %h0, %f1;", {F(1e6f)}, 0x7bff},
    {'h', "cvt.rn.satfinite.f16.f32 %h0, %f1;", {F(1e6f)}, 0x7bff},
    {'h', "cvt.rn.f16.s64 %h0, %d1;", {2049}, 0x6800},
    {'h', "cvt.rn.relu.bf16.f32 %h0, %f1;", {F(-1)}, 0},
    {'r', "cvt.rn.bf16x2.f32 %r0, %f1, %f2;", {F(1), F(2)}, 0x3f804000},
    {'r', "cvt.rn.f16x2.f32 %r0, %f1, %f2;", {F(1), F(2)}, 0x3c004000},
    {'r', "cvt.rna.tf32.f32 %r0, %f1;", {F(0x1.002p0f)}, F(0x1.004p0f) & 0xffffe000},
    {'h', "cvt.rn.satfinite.e4m3x2.f32 %h0, %f1, %f2;", {F(1000), F(1)}, 0x7e38},
    {'h', "cvt.rn.satfinite.e5m2x2.f32 %h0, %f1, %f2;", {F(1e9f), F(-1)}, 0x7bbc},
    {'r', "cvt.rn.f16x2.e4m3x2 %r0, %h1;", {0x7e38}, 0x5f003c00},
  };
  CHECK_ROWS(rows);
}

/* All f16 and bf16 patterns to f32, and f32 numbers near all of them back, against the compiler's arithmetic. */
TEST(narrow_floats_over_all_patterns)
{
  static uint64_t in[1024][3], up[1024], down[1024];
  for (unsigned base = 0; base < 65536; base += 1024) {
    for (unsigned n = 0; n < 1024; n++) in[n][0] = base + n;
    evaluate("cvt.f32.f16 %f0, %h1;", 'f', in, up, 1024);
    for (unsigned n = 0; n < 1024; n++) {
      unsigned b = base + n, e = b >> 10 & 31, f = b & 1023;
      float want = e == 31 ? f ? NAN : INFINITY : e ? ldexpf((float)(f + 1024), (int)e - 25) : ldexpf((float)f, -24);
      want = b >> 15 ? -want : want;
      uint32_t bits = want != want ? NAN32 : F(want);
      if (up[n] != bits) fail_msg("f16 %#x: got %#" PRIx64 ", want %#x", b, up[n], bits);
      in[n][0] = up[n];
    }
    evaluate("cvt.rn.f16.f32 %h0, %f1;", 'h', in, down, 1024);
    for (unsigned n = 0; n < 1024; n++)
      if (down[n] != (up[n] == NAN32 ? 0x7fff : base + n))
        fail_msg("f16 %#x came back as %#" PRIx64, base + n, down[n]);
    for (unsigned n = 0; n < 1024; n++) in[n][0] = (uint64_t)(base + n) << 16 | 0x8000; /* halfway between two bf16 */
    evaluate("cvt.rn.bf16.f32 %h0, %f1;", 'h', in, down, 1024);
    for (unsigned n = 0; n < 1024; n++) {
      unsigned b = base + n, want = (b & 0x7f80) == 0x7f80 ? 0x7fff : b + (b & 1);
      if (down[n] != want) fail_msg("bf16 after %#x: got %#" PRIx64 ", want %#x", b, down[n], want);
    }
  }
}

#ifdef __FLT16_MAX__
TEST(f16_sums_and_products_against_the_compiler)
{
  static uint64_t in[1024][3], sum[1024], product[1024];
  uint64_t r = 1;
  for (int rounds = 0; rounds < 60; rounds++) {
    for (unsigned n = 0; n < 1024; n++)
      r = r * 6364136223846793005ull + 1442695040888963407ull, in[n][0] = r >> 20 & 0xffff, in[n][1] = r >> 40 & 0xffff;
    evaluate("add.f16 %h0, %h1, %h2;", 'h', in, sum, 1024);
    evaluate("mul.f16 %h0, %h1, %h2;", 'h', in, product, 1024);
    for (unsigned n = 0; n < 1024; n++) {
      uint16_t a = (uint16_t)in[n][0], b = (uint16_t)in[n][1], s, p;
      _Float16 x, y, z;
      memcpy(&x, &a, 2), memcpy(&y, &b, 2);
      z = (_Float16)((float)x + (float)y),
      memcpy(&s, &z, 2); /* the f32 sum of two f16 is wide enough for one more rounding */
      if (z != z) s = 0x7fff;
      z = (_Float16)((float)x * (float)y), memcpy(&p, &z, 2);
      if (z != z) p = 0x7fff;
      if (sum[n] != s || product[n] != p)
        fail_msg("%#x, %#x: sum %#" PRIx64 " want %#x, product %#" PRIx64 " want %#x", a, b, sum[n], s, product[n], p);
    }
  }
}
#else
TEST(f16_sums_and_products_against_the_compiler)
{
  print_message("# SKIP: the compiler has no _Float16\n");
  skip();
}
#endif

/* ---- what threads do together ---- */

typedef struct outcome { int rc; char error[400]; ptx_stats stats; } outcome;

/* Runs a kernel with the address of `out` as its only parameter. */
static outcome run(const char *text, ptx_launch launch, void *out, size_t size)
{
  run_memory m = {.count = 0};
  ptx_module *module = run_load(&m, text);
  uint64_t params[1] = {run_add(&m, out, size)};
  outcome o = {.rc = 0};
  o.rc = run_kernel(&m, module, launch, params, &o.stats, o.error, sizeof o.error);
  ptx_free(module);
  return o;
}

static const ptx_order orders[] = {PTX_NORMAL, PTX_REVERSED, PTX_INTERLEAVED, PTX_INTERLEAVED};

/* The same in each order of blocks and warps, with all checks on: no fault, and `out` as wanted. */
static void run_everywhere(const char *text, ptx_launch launch, uint32_t *out, size_t words, const uint32_t *want)
{
  for (size_t k = 0; k < sizeof orders / sizeof *orders; k++) {
    memset(out, 0, words * 4);
    launch.order = orders[k], launch.seed = k, launch.checks = PTX_CHECK_RACES | PTX_CHECK_BARRIERS;
    outcome o = run(text, launch, out, words * 4);
    if (o.rc) fail_msg("order %zu: %d %s", k, o.rc, o.error);
    for (size_t n = 0; n < words; n++)
      if (out[n] != want[n]) fail_msg("order %zu, word %zu: got %#x, want %#x", k, n, out[n], want[n]);
  }
}

#define KERNEL(body) HEAD ".visible .entry k(.param .u64 out)\n{\n.reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %d<16>; .reg .f32 %f<8>;\n" \
  "ld.param.u64 %d1, [out]; cvta.to.global.u64 %d1, %d1; mov.u32 %r1, %tid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %ctaid.x;\n" \
  "mad.lo.u32 %r4, %r3, %r2, %r1; mul.wide.u32 %d2, %r4, 4; add.s64 %d2, %d1, %d2; mov.u32 %r5, %laneid;\n" body "\nret;\n}\n"

TEST(lanes_diverge_and_meet_again)
{
  /* Each lane loops its own number of times; then all vote together. */
  static const char text[] = KERNEL(
    "mov.u32 %r6, 0; mov.u32 %r7, 0;\nLOOP: setp.ge.u32 %p1, %r6, %r1; @%p1 bra DONE; add.u32 %r7, %r7, %r6; add.u32 %r6, %r6, 1;\n"
    "and.b32 %r8, %r6, 1; setp.eq.u32 %p2, %r8, 0; @%p2 bra EVEN; add.u32 %r7, %r7, 100; bra LOOP; EVEN: add.u32 %r7, %r7, 1000; bra LOOP;\n"
    "DONE: activemask.b32 %r9; popc.b32 %r9, %r9; mad.lo.u32 %r7, %r9, 1000000, %r7; st.global.u32 [%d2], %r7;");
  uint32_t out[96], want[96];
  for (unsigned t = 0; t < 96; t++) want[t] = t * (t - 1) / 2 + (t + 1) / 2 * 100 + t / 2 * 1000 + 32000000;
  want[0] = 32000000;
  run_everywhere(text, (ptx_launch){.block = {96}}, out, 96, want);
}

TEST(teams_of_lanes_with_masks_of_their_own)
{
  /* Lanes 0..7 add up in pairs, lanes 8..15 in fours, the upper half has ended;
   * each team waits for its own lanes only. */
  static const char text[] = KERNEL(
    "setp.ge.u32 %p1, %r5, 16; @%p1 bra END; mov.u32 %r6, 3; and.b32 %r7, %r5, 30; setp.lt.u32 %p2, %r5, 8; @%p2 bra PAIR;\n"
    "mov.u32 %r6, 15; and.b32 %r7, %r5, 28; PAIR: shl.b32 %r6, %r6, %r7; shfl.sync.bfly.b32 %r8, %r1, 1, 31, %r6; add.u32 %r9, %r1, %r8;\n"
    "bar.warp.sync %r6; @%p2 bra DONE; shfl.sync.bfly.b32 %r8, %r9, 2, 31, %r6; add.u32 %r9, %r9, %r8; DONE: st.global.u32 [%d2], %r9; END:");
  uint32_t out[64], want[64];
  for (unsigned t = 0; t < 64; t++) {
    unsigned lane = t % 32, first = t - lane % 4;
    want[t] = lane >= 16 ? 0 : lane < 8 ? 2 * (t & ~1u) + 1 : 4 * first + 6;
  }
  run_everywhere(text, (ptx_launch){.block = {64}}, out, 64, want);
}

TEST(branch_tables_and_calls)
{
  static const char text[] = HEAD
    ".func (.param .b32 r) twice(.param .b32 a)\n{\n.reg .b32 %x<3>; ld.param.b32 %x1, [a]; add.u32 %x2, %x1, %x1; st.param.b32 [r], %x2; ret;\n}\n"
    ".func (.param .b32 r) pick(.param .b32 a)\n{\n.reg .b32 %x<4>; .reg .pred %q; ld.param.b32 %x1, [a]; rem.u32 %x2, %x1, 3;\n"
    "TABLE: .branchtargets A, B, C;\nbrx.idx %x2, TABLE;\nA: mov.u32 %x3, 10; bra E;\nB: { .param .b32 p0; .param .b32 r0; st.param.b32 [p0], %x1;\n"
    "call.uni (r0), twice, (p0); ld.param.b32 %x3, [r0]; } bra E;\nC: mov.u32 %x3, 30;\nE: st.param.b32 [r], %x3; ret;\n}\n"
    ".visible .entry k(.param .u64 out)\n{\n.reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %d<16>;\nld.param.u64 %d1, [out]; mov.u32 %r1, %tid.x;\n"
    "mul.wide.u32 %d2, %r1, 4; add.s64 %d2, %d1, %d2; { .param .b32 p0; .param .b32 r0; st.param.b32 [p0], %r1; call.uni (r0), pick, (p0);\n"
    "ld.param.b32 %r2, [r0]; } st.global.u32 [%d2], %r2; ret;\n}\n";
  uint32_t out[64], want[64];
  for (unsigned t = 0; t < 64; t++) want[t] = t % 3 == 0 ? 10 : t % 3 == 1 ? 2 * t : 30;
  run_everywhere(text, (ptx_launch){.block = {64}}, out, 64, want);
}

TEST(a_register_may_have_the_address_of_a_parameter)
{
  static const char text[] = KERNEL(
    "mov.u64 %d3, out; and.b32 %r6, %r1, 1; mul.wide.u32 %d4, %r6, 4; add.s64 %d3, %d3, %d4; ld.param.u32 %r7, [%d3];\n"
    "setp.eq.u32 %p1, %r6, 0; @%p1 ld.param.u32 %r8, [out]; @!%p1 ld.param.u32 %r8, [out+4];\n"
    "setp.eq.u32 %p2, %r7, %r8; selp.u32 %r9, 5, 6, %p2; st.global.u32 [%d2], %r9;");
  uint32_t out[32], want[32];
  for (unsigned t = 0; t < 32; t++) want[t] = 5;
  run_everywhere(text, (ptx_launch){.block = {32}}, out, 32, want);
}

TEST(a_lane_may_wait_for_another_lane_and_a_warp_for_another_warp)
{
  /* Lane 0 takes the lock last if the others spin: without fairness within the warp this never ends. */
  static const char lock[] = KERNEL(
    "SPIN: atom.global.cas.b32 %r6, [%d1], 0, 1; setp.ne.u32 %p1, %r6, 0; @%p1 bra SPIN; membar.gl;\n"
    "ld.volatile.global.u32 %r7, [%d1+4]; add.u32 %r7, %r7, 1; st.volatile.global.u32 [%d1+4], %r7; membar.gl; atom.global.exch.b32 %r6, [%d1], 0;");
  uint32_t out[2] = {0};
  outcome o = run(lock, (ptx_launch){.block = {64}}, out, sizeof out);
  if (o.rc) fail_msg("%s", o.error);
  assert_int_equal(out[1], 64);
  static const char flag[] = KERNEL(
    "setp.ge.u32 %p1, %r1, 32; @%p1 bra WRITE; WAIT: ld.acquire.gpu.global.u32 %r6, [%d1]; setp.eq.u32 %p2, %r6, 0; @%p2 bra WAIT; ret;\n"
    "WRITE: mov.u32 %r7, 1; st.release.gpu.global.u32 [%d1], %r7;");
  out[0] = 0;
  o = run(flag, (ptx_launch){.block = {64}}, out, sizeof out);
  if (o.rc) fail_msg("%s", o.error);
}

TEST(barriers_and_shared_memory)
{
  /* A block's sum in a tree through shared memory; bar.red counts and votes; a barrier of 64 of the threads. */
  static const char text[] = KERNEL(
    ".shared .align 4 .b8 s[512]; mov.u32 %r10, s; shl.b32 %r11, %r1, 2; add.u32 %r11, %r10, %r11; st.shared.u32 [%r11], %r4; bar.sync 0;\n"
    "mov.u32 %r12, 64;\nL: setp.ge.u32 %p1, %r1, %r12; @%p1 bra S; shl.b32 %r13, %r12, 2; add.u32 %r13, %r11, %r13; ld.shared.u32 %r14, [%r13];\n"
    "ld.shared.u32 %r15, [%r11]; add.u32 %r15, %r15, %r14; st.shared.u32 [%r11], %r15;\nS: barrier.sync 0; shr.u32 %r12, %r12, 1;\n"
    "setp.ne.u32 %p1, %r12, 0; @%p1 bra L; ld.shared.u32 %r16, [s]; setp.lt.u32 %p2, %r1, 5; bar.red.popc.u32 %r17, 0, %p2;\n"
    "bar.red.and.pred %p3, 0, %p2; bar.red.or.pred %p4, 0, %p2; selp.u32 %r18, 1, 0, %p3; selp.u32 %r19, 2, 0, %p4;\n"
    "setp.ge.u32 %p5, %r1, 64; @%p5 bra W; bar.sync 3, 64;\nW: mad.lo.u32 %r16, %r17, 100000, %r16; mad.lo.u32 %r16, %r18, 10000000, %r16;\n"
    "mad.lo.u32 %r16, %r19, 10000000, %r16; st.global.u32 [%d2], %r16;");
  uint32_t out[256], want[256];
  for (unsigned t = 0; t < 256; t++) want[t] = (t < 128 ? 127 * 64 : 127 * 64 + 128 * 128) + 500000 + 20000000;
  run_everywhere(text, (ptx_launch){.grid = {2}, .block = {128}}, out, 256, want);
}

TEST(dynamic_shared_memory_and_stack)
{
  static const char text[] = HEAD
    ".extern .shared .align 16 .b8 dyn[];\n.visible .entry k(.param .u64 out)\n{\n.local .align 8 .b8 stack[64];\n"
    ".reg .b32 %r<8>; .reg .b64 %d<8>; ld.param.u64 %d1, [out]; mov.u32 %r1, %tid.x; mov.u64 %d2, stack; cvta.local.u64 %d3, %d2;\n"
    "st.u32 [%d3+4], %r1; ld.local.u32 %r2, [%d2+4]; mov.u32 %r3, dyn; shl.b32 %r4, %r1, 2; add.u32 %r3, %r3, %r4; st.shared.u32 [%r3], %r2;\n"
    "bar.sync 0; xor.b32 %r5, %r4, 124; cvt.u64.u32 %d4, %r5; mov.u64 %d5, dyn; cvta.shared.u64 %d5, %d5; add.s64 %d5, %d5, %d4; ld.u32 %r6, [%d5];\n"
    "cvt.u64.u32 %d4, %r4; add.s64 %d1, %d1, %d4; st.global.u32 [%d1], %r6; ret;\n}\n";
  uint32_t out[32], want[32];
  for (unsigned t = 0; t < 32; t++) want[t] = t ^ 31;
  run_everywhere(text, (ptx_launch){.block = {32}, .dynamic_shared = 128}, out, 32, want);
}

TEST(shuffles_votes_matches_and_reductions)
{
  static const char text[] = KERNEL(
    "shfl.sync.bfly.b32 %r6, %r4, 1, 31, -1; shfl.sync.down.b32 %r7|%p1, %r4, 4, 31, -1; shfl.sync.up.b32 %r8|%p2, %r4, 4, 0, -1;\n"
    "shfl.sync.idx.b32 %r9, %r4, 3, 6175, -1;\n" /* segments of 8: c = 24 << 8 | 31 */
    "selp.u32 %r10, 1, 0, %p1; selp.u32 %r11, 1, 0, %p2; setp.lt.u32 %p3, %r5, 3; vote.sync.ballot.b32 %r12, %p3, -1; vote.sync.any.pred %p4, %p3, -1;\n"
    "vote.sync.all.pred %p5, %p3, -1; selp.u32 %r13, 1, 0, %p4; selp.u32 %r14, 1, 0, %p5; and.b32 %r15, %r5, 1; match.any.sync.b32 %r16, %r15, -1;\n"
    "redux.sync.add.u32 %r17, %r5, -1; redux.sync.max.s32 %r18, %r5, -1; mul.lo.u32 %r6, %r6, 1; add.u32 %r6, %r6, %r7; mad.lo.u32 %r6, %r8, 1, %r6;\n"
    "mad.lo.u32 %r6, %r9, 1, %r6; mad.lo.u32 %r6, %r10, 1000, %r6; mad.lo.u32 %r6, %r11, 10000, %r6; mad.lo.u32 %r6, %r12, 100000, %r6;\n"
    "mad.lo.u32 %r6, %r13, 1000000, %r6; mad.lo.u32 %r6, %r14, 1, %r6; and.b32 %r16, %r16, 3; mad.lo.u32 %r6, %r16, 10000000, %r6;\n"
    "add.u32 %r6, %r6, %r17; add.u32 %r6, %r6, %r18; st.global.u32 [%d2], %r6;");
  uint32_t out[32], want[32];
  for (unsigned l = 0; l < 32; l++)
    want[l] = (l ^ 1) + (l < 28 ? l + 4 : l) + (l >= 4 ? l - 4 : l) + ((l & 24) | 3) + (l < 28) * 1000 +
              (l >= 4) * 10000 + 7 * 100000 + 1000000 + (l & 1 ? 2u : 1u) * 10000000 + 496 + 31;
  run_everywhere(text, (ptx_launch){.block = {32}}, out, 32, want);
}

TEST(atomic_operations_of_all_types)
{
  static const char text[] = KERNEL(
    "cvt.rn.f32.u32 %f1, 1; mov.u64 %d5, 1; mov.b32 %r20, 0x3c003c00; atom.global.add.u32 %r6, [%d1], 2; red.global.max.s32 [%d1+4], %r4;\n"
    "red.global.and.b32 [%d1+8], %r4; atom.global.or.b32 %r7, [%d1+12], %r4; red.global.xor.b32 [%d1+16], 1; atom.global.inc.u32 %r8, [%d1+20], 9;\n"
    "atom.global.dec.u32 %r9, [%d1+24], 9; red.global.add.f32 [%d1+28], %f1; red.global.add.u64 [%d1+32], %d5; red.global.min.u32 [%d1+40], %r4;\n"
    "atom.global.add.noftz.f16x2 %r10, [%d1+44], %r20;");
  for (size_t k = 0; k < 4; k++) {
    uint32_t out[12] = {0, 0, ~0u, 0, 0, 0, 0, 0, 0, 0, ~0u, 0};
    outcome o = run(text, (ptx_launch){.grid = {2}, .block = {64}, .order = orders[k], .seed = k, .checks = PTX_CHECK_RACES}, out, sizeof out);
    if (o.rc) fail_msg("%s", o.error);
    uint32_t want[12] = {256, 127, 0, 127, 0, 8, 2, F(128), 128, 0, 0, 0x58005800};
    for (int n = 0; n < 12; n++)
      if (out[n] != want[n]) fail_msg("word %d: got %#x, want %#x", n, out[n], want[n]);
  }
}

TEST(vectors_of_all_widths_and_asynchronous_copies)
{
  static const char text[] = KERNEL(
    ".shared .align 16 .b8 s[512]; mul.wide.u32 %d3, %r1, 16; add.s64 %d4, %d1, %d3; mov.u32 %r20, s; shl.b32 %r21, %r1, 4; add.u32 %r20, %r20, %r21;\n"
    "cp.async.cg.shared.global [%r20], [%d4], 16; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0; xor.b32 %r21, %r21, 16; mov.u32 %r22, s;\n"
    "add.u32 %r22, %r22, %r21; ld.shared.v4.u32 {%r6, %r7, %r8, %r9}, [%r22]; st.global.v2.b32 [%d4+512], {%r9, %r8};\n"
    "st.global.v2.b32 [%d4+520], {%r7, %r6}; ld.global.nc.v4.u8 {%r10, %r11, %r12, %r13}, [%d4]; ld.global.s16 %r14, [%d4+2];");
  uint32_t out[256];
  for (unsigned n = 0; n < 256; n++) out[n] = n;
  outcome o = run(text, (ptx_launch){.block = {32}, .checks = PTX_CHECK_RACES}, out, sizeof out);
  if (o.rc) fail_msg("%s", o.error);
  for (unsigned n = 0; n < 128; n++) assert_int_equal(out[128 + n], (n / 4 ^ 1) * 4 + 3 - n % 4);
}

/* Every block adds to a counter and waits until all have: only with all blocks resident does this end. */
static const char grid_barrier[] = KERNEL(
  "setp.ne.u32 %p1, %r1, 0; @%p1 bra IN; membar.gl; red.global.add.u32 [%d1], 1;\nWAIT: ld.acquire.gpu.global.u32 %r6, [%d1];\n"
  "mov.u32 %r7, %nctaid.x; setp.lt.u32 %p2, %r6, %r7; @%p2 bra WAIT;\nIN: bar.sync 0; red.global.add.u32 [%d1+4], 1;");

TEST(a_grid_barrier_needs_a_cooperative_launch)
{
  uint32_t out[2] = {0};
  outcome o = run(grid_barrier, (ptx_launch){.grid = {20}, .block = {64}, .cooperative = true}, out, sizeof out);
  if (o.rc) fail_msg("%s", o.error);
  assert_int_equal(out[1], 20 * 64);
  out[0] = out[1] = 0;
  o = run(grid_barrier, (ptx_launch){.grid = {20}, .block = {64}, .budget = 300000}, out, sizeof out);
  assert_int_equal(o.rc, 702);
  assert_non_null(strstr(o.error, "blocks are left"));
}

/* ---- each check fires ---- */

static void faults(const char *text, ptx_launch launch, void *out, size_t size, int rc, const char *part)
{
  outcome o = run(text, launch, out, size);
  if (o.rc != rc || !strstr(o.error, part))
    fail_msg("got %d \"%s\", want %d \"...%s...\"", o.rc, o.rc ? o.error : "", rc, part);
}

TEST(bad_addresses_are_found)
{
  uint32_t out[64] = {0};
  static const char past[] = KERNEL("st.global.u32 [%d2+4], %r1;");
  faults(past, (ptx_launch){.block = {64}}, out, sizeof out, 700, "thread 63, PTX line 9 (st): write of 4 bytes");
  static const char straddle[] = KERNEL("st.global.u64 [%d1+4], %d1;");
  faults(straddle, (ptx_launch){.block = {1}}, out, sizeof out, 716, "misaligned address");
  static const char end[] = KERNEL("ld.global.v4.u32 {%r6, %r7, %r8, %r9}, [%d1+16];");
  _Alignas(16) uint32_t few[7] = {0};
  faults(end, (ptx_launch){.block = {1}}, few, sizeof few, 700, "passes the end of an allocation of 28 bytes");
  static const char shared[] = KERNEL(".shared .b8 s[16]; mov.u32 %r6, s; ld.shared.u32 %r7, [%r6+16];");
  faults(shared, (ptx_launch){.block = {1}}, out, sizeof out, 700, "outside of the 16 bytes of shared memory");
  static const char null[] = KERNEL("mov.u64 %d3, 0; ld.u32 %r7, [%d3];");
  faults(null, (ptx_launch){.block = {1}}, out, sizeof out, 700, "no array is there");
}

TEST(values_that_nobody_set_are_nan)
{
  uint32_t out[2] = {0};
  static const char text[] = KERNEL(
    ".shared .align 4 .b8 s[16]; ld.shared.f32 %f1, [s]; add.f32 %f1, %f1, %f2; st.global.f32 [%d1], %f1; mov.b32 %r9, %f3; st.global.u32 [%d1+4], %r9;");
  outcome o = run(text, (ptx_launch){.block = {1}}, out, sizeof out);
  if (o.rc) fail_msg("%s", o.error);
  assert_int_equal(out[0], NAN32);
  assert_int_equal(out[1], 0xffffffff);
}

/* Threads write a word each and read their neighbour's; `between` stands between the two. */
#define NEIGHBOUR(between) KERNEL(".shared .align 4 .b8 s[512]; mov.u32 %r10, s; shl.b32 %r11, %r1, 2; add.u32 %r12, %r10, %r11;\n" \
  "st.shared.u32 [%r12], %r4; " between " xor.b32 %r11, %r11, 4; add.u32 %r12, %r10, %r11; ld.shared.u32 %r13, [%r12]; st.global.u32 [%d2], %r13;")
#define ACROSS(between) KERNEL(".shared .align 4 .b8 s[512]; mov.u32 %r10, s; shl.b32 %r11, %r1, 2; add.u32 %r12, %r10, %r11;\n" \
  "st.shared.u32 [%r12], %r4; " between " xor.b32 %r11, %r11, 128; add.u32 %r12, %r10, %r11; ld.shared.u32 %r13, [%r12]; st.global.u32 [%d2], %r13;")

/* The first warp reads word 0 and the others word 1, or with `apart` all read word 0; then thread 5 writes word 0. */
#define READERS(between, apart) KERNEL(".shared .align 4 .b8 s[512]; mov.u32 %r10, s; and.b32 %r11, %r1, 96; min.u32 %r14, %r11, 1; shl.b32 %r14, %r14, 2;\n" \
  "mov.u32 %r15, " apart "; setp.ne.u32 %p1, %r15, 0; selp.b32 %r14, 0, %r14, %p1; add.u32 %r12, %r10, %r14;\n" \
  "ld.shared.u32 %r13, [%r12]; " between " setp.eq.u32 %p2, %r1, 5; @%p2 st.shared.u32 [s], %r1;")

TEST(races_in_shared_memory_are_found)
{
  static uint32_t out[128];
  for (size_t k = 0; k < 4; k++) {
    ptx_launch checked = {.block = {128}, .checks = PTX_CHECK_RACES, .order = orders[k], .seed = k}, free_ = checked;
    free_.checks = 0;
    faults(ACROSS(""), checked, out, sizeof out, 719, "race: the ");
    faults(NEIGHBOUR(""), checked, out, sizeof out, 719, "of shared memory");
    assert_int_equal(run(ACROSS("bar.sync 0;"), checked, out, sizeof out).rc, 0);
    assert_int_equal(run(NEIGHBOUR("bar.warp.sync -1;"), checked, out, sizeof out).rc, 0);
    assert_int_equal(run(NEIGHBOUR(""), free_, out, sizeof out).rc, 0);
    faults(ACROSS("bar.warp.sync -1;"), checked, out, sizeof out, 719, "race: the ");
    /* All threads of a warp read a word, and then one of them writes it; or all of the block do. */
    assert_int_equal(run(READERS("bar.warp.sync -1;", "0"), checked, out, sizeof out).rc, 0);
    faults(READERS("", "0"), checked, out, sizeof out, 719, "race: the ");
    faults(READERS("bar.warp.sync -1; ld.shared.u32 %r13, [s];", "0"), checked, out, sizeof out, 719,
           "several threads");
    assert_int_equal(run(READERS("bar.sync 0;", "1"), checked, out, sizeof out).rc, 0);
    faults(READERS("bar.warp.sync -1;", "1"), checked, out, sizeof out, 719, "race: the ");
  }
}

TEST(races_in_global_memory_are_found)
{
  static uint32_t out[512];
  static const char between_blocks[] = KERNEL("st.global.u32 [%d1], %r4;");
  static const char same_value[] = KERNEL("mov.u32 %r6, 7; st.global.u32 [%d1], %r6;");
  static const char reads[] = KERNEL(
    "xor.b32 %r6, %r4, 256; mul.wide.u32 %d3, %r6, 4; add.s64 %d3, %d1, %d3; ld.global.u32 %r7, [%d3]; add.u32 %r7, %r7, 1; st.global.u32 [%d2], %r7;");
  /* The block that counts last reads what all wrote: right with fences, a race without. */
#define LAST(fence) KERNEL("add.u32 %r20, %r4, 1; st.global.u32 [%d2+16], %r20; bar.sync 0; mov.u32 %r8, 0; setp.ne.u32 %p1, %r1, 0; @%p1 bra J;\n" \
  fence " atom.global.add.u32 %r8, [%d1], 1; " fence "\nJ: bar.red.popc.u32 %r9, 0, %p2; shfl.sync.idx.b32 %r8, %r8, 0, 31, -1;\n" \
  "mov.u32 %r10, %nctaid.x; sub.u32 %r10, %r10, 1; setp.ne.u32 %p3, %r8, %r10; @%p3 bra E; add.u32 %r12, %r3, 1; and.b32 %r12, %r12, 3;\n" \
  "mul.lo.u32 %r12, %r12, 128; cvt.u64.u32 %d6, %r12; add.s64 %d6, %d1, %d6; ld.global.u32 %r11, [%d6+16]; st.global.u32 [%d1+8], %r11;\nE:")
  for (size_t k = 0; k < 4; k++) {
    ptx_launch checked = {.grid = {4}, .block = {32}, .checks = PTX_CHECK_RACES, .order = orders[k], .seed = k};
    memset(out, 0, sizeof out);
    faults(between_blocks, checked, out, sizeof out, 719, "of global memory");
    memset(out, 0, sizeof out);
    checked.block[0] = 128;
    faults(reads, checked, out, sizeof out, 719, "race");
    checked.block[0] = 32;
    memset(out, 0, sizeof out);
    assert_int_equal(run(same_value, checked, out, sizeof out).rc, 0);
    memset(out, 0, sizeof out);
    outcome o = run(LAST("membar.gl;"), checked, out, sizeof out);
    if (o.rc) fail_msg("order %zu: %s", k, o.error);
    assert_int_not_equal(out[2], 0);
    memset(out, 0, sizeof out);
    faults(LAST(""), checked, out, sizeof out, 719, "race: the read");
  }
}

TEST(barriers_that_some_threads_miss_are_found)
{
  uint32_t out[128];
  static const char ended[] = KERNEL("setp.ge.u32 %p1, %r1, 64; @%p1 ret; bar.sync 0;");
  faults(ended, (ptx_launch){.block = {128}, .checks = PTX_CHECK_BARRIERS}, out, sizeof out, 719, "64 threads have ended without reaching it");
  assert_int_equal(run(ended, (ptx_launch){.block = {128}}, out, sizeof out).rc, 0);
  static const char two[] = KERNEL("setp.ge.u32 %p1, %r1, 64; @%p1 bra B; bar.sync 1; ret;\nB: bar.sync 2;");
  faults(two, (ptx_launch){.block = {128}}, out, sizeof out, 719, "deadlock: all threads of the block wait");
  static const char half[] = KERNEL("setp.ge.u32 %p1, %r5, 16; @%p1 bra B; bar.sync 0; bra E;\nB: bar.sync 0;\nE:");
  /* aligned barriers at two places of one warp */
  faults(half, (ptx_launch){.block = {32}}, out, sizeof out, 719, "deadlock");
  static const char lane[] = KERNEL(
    "setp.ge.u32 %p1, %r5, 16; @%p1 bra E; shfl.sync.bfly.b32 %r6, %r5, 1, 31, -1;\nE: bar.warp.sync 0xffff0000;");
  faults(lane, (ptx_launch){.block = {32}}, out, sizeof out, 719, "");
}

TEST(other_faults_name_what_they_are)
{
  uint32_t out[32] = {0};
  faults(KERNEL("setp.eq.u32 %p1, %r1, 5; @%p1 trap;"), (ptx_launch){.block = {32}}, out, sizeof out, 719, "thread 5, PTX line 9 (trap): trap");
  faults(KERNEL("L: bra L;"), (ptx_launch){.block = {32}, .budget = 100000}, out, sizeof out, 702, "not done after");
  faults(KERNEL("setp.lt.u32 %p1, %r5, 16; @!%p1 bra E; shfl.sync.idx.b32 %r6, %r5, 20, 31, 0xffff;\nE:"), (ptx_launch){.block = {32}}, out, sizeof out, 719, "lane 20, which does not take part");
  faults(KERNEL("L: .branchtargets A, A; brx.idx %r5, L; A:"), (ptx_launch){.block = {32}}, out, sizeof out, 719, "brx.idx with 2 of 2 targets");
}

TEST(what_is_not_supported_is_refused_with_its_line)
{
  run_refused(KERNEL("tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [t, {%f1,%f2}];"),
              "PTX line 9: the instruction tex.2d.v4.f32.f32 is not supported");
  run_refused(KERNEL("add.relu.s32 %r1, %r2, %r3;"), "add: the modifier .relu is not supported");
  run_refused(KERNEL("mul.wide.u64 %d1, %d2, %d3;"), "mul.wide.u64 is not supported in this form");
  run_refused(KERNEL("add.s32 %r1, %r2, %nothing;"), "unknown operand %nothing");
  run_refused(KERNEL("add.s32 %r1, %r2, %p1;"), "a predicate where a value must be");
  run_refused(KERNEL("bra NOWHERE;"), "unknown label NOWHERE");
  run_refused(KERNEL("shfl.bfly.b32 %r1, %r2, 1, 31, -1;"), "shfl without .sync");
  run_refused(KERNEL("vote.ballot.b32 %r1, %p1, -1;"), "vote without .sync");
  run_refused(KERNEL("mov.u32 %r1, 5"), "expected \";\"");
  run_refused(
    HEAD
    ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n.visible .entry k()\n{\n.reg .b64 %d<2>; .param .b64 p; .param .b64 q; .param .b32 z;\ncall.uni (z), vprintf, (p, q); ret;\n}\n",
    "PTX line 8: a call of vprintf");
  run_refused(HEAD ".func f()\n{\ncall.uni f; ret;\n}\n.visible .entry k()\n{\ncall.uni f; ret;\n}\n",
              "recursion of f is not supported");
  run_refused(HEAD ".global .align 4 .b8 kept[16];\n.visible .entry k()\n{\nbad;\n}\n",
              "the instruction bad is not supported");
  run_refused(HEAD ".visible .entry k()\n{\n", "the text ends within a function");
  run_refused(".version 7.8\n.target sm_90\n.address_size 32\n", "only 64-bit addresses");
}

TEST(variables_of_a_module_have_their_values)
{
  static const char text[] = HEAD
    ".global .align 4 .u32 table[4] = {3, 1, 4, 1};\n.const .align 8 .b8 bytes[4] = {9, 8, 7, 6};\n.global .align 8 .u64 where = generic(table)+8;\n"
    ".visible .entry k(.param .u64 out)\n{\n.reg .b32 %r<4>; .reg .b64 %d<4>; ld.param.u64 %d1, [out]; ld.global.u32 %r1, [table+4]; ld.const.u8 %r2, [bytes+2];\n"
    "ld.global.u64 %d2, [where]; ld.u32 %r3, [%d2]; mad.lo.u32 %r1, %r2, 100, %r1; mad.lo.u32 %r1, %r3, 10000, %r1; st.global.u32 [%d1], %r1; ret;\n}\n";
  uint32_t out[1] = {0};
  outcome o = run(text, (ptx_launch){.block = {1}}, out, sizeof out);
  if (o.rc) fail_msg("%s", o.error);
  assert_int_equal(out[0], 40701);
}

/* ---- counters and speed ---- */

TEST(counters_tell_bytes_requests_and_sectors)
{
  static uint32_t out[64 * 32];
  static const char straight[] = KERNEL("st.global.u32 [%d2], %r1;"),
                    strided[] = KERNEL("mul.wide.u32 %d2, %r4, 128; add.s64 %d2, %d1, %d2; st.global.u32 [%d2], %r1;");
  outcome o = run(straight, (ptx_launch){.block = {64}, .count_sectors = true}, out, sizeof out);
  assert_int_equal(o.rc, 0);
  assert_int_equal(o.stats.requests, 2);
  assert_int_equal(o.stats.bytes_written, 256);
  assert_in_range(o.stats.sectors, 8, 10); /* 10 where the array does not begin at a sector */
  assert_int_equal(o.stats.threads, 64);
  o = run(strided, (ptx_launch){.block = {64}, .count_sectors = true}, out, sizeof out);
  assert_int_equal(o.stats.sectors, 64);
}

TEST(slots_count_the_instructions_of_the_machine)
{
  static uint32_t out[32];
  static const char *const bodies[] = {KERNEL(""), KERNEL("mov.b32 %r7, %r1;"), KERNEL("mov.u32 %r7, 3;"), KERNEL("add.f32 %f1, %f2, %f3;"),
                                       KERNEL("div.rn.f32 %f1, %f2, %f3;"), KERNEL("div.full.f32 %f1, %f2, %f3;"), KERNEL("sqrt.rn.f32 %f1, %f2;"),
                                       KERNEL("rcp.rn.f32 %f1, %f2;")};
  static const uint64_t more[] = {0, 0, 1, 1, 10, 1, 10, 10};
  uint64_t without = 0;

  for (size_t k = 0; k < sizeof bodies / sizeof *bodies; k++) {
    outcome o = run(bodies[k], (ptx_launch){.block = {32}}, out, sizeof out);
    assert_int_equal(o.rc, 0);
    if (k == 0) without = o.stats.slots;
    assert_int_equal(o.stats.slots, without + more[k]);
  }
}

TEST(speed)
{
  static const char text[] = KERNEL(
    "mov.u32 %r6, 0; cvt.rn.f32.u32 %f1, %r4;\nL: fma.rn.f32 %f2, %f1, %f1, %f1; add.f32 %f1, %f2, %f1; mul.f32 %f1, %f1, 0f3F000000; add.u32 %r6, %r6, 1;\n"
    "setp.lt.u32 %p1, %r6, 500; @%p1 bra L; st.global.f32 [%d2], %f1;");
  static uint32_t out[64 * 256];
  struct timespec a, b;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
  outcome o = run(text, (ptx_launch){.grid = {64}, .block = {256}}, out, sizeof out);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
  assert_int_equal(o.rc, 0);
  double s = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
  print_message("# %.0f million thread instructions a second of one core\n",
                (double)o.stats.lane_instructions / s / 1e6);
}

TEST_MAIN(UNIT(integer_arithmetic), UNIT(bits_shifts_and_fields), UNIT(floating_point_arithmetic), UNIT(comparisons), UNIT(conversions),
          UNIT(narrow_floats_over_all_patterns), UNIT(f16_sums_and_products_against_the_compiler), UNIT(lanes_diverge_and_meet_again),
          UNIT(teams_of_lanes_with_masks_of_their_own), UNIT(branch_tables_and_calls), UNIT(a_register_may_have_the_address_of_a_parameter), UNIT(a_lane_may_wait_for_another_lane_and_a_warp_for_another_warp), UNIT(barriers_and_shared_memory),
          UNIT(dynamic_shared_memory_and_stack), UNIT(shuffles_votes_matches_and_reductions), UNIT(atomic_operations_of_all_types),
          UNIT(vectors_of_all_widths_and_asynchronous_copies), UNIT(a_grid_barrier_needs_a_cooperative_launch), UNIT(bad_addresses_are_found),
          UNIT(values_that_nobody_set_are_nan), UNIT(races_in_shared_memory_are_found), UNIT(races_in_global_memory_are_found),
          UNIT(barriers_that_some_threads_miss_are_found), UNIT(other_faults_name_what_they_are),
          UNIT(what_is_not_supported_is_refused_with_its_line), UNIT(variables_of_a_module_have_their_values),
          UNIT(slots_count_the_instructions_of_the_machine), UNIT(counters_tell_bytes_requests_and_sectors), UNIT(speed))
