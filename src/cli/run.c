/* cli/run.c -- `weft run`: compiles a program, runs it on given or generated inputs, and reports its results. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/machine.h"
#include "base/npy.h"
#include "cli/options.h"
#include "cli/page.h"
#include "cli/progress.h"
#include "cli/run.h"
#include "platform/parallel.h"
#include "hlo/eval.h"

static weft_status *add_input(void *out, const char *path)
{
  run_options *o = out;

  o->inputs[o->input_count++] = path;
  return NULL;
}

static weft_status *set_comparison(void *out, const char *text)
{
  run_options *o = out;

  if (strcmp(text, "reference") == 0) o->reference = true;
  else if (strpbrk(text, "./")) o->other = text;
  else return WEFT_ERR(INVALID_ARGUMENT, "expected `reference` or the file of a PJRT plugin, got \"%s\"", text);
  return NULL;
}

static weft_status *set_tolerance(void *out, const char *text)
{
  char *end;
  double value = strtod(text, &end);

  if (end == text || *end || !(value >= 0))
    return WEFT_ERR(INVALID_ARGUMENT, "expected a number of 0 or more, got \"%s\"", text);
  *(double *)out = value;
  return NULL;
}

static weft_status *parse_options(int argc, char **argv, run_options *o, bool *out_helped)
{
  const cli_option options[] = {
      {"--input", "FILE.npy", "the next parameter's value; give one per parameter, in order.\n"
                              "They decide the unknown dimensions (`?`) of a StableHLO program.\n"
                              "Without: pseudo-random values, indices kept in range", .set = add_input, .out = o},
      {"--seed", "N", "of the pseudo-random inputs (default 0)", .type = WEFT_OPT_INT, .out = &o->seed},
      {"--save-inputs", "DIR", "write the inputs as DIR/input_N.npy", .type = WEFT_OPT_STRING, .out = &o->input_dir},
      {"--output-dir", "DIR", "write the results as DIR/result_N.npy", .type = WEFT_OPT_STRING, .out = &o->output_dir},
      {"--expect", "DIR", "compare with DIR/result_N.npy; exit 1 and say where if they differ", .type = WEFT_OPT_STRING, .out = &o->expect_dir},
      {"--compare", "OTHER", "compare in the same way with `reference`, the scalar evaluator, or with what another\n"
                             "PJRT plugin (a file) makes of the same program and inputs", .set = set_comparison, .out = o},
      {"--plugin", "PLUGIN.so", "run on this PJRT plugin instead of Weft", .type = WEFT_OPT_STRING, .out = &o->plugin},
      {"--rtol", "R", "tolerances: |got - want| <= A + R * |want|.  Default A: R / 10; default R: 1e-9 for\n"
                      "f64, 1e-4 for f32, 4e-3 for f16, 3e-2 for bf16, 0.3 for narrower floats", .set = set_tolerance, .out = &o->rtol},
      {"--atol", "A", NULL, .set = set_tolerance, .out = &o->atol},
      {"--repeat", "N", "run N times more and print the median", .type = WEFT_OPT_INT, .out = &o->repeat, .most = 1000000},
      {"--profile", NULL, "run once more and print where the time went, step by step", .out = &o->profile},
      {"--timeline", "FILE.svg", "run once more and draw what ran when on which thread", .type = WEFT_OPT_STRING, .out = &o->timeline},
      {"--html", "FILE", "run once more and write one page for a browser: profile, timeline, and all that\n"
                         "`weft inspect --html` shows", .type = WEFT_OPT_STRING, .out = &o->html},
      {"--devices", "N", "run on N devices (default: what the program says, else one a process), all in this\n"
                         "process; under `weft launch`, srun or mpirun spread evenly over the job's processes",
       .type = WEFT_OPT_INT, .out = &o->devices, .most = 1 << 20},
      {"--alone", NULL, "join no such job: run in this process alone", .out = &o->alone},
      {"--threads", "N", "worker threads (default: WEFT_THREADS, else one for each CPU that is its)", .type = WEFT_OPT_INT, .out = &o->threads, .most = WEFT_MOST_THREADS},
      {"--memory", "ORDER", "topological (default), sequential, or budget=BYTES", .type = WEFT_OPT_STRING, .out = &o->memory},
      {"--timeout", "TIME", "give up when the whole command takes longer (30s, 5m), say what it was doing, exit 3",
       .type = WEFT_OPT_DURATION, .out = &o->timeout_ns},
      {"--json", NULL, "print one JSON object", .out = &o->json},
      {"--quiet", NULL, "print no result values", .out = &o->quiet},
  };
  const cli_command command = {
      "run", "PROGRAM [OPTIONS]",
      "Compiles PROGRAM (HLO text, HloModuleProto or StableHLO, recognised by content; `-` is standard input), runs it and\n"
      "prints a summary.", .options = options, .option_count = WEFT_COUNT(options)};

  *o = (run_options){.rtol = -1, .atol = -1, .inputs = calloc((size_t)argc, sizeof *o->inputs)};
  WEFT_TRY_ALLOC(o->inputs);
  WEFT_TRY(cli_parse_options(&command, &argc, argv, out_helped));
  if (*out_helped) return NULL;
  if (argc != 2) return WEFT_ERR(INVALID_ARGUMENT, "expected one program; see `weft run --help`");
  o->program = argv[1];
  return NULL;
}

static double ms_since(int64_t start_ns) { return (double)(weft_now_ns() - start_ns) / 1e6; }

static weft_status *make_directory(const char *path)
{
  if (mkdir(path, 0777) != 0 && errno != EEXIST)
    return WEFT_ERR(INVALID_ARGUMENT, "cannot make directory %s: %s", path, strerror(errno));
  return NULL;
}

/* The number of devices of the job, for programs that do not state one. */
static int devices_of_job(const run_state *s)
{
  const char *each = getenv("WEFT_NUM_DEVICES");

  return s->o->devices ? (int)s->o->devices
                       : s->job.place.process_count * (each ? WEFT_MIN(WEFT_MAX(atoi(each), 1), 4096) : 1);
}

weft_status *run_session_options(run_state *s, const char *plugin, cli_session_options *out)
{
  int total;

  *out = (cli_session_options){
    .plugin = plugin, .devices = (int)s->o->devices, .threads = (int)s->o->threads, .memory = s->o->memory};
  cli_counts(s->program.module, (int)s->o->devices, &out->replicas, &out->partitions);
  if (cli_job_has_others(&s->job) && out->replicas * out->partitions == 1)
    cli_counts(s->program.module, devices_of_job(s), &out->replicas, &out->partitions);
  total = (int)WEFT_MIN(out->replicas * out->partitions, 1 << 20);
  if (s->o->devices > 1 || total > 1) out->devices = cli_job_share(&s->job, total, &s->first_device);
  out->first_device = cli_job_first_here(&s->job, total);
  if (!cli_job_has_others(&s->job)) return NULL;
  if (total < s->job.place.process_count)
    return WEFT_ERR(
      INVALID_ARGUMENT,
      "%s runs on %d devices, which are too few for the job's %d processes (--alone: each process by itself)",
      s->o->program, total, (int)s->job.place.process_count);
  out->job = &s->job;
  return NULL;
}

/* The program may be written for more devices than it runs on. If compilation has failed (`st`, taken), the error says
 * so; else standard error does. */
static weft_status *hint_at_devices(const run_state *s, const cli_session_options *options, weft_status *st)
{
  int64_t named = cli_devices_named(s->program.module), devices = options->replicas * options->partitions;

  if (named <= devices) return st;
  if (st)
    return weft_status_note(st, __FILE__, __LINE__,
                            "the program is written for %" PRId64 " devices and compiled for %" PRId64
                            ": give `--devices %" PRId64 "`",
                            named, devices, named);
  fprintf(stderr,
          "weft run: the program is written for %" PRId64 " devices, it runs on %" PRId64 ": give `--devices %" PRId64
          "`\n",
          named, devices, named);
  return NULL;
}

static weft_status *compile(run_state *s)
{
  cli_session_options options;
  cli_progress progress;
  weft_status *st;
  int64_t start;

  WEFT_TRY(run_session_options(s, s->o->plugin, &options));
  for (int i = 0; i < s->program.module->entry->param_count; i++)
    s->params += hlo_shape_leaf_count(s->program.module->entry->params[i]->shape);
  start = weft_now_ns();
  cli_progress_begin(&progress);
  st = cli_session_open(&s->session, &options, &s->program.code, s->params, &s->arena);
  cli_progress_end(&progress);
  WEFT_TRY(hint_at_devices(s, &options, st));
  s->compile_ms = ms_since(start);
  s->devices = s->session.devices;
  s->outputs = s->session.outputs;
  return NULL;
}

/* The shape of leaf `leaf` of the program's parameters, before partitioning. */
static const hlo_shape *param_leaf(const run_state *s, int leaf)
{
  const hlo_computation *entry = s->program.module->entry;

  for (int i = 0; i < entry->param_count; i++) {
    int count = hlo_shape_leaf_count(entry->params[i]->shape);
    if (leaf < count) return hlo_shape_leaf(entry->params[i]->shape, leaf);
    leaf -= count;
  }
  return NULL;
}

/* Reads an .npy file as a literal of type `type`. */
weft_status *run_read_literal(run_state *s, const char *path, weft_dtype type, hlo_literal **out_value)
{
  weft_npy array;
  const hlo_shape *shape;
  weft_status *st = NULL;

  *out_value = NULL;
  WEFT_TRY(weft_npy_read(path, type, &array));
  shape = hlo_shape_array(&s->arena, array.type, array.rank, array.dims);
  if (!shape) st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  if (!st) st = hlo_literal_new(&s->arena, shape, out_value);
  if (!st) memcpy((*out_value)->data, array.data, (size_t)array.bytes);
  weft_npy_fini(&array);
  return st;
}

static weft_status *read_input(run_state *s, int leaf, const hlo_shape *want, hlo_literal **out_value)
{
  char got_text[256], want_text[256];

  WEFT_TRY(run_read_literal(s, s->o->inputs[leaf], want->type, out_value));
  if (!hlo_shape_equal((*out_value)->shape, want, false))
    return WEFT_ERR(INVALID_ARGUMENT, "%s holds %s, parameter %d is %s", s->o->inputs[leaf],
                    hlo_shape_format((*out_value)->shape, got_text, sizeof got_text), leaf,
                    hlo_shape_format(want, want_text, sizeof want_text));
  return NULL;
}

static weft_status *make_inputs(run_state *s)
{
  cli_range *ranges;

  if (s->o->input_count > s->params)
    return WEFT_ERR(INVALID_ARGUMENT, "%d inputs given, the program has %d parameters", s->o->input_count, s->params);
  WEFT_TRY(cli_input_ranges(s->program.module, &s->arena, &ranges));
  s->arguments = WEFT_ARENA_ARRAY(&s->arena, hlo_literal *, s->params);
  WEFT_TRY_ALLOC(s->arguments);
  for (int leaf = 0; leaf < s->params; leaf++) {
    const hlo_shape *shape;
    WEFT_TRY(cli_session_param_shape(&s->session, leaf, param_leaf(s, leaf), &shape));
    if (leaf < s->o->input_count) {
      WEFT_TRY(read_input(s, leaf, shape, &s->arguments[leaf]));
      continue;
    }
    WEFT_TRY_NOTE(hlo_literal_new(&s->arena, shape, &s->arguments[leaf]), "parameter %d", leaf);
    cli_fill_input(shape, ranges[leaf], s->o->seed, leaf, s->arguments[leaf]->data);
  }
  return cli_session_put(&s->session, s->arguments);
}

static weft_status *save(const char *directory, const char *stem, int number, const hlo_literal *value)
{
  char path[4096];

  if (!value->data) return NULL; /* a token */
  snprintf(path, sizeof path, "%s/%s_%d.npy", directory, stem, number);
  return weft_npy_write(path, value->shape->type, value->shape->rank, value->shape->dims, value->data);
}

static int compare_doubles(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;

  return (x > y) - (x < y);
}

static weft_status *draw_timeline(const run_state *s)
{
  FILE *out = fopen(s->o->timeline, "w");
  weft_status *st;

  if (!out) return WEFT_ERR(INVALID_ARGUMENT, "cannot write %s: %s", s->o->timeline, strerror(errno));
  st = cli_profile_draw(&s->profile, s->program.module->name, out);
  if (fclose(out) != 0 && !st) st = WEFT_ERR(INVALID_ARGUMENT, "cannot write %s: %s", s->o->timeline, strerror(errno));
  return st;
}

/* Threads that work on the run: as many as asked for, else as many as a platform takes by itself. */
static int threads_of(const run_state *s)
{
  const char *set = getenv("WEFT_THREADS");

  if (s->o->threads > 0) return (int)s->o->threads;
  return set && atoi(set) > 0 ? atoi(set) : weft_cores_here().threads;
}

/* Compiles the program again, with what each pass changes, and writes the page. */
static weft_status *write_page(run_state *s)
{
  cli_compiled compiled = {.passes = {.keeps_diffs = true}};
  weft_compile_options options = {0};
  hlo_module *module;
  weft_status *st;

  if (s->o->memory) WEFT_TRY_NOTE(buf_order_parse(s->o->memory, &options.order, &options.budget_bytes), "--memory");
  WEFT_TRY(cli_load_module(s->o->program, &module));
  st = cli_compile(module, (int)s->o->devices, &options, &compiled);
  if (!st)
    st =
      cli_page_write(s->o->html, &(cli_page){.program = s->o->program, .compiled = &compiled, .profile = &s->profile});
  cli_compiled_fini(&compiled);
  return st;
}

/* Runs the program once more with recording on. Recording takes time, so this run is not one of the timed ones. */
static weft_status *profile(run_state *s)
{
  weft_status *st;
  double ms;

  if (s->o->plugin)
    return WEFT_ERR(UNIMPLEMENTED, "--profile, --timeline and --html of another plugin (%s)", s->o->plugin);
  cli_profile_begin(&s->profile);
  st = cli_session_run(&s->session, (int)s->o->repeat + 1, &ms);
  weft_status *recorded = cli_profile_end(&s->profile, &s->arena);
  if (st) weft_status_free(recorded);
  WEFT_TRY(st ? st : recorded);
  WEFT_TRY(cli_session_optimized(&s->session, &s->optimized));
  WEFT_TRY(cli_profile_explain(&s->profile, s->optimized, threads_of(s), &s->arena));
  if (s->o->timeline) WEFT_TRY(draw_timeline(s));
  return s->o->html ? write_page(s) : NULL;
}

static weft_status *run(run_state *s)
{
  double *times = WEFT_ARENA_ARRAY(&s->arena, double, s->o->repeat);

  WEFT_TRY_ALLOC(times);
  WEFT_TRY(cli_session_run(&s->session, 0, &s->first_ms));
  for (int i = 0; i < (int)s->o->repeat; i++) WEFT_TRY(cli_session_run(&s->session, i + 1, &times[i]));
  if (s->o->repeat) {
    qsort(times, (size_t)s->o->repeat, sizeof *times, compare_doubles);
    s->min_ms = times[0];
    s->median_ms = (times[(s->o->repeat - 1) / 2] + times[s->o->repeat / 2]) / 2;
  }
  if (s->o->profile || s->o->timeline || s->o->html) WEFT_TRY(profile(s));
  s->values = WEFT_ARENA_ARRAY(&s->arena, hlo_literal *, s->devices * s->outputs);
  WEFT_TRY_ALLOC(s->values);
  return cli_session_fetch(&s->session, s->values);
}

/* A program that runs other programs on several devices (StableHLO's interpreter.run_parallel) and checks their
 * results. The evaluator interprets the program itself; the programs that it runs are compiled. */
static weft_status *run_driver(run_state *s)
{
  const hlo_module *module = s->program.module;
  hlo_eval_options options = {.deadline = WEFT_NO_DEADLINE, .custom_call = plat_interpreter_call};
  const hlo_literal *result;

  if (module->entry->param_count > 0)
    return WEFT_ERR(UNIMPLEMENTED, "interpreter.run_parallel in a program with parameters");
  WEFT_TRY(hlo_eval_module(module, NULL, &options, &s->arena, &result));
  s->devices = 1;
  s->outputs = hlo_shape_leaf_count(result->shape);
  s->values = WEFT_ARENA_ARRAY(&s->arena, hlo_literal *, s->outputs);
  WEFT_TRY_ALLOC(s->values);
  for (int i = 0; i < s->outputs; i++) s->values[i] = (hlo_literal *)run_literal_leaf(result, i);
  if (!s->o->quiet) run_print_values(s);
  return NULL;
}

static bool is_driver(const hlo_module *module)
{
  HLO_FOREACH(instr, module->entry)
    if (plat_is_run_parallel(instr)) return true;
  return false;
}

static weft_status *run_program(run_state *s)
{
  const run_options *o = s->o;
  int64_t start = weft_now_ns();

  WEFT_TRY(cli_timeout_begin(&s->timeout, "run", o->timeout_ns));
  cli_timeout_say(&s->timeout, "reading the program");
  WEFT_TRY(cli_load_program(o->program, o->input_count, o->inputs, &s->program));
  s->load_ms = ms_since(start);
  if (strcmp(s->program.code.format, "weft") == 0 && (o->plugin || o->reference || o->other))
    return WEFT_ERR(INVALID_ARGUMENT, "--plugin and --compare need the program itself: %s holds machine code of Weft",
                    o->program);
  if (is_driver(s->program.module)) return run_driver(s);
  s->job.place.process_count = 1;
  cli_timeout_say(&s->timeout, "joining the job");
  if (!o->alone) WEFT_TRY(cli_job_join(&s->job));
  cli_timeout_say(&s->timeout, "compiling");
  WEFT_TRY(compile(s));
  cli_timeout_say(&s->timeout, "making inputs");
  WEFT_TRY(make_inputs(s));
  if (o->input_dir) {
    WEFT_TRY(make_directory(o->input_dir));
    for (int i = 0; i < s->params; i++) WEFT_TRY(save(o->input_dir, "input", i, s->arguments[i]));
  }
  cli_timeout_say(&s->timeout, "running the program");
  WEFT_TRY(run(s));
  if (o->output_dir) {
    WEFT_TRY(make_directory(o->output_dir));
    for (int i = 0; i < s->devices * s->outputs; i++)
      WEFT_TRY(save(o->output_dir, "result", s->first_device * s->outputs + i, s->values[i]));
  }
  cli_timeout_say(&s->timeout, "comparing results");
  WEFT_TRY(run_compare(s));
  return run_report(s);
}

static void fini(run_state *s)
{
  cli_job_unwatch(&s->job);
  cli_session_close(&s->session);
  cli_job_close(&s->job);
  cli_program_fini(&s->program);
  hlo_module_free(s->optimized);
  weft_arena_fini(&s->arena);
}

int cli_run_main(int argc, char **argv)
{
  run_options options = {0};
  run_state state = {.o = &options};
  bool helped = false;
  weft_status *st = parse_options(argc, argv, &options, &helped);
  int exit_code;

  weft_arena_init(&state.arena);
  if (!st && !helped) st = run_program(&state);
  weft_status *left = cli_job_leave(&state.job, st);
  if (st) weft_status_free(left);
  else st = left;
  /* the check in the program itself failed */
  if (strncmp(weft_status_message(st), "check.", 6) == 0) state.differences++;
  exit_code = cli_report("run", st);
  if (state.differences && exit_code != CLI_USAGE) exit_code = CLI_DIFFERENT;
  fini(&state);
  cli_timeout_end(&state.timeout);
  free(options.inputs);
  return exit_code;
}
