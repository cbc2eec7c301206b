/* tests/cpu/optable_test.c -- Every operation with every element type: compiled, by the reference evaluator, and the
 * two compared.
 *
 *   optable_test                     (make check) also holds docs/operations.md to what happened
 *   optable_test --table             prints the table of that page
 *   optable_test --export FILE [K/N] writes programs, arguments and results for optable_jax.py; K/N: every Nth cell
 *                                    of the table from the Kth on
 *   ROW=text TYPE=f32 optable_test   only rows whose name contains text, only that type, each failure in full
 *
 * The programs are in optable.def. */
#include <config.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "platform/registry.h"
#include "hlo/eval.h"
#include "hlo/infer.h"
#include "hlo/text.h"
#include "passes/passes.h"

typedef struct program { const char *row, *styles; double ulps; const char *text; } program;
static const program programs[] = {
#define X(row, styles, ulps, text) {row, styles, ulps, text},
#include "optable.def"
#undef X
};
enum { PROGRAMS = WEFT_COUNT(programs) };

static const weft_dtype types[] = {
  WEFT_PRED, WEFT_S2, WEFT_S4, WEFT_S8, WEFT_S16, WEFT_S32, WEFT_S64, WEFT_U2, WEFT_U4, WEFT_U8, WEFT_U16, WEFT_U32,
  WEFT_U64, WEFT_F8E5M2, WEFT_F8E4M3, WEFT_F8E3M4, WEFT_F8E4M3FN, WEFT_F8E5M2FNUZ, WEFT_F8E4M3FNUZ, WEFT_F8E4M3B11FNUZ,
  WEFT_F8E8M0FNU, WEFT_F6E2M3FN, WEFT_F6E3M2FN, WEFT_F4E2M1FN, WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64, WEFT_C64, WEFT_C128,
};
enum { TYPES = WEFT_COUNT(types) };

/* The computations that programs name. */
#define SCALARS \
  "a = T[] parameter(0)\n" \
  "b = T[] parameter(1) "
#define KEYED(ab) \
  "a = T[] parameter(0)\n" \
  "b = T[] parameter(1)\n" \
  "c = s32[] parameter(2)\n" \
  "d = s32[] parameter(3) " ab
static const struct { const char *name, *body; } regions[] = {
  {"add", SCALARS "ROOT r = T[] add(a, b)"}, {"mul", SCALARS "ROOT r = T[] multiply(a, b)"},
  {"max", SCALARS "ROOT r = T[] maximum(a, b)"}, {"min", SCALARS "ROOT r = T[] minimum(a, b)"},
  {"and", SCALARS "ROOT r = T[] and(a, b)"}, {"or", SCALARS "ROOT r = T[] or(a, b)"},
  {"xor", SCALARS "ROOT r = T[] xor(a, b)"}, {"second",
   "a = T[] parameter(0)\n"
   "ROOT b = T[] parameter(1)"},
  {"ge", SCALARS "ROOT r = pred[] compare(a, b), direction=GE"}, {"less", SCALARS "ROOT r = pred[] compare(a, b), direction=LT"},
  {"more", SCALARS "ROOT r = pred[] compare(a, b), direction=GT"},
  {"less_total", SCALARS "ROOT r = pred[] compare(a, b), direction=LT, type=TOTALORDER"},
  {"less_by_key", KEYED("ROOT r = pred[] compare(a, b), direction=LT")},
  {"argmin",
   "a = T[] parameter(0)\n"
   "i = s32[] parameter(1)\n"
   "b = T[] parameter(2)\n"
   "j = s32[] parameter(3)\n"
   "l = pred[] compare(a, b), direction=LE\n"
   "v = T[] select(l, a, b)\n"
   "w = s32[] select(l, i, j)\n"
   "ROOT t = (T[], s32[]) tuple(v, w)"},
  {"add_both",
   "a = s32[] parameter(0)\n"
   "b = T[] parameter(1)\n"
   "c = s32[] parameter(2)\n"
   "d = T[] parameter(3)\n"
   "e = s32[] add(a, c)\n"
   "f = T[] add(b, d)\n"
   "ROOT t = (s32[], T[]) tuple(e, f)"},
  {"running",
   "a = T[3] parameter(0)\n"
   "b = T[3] parameter(1)\n"
   "s = T[3] add(a, b)\n"
   "ROOT t = (T[3], T[3]) tuple(s, s)"},
  {"swap6",
   "a = T[6] parameter(0)\n"
   "b = T[6] parameter(1)\n"
   "ROOT r = T[6] add(b, a)"},
  {"same6", "ROOT a = T[6] parameter(0)"}, {"same6b", "ROOT a = T[6] parameter(0)"},
  {"rev6",
   "a = T[6] parameter(0)\n"
   "ROOT r = T[6] reverse(a), dimensions={0}"},
  {"below5",
   "t = (s32[], T[6]) parameter(0)\n"
   "i = s32[] get-tuple-element(t), index=0\n"
   "n = s32[] constant(5)\n"
   "ROOT r = pred[] compare(i, n), direction=LT"},
  {"turn6",
   "t = (s32[], T[6]) parameter(0)\n"
   "i = s32[] get-tuple-element(t), index=0\n"
   "x = T[6] get-tuple-element(t), index=1\n"
   "o = s32[] constant(1)\n"
   "j = s32[] add(i, o)\n"
   "y = T[6] reverse(x), dimensions={0}\n"
   "ROOT r = (s32[], T[6]) tuple(j, y)"},
};

/* ---- programs of a type ------------------------------------------------------------------------------------------ */

static weft_dtype unsigned_of(weft_dtype type)
{
  static const weft_dtype of[] = {WEFT_U2, WEFT_U4, WEFT_U8, WEFT_U16, WEFT_U32, WEFT_U64};
  for (size_t i = 0; i < WEFT_COUNT(of) && !weft_dtype_is_complex(type); i++)
    if (weft_dtype_bits(of[i]) == weft_dtype_bits(type)) return of[i];
  return WEFT_INVALID;
}

/* The wider type in which products of `type` are summed. */
static weft_dtype wider(weft_dtype type)
{
  switch (weft_dtype_class_of(type)) {
  case WEFT_CLASS_SINT: return weft_dtype_bits(type) < 32 ? WEFT_S32 : WEFT_S64;
  case WEFT_CLASS_UINT: return weft_dtype_bits(type) < 32 ? WEFT_U32 : WEFT_U64;
  case WEFT_CLASS_FLOAT: return weft_dtype_bits(type) < 32 ? WEFT_F32 : WEFT_F64;
  case WEFT_CLASS_COMPLEX: return WEFT_C128;
  default: return WEFT_S32;
  }
}

static weft_dtype type_of_letter(char letter, weft_dtype type)
{
  switch (letter) {
  case 'T': return type;
  case 'R': return weft_dtype_component(type);
  case 'C': return weft_dtype_complex_of(type);
  case 'U': return unsigned_of(type);
  case 'W': return wider(type);
  default: return WEFT_INVALID;
  }
}

static bool is_word(char c)
{
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Text with letters before `[` made types; false if the type has no such relative. */
static bool put(FILE *out, const char *text, weft_dtype type)
{
  for (const char *at = text; *at; at++) {
    bool letter = at[1] == '[' && strchr("TRCUW", *at) && (at == text || !is_word(at[-1]));
    weft_dtype t = letter ? type_of_letter(*at, type) : WEFT_INVALID;
    if (letter && t == WEFT_INVALID) return false;
    if (letter) fputs(weft_dtype_name(t), out);
    else fputc(*at, out);
  }
  return true;
}

static bool names(const char *text, const char *name)
{
  size_t length = strlen(name);
  for (const char *at = text; (at = strstr(at, name)); at++)
    if (at > text && (at[-1] == '=' || at[-1] == '{' || (at[-1] == ' ' && at[-2] == ',')) && !is_word(at[length]) &&
        at[length] != '(')
      return true;
  return false;
}

/* Owned by the caller; NULL where the type has no such program. */
static char *program_text(const program *p, weft_dtype type)
{
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  bool ok = true;

  fputs("HloModule m\n", out);
  for (size_t i = 0; i < WEFT_COUNT(regions); i++)
    if (names(p->text, regions[i].name)) {
      fprintf(out, "%s { ", regions[i].name);
      ok = put(out, regions[i].body, type) && ok;
      fputs(" }\n", out);
    }
  fputs("ENTRY e { ", out);
  ok = put(out, p->text, type) && ok;
  fputs(" }\n", out);
  fclose(out);
  if (ok) return text;
  free(text);
  return NULL;
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static uint64_t random_state;
static uint64_t random64(void) /* splitmix64 */
{
  uint64_t z = (random_state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}
static double random_unit(void) { return (double)(random64() >> 11) * 0x1p-53; }

static const double edge_floats[32] = {
  0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, INFINITY, -INFINITY, NAN, 3.7, -3.7, 100, 1e-3, 65504, -65504, 448, 57344,
  3.3e38, -1.7e308, 1e30, -1e-30, 2147483648.0, -2147483649.0, 9.3e18, 255.5, 3, -7, 0.1, 0x1p-120};

static int64_t edge_integer(weft_dtype type, int64_t i)
{
  int bits = weft_dtype_bits(type);
  int64_t least = weft_dtype_is_signed(type) ? (int64_t)(~UINT64_C(0) << (bits - 1)) : 0;
  int64_t most = weft_dtype_is_signed(type) ? ~least : bits == 64 ? -1 : (INT64_C(1) << bits) - 1;
  const int64_t some[] = {0, 1, -1, least, most, least + 1, most - 1, 2, 3, -2, 7, 8, bits - 1, bits, bits + 1, 31, 32, 63, 64};
  return i < (int64_t)WEFT_COUNT(some) ? some[i] : (int64_t)random64();
}

static void set_bits(hlo_literal *lit, int64_t i, uint64_t bits)
{
  weft_dtype type = lit->shape->type;
  size_t bytes = weft_dtype_bytes(type);

  if (weft_dtype_is_integer(type)) hlo_literal_set_s64(lit, i, (int64_t)bits); /* in canonical form */
  else {
    if (weft_dtype_bits(type) < 64) bits &= (UINT64_C(1) << weft_dtype_bits(type)) - 1;
    memcpy((char *)lit->data + (size_t)i * bytes, &bits, bytes);
  }
}

/* Edge value `i` of a type, then random bits; of 8 bits and less, every value in turn. */
static void set_edge(hlo_literal *lit, int64_t at, int64_t i)
{
  weft_dtype type = lit->shape->type;

  if (type == WEFT_PRED) hlo_literal_set_s64(lit, at, (i ^ (i >> 2)) & 1);
  else if (weft_dtype_is_complex(type))
    hlo_literal_set_f64(lit, at, edge_floats[i % 20], edge_floats[(i / 16 + 2) % 20]);
  else if (weft_dtype_bits(type) <= 8) set_bits(lit, at, (uint64_t)i);
  else if (weft_dtype_is_integer(type)) hlo_literal_set_s64(lit, at, edge_integer(type, i));
  else if (i < 32) hlo_literal_set_f64(lit, at, edge_floats[i], 0);
  else set_bits(lit, at, random64());
}

/* Symmetric and diagonally dominant. */
static void fill_definite(hlo_literal *lit)
{
  int64_t n = lit->shape->dims[lit->shape->rank - 1], count = hlo_shape_elems(lit->shape);

  for (int64_t at = 0; at < count; at++) {
    int64_t i = at / n % n, j = at % n, low = WEFT_MIN(i, j), high = WEFT_MAX(i, j);
    hlo_literal_set_f64(lit, at, i == j ? 4 + (double)i : 0.25 * (double)(low + 1) - 0.1 * (double)high,
                        i == j ? 0 : (i < j ? 0.3 : -0.3) * (double)(high - low));
  }
}

static void fill_element(hlo_literal *lit, char style, int64_t i)
{
  weft_dtype type = lit->shape->type;
  bool integer = weft_dtype_is_integer(type) || type == WEFT_PRED;
  double unit = random_unit(), other = random_unit();

  if (style == 'A' || style == 'B') style = weft_dtype_is_complex(type) ? 'm' : style + ('a' - 'A');
  switch (style) {
  case 'a': set_edge(lit, i, weft_dtype_bits(type) <= 8 ? i * 7 : i / 32); break; /* pairs: all of 32 by 32 */
  case 'b': set_edge(lit, i, weft_dtype_bits(type) <= 8 ? i / 4 + i : i % 32); break;
  case 'e': set_edge(lit, i, i); break;
  case 'n': /* edge values that have an order */
    set_edge(lit, i, i);
    if (!integer && !(hlo_literal_get_f64(lit, i) != 0)) hlo_literal_set_f64(lit, i, 1, 0);
    if (!integer && isnan(hlo_literal_get_f64(lit, i))) hlo_literal_set_f64(lit, i, 2, 0);
    break;
  case 'd':
    if (weft_dtype_is_complex(type)) hlo_literal_set_f64(lit, i, unit, other);
    else if (type == WEFT_PRED) hlo_literal_set_s64(lit, i, unit < 0.5);
    else set_bits(lit, i, random64());
    break;
  case 'k':
    if (integer) hlo_literal_set_s64(lit, i, (int64_t)(unit * 5));
    else hlo_literal_set_f64(lit, i, floor(unit * 5) / 2, floor(other * 2));
    break;                                                               /* many ties */
  case 'i': hlo_literal_set_s64(lit, i, (int64_t)(unit * 8) - 1); break; /* indices, some outside */
  case 'g': hlo_literal_set_s64(lit, i, i + 1); break;                   /* group sizes */
  case 'p': hlo_literal_set_f64(lit, i, 0.5 + unit, 0); break;
  case 'L':
    if (integer) hlo_literal_set_s64(lit, i, edge_integer(type, 3));
    else hlo_literal_set_f64(lit, i, -INFINITY, 0);
    break;
  case 'G':
    if (integer) hlo_literal_set_s64(lit, i, edge_integer(type, 4));
    else hlo_literal_set_f64(lit, i, INFINITY, 0);
    break;
  case '0': case '1': case '3': if (integer) hlo_literal_set_s64(lit, i, style - '0'); else hlo_literal_set_f64(lit, i, style - '0', 0); break;
  default: /* m: moderate */
    if (integer) hlo_literal_set_s64(lit, i, (int64_t)(unit * 7) - (weft_dtype_is_signed(type) ? 3 : 0));
    else hlo_literal_set_f64(lit, i, 4 * unit - 2, 4 * other - 2);
  }
}

static weft_status *make_arguments(const program *p, const hlo_module *module, weft_arena *arena,
                                   const hlo_literal **args)
{
  random_state = 12345;
  for (int i = 0; i < module->entry->param_count; i++) {
    hlo_literal *lit;
    WEFT_TRY(hlo_literal_new(arena, hlo_shape_without_layout(arena, module->entry->params[i]->shape), &lit));
    if (p->styles[i] == 's') fill_definite(lit);
    else
      for (int64_t j = 0; j < hlo_shape_elems(lit->shape); j++) fill_element(lit, p->styles[i], j);
    args[i] = lit;
  }
  return NULL;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static weft_platform *platform;

/* Gives the leaves of the result, and whether the reference evaluator ran one of the steps. */
static weft_status *run_compiled(const char *text, const hlo_literal *const *args, weft_arena *arena, hlo_literal **out,
                                 bool *by_reference)
{
  WEFT_AUTO(weft_executable) exe = NULL;
  weft_buffer *in[8], *results[16];
  weft_buffer *const *ins[] = {in};
  weft_buffer **outs[] = {results};
  hlo_module *module;
  weft_status *st = NULL;
  char *steps = NULL;
  size_t size;

  WEFT_TRY(hlo_parse(text, strlen(text), &module));
  WEFT_TRY(weft_compile(platform, module, &(weft_compile_options){0}, &exe));
  FILE *print = open_memstream(&steps, &size);
  WEFT_TRY(weft_executable_print(exe, print));
  fclose(print);
  *by_reference = strstr(steps, "reference") != NULL;
  free(steps);
  for (int i = 0; i < weft_executable_param_count(exe); i++)
    WEFT_TRY(weft_buffer_from_host(weft_platform_device(platform, 0), weft_executable_param_type(exe, i), args[i]->data,
                                   &in[i]));
  st = weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs});
  for (int i = 0; i < weft_executable_param_count(exe); i++) weft_buffer_release(in[i]);
  if (st) return st;
  for (int i = 0; i < weft_executable_output_count(exe); i++) {
    const weft_array_type *type = weft_executable_output_type(exe, i);
    weft_status *one = hlo_literal_new(arena, hlo_shape_array(arena, type->type, type->rank, type->dims), &out[i]);
    if (!one) one = weft_buffer_to_host(results[i], out[i]->data, weft_deadline_after_ms(60000));
    weft_buffer_release(results[i]);
    if (!st) st = one;
    else weft_status_free(one);
  }
  return st;
}

static const hlo_literal *leaf_of(const hlo_literal *lit, int leaf)
{
  return lit->elements ? lit->elements[leaf] : lit;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

/* Position of a float among all values of its type. */
static double ordinal(weft_dtype type, double x)
{
  double bits = (double)weft_float_encode_f64(type, fabs(x));
  return x < 0 ? -bits : bits;
}

/* The greatest magnitude in an array: from SUM_ULPS on, errors are relative to
 * it, since what is added up may cancel. */
enum { SUM_ULPS = 8 };
static double scale_of(const hlo_literal *lit)
{
  double scale = 0;
  for (int64_t i = 0; i < hlo_shape_elems(lit->shape); i++) {
    double x = fabs(hlo_literal_get_f64(lit, i)), y = fabs(hlo_literal_get_imag(lit, i));
    if (isfinite(x + y)) scale = fmax(scale, x + y);
  }
  return scale;
}

static bool near(weft_dtype type, double got, double want, double ulps, double scale)
{
  if (isnan(got) || isnan(want)) return isnan(got) && isnan(want);
  if (got == want) return ulps > 0 || got != 0 || signbit(got) == signbit(want);
  if (ulps > 0 && weft_dtype_bits(type) <= 16) ulps++; /* computed in f32 and rounded: a tie may fall either way */
  if (fabs(ordinal(type, got) - ordinal(type, want)) <= ulps) return true;
  return fabs(ordinal(type, scale + fabs(got - want)) - ordinal(type, scale)) <= ulps - SUM_ULPS;
}

/* The error of each part is at most `ulps` of the part with the greater magnitude. A value that is not finite need only
 * be matched by one that is not finite. */
static bool near_complex(weft_dtype part, const double *got, const double *want, double ulps, double scale)
{
  if (!isfinite(want[0]) || !isfinite(want[1])) return !isfinite(got[0]) || !isfinite(got[1]);
  double unit = fmax(ulps > SUM_ULPS ? scale : hypot(want[0], want[1]), part == WEFT_F32 ? 0x1p-126 : 0x1p-1022) *
                (part == WEFT_F32 ? 0x1p-23 : 0x1p-52);
  return fabs(got[0] - want[0]) <= ulps * unit && fabs(got[1] - want[1]) <= ulps * unit;
}

/* The first element that differs; -1: none. */
static int64_t difference(const hlo_literal *got, const hlo_literal *want, double ulps)
{
  weft_dtype type = want->shape->type;
  size_t bytes = weft_dtype_bytes(type);
  double scale = scale_of(want);

  for (int64_t i = 0; i < hlo_shape_elems(want->shape); i++) {
    double g[2] = {hlo_literal_get_f64(got, i), hlo_literal_get_imag(got, i)};
    double w[2] = {hlo_literal_get_f64(want, i), hlo_literal_get_imag(want, i)};
    bool same = memcmp((char *)got->data + bytes * (size_t)i, (char *)want->data + bytes * (size_t)i, bytes) == 0;
    if (!same && weft_dtype_is_float(type)) same = near(type, g[0], w[0], ulps, scale);
    if (!same && weft_dtype_is_complex(type)) same = near_complex(weft_dtype_component(type), g, w, ulps, scale);
    if (!same) return i;
  }
  return -1;
}

/* ---- one cell ---------------------------------------------------------------------------------------------------- */

static char cells[PROGRAMS][TYPES]; /* '.' not allowed, '+' compiled, 'r' by the reference evaluator, 'U', 'x' wrong */
static char *reasons[PROGRAMS][TYPES];
static FILE *export;
static bool verbose;

static void write_literal(const char *what, const hlo_literal *lit)
{
  size_t bytes = (size_t)hlo_shape_bytes(lit->shape);

  fprintf(export, "%s %s ", what, weft_dtype_name(lit->shape->type));
  for (int i = 0; i < lit->shape->rank; i++) fprintf(export, "%s%lld", i ? "," : "", (long long)lit->shape->dims[i]);
  fputs(lit->shape->rank ? " " : "- ", export);
  for (size_t i = 0; i < bytes; i++) fprintf(export, "%02x", ((const unsigned char *)lit->data)[i]);
  fputc('\n', export);
}

static void export_case(const program *p, weft_dtype type, const char *text, const hlo_literal *const *args,
                        int arg_count, hlo_literal *const *got, int count)
{
  if (!export) return;
  fprintf(export, "case %s %g %s\ntext %s\n", weft_dtype_name(type), p->ulps, p->row, "");
  fputs(text, export);
  fputs("end\n", export);
  for (int i = 0; i < arg_count; i++) write_literal("arg", args[i]);
  for (int i = 0; i < count; i++) write_literal("out", got[i]);
}

/* The evaluator does not support arrays that are smaller than their bounds: a pass rewrites them. */
static weft_status *evaluate(const program *p, hlo_module *module, const hlo_literal *const *args, weft_arena *arena,
                             const hlo_literal **want)
{
  static const struct pass_entry entries[] = {{.pass = &pass_dynamic_dimensions}};
  static const pass_pipeline bounds = {"bounds", entries, .count = 1, .rounds = 1};
  hlo_eval_options options = {.deadline = WEFT_NO_DEADLINE, .stepwise_sums = true};

  if (strcmp(p->row, "set-dimension-size") == 0) WEFT_TRY(pass_run(&bounds, module, &(pass_options){0}, NULL, NULL));
  return hlo_eval_module(module, args, &options, arena, want);
}

static weft_status *run_cell(const program *p, weft_dtype type, const char *text, weft_arena *arena, char *cell)
{
  WEFT_AUTO(hlo_module) module = NULL;
  const hlo_literal *args[8], *want;
  hlo_literal *got[16] = {NULL};
  weft_status *st;
  bool by_reference = false;

  *cell = '.';
  st = hlo_parse(text, strlen(text), &module);
  if (!st) st = hlo_verify(module);
  if (st) return st;
  *cell = 'x';
  WEFT_TRY(make_arguments(p, module, arena, args));
  WEFT_TRY(run_compiled(text, args, arena, got, &by_reference));
  int leaves = hlo_shape_leaf_count(module->entry->root->shape);
  export_case(p, type, text, args, module->entry->param_count, got, leaves);
  bool talks =
    /* the result does not come from the evaluator: on one device it is the operand */
    hlo_opcode_is_collective(module->entry->root->op);
  if (talks) want = args[module->entry->root->op == HLO_RAGGED_ALL_TO_ALL];
  else WEFT_TRY(evaluate(p, module, args, arena, &want));
  *cell = by_reference ? 'r' : '+';
  if (p->ulps < 0 || module->entry->root->op == HLO_RAGGED_ALL_TO_ALL) return NULL;
  for (int leaf = 0; leaf < leaves; leaf++) {
    int64_t at = difference(got[leaf], leaf_of(want, leaf), p->ulps);
    if (at < 0) continue;
    *cell = 'x';
    return WEFT_ERR(INTERNAL, "result %d, element %lld: compiled %.17g %+.17gi, reference %.17g %+.17gi", leaf,
                    (long long)at, hlo_literal_get_f64(got[leaf], at), hlo_literal_get_imag(got[leaf], at),
                    hlo_literal_get_f64(leaf_of(want, leaf), at), hlo_literal_get_imag(leaf_of(want, leaf), at));
  }
  return NULL;
}

static int try_cell(int p, int t)
{
  char *text = program_text(&programs[p], types[t]), *cell = &cells[p][t];
  weft_arena arena;

  *cell = '.';
  if (!text) return 0;
  weft_arena_init(&arena);
  weft_status *st = run_cell(&programs[p], types[t], text, &arena, cell);
  if (*cell == 'x' && weft_status_code(st) == WEFT_UNIMPLEMENTED) *cell = 'U';
  if (st && (*cell != '.' || verbose)) reasons[p][t] = strdup(weft_status_text(st, false));
  if (*cell == 'x' || (*cell == 'U' && verbose))
    printf("# %s of %s: %.500s\n%s%s", programs[p].row, weft_dtype_name(types[t]), reasons[p][t], verbose ? text : "",
           verbose ? "\n" : "");
  weft_status_free(st);
  weft_arena_fini(&arena);
  free(text);
  return *cell == 'x';
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* Of programs that share a row: the worst that is not '.'. */
static char worse(char a, char b)
{
  static const char order[] = ".+rUx";
  return strchr(order, a) > strchr(order, b) ? a : b;
}

static bool first_of_row(int p)
{
  for (int q = 0; q < p; q++)
    if (strcmp(programs[q].row, programs[p].row) == 0) return false;
  return true;
}

static void print_row(FILE *out, int p)
{
  fprintf(out, "%-28s", programs[p].row);
  for (int t = 0; t < TYPES; t++) {
    char cell = '.';
    for (int q = p; q < PROGRAMS; q++)
      if (strcmp(programs[q].row, programs[p].row) == 0) cell = worse(cell, cells[q][t]);
    fprintf(out, " %c", cell);
  }
  fputc('\n', out);
}

static void print_table(FILE *out)
{
  for (int line = 0; line < 13; line++) { /* the names of types, downwards */
    fprintf(out, "%-28s", "");
    for (int t = 0; t < TYPES; t++) {
      const char *name = weft_dtype_name(types[t]);
      int at = line - (13 - (int)strlen(name));
      fprintf(out, " %c", at < 0 ? ' ' : name[at]);
    }
    fputc('\n', out);
  }
  for (int p = 0; p < PROGRAMS; p++)
    if (first_of_row(p)) print_row(out, p);
}

/* What is UNIMPLEMENTED: row, types, and the words of the first of them. */
static void print_reasons(FILE *out)
{
  for (int p = 0; p < PROGRAMS; p++) {
    const char *why = NULL;
    for (int t = 0; t < TYPES; t++) {
      if (cells[p][t] != 'U') continue;
      fprintf(out, why ? " %s" : "%s: %s", why ? weft_dtype_name(types[t]) : programs[p].row,
              weft_dtype_name(types[t]));
      if (!why) why = reasons[p][t];
    }
    if (why) fprintf(out, ": %.*s\n", (int)strcspn(why, "(\n"), why);
  }
}

/* Each row must be in the page, where '*' (equal to XLA's, too) stands for '+' or 'r' as well. */
static int check_page(void)
{
  char path[4096], line[4096], *row = NULL;
  int missing = 0, number = 0;
  size_t size;
  const char *root = getenv("WEFT_SRCDIR");

  snprintf(path, sizeof path, "%s/docs/operations.md", root ? root : ".");
  FILE *page = fopen(path, "r");
  if (!page) return printf("# no %s\n", path), 1;
  for (int p = 0; p < PROGRAMS; p++) {
    if (!first_of_row(p)) continue;
    FILE *out = open_memstream(&row, &size);
    print_row(out, p);
    fclose(out);
    bool found = false;
    rewind(page);
    while (!found && fgets(line, sizeof line, page)) {
      found = strlen(line) == size && strncmp(line, row, 28) == 0;
      for (size_t i = 28; found && i < size; i++)
        found = line[i] == row[i] || (line[i] == '*' && row[i] == '+') || (line[i] == 'R' && row[i] == 'r');
    }
    if (!found) printf("# docs/operations.md should say\n#   %s", row);
    missing += !found;
    number++;
    free(row);
  }
  fclose(page);
  printf("# %d rows, %d not as in docs/operations.md\n", number, missing);
  return missing;
}

int main(int argc, char **argv)
{
  const char *row = getenv("ROW"), *type = getenv("TYPE");
  bool table = argc > 1 && strcmp(argv[1], "--table") == 0;
  int counts[128] = {0}, failed = 0, part = 0, parts = 1;

  verbose = row || type;
  if (argc > 2 && strcmp(argv[1], "--export") == 0 && !(export = fopen(argv[2], "w"))) return perror(argv[2]), 1;
  if (export && argc > 3 && (sscanf(argv[3], "%d/%d", &part, &parts) != 2 || parts < 1))
    return printf("Bail out! \"%s\": expected K/N\n", argv[3]), 1;
  weft_status *st = plat_new(&(weft_platform_options){.device_count = 1}, &platform);
  if (st) return printf("Bail out! %s\n", weft_status_text(st, true)), 1;
  for (int p = 0; p < PROGRAMS; p++)
    for (int t = 0; t < TYPES; t++) {
      if ((row && !strstr(programs[p].row, row)) || (type && strcmp(weft_dtype_name(types[t]), type) != 0)) continue;
      if ((p * TYPES + t) % parts != part) continue;
      failed += try_cell(p, t);
      counts[(unsigned char)cells[p][t]]++;
    }
  weft_platform_release(platform);
  if (export) fclose(export);
  if (table) {
    print_table(stdout);
    print_reasons(stdout);
  } else {
    printf(
      "# %d programs: %d compiled, %d by the reference evaluator, %d UNIMPLEMENTED, %d wrong; %d are not allowed\n",
      counts['+'] + counts['r'] + counts['U'] + counts['x'], counts['+'], counts['r'], counts['U'], counts['x'],
      counts['.']);
    printf("%sok 1 - compiled results are the reference evaluator's\n", failed ? "not " : "");
    if (!verbose && !export) {
      int missing = check_page();
      printf("%sok 2 - docs/operations.md says what happens\n1..2\n", missing ? "not " : "");
      failed += missing;
    } else {
      printf("1..1\n");
    }
  }
  return failed != 0;
}
