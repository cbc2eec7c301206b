/* tests/fuzz/pjrt_executable_fuzz.c -- A serialised executable of any bytes, as it is and with
 * version, build and digest repaired: an error, or a program that is loaded. A loaded program is
 * not run: it has machine code of any bytes.
 *
 * What a build of Weft has serialised no other one loads, so the target compiles programs of its own when it starts.
 *   "weft.exe"...             the bytes of an executable
 *   PROGRAM (OFFSET16 XOR)... the executable of program number PROGRAM with a few bytes changed
 *   PROGRAM LENGTH16          the same, cut short
 * libFuzzer gets these executables as seeds: the target writes them to the first folder of its command line. */
#include <config.h>

#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"
#include "pjrt/internal.h"
#include "runtime/saved.h"

const PJRT_Api *GetPjrtApi(void);

/* ---- the plugin ---- */

static void destroy(PJRT_Error *error)
{
  GetPjrtApi()->PJRT_Error_Destroy(
    &(PJRT_Error_Destroy_Args){.struct_size = sizeof(PJRT_Error_Destroy_Args), .error = error});
}

static PJRT_Client *make_client(void)
{
  PJRT_NamedValue devices = {.struct_size = sizeof devices, .name = "num_devices", .name_size = 11, .type = PJRT_NamedValue_kInt64,
                             .int64_value = 1, .value_size = 1};
  PJRT_Client_Create_Args args = {.struct_size = sizeof args, .create_options = &devices, .num_options = 1};

  FUZZ_TRUE(GetPjrtApi()->PJRT_Client_Create(&args) == NULL);
  return args.client;
}

/* ---- executables of this build ---- */

static const char *const programs[] = {
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
enum { PROGRAMS = WEFT_COUNT(programs) };

typedef struct saved {
  char *bytes;
  size_t size;
} saved;

static PJRT_Client *client;
static saved made[PROGRAMS];

static void serialize(const char *program, saved *out)
{
  PJRT_Program code = {.struct_size = sizeof code, .code = (char *)program, .code_size = strlen(program), .format = "any", .format_size = 3};
  PJRT_Client_Compile_Args compile = {.struct_size = sizeof compile, .client = client, .program = &code, .compile_options = ""};
  FUZZ_TRUE(GetPjrtApi()->PJRT_Client_Compile(&compile) == NULL);
  PJRT_LoadedExecutable_GetExecutable_Args get = {.struct_size = sizeof get, .loaded_executable = compile.executable};
  FUZZ_TRUE(GetPjrtApi()->PJRT_LoadedExecutable_GetExecutable(&get) == NULL);
  PJRT_Executable_Serialize_Args args = {.struct_size = sizeof args, .executable = get.executable};
  FUZZ_TRUE(GetPjrtApi()->PJRT_Executable_Serialize(&args) == NULL);

  *out = (saved){malloc(args.serialized_bytes_size), args.serialized_bytes_size};
  FUZZ_TRUE(out->bytes != NULL);
  memcpy(out->bytes, args.serialized_bytes, out->size);
  args.serialized_executable_deleter(args.serialized_executable);
  PJRT_Executable_Destroy_Args no_more = {.struct_size = sizeof no_more, .executable = get.executable};
  FUZZ_TRUE(GetPjrtApi()->PJRT_Executable_Destroy(&no_more) == NULL);
  PJRT_LoadedExecutable_Destroy_Args gone = {.struct_size = sizeof gone, .executable = compile.executable};
  FUZZ_TRUE(GetPjrtApi()->PJRT_LoadedExecutable_Destroy(&gone) == NULL);
}

/* True if it was loaded. */
static bool load(const char *bytes, size_t size)
{
  PJRT_Executable_DeserializeAndLoad_Args args = {.struct_size = sizeof args, .client = client, .serialized_executable = bytes,
                                                  .serialized_executable_size = size};
  PJRT_Error *error = GetPjrtApi()->PJRT_Executable_DeserializeAndLoad(&args);

  if (error) {
    destroy(error);
    return false;
  }
  PJRT_LoadedExecutable_Destroy_Args gone = {.struct_size = sizeof gone, .executable = args.loaded_executable};
  FUZZ_TRUE(GetPjrtApi()->PJRT_LoadedExecutable_Destroy(&gone) == NULL);
  return true;
}

static void prepare(void)
{
  if (client) return;
  client = make_client();
  for (int i = 0; i < PROGRAMS; i++) {
    serialize(programs[i], &made[i]);
    FUZZ_TRUE(load(made[i].bytes, made[i].size));
  }
}

/* Writes the executables to the folder that libFuzzer will add new inputs to. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
  struct stat info;
  int at = 1;

  prepare();
  while (at < *argc && ((*argv)[at][0] == '-' || stat((*argv)[at], &info) != 0 || !S_ISDIR(info.st_mode))) at++;
  for (int i = 0; at < *argc && i < PROGRAMS; i++) {
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
  const saved *from = &made[recipe[0] % PROGRAMS];
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
