/* tests/gpu/platform_test.c -- the platform "cuda" over the emulated driver: its steps, its errors, its memory. */
#include "cpu/run.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <limits.h>

#include "codegen/code/cache.h"
#include "driver.h"
#include "runtime/runtime_internal.h"
#include "gpu/gpu_internal.h"
#include "platform/registry.h"
#include "runtime/saved.h"

/* A training step with everything that the platform has a way of its own for: kernels, a sort, a loop whose end depends
 * on data (with a sort in it, so that the host drives it), a branch, a copy, a donated parameter. */
static const char step_text[] = "HloModule training_step, input_output_alias={ {0}: (0, {}, may-alias) }\n"
                                "less {\n"
                                "  a = f32[] parameter(0)\n"
                                "  b = f32[] parameter(1)\n"
                                "  ROOT r = pred[] compare(a, b), direction=LT\n"
                                "}\n"
                                "add {\n"
                                "  a = f32[] parameter(0)\n"
                                "  b = f32[] parameter(1)\n"
                                "  ROOT r = f32[] add(a, b)\n"
                                "}\n"
                                "body {\n"
                                "  t = (f32[], f32[4]) parameter(0)\n"
                                "  s = f32[] get-tuple-element(t), index=0\n"
                                "  v = f32[4] get-tuple-element(t), index=1\n"
                                "  x = f32[4] sort(v), dimensions={0}, to_apply=less\n"
                                "  w = f32[4] add(x, x)\n"
                                "  z = f32[] constant(0)\n"
                                "  n = f32[] reduce(w, z), dimensions={0}, to_apply=add\n"
                                "  ROOT r = (f32[], f32[4]) tuple(n, w)\n"
                                "}\n"
                                "more {\n"
                                "  t = (f32[], f32[4]) parameter(0)\n"
                                "  s = f32[] get-tuple-element(t), index=0\n"
                                "  l = f32[] constant(1000)\n"
                                "  ROOT r = pred[] compare(s, l), direction=LT\n"
                                "}\n"
                                "twice {\n"
                                "  a = f32[4] parameter(0)\n"
                                "  ROOT r = f32[4] add(a, a)\n"
                                "}\n"
                                "same {\n"
                                "  a = f32[4] parameter(0)\n"
                                "  ROOT r = f32[4] negate(a)\n"
                                "}\n"
                                "ENTRY e {\n"
                                "  w = f32[4] parameter(0)\n"
                                "  x = f32[4] parameter(1)\n"
                                "  o = f32[4] sort(x), dimensions={0}, to_apply=less\n"
                                "  y = f32[4] multiply(w, o)\n"
                                "  z = f32[] constant(0)\n"
                                "  n = f32[] reduce(y, z), dimensions={0}, to_apply=add\n"
                                "  t = (f32[], f32[4]) tuple(n, y)\n"
                                "  l = (f32[], f32[4]) while(t), condition=more, body=body\n"
                                "  d = f32[4] get-tuple-element(l), index=1\n"
                                "  h = f32[] constant(100)\n"
                                "  p = pred[] compare(n, h), direction=LT\n"
                                "  c = f32[4] conditional(p, d, d), true_computation=twice, false_computation=same\n"
                                "  u = f32[4] subtract(w, o)\n"
                                "  ROOT r = (f32[4], f32[4]) tuple(u, c)\n"
                                "}\n";
static const float step_w[4] = {1, 2, 3, 4}, step_x[4] = {4, 1, 3, 2};
/* y = w * {1, 2, 3, 4} = {1, 4, 9, 16}, n = 30; doubled six times the sum is 1920; the branch doubles once more */
static const float want_u[4] = {0, 0, 0, 0}, want_c[4] = {128, 512, 1152, 2048};

static weft_status *compile_step(weft_platform *platform, weft_executable **out_exe)
{
  hlo_module *module;

  T_OK(hlo_parse(step_text, strlen(step_text), &module));
  return weft_compile(platform, module, &(weft_compile_options){0}, out_exe);
}

/* As test_run, but nothing has to go well. *out_ran: the error is the run's, not that of a copy to or from the host. */
static weft_status *try_step(weft_executable *exe, bool *out_ran)
{
  const void *const inputs[] = {step_w, step_x};
  float u[4] = {-1}, c[4] = {-1};
  weft_buffer *in[2] = {NULL}, *out[2] = {NULL};
  weft_buffer *const *ins[] = {in};
  weft_buffer **outs[] = {out};
  weft_status *st = NULL;

  *out_ran = false;
  for (int i = 0; i < 2 && !st; i++)
    st = weft_buffer_from_host(weft_executable_device(exe, 0), weft_executable_param_type(exe, i), inputs[i], &in[i]);
  if (!st) st = weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs});
  if (!st) {
    st = weft_event_await(weft_buffer_defined(out[0]), weft_deadline_after_ms(60000));
    *out_ran = st != NULL;
  }
  if (!st) st = weft_buffer_to_host(out[0], u, weft_deadline_after_ms(60000));
  if (!st) st = weft_buffer_to_host(out[1], c, weft_deadline_after_ms(60000));
  for (int i = 0; i < 2; i++) {
    if (in[i]) weft_buffer_release(in[i]);
    if (out[i]) weft_buffer_release(out[i]);
  }
  if (!st && (memcmp(u, want_u, sizeof u) != 0 || memcmp(c, want_c, sizeof c) != 0))
    fail_msg("wrong result: %g %g %g %g, %g %g %g %g", u[0], u[1], u[2], u[3], c[0], c[1], c[2], c[3]);
  return st;
}

static void set_faults(const char *faults)
{
  setenv("WEFT_EMU_FAULTS", faults, 1);
  emu_reset();
}

/* A platform may be destroyed on a thread of its own. */
static void nothing_is_left(void)
{
  char text[300] = "";

  for (int i = 0; i < 2000 && emu_leaks(text, sizeof text) > 0; i++) usleep(5000);
  if (emu_leaks(text, sizeof text)) fail_msg("leaked: %s", text);
}

TEST(a_step_gives_the_right_result_again_and_again)
{
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe;
  bool ran;

  T_OK(compile_step(platform, &exe));
  for (int i = 0; i < 5; i++) T_OK(try_step(exe, &ran));
  weft_executable_release(exe);
  weft_platform_release(platform);
  nothing_is_left();
}

/* Bytes are still on their way to and from a device when its platform ends: nobody waits for them, and the pinned
 * memory through which they go must not stay. */
TEST(copies_that_nobody_waits_for_leave_nothing)
{
  static char host[6000], back[6000];
  weft_platform *platform = test_platform(1, 2);
  weft_device *device = weft_platform_device(platform, 0);
  weft_stream *stream = weft_device_stream(device, WEFT_STREAM_COMPUTE);
  void *at;

  memset(host, 7, sizeof host);
  T_OK(rt_device_take(device, 0, sizeof host, RT_ANYONE, &at));
  emu_faults("cuMemcpyAsync:1=stall:300ms");
  T_OK(weft_device_write(device, stream, at, host, sizeof host));
  T_OK(weft_device_write(device, stream, at, host, 1000));
  T_OK(weft_device_read(device, stream, back, at, sizeof back));
  rt_device_give(device, 0, at, sizeof host);
  weft_platform_release(platform);
  emu_faults("");
  nothing_is_left();
  T_TRUE(memcmp(host, back, sizeof host) == 0);
}

/* ---- faults ---------------------------------------------------------------------------------------------------- */

/* Call `symbol` fails with `code` when it is called the n-th time. False: there were fewer calls. */
static bool one_fault(const char *name, const char *symbol, int n, int code)
{
  weft_platform *platform = NULL;
  weft_executable *exe = NULL;
  char fault[96];

  snprintf(fault, sizeof fault, "%s:%d=%d", symbol, n, code);
  set_faults(fault);
  weft_status *st = plat_new(&(weft_platform_options){.device_count = 1, .threads = 2}, &platform);
  if (!st) st = compile_step(platform, &exe);
  bool compiled = !st, ran = false;
  if (!st) st = try_step(exe, &ran);
  bool came = emu_faults_left() == 0;
  set_faults("");
  if (st) {
    const char *text = weft_status_text(st, true);
    if (!came) fail_msg("%s: fails without a fault: %s", fault, text);
    if (!strstr(text, name)) fail_msg("%s: the error does not name the call: %s", fault, text);
    if (ran && !strstr(text, "training_step")) fail_msg("%s: the error does not name the program: %s", fault, text);
    weft_status_free(st);
  }
  if (compiled) {
    st = try_step(exe, &ran);
    if (st) fail_msg("%s: the next run fails: %s", fault, weft_status_text(st, true));
  }
  if (exe) weft_executable_release(exe);
  if (platform) weft_platform_release(platform);
  nothing_is_left();
  return came;
}

/* ---- saved programs, and the cache ----------------------------------------------------------------------------- */

static const char twice_text[] = "HloModule twice\n"
                                 "ENTRY e {\n"
                                 "  x = f32[8] parameter(0)\n"
                                 "  ROOT r = f32[8] add(x, x)\n"
                                 "}";

/* The first result of the program for x[0] = 3. */
static float twice_three(weft_executable *exe)
{
  const float x[8] = {3};
  float y[8];
  const void *const inputs[] = {x};
  void *const outputs[] = {y};

  T_OK(test_run(exe, inputs, outputs));
  return y[0];
}

/* Makes a subtraction of each addition in a text of PTX among the bytes. */
static void subtract_instead(char *data, size_t size)
{
  char *at = memmem(data, size, "add.rn.f32", 10);

  T_TRUE(at != NULL);
  for (; at; at = memmem(data, size, "add.rn.f32", 10)) memcpy(at, "sub", 3);
}

static weft_status *load_changed(weft_platform *platform, weft_saved saved, const void *code, size_t size,
                                 weft_executable **out_exe)
{
  saved.code = code;
  saved.code_size = size;
  return weft_executable_load(platform, &saved, &(weft_compile_options){0}, out_exe);
}

/* The PTX of the file runs, and none that was made anew. */
TEST(a_saved_program_keeps_its_ptx)
{
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  WEFT_AUTO(weft_executable) exe = test_compile(platform, twice_text, BUF_TOPOLOGICAL);
  WEFT_AUTO(weft_executable) loaded = NULL;
  weft_saved saved;
  void *data;
  size_t size;

  T_CODE(weft_executable_save(exe, "x86-64-v3", "", NULL, 0, &data, &size), WEFT_INVALID_ARGUMENT);
  T_OK(weft_executable_save(exe, NULL, "", NULL, 0, &data, &size));
  T_OK(weft_saved_open(data, size, &saved));
  char *code = malloc(saved.code_size);
  memcpy(code, saved.code, saved.code_size);
  subtract_instead(code, saved.code_size);
  T_OK(load_changed(platform, saved, code, saved.code_size, &loaded));
  assert_float_equal(twice_three(loaded), 0, 0);
  free(code);
  free(data);
}

TEST(a_saved_step_runs_as_it_did)
{
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  WEFT_AUTO(weft_executable) exe = NULL;
  WEFT_AUTO(weft_executable) loaded = NULL;
  weft_saved saved;
  void *data;
  size_t size;
  bool ran;

  T_OK(compile_step(platform, &exe));
  T_OK(weft_executable_save(exe, NULL, "", NULL, 0, &data, &size));
  T_OK(weft_saved_open(data, size, &saved));
  T_OK(weft_executable_load(platform, &saved, &(weft_compile_options){0}, &loaded));
  T_OK(try_step(loaded, &ran));
  free(data);
}

/* Bytes that are damaged are refused, or what they say runs on the device; the process lives. */
TEST(a_saved_program_may_be_damaged)
{
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  WEFT_AUTO(weft_executable) exe = test_compile(platform, twice_text, BUF_TOPOLOGICAL);
  weft_executable *other;
  weft_saved saved;
  void *data;
  size_t size;
  int refused = 0;

  T_OK(weft_executable_save(exe, NULL, "", NULL, 0, &data, &size));
  T_OK(weft_saved_open(data, size, &saved));
  char *code = malloc(saved.code_size);
  memcpy(code, saved.code, saved.code_size);
  code[8 + 4] = '1'; /* behind a length: sm_91 */
  T_FAILS(load_changed(platform, saved, code, saved.code_size, &other), "was saved for \"sm_91\"");
  memcpy(code, saved.code, saved.code_size);
  T_CODE(load_changed(platform, saved, code, saved.code_size - 1, &other), WEFT_INVALID_ARGUMENT);
  for (size_t i = 0; i < saved.code_size; i += i < 400 ? 1 : 37) {
    memcpy(code, saved.code, saved.code_size);
    code[i] = (char)(code[i] ^ 0x80);
    weft_status *st = load_changed(platform, saved, code, saved.code_size, &other);
    refused += st != NULL;
    if (!st) weft_executable_release(other);
    weft_status_free(st);
  }
  T_TRUE(refused > 100);
  free(code);
  free(data);
}

/* ---- shared memory --------------------------------------------------------------------------------------------- */

enum { VOCABULARY = 50257, VOCABULARY_ROWS = 9 };
static const char rows_text[] = "HloModule rows\n"
                                "max {\n"
                                "  a = f32[] parameter(0)\n"
                                "  b = f32[] parameter(1)\n"
                                "  ROOT r = f32[] maximum(a, b)\n"
                                "}\n"
                                "add {\n"
                                "  a = f32[] parameter(0)\n"
                                "  b = f32[] parameter(1)\n"
                                "  ROOT r = f32[] add(a, b)\n"
                                "}\n"
                                "ENTRY e {\n"
                                "  x = f32[9,50257] parameter(0)\n"
                                "  l = f32[] constant(-inf)\n"
                                "  z = f32[] constant(0)\n"
                                "  m = f32[9] reduce(x, l), dimensions={1}, to_apply=max\n"
                                "  b = f32[9,50257] broadcast(m), dimensions={0}\n"
                                "  d = f32[9,50257] subtract(x, b)\n"
                                "  s = f32[9] reduce(d, z), dimensions={1}, to_apply=add\n"
                                "  ROOT r = (f32[9,50257], f32[9]) tuple(d, s)\n"
                                "}";

/* Rows of small integers, which give the same sums in any order. */
static void run_rows(weft_executable *exe)
{
  float *x = malloc(sizeof(float) * VOCABULARY * VOCABULARY_ROWS),
        *d = malloc(sizeof(float) * VOCABULARY * VOCABULARY_ROWS);
  float s[VOCABULARY_ROWS], sum = 0;
  const void *const inputs[] = {x};
  void *const outputs[] = {d, s};

  for (int i = 0; i < VOCABULARY * VOCABULARY_ROWS; i++) x[i] = (float)(i % VOCABULARY % 97 % 31 + i / VOCABULARY);
  T_OK(test_run(exe, inputs, outputs));
  for (int i = 0; i < VOCABULARY * VOCABULARY_ROWS; i++) {
    float want = x[i] - (float)(30 + i / VOCABULARY);
    if (d[i] != want) fail_msg("element %d is %g, not %g", i, d[i], want);
    sum += i < VOCABULARY ? want : 0;
  }
  for (int i = 0; i < VOCABULARY_ROWS; i++) assert_float_equal(s[i], sum, 0);
  free(x);
  free(d);
}

/* The launch's shared memory follows its blocks and threads. */
static char *find_shared_bytes(char *code, size_t size)
{
  const uint64_t launch[] = {VOCABULARY_ROWS, 1024};
  char *at = memmem(code, size, launch, sizeof launch);

  T_TRUE(at != NULL);
  return at + sizeof launch;
}

TEST(rows_of_a_vocabulary_lie_in_dynamic_shared_memory)
{
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  WEFT_AUTO(weft_executable) exe = test_compile(platform, rows_text, BUF_TOPOLOGICAL);
  WEFT_AUTO(weft_executable) loaded = NULL;
  weft_executable *other;
  weft_saved saved;
  uint64_t bytes;
  void *data;
  size_t size;

  run_rows(exe);
  T_OK(weft_executable_save(exe, NULL, "", NULL, 0, &data, &size));
  T_OK(weft_saved_open(data, size, &saved));
  T_OK(weft_executable_load(platform, &saved, &(weft_compile_options){0}, &loaded));
  run_rows(loaded);
  char *code = malloc(saved.code_size);
  memcpy(code, saved.code, saved.code_size);
  char *at = find_shared_bytes(code, saved.code_size);
  memcpy(&bytes, at, sizeof bytes);
  T_TRUE(bytes > 48 << 10); /* more than every kernel may have */
  bytes = 300 << 10;
  memcpy(at, &bytes, sizeof bytes);
  T_FAILS(load_changed(platform, saved, code, saved.code_size, &other), "more shared memory");
  free(code);
  free(data);
}

static bool begins_as_elf(const char *folder, const char *name)
{
  char path[700], begin[4] = "";

  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "rb");
  T_TRUE(file != NULL);
  bool is_elf = fread(begin, 1, 4, file) == 4 && memcmp(begin, "\177ELF", 4) == 0;
  fclose(file);
  return is_elf;
}

/* A file in the folder that is machine code or not, whose name goes to `name`; the number of files is returned. */
static int look_into(const char *folder, bool wants_code, char name[300])
{
  DIR *dir = opendir(folder);
  int count = 0;

  T_TRUE(dir != NULL);
  for (struct dirent *entry; (entry = readdir(dir));) {
    if (entry->d_name[0] == '.') continue;
    if (begins_as_elf(folder, entry->d_name) == wants_code) snprintf(name, 300, "%.255s", entry->d_name);
    count++;
  }
  closedir(dir);
  return count;
}

static void remove_folder(const char *folder)
{
  char path[700];
  DIR *dir = opendir(folder);

  for (struct dirent *entry; (entry = readdir(dir));) {
    snprintf(path, sizeof path, "%s/%.255s", folder, entry->d_name);
    if (entry->d_name[0] != '.') T_TRUE(unlink(path) == 0);
  }
  closedir(dir);
  T_TRUE(rmdir(folder) == 0);
}

static float compile_and_run_twice(weft_platform *platform)
{
  WEFT_AUTO(weft_executable) exe = test_compile(platform, twice_text, BUF_TOPOLOGICAL);

  return twice_three(exe);
}

TEST(ptx_is_kept_in_the_folder_of_the_cache)
{
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  char folder[] = "/tmp/weft-ptx-cache-XXXXXX", name[300], path[400];
  void *text;
  size_t size;

  T_TRUE(mkdtemp(folder) != NULL);
  setenv("WEFT_CACHE_DIR", folder, 1);
  assert_float_equal(compile_and_run_twice(platform), 6, 0);
  T_EQ_INT(look_into(folder, false, name), 2); /* the other one is machine code */
  int fd = gen_cache_open(folder);
  T_TRUE(gen_cache_read(fd, name, &text, &size));
  subtract_instead(text, size);
  T_OK(gen_cache_write(fd, name, text, size)); /* what is taken from the folder can now be told from what is made */
  close(fd);
  assert_float_equal(compile_and_run_twice(platform), 0, 0);
  snprintf(path, sizeof path, "%s/%s", folder, name);
  T_TRUE(truncate(path, (off_t)size / 2) == 0); /* a damaged file is not used */
  assert_float_equal(compile_and_run_twice(platform), 6, 0);
  T_TRUE(chmod(path, 0666) == 0); /* nor is one that others may write */
  assert_float_equal(compile_and_run_twice(platform), 6, 0);
  unsetenv("WEFT_CACHE_DIR");
  remove_folder(folder);
  free(text);
}

static int64_t calls_of_the_linker(void) { return (int64_t)emu_calls("cuLinkComplete"); }

/* What the driver assembles is taken from the folder by later programs, as long as nothing is wrong with it. */
TEST(machine_code_is_kept_in_the_folder_of_the_cache)
{
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  char folder[] = "/tmp/weft-code-cache-XXXXXX", name[300], path[400];
  void *code;
  size_t size;

  T_TRUE(mkdtemp(folder) != NULL);
  setenv("WEFT_CACHE_DIR", folder, 1);
  int64_t before = calls_of_the_linker();
  assert_float_equal(compile_and_run_twice(platform), 6, 0);
  T_EQ_INT(calls_of_the_linker() - before, 1);
  assert_float_equal(compile_and_run_twice(platform), 6, 0);
  T_EQ_INT(calls_of_the_linker() - before, 1);
  T_EQ_INT(look_into(folder, true, name), 2);
  snprintf(path, sizeof path, "%s/%s", folder, name);
  T_TRUE(truncate(path, 40) == 0); /* a damaged file is made anew */
  assert_float_equal(compile_and_run_twice(platform), 6, 0);
  T_EQ_INT(calls_of_the_linker() - before, 2);
  assert_float_equal(compile_and_run_twice(platform), 6, 0);
  T_EQ_INT(calls_of_the_linker() - before, 2);
  int fd = gen_cache_open(folder);
  T_TRUE(gen_cache_read(fd, name, &code, &size));
  ((char *)code)[size - 1] ^= 1;
  T_OK(gen_cache_write(fd, name, code, size)); /* its digest is right, and the driver does not take it */
  assert_float_equal(compile_and_run_twice(platform), 6, 0);
  T_TRUE(faccessat(fd, name, F_OK, 0) != 0);
  assert_float_equal(compile_and_run_twice(platform), 6, 0);
  T_EQ_INT(calls_of_the_linker() - before, 3);
  T_TRUE(chmod(path, 0666) == 0); /* a file that others may write is not used */
  assert_float_equal(compile_and_run_twice(platform), 6, 0);
  T_EQ_INT(calls_of_the_linker() - before, 4);
  setenv("WEFT_CUDA_ASSEMBLER", "nvjitlink", 1); /* what another assembler has made has another name */
  assert_float_equal(compile_and_run_twice(platform), 6, 0);
  T_EQ_INT(look_into(folder, true, name), 3);
  setenv("WEFT_CUDA_ASSEMBLER", "driver", 1);
  unsetenv("WEFT_CACHE_DIR");
  close(fd);
  free(code);
  remove_folder(folder);
}

/* The machine code of the file is loaded; nothing is assembled. */
TEST(a_saved_program_keeps_its_machine_code)
{
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  WEFT_AUTO(weft_executable) exe = test_compile(platform, twice_text, BUF_TOPOLOGICAL);
  WEFT_AUTO(weft_executable) loaded = NULL;
  WEFT_AUTO(weft_executable) again = NULL;
  weft_saved saved;
  void *data, *second;
  size_t size, second_size;

  T_OK(weft_executable_save(exe, NULL, "", NULL, 0, &data, &size));
  T_OK(weft_saved_open(data, size, &saved));
  int64_t before = calls_of_the_linker();
  T_OK(weft_executable_load(platform, &saved, &(weft_compile_options){0}, &loaded));
  T_EQ_INT(calls_of_the_linker() - before, 0);
  assert_float_equal(twice_three(loaded), 6, 0);
  T_OK(weft_executable_save(loaded, NULL, "", NULL, 0, &second, &second_size));
  T_TRUE(memmem(second, second_size, "\177ELF", 4) != NULL);
  free(second);
  setenv("WEFT_CUDA_ASSEMBLER", "nvjitlink", 1); /* that of another assembler is not used */
  T_OK(weft_executable_load(platform, &saved, &(weft_compile_options){0}, &again));
  T_EQ_INT(calls_of_the_linker() - before, 0);
  assert_float_equal(twice_three(again), 6, 0);
  setenv("WEFT_CUDA_ASSEMBLER", "driver", 1);
  free(data);
}

/* The driver does what nvJitLink fails at. */
TEST(the_driver_stands_in_for_nvjitlink)
{
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);

  setenv("WEFT_CUDA_ASSEMBLER", "nvjitlink", 1);
  int64_t before = emu_calls("cuLinkComplete"), linked = emu_calls("nvJitLinkComplete");
  assert_float_equal(compile_and_run_twice(platform), 6, 0);
  T_EQ_INT(emu_calls("cuLinkComplete") - before, 0);
  T_EQ_INT(emu_calls("nvJitLinkComplete") - linked, 1);
  set_faults("nvJitLinkComplete:1=6");
  assert_float_equal(compile_and_run_twice(platform), 6, 0);
  T_EQ_INT(emu_calls("cuLinkComplete") - before, 1);
  set_faults("");
  setenv("WEFT_CUDA_ASSEMBLER", "driver", 1);
}

TEST(any_call_may_fail_at_any_time)
{
  static const struct { const char *name, *symbol; } calls[] = {
#define ROW(name, symbol) {#name, #symbol},
    GPU_DRIVER_ENTRIES(ROW) GPU_CONDITION_ENTRIES(ROW)
#undef ROW
  };
  static const char *const at_start[] = {"cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString"};
  enum { MOST = 400 };

  for (size_t i = 0; i < WEFT_COUNT(calls); i++) {
    bool skip = false;
    int n = 1;
    for (size_t k = 0; k < WEFT_COUNT(at_start); k++) skip |= strcmp(calls[i].name, at_start[k]) == 0;
    int code = strstr(calls[i].name, "Alloc") ? WCU_ERROR_OUT_OF_MEMORY : WCU_ERROR_UNKNOWN;
    while (!skip && n < MOST && one_fault(calls[i].name, calls[i].symbol, n, code)) n += 1 + n / 16;
    if (!skip) print_message("# %s: up to call %d\n", calls[i].name, n - 1);
  }
}

/* The kernel takes more instructions than the emulated device allows: an error that sticks to the context. */
/* Also without pinned memory, and after a copy that fails. */
TEST(pieces_of_a_device_are_read_at_once)
{
  static const char bytes[64] = "the first piece, the second piece and what is behind them";
  static const char *const faults[] = {"", "cuMemHostAlloc:1=2", "cuMemcpyAsync:2=1", ""};
  weft_platform *platform = test_platform(1, 1);
  weft_device *device = weft_platform_device(platform, 0);
  void *data;

  T_OK(rt_device_take(device, 0, sizeof bytes, RT_COMPUTE, &data));
  T_OK(weft_device_write(device, NULL, data, bytes, sizeof bytes));
  for (size_t i = 0; i < WEFT_COUNT(faults); i++) {
    char first[16] = "", second[20] = "", none = 'n';
    const weft_device_piece pieces[] = {
      {second, (const char *)data + 17, 16}, {&none, data, 0}, {first, data, 15}};
    setenv("WEFT_EMU_FAULTS", faults[i], 1);
    emu_reset();
    uint64_t before = emu_calls("cuMemcpyAsync");
    weft_status *st = weft_device_read_pieces(device, pieces, 3);
    if (strncmp(faults[i], "cuMemcpyAsync", 13) == 0) {
      T_FAILS(st, "cuMemcpyAsync");
      continue;
    }
    T_OK(st);
    T_EQ_INT(emu_calls("cuMemcpyAsync") - before, 2);
    assert_string_equal(first, "the first piece");
    assert_string_equal(second, "the second piece");
    assert_int_equal(none, 'n');
  }
  unsetenv("WEFT_EMU_FAULTS");
  emu_reset();
  rt_device_give(device, 0, data, sizeof bytes);
  weft_platform_release(platform);
}

TEST(a_device_that_is_lost_poisons_runs_and_the_process_lives)
{
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe;
  bool ran;

  T_OK(compile_step(platform, &exe));
  T_OK(try_step(exe, &ran));
  setenv("WEFT_EMU_BUDGET", "1", 1);
  emu_reset();
  weft_status *st = try_step(exe, &ran);
  unsetenv("WEFT_EMU_BUDGET");
  emu_reset();
  T_TRUE(ran);
  T_FAILS(st, "CUDA_ERROR_LAUNCH_TIMEOUT");
  st = try_step(exe, &ran);
  T_TRUE(st != NULL);
  T_FAILS(st, "CUDA_ERROR_LAUNCH_TIMEOUT");
  weft_executable_release(exe);
  weft_platform_release(platform);
  nothing_is_left();
  a_step_gives_the_right_result_again_and_again(NULL); /* a new context */
}

TEST(a_program_that_does_not_fit_is_told_what_is_held)
{
  static const char text[] = "HloModule too_big\n"
                             "ENTRY e {\n"
                             "  x = f32[] parameter(0)\n"
                             "  ROOT r = f32[50,1000,1000] broadcast(x), dimensions={}\n"
                             "}";
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe = test_compile(platform, text, BUF_TOPOLOGICAL);
  const weft_array_type type = {.type = WEFT_F32, .rank = 1, .dims = {25 << 20}};
  weft_buffer *held, *x, *out = NULL;
  float one = 1;
  weft_buffer *const *ins[] = {&x};
  weft_buffer **outs[] = {&out};
  float *big = calloc((size_t)25 << 20, sizeof *big);

  held = test_buffer(weft_platform_device(platform, 0), &type, big);
  free(big);
  x = test_buffer(weft_platform_device(platform, 0), weft_executable_param_type(exe, 0), &one);
  T_OK(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs}));
  weft_status *st = weft_event_await(weft_buffer_defined(out), weft_deadline_after_ms(60000));
  T_EQ_INT(weft_status_code(st), WEFT_RESOURCE_EXHAUSTED);
  const char *words = weft_status_text(st, true);
  if (!strstr(words, "too_big") || !strstr(words, "cannot allocate 192.0 MiB") ||
      !strstr(words, "104.0 MiB are in use"))
    fail_msg("%s", words);
  weft_status_free(st);
  weft_buffer_release(held);
  weft_buffer_release(x);
  weft_buffer_release(out);
  weft_executable_release(exe);
  weft_platform_release(platform);
  nothing_is_left();
}

TEST(without_a_driver_the_client_is_unavailable_and_the_cpu_works)
{
  weft_platform *platform;

  fflush(stdout);
  pid_t child = fork();
  if (child == 0) { /* a process that has not opened the driver */
    setenv("WEFT_CUDA_LIBDIR", "/nowhere", 1);
    execl("/proc/self/exe", "platform_test", "no driver", (char *)NULL);
    _exit(98);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  setenv("WEFT_PLATFORM", "cpu", 1);
  T_OK(plat_new(&(weft_platform_options){.device_count = 1}, &platform));
  weft_platform_release(platform);
  setenv("WEFT_PLATFORM", "cuda", 1);
}

/* ---- a device that hangs --------------------------------------------------------------------------------------- */

/* Runs in a process of its own, since what a device that hangs holds is never given back. The launch of a kernel in the
 * middle of the program starts 8 s late; a device counts as hung after 1.5 s. */
static int with_a_device_that_hangs(void)
{
  weft_platform *platform = test_platform(1, 2), *cpu;
  weft_executable *exe;
  bool ran;

  T_OK(compile_step(platform, &exe));
  T_OK(try_step(exe, &ran));
  set_faults("cuLaunchKernel:2=stall:8s");
  int64_t begin = weft_now_ns();
  for (int i = 0; i < 2; i++) {
    weft_status *st = try_step(exe, &ran);
    const char *text = weft_status_text(st, true);
    printf("# %s\n", text);
    if (weft_status_code(st) != WEFT_DEADLINE_EXCEEDED || !strstr(text, "hangs: no progress for 1.5 s")) return 1;
    if (i == 0 && (!ran || !strstr(text, "training_step") || !strstr(text, "step"))) return 2;
    weft_status_free(st);
  }
  weft_executable_release(exe);
  weft_platform_release(platform);
  if (weft_now_ns() - begin > 7500 * WEFT_NS_PER_MS) return 3; /* something has waited for the device */
  setenv("WEFT_PLATFORM", "cpu", 1);
  T_OK(plat_new(&(weft_platform_options){.device_count = 1}, &cpu));
  T_OK(compile_step(cpu, &exe));
  T_OK(try_step(exe, &ran));
  weft_executable_release(exe);
  weft_platform_release(cpu);
  setenv("WEFT_PLATFORM", "cuda", 1);
  usleep(8500000); /* the device goes on */
  platform = test_platform(1, 2);
  T_OK(compile_step(platform, &exe));
  T_OK(try_step(exe, &ran));
  weft_executable_release(exe);
  weft_platform_release(platform);
  return 0;
}

TEST(a_device_that_hangs_is_named_with_its_step_and_the_process_lives)
{
  int status;

  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    setenv("WEFT_CUDA_TIMEOUT", "1500ms", 1);
    setenv("WEFT_CUDA_GRAPHS", "0", 1); /* a kernel that is recorded does not start late */
    setenv("WEFT_EMU_LEAKS", "off", 1);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* what a device that hangs may still use is not freed */
    execl("/proc/self/exe", "platform_test", "hang", (char *)NULL);
    _exit(98);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

/* The driver's device that each device is.  `share`: how many devices each of them is. */
static void check_gpus(const weft_platform_options *options, int share, int first, int second)
{
  weft_platform *platform;

  T_OK(plat_new(options, &platform));
  const gpu_platform *p = (const gpu_platform *)platform;
  T_EQ_INT(p->gpu_count, 2);
  T_EQ_INT(p->gpus[0].device, first / share);
  T_EQ_INT(p->gpus[1].device, second / share);
  T_EQ_INT(weft_device_hardware_id(weft_platform_device(platform, 0)), first);
  T_EQ_INT(weft_device_hardware_id(weft_platform_device(platform, 1)), second);
  weft_platform_release(platform);
}

TEST(a_client_has_the_gpus_that_it_names)
{
  static const int chosen[] = {6, 2}, beyond[] = {1, 8};
  weft_platform *platform;

  check_gpus(&(weft_platform_options){.device_count = 2, .device_ordinals = chosen}, 1, 6, 2);
  check_gpus(&(weft_platform_options){.device_count = 2, .first_device = 5}, 1, 5, 6);
  check_gpus(&(weft_platform_options){.device_count = 2, .first_device = 7}, 1, 0, 1); /* it sees its own only */
  check_gpus(&(weft_platform_options){.device_count = 2, .first_device = INT_MAX}, 1, 0, 1);
  T_FAILS(plat_new(&(weft_platform_options){.device_count = 2, .device_ordinals = beyond}, &platform),
          "GPU 8 is asked for, the driver shows 8");
  setenv("WEFT_CUDA_SHARE", "2", 1);
  check_gpus(&(weft_platform_options){.device_count = 2, .first_device = 5}, 2, 5, 6);
  unsetenv("WEFT_CUDA_SHARE");
}

static void check_description(const char *part)
{
  const weft_platform_ops *ops;
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);

  T_OK(plat_default(&ops));
  T_OK(ops->describe(out));
  fclose(out);
  if (!strstr(text, part)) fail_msg("%s", text);
  free(text);
}

TEST(the_links_between_gpus_are_described)
{
  /* the emulated GPUs can do atomic operations in each other's memory, as GPUs with NVLink */
  check_description("  from 1             nvlink      - nvlink");
  check_description("  multicast              no     no     no");
  setenv("WEFT_EMU_MULTICAST", "1", 1);
  emu_reset();
  check_description("  multicast             yes    yes    yes");
  unsetenv("WEFT_EMU_MULTICAST");
  emu_reset();
}

static int without_driver(void)
{
  weft_platform *platform;

  setenv("WEFT_CUDA_LIBDIR", "/nowhere", 1); /* emulated.c has set it */
  weft_status *st = plat_new(&(weft_platform_options){.device_count = 1}, &platform);
  bool right = weft_status_code(st) == WEFT_UNAVAILABLE && strstr(weft_status_text(st, true), "/nowhere/libcuda.so.1");
  weft_status_free(st);
  return !right;
}

int main(int argc, char **argv)
{
  if (argc > 1 && strcmp(argv[1], "hang") != 0) return without_driver();
  setenv("WEFT_EMU_MEMORY", "256M", 1);
  setenv("WEFT_CUDA_ASSEMBLER", "driver", 1); /* its calls are among those that fail */
  open_driver();
  if (argc > 1) return with_a_device_that_hangs();
  const struct CMUnitTest units[] = {
    UNIT(a_step_gives_the_right_result_again_and_again), UNIT(copies_that_nobody_waits_for_leave_nothing),
    UNIT(a_saved_program_keeps_its_ptx), UNIT(a_saved_step_runs_as_it_did), UNIT(a_saved_program_may_be_damaged),
    UNIT(rows_of_a_vocabulary_lie_in_dynamic_shared_memory),
    UNIT(ptx_is_kept_in_the_folder_of_the_cache), UNIT(machine_code_is_kept_in_the_folder_of_the_cache),
    UNIT(a_saved_program_keeps_its_machine_code), UNIT(the_driver_stands_in_for_nvjitlink),
    UNIT(any_call_may_fail_at_any_time), UNIT(pieces_of_a_device_are_read_at_once), UNIT(a_device_that_is_lost_poisons_runs_and_the_process_lives),
    UNIT(a_program_that_does_not_fit_is_told_what_is_held),
    UNIT(a_device_that_hangs_is_named_with_its_step_and_the_process_lives),
    UNIT(a_client_has_the_gpus_that_it_names), UNIT(the_links_between_gpus_are_described),
    UNIT(without_a_driver_the_client_is_unavailable_and_the_cpu_works)};
  return cmocka_run_group_tests(units, NULL, NULL);
}
