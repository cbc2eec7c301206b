/* tests/cpu/run.h -- compile and run an HLO program on one CPU device, with host arrays. */
#ifndef WEFT_TESTS_CPU_RUN_H
#define WEFT_TESTS_CPU_RUN_H

#include "test.h"

#include "platform/registry.h"
#include "hlo/text.h"

static inline weft_platform *test_platform(int devices, int threads)
{
  weft_platform *platform;
  T_OK(plat_new(&(weft_platform_options){.device_count = devices, .threads = threads}, &platform));
  return platform;
}

static inline weft_executable *test_compile(weft_platform *platform, const char *text, buf_order order)
{
  hlo_module *module;
  weft_executable *exe;
  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(weft_compile(platform, module, &(weft_compile_options){.order = order}, &exe));
  return exe;
}

static inline weft_buffer *test_buffer(weft_device *device, const weft_array_type *type, const void *data)
{
  weft_buffer *buffer;
  T_OK(weft_buffer_from_host(device, type, data, &buffer));
  return buffer;
}

/* Inputs from host arrays, outputs to host arrays. */
static inline weft_status *test_run(weft_executable *exe, const void *const *inputs, void *const *outputs)
{
  weft_buffer *in[32], *out[32];
  weft_buffer *const *ins[] = {in};
  weft_buffer **outs[] = {out};
  weft_status *st;

  for (int i = 0; i < weft_executable_param_count(exe); i++)
    in[i] = test_buffer(weft_executable_device(exe, 0), weft_executable_param_type(exe, i), inputs[i]);
  st = weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs});
  for (int i = 0; i < weft_executable_param_count(exe); i++) weft_buffer_release(in[i]);
  if (st) return st;
  for (int i = 0; i < weft_executable_output_count(exe); i++) {
    weft_status *one = weft_buffer_to_host(out[i], outputs[i], weft_deadline_after_ms(60000));
    if (!st) st = one;
    else weft_status_free(one);
    weft_buffer_release(out[i]);
  }
  return st;
}

/* The steps of the program as `weft inspect --thunks` prints them.  The caller frees the text. */
static inline char *test_steps_of(const weft_executable *exe)
{
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);

  T_TRUE(out != NULL);
  T_OK(weft_executable_print(exe, out));
  fclose(out);
  return text;
}

#endif
