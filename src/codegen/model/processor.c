/* codegen/model/processor.c -- the features of processors (processor.h). Bits of CPUID: Intel's manual, volume 2,
 * CPUID; AMD's manual, volume 3, appendix E. */
#include <config.h>

#include "codegen/model/processor.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/macros.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* ---- the table ------------------------------------------------------------------------------------------------- */

enum { EAX, EBX, ECX, EDX };
/* State that the operating system must save for a feature: none; YMM; ZMM and masks; tiles. */
enum { PLAIN, YMM, ZMM, TILES };

typedef struct feature {
  const char *name;
  uint32_t leaf, subleaf;
  int reg, bit, state;
} feature;

/* Features that LLVM may use for what kernels compute. Others, of system software, play no part. */
static const feature features[] = {
  {"sse3", 1, 0, ECX, 0, PLAIN}, {"pclmul", 1, 0, ECX, 1, PLAIN}, {"ssse3", 1, 0, ECX, 9, PLAIN},
  {"fma", 1, 0, ECX, 12, YMM}, {"cx16", 1, 0, ECX, 13, PLAIN}, {"sse4.1", 1, 0, ECX, 19, PLAIN},
  {"sse4.2", 1, 0, ECX, 20, PLAIN}, {"movbe", 1, 0, ECX, 22, PLAIN}, {"popcnt", 1, 0, ECX, 23, PLAIN},
  {"aes", 1, 0, ECX, 25, PLAIN}, {"avx", 1, 0, ECX, 28, YMM}, {"f16c", 1, 0, ECX, 29, YMM},
  {"sahf", 0x80000001, 0, ECX, 0, PLAIN}, {"lzcnt", 0x80000001, 0, ECX, 5, PLAIN},
  {"sse4a", 0x80000001, 0, ECX, 6, PLAIN}, {"xop", 0x80000001, 0, ECX, 11, YMM}, {"fma4", 0x80000001, 0, ECX, 16, YMM},
  {"tbm", 0x80000001, 0, ECX, 21, PLAIN},
  {"bmi", 7, 0, EBX, 3, PLAIN}, {"avx2", 7, 0, EBX, 5, YMM}, {"bmi2", 7, 0, EBX, 8, PLAIN},
  {"avx512f", 7, 0, EBX, 16, ZMM}, {"avx512dq", 7, 0, EBX, 17, ZMM}, {"adx", 7, 0, EBX, 19, PLAIN},
  {"avx512ifma", 7, 0, EBX, 21, ZMM}, {"avx512cd", 7, 0, EBX, 28, ZMM}, {"sha", 7, 0, EBX, 29, PLAIN},
  {"avx512bw", 7, 0, EBX, 30, ZMM}, {"avx512vl", 7, 0, EBX, 31, ZMM}, {"avx512vbmi", 7, 0, ECX, 1, ZMM},
  {"avx512vbmi2", 7, 0, ECX, 6, ZMM}, {"gfni", 7, 0, ECX, 8, PLAIN}, {"vaes", 7, 0, ECX, 9, YMM},
  {"vpclmulqdq", 7, 0, ECX, 10, YMM}, {"avx512vnni", 7, 0, ECX, 11, ZMM}, {"avx512bitalg", 7, 0, ECX, 12, ZMM},
  {"avx512vpopcntdq", 7, 0, ECX, 14, ZMM}, {"avx512vp2intersect", 7, 0, EDX, 8, ZMM},
  {"amx-bf16", 7, 0, EDX, 22, TILES}, {"avx512fp16", 7, 0, EDX, 23, ZMM}, {"amx-tile", 7, 0, EDX, 24, TILES},
  {"amx-int8", 7, 0, EDX, 25, TILES},
  {"sha512", 7, 1, EAX, 0, YMM}, {"sm3", 7, 1, EAX, 1, YMM}, {"sm4", 7, 1, EAX, 2, YMM},
  {"avxvnni", 7, 1, EAX, 4, YMM}, {"avx512bf16", 7, 1, EAX, 5, ZMM}, {"amx-fp16", 7, 1, EAX, 21, TILES},
  {"avxifma", 7, 1, EAX, 23, YMM}, {"avxvnniint8", 7, 1, EDX, 4, YMM}, {"avxneconvert", 7, 1, EDX, 5, YMM},
  {"amx-complex", 7, 1, EDX, 8, TILES}, {"avxvnniint16", 7, 1, EDX, 10, YMM},
};

/* What the psABI's levels add to each other (x86-64 psABI, "Micro-Architecture Levels"). */
#define V2 "cx16,popcnt,sahf,sse3,ssse3,sse4.1,sse4.2"
#define V3 V2 ",avx,avx2,bmi,bmi2,f16c,fma,lzcnt,movbe"
#define V4 V3 ",avx512f,avx512bw,avx512cd,avx512dq,avx512vl"
static const struct level {
  const char *name, *features;
} levels[] = {{"x86-64", ""}, {"x86-64-v2", V2}, {"x86-64-v3", V3}, {"x86-64-v4", V4}};

const char *gen_level_features(const char *level)
{
  for (size_t i = 0; i < WEFT_COUNT(levels); i++)
    if (strcmp(levels[i].name, level) == 0) return levels[i].features;
  return NULL;
}

const char *gen_level_names(void) { return "x86-64, x86-64-v2, x86-64-v3, x86-64-v4"; }

/* ---- the most that this process may use -------------------------------------------------------------------------- */

/* XLA's names for instruction sets (xla_cpu_max_isa). Each contains those before it. */
enum { SSE4_2, AVX, AVX2, AVX512, AVX512_VNNI, AVX512_BF16, AMX, AMX_FP16, ISAS };
static const char *const isas[ISAS] = {"SSE4_2", "AVX", "AVX2", "AVX512", "AVX512_VNNI", "AVX512_BF16", "AMX", "AMX_FP16"};

/* The least set with a feature whose name begins so; the first line that fits counts. All other features are in
 * SSE4_2. XLA sorts them alike (cpu_features.cc), but leaves avx512fp16 on under AVX512_BF16: no processor without AMX
 * has it. */
static const struct beginning { const char *text; int isa; } beginnings[] = {
  {"amx-bf16", AMX}, {"amx-int8", AMX}, {"amx-tile", AMX}, {"amx", AMX_FP16}, {"avx10", AMX_FP16}, {"avx512fp16", AMX},
  {"avx512bf16", AVX512_BF16}, {"avx512vnni", AVX512_VNNI}, {"avx512", AVX512}, {"evex512", AVX512}, {"avx2", AVX2},
  {"avxvnni", AVX2}, {"avxifma", AVX2}, {"avxneconvert", AVX2}, {"fma", AVX2}, {"avx", AVX}, {"f16c", AVX}, {"vaes", AVX},
  {"vpclmulqdq", AVX},
};

static int limit = ISAS;
static bool is_given;

/* The set with this name, in small or large letters; ISAS if there is none. */
static int isa_of(const char *name, size_t length)
{
  int i = 0;

  while (i < ISAS && (strlen(isas[i]) != length || strncasecmp(isas[i], name, length) != 0)) i++;
  return i;
}

/* Of several flags the last one counts, as in XLA. */
static void read_limit(void)
{
  static const char flag[] = "--xla_cpu_max_isa=";
  const char *at = getenv("XLA_FLAGS");

  while (at && (at = strstr(at, flag))) {
    at += sizeof flag - 1;
    limit = isa_of(at, strcspn(at, " \t\n"));
    is_given = true;
  }
}

static int most_isa(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;

  pthread_once(&once, read_limit);
  return limit;
}

const char *gen_isa_limit(void) { return most_isa() < ISAS ? isas[limit] : NULL; }

const char *gen_isa_names(void) { return "SSE4_2, AVX, AVX2, AVX512, AVX512_VNNI, AVX512_BF16, AMX, AMX_FP16"; }

bool gen_isa_limit_is_unknown(void) { return most_isa() == ISAS && is_given; }

/* False for a feature (its first `length` characters) above the limit. */
static bool is_allowed(const char *feature, size_t length)
{
  for (size_t i = 0; i < WEFT_COUNT(beginnings); i++) {
    size_t n = strlen(beginnings[i].text);
    if (n <= length && memcmp(beginnings[i].text, feature, n) == 0) return beginnings[i].isa <= most_isa();
  }
  return true;
}

void gen_limit_features(char *list)
{
  for (char *at = list; *at;) {
    size_t length = strcspn(at, ",");
    if (*at == '+' && !is_allowed(at + 1, length - 1)) *at = '-';
    at += length + (at[length] == ',');
  }
}

/* The next name of a list separated by commas; NULL at its end. */
static const char *next_name(const char **list, size_t *out_length)
{
  const char *name = *list;

  if (*name == '\0') return NULL;
  *out_length = strcspn(name, ",");
  *list = name + *out_length + (name[*out_length] == ',');
  return name;
}

static const feature *find(const char *name, size_t length)
{
  for (size_t i = 0; i < WEFT_COUNT(features); i++)
    if (strlen(features[i].name) == length && memcmp(features[i].name, name, length) == 0) return &features[i];
  return NULL;
}

void gen_features_of_llvm(const char *list, char out[GEN_FEATURES_BYTES])
{
  size_t length, used = 0;

  out[0] = '\0';
  for (const char *name; (name = next_name(&list, &length));) {
    if (length < 2 || *name != '+' || !find(name + 1, length - 1) || used + length + 1 >= GEN_FEATURES_BYTES) continue;
    used +=
      (size_t)snprintf(out + used, GEN_FEATURES_BYTES - used, "%s%.*s", used ? "," : "", (int)length - 1, name + 1);
  }
}

/* ---- this processor -------------------------------------------------------------------------------------------- */

gen_processor gen_this_processor;

#if defined(__x86_64__)
static __attribute__((constructor)) void describe_this_processor(void)
{
  gen_processor *p = &gen_this_processor;

  __builtin_cpu_init();
  p->avx2 = most_isa() >= AVX2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  p->avx512 = p->avx2 && most_isa() >= AVX512 && __builtin_cpu_supports("avx512f") &&
              __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
              __builtin_cpu_supports("avx512dq");
  p->avx512_vnni = p->avx512 && most_isa() >= AVX512_VNNI && __builtin_cpu_supports("avx512vnni");
  p->avx512_bf16 = p->avx512 && most_isa() >= AVX512_BF16 && __builtin_cpu_supports("avx512bf16");
}

/* What CPUID and XCR0 say. Under a hypervisor each CPUID takes microseconds, so a leaf is read once in a process. */
enum { LEAVES = 4 };
static const struct leaf { uint32_t number, sub; } leaves[LEAVES] = {{1, 0}, {7, 0}, {7, 1}, {0x80000001, 0}};
static uint32_t answers[LEAVES][4], saved_state;

static void ask_processor(void)
{
  uint32_t high, last[] = {__get_cpuid_max(0, NULL), __get_cpuid_max(0x80000000, NULL)};

  for (int i = 0; i < LEAVES; i++)
    if (leaves[i].number <= last[leaves[i].number >> 31])
      __cpuid_count(leaves[i].number, leaves[i].sub, answers[i][EAX], answers[i][EBX], answers[i][ECX],
                    answers[i][EDX]);
  if (answers[0][ECX] & 1u << 27) __asm__("xgetbv" : "=a"(saved_state), "=d"(high) : "c"(0)); /* OSXSAVE */
}

/* True if the processor has the feature, the operating system saves the registers that it needs, and this process may
 * use it. */
static bool has(const feature *f)
{
  static const uint32_t wanted[] = {[PLAIN] = 0, [YMM] = 0x6, [ZMM] = 0xe6, [TILES] = 0x60006};
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  int leaf = 0;

  pthread_once(&once, ask_processor);
  while (leaves[leaf].number != f->leaf || leaves[leaf].sub != f->subleaf) leaf++;
  return (answers[leaf][f->reg] & 1u << f->bit) && (saved_state & wanted[f->state]) == wanted[f->state] &&
         is_allowed(f->name, strlen(f->name));
}
#else
static bool has(const feature *f)
{
  (void)f;
  return false;
}
#endif

bool gen_processor_has(const char *list, char missing[64])
{
  size_t length;

  for (const char *name; (name = next_name(&list, &length));) {
    const feature *f = find(name, length);
    if (f && has(f)) continue;
    snprintf(missing, 64, "%.*s", (int)WEFT_MIN(length, (size_t)63), name);
    return false;
  }
  return true;
}
