/* cli/compile.c -- `weft compile`: a program as machine code, which runs without being compiled: a file for `weft run`,
 * or C and a shared library for applications. */
#include <config.h>

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/package.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "runtime/platform.h"

typedef struct compile_options {
  const char *program, *output, *cpus, *memory, *name;
  int64_t devices, threads;
} compile_options;

static weft_status *parse_options(int argc, char **argv, compile_options *o, bool *out_helped)
{
  const cli_option options[] = {
      {"-o", "FILE", "what to write: FILE.weft for `weft run`; FILE.so, a library with its header FILE.h for programs\n"
                     "in C; or a folder (FOLDER/) with the C source and header of such a library", .type = WEFT_OPT_STRING, .out = &o->output},
      {"--name", "NAME", "how the C functions of FILE.so or FOLDER/ begin (default: made of the file's name)", .type = WEFT_OPT_STRING, .out = &o->name},
      {"--cpu", "LIST", "the processors to make code for: x86-64, x86-64-v2, x86-64-v3, x86-64-v4 or native, with\n"
                        "commas between them; the best that runs is taken on load (default: native)", .type = WEFT_OPT_STRING, .out = &o->cpus},
      {"--devices", "N", "run on N devices (default: what the program says, else one)", .type = WEFT_OPT_INT, .out = &o->devices, .most = 1024},
      {"--threads", "N", "of the machine that will run the program (default: as many as here)", .type = WEFT_OPT_INT, .out = &o->threads, .most = WEFT_MOST_THREADS},
      {"--memory", "ORDER", "topological (default), sequential, or budget=BYTES", .type = WEFT_OPT_STRING, .out = &o->memory},
  };
  const cli_command command = {
      "compile", "PROGRAM -o FILE [OPTIONS]",
      "Compiles PROGRAM (any format that `weft run` reads) and writes its machine code, constants and shapes to a file,\n"
      "which `weft run FILE.weft` runs without compiling, or to a library for programs in C, which libweft_runtime runs.\n"
      "What is written runs with this build of Weft only.",
      .options = options, .option_count = WEFT_COUNT(options)};

  *o = (compile_options){0};
  WEFT_TRY(cli_parse_options(&command, &argc, argv, out_helped));
  if (*out_helped) return NULL;
  if (argc != 2) return WEFT_ERR(INVALID_ARGUMENT, "expected one program; see `weft compile --help`");
  if (!o->output || !*o->output) return WEFT_ERR(INVALID_ARGUMENT, "expected -o FILE; see `weft compile --help`");
  o->program = argv[1];
  return NULL;
}

static int param_leaves(const hlo_module *module)
{
  int count = 0;

  for (int i = 0; i < module->entry->param_count; i++) count += hlo_shape_leaf_count(module->entry->params[i]->shape);
  return count;
}

static weft_status *compile(const compile_options *o, cli_program *program, cli_session *session, weft_arena *arena)
{
  cli_session_options options = {.threads = (int)o->threads, .memory = o->memory, .cpus = o->cpus};
  cli_progress progress;
  const void *bytes;
  size_t size;

  WEFT_TRY(cli_load_program(o->program, 0, NULL, program));
  cli_counts(program->module, (int)o->devices, &options.replicas, &options.partitions);
  options.devices = (int)WEFT_MIN(options.replicas * options.partitions, 1024);
  cli_progress_begin(&progress);
  weft_status *st = cli_session_open(session, &options, &program->code, param_leaves(program->module), arena);
  if (!st) st = cli_session_serialize(session, &bytes, &size);
  cli_progress_end(&progress);
  WEFT_TRY(st);
  if (cli_package_kind_of(o->output) == CLI_PACKAGE_FILE) {
    if (o->name) return WEFT_ERR(INVALID_ARGUMENT, "--name is for -o FILE.so and -o FOLDER/");
    WEFT_TRY(cli_write_file(o->output, bytes, size));
  } else {
    WEFT_TRY(cli_package_write(&(cli_package){.path = o->output,
                                              .name = o->name,
                                              .program = o->program,
                                              .module = program->module,
                                              .devices = options.devices,
                                              .code = bytes,
                                              .code_size = size}));
  }
  printf("%s: %s with machine code for %s\n", o->output, WEFT_BYTES((int64_t)size),
         o->cpus ? o->cpus : "this processor");
  return NULL;
}

int cli_compile_main(int argc, char **argv)
{
  compile_options options;
  cli_program program = {0};
  cli_session session = {0};
  bool helped = false;
  weft_arena arena;
  weft_status *st = parse_options(argc, argv, &options, &helped);

  weft_arena_init(&arena);
  if (!st && !helped) st = compile(&options, &program, &session, &arena);
  cli_session_close(&session);
  cli_program_fini(&program);
  weft_arena_fini(&arena);
  return cli_report("compile", st);
}
