/* cli/inspect.c -- `weft inspect`: shows what each stage of compilation makes of a program. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/program.h"
#include "codegen/codegen.h"
#include "collective/flight.h"
#include "hlo/proto.h"
#include "hlo/text.h"
#include "platform/registry.h"
#include "runtime/executable.h"
#include "runtime/platform.h"

typedef struct inspect_options {
  const char *program;
  const char *emit;      /* hlo, hlo-proto, stablehlo */
  const char *svg;       /* a drawing of the memory plan, or of the thunks */
  const char *after;     /* print the module as it is after this pass */
  const char *kernel;    /* print the code of this fusion */
  bool memory, passes, thunks, kernels, optimized, cost, flight;
  int64_t devices;
  weft_compile_options compile;
} inspect_options;

/* True if an option asks for something that needs the compiled program. */
static bool wants_more(const inspect_options *o)
{
  return o->optimized || o->passes || o->after || o->memory || o->thunks || o->kernel || o->kernels || o->cost;
}

static weft_status *set_order(void *out, const char *text)
{
  weft_compile_options *compile = out;

  return buf_order_parse(text, &compile->order, &compile->budget_bytes);
}

/* Parses the options. Words that are not options stay in argv[1], argv[2], ...; *argc is one more than their number. */
static weft_status *parse_options(int *argc, char **argv, inspect_options *o, bool *out_helped)
{
  const cli_option options[] = {
      {"--emit", "hlo|hlo-proto|stablehlo", "the program as read, converted, on standard output", .type = WEFT_OPT_STRING, .out = &o->emit},
      {"--optimized", NULL, "the module as it is executed, as HLO text", .out = &o->optimized},
      {"--passes", NULL, "what each pass did: changed or not, time, instructions", .out = &o->passes},
      {"--after", "PASS", "the module after that pass, as HLO text", .type = WEFT_OPT_STRING, .out = &o->after},
      {"--memory", NULL, "the memory plan: peak, lower bound, fragmentation, reuse, critical path (the default)", .out = &o->memory},
      {"--thunks", NULL, "the steps of the program and what each waits for", .out = &o->thunks},
      {"--kernel", "NAME", "LLVM IR and assembly of the fusion of that name", .type = WEFT_OPT_STRING, .out = &o->kernel},
      {"--kernels", NULL, "each fusion's strategy, its units of work and their estimated time", .out = &o->kernels},
      {"--cost", NULL, "bytes touched, by kind of step", .out = &o->cost},
      {"--svg", "FILE", "draw the memory plan (with --memory) or the steps (with --thunks)", .type = WEFT_OPT_STRING, .out = &o->svg},
      {"--order", "ORDER", "memory order: topological (default), sequential, budget=BYTES", .set = set_order, .out = &o->compile},
      {"--devices", "N", "compile for N devices, as `weft run --devices N` does", .type = WEFT_OPT_INT, .out = &o->devices, .most = 1 << 20},
      {"--flight", NULL, "instead: join the flight recorders of a job's ranks (files of WEFT_COLLECTIVE_FLIGHT_DIR) and\n"
                         "say at which collective they first diverged", .out = &o->flight},
  };
  const cli_command command = {
      "inspect", "PROGRAM [WHAT ...]\n       weft inspect --flight FILE ...",
      "Shows what becomes of a program (`-` is standard input) on its way to machine code.", .options = options, .option_count = WEFT_COUNT(options)};

  WEFT_TRY(cli_parse_options(&command, argc, argv, out_helped));
  if (*out_helped) return NULL;
  if (o->flight)
    return *argc > 1 ? NULL : WEFT_ERR(INVALID_ARGUMENT, "--flight: expected files; see `weft inspect --help`");
  if (*argc != 2) return WEFT_ERR(INVALID_ARGUMENT, "expected one program; see `weft inspect --help`");
  o->program = argv[1];
  if (o->svg && !o->memory && !o->thunks) o->memory = true;
  if (!o->emit && !wants_more(o)) o->memory = true;
  return NULL;
}

static weft_status *emit(const inspect_options *o, const hlo_module *module)
{
  if (strcmp(o->emit, "hlo") == 0) return hlo_print(module, HLO_PRINT_DEFAULT, stdout);
  if (strcmp(o->emit, "hlo-proto") == 0) {
    void *data;
    size_t size;
    bool ok;
    WEFT_TRY(hlo_to_proto(module, &data, &size));
    ok = fwrite(data, 1, size, stdout) == size;
    free(data);
    return ok ? NULL : WEFT_ERR(RESOURCE_EXHAUSTED, "cannot write to standard output");
  }
  return WEFT_ERR(INVALID_ARGUMENT, "--emit: expected hlo, hlo-proto or stablehlo, got \"%s\"", o->emit);
}

/* The state of the pass observer. */
typedef struct observer {
  const inspect_options *o;
  bool printed; /* the module after the pass of --after has been printed, which happens once */
  weft_status *st;
} observer;

static void observe(void *ctx, const char *pass, bool changed, int64_t ns, const hlo_module *module)
{
  observer *ob = ctx;
  int instructions = 0;

  for (const hlo_computation *c = module->first; c; c = c->next) instructions += c->instr_count;
  if (ob->o->passes)
    printf("%-36s %-9s %9.3f ms %7d instructions %5d computations\n", pass, changed ? "changed" : "-", (double)ns / 1e6,
           instructions, module->computation_count);
  if (ob->o->after && !ob->printed && strcmp(ob->o->after, pass) == 0) {
    ob->printed = true;
    ob->st = hlo_print(module, HLO_PRINT_DEFAULT, stdout);
  }
}

static weft_status *with_file(const char *path, weft_status *(*draw)(const weft_executable *exe, FILE *out),
                              const weft_executable *exe)
{
  FILE *out = fopen(path, "we");
  weft_status *st;

  if (!out) return WEFT_ERR(INVALID_ARGUMENT, "cannot write %s: %s", path, strerror(errno));
  st = draw(exe, out);
  if (fclose(out) != 0 && !st) st = WEFT_ERR(RESOURCE_EXHAUSTED, "cannot write %s: %s", path, strerror(errno));
  return st;
}

static weft_status *draw_plan(const weft_executable *exe, FILE *out)
{
  return buf_plan_svg(weft_executable_plan(exe), out);
}

static weft_status *print_kernel(const char *name, const hlo_module *module)
{
  WEFT_AUTO(gen_code) code = NULL;
  gen_options options;
  const hlo_instr *fusion = NULL;
  const gen_kernel *kernel;

  for (const hlo_computation *c = module->first; c && !fusion; c = c->next)
    for (const hlo_instr *i = c->first; i && !fusion; i = i->next)
      if (i->op == HLO_FUSION && strcmp(i->name, name) == 0) fusion = i;
  if (!fusion) return WEFT_ERR(NOT_FOUND, "no fusion \"%s\" in the optimised module (see --optimized)", name);
  WEFT_TRY(gen_options_load(&options));
  options.keep_text = true;
  options.cache_dir = NULL;
  WEFT_TRY(gen_compile(module, &options, &code));
  kernel = gen_code_kernel(code, fusion);
  if (!kernel) return WEFT_ERR(NOT_FOUND, "fusion \"%s\" is not compiled by itself", name);
  printf("; symbol %s, strategy %s, %d phases, %" PRId64 " units\n%s\n", kernel->symbol,
         gen_strategy_name(kernel->strategy), kernel->phase_count, kernel->phases[0].units, gen_code_ir(code, kernel));
  printf("%s\n", gen_code_assembly(code, kernel));
  return NULL;
}

/* One line for each fusion that is compiled by itself. */
static void print_kernels(const hlo_module *module, const gen_code *code)
{
  printf("%-40s %-12s %6s %10s %12s\n", "kernel", "strategy", "phases", "units", "estimate");
  for (const hlo_computation *c = module->first; c; c = c->next)
    for (const hlo_instr *x = c->first; x; x = x->next) {
      const gen_kernel *kernel = x->op == HLO_FUSION && code ? gen_code_kernel(code, x) : NULL;
      int64_t units = 0;
      double ns = 0;
      if (!kernel) continue;
      for (int p = 0; p < kernel->phase_count; p++) {
        units += kernel->phases[p].units;
        ns += kernel->phases[p].unit_ns * (double)kernel->phases[p].units;
      }
      printf("%-40s %-12s %6d %10" PRId64 " %9.2f us\n", x->name, gen_strategy_name(kernel->strategy),
             kernel->phase_count, units, ns / 1000);
    }
}

/* One kind of step: its count, the bytes it reads and writes, and the floating-point operations of dots and of
 * elementwise work. */
static void print_cost(const hlo_module *module)
{
  struct { int64_t count, bytes; } kinds[HLO_OPCODE_COUNT] = {0};

  for (const hlo_instr *i = module->entry->first; i; i = i->next) {
    kinds[i->op].count++;
    kinds[i->op].bytes += hlo_shape_total_bytes(i->shape);
    for (int j = 0; j < i->operand_count; j++) kinds[i->op].bytes += hlo_shape_total_bytes(i->operands[j]->shape);
  }
  printf("%-24s %8s %16s\n", "step of the entry", "count", "bytes touched");
  for (int op = 0; op < HLO_OPCODE_COUNT; op++)
    if (kinds[op].count && op != HLO_PARAMETER && op != HLO_CONSTANT && op != HLO_TUPLE && op != HLO_GET_TUPLE_ELEMENT)
      printf("%-24s %8" PRId64 " %16" PRId64 "\n", hlo_opcode_name((hlo_opcode)op), kinds[op].count, kinds[op].bytes);
}

static weft_status *inspect(inspect_options *o)
{
  WEFT_AUTO(hlo_module) module = NULL;
  WEFT_AUTO(weft_platform) platform = NULL;
  WEFT_AUTO(weft_executable) exe = NULL;
  weft_platform_options platform_options = {0};
  observer ob = {.o = o};
  bool prints_source = o->emit && strcmp(o->emit, "stablehlo") == 0;

  if (prints_source) WEFT_TRY(cli_print_stablehlo(o->program, stdout));
  if (!prints_source || wants_more(o)) WEFT_TRY(cli_load_module(o->program, &module));
  if (o->emit && !prints_source) WEFT_TRY(emit(o, module));
  if (!wants_more(o)) return NULL;
  cli_counts(module, (int)o->devices, &o->compile.replica_count, &o->compile.partition_count);
  platform_options.device_count = (int)WEFT_MIN(o->compile.replica_count * o->compile.partition_count, 4096);
  WEFT_TRY(plat_new(&platform_options, &platform));
  o->compile.pass_observer = observe;
  o->compile.observer_ctx = &ob;
  WEFT_TRY(weft_compile(platform, WEFT_MOVE(module), &o->compile, &exe));
  WEFT_TRY(ob.st);
  if (o->after && !ob.printed) return WEFT_ERR(NOT_FOUND, "no pass \"%s\" ran (see --passes)", o->after);
  if (o->optimized) WEFT_TRY(hlo_print(weft_executable_module(exe), HLO_PRINT_DEFAULT, stdout));
  if (o->memory) WEFT_TRY(buf_plan_print(weft_executable_plan(exe), stdout));
  if (o->thunks) WEFT_TRY(weft_executable_print(exe, stdout));
  if (o->kernels) print_kernels(weft_executable_module(exe), weft_executable_code(exe));
  if (o->cost) print_cost(weft_executable_module(exe));
  if (o->kernel) WEFT_TRY(print_kernel(o->kernel, weft_executable_module(exe)));
  if (o->svg) WEFT_TRY(with_file(o->svg, o->thunks ? weft_executable_svg : draw_plan, exe));
  return NULL;
}

int cli_inspect_main(int argc, char **argv)
{
  inspect_options options = {0};
  bool helped = false;
  weft_status *st = parse_options(&argc, argv, &options, &helped);

  if (!st && !helped)
    st = options.flight ? coll_flight_join((const char *const *)argv + 1, argc - 1, stdout) : inspect(&options);
  return cli_report("inspect", st);
}
