/* tests/fuzz/mutate_test.c -- The mutator of the fuzz targets: its inputs stay within their space, are the same for the
 * same seed, and are programs more often than those with changed bytes are. */
#include <config.h>

#include <dirent.h>

#include "hlo/proto.h"
#include "hlo/text.h"
#include "mutate.h"
#include "runtime/saved.h"
#include "stablehlo/stablehlo.h"
#include "test.h"

enum { MOST_FILES = 64, MOST_BYTES = 1 << 14, GUARD = 64, ROUNDS = 40 };

/* libFuzzer's own changes are one changed, added or dropped byte here. */
static mut_job job;

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most)
{
  size_t at = mut_below(&job, size + 1);

  switch (mut_below(&job, 3)) {
  case 0:
    if (size == most) return size;
    memmove(data + at + 1, data + at, size - at);
    data[at] = (uint8_t)mut_below(&job, 256);
    return size + 1;
  case 1:
    if (at == size) return size;
    memmove(data + at, data + at + 1, size - at - 1);
    return size - 1;
  default:
    if (at < size) data[at] = (uint8_t)mut_below(&job, 256);
    return size;
  }
}

static mut_bytes files[MOST_FILES];
static size_t file_count;

static void read_corpus(const char *name)
{
  char path[4096];
  struct dirent **entries;

  snprintf(path, sizeof path, "%s/tests/fuzz/corpus/%s", getenv("WEFT_SRCDIR") ? getenv("WEFT_SRCDIR") : ".", name);
  int count = scandir(path, &entries, NULL, alphasort);
  T_TRUE(count > 2);
  file_count = 0;
  for (int i = 0; i < count; i++) {
    char file[8192];
    uint8_t *data = malloc(MOST_BYTES);
    snprintf(file, sizeof file, "%s/%s", path, entries[i]->d_name);
    FILE *f = entries[i]->d_name[0] == '.' ? NULL : fopen(file, "rb");
    size_t size = f ? fread(data, 1, MOST_BYTES, f) : 0;
    if (f) fclose(f);
    if (size > 0 && size < MOST_BYTES && file_count < MOST_FILES) files[file_count++] = (mut_bytes){data, size};
    else free(data);
    free(entries[i]);
  }
  free(entries);
}

static bool is_hlo_text(mut_bytes b)
{
  WEFT_AUTO(hlo_module) module = NULL;
  weft_status *st = hlo_parse((const char *)b.data, b.size, &module);

  weft_status_free(st);
  return !st;
}

static bool is_hlo_proto(mut_bytes b)
{
  WEFT_AUTO(hlo_module) module = NULL;
  weft_status *st = hlo_from_proto(b.data, b.size, &module);

  weft_status_free(st);
  return !st;
}

static bool is_stablehlo(mut_bytes b)
{
  shlo_program *program = NULL;
  weft_status *st = shlo_read(b.data, b.size, &program);

  if (!st) shlo_program_free(program);
  weft_status_free(st);
  return !st;
}

/* Changes every file of the corpus ROUNDS times.  Gives how many results of those that
 * are changed are programs, per thousand. */
static int share(bool (*is_program)(mut_bytes), bool plain)
{
  uint8_t *out = malloc(MOST_BYTES + GUARD);
  int programs = 0, all = 0;

  job = (mut_job){0};
  if (plain) setenv("FUZZ_PLAIN", "1", 1);
  for (unsigned seed = 1; seed <= ROUNDS * file_count; seed++) {
    mut_bytes from = files[seed % file_count], donor = files[(seed / file_count + seed) % file_count];
    size_t most = seed % 5 ? MOST_BYTES : from.size + seed % 7, size;
    memset(out + most, 0xa5, GUARD);
    if (seed % 3) {
      size = LLVMFuzzerCustomCrossOver(from.data, from.size, donor.data, donor.size, out, most, seed);
    } else {
      memcpy(out, from.data, from.size);
      size = LLVMFuzzerCustomMutator(out, from.size, most, seed);
    }
    T_TRUE(size <= most);
    for (size_t i = 0; i < GUARD; i++) T_EQ_INT(out[most + i], 0xa5);
    if (size == from.size && memcmp(out, from.data, size) == 0) continue;
    programs += is_program((mut_bytes){out, size});
    all++;
  }
  unsetenv("FUZZ_PLAIN");
  free(out);
  return all ? 1000 * programs / all : 0;
}

/* The mutator gives at least `times_ten` / 10 times as many programs as changes of single bytes do. */
static void compare(const char *name, bool (*is_program)(mut_bytes), int times_ten)
{
  read_corpus(name);
  int plain = share(is_program, true), structured = share(is_program, false);
  print_message("# %s: %d of 1000 changed inputs are programs, %d of 1000 after one change of bytes\n", name,
                structured, plain);
  for (size_t i = 0; i < file_count; i++) free((void *)files[i].data);
  T_TRUE(structured > 0 && 10 * structured >= times_ten * plain);
}

TEST(changed_hlo_texts_are_programs_more_often) { compare("hlo_run", is_hlo_text, 15); }
TEST(changed_mlir_texts_are_programs_more_often) { compare("stablehlo_text", is_stablehlo, 11); }
TEST(changed_protos_are_programs_more_often) { compare("hlo_proto", is_hlo_proto, 15); }
TEST(changed_bytecode_is_a_program_about_as_often) { compare("stablehlo_bytecode", is_stablehlo, 8); }

/* Are the executable's blocks where their sizes say? Repairs the header first, as the target does. */
static bool is_executable(mut_bytes b)
{
  weft_saved saved;

  if (b.size < WEFT_SAVED_HEADER) return false;
  uint8_t *copy = malloc(b.size);
  memcpy(copy, b.data, b.size);
  weft_saved_seal(copy, b.size);
  weft_status *st = weft_saved_open(copy, b.size, &saved);
  free(copy);
  weft_status_free(st);
  return !st;
}

TEST(changed_executables_keep_their_blocks)
{
  read_corpus("hlo_proto");
  for (size_t i = 0; i < file_count; i++) {
    weft_saved saved = {.platform = "cpu", .fingerprint = "weft-0123", .note = "note", .note_size = 4, .module = files[i].data, .module_size = files[i].size,
                        .code = "machine code", .code_size = 12};
    void *data;
    size_t size;
    T_OK(weft_saved_pack(&saved, &data, &size));
    free((void *)files[i].data);
    files[i] = (mut_bytes){data, size};
  }
  int structured = share(is_executable, false);
  print_message("# pjrt_executable: %d of 1000 changed inputs are executables\n", structured);
  for (size_t i = 0; i < file_count; i++) free((void *)files[i].data);
  T_TRUE(structured > 360);
}

static mut_bytes text_bytes(const char *text) { return (mut_bytes){(const uint8_t *)text, strlen(text)}; }

TEST(an_operation_of_the_donor_takes_operands_of_the_receiver)
{
  mut_bytes receiver = text_bytes("HloModule a\n"
                                  "ENTRY e {\n"
                                  "  p = f32[2] parameter(0)\n"
                                  "  ROOT r = f32[2] negate(p)\n"
                                  "}\n");
  mut_bytes donor = text_bytes("HloModule b\n"
                               "ENTRY f {\n"
                               "  q = f32[2] parameter(0)\n"
                               "  s = f32[2] cosine(q)\n"
                               "  ROOT t = f32[2] tanh(s)\n"
                               "}\n");
  bool found = false;

  for (unsigned seed = 0; seed < 4000 && !found; seed++) {
    uint8_t out[1024];
    size_t size =
      LLVMFuzzerCustomCrossOver(receiver.data, receiver.size, donor.data, donor.size, out, sizeof out - 1, seed);
    out[size] = '\0';
    found = is_hlo_text((mut_bytes){out, size}) && strstr((char *)out, "negate(m") &&
            strstr((char *)out, "= f32[2] cosine(p)");
  }
  T_TRUE(found);
}

TEST(the_same_seed_makes_the_same_change)
{
  mut_bytes text = text_bytes("ENTRY e {\n"
                              "  p = s32[4] parameter(0)\n"
                              "  q = s32[4] add(p, p)\n"
                              "  ROOT r = s32[4] negate(q)\n"
                              "}\n");

  for (unsigned seed = 0; seed < 200; seed++) {
    uint8_t out[2][512];
    size_t size[2];
    for (int i = 0; i < 2; i++) {
      mut_job job = {.random = seed, .receiver = text, .donor = text, .out = out[i], .most = sizeof out[i]};
      size[i] = mut_text(&job) ? job.size : 0;
    }
    T_EQ_INT(size[0], size[1]);
    T_TRUE(memcmp(out[0], out[1], size[0]) == 0);
  }
}

TEST_MAIN(UNIT(changed_hlo_texts_are_programs_more_often), UNIT(changed_mlir_texts_are_programs_more_often),
          UNIT(changed_protos_are_programs_more_often), UNIT(changed_bytecode_is_a_program_about_as_often), UNIT(changed_executables_keep_their_blocks),
          UNIT(an_operation_of_the_donor_takes_operands_of_the_receiver), UNIT(the_same_seed_makes_the_same_change))
