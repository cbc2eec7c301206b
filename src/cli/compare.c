/* cli/compare.c -- compares results with files, with the reference evaluator, or with another plugin. */
#include <config.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/run.h"
#include "hlo/eval.h"

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

/* |got - want|. If one of them is NaN or infinite: 0 if both are NaN or the same infinity, otherwise infinity. */
static double difference(double got, double want)
{
  if (isnan(got) || isnan(want)) return isnan(got) && isnan(want) ? 0 : INFINITY;
  if (isinf(got) || isinf(want)) return got == want ? 0 : INFINITY;
  return fabs(got - want);
}

/* The default tolerance of a type: a few roundings, and what sums in another order add. */
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

/* Says where `got` differs most from the expected result and counts the differing results. Integers must be equal. */
static void compare(run_state *s, const char *what, int leaf, const hlo_literal *got, const hlo_literal *want)
{
  int64_t count = got->data ? hlo_shape_elems(got->shape) : 0, worst = -1, wrong = 0;
  bool exact = weft_dtype_is_integer(got->shape->type) || got->shape->type == WEFT_PRED;
  double rtol = s->o->rtol < 0 ? default_tolerance(want->shape->type) : s->o->rtol, worst_excess = 0;
  double atol = s->o->atol < 0 ? rtol / 10 : s->o->atol;
  FILE *out = s->o->json ? stderr : stdout; /* standard output then consists of one JSON object */
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
    fprintf(out,
            weft_dtype_is_signed(got->shape->type)
              ? "result %d: %" PRId64 " of %" PRId64 " elements differ from %s; first at [%s]: got %" PRId64
                ", want %" PRId64 "\n"
              : "result %d: %" PRId64 " of %" PRId64 " elements differ from %s; first at [%s]: got %" PRIu64
                ", want %" PRIu64 "\n",
            leaf, wrong, count, what, where, g, w);
  }
  if (!exact)
    fprintf(out,
            "result %d: %" PRId64 " of %" PRId64 " elements differ from %s; worst at [%s]: got %.9g, want %.9g "
            "(%.3g times the tolerance)\n",
            leaf, wrong, count, what, where, hlo_literal_get_f64(got, worst), hlo_literal_get_f64(want, worst),
            worst_excess);
}

static weft_status *compare_with_files(run_state *s)
{
  for (int leaf = 0; leaf < s->outputs; leaf++) {
    char path[4096];
    hlo_literal *want;
    if (!s->values[leaf]->data) continue;
    snprintf(path, sizeof path, "%s/result_%d.npy", s->o->expect_dir, leaf);
    WEFT_TRY(run_read_literal(s, path, s->values[leaf]->shape->type, &want));
    compare(s, path, leaf, s->values[leaf], want);
  }
  return NULL;
}

/* All devices get the same values. Where they are parts of an array that the program has whole, that array consists
 * of these parts side by side. */
static weft_status *whole_array(run_state *s, const hlo_literal *part, const hlo_shape *shape, const hlo_literal **out)
{
  size_t bytes = weft_dtype_bytes(shape->type);
  hlo_literal *whole;

  *out = part;
  if (!hlo_shape_is_array(shape) || hlo_shape_same_dims(part->shape, shape)) return NULL;
  WEFT_TRY(hlo_literal_new(&s->arena, hlo_shape_array(&s->arena, shape->type, shape->rank, shape->dims), &whole));
  for (int64_t i = 0; i < hlo_shape_elems(shape); i++) {
    int64_t rest = i, at = 0, step = 1;
    for (int d = shape->rank - 1; d >= 0; d--) {
      at += rest % shape->dims[d] % part->shape->dims[d] * step;
      rest /= shape->dims[d];
      step *= part->shape->dims[d];
    }
    memcpy((char *)whole->data + (size_t)i * bytes, (const char *)part->data + (size_t)at * bytes, bytes);
  }
  *out = whole;
  return NULL;
}

/* The arguments by parameter: the leaves are gathered into tuples where a parameter is one. */
static weft_status *gather_argument(run_state *s, const hlo_shape *shape, int *leaf, const hlo_literal **out)
{
  hlo_literal *tuple;

  if (!hlo_shape_is_tuple(shape)) return whole_array(s, s->arguments[(*leaf)++], shape, out);
  tuple = WEFT_ARENA_NEW(&s->arena, hlo_literal);
  WEFT_TRY_ALLOC(tuple);
  tuple->shape = shape;
  tuple->elements = WEFT_ARENA_ARRAY(&s->arena, const hlo_literal *, shape->rank);
  WEFT_TRY_ALLOC(tuple->elements);
  for (int i = 0; i < shape->rank; i++) WEFT_TRY(gather_argument(s, shape->elements[i], leaf, &tuple->elements[i]));
  *out = tuple;
  return NULL;
}

const hlo_literal *run_literal_leaf(const hlo_literal *lit, int leaf)
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

/* Runs the same program on the same inputs on another plugin, and compares device by device. */
static weft_status *compare_with_plugin(run_state *s)
{
  cli_session_options options;
  hlo_literal **values = WEFT_ARENA_ARRAY(&s->arena, hlo_literal *, s->devices * s->outputs);
  cli_session other;
  double ms;
  weft_status *st;

  WEFT_TRY_ALLOC(values);
  if (cli_job_has_others(&s->job))
    return WEFT_ERR(UNIMPLEMENTED, "--compare with another plugin in a job of several processes");
  WEFT_TRY(run_session_options(s, s->o->other, &options));
  options.memory = NULL;
  st = cli_session_open(&other, &options, &s->program.code, s->params, &s->arena);
  if (!st && (other.devices != s->devices || other.outputs != s->outputs))
    st = WEFT_ERR(INVALID_ARGUMENT, "%s has %d results on %d devices, %s %d on %d", s->o->other, other.outputs,
                  other.devices, s->session.plugin, s->outputs, s->devices);
  if (!st) st = cli_session_put(&other, s->arguments);
  if (!st) st = cli_session_run(&other, 0, &ms);
  if (!st) st = cli_session_fetch(&other, values);
  for (int i = 0; !st && i < s->devices * s->outputs; i++)
    compare(s, s->o->other, i % s->outputs, s->values[i], values[i]);
  cli_session_close(&other);
  return st;
}

/* The evaluator runs all devices of the program, also those of other processes. */
static weft_status *evaluate(run_state *s, const hlo_literal ***out_results)
{
  const hlo_computation *entry = s->program.module->entry;
  hlo_eval_options options = HLO_EVAL_DEFAULT;
  cli_session_options session;
  int leaf = 0, devices, params = entry->param_count;

  WEFT_TRY(run_session_options(s, s->o->plugin, &session));
  options.replicas = (int)session.replicas;
  options.partitions = (int)session.partitions;
  devices = options.replicas * options.partitions;
  const hlo_literal **arguments = WEFT_ARENA_ARRAY(&s->arena, const hlo_literal *, (int64_t)devices *params);
  *out_results = WEFT_ARENA_ARRAY(&s->arena, const hlo_literal *, devices);
  WEFT_TRY_ALLOC(arguments && *out_results);
  for (int i = 0; i < params; i++) WEFT_TRY(gather_argument(s, entry->params[i]->shape, &leaf, &arguments[i]));
  for (int d = 1; d < devices; d++)
    memcpy(arguments + (int64_t)d * params, arguments, (size_t)params * sizeof *arguments);
  return hlo_eval_module(s->program.module, arguments, &options, &s->arena, *out_results);
}

static weft_status *compare_with_reference(run_state *s)
{
  const hlo_literal **results;

  WEFT_TRY(evaluate(s, &results));
  for (int i = 0; i < s->devices * s->outputs; i++) {
    const hlo_literal *want = run_literal_leaf(results[s->first_device + i / s->outputs], i % s->outputs);
    if (want->data && !hlo_shape_same_dims(want->shape, s->values[i]->shape))
      return WEFT_ERR(UNIMPLEMENTED, "--compare reference: result %d on device %d is a part of the program's",
                      i % s->outputs, s->first_device + i / s->outputs);
    compare(s, "the reference evaluator", i % s->outputs, s->values[i], want);
  }
  return NULL;
}

weft_status *run_compare(run_state *s)
{
  const run_options *o = s->o;

  if (o->expect_dir && s->first_device == 0) WEFT_TRY(compare_with_files(s));
  if (o->reference) WEFT_TRY(compare_with_reference(s));
  return o->other ? compare_with_plugin(s) : NULL;
}
