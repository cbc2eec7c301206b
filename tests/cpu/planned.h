/* tests/cpu/planned.h -- plans a fusion that a file says to be a step of the CPU's library: it must be one that the
 * library can do, and the rest is the evaluator's. */
#ifndef WEFT_TESTS_CPU_PLANNED_H
#define WEFT_TESTS_CPU_PLANNED_H

#include "test.h"

#include <string.h>

#include "cpu/makers.h"
#include "hlo/text.h"

typedef weft_status *library_plan(const cpu_target *target, weft_arena *arena, const hlo_instr *instr, low_plan *out);

/* Plans the root of the program; `why`: a part of the error, or NULL if there is none. */
static inline void is_planned(const char *text, library_plan *plan, const char *why)
{
  weft_arena arena;
  hlo_module *module;
  gen_code *code;
  gen_options options;
  low_plan out = {0};

  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(gen_options_load(&options));
  T_OK(gen_compile(module, &options, &code));
  weft_arena_init(&arena);
  cpu_target target = {.machine = &gen_cpu_target, .code = code};
  weft_status *st = plan(&target, &arena, module->entry->root, &out);
  if (why) T_FAILS(st, why);
  else T_OK(st);
  if (!why && out.destroy) out.destroy(out.data);
  weft_arena_fini(&arena);
  gen_code_free(code);
  hlo_module_free(module);
}

/* Scores s of ROWS x 80, and p, what a kernel over rows makes of t, which `what` makes of s. */
#define PLANNED_KERNEL(rows, what) \
  "max {\n" \
  "  a = f32[] parameter(0)\n" \
  "  b = f32[] parameter(1)\n" \
  "  ROOT c = f32[] maximum(a, b)\n" \
  "}\n" \
  "kernel {\n" \
  "  s = f32[" rows ",80] parameter(0)\n" \
  "  low = f32[] constant(-inf)\n" what \
  "  m = f32[" rows "] reduce(t, low), dimensions={1}, to_apply=max\n" \
  "  mb = f32[" rows ",80] broadcast(m), dimensions={0}\n" \
  "  ROOT d = f32[" rows ",80] subtract(t, mb)\n" \
  "}\n"
#define PLANNED_SCORES(rows, of) "  s = f32[" rows ",80] dot(" of "), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
#define PLANNED_CALL(rows, of) "  p = f32[" rows ",80] fusion(" of "), kind=kCustom, calls=kernel, backend_config=\"row\"\n"

#endif
