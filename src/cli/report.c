/* cli/report.c -- what `weft run` prints: times, memory, results. */
#include <config.h>

#include <inttypes.h>
#include <math.h>
#include <sys/resource.h>

#include "cli/json.h"
#include "cli/run.h"

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
      printf("  min %.6g  max %.6g  mean %.6g", sum.min, sum.max, sum.mean);
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
    cli_json_number(json, "mean", sum.mean);
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
