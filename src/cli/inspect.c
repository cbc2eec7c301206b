/* cli/inspect.c -- `weft inspect`: shows what each stage of compilation makes of a program. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/compiled.h"
#include "cli/options.h"
#include "cli/page.h"
#include "cli/program.h"
#include "cli/target.h"
#include "codegen/codegen.h"
#include "collective/flight.h"
#include "hlo/proto.h"
#include "hlo/text.h"
#include "runtime/executable.h"

typedef struct inspect_options {
  const char *program;
  const char *emit;      /* hlo, hlo-proto, stablehlo */
  const char *svg;       /* a drawing of the memory plan */
  const char *html;      /* a page that shows everything */
  const char *after;     /* print the module as it is after this pass */
  const char *kernel;    /* print the code of this fusion */
  const char *target;    /* show the kernels of this GPU instead */
  bool memory, passes, diff, thunks, kernels, optimized, cost, flight, json;
  int64_t devices;
  weft_compile_options compile;
} inspect_options;

/* True if an option asks for something that needs the compiled program. */
static bool wants_more(const inspect_options *o)
{
  return o->optimized || o->passes || o->after || o->memory || o->thunks || o->kernel || o->kernels || o->cost ||
         o->html;
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
      {"--passes", NULL, "what each pass did: changed or not, time, instructions; and the total of each", .out = &o->passes},
      {"--diff", NULL, "with --passes: the lines that each pass changed", .out = &o->diff},
      {"--after", "PASS", "the module after that pass, as HLO text", .type = WEFT_OPT_STRING, .out = &o->after},
      {"--memory", NULL, "the memory plan: peak, lower bound, fragmentation, reuse, critical path (the default)", .out = &o->memory},
      {"--thunks", NULL, "the steps of the program and what each waits for", .out = &o->thunks},
      {"--kernel", "NAME", "LLVM IR and assembly of that fusion alone", .type = WEFT_OPT_STRING, .out = &o->kernel},
      {"--kernels", NULL, "each fusion's strategy, its units of work and their estimated time", .out = &o->kernels},
      {"--target", "GPU|FILE", "instead: the kernels for that GPU (T4, A100, A10, L4, H100, H200, sm_75 ... sm_90), which need not be\n"
                               "here: launches, bytes, least time; with --kernel NAME its PTX", .type = WEFT_OPT_STRING, .out = &o->target},
      {"--cost", NULL, "bytes touched, by kind of step", .out = &o->cost},
      {"--svg", "FILE", "draw the memory plan", .type = WEFT_OPT_STRING, .out = &o->svg},
      {"--html", "FILE", "write one page for a browser: passes, graph, memory plan, steps, source lines", .type = WEFT_OPT_STRING, .out = &o->html},
      {"--json", NULL, "print what is asked for by --passes, --memory, --thunks, --kernels and --cost as one JSON object", .out = &o->json},
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
  if (o->diff) o->passes = true;
  if (o->target && (o->memory || o->thunks || o->cost || o->svg || o->html || o->json))
    return WEFT_ERR(INVALID_ARGUMENT,
                    "--target goes with --kernels, --kernel, --passes, --diff, --after and --optimized");
  if (o->svg || (!o->emit && !o->target && !wants_more(o))) o->memory = true;
  if (o->json && (o->emit || o->optimized || o->after || o->kernel))
    return WEFT_ERR(INVALID_ARGUMENT, "--json does not go with --emit, --optimized, --after and --kernel");
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

static weft_status *draw_plan(const weft_executable *exe, const char *path)
{
  FILE *out = fopen(path, "we");
  weft_status *st;

  if (!out) return WEFT_ERR(INVALID_ARGUMENT, "cannot write %s: %s", path, strerror(errno));
  st = buf_plan_svg(weft_executable_plan(exe), out);
  if (fclose(out) != 0 && !st) st = WEFT_ERR(RESOURCE_EXHAUSTED, "cannot write %s: %s", path, strerror(errno));
  return st;
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
  options.only = fusion;
  WEFT_TRY(gen_compile(module, &options, &code));
  kernel = gen_code_kernel(code, fusion);
  if (!kernel) return WEFT_ERR(NOT_FOUND, "fusion \"%s\" is not compiled by itself", name);
  printf("; symbol %s, strategy %s, %d phases, %" PRId64 " units\n%s\n", kernel->symbol,
         gen_strategy_name(kernel->strategy), kernel->phase_count, kernel->phases[0].units, gen_code_ir(code, kernel));
  printf("%s\n", gen_code_assembly(code, kernel));
  return NULL;
}

/* One fusion that is compiled by itself, with the estimates of all its phases added up. */
typedef struct kernel_row {
  const hlo_instr *fusion;
  const gen_kernel *kernel;
  int64_t units;
  double ns;
} kernel_row;

static void each_kernel(const weft_executable *exe, void (*visit)(void *ctx, const kernel_row *row), void *ctx)
{
  const gen_code *code = weft_executable_kernels(exe);

  HLO_FOREACH_COMPUTATION(comp, weft_executable_module(exe))
    HLO_FOREACH(x, comp) {
      kernel_row row = {.fusion = x, .kernel = x->op == HLO_FUSION && code ? gen_code_kernel(code, x) : NULL};
      if (!row.kernel) continue;
      for (int p = 0; p < row.kernel->phase_count; p++) {
        row.units += row.kernel->phases[p].units;
        row.ns += row.kernel->phases[p].unit_ns * (double)row.kernel->phases[p].units;
      }
      visit(ctx, &row);
    }
}

static void print_kernel_row(void *ctx, const kernel_row *row)
{
  (void)ctx;
  printf("%-40s %-12s %6d %10" PRId64 " %9.2f us\n", row->fusion->name, gen_strategy_name(row->kernel->strategy),
         row->kernel->phase_count, row->units, row->ns / 1000);
}

static void put_kernel_row(void *ctx, const kernel_row *row)
{
  cli_json *json = ctx;

  cli_json_object(json, NULL);
  cli_json_text(json, "name", row->fusion->name);
  cli_json_text(json, "strategy", gen_strategy_name(row->kernel->strategy));
  cli_json_int(json, "phases", row->kernel->phase_count);
  cli_json_int(json, "units", row->units);
  cli_json_number(json, "estimate_us", row->ns / 1000);
  cli_json_end_object(json);
}

/* The steps of the entry by opcode: how many, and the bytes of their operands and results. */
typedef struct cost_table {
  struct { int64_t count, bytes; } kinds[HLO_OPCODE_COUNT];
} cost_table;

static void add_costs(const hlo_module *module, cost_table *table)
{
  *table = (cost_table){0};
  HLO_FOREACH(i, module->entry) {
    if (i->op == HLO_PARAMETER || i->op == HLO_CONSTANT || i->op == HLO_TUPLE || i->op == HLO_GET_TUPLE_ELEMENT)
      continue;
    table->kinds[i->op].count++;
    table->kinds[i->op].bytes += hlo_shape_total_bytes(i->shape);
    for (int j = 0; j < i->operand_count; j++)
      table->kinds[i->op].bytes += hlo_shape_total_bytes(i->operands[j]->shape);
  }
}

static void print_cost(const cost_table *table)
{
  printf("%-24s %8s %16s\n", "step of the entry", "count", "bytes touched");
  for (int op = 0; op < HLO_OPCODE_COUNT; op++)
    if (table->kinds[op].count)
      printf("%-24s %8" PRId64 " %16" PRId64 "\n", hlo_opcode_name((hlo_opcode)op), table->kinds[op].count,
             table->kinds[op].bytes);
}

static void put_cost(const cost_table *table, cli_json *json)
{
  cli_json_array(json, "cost");
  for (int op = 0; op < HLO_OPCODE_COUNT; op++) {
    if (!table->kinds[op].count) continue;
    cli_json_object(json, NULL);
    cli_json_text(json, "kind", hlo_opcode_name((hlo_opcode)op));
    cli_json_int(json, "count", table->kinds[op].count);
    cli_json_int(json, "bytes", table->kinds[op].bytes);
    cli_json_end_object(json);
  }
  cli_json_end_array(json);
}

static weft_status *print_all(const inspect_options *o, const weft_executable *exe, const cli_passes *passes)
{
  cost_table costs;

  if (o->passes) cli_passes_print(passes, stdout);
  if (o->optimized) WEFT_TRY(hlo_print(weft_executable_module(exe), HLO_PRINT_DEFAULT, stdout));
  if (o->memory) {
    WEFT_TRY(buf_plan_print(weft_executable_plan(exe), stdout));
    printf("packed           %s of constants, %s of parameters that come again\n",
           WEFT_BYTES(weft_executable_packed_bytes(exe, false)), WEFT_BYTES(weft_executable_packed_bytes(exe, true)));
  }
  if (o->thunks) WEFT_TRY(weft_executable_print(exe, stdout));
  if (o->kernels) {
    printf("%-40s %-12s %6s %10s %12s\n", "kernel", "strategy", "phases", "units", "estimate");
    each_kernel(exe, print_kernel_row, NULL);
  }
  add_costs(weft_executable_module(exe), &costs);
  if (o->cost) print_cost(&costs);
  return NULL;
}

static void print_json(const inspect_options *o, const weft_executable *exe, const cli_passes *passes)
{
  cli_json json = {.out = stdout};
  cost_table costs;

  cli_json_object(&json, NULL);
  cli_json_text(&json, "program", o->program);
  cli_json_text(&json, "module", weft_executable_module(exe)->name);
  cli_json_int(&json, "replicas", weft_executable_replica_count(exe));
  cli_json_int(&json, "partitions", weft_executable_partition_count(exe));
  if (o->passes) cli_passes_json(passes, SIZE_MAX, &json);
  if (o->memory) {
    cli_show_memory(weft_executable_plan(exe), &json);
    cli_json_int(&json, "packed_constant_bytes", weft_executable_packed_bytes(exe, false));
    cli_json_int(&json, "packed_parameter_bytes", weft_executable_packed_bytes(exe, true));
  }
  if (o->thunks) cli_show_steps(exe, &json);
  if (o->kernels) {
    cli_json_array(&json, "kernels");
    each_kernel(exe, put_kernel_row, &json);
    cli_json_end_array(&json);
  }
  add_costs(weft_executable_module(exe), &costs);
  if (o->cost) put_cost(&costs, &json);
  cli_json_end_object(&json);
  putchar('\n');
}

static weft_status *no_such_pass(const inspect_options *o)
{
  return WEFT_ERR(NOT_FOUND, "no pass \"%s\" ran (see --passes)", o->after);
}

static weft_status *show(const inspect_options *o, const cli_compiled *compiled)
{
  const weft_executable *exe = compiled->exe;

  if ((o->kernels || o->kernel) && !weft_executable_kernels(exe))
    return WEFT_ERR(UNIMPLEMENTED, "%s lists the CPU's kernels; --thunks lists the steps on platform \"%s\"",
                    o->kernels ? "--kernels" : "--kernel", weft_platform_name(compiled->platform));
  if (o->after && !compiled->passes.printed) return WEFT_ERR(NOT_FOUND, "no pass \"%s\" ran (see --passes)", o->after);
  if (o->json) print_json(o, exe, &compiled->passes);
  else WEFT_TRY(print_all(o, exe, &compiled->passes));
  if (o->kernel) WEFT_TRY(print_kernel(o->kernel, weft_executable_module(exe)));
  if (o->svg) WEFT_TRY(draw_plan(exe, o->svg));
  return o->html ? cli_page_write(o->html, &(cli_page){.program = o->program, .compiled = compiled}) : NULL;
}

/* Shows the kernels of a GPU that need not be here. Borrows the module. */
static weft_status *inspect_target(const inspect_options *o, hlo_module *module)
{
  cli_passes passes = {.keeps_diffs = o->diff, .after = o->after};
  cli_target_options on = {.target = o->target, .kernel = o->kernel, .kernels = o->kernels, .optimized = o->optimized};
  weft_status *st = cli_passes_begin(&passes, module);

  on.observer = o->passes || o->after ? cli_passes_observe : NULL;
  on.observer_ctx = &passes;
  if (!st) st = cli_inspect_target(&on, module);
  if (!st) st = WEFT_MOVE(passes.st);
  if (!st && o->passes) cli_passes_print(&passes, stdout);
  if (!st && o->after && !passes.printed) st = no_such_pass(o);
  cli_passes_fini(&passes);
  return st;
}

static weft_status *inspect(inspect_options *o)
{
  WEFT_AUTO(hlo_module) module = NULL;
  bool prints_source = o->emit && strcmp(o->emit, "stablehlo") == 0;
  cli_compiled compiled = {.passes = {.keeps_diffs = o->diff || o->html, .after = o->after}};
  weft_status *st;

  if (prints_source) WEFT_TRY(cli_print_stablehlo(o->program, stdout));
  if (!prints_source || wants_more(o) || o->target) WEFT_TRY(cli_load_module(o->program, &module));
  if (o->emit && !prints_source) WEFT_TRY(emit(o, module));
  if (o->target) return inspect_target(o, module);
  if (!wants_more(o)) return NULL;
  st = cli_compile(WEFT_MOVE(module), (int)o->devices, &o->compile, &compiled);
  if (!st) st = show(o, &compiled);
  cli_compiled_fini(&compiled);
  return st;
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
