/* tests/cpu/saved_test.c -- Saved executables: for several processors, and refused by name where they do not fit. That
 * a loaded program computes what the compiled one does, the suites of tests/platform/saved.c show. */
#include "test.h"

#include "base/wire.h"
#include "codegen/code/code.h"
#include "codegen/model/processor.h"
#include "platform/registry.h"
#include "runtime/runtime_internal.h"
#include "runtime/saved.h"
#include "run.h"

static const char program[] = "HloModule three\n"
                              "ENTRY e {\n"
                              "  p = f32[4] parameter(0)\n"
                              "  s = f32[4] sine(p)\n"
                              "  c = f32[] constant(1)\n"
                              "  b = f32[4] broadcast(c), dimensions={}\n"
                              "  ROOT r = f32[4] add(s, b)\n"
                              "}\n";

typedef struct bytes {
  char *data;
  size_t size;
} bytes;

static bytes save(weft_platform *platform, const char *cpus)
{
  WEFT_AUTO(weft_executable) exe = test_compile(platform, program, BUF_TOPOLOGICAL);
  void *data;
  size_t size;

  T_OK(weft_executable_save(exe, cpus, "print", "note", 4, &data, &size));
  return (bytes){data, size};
}

static weft_status *load(weft_platform *platform, bytes b, weft_executable **out)
{
  weft_saved saved;

  *out = NULL;
  WEFT_TRY(weft_saved_open(b.data, b.size, &saved));
  return weft_executable_load(platform, &saved, &(weft_compile_options){0}, out);
}

static void check_runs(weft_platform *platform, bytes b)
{
  WEFT_AUTO(weft_executable) exe = NULL;
  const float zeros[4] = {0};
  float out[4];

  T_OK(load(platform, b, &exe));
  T_OK(test_run(exe, (const void *[]){zeros}, (void *[]){out}));
  for (int i = 0; i < 4; i++) T_TRUE(out[i] == 1.0f); /* sin 0 + 1 */
}

/* The place of `text` in the bytes, which has it once. */
static char *find(bytes b, const char *text)
{
  char *at = memmem(b.data, b.size, text, strlen(text));

  T_TRUE(at != NULL);
  return at;
}

#if defined(__x86_64__)
TEST(code_for_several_processors_runs_here)
{
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  bytes both = save(platform, "x86-64-v4,x86-64,native"), one = save(platform, "x86-64");
  weft_saved saved;

  check_runs(platform, both);
  check_runs(platform, one);
  T_TRUE(both.size > one.size);
  T_OK(weft_saved_open(one.data, one.size, &saved));
  T_EQ_STR(saved.fingerprint, "print");
  T_TRUE(saved.note_size == 4 && memcmp(saved.note, "note", 4) == 0);
  free(both.data);
  free(one.data);
}

TEST(a_processor_that_is_not_known_is_refused)
{
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  WEFT_AUTO(weft_executable) exe = test_compile(platform, program, BUF_TOPOLOGICAL);
  void *data;
  size_t size;

  T_FAILS(weft_executable_save(exe, "x86-64-v9", "", NULL, 0, &data, &size), "expected native, x86-64");
}

/* A feature that no processor has stands for one that this processor lacks. */
TEST(code_for_another_processor_is_refused_by_name)
{
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  WEFT_AUTO(weft_executable) exe = NULL;
  bytes b = save(platform, "x86-64-v3");

  memcpy(find(b, "cx16,popcnt"), "cx77,popcnt", 11);
  weft_saved_seal(b.data, b.size);
  weft_status *st = load(platform, b, &exe);
  T_EQ_INT(weft_status_code(st), WEFT_FAILED_PRECONDITION);
  T_FAILS(st, "machine code for x86-64-v3 (wants cx77)");
  free(b.data);
}

TEST(code_of_another_architecture_is_refused_by_name)
{
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  WEFT_AUTO(weft_executable) exe = NULL;
  bytes b = save(platform, "x86-64");

  memcpy(find(b, "x86-64"), "risc-5", 6); /* the first is the architecture */
  weft_saved_seal(b.data, b.size);
  T_FAILS(load(platform, b, &exe), "wants an risc-5 processor");
  free(b.data);
}

/* Every level is contained in the next one, and what this processor is said to have contains what the compiler was
 * told to use for the machine that this test was built for. */
TEST(features_are_those_of_the_processor)
{
  char missing[64], of_llvm[GEN_FEATURES_BYTES];

  T_TRUE(gen_processor_has("", missing));
  T_TRUE(!gen_processor_has("sse3,no-such-feature", missing));
  T_EQ_STR(missing, "no-such-feature");
  T_EQ_INT(gen_processor_has("avx2", missing), __builtin_cpu_supports("avx2") != 0);
  T_EQ_INT(gen_processor_has("avx512f", missing), __builtin_cpu_supports("avx512f") != 0);
  T_EQ_INT(gen_processor_has("sse4.2", missing), __builtin_cpu_supports("sse4.2") != 0);
  T_EQ_INT(gen_processor_has("fma", missing), __builtin_cpu_supports("fma") != 0);
  T_EQ_INT(gen_this_processor.avx2, gen_processor_has("avx2,fma", missing));
  T_EQ_INT(gen_this_processor.avx512, gen_processor_has("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq", missing));
  T_EQ_INT(gen_this_processor.avx512_vnni, gen_this_processor.avx512 && gen_processor_has("avx512vnni", missing));
  T_EQ_INT(gen_this_processor.avx512_bf16, gen_this_processor.avx512 && gen_processor_has("avx512bf16", missing));
  gen_features_of_llvm("+avx2,-avx512f,+clflushopt,+fma", of_llvm);
  T_EQ_STR(of_llvm, "avx2,fma");
}
#endif

TEST(bytes_of_another_kind_version_or_platform_are_refused_by_name)
{
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  WEFT_AUTO(weft_executable) exe = NULL;
  bytes b = save(platform, NULL);

  memcpy(find(b, platform->ops->name), "gpu", 3);
  weft_saved_seal(b.data, b.size);
  weft_status *st = load(platform, b, &exe);
  T_EQ_INT(weft_status_code(st), WEFT_FAILED_PRECONDITION);
  T_FAILS(st, "for the platform \"gpu\"");
  b.data[8] = '9'; /* the first character of the version */
  st = load(platform, b, &exe);
  T_EQ_INT(weft_status_code(st), WEFT_FAILED_PRECONDITION);
  T_FAILS(st, "serialized by Weft 9");
  b.data[0] = 'x';
  T_FAILS(load(platform, b, &exe), "not a serialized executable");
  free(b.data);
}

TEST(every_damaged_byte_is_noticed)
{
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  bytes b = save(platform, NULL);
  weft_saved saved;

  for (size_t i = 0; i < b.size; i++) {
    b.data[i] ^= 0x20;
    weft_status *st = weft_saved_open(b.data, b.size, &saved);
    if (!st) fail_msg("byte %zu was changed and nobody noticed", i);
    weft_status_free(st);
    b.data[i] ^= 0x20;
  }
  for (size_t size = 0; size < b.size; size += 97) {
    weft_status *st = weft_saved_open(b.data, size, &saved);
    T_TRUE(st != NULL);
    weft_status_free(st);
  }
  free(b.data);
}

/* Changes 4 bytes of the platform's block at a time, under a new seal. What is loaded is not run: its code may be
 * anything. */
TEST(code_of_any_bytes_is_read_without_harm)
{
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  bytes b = save(platform, NULL);
  weft_saved saved;
  int refused = 0;

  T_OK(weft_saved_open(b.data, b.size, &saved));
  char *code = b.data + ((const char *)saved.code - b.data);
  for (size_t at = 0; at + 4 <= saved.code_size; at += at < 1024 ? 4 : 512) {
    static const unsigned char values[][4] = {{0xff, 0xff, 0xff, 0xff}, {0, 0, 0, 0x80}, {1, 0, 0, 0}};
    for (size_t v = 0; v < WEFT_COUNT(values); v++) {
      WEFT_AUTO(weft_executable) exe = NULL;
      char kept[4];
      memcpy(kept, code + at, 4);
      memcpy(code + at, values[v], 4);
      weft_saved_seal(b.data, b.size);
      weft_status *st = load(platform, b, &exe);
      refused += st != NULL;
      weft_status_free(st);
      memcpy(code + at, kept, 4);
    }
  }
  T_TRUE(refused > 100);
  free(b.data);
}

TEST(a_number_of_devices_other_than_the_program_s_is_refused)
{
  WEFT_AUTO(weft_platform) platform = test_platform(2, 1);
  WEFT_AUTO(weft_executable) exe = NULL;
  bytes b = save(platform, NULL);
  weft_saved saved;

  T_OK(weft_saved_open(b.data, b.size, &saved));
  T_FAILS(weft_executable_load(platform, &saved, &(weft_compile_options){.replica_count = 2}, &exe),
          "compiled for 1 replicas, not for 2");
  free(b.data);
}

TEST_MAIN(
#if defined(__x86_64__)
  UNIT(code_for_several_processors_runs_here), UNIT(a_processor_that_is_not_known_is_refused),
  UNIT(code_for_another_processor_is_refused_by_name), UNIT(code_of_another_architecture_is_refused_by_name),
  UNIT(features_are_those_of_the_processor),
#endif
  UNIT(bytes_of_another_kind_version_or_platform_are_refused_by_name), UNIT(every_damaged_byte_is_noticed),
  UNIT(code_of_any_bytes_is_read_without_harm), UNIT(a_number_of_devices_other_than_the_program_s_is_refused))
