/* tests/stablehlo/bytecode_test.c -- Portable artifacts: every version lowers to what its text twin lowers to; damage
 * gives an error with a position. */
#include "test.h"

#include <dirent.h>
#include <errno.h>

#include "hlo/infer.h"
#include "hlo/text.h"
#include "read_file.h"
#include "stablehlo/stablehlo.h"

/* The module as HLO text, or the message why there is none. */
static char *text_of(weft_status *st, hlo_module *module, bool *out_ok)
{
  char *text = NULL;
  size_t size;

  *out_ok = st == NULL;
  if (!st) st = hlo_verify(module);
  if (!st) st = hlo_print_to_string(module, (hlo_print_options){.large_constants = true}, &text, &size);
  if (st) {
    *out_ok = false;
    text = strdup(weft_status_message(st));
    weft_status_free(st);
  }
  return text;
}

static char *lowered(shlo_program *program, const char *function, bool *out_ok)
{
  WEFT_AUTO(hlo_module) module = NULL;
  weft_status *st = shlo_lower(program, &(shlo_options){.function = function}, &module);

  return text_of(st, module, out_ok);
}

/* The same from bytes in one step, which reads bodies of functions while it lowers them. */
static char *parsed(const char *bytes, size_t size, const char *function, bool *out_ok)
{
  WEFT_AUTO(hlo_module) module = NULL;
  weft_status *st = shlo_parse(bytes, size, &(shlo_options){.function = function}, &module);

  return text_of(st, module, out_ok);
}

static int compare_twins(const char *name, const char *folder, int *out_refused)
{
  char path[1024];
  size_t bytecode_size = 0, text_size = 0;
  WEFT_AUTO(shlo_program) a = NULL;
  WEFT_AUTO(shlo_program) b = NULL;
  int compared = 0;

  snprintf(path, sizeof path, "%s/%s", folder, name);
  WEFT_AUTO_STR bytecode = read_file(path, &bytecode_size);
  path[strlen(path) - 3] = '\0'; /* .bc */
  WEFT_AUTO_STR text = read_file(path, &text_size);
  if (!bytecode || !text) fail_msg("cannot read %s and its twin", path);
  weft_status *st = shlo_read(bytecode, bytecode_size, &a);
  if (st) fail_msg("%s: %s", name, weft_status_text(st, false));
  st = shlo_read(text, text_size, &b);
  if (st) fail_msg("twin of %s: %s", name, weft_status_text(st, false));
  T_EQ_INT(shlo_function_count(a, 0), shlo_function_count(b, 0));
  for (int i = 0; i < shlo_function_count(a, 0); i++) {
    const char *function = shlo_function_name(a, 0, i);
    bool ok[3];
    T_EQ_STR(function, shlo_function_name(b, 0, i));
    WEFT_AUTO_STR got = lowered(a, function, &ok[0]);
    WEFT_AUTO_STR want = lowered(b, function, &ok[1]);
    if (!got || !want || strcmp(got, want) != 0)
      fail_msg("%s: \"%s\" from bytecode:\n%s\nfrom text:\n%s", name, function, got ? got : "", want ? want : "");
    WEFT_AUTO_STR at_once = parsed(bytecode, bytecode_size, function, &ok[2]);
    T_EQ_STR(at_once, got);
    *out_refused += !ok[0];
    if (!ok[0] && getenv("VERBOSE")) print_message("# %s: %s: %s\n", name, function, got);
    compared++;
  }
  return compared;
}

static const char *vhlo_folder(void)
{
  static char folder[512];
  const char *root = getenv("WEFT_SRCDIR");

  snprintf(folder, sizeof folder, "%s/../shared/testdata/stablehlo/vhlo", root ? root : ".");
  return folder;
}

TEST(every_version_lowers_to_what_its_text_lowers_to)
{
  struct dirent **files;
  int n = scandir(vhlo_folder(), &files, NULL, alphasort), functions = 0, artifacts = 0, refused = 0;

  if (n < 0) T_SKIP("no %s", vhlo_folder());
  for (int i = 0; i < n; i++) {
    size_t length = strlen(files[i]->d_name);
    if (length > 3 && strcmp(files[i]->d_name + length - 3, ".bc") == 0) {
      functions += compare_twins(files[i]->d_name, vhlo_folder(), &refused);
      artifacts++;
    }
    free(files[i]);
  }
  free(files);
  print_message("# vhlo: %d artifacts, %d functions equal to their text (of them %d refused alike)\n", artifacts,
                functions, refused);
}

/* An artifact that is cut short anywhere, or has one bit changed, is read, or is refused with a position. Reading it
 * never crashes. */
TEST(damage_is_refused_and_located)
{
  char path[1024];
  size_t size = 0;
  int refused = 0, truncated = 0;

  snprintf(path, sizeof path, "%s/vhlo_emit_version_api.1_1_0.mlir.bc", vhlo_folder());
  WEFT_AUTO_STR bytes = read_file(path, &size);
  if (!bytes) T_SKIP("no %s", path);
  for (size_t length = 4; length < size; length++) {
    WEFT_AUTO(hlo_module) module = NULL;
    weft_status *st = shlo_parse(bytes, length, NULL, &module);
    if (!st) fail_msg("%zu of %zu bytes are accepted", length, size);
    truncated += strstr(weft_status_text(st, false), "byte ") != NULL;
    weft_status_free(st);
  }
  T_TRUE(truncated > 0);
  for (size_t bit = 32; bit < 8 * size; bit++) {
    WEFT_AUTO(hlo_module) module = NULL;
    bytes[bit / 8] ^= (char)(1 << (bit % 8));
    weft_status *st = shlo_parse(bytes, size, NULL, &module);
    refused += st != NULL;
    weft_status_free(st);
    bytes[bit / 8] ^= (char)(1 << (bit % 8));
  }
  T_TRUE(refused > 0);
}

static weft_status *parse(const char *bytes, size_t size)
{
  WEFT_AUTO(hlo_module) module = NULL;
  return shlo_parse(bytes, size, NULL, &module);
}

TEST(a_newer_version_is_refused_by_name)
{
  static const char header[] = "ML\xefR\x1fStableHLO_v9.9.9";
  T_CODE(parse(header, sizeof header), WEFT_UNIMPLEMENTED);
  T_FAILS(parse(header, sizeof header), "bytecode version 15 of producer StableHLO_v9.9.9");
  static const char text[] = "func.func @main(%a: tensor<f32>) -> tensor<f32> {\n"
                             "  %0 = \"vhlo.abs_v7\"(%a) : (tensor<f32>) -> tensor<f32>\n  return %0 : tensor<f32>\n}";
  T_FAILS(parse(text, sizeof text - 1), "vhlo.abs_v7: versions up to 1 are known");
}

/* Simple operations are lowered on a short path while they are read. For any changed bit, that path accepts the same
 * artifacts as reading them whole does, and gives the same modules. The artifact is jax.export's, of a training step of
 * three layers. */
TEST(what_is_read_in_parts_is_what_is_read_at_once)
{
  char path[1024];
  size_t size = 0;
  int accepted = 0;

  snprintf(path, sizeof path, "%s/tests/fuzz/corpus/stablehlo_bytecode/layers_repeated.bc",
           getenv("WEFT_SRCDIR") ? getenv("WEFT_SRCDIR") : ".");
  WEFT_AUTO_STR bytes = read_file(path, &size);
  if (!bytes) fail_msg("cannot read %s", path);
  for (size_t bit = 0; bit < 8 * size; bit += 3) {
    WEFT_AUTO(shlo_program) program = NULL;
    bool in_parts, at_once = false;
    if (bit) bytes[bit / 8] ^= (char)(1 << (bit % 8));
    WEFT_AUTO_STR got = parsed(bytes, size, NULL, &in_parts);
    weft_status *st = shlo_read(bytes, size, &program);
    WEFT_AUTO_STR want = st ? NULL : lowered(program, NULL, &at_once);
    weft_status_free(st);
    if (in_parts != at_once || (at_once && strcmp(got, want) != 0))
      fail_msg("bit %zu: in parts %s\nat once %s", bit, got, want ? want : "refused");
    accepted += at_once;
    if (bit) bytes[bit / 8] ^= (char)(1 << (bit % 8));
  }
  T_TRUE(accepted > 100);
}

TEST_MAIN(UNIT(every_version_lowers_to_what_its_text_lowers_to), UNIT(damage_is_refused_and_located), UNIT(what_is_read_in_parts_is_what_is_read_at_once),
          UNIT(a_newer_version_is_refused_by_name))
