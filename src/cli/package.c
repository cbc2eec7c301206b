/* cli/package.c -- a compiled program for applications in C (package.h).
 *
 * NAME.c takes the bytes of NAME.weft in by `.incbin`, which gcc and clang assemble in no time where an
 * array of as many bytes would take minutes. */
#include <config.h>

#include "cli/package.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/build_id.h"
#include "base/child.h"
#include "base/macros.h"
#include "cli/cli.h"

enum { NAME_BYTES = 128, PATH_BYTES = PATH_MAX };

extern char **environ;

static bool is_folder(const char *path)
{
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

cli_package_kind cli_package_kind_of(const char *path)
{
  size_t length = strlen(path);

  if (is_folder(path) || (length > 0 && path[length - 1] == '/')) return CLI_PACKAGE_FOLDER;
  return length > 3 && strcmp(path + length - 3, ".so") == 0 ? CLI_PACKAGE_LIBRARY : CLI_PACKAGE_FILE;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Names that a parameter may not have: keywords of C and C++, macros that are defined everywhere, and the other names
 * in the function's declaration. */
static bool is_reserved(const char *name)
{
  static const char *const reserved[] = {
    "alignas", "alignof", "and", "asm", "auto", "bool", "break", "case", "catch", "char", "class", "compl", "concept", "const",
    "constexpr", "continue", "deadline", "decltype", "default", "delete", "do", "double", "else", "enum", "errno", "explicit",
    "export", "extern", "false", "float", "for", "friend", "goto", "if", "inline", "inputs", "int", "linux", "long", "mutable",
    "namespace", "new", "noexcept", "not", "nullptr", "operator", "or", "outputs", "private", "program", "protected", "public",
    "register", "requires", "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "template", "this",
    "throw", "true", "try", "typedef", "typeid", "typename", "typeof", "union", "unix", "unsigned", "using", "virtual", "void",
    "volatile", "while", "xor",
  };
  for (size_t i = 0; i < WEFT_COUNT(reserved); i++)
    if (strcmp(name, reserved[i]) == 0) return true;
  return strncmp(name, "result", 6) == 0;
}

/* A C identifier made of `text`: other characters become "_". */
static void identifier(const char *text, size_t length, char out[NAME_BYTES])
{
  size_t n = 0;

  if (length > 0 && isdigit((unsigned char)*text)) out[n++] = '_';
  for (size_t i = 0; i < length && n < NAME_BYTES - 16; i++)
    out[n++] = isascii((unsigned char)text[i]) && isalnum((unsigned char)text[i]) ? text[i] : '_';
  out[n] = '\0';
}

static bool is_identifier(const char *name)
{
  if (!*name || isdigit((unsigned char)*name) || strlen(name) >= NAME_BYTES - 16) return false;
  while (isascii((unsigned char)*name) && (isalnum((unsigned char)*name) || *name == '_')) name++;
  return !*name;
}

/* The last part of a path without "lib" before it and without what follows its first dot. */
static void name_of_path(const char *path, char out[NAME_BYTES])
{
  const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;

  if (strncmp(base, "lib", 3) == 0 && base[3] && base[3] != '.') base += 3;
  identifier(base, strcspn(base, "."), out);
}

static weft_status *choose_name(const cli_package *p, char out[NAME_BYTES])
{
  bool library = cli_package_kind_of(p->path) == CLI_PACKAGE_LIBRARY;

  if (p->name) snprintf(out, NAME_BYTES, "%s", p->name);
  else if (library || strcmp(p->program, "-") != 0) name_of_path(library ? p->path : p->program, out);
  else identifier(p->module->name, strlen(p->module->name), out);
  if ((p->name && !is_identifier(p->name)) || !*out)
    return WEFT_ERR(INVALID_ARGUMENT, "\"%.100s\" is no name for C: give --name NAME", p->name ? p->name : p->path);
  if (is_reserved(out)) strcat(out, "_");
  return NULL;
}

/* ---- the header -------------------------------------------------------------------------------------------------- */

/* An array of the program as the header declares it. */
typedef struct value {
  char name[NAME_BYTES];
  const hlo_shape *shape; /* an array's or a token's */
} value;

typedef struct signature {
  value *params, *results;
  int param_count, result_count;
} signature;

static bool has_bytes(const value *v) { return hlo_shape_is_array(v->shape); }

static bool is_taken(const value *values, int count, const char *name)
{
  for (int i = 0; i < count; i++)
    if (strcmp(values[i].name, name) == 0) return true;
  return false;
}

static void name_param(signature *s, const char *name, bool is_leaf, int leaf)
{
  value *v = &s->params[s->param_count];
  char base[NAME_BYTES];

  identifier(name, strlen(name), base);
  snprintf(v->name, sizeof v->name, is_leaf ? "%.100s_%d" : "%.100s", base, leaf);
  if (is_reserved(v->name)) strcat(v->name, "_");
  for (int n = 2; is_taken(s->params, s->param_count, v->name); n++)
    snprintf(v->name, sizeof v->name, "%.100s_%d_", base, n);
}

static weft_status *read_signature(const hlo_module *module, weft_arena *arena, signature *out)
{
  const hlo_computation *entry = module->entry;
  const hlo_shape *result = module->has_entry_layout ? module->entry_result_shape : entry->root->shape;
  int leaves = 0;

  for (int i = 0; i < entry->param_count; i++) leaves += hlo_shape_leaf_count(entry->params[i]->shape);
  *out = (signature){.params = WEFT_ARENA_ARRAY(arena, value, leaves + 1),
                     .results = WEFT_ARENA_ARRAY(arena, value, hlo_shape_leaf_count(result) + 1)};
  WEFT_TRY_ALLOC(out->params && out->results);
  for (int i = 0; i < entry->param_count; i++) {
    const hlo_shape *shape = module->has_entry_layout ? module->entry_param_shapes[i] : entry->params[i]->shape;
    for (int k = 0; k < hlo_shape_leaf_count(shape); k++) {
      out->params[out->param_count].shape = hlo_shape_leaf(shape, k);
      name_param(out, entry->params[i]->name, hlo_shape_is_tuple(shape), k);
      out->param_count++;
    }
  }
  for (int k = 0; k < hlo_shape_leaf_count(result); k++) {
    value *v = &out->results[out->result_count++];
    v->shape = hlo_shape_leaf(result, k);
    snprintf(v->name, sizeof v->name, "result%d", k);
  }
  return NULL;
}

/* The type of an element; a complex number is an array of two. */
static const char *element_type(weft_dtype type)
{
  switch (type) {
  case WEFT_PRED: return "bool";
  case WEFT_S1: case WEFT_S2: case WEFT_S4: case WEFT_S8: return "int8_t";
  case WEFT_S16: return "int16_t";
  case WEFT_S32: return "int32_t";
  case WEFT_S64: return "int64_t";
  case WEFT_U32: return "uint32_t";
  case WEFT_U64: return "uint64_t";
  case WEFT_F32: case WEFT_C64: return "float";
  case WEFT_F64: case WEFT_C128: return "double";
  default: return weft_dtype_bytes(type) == 2 ? "uint16_t" : "uint8_t";
  }
}

/* Declares a parameter of a C function: `const float x[4][8]`. Dimensions stand in the order of memory. */
static void put_declaration(const value *v, const char *qualifier, FILE *out)
{
  const hlo_shape *s = v->shape;
  bool is_empty = hlo_shape_elems(s) == 0, is_complex = weft_dtype_is_complex(s->type);

  fprintf(out, "%s%s ", qualifier, element_type(s->type));
  if (is_empty || (s->rank == 0 && !is_complex)) {
    fprintf(out, "*%s", v->name);
    return;
  }
  fputs(v->name, out);
  for (int d = s->rank - 1; d >= 0; d--) {
    int64_t dim = s->layout ? s->layout->minor_to_major[d] : s->rank - 1 - d;
    fprintf(out, "[%lld]", (long long)s->dims[dim]);
  }
  if (is_complex) fputs("[2]", out);
}

static void put_run(const char *name, const signature *s, FILE *out)
{
  fprintf(out, "weft_status *%s_run(weft_program *program", name);
  for (int i = 0; i < s->param_count; i++)
    if (has_bytes(&s->params[i])) fputs(",\n  ", out), put_declaration(&s->params[i], "const ", out);
  for (int i = 0; i < s->result_count; i++)
    if (has_bytes(&s->results[i])) fputs(",\n  ", out), put_declaration(&s->results[i], "", out);
  fputs(",\n  weft_deadline deadline)", out);
}

static void put_table(const char *title, const value *values, int count, FILE *out)
{
  char text[256];

  for (int i = 0; i < count; i++)
    fprintf(out, " *   %-10s %2d  %-20s %s\n", i ? "" : title, i, values[i].name,
            hlo_shape_format(values[i].shape, text, sizeof text));
}

static void put_header(const cli_package *p, const char *name, const signature *s, FILE *out)
{
  char module[NAME_BYTES]; /* without what would end the comment */

  identifier(p->module->name, strlen(p->module->name), module);
  fprintf(out,
          "/* %s.h -- the program \"%s\", compiled by Weft %s (build %s). `weft compile` has written this file.\n *\n",
          name, module, PACKAGE_VERSION, WEFT_BUILD_ID);
  put_table("parameters", s->params, s->param_count, out);
  put_table("results", s->results, s->result_count, out);
  fprintf(
    out,
    " *\n * Elements that C has no type for are integers of their size: f16 and bf16 are uint16_t, narrower ones uint8_t.\n"
    " * A complex number is two numbers. <weft/program.h> describes weft_program and its errors. */\n"
    "#ifndef WEFT_PROGRAM_%s_H\n#define WEFT_PROGRAM_%s_H\n\n#include <stdbool.h>\n#include <stdint.h>\n\n"
    "#include <weft/program.h>\n\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n",
    name, name);
  fprintf(out, "enum { %s_devices = %d, %s_params = %d, %s_results = %d };\n\n", name, p->devices, name, s->param_count,
          name, s->result_count);
  fprintf(
    out,
    "/* Loads the program, which is part of this code. `options` may be NULL. Errors: those of weft_program_open. */\n"
    "WEFT_NODISCARD weft_status *%s_open(const weft_program_options *options, weft_program **out_program);\n\n",
    name);
  if (p->devices == 1) {
    fprintf(out, "/* Runs the program once and waits for it. Errors: those of weft_program_run. */\nWEFT_NODISCARD ");
    put_run(name, s, out);
    fputs(";\n\n", out);
  } else {
    fprintf(out, "/* The program runs on %d devices of this process: weft_program_run takes the arrays of all. */\n\n",
            p->devices);
  }
  fputs("#ifdef __cplusplus\n}\n#endif\n\n#endif\n", out);
}

/* ---- the source -------------------------------------------------------------------------------------------------- */

static void put_pointers(const char *declaration, const value *values, int count, FILE *out)
{
  fprintf(out, "  %s[] = {", declaration);
  for (int i = 0; i < count; i++) fprintf(out, "%s%s", i ? ", " : "", has_bytes(&values[i]) ? values[i].name : "0");
  fprintf(out, "%s};\n", count == 0 ? "0" : "");
}

static void put_source(const cli_package *p, const char *name, const signature *s, FILE *out)
{
  fprintf(out,
          "/* %s.c -- the machine code of %s.h, which the assembler takes from %s.weft.\n"
          " * Compile this file with -I of its folder and with the flags of `pkg-config --cflags weft-runtime`. */\n"
          "#include \"%s.h\"\n\n",
          name, name, name, name);
  fprintf(out,
          "__asm__(\".pushsection .rodata\\n\"\n"
          "        \".balign 64\\n\"\n"
          "        \".local %s_code, %s_code_end\\n\"\n"
          "        \"%s_code: .incbin \\\"%s.weft\\\"\\n\"\n"
          "        \"%s_code_end: .byte 0\\n\"\n"
          "        \".popsection\\n\");\n"
          "extern const char %s_code[], %s_code_end[] __attribute__((visibility(\"hidden\")));\n\n",
          name, name, name, name, name, name, name);
  fprintf(out,
          "weft_status *%s_open(const weft_program_options *options, weft_program **out_program)\n"
          "{\n  return weft_program_open(%s_code, (size_t)(%s_code_end - %s_code), options, out_program);\n}\n",
          name, name, name, name);
  if (p->devices != 1) return;
  fputc('\n', out);
  put_run(name, s, out);
  fputs("\n{\n", out);
  put_pointers("const void *const inputs", s->params, s->param_count, out);
  put_pointers("void *const outputs", s->results, s->result_count, out);
  fputs("\n  return weft_program_run(program, inputs, outputs, deadline);\n}\n", out);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static weft_status *join(char out[PATH_BYTES], const char *folder, const char *name, const char *suffix)
{
  if (snprintf(out, PATH_BYTES, "%s/%s%s", folder, name, suffix) < PATH_BYTES) return NULL;
  return WEFT_ERR(INVALID_ARGUMENT, "the name of the file is too long: %.60s...", folder);
}

static weft_status *write_text(const cli_package *p, const char *name, const signature *s, const char *path,
                               void (*put)(const cli_package *, const char *, const signature *, FILE *))
{
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);

  WEFT_TRY_ALLOC(out);
  put(p, name, s, out);
  weft_status *st = fclose(out) == 0 ? cli_write_file(path, text, size) : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  free(text);
  return st;
}

static weft_status *write_folder(const cli_package *p, const char *name, const signature *s, const char *folder)
{
  char path[PATH_BYTES];

  if (mkdir(folder, 0777) != 0 && errno != EEXIST)
    return WEFT_ERR(INVALID_ARGUMENT, "cannot make the folder %s: %s", folder, strerror(errno));
  WEFT_TRY(join(path, folder, name, ".weft"));
  WEFT_TRY(cli_write_file(path, p->code, p->code_size));
  WEFT_TRY(join(path, folder, name, ".h"));
  WEFT_TRY(write_text(p, name, s, path, put_header));
  WEFT_TRY(join(path, folder, name, ".c"));
  return write_text(p, name, s, path, put_source);
}

/* ---- the shared library ------------------------------------------------------------------------------------------ */

/* Where the folder `configured` is: the installation may have been moved as a whole, with this command in it. */
static void place_of(const char *configured, char out[PATH_BYTES])
{
  static const char bin[] = WEFT_BINDIR;
  size_t prefix = (size_t)(strrchr(bin, '/') - bin); /* without "/bin" */
  char exe[PATH_BYTES];
  ssize_t length = readlink("/proc/self/exe", exe, sizeof exe - 1);
  char *slash;

  snprintf(out, PATH_BYTES, "%s", configured);
  if (length <= 0 || strncmp(configured, bin, prefix) != 0 || configured[prefix] != '/') return;
  exe[length] = '\0';
  if ((slash = strrchr(exe, '/'))) *slash = '\0'; /* the folder of the command */
  if (!slash || !(slash = strrchr(exe, '/')) || strcmp(slash, bin + prefix) != 0) return;
  *slash = '\0';
  snprintf(out, PATH_BYTES, "%.*s%s", PATH_BYTES / 2, exe, configured + prefix);
}

static weft_status *find_installation(char include[PATH_BYTES], char library[PATH_BYTES])
{
  char path[PATH_BYTES + 32];

  place_of(WEFT_INCLUDEDIR, include);
  place_of(WEFT_LIBDIR, library);
  snprintf(path, sizeof path, "%s/weft/program.h", include);
  if (access(path, R_OK) != 0)
    return WEFT_ERR(FAILED_PRECONDITION, "%s is not there: install Weft's headers, or write a folder (-o FOLDER/)",
                    path);
  snprintf(path, sizeof path, "%s/libweft_runtime.so", library);
  if (access(path, R_OK) != 0)
    return WEFT_ERR(FAILED_PRECONDITION, "%s is not there: install libweft_runtime, or write a folder (-o FOLDER/)",
                    path);
  return NULL;
}

/* For a source of a few lines and an object that holds the program's bytes. */
enum { COMPILER_SECONDS = 300 };

/* Runs a command and waits until it ends or its time is over; what it prints goes to standard error. */
static weft_status *run_command(char *const *argv)
{
  posix_spawn_file_actions_t actions;
  bool ended = true;
  pid_t pid;
  int status = 0;

  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  int error = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error)
    return WEFT_ERR(FAILED_PRECONDITION,
                    "the compiler \"%s\" does not start: %s (CC names another one; -o FOLDER/ needs none)", argv[0],
                    strerror(error));
  weft_child_await(pid, weft_deadline_after_ms(COMPILER_SECONDS * 1000), &ended, &status);
  if (!ended)
    return WEFT_ERR(DEADLINE_EXCEEDED, "the compiler \"%s\" has not ended after %d s", argv[0], COMPILER_SECONDS);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return NULL;
  return WEFT_ERR(FAILED_PRECONDITION, "the compiler \"%s\" failed: its messages are above", argv[0]);
}

static weft_status *link_library(const cli_package *p, const char *folder, const char *name)
{
  enum { MOST_WORDS = 16 };
  char include[PATH_BYTES], library[PATH_BYTES], source[PATH_BYTES], words[1024], soname[PATH_BYTES],
    temporary[PATH_BYTES];
  char flags[5][PATH_BYTES + 16], *argv[MOST_WORDS + 16], *save = NULL;
  const char *cc = getenv("CC"), *slash = strrchr(p->path, '/');
  int n = 0;

  WEFT_TRY(find_installation(include, library));
  WEFT_TRY(join(source, folder, name, ".c"));
  if (snprintf(temporary, sizeof temporary, "%s.%ld.tmp", p->path, (long)getpid()) >= (int)sizeof temporary)
    return WEFT_ERR(INVALID_ARGUMENT, "the name of the file is too long: %.60s...", p->path);
  snprintf(words, sizeof words, "%s", cc && *cc ? cc : "cc");
  for (char *word = strtok_r(words, " ", &save); word && n < MOST_WORDS; word = strtok_r(NULL, " ", &save))
    argv[n++] = word;
  if (n == 0) argv[n++] = "cc";
  snprintf(flags[0], sizeof flags[0], "-I%s", folder);
  snprintf(flags[1], sizeof flags[1], "-I%s", include);
  snprintf(flags[2], sizeof flags[2], "-I%s/weft", include);
  snprintf(flags[3], sizeof flags[3], "-L%s", library);
  snprintf(flags[4], sizeof flags[4], "-Wl,-rpath,%s", library);
  snprintf(soname, sizeof soname, "-Wl,-soname,%s", slash ? slash + 1 : p->path);
  argv[n++] = "-shared";
  argv[n++] = "-fPIC";
  argv[n++] = "-O2";
  argv[n++] = "-o";
  argv[n++] = temporary;
  argv[n++] = source;
  for (int i = 0; i < 4; i++) argv[n++] = flags[i];
  if (strncmp(library, "/usr/lib", 8) != 0) argv[n++] = flags[4];
  argv[n++] = soname;
  argv[n++] = "-lweft_runtime";
  argv[n] = NULL;
  weft_status *st = run_command(argv);
  if (!st) st = cli_move_file(temporary, p->path);
  if (st) unlink(temporary);
  return st;
}

static void remove_folder(const char *folder, const char *name)
{
  static const char *const suffixes[] = {".weft", ".h", ".c"};
  char path[PATH_BYTES];

  for (size_t i = 0; i < WEFT_COUNT(suffixes); i++)
    if (snprintf(path, sizeof path, "%s/%s%s", folder, name, suffixes[i]) < (int)sizeof path) unlink(path);
  rmdir(folder);
}

static weft_status *write_library(const cli_package *p, const char *name, const signature *s)
{
  const char *tmp = getenv("TMPDIR");
  char folder[PATH_BYTES], header[PATH_BYTES];

  snprintf(header, sizeof header, "%.*s.h", (int)WEFT_MIN(strlen(p->path) - 3, (size_t)PATH_BYTES - 3), p->path);
  WEFT_TRY(join(folder, tmp && *tmp ? tmp : "/tmp", "weft-compile-XXXXXX", ""));
  if (!mkdtemp(folder)) return WEFT_ERR(INVALID_ARGUMENT, "cannot make the folder %s: %s", folder, strerror(errno));
  weft_status *st = write_folder(p, name, s, folder);
  if (!st) st = link_library(p, folder, name);
  if (!st) st = write_text(p, name, s, header, put_header);
  remove_folder(folder, name);
  return st;
}

weft_status *cli_package_write(const cli_package *p)
{
  char name[NAME_BYTES], folder[PATH_BYTES];
  weft_arena arena;
  signature s;

  WEFT_TRY(choose_name(p, name));
  weft_arena_init(&arena);
  weft_status *st = read_signature(p->module, &arena, &s);
  if (!st && cli_package_kind_of(p->path) == CLI_PACKAGE_FOLDER) {
    snprintf(folder, sizeof folder, "%s", p->path);
    for (size_t length = strlen(folder); length > 1 && folder[length - 1] == '/'; length--) folder[length - 1] = '\0';
    st = write_folder(p, name, &s, folder);
  } else if (!st) {
    st = write_library(p, name, &s);
  }
  weft_arena_fini(&arena);
  return st;
}
