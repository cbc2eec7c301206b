/* tests/gpu/collective_programs.h -- for tests of programs with collectives on emulated GPUs: programs, launches on all
 * devices, and what launches that fail say.  The including file defines DEVICES and
 * MOST_BYTES, of a result. */
#ifndef WEFT_TESTS_GPU_COLLECTIVE_PROGRAMS_H
#define WEFT_TESTS_GPU_COLLECTIVE_PROGRAMS_H

#include "cpu/run.h"

#include <unistd.h>

#include "gpu/emulated_symbol.h"

/* The deadline of collectives of which some do not end, and of the others, which may be late on a busy machine. */
enum { TIMEOUT_MS = 1500, PATIENT_MS = 120000 };

static inline weft_platform *platform_called(const char *name)
{
  setenv("WEFT_PLATFORM", name, 1);
  weft_platform *platform = test_platform(DEVICES, 2);
  setenv("WEFT_PLATFORM", "cuda", 1);
  return platform;
}

static inline weft_executable *compile_within(weft_platform *platform, const char *text, int64_t timeout_ms)
{
  hlo_module *module;
  weft_executable *exe;

  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(weft_compile(
    platform, module,
    &(weft_compile_options){.order = BUF_TOPOLOGICAL, .collective_timeout_ns = timeout_ms * WEFT_NS_PER_MS}, &exe));
  return exe;
}
static inline weft_executable *compile(weft_platform *platform, const char *text)
{
  return compile_within(platform, text, PATIENT_MS);
}

/* Launches a program without parameters; ends[d]: what device d's result says; out: the results, in whole. */
static inline void launch(weft_executable *exe, char (*out)[MOST_BYTES], weft_status **ends)
{
  weft_buffer *const *ins[DEVICES] = {NULL}, *results[DEVICES];
  weft_buffer **outs[DEVICES];

  for (int d = 0; d < DEVICES; d++) outs[d] = &results[d];
  T_OK(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs, .launch_id = 7}));
  for (int d = 0; d < DEVICES; d++) {
    ends[d] = weft_buffer_to_host(results[d], out[d], weft_deadline_after_ms(60000));
    weft_buffer_release(results[d]);
  }
}

static inline void launch_well(weft_executable *exe, char (*out)[MOST_BYTES])
{
  weft_status *ends[DEVICES];

  launch(exe, out, ends);
  for (int d = 0; d < DEVICES; d++) T_OK(ends[d]);
}

/* A program whose device d has x = convert(iota + 16 d), with `line` for its result. */
static inline void program(char *text, size_t size, const char *type, const char *reducer, const char *line)
{
  snprintf(text, size,
           "HloModule m, replica_count=%d\n"
           "f {\n"
           "  a = %s[] parameter(0)\n"
           "  b = %s[] parameter(1)\n"
           "  ROOT r = %s[] %s(a, b)\n"
           "}\n"
           "ENTRY e {\n"
           "  d = u32[] replica-id()\n"
           "  s = s32[] convert(d)\n"
           "  k = s32[] constant(3)\n"
           "  o = s32[] multiply(s, k)\n"
           "  i = s32[4,8] iota(), iota_dimension=1\n"
           "  j = s32[4,8] iota(), iota_dimension=0\n"
           "  ij = s32[4,8] add(i, j)\n"
           "  ob = s32[4,8] broadcast(o), dimensions={}\n"
           "  n = s32[4,8] add(ij, ob)\n"
           "  m = s32[] constant(%d)\n"
           "  mb = s32[4,8] broadcast(m), dimensions={}\n"
           "  v = s32[4,8] remainder(n, mb)\n"
           "  x = %s[4,8] convert(v)\n"
           " %s }\n",
           DEVICES, type, type, type, reducer, strcmp(type, "pred") == 0 ? 2 : 5, type, line);
}

/* Every device's result is an error with one of two codes, and some device's has the first and contains `part`. */
static inline void check_ends(const char *what, weft_status **ends, weft_code code, weft_code other, const char *part)
{
  bool found = false;

  for (int d = 0; d < DEVICES; d++) {
    if (!ends[d]) fail_msg("%s: device %d has a result", what, d);
    if (weft_status_code(ends[d]) != code && weft_status_code(ends[d]) != other)
      fail_msg("%s: device %d: %s", what, d, weft_status_text(ends[d], true));
    found |= weft_status_code(ends[d]) == code && strstr(weft_status_text(ends[d], true), part);
  }
  if (!found) fail_msg("%s: no device says \"%s\": %s", what, part, weft_status_text(ends[0], true));
  for (int d = 0; d < DEVICES; d++) weft_status_free(ends[d]);
}

#endif
