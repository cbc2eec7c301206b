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

/* What one result and its expected values have in common. */
typedef struct contrast {
  const hlo_literal *got, *want;
  double rtol, atol;
  bool exact;                   /* of integers, which must be equal */
  int64_t wrong, worst;         /* elements that differ by more than the tolerance; the one that differs most */
  double worst_share;           /* of that element: its error over its tolerance */
} contrast;

/* The error of element `i` over its tolerance: at most 1 if the element is right. */
static double share_of_tolerance(const contrast *c, int64_t i, run_error *all)
{
  if (c->exact) return hlo_literal_get_s64(c->got, i) == hlo_literal_get_s64(c->want, i) ? 0 : INFINITY;
  double re = hlo_literal_get_f64(c->want, i), im = hlo_literal_get_imag(c->want, i);
  double error = fmax(difference(hlo_literal_get_f64(c->got, i), re), difference(hlo_literal_get_imag(c->got, i), im));
  double allowed = c->atol + c->rtol * (isfinite(re) && isfinite(im) ? hypot(re, im) : 0);
  double share = error == 0 ? 0 : allowed > 0 ? error / allowed : INFINITY;

  all->largest = fmax(all->largest, error);
  all->share = fmax(all->share, share);
  return share;
}

static void contrast_elements(contrast *c, run_error *all)
{
  int64_t count = c->got->data ? hlo_shape_elems(c->got->shape) : 0;

  for (int64_t i = 0; i < count; i++) {
    double share = share_of_tolerance(c, i, all);
    if (share <= 1) continue;
    if (c->wrong++ > 0 && share <= c->worst_share) continue;
    c->worst_share = share;
    c->worst = i;
  }
}

static void print_difference(const contrast *c, const char *what, int leaf, FILE *out)
{
  weft_dtype type = c->got->shape->type;
  char where[256];

  index_text(c->got->shape, c->worst, where, sizeof where);
  fprintf(out, "result %d: %" PRId64 " of %" PRId64 " elements differ from %s; %s at [%s]: got ", leaf, c->wrong,
          hlo_shape_elems(c->got->shape), what, c->exact ? "first" : "worst", where);
  if (c->exact) {
    int64_t got = hlo_literal_get_s64(c->got, c->worst), want = hlo_literal_get_s64(c->want, c->worst);
    fprintf(out, weft_dtype_is_signed(type) ? "%" PRId64 ", want %" PRId64 "\n" : "%" PRIu64 ", want %" PRIu64 "\n",
            got, want);
  } else {
    fprintf(out, "%.9g, want %.9g (%.3g times the tolerance)\n", hlo_literal_get_f64(c->got, c->worst),
            hlo_literal_get_f64(c->want, c->worst), c->worst_share);
  }
}

/* Where the outcome of comparisons is printed. With --json, standard output consists of one JSON object. */
static FILE *words(const run_state *s) { return s->o->json ? stderr : stdout; }

/* Says where `got` differs most from the expected result and counts the differing results. Integers must be equal. */
static void compare(run_state *s, const char *what, int leaf, const hlo_literal *got, const hlo_literal *want)
{
  contrast c = {.got = got, .want = want};
  char got_text[256], want_text[256];

  s->comparisons++;
  if (!hlo_shape_equal(got->shape, want->shape, false)) {
    fprintf(words(s), "result %d: got %s, want %s (%s)\n", leaf,
            hlo_shape_format(got->shape, got_text, sizeof got_text),
            hlo_shape_format(want->shape, want_text, sizeof want_text), what);
    s->differences++;
    return;
  }
  c.exact = weft_dtype_is_integer(got->shape->type) || got->shape->type == WEFT_PRED;
  c.rtol = s->o->rtol < 0 ? default_tolerance(want->shape->type) : s->o->rtol;
  c.atol = s->o->atol < 0 ? c.rtol / 10 : s->o->atol;
  contrast_elements(&c, &s->error);
  if (!c.wrong) return;
  s->differences++;
  print_difference(&c, what, leaf, words(s));
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

/* Calls `with`, and says that the results agree with `what` if none of them differs. */
static weft_status *compare_all(run_state *s, weft_status *(*with)(run_state *s), const char *what)
{
  int comparisons = s->comparisons, differences = s->differences;

  s->error = (run_error){0};
  WEFT_TRY(with(s));
  comparisons = s->comparisons - comparisons;
  if (s->differences > differences || s->o->json) return NULL;
  printf("agrees with %s: %d result%s", what, comparisons, comparisons == 1 ? "" : "s");
  if (s->error.largest == 0) printf(", no error\n");
  else printf(", largest error %.3g, at most %.2g of the tolerance\n", s->error.largest, s->error.share);
  return NULL;
}

weft_status *run_compare(run_state *s)
{
  const run_options *o = s->o;

  if (o->expect_dir && s->first_device == 0) WEFT_TRY(compare_all(s, compare_with_files, o->expect_dir));
  if (o->reference) WEFT_TRY(compare_all(s, compare_with_reference, "the reference evaluator"));
  return o->other ? compare_all(s, compare_with_plugin, o->other) : NULL;
}
