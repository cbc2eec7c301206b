/* cli/report.c -- what `weft run` prints: times, memory, results. */
#include <config.h>

#include <inttypes.h>
#include <math.h>
#include <sys/resource.h>

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

static void print_json_number(double x)
{
  if (isfinite(x)) printf("%.9g", x);
  else printf("null");
}

static void print_json(const run_state *s, const cli_memory *memory)
{
  printf("{\"program\": ");
  cli_json_string(stdout, s->o->program);
  printf(", \"module\": ");
  cli_json_string(stdout, s->program.module->name);
  printf(", \"devices\": %d, \"load_ms\": %.6g, \"compile_ms\": %.6g, \"first_run_ms\": %.6g", s->devices, s->load_ms,
         s->compile_ms, s->first_ms);
  if (s->o->repeat)
    printf(", \"repeat\": %" PRId64 ", \"median_ms\": %.6g, \"min_ms\": %.6g", s->o->repeat, s->median_ms, s->min_ms);
  printf(", \"parameter_bytes\": %" PRId64 ", \"output_bytes\": %" PRId64 ", \"temp_bytes\": %" PRId64,
         memory->parameters, memory->outputs, memory->temporaries);
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
  printf("%s: read %.1f ms, compiled in %.1f ms, first run %.3f ms", s->program.module->name, s->load_ms, s->compile_ms,
         s->first_ms);
  if (s->o->repeat) printf(", median of %" PRId64 " more %.3f ms (least %.3f)", s->o->repeat, s->median_ms, s->min_ms);
  printf("\nmemory: %s of parameters, %s of results, %s of temporaries; the process at most %.0f MiB\n",
         WEFT_BYTES(memory->parameters), WEFT_BYTES(memory->outputs), WEFT_BYTES(memory->temporaries), peak_rss_mb());
  if (!s->o->quiet) run_print_values(s);
}

static weft_status *print_profile(run_state *s)
{
  WEFT_AUTO(hlo_module) module = NULL;

  WEFT_TRY(cli_session_optimized(&s->session, &module));
  cli_profile_print(&s->profile, module, stdout);
  return NULL;
}

weft_status *run_report(run_state *s)
{
  cli_memory memory;

  WEFT_TRY(cli_session_memory(&s->session, &memory));
  if (s->o->json) print_json(s, &memory);
  else print_text(s, &memory);
  return s->o->profile && !s->o->json ? print_profile(s) : NULL;
}
