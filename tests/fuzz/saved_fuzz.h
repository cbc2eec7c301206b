/* tests/fuzz/saved_fuzz.h -- executables of this build as inputs, for the targets that load such (runtime/saved.h). A
 * target defines load() and prepare(). It does not run what it has loaded: that has machine code of any bytes.
 *
 * What a build of Weft has saved no other one loads, so a target compiles programs of its own when it starts. An input
 * is one of:
 *   "weft.exe"...             the bytes of an executable
 *   PROGRAM (OFFSET16 XOR)... the executable of program number PROGRAM with a few bytes changed
 *   PROGRAM LENGTH16          the same, cut short
 * Each is loaded as it is, and with version, build and digest repaired. libFuzzer gets the executables of this build as
 * seeds: the target writes them to the first folder of its command line. */
#ifndef WEFT_TESTS_SAVED_FUZZ_H
#define WEFT_TESTS_SAVED_FUZZ_H

#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"
#include "runtime/saved.h"

/* A loop with a reduction, a product with a constant and layouts, branches with an alias. */
static const char *const saved_programs[] = {
  "HloModule loop\n"
  "sum {\n"
  "  a = f32[] parameter(0)\n"
  "  b = f32[] parameter(1)\n"
  "  ROOT c = f32[] add(a, b)\n"
  "}\n"
  "body {\n"
  "  s = (s32[], f32[8]) parameter(0)\n"
  "  i = s32[] get-tuple-element(s), index=0\n"
  "  x = f32[8] get-tuple-element(s), index=1\n"
  "  one = s32[] constant(1)\n"
  "  next = s32[] add(i, one)\n"
  "  y = f32[8] sine(x)\n"
  "  ROOT t = (s32[], f32[8]) tuple(next, y)\n"
  "}\n"
  "condition {\n"
  "  s = (s32[], f32[8]) parameter(0)\n"
  "  i = s32[] get-tuple-element(s), index=0\n"
  "  end = s32[] constant(5)\n"
  "  ROOT less = pred[] compare(i, end), direction=LT\n"
  "}\n"
  "ENTRY e {\n"
  "  p = f32[8] parameter(0)\n"
  "  zero = s32[] constant(0)\n"
  "  t = (s32[], f32[8]) tuple(zero, p)\n"
  "  w = (s32[], f32[8]) while(t), condition=condition, body=body\n"
  "  x = f32[8] get-tuple-element(w), index=1\n"
  "  start = f32[] constant(0)\n"
  "  total = f32[] reduce(x, start), dimensions={0}, to_apply=sum\n"
  "  ROOT r = (f32[8], f32[]) tuple(x, total)\n"
  "}\n",
  "HloModule products\n"
  "ENTRY e {\n"
  "  a = f32[4,8]{0,1} parameter(0)\n"
  "  b = f32[8,4] constant({ {1,2,3,4}, {5,6,7,8}, {9,1,2,3}, {4,5,6,7}, {8,9,1,2}, {3,4,5,6}, {7,8,9,1}, {2,3,4,5} })\n"
  "  d = f32[4,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
  "  ROOT r = f32[4,4]{0,1} copy(d)\n"
  "}\n",
  "HloModule branches, input_output_alias={ {}: (1, {}, may-alias) }\n"
  "less {\n"
  "  a = s32[] parameter(0)\n"
  "  b = s32[] parameter(1)\n"
  "  ROOT c = pred[] compare(a, b), direction=LT\n"
  "}\n"
  "sorted {\n"
  "  x = s32[16] parameter(0)\n"
  "  ROOT y = s32[16] sort(x), dimensions={0}, to_apply=less\n"
  "}\n"
  "reversed {\n"
  "  x = s32[16] parameter(0)\n"
  "  ROOT y = s32[16] reverse(x), dimensions={0}\n"
  "}\n"
  "ENTRY e {\n"
  "  which = pred[] parameter(0)\n"
  "  x = s32[16] parameter(1)\n"
  "  ROOT r = s32[16] conditional(which, x, x), true_computation=sorted, false_computation=reversed\n"
  "}\n",
};
enum { SAVED_PROGRAMS = WEFT_COUNT(saved_programs), MOST_PROGRAMS = 8 };

typedef struct saved {
  char *bytes;
  size_t size;
} saved;

static saved made[MOST_PROGRAMS];
static int made_count;

static bool load(const char *bytes, size_t size); /* true if it was loaded; frees it again */
static void prepare(void);                        /* fills made[], once */

/* Writes the executables to the folder that libFuzzer will add new inputs to. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
  struct stat info;
  int at = 1;

  prepare();
  while (at < *argc && ((*argv)[at][0] == '-' || stat((*argv)[at], &info) != 0 || !S_ISDIR(info.st_mode))) at++;
  for (int i = 0; at < *argc && i < made_count; i++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/of_this_build_%d", (*argv)[at], i);
    FILE *f = fopen(path, "wb");
    FUZZ_TRUE(f && fwrite(made[i].bytes, 1, made[i].size, f) == made[i].size && fclose(f) == 0);
  }
  return 0;
}

/* ---- inputs ---- */

/* The executable that a recipe describes; the caller frees it. */
static char *cook(const uint8_t *recipe, size_t size, size_t *out_size)
{
  const saved *from = &made[recipe[0] % made_count];
  size_t kept = size == 3 ? (recipe[1] | (size_t)recipe[2] << 8) % from->size : from->size;
  char *bytes = malloc(kept ? kept : 1); /* no longer than it is, so that a sanitizer sees what is read behind it */

  FUZZ_TRUE(bytes != NULL);
  memcpy(bytes, from->bytes, kept);
  *out_size = kept;
  for (size_t i = 1; i + 2 < size; i += 3)
    bytes[(recipe[i] | (size_t)recipe[i + 1] << 8) % from->size] ^= (char)recipe[i + 2];
  return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  char *bytes;

  prepare();
  if (size == 0) return 0;
  if (weft_saved_is(data, size)) {
    bytes = malloc(size);
    FUZZ_TRUE(bytes != NULL);
    memcpy(bytes, data, size);
  } else {
    bytes = cook(data, size, &size);
  }
  load(bytes, size);
  if (size >= WEFT_SAVED_HEADER) {
    weft_saved_seal(bytes, size);
    load(bytes, size);
  }
  free(bytes);
  return 0;
}

#endif
