/* bench/dispatch.c -- the cost of a launch: a scalar add, its input ready, on one device.  Prints one line a case. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/deadline.h"
#include "platform/registry.h"
#include "hlo/text.h"

enum { ROUNDS = 20000 };

static int compare(const void *a, const void *b)
{
  return (*(const int64_t *)a > *(const int64_t *)b) - (*(const int64_t *)a < *(const int64_t *)b);
}

static weft_status *measure(const char *name, const char *text)
{
  static int64_t ns[ROUNDS];
  hlo_module *module;
  weft_platform *platform;
  weft_executable *exe;
  weft_buffer *in[2], *out;
  weft_buffer *const *ins[] = {in};
  weft_buffer **outs[] = {&out};

  WEFT_TRY(hlo_parse(text, strlen(text), &module));
  WEFT_TRY(plat_new(&(weft_platform_options){.device_count = 1}, &platform));
  WEFT_TRY(weft_compile(platform, module, &(weft_compile_options){0}, &exe));
  for (int i = 0; i < 2; i++)
    WEFT_TRY(weft_buffer_from_host(weft_platform_device(platform, 0), weft_executable_param_type(exe, i), &(float){1},
                                   &in[i]));
  for (int i = 0; i < ROUNDS; i++) {
    int64_t begin = weft_now_ns();
    WEFT_TRY(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs}));
    WEFT_TRY(weft_event_await(weft_buffer_defined(out), weft_deadline_after_ms(10000)));
    ns[i] = weft_now_ns() - begin;
    weft_buffer_release(out);
  }
  qsort(ns, ROUNDS, sizeof *ns, compare);
  printf("%-24s iters %d  min %.2fus  p50 %.2fus  p99 %.2fus\n", name, ROUNDS, (double)ns[0] / 1e3,
         (double)ns[ROUNDS / 2] / 1e3, (double)ns[ROUNDS * 99 / 100] / 1e3);
  for (int i = 0; i < 2; i++) weft_buffer_release(in[i]);
  weft_executable_release(exe);
  weft_platform_release(platform);
  return NULL;
}

int main(void)
{
  weft_status *st = measure("scalar add", "HloModule m\n"
                                          "ENTRY e {\n"
                                          "  a = f32[] parameter(0)\n"
                                          "  b = f32[] parameter(1)\n"
                                          "  ROOT r = f32[] add(a, b)\n"
                                          "}\n");
  if (st) fprintf(stderr, "%s\n", weft_status_text(st, true));
  return st != NULL;
}
