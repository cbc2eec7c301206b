/* tests/hlo/golden.h -- programs with the values that jaxlib computed, for whatever runs programs.
 *
 * A file of cases (default: eval_golden.txt beside this; made by eval_golden.py) is a sequence of
 *   == case NAME ulps=N        then an HLO module
 *   == args                    a module whose root is a tuple of constants: its arguments
 *   == want                    a module whose root is a tuple of constants (reshaped): what jaxlib gave
 * ulps: largest distance of floats in units in the last place of their type; integers must be equal.
 * `atol=X` in addition lets absolute differences up to X pass.
 *
 * The including program defines golden_run and calls golden_main. */
#ifndef WEFT_TESTS_HLO_GOLDEN_H
#define WEFT_TESTS_HLO_GOLDEN_H

#include <config.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "read_file.h"

#include "hlo/eval.h"
#include "hlo/infer.h"
#include "hlo/text.h"

/* Position of a float among all values of its type, so that neighbours differ by 1. */
static int64_t ordinal(weft_dtype type, double x)
{
  int64_t bits = (int64_t)weft_float_encode_f64(type, fabs(x));

  return x < 0 ? -bits : bits;
}

static bool close_enough(weft_dtype type, double got, double want, double ulps, double atol_)
{
  if (isnan(got) || isnan(want)) return isnan(got) && isnan(want);
  if (got == want || fabs(got - want) <= atol_) return true;
  return !isinf(got) && !isinf(want) && fabs((double)(ordinal(type, got) - ordinal(type, want))) <= ulps;
}

/* Prints the first difference of got and want; true if there is none. */
static bool compare(const hlo_literal *got, const hlo_literal *want, double ulps, double atol_)
{
  if (hlo_shape_is_tuple(want->shape)) {
    if (!hlo_shape_is_tuple(got->shape)) return want->shape->rank == 1 && compare(got, want->elements[0], ulps, atol_);
    for (int i = 0; i < want->shape->rank; i++)
      if (!compare(got->elements[i], want->elements[i], ulps, atol_)) return false;
    return true;
  }
  weft_dtype type = want->shape->type, part = weft_dtype_component(type);
  if (!hlo_shape_equal(got->shape, want->shape, false)) {
    printf("# other shape\n");
    return false;
  }
  for (int64_t i = 0; i < hlo_shape_elems(want->shape); i++) {
    bool is_float = weft_dtype_is_float(part);
    double g = is_float ? hlo_literal_get_f64(got, i) : 0, w = is_float ? hlo_literal_get_f64(want, i) : 0;
    double gi = is_float ? hlo_literal_get_imag(got, i) : 0, wi = is_float ? hlo_literal_get_imag(want, i) : 0;
    bool same = is_float ? close_enough(part, g, w, ulps, atol_) && close_enough(part, gi, wi, ulps, atol_)
                         : hlo_literal_get_s64(got, i) == hlo_literal_get_s64(want, i);
    if (same) continue;
    if (is_float) printf("# element %" PRId64 ": got (%.17g, %.17g), want (%.17g, %.17g)\n", i, g, gi, w, wi);
    else
      printf("# element %" PRId64 ": got %" PRId64 ", want %" PRId64 "\n", i, hlo_literal_get_s64(got, i),
             hlo_literal_get_s64(want, i));
    return false;
  }
  return true;
}

static weft_status *parse(const char *text, hlo_module **out)
{
  WEFT_TRY(hlo_parse(text, strlen(text), out));
  return hlo_verify(*out);
}

/* Runs the program; the result is in `arena`. */
static weft_status *golden_run(const char *text, const hlo_module *module, const hlo_literal *args, weft_arena *arena,
                               const hlo_literal **got);

static weft_status *run_case(const char *program, const char *args_text, const char *want_text, double ulps,
                             double atol_, bool *same)
{
  WEFT_AUTO(hlo_module) module = NULL;
  WEFT_AUTO(hlo_module) args_module = NULL;
  WEFT_AUTO(hlo_module) want_module = NULL;
  hlo_eval_options options = HLO_EVAL_DEFAULT;
  const hlo_literal *args, *want, *got = NULL;
  weft_arena arena;

  WEFT_TRY(parse(program, &module));
  WEFT_TRY_NOTE(parse(args_text, &args_module), "args");
  WEFT_TRY_NOTE(parse(want_text, &want_module), "want");
  weft_arena_init(&arena);
  weft_status *st = hlo_eval_module(args_module, NULL, &options, &arena, &args);
  if (!st) st = hlo_eval_module(want_module, NULL, &options, &arena, &want);
  if (!st) st = golden_run(program, module, args, &arena, &got);
  if (!st) *same = compare(got, want, ulps, atol_);
  weft_arena_fini(&arena);
  return st;
}

static int golden_main(int argc, char **argv)
{
  char path[4096], *at;
  size_t size;
  int number = 0, failed = 0;

  snprintf(path, sizeof path, "%s/tests/hlo/eval_golden.txt", getenv("WEFT_SRCDIR") ? getenv("WEFT_SRCDIR") : ".");
  char *text = read_file(argc > 1 ? argv[1] : path, &size);
  if (!text) {
    printf("1..0 # SKIP no %s\n", argc > 1 ? argv[1] : path);
    return 0;
  }
  at = strstr(text, "== case ");
  while (at) {
    char name[256] = "";
    double ulps = 0, atol_ = 0;
    bool same = false;
    char *next = strstr(at + 8, "\n== case "), *program = strchr(at, '\n');
    if (next) *next++ = 0;
    char *args = program ? strstr(program, "\n== args\n") : NULL;
    char *want = args ? strstr(args, "\n== want\n") : NULL;
    if (!want || sscanf(at, "== case %255s ulps=%lf atol=%lf", name, &ulps, &atol_) < 2) {
      printf("Bail out! malformed case: %.60s\n", at);
      return 1;
    }
    *args = *want = 0;
    weft_status *st = run_case(program + 1, args + 9, want + 9, ulps, atol_, &same);
    if (st) printf("# %s: %s\n", name, weft_status_text(st, false));
    printf("%sok %d - %s\n", st || !same ? "not " : "", ++number, name);
    failed += st || !same;
    weft_status_free(st);
    at = next;
  }
  printf("1..%d\n", number);
  free(text);
  return failed != 0;
}

#endif
