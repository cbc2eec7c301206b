/* tests/fuzz/program_fuzz.c -- A compiled program of any bytes, as applications open it (include/weft/program.h): an
 * error, or a program whose devices and arrays are described as the interface promises. The files of this build hold
 * code for three processors. saved_fuzz.h says what inputs are. */
#include <config.h>

#include "cpu/platform.h"
#include "hlo/infer.h"
#include "hlo/text.h"
#include "saved_fuzz.h"
#include "weft/program.h"

/* Two devices; parameters that are tuples; arrays without elements, narrow, of other orders, and none at all. */
static const char *const own_programs[] = {
  "HloModule replicas, replica_count=2\n"
  "sum {\n"
  "  a = f32[] parameter(0)\n"
  "  b = f32[] parameter(1)\n"
  "  ROOT c = f32[] add(a, b)\n"
  "}\n"
  "ENTRY e {\n"
  "  x = f32[4] parameter(0)\n"
  "  ROOT r = f32[4] all-reduce(x), replica_groups={{0,1}}, to_apply=sum\n"
  "}\n",
  "HloModule arrays\n"
  "ENTRY e {\n"
  "  state = (f32[2,3]{0,1}, s32[0,5], token[]) parameter(0)\n"
  "  flag = pred[] parameter(1)\n"
  "  few = s4[7] parameter(2)\n"
  "  a = f32[2,3]{0,1} get-tuple-element(state), index=0\n"
  "  b = s32[0,5] get-tuple-element(state), index=1\n"
  "  t = token[] get-tuple-element(state), index=2\n"
  "  n = f32[2,3]{0,1} negate(a)\n"
  "  z = c128[] constant((1, 2))\n"
  "  ROOT r = (f32[2,3]{0,1}, s32[0,5], token[], pred[], s4[7], c128[]) tuple(n, b, t, flag, few, z)\n"
  "}\n",
  "HloModule nothing\n"
  "ENTRY e {\n"
  "  ROOT r = () tuple()\n"
  "}\n",
};
_Static_assert(SAVED_PROGRAMS + WEFT_COUNT(own_programs) <= MOST_PROGRAMS, "room in made[]");

/* ---- what was opened ---- */

static void check_array(const weft_program_array *a)
{
  uint64_t seen = 0;
  int64_t bytes = (int64_t)weft_dtype_bytes(a->type);

  FUZZ_TRUE(a->name && memchr(a->name, '\0', 1 << 20) != NULL);
  FUZZ_TRUE(a->rank >= 0 && a->rank < 64);
  for (int d = 0; d < a->rank; d++) {
    FUZZ_TRUE(a->dims[d] >= 0);
    FUZZ_TRUE(!__builtin_mul_overflow(bytes, a->dims[d], &bytes));
    FUZZ_TRUE(a->minor_to_major[d] >= 0 && a->minor_to_major[d] < a->rank);
    seen |= UINT64_C(1) << a->minor_to_major[d];
  }
  FUZZ_TRUE(seen == (UINT64_C(1) << a->rank) - 1); /* each dimension once */
  FUZZ_TRUE(a->bytes == bytes);
}

static void check(const weft_program *p)
{
  FUZZ_TRUE(weft_program_name(p) && weft_program_device_count(p) >= 1 && weft_program_device_count(p) <= 1024);
  for (int i = 0; i < weft_program_param_count(p); i++) check_array(weft_program_param(p, i));
  for (int i = 0; i < weft_program_result_count(p); i++) check_array(weft_program_result(p, i));
  FUZZ_TRUE(!weft_program_param(p, -1) && !weft_program_param(p, weft_program_param_count(p)));
  FUZZ_TRUE(!weft_program_result(p, -1) && !weft_program_result(p, weft_program_result_count(p)));
}

static bool load(const char *bytes, size_t size)
{
  weft_program *program;
  weft_status *st = weft_program_open(bytes, size, &(weft_program_options){.threads = 1}, &program);

  FUZZ_TRUE(!st == (program != NULL));
  if (!st) check(program);
  weft_program_close(program);
  weft_status_free(st);
  return !st;
}

/* ---- programs of this build ---- */

static void save(weft_platform *platform, const char *text, saved *out)
{
  weft_executable *exe;
  hlo_module *module;
  void *data;

  FUZZ_OK(hlo_parse(text, strlen(text), &module));
  FUZZ_OK(hlo_verify(module));
  FUZZ_OK(weft_compile(platform, module, &(weft_compile_options){0}, &exe));
  FUZZ_OK(weft_executable_save(exe, "x86-64,x86-64-v3,x86-64-v4", "", NULL, 0, &data, &out->size));
  out->bytes = data;
  weft_executable_release(exe);
}

static void prepare(void)
{
  weft_platform *platform;

  if (made_count > 0) return;
  FUZZ_OK(weft_platform_new(&cpu_platform_ops, &(weft_platform_options){.device_count = 2, .threads = 1}, &platform));
  for (; made_count < SAVED_PROGRAMS + (int)WEFT_COUNT(own_programs); made_count++) {
    int i = made_count;
    save(platform, i < SAVED_PROGRAMS ? saved_programs[i] : own_programs[i - SAVED_PROGRAMS], &made[i]);
    FUZZ_TRUE(load(made[i].bytes, made[i].size));
  }
  weft_platform_release(platform);
}
