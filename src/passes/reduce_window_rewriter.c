/* passes/reduce_window_rewriter.c -- reduce-window-rewriter: prefix sums in O(n log n / log B) work instead of O(n *
 * n).
 *
 * A reduce-window over one dimension of size n whose window is n wide, with stride 1 and n-1 padding in front (or, for
 * the reversed sum, behind), gives every prefix (suffix).  With blocks of B elements:
 *
 *     x [.., n, ..]  pad to m*B, reshape             -> [.., m, B, ..]
 *     inner = prefixes along B                         (a window of B: m*B*B steps, all parallel)
 *     last  = inner's last column                    -> [.., m, ..]
 *     carry = prefixes of last, moved by one, along m  (this rewrite again, while m > B)
 *     out   = carry (+) inner, reshape, slice        -> [.., n, ..]
 *
 * The grouping of operands changes, their order does not: fit for any associative reducer, and the same on every run.
 * The initial value comes in once for each block and for each element of padding, so it must be the reducer's identity;
 * for a reducer that is a computation (logaddexp) a few values are tried.  Scans for which a GPU has kernels stay as
 * they are; among them those by such a computation, which are marked for it. On a CPU, scans that its library has are
 * marked (GEN_LIBRARY_SCAN) and stay too: cpu/scan.c groups operands in the same way. */
#include <config.h>

#include <math.h>
#include <string.h>

#include "codegen/model/strategy.h"
#include "hlo/eval.h"
#include "passes/build.h"
#include "passes/passes.h"

enum { LEAST_SIZE = 64 };

typedef struct scan {
  hlo_instr *x, *init;
  hlo_computation *reducer;
  int64_t dim;
  bool is_reverse;
  pass_map *values; /* scratch of pb_apply */
} scan;

static bool is_scan(const hlo_instr *instr, scan *s)
{
  gen_scan form;

  if (!gen_is_scan(instr, &form)) return false;
  *s = (scan){instr->operands[0], instr->operands[1], instr->called[0], form.dim, form.is_reverse, NULL};
  return true;
}

static weft_status *apply_to(const hlo_computation *f, const hlo_literal *x, const hlo_literal *y, weft_arena *arena,
                             double *out)
{
  const hlo_eval_options options = {.deadline = WEFT_NO_DEADLINE};
  const hlo_literal *result;

  WEFT_TRY(hlo_eval_computation(f, (const hlo_literal *[]){x, y}, &options, arena, &result));
  *out = hlo_literal_get_f64(result, 0);
  return NULL;
}

/* *out: f(init, x) = f(x, init) = x for each x of a sample. */
static weft_status *leaves_sample(const hlo_computation *f, const hlo_literal *init, weft_arena *arena, bool *out)
{
  static const double sample[] = {0, 1, -1, 0.5, -2.75, 3, 17, 96, -120, INFINITY, -INFINITY};
  weft_dtype type = init->shape->type;

  *out = true;
  for (size_t i = 0; i < WEFT_COUNT(sample) && *out; i++) {
    hlo_literal *x;
    double before, after;
    WEFT_TRY(hlo_literal_scalar_f64(arena, type, sample[i], &x));
    WEFT_TRY(apply_to(f, init, x, arena, &before));
    WEFT_TRY(apply_to(f, x, init, arena, &after));
    *out = before == hlo_literal_get_f64(x, 0) && after == before;
  }
  return NULL;
}

static weft_status *starts_from_identity(const scan *s, weft_arena *arena, bool *out)
{
  hlo_opcode op = hlo_reducer_op(s->reducer);

  /* An operation that gives x for x and x may combine the initial value again. */
  *out = op == HLO_MAXIMUM || op == HLO_MINIMUM || (op != HLO_OPCODE_COUNT && pass_is_identity(op, s->init));
  if (op != HLO_OPCODE_COUNT || s->init->op != HLO_CONSTANT || !weft_dtype_is_float(s->init->shape->type) ||
      !pass_is_pointwise(s->reducer))
    return NULL;
  return leaves_sample(s->reducer, s->init->u.literal, arena, out);
}

static hlo_instr *combine(pass_build *b, const scan *s, hlo_instr *before, hlo_instr *after)
{
  hlo_opcode op = hlo_reducer_op(s->reducer);

  if (b->error) return NULL;
  if (op != HLO_OPCODE_COUNT) return pb_op2(b, op, before, after);
  return pb_apply(b, s->reducer, (hlo_instr *[]){before, after}, before->shape, s->values);
}

static hlo_instr *plain_scan(pass_build *b, const scan *s, hlo_instr *x, int64_t dim)
{
  weft_arena *arena = &b->comp->module->arena;
  hlo_window_dim *dims;
  hlo_window *window;
  hlo_instr *out;

  if (b->error) return NULL;
  dims = WEFT_ARENA_ARRAY(arena, hlo_window_dim, x->shape->rank);
  window = WEFT_ARENA_NEW(arena, hlo_window);
  if (!dims || !window) {
    b->error = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
    return NULL;
  }
  for (int d = 0; d < x->shape->rank; d++)
    dims[d] = (hlo_window_dim){.size = 1, .stride = 1, .window_dilation = 1, .base_dilation = 1};
  dims[dim].size = x->shape->dims[dim];
  *(s->is_reverse ? &dims[dim].pad_high : &dims[dim].pad_low) = x->shape->dims[dim] - 1;
  *window = (hlo_window){x->shape->rank, dims};
  out = pb_instr(b, HLO_REDUCE_WINDOW, x->shape, 2, (hlo_instr *[]){x, s->init});
  if (!out) return NULL;
  out->u.window = window;
  b->error = hlo_set_called(out, 1, &s->reducer);
  return out;
}

/* x moved by one place along `dim`, away from where the sums start; the identity fills the gap. */
static hlo_instr *moved_by_one(pass_build *b, const scan *s, hlo_instr *x, int64_t dim)
{
  hlo_pad_dim pads[HLO_MAX_RANK] = {{0}};

  pads[dim].low = s->is_reverse ? -1 : 1;
  pads[dim].high = -pads[dim].low;
  return pb_pad(b, x, s->init, pads);
}

/* The depth is the logarithm of n to the base GEN_LEAST_SCAN_BLOCK. */
static hlo_instr *blocked_scan(pass_build *b, const scan *s, hlo_instr *x, int64_t dim)
{
  const hlo_shape *shape;
  int64_t split_dims[HLO_MAX_RANK], dims[HLO_MAX_RANK], map[HLO_MAX_RANK], n, size, blocks, last_at;
  hlo_pad_dim pads[HLO_MAX_RANK] = {{0}};
  hlo_instr *inner, *last, *carry, *out;
  int rank;

  if (b->error) return NULL;
  shape = x->shape;
  rank = shape->rank;
  n = shape->dims[dim];
  if (n <= GEN_MOST_TOP_SCAN || rank == HLO_MAX_RANK) return plain_scan(b, s, x, dim);
  size = gen_scan_block(n);
  blocks = (n + size - 1) / size;
  *(s->is_reverse ? &pads[dim].low : &pads[dim].high) = blocks * size - n;
  for (int d = 0, k = 0; d < rank; d++) {
    if (d == dim) split_dims[k++] = blocks;
    split_dims[k++] = d == dim ? size : shape->dims[d];
    dims[d] = d == dim ? blocks : shape->dims[d];
    map[d] = d <= dim ? d : d + 1;
  }
  inner = pb_reshape(b, blocks * size == n ? x : pb_pad(b, x, s->init, pads), rank + 1, split_dims);
  inner = plain_scan(b, s, inner, dim + 1);
  last_at = s->is_reverse ? 0 : size - 1;
  last = pb_reshape(b, pb_slice_dim(b, inner, dim + 1, last_at, last_at + 1), rank, dims);
  carry = blocked_scan(b, s, moved_by_one(b, s, last, dim), dim);
  carry = pb_broadcast(b, carry, rank + 1, split_dims, map);
  out = s->is_reverse ? combine(b, s, inner, carry) : combine(b, s, carry, inner);
  dims[dim] = blocks * size;
  out = pb_reshape(b, out, rank, dims);
  return s->is_reverse ? pb_slice_dim(b, out, dim, blocks * size - n, blocks * size) : pb_slice_dim(b, out, dim, 0, n);
}

/* The library sums narrow floats in f32. */
static bool fits_library(const hlo_instr *instr, const pass_options *options)
{
  weft_dtype type = instr->shape->type;
  gen_scan form;

  return gen_library_scan(instr, &form) && !(options->rounds_narrow && (type == WEFT_BF16 || type == WEFT_F16));
}

static weft_status *mark(hlo_instr *instr, const char *what, bool *changed)
{
  hlo_extra *extra;

  WEFT_TRY(hlo_mutable_extra(instr, &extra));
  extra->backend_config = what;
  *changed = true;
  return NULL;
}

static weft_status *reduce_window_rewriter_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_map values = {.arena = ctx->scratch};
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int i = 0; i < comps.count; i++) {
    HLO_FOREACH(instr, comps.v[i]) {
      pass_build b = PASS_BUILD_AT(instr);
      bool fits, has_blocks = pass_target(ctx)->block_threads > 1;
      gen_scan kept;
      scan s;
      if (instr->op != HLO_REDUCE_WINDOW || !is_scan(instr, &s) || s.x->shape->dims[s.dim] < LEAST_SIZE) continue;
      if (has_blocks && gen_scan_of(instr, &kept)) continue;
      WEFT_TRY(starts_from_identity(&s, ctx->scratch, &fits));
      if (!fits) {
        if (gen_is_library_scan(instr)) WEFT_TRY(mark(instr, NULL, changed)); /* the program's own text has the mark */
        continue;
      }
      if (has_blocks || fits_library(instr, ctx->options)) {
        WEFT_TRY(mark(instr, has_blocks ? GEN_ASSOCIATIVE_SCAN : GEN_LIBRARY_SCAN, changed));
        continue;
      }
      s.values = &values;
      WEFT_TRY(pass_build_replace(&b, instr, blocked_scan(&b, &s, s.x, s.dim)));
      *changed = true;
    }
  }
  return NULL;
}
const hlo_pass pass_reduce_window_rewriter = {"reduce-window-rewriter", reduce_window_rewriter_run};
