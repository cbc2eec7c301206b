/* cli/run.c -- `weft run`: compile a program, run it on given or generated inputs, say what came out. */
#include <config.h>

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/npy.h"
#include "cli/cli.h"
#include "cli/profile.h"
#include "cli/program.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cpu/parallel.h"
#include "hlo/eval.h"

typedef struct run_options {
  const char *program;
  const char **inputs; /* .npy files by parameter leaf */
  int input_count;
  uint64_t seed;
  const char *output_dir, *input_dir, *expect_dir;
  double rtol, atol; /* negative: by element type */
  int repeat, devices, threads;
  bool json, reference, quiet, profile, alone;
  const char *plugin, *other; /* files; NULL: our own, none to compare with */
  const char *memory, *timeline;
} run_options;

/* One run of the command: what it has made so far. */
typedef struct run_state {
  const run_options *o;
  weft_arena arena;
  cli_program program;      /* its module also serves as the reference, and tells what inputs may be */
  cli_job job;
  cli_session session;
  int devices, params, outputs; /* devices: of this process, */
  int first_device;             /* the program's number of the first */
  hlo_literal **arguments;  /* one per parameter leaf, the same for every device */
  hlo_literal **values;     /* results on the host: [device * outputs + leaf] */
  cli_profile profile;
  double load_ms, compile_ms, first_ms, median_ms, min_ms;
  int differences;
} run_state;

static void print_help(FILE *out)
{
  fprintf(out,
          "Usage: weft run PROGRAM [OPTIONS]\n\n"
          "Compiles PROGRAM (HLO text, HloModuleProto or StableHLO, told apart by content), runs it and prints a summary.\n\n"
          "  --input FILE.npy       the next parameter's value; give one per parameter, in order.\n"
          "                         They decide the unknown dimensions (`?`) of a StableHLO program.\n"
          "                         Without: pseudo-random values, indices kept in range\n"
          "  --seed N               of the pseudo-random inputs (default 0)\n"
          "  --save-inputs DIR      write the inputs as DIR/input_N.npy\n"
          "  --output-dir DIR       write the results as DIR/result_N.npy\n"
          "  --expect DIR           compare with DIR/result_N.npy; exit 1 and say where if they differ\n"
          "  --compare reference    compare with the reference evaluator in the same way\n"
          "  --compare PLUGIN.so    compare with what another PJRT plugin makes of the same program and inputs\n"
          "  --plugin PLUGIN.so     run on this PJRT plugin instead of Weft\n"
          "  --rtol R, --atol A     tolerances: |got - want| <= A + R * |want|.  Default A: R / 10; default R: 1e-9 for\n"
          "                         f64, 1e-4 for f32, 4e-3 for f16, 3e-2 for bf16, 0.3 for narrower floats\n"
          "  --repeat N             run N times more and print the median\n"
          "  --profile              run once more and print where the time went, step by step\n"
          "  --timeline FILE.svg    run once more and draw what ran when on which thread\n"
          "  --devices N            run on N devices (default: what the program says, else one a process), all in this process;\n"
          "                         under `weft launch`, srun or mpirun spread evenly over the processes of the job\n"
          "  --alone                be no part of such a job\n"
          "  --threads N            worker threads (default: one a core; WEFT_THREADS)\n"
          "  --memory ORDER         topological (default), sequential, or budget=BYTES\n"
          "  --json                 print one JSON object\n"
          "  --quiet                print no result values\n");
}

static weft_status *parse_options(int argc, char **argv, run_options *o, bool *done)
{
  enum { INPUT = 256, SEED, SAVE_INPUTS, OUTPUT_DIR, EXPECT, COMPARE, PLUGIN, RTOL, ATOL, REPEAT, PROFILE, TIMELINE, DEVICES,
         THREADS, MEMORY, JSON, QUIET, ALONE };
  static const struct option options[] = {
      {"input", required_argument, NULL, INPUT}, {"seed", required_argument, NULL, SEED},
      {"save-inputs", required_argument, NULL, SAVE_INPUTS}, {"output-dir", required_argument, NULL, OUTPUT_DIR},
      {"expect", required_argument, NULL, EXPECT}, {"compare", required_argument, NULL, COMPARE},
      {"plugin", required_argument, NULL, PLUGIN},
      {"rtol", required_argument, NULL, RTOL}, {"atol", required_argument, NULL, ATOL},
      {"repeat", required_argument, NULL, REPEAT}, {"devices", required_argument, NULL, DEVICES},
      {"profile", no_argument, NULL, PROFILE}, {"timeline", required_argument, NULL, TIMELINE},
      {"threads", required_argument, NULL, THREADS}, {"memory", required_argument, NULL, MEMORY},
      {"json", no_argument, NULL, JSON}, {"quiet", no_argument, NULL, QUIET}, {"alone", no_argument, NULL, ALONE},
      {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0}};
  int64_t number;
  char *end;

  *o = (run_options){.rtol = -1, .atol = -1, .inputs = calloc((size_t)argc, sizeof *o->inputs)};
  WEFT_TRY_ALLOC(o->inputs);
  for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) switch (c) {
      case INPUT: o->inputs[o->input_count++] = optarg; break;
      case SEED:
        WEFT_TRY(weft_option_parse(WEFT_OPT_INT, "--seed", optarg, &number));
        o->seed = (uint64_t)number;
        break;
      case SAVE_INPUTS: o->input_dir = optarg; break;
      case OUTPUT_DIR: o->output_dir = optarg; break;
      case EXPECT: o->expect_dir = optarg; break;
      case COMPARE:
        if (strcmp(optarg, "reference") == 0) o->reference = true;
        else o->other = optarg;
        break;
      case PLUGIN: o->plugin = optarg; break;
      case RTOL:
      case ATOL:
        *(c == RTOL ? &o->rtol : &o->atol) = strtod(optarg, &end);
        if (end == optarg || *end) return WEFT_ERR(INVALID_ARGUMENT, "expected a tolerance, got \"%s\"", optarg);
        break;
      case PROFILE: o->profile = true; break;
      case TIMELINE: o->timeline = optarg; break;
      case REPEAT:
      case DEVICES:
      case THREADS:
        WEFT_TRY(weft_option_parse(WEFT_OPT_INT, argv[optind - 2], optarg, &number));
        if (number < 0 || number > 1000000)
          return WEFT_ERR(INVALID_ARGUMENT, "%s: %" PRId64 " is not in [0, 1000000]", argv[optind - 2], number);
        *(c == REPEAT ? &o->repeat : c == DEVICES ? &o->devices : &o->threads) = (int)number;
        break;
      case MEMORY: o->memory = optarg; break;
      case JSON: o->json = true; break;
      case QUIET: o->quiet = true; break;
      case ALONE: o->alone = true; break;
      case 'h':
        print_help(stdout);
        *done = true;
        return NULL;
      default: return WEFT_ERR(INVALID_ARGUMENT, "see `weft run --help`");
      }
  if (optind != argc - 1) return WEFT_ERR(INVALID_ARGUMENT, "expected one program; see `weft run --help`");
  o->program = argv[optind];
  return NULL;
}

static double ms_since(int64_t start_ns) { return (double)(weft_now_ns() - start_ns) / 1e6; }

static weft_status *make_directory(const char *path)
{
  if (mkdir(path, 0777) != 0 && errno != EEXIST)
    return WEFT_ERR(INVALID_ARGUMENT, "cannot make directory %s: %s", path, strerror(errno));
  return NULL;
}

/* How many devices the job has where the program does not say. */
static int devices_of_job(const run_state *s)
{
  const char *each = getenv("WEFT_NUM_DEVICES");

  return s->o->devices ? s->o->devices : s->job.place.process_count * (each ? WEFT_MIN(WEFT_MAX(atoi(each), 1), 4096) : 1);
}

static weft_status *session_options(run_state *s, const char *plugin, cli_session_options *out)
{
  int total;

  *out = (cli_session_options){.plugin = plugin, .devices = s->o->devices, .threads = s->o->threads, .memory = s->o->memory};
  cli_counts(s->program.module, s->o->devices, &out->replicas, &out->partitions);
  if (cli_job_has_others(&s->job) && out->replicas * out->partitions == 1)
    cli_counts(s->program.module, devices_of_job(s), &out->replicas, &out->partitions);
  total = (int)WEFT_MIN(out->replicas * out->partitions, 4096);
  if (s->o->devices > 1 || total > 1) out->devices = cli_job_share(&s->job, total, &s->first_device);
  if (!cli_job_has_others(&s->job)) return NULL;
  if (total < s->job.place.process_count)
    return WEFT_ERR(INVALID_ARGUMENT, "%s runs on %d devices, which are too few for the job's %d processes (--alone: each process by itself)",
                    s->o->program, total, (int)s->job.place.process_count);
  out->job = &s->job;
  return NULL;
}

static weft_status *compile(run_state *s)
{
  cli_session_options options;
  cli_progress progress;
  weft_status *st;
  int64_t start;

  WEFT_TRY(session_options(s, s->o->plugin, &options));
  for (int i = 0; i < s->program.module->entry->param_count; i++)
    s->params += hlo_shape_leaf_count(s->program.module->entry->params[i]->shape);
  start = weft_now_ns();
  cli_progress_begin(&progress);
  st = cli_session_open(&s->session, &options, &s->program.code, s->params, &s->arena);
  cli_progress_end(&progress);
  WEFT_TRY(st);
  s->compile_ms = ms_since(start);
  s->devices = s->session.devices;
  s->outputs = s->session.outputs;
  return NULL;
}

/* Leaf `leaf` of the program's parameters, whole. */
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

/* An .npy file as a literal of type `type`. */
static weft_status *read_literal(run_state *s, const char *path, weft_dtype type, hlo_literal **out_value)
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

  WEFT_TRY(read_literal(s, s->o->inputs[leaf], want->type, out_value));
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
    WEFT_TRY(hlo_literal_new(&s->arena, shape, &s->arguments[leaf]));
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

/* One more run, recorded: recording takes time, so none of those that are timed. */
static weft_status *profile(run_state *s)
{
  weft_status *st;
  double ms;

  if (s->o->plugin) return WEFT_ERR(UNIMPLEMENTED, "--profile and --timeline of another plugin (%s)", s->o->plugin);
  cli_profile_begin(&s->profile);
  st = cli_session_run(&s->session, s->o->repeat + 1, &ms);
  weft_status *recorded = cli_profile_end(&s->profile, &s->arena);
  if (st) weft_status_free(recorded);
  WEFT_TRY(st ? st : recorded);
  return s->o->timeline ? draw_timeline(s) : NULL;
}

static weft_status *run(run_state *s)
{
  double *times = WEFT_ARENA_ARRAY(&s->arena, double, s->o->repeat);

  WEFT_TRY_ALLOC(times);
  WEFT_TRY(cli_session_run(&s->session, 0, &s->first_ms));
  for (int i = 0; i < s->o->repeat; i++) WEFT_TRY(cli_session_run(&s->session, i + 1, &times[i]));
  if (s->o->repeat) {
    qsort(times, (size_t)s->o->repeat, sizeof *times, compare_doubles);
    s->min_ms = times[0];
    s->median_ms = (times[(s->o->repeat - 1) / 2] + times[s->o->repeat / 2]) / 2;
  }
  if (s->o->profile || s->o->timeline) WEFT_TRY(profile(s));
  s->values = WEFT_ARENA_ARRAY(&s->arena, hlo_literal *, s->devices * s->outputs);
  WEFT_TRY_ALLOC(s->values);
  return cli_session_fetch(&s->session, s->values);
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static void index_text(const hlo_shape *shape, int64_t index, char *buf, size_t size)
{
  int64_t at[HLO_MAX_RANK];
  size_t length = 0;

  for (int i = shape->rank - 1; i >= 0; i--) {
    at[i] = index % shape->dims[i];
    index /= shape->dims[i];
  }
  buf[0] = '\0';
  for (int i = 0; i < shape->rank && length < size; i++)
    length += (size_t)snprintf(buf + length, size - length, "%s%" PRId64, i ? "," : "", at[i]);
}

/* |got - want|, infinite where one is NaN or infinite and the other is not the same. */
static double difference(double got, double want)
{
  if (isnan(got) || isnan(want)) return isnan(got) && isnan(want) ? 0 : INFINITY;
  if (isinf(got) || isinf(want)) return got == want ? 0 : INFINITY;
  return fabs(got - want);
}

/* Some roundings of the type, and what sums in another order add. */
static double default_tolerance(weft_dtype type)
{
  weft_dtype part = weft_dtype_is_complex(type) ? weft_dtype_component(type) : type;

  switch (part) {
  case WEFT_F64: return 1e-9;
  case WEFT_F32: return 1e-4;
  case WEFT_F16: return 4e-3;
  case WEFT_BF16: return 3e-2;
  default: return 0.3;
  }
}

/* Says where `got` differs most and counts it; integers must be equal. */
static void compare(run_state *s, const char *what, int leaf, const hlo_literal *got, const hlo_literal *want)
{
  int64_t count = got->data ? hlo_shape_elems(got->shape) : 0, worst = -1, wrong = 0;
  bool exact = weft_dtype_is_integer(got->shape->type) || got->shape->type == WEFT_PRED;
  double rtol = s->o->rtol < 0 ? default_tolerance(want->shape->type) : s->o->rtol, worst_excess = 0;
  double atol = s->o->atol < 0 ? rtol / 10 : s->o->atol;
  FILE *out = s->o->json ? stderr : stdout; /* standard output is one JSON object then */
  char where[256], got_text[256], want_text[256];

  if (!hlo_shape_equal(got->shape, want->shape, false)) {
    fprintf(out, "result %d: got %s, want %s (%s)\n", leaf, hlo_shape_format(got->shape, got_text, sizeof got_text),
           hlo_shape_format(want->shape, want_text, sizeof want_text), what);
    s->differences++;
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    double excess;
    if (exact) {
      excess = hlo_literal_get_s64(got, i) == hlo_literal_get_s64(want, i) ? 0 : 1;
    } else {
      double re = hlo_literal_get_f64(want, i), im = hlo_literal_get_imag(want, i);
      double error = fmax(difference(hlo_literal_get_f64(got, i), re), difference(hlo_literal_get_imag(got, i), im));
      double allowed = atol + rtol * (isfinite(re) && isfinite(im) ? hypot(re, im) : 0);
      excess = error <= allowed ? 0 : allowed > 0 ? error / allowed : INFINITY;
    }
    if (excess == 0) continue;
    wrong++;
    if (excess > worst_excess) {
      worst_excess = excess;
      worst = i;
    }
  }
  if (!wrong) return;
  s->differences++;
  index_text(got->shape, worst, where, sizeof where);
  if (exact) {
    int64_t g = hlo_literal_get_s64(got, worst), w = hlo_literal_get_s64(want, worst);
    fprintf(out, weft_dtype_is_signed(got->shape->type)
                   ? "result %d: %" PRId64 " of %" PRId64 " elements differ from %s; first at [%s]: got %" PRId64 ", want %" PRId64 "\n"
                   : "result %d: %" PRId64 " of %" PRId64 " elements differ from %s; first at [%s]: got %" PRIu64 ", want %" PRIu64 "\n",
            leaf, wrong, count, what, where, g, w);
  }
  if (!exact)
    fprintf(out, "result %d: %" PRId64 " of %" PRId64 " elements differ from %s; worst at [%s]: got %.9g, want %.9g "
           "(%.3g times the tolerance)\n",
           leaf, wrong, count, what, where, hlo_literal_get_f64(got, worst), hlo_literal_get_f64(want, worst), worst_excess);
}

static weft_status *compare_with_files(run_state *s)
{
  for (int leaf = 0; leaf < s->outputs; leaf++) {
    char path[4096];
    hlo_literal *want;
    if (!s->values[leaf]->data) continue;
    snprintf(path, sizeof path, "%s/result_%d.npy", s->o->expect_dir, leaf);
    WEFT_TRY(read_literal(s, path, s->values[leaf]->shape->type, &want));
    compare(s, path, leaf, s->values[leaf], want);
  }
  return NULL;
}

/* Arguments by parameter: leaves gathered into the tuples that the parameters are. */
static weft_status *gather_argument(run_state *s, const hlo_shape *shape, int *leaf, const hlo_literal **out)
{
  hlo_literal *tuple;

  if (!hlo_shape_is_tuple(shape)) {
    *out = s->arguments[(*leaf)++];
    return NULL;
  }
  tuple = WEFT_ARENA_NEW(&s->arena, hlo_literal);
  WEFT_TRY_ALLOC(tuple);
  tuple->shape = shape;
  tuple->elements = WEFT_ARENA_ARRAY(&s->arena, const hlo_literal *, shape->rank);
  WEFT_TRY_ALLOC(tuple->elements);
  for (int i = 0; i < shape->rank; i++) WEFT_TRY(gather_argument(s, shape->elements[i], leaf, &tuple->elements[i]));
  *out = tuple;
  return NULL;
}

static const hlo_literal *literal_leaf(const hlo_literal *lit, int leaf)
{
  while (lit->elements)
    for (int i = 0; i < lit->shape->rank; i++) {
      int below = hlo_shape_leaf_count(lit->elements[i]->shape);
      if (leaf < below) {
        lit = lit->elements[i];
        break;
      }
      leaf -= below;
    }
  return lit;
}

/* The same program and inputs on another plugin, device by device. */
static weft_status *compare_with_plugin(run_state *s)
{
  cli_session_options options;
  hlo_literal **values = WEFT_ARENA_ARRAY(&s->arena, hlo_literal *, s->devices * s->outputs);
  cli_session other;
  double ms;
  weft_status *st;

  WEFT_TRY_ALLOC(values);
  if (cli_job_has_others(&s->job)) return WEFT_ERR(UNIMPLEMENTED, "--compare with another plugin in a job of several processes");
  WEFT_TRY(session_options(s, s->o->other, &options));
  options.memory = NULL;
  st = cli_session_open(&other, &options, &s->program.code, s->params, &s->arena);
  if (!st && (other.devices != s->devices || other.outputs != s->outputs))
    st = WEFT_ERR(INVALID_ARGUMENT, "%s has %d results on %d devices, %s %d on %d", s->o->other, other.outputs, other.devices,
                  s->session.plugin, s->outputs, s->devices);
  if (!st) st = cli_session_put(&other, s->arguments);
  if (!st) st = cli_session_run(&other, 0, &ms);
  if (!st) st = cli_session_fetch(&other, values);
  for (int i = 0; !st && i < s->devices * s->outputs; i++) compare(s, s->o->other, i % s->outputs, s->values[i], values[i]);
  cli_session_close(&other);
  return st;
}

static weft_status *compare_with_reference(run_state *s)
{
  const hlo_computation *entry = s->program.module->entry;
  const hlo_literal **arguments = WEFT_ARENA_ARRAY(&s->arena, const hlo_literal *, entry->param_count), *result;
  hlo_eval_options options = HLO_EVAL_DEFAULT;
  int leaf = 0;

  WEFT_TRY_ALLOC(arguments);
  for (int i = 0; i < entry->param_count; i++)
    WEFT_TRY(gather_argument(s, entry->params[i]->shape, &leaf, &arguments[i]));
  WEFT_TRY(hlo_eval_module(s->program.module, arguments, &options, &s->arena, &result));
  for (int i = 0; i < s->outputs; i++) compare(s, "the reference evaluator", i, s->values[i], literal_leaf(result, i));
  return NULL;
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

typedef struct summary {
  double min, max, mean;
  int64_t nans;
} summary;

static summary summarise(const hlo_literal *value)
{
  int64_t count = hlo_shape_elems(value->shape);
  summary s = {.min = INFINITY, .max = -INFINITY};
  double sum = 0;

  for (int64_t i = 0; i < count; i++) {
    double x = hlo_literal_get_f64(value, i);
    if (isnan(x)) {
      s.nans++;
      continue;
    }
    s.min = fmin(s.min, x);
    s.max = fmax(s.max, x);
    sum += x;
  }
  s.mean = count > s.nans ? sum / (double)(count - s.nans) : 0;
  return s;
}

enum { SHOWN = 20 }; /* elements printed in full */

static void print_values(const run_state *s)
{
  for (int i = 0; i < s->devices * s->outputs; i++) {
    const hlo_literal *value = s->values[i];
    char shape[256];
    int64_t count;

    hlo_shape_format(value->shape, shape, sizeof shape);
    if (s->devices > 1 || cli_job_has_others(&s->job)) printf("device %d ", s->first_device + i / s->outputs);
    printf("result %d  %s", i % s->outputs, shape);
    if (!value->data || (count = hlo_shape_elems(value->shape)) == 0) {
      printf("\n");
      continue;
    }
    if (count > SHOWN) {
      summary sum = summarise(value);
      printf("  min %.6g  max %.6g  mean %.6g", sum.min, sum.max, sum.mean);
      if (sum.nans) printf("  NaN %" PRId64, sum.nans);
      printf("\n");
      continue;
    }
    for (int64_t j = 0; j < count; j++) {
      if (weft_dtype_is_complex(value->shape->type))
        printf(" %.6g%+.6gi", hlo_literal_get_f64(value, j), hlo_literal_get_imag(value, j));
      else
        printf(" %.6g", hlo_literal_get_f64(value, j));
    }
    printf("\n");
  }
}

static double peak_rss_mb(void)
{
  struct rusage usage;

  getrusage(RUSAGE_SELF, &usage);
  return (double)usage.ru_maxrss / 1024;
}

static void print_json_number(double x)
{
  if (isfinite(x))
    printf("%.9g", x);
  else
    printf("null");
}

static void print_json(const run_state *s, const cli_memory *memory)
{
  printf("{\"program\": ");
  cli_json_string(stdout, s->o->program);
  printf(", \"module\": ");
  cli_json_string(stdout, s->program.module->name);
  printf(", \"devices\": %d, \"load_ms\": %.6g, \"compile_ms\": %.6g, \"first_run_ms\": %.6g", s->devices, s->load_ms,
         s->compile_ms, s->first_ms);
  if (s->o->repeat) printf(", \"repeat\": %d, \"median_ms\": %.6g, \"min_ms\": %.6g", s->o->repeat, s->median_ms, s->min_ms);
  printf(", \"parameter_bytes\": %" PRId64 ", \"output_bytes\": %" PRId64 ", \"temp_bytes\": %" PRId64, memory->parameters,
         memory->outputs, memory->temporaries);
  if (memory->bound >= 0) printf(", \"temp_lower_bound_bytes\": %" PRId64, memory->bound);
  printf(", \"code_bytes\": %" PRId64 ", \"peak_rss_mb\": %.6g, \"results\": [", memory->code, peak_rss_mb());
  for (int i = 0; i < s->devices * s->outputs; i++) {
    const hlo_literal *value = s->values[i];
    char shape[256];
    printf("%s{\"shape\": ", i ? ", " : "");
    cli_json_string(stdout, hlo_shape_format(value->shape, shape, sizeof shape));
    if (value->data) {
      summary sum = summarise(value);
      printf(", \"min\": ");
      print_json_number(sum.min);
      printf(", \"max\": ");
      print_json_number(sum.max);
      printf(", \"mean\": ");
      print_json_number(sum.mean);
      printf(", \"nans\": %" PRId64, sum.nans);
    }
    printf("}");
  }
  printf("]");
  if (s->o->profile) {
    printf(", \"profile\": ");
    cli_profile_json(&s->profile, stdout);
  }
  if (s->o->expect_dir || s->o->reference || s->o->other) printf(", \"differences\": %d", s->differences);
  printf("}\n");
}

static void print_text(const run_state *s, const cli_memory *memory)
{
  printf("%s: read %.1f ms, compiled in %.1f ms, first run %.3f ms", s->program.module->name, s->load_ms,
         s->compile_ms, s->first_ms);
  if (s->o->repeat) printf(", median of %d more %.3f ms (least %.3f)", s->o->repeat, s->median_ms, s->min_ms);
  printf("\nmemory: %.2f MB of parameters, %.2f MB of results, %.2f MB of temporaries; the process at most %.0f MB\n",
         (double)memory->parameters / 1e6, (double)memory->outputs / 1e6, (double)memory->temporaries / 1e6,
         peak_rss_mb());
  if (!s->o->quiet) print_values(s);
}

static weft_status *print_profile(run_state *s)
{
  WEFT_AUTO(hlo_module) module = NULL;

  WEFT_TRY(cli_session_optimized(&s->session, &module));
  cli_profile_print(&s->profile, module, stdout);
  return NULL;
}

/* A program that runs others on several devices (StableHLO's interpreter.run_parallel) and checks what they give: the
 * evaluator goes through it, the others are compiled. */
static weft_status *run_driver(run_state *s)
{
  const hlo_module *module = s->program.module;
  hlo_eval_options options = {.deadline = WEFT_NO_DEADLINE, .custom_call = cpu_interpreter_call};
  const hlo_literal *result;

  if (module->entry->param_count > 0) return WEFT_ERR(UNIMPLEMENTED, "interpreter.run_parallel in a program with parameters");
  WEFT_TRY(hlo_eval_module(module, NULL, &options, &s->arena, &result));
  s->devices = 1;
  s->outputs = hlo_shape_leaf_count(result->shape);
  s->values = WEFT_ARENA_ARRAY(&s->arena, hlo_literal *, s->outputs);
  WEFT_TRY_ALLOC(s->values);
  for (int i = 0; i < s->outputs; i++) s->values[i] = (hlo_literal *)literal_leaf(result, i);
  if (!s->o->quiet) print_values(s);
  return NULL;
}

static bool is_driver(const hlo_module *module)
{
  HLO_FOREACH(instr, module->entry)
    if (cpu_is_run_parallel(instr)) return true;
  return false;
}

static weft_status *run_program(run_state *s)
{
  const run_options *o = s->o;
  cli_memory memory;
  int64_t start = weft_now_ns();

  WEFT_TRY(cli_load_program(o->program, o->input_count, o->inputs, &s->program));
  s->load_ms = ms_since(start);
  if (is_driver(s->program.module)) return run_driver(s);
  s->job.place.process_count = 1;
  if (!o->alone) WEFT_TRY(cli_job_join(&s->job));
  WEFT_TRY(compile(s));
  WEFT_TRY(make_inputs(s));
  if (o->input_dir) {
    WEFT_TRY(make_directory(o->input_dir));
    for (int i = 0; i < s->params; i++) WEFT_TRY(save(o->input_dir, "input", i, s->arguments[i]));
  }
  WEFT_TRY(run(s));
  if (o->output_dir) {
    WEFT_TRY(make_directory(o->output_dir));
    for (int i = 0; i < s->devices * s->outputs; i++)
      WEFT_TRY(save(o->output_dir, "result", s->first_device * s->outputs + i, s->values[i]));
  }
  if (o->expect_dir && s->first_device == 0) WEFT_TRY(compare_with_files(s));
  if (o->reference && s->first_device == 0) WEFT_TRY(compare_with_reference(s));
  if (o->other) WEFT_TRY(compare_with_plugin(s));
  WEFT_TRY(cli_session_memory(&s->session, &memory));
  if (o->json)
    print_json(s, &memory);
  else
    print_text(s, &memory);
  return o->profile && !o->json ? print_profile(s) : NULL;
}

static void fini(run_state *s)
{
  cli_job_unwatch(&s->job);
  cli_session_close(&s->session);
  cli_job_close(&s->job);
  cli_program_fini(&s->program);
  weft_arena_fini(&s->arena);
}

int cli_run_main(int argc, char **argv)
{
  run_options options = {0};
  run_state state = {.o = &options};
  bool done = false;
  weft_status *st = parse_options(argc, argv, &options, &done);
  int exit_code;

  weft_arena_init(&state.arena);
  if (!st && !done) st = run_program(&state);
  weft_status *left = cli_job_leave(&state.job, st);
  if (st) weft_status_free(left);
  else st = left;
  if (strncmp(weft_status_message(st), "check.", 6) == 0) state.differences++; /* the program's own test failed */
  exit_code = cli_report("run", st);
  if (state.differences && exit_code != CLI_USAGE) exit_code = CLI_DIFFERENT;
  fini(&state);
  free(options.inputs);
  return exit_code;
}
