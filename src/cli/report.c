/* cli/report.c -- what `weft run` prints: times, memory, results. */
#include <config.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/json.h"
#include "cli/run.h"

typedef struct summary {
  double min, max, sum;
  int64_t count, nans; /* all elements; those that are NaN, which min, max and sum leave out */
} summary;

static double mean_of(const summary *s) { return s->count > s->nans ? s->sum / (double)(s->count - s->nans) : 0; }

/* A result may have a thousand million elements: none costs a call. Elements of one or two bytes are counted by their
 * bits; neighbours are counted in tables of their own, as equal neighbours would wait for each other's counts. */
enum { TABLES = 4 };
static int64_t counts[TABLES][1 << 16]; /* one thread prints */

#define COUNT(type)                                                                \
  do {                                                                             \
    const type *bits = value->data;                                                \
    int64_t i = 0;                                                                 \
    for (; i + TABLES <= s->count; i += TABLES)                                    \
      for (int j = 0; j < TABLES; j++) counts[j][bits[i + j]]++;                   \
    for (; i < s->count; i++) counts[0][bits[i]]++;                                \
  } while (0)

static void summarise_narrow(const hlo_literal *value, summary *s)
{
  memset(counts, 0, sizeof counts);
  if (weft_dtype_bytes(value->shape->type) == 1) COUNT(uint8_t);
  else COUNT(uint16_t);
  for (int i = 0; i < 1 << 16; i++) {
    uint16_t bits = (uint16_t)i;
    int64_t count = 0;
    for (int j = 0; j < TABLES; j++) count += counts[j][i];
    if (count == 0) continue;
    double x = hlo_literal_get_f64(&(hlo_literal){.shape = value->shape, .data = &bits}, 0);
    if (isnan(x)) {
      s->nans += count;
      continue;
    }
    s->min = fmin(s->min, x);
    s->max = fmax(s->max, x);
    s->sum += x * (double)count;
  }
}

/* Wider elements become doubles, a block at a time. */
enum { LANES = 8, BLOCK = 64 * LANES };

#define LOAD(type, stride)                                                                        \
  do {                                                                                            \
    const type *from = (const type *)value->data + first * (stride);                              \
    for (int64_t i = 0; i < count; i++) out[i] = (double)from[i * (stride)];                      \
  } while (0)

/* Of complex numbers the real parts. */
static void load_block(const hlo_literal *value, int64_t first, int64_t count, double *out)
{
  switch (value->shape->type) {
  case WEFT_F32: LOAD(float, 1); break;
  case WEFT_F64: LOAD(double, 1); break;
  case WEFT_C64: LOAD(float, 2); break;
  case WEFT_C128: LOAD(double, 2); break;
  case WEFT_S32: LOAD(int32_t, 1); break;
  case WEFT_U32: LOAD(uint32_t, 1); break;
  case WEFT_S64: LOAD(int64_t, 1); break;
  case WEFT_U64: LOAD(uint64_t, 1); break;
  default:
    for (int64_t i = 0; i < count; i++) out[i] = hlo_literal_get_f64(value, first + i);
  }
}

static void summarise_wide(const hlo_literal *value, summary *s)
{
  double min[LANES], max[LANES], sum[LANES] = {0}, block[BLOCK];
  int64_t numbers[LANES] = {0}, all = 0;

  for (int j = 0; j < LANES; j++) min[j] = s->min, max[j] = s->max;
  for (int64_t first = 0; first < s->count; first += BLOCK) {
    int64_t count = WEFT_MIN(s->count - first, BLOCK);
    load_block(value, first, count, block);
    for (; count % LANES; count++) block[count] = NAN; /* which is left out */
    for (int64_t i = 0; i < count; i += LANES)
      for (int j = 0; j < LANES; j++) {
        double x = block[i + j];
        min[j] = x < min[j] ? x : min[j];
        max[j] = x > max[j] ? x : max[j];
        sum[j] += x == x ? x : 0;
        numbers[j] += x == x;
      }
  }
  for (int j = 0; j < LANES; j++) {
    s->min = fmin(s->min, min[j]);
    s->max = fmax(s->max, max[j]);
    s->sum += sum[j];
    all += numbers[j];
  }
  s->nans = s->count - all;
}

static summary summarise(const hlo_literal *value)
{
  summary s = {.min = INFINITY, .max = -INFINITY, .count = hlo_shape_elems(value->shape)};

  if (weft_dtype_bytes(value->shape->type) <= 2) summarise_narrow(value, &s);
  else summarise_wide(value, &s);
  return s;
}

enum { SHOWN = 20 }; /* arrays of up to this many elements are printed in full */

void run_print_values(const run_state *s)
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
      printf("  min %.6g  max %.6g  mean %.6g", sum.min, sum.max, mean_of(&sum));
      if (sum.nans) printf("  NaN %" PRId64, sum.nans);
      printf("\n");
      continue;
    }
    for (int64_t j = 0; j < count; j++) {
      if (weft_dtype_is_complex(value->shape->type))
        printf(" %.6g%+.6gi", hlo_literal_get_f64(value, j), hlo_literal_get_imag(value, j));
      else printf(" %.6g", hlo_literal_get_f64(value, j));
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

static void put_result(cli_json *json, const hlo_literal *value)
{
  char shape[256];

  cli_json_object(json, NULL);
  cli_json_text(json, "shape", hlo_shape_format(value->shape, shape, sizeof shape));
  if (value->data) {
    summary sum = summarise(value);
    cli_json_number(json, "min", sum.min);
    cli_json_number(json, "max", sum.max);
    cli_json_number(json, "mean", mean_of(&sum));
    cli_json_int(json, "nans", sum.nans);
  }
  cli_json_end_object(json);
}

static void put_memory(cli_json *json, const cli_memory *memory)
{
  cli_json_int(json, "parameter_bytes", memory->parameters);
  cli_json_int(json, "output_bytes", memory->outputs);
  cli_json_int(json, "temp_bytes", memory->temporaries);
  if (memory->bound >= 0) cli_json_int(json, "temp_lower_bound_bytes", memory->bound);
  cli_json_int(json, "code_bytes", memory->code);
  cli_json_number(json, "peak_rss_mb", peak_rss_mb());
}

static void print_json(const run_state *s, const cli_memory *memory)
{
  cli_json json = {.out = stdout};

  cli_json_object(&json, NULL);
  cli_json_text(&json, "program", s->o->program);
  cli_json_text(&json, "module", s->program.module->name);
  cli_json_int(&json, "devices", s->devices);
  cli_json_number(&json, "load_ms", s->load_ms);
  cli_json_number(&json, "compile_ms", s->compile_ms);
  cli_json_number(&json, "first_run_ms", s->first_ms);
  if (s->o->repeat) {
    cli_json_int(&json, "repeat", s->o->repeat);
    cli_json_number(&json, "median_ms", s->median_ms);
    cli_json_number(&json, "min_ms", s->min_ms);
  }
  put_memory(&json, memory);
  cli_json_array(&json, "results");
  for (int i = 0; i < s->devices * s->outputs; i++) put_result(&json, s->values[i]);
  cli_json_end_array(&json);
  if (s->o->profile) cli_profile_json(&s->profile, &json);
  if (s->comparisons) {
    cli_json_int(&json, "differences", s->differences);
    cli_json_number(&json, "largest_error", s->error.largest);
  }
  cli_json_end_object(&json);
  putchar('\n');
}

static void print_text(const run_state *s, const cli_memory *memory)
{
  printf("%s: read %.1f ms, compiled in %.1f ms, first run %.3f ms", s->program.module->name, s->load_ms, s->compile_ms,
         s->first_ms);
  if (s->o->repeat) printf(", median of %" PRId64 " more %.3f ms (least %.3f)", s->o->repeat, s->median_ms, s->min_ms);
  printf("\nmemory: %s of parameters, %s of results, %s of temporaries; the process at most %.0f MiB\n",
         WEFT_BYTES(memory->parameters), WEFT_BYTES(memory->outputs), WEFT_BYTES(memory->temporaries), peak_rss_mb());
  if (!s->o->quiet) run_print_values(s);
}

weft_status *run_report(run_state *s)
{
  cli_memory memory;

  WEFT_TRY(cli_session_memory(&s->session, &memory));
  if (s->o->json) print_json(s, &memory);
  else print_text(s, &memory);
  if (s->o->profile && !s->o->json) cli_profile_print(&s->profile, stdout);
  return NULL;
}
