/* codegen/model/cost.c -- the cost of operations on one core: the only table for all decisions that depend on time (how
 * many units a kernel is cut into, what runs as a graph, what runs on the launching thread).  The prices are fitted to
 * the steps of bench/suite.py's programs, of bench/jax_programs.py and of XLA's benchmarks on Sapphire Rapids; the
 * proportions between them are what matters, and gen_costs.scale carries them to another target. */
#include <config.h>

#include "codegen/model/cost.h"

#include <math.h>

#include "codegen/model/library.h"
#include "codegen/model/weights.h"

/* What an operation's time is proportional to: */
typedef enum measure {
  RESULTS,  /* elements of its result */
  OPERANDS, /* elements of its first operand */
  UPDATES,  /* elements of the updates, and elements of the indices that place them */
  TAPS,     /* elements of all windows */
  FLOPS,    /* floating-point operations, as hlo_multiply_add_flops counts them */
  LINES,    /* elements times the logarithm of the longest dimension */
  MATRICES, /* elements of the first operand times its last dimension */
} measure;

typedef struct price {
  measure per;
  double kernel_ns;  /* inside a kernel, for elements of 32 bits */
  double library_ns; /* as a step of its own */
} price;

enum { GUESSED_TRIPS = 10, DEEPEST = 8 };
#define SCAN_NS 0.4 /* of an element */

/* An operation on a scalar takes as long as one on two vectors of 32-bit elements. */
static double least_elems(const gen_target *target) { return target->vector_bytes / 2.0; }

static const price simple = {RESULTS, 0.015, 0}, costly = {RESULTS, 0.55, 0}, moved = {RESULTS, 0.01, 0};
static const price none = {RESULTS, 0, 0};

static const price prices[HLO_OPCODE_COUNT] = {
    [HLO_DIVIDE] = {RESULTS, 0.08, 0}, [HLO_REMAINDER] = {RESULTS, 0.3, 0}, [HLO_SQRT] = {RESULTS, 0.08, 0}, [HLO_RSQRT] = {RESULTS, 0.08, 0},
    [HLO_CONVERT] = {RESULTS, 0.05, 0}, [HLO_POWER] = {RESULTS, 1.2, 0}, [HLO_ATAN2] = {RESULTS, 1.0, 0}, [HLO_CBRT] = {RESULTS, 0.8, 0},
    [HLO_GATHER] = {RESULTS, 0.15, 0}, [HLO_SCATTER] = {UPDATES, 0.1, 0}, [HLO_DYNAMIC_UPDATE_SLICE] = {UPDATES, 0.01, 0},
    [HLO_REDUCE] = {OPERANDS, 0.01, 0}, [HLO_REDUCE_WINDOW] = {TAPS, 0.04, 0}, [HLO_SELECT_AND_SCATTER] = {TAPS, 1.0, 0},
    [HLO_DOT] = {FLOPS, 0.05, 0.0085}, [HLO_CONVOLUTION] = {FLOPS, 0.5, 0.02},
    [HLO_FFT] = {LINES, 0, 0.5}, [HLO_SORT] = {OPERANDS, 0, 30}, [HLO_TOPK] = {OPERANDS, 0, 1.8},
    [HLO_CHOLESKY] = {MATRICES, 0, 0.03}, [HLO_TRIANGULAR_SOLVE] = {MATRICES, 0, 0.03}, [HLO_CUSTOM_CALL] = {MATRICES, 0, 0.005},
};

static const price *price_of(hlo_opcode op)
{
  if (prices[op].kernel_ns > 0 || prices[op].library_ns > 0) return &prices[op];
  switch (op) {
  case HLO_PARAMETER: case HLO_CONSTANT: case HLO_TUPLE: case HLO_GET_TUPLE_ELEMENT: case HLO_BITCAST: case HLO_RESHAPE:
  case HLO_FUSION: case HLO_CALL: case HLO_WHILE: case HLO_CONDITIONAL:
  case HLO_MAP: return &none;
  default: return hlo_opcode_is_transcendental(op) ? &costly : hlo_opcode_is_elementwise(op) ? &simple : &moved;
  }
}

static double elems_of(const hlo_shape *shape)
{
  double elems = 0;

  for (int i = 0; i < hlo_shape_leaf_count(shape); i++) {
    const hlo_shape *leaf = hlo_shape_leaf(shape, i);
    if (hlo_shape_is_array(leaf)) elems = WEFT_MAX(elems, (double)hlo_shape_elems(leaf));
  }
  return elems;
}

static double last_dim(const hlo_shape *shape)
{
  return hlo_shape_is_array(shape) && shape->rank > 0 ? (double)shape->dims[shape->rank - 1] : 1;
}

/* The amount of this measure for one element of the result. */
static double amount(const hlo_instr *x, measure per)
{
  const hlo_shape *first = x->operand_count > 0 && hlo_shape_is_array(x->operands[0]->shape) ? x->operands[0]->shape
                                                                                             : x->shape;
  double results = WEFT_MAX(elems_of(x->shape), 1), all = results;

  switch (per) {
  case RESULTS: break;
  case OPERANDS: all = elems_of(first); break;
  case UPDATES: {
    enum { ELEMS_A_PLACE = 15 };
    bool scatters = x->op == HLO_SCATTER;
    all = elems_of(x->operands[scatters ? x->operand_count - 1 : 1]->shape);
    if (scatters) all += ELEMS_A_PLACE * elems_of(x->operands[x->operand_count / 2]->shape);
    break;
  }
  case TAPS:
    if (x->op == HLO_SELECT_AND_SCATTER) all = elems_of(x->operands[1]->shape);
    for (int d = 0; d < x->u.window->rank; d++) all *= (double)x->u.window->dims[d].size;
    break;
  case FLOPS: all = hlo_multiply_add_flops(x); break;
  case LINES: {
    int64_t longest = 2;
    for (int d = 0; d < first->rank; d++) longest = WEFT_MAX(longest, first->dims[d]);
    all = elems_of(first) * log2((double)longest);
    break;
  }
  case MATRICES: all = elems_of(first) * last_dim(first); break;
  }
  return all / results;
}

/* How much longer an element of `type` takes than one of 32 bits. */
static double width(weft_dtype type)
{
  if (weft_dtype_is_complex(type)) return 2 * width(weft_dtype_component(type));
  return weft_dtype_bits(type) == 64 ? weft_dtype_is_float(type) ? 3 : 2 : 1;
}

static weft_dtype type_of(const hlo_instr *x)
{
  const hlo_shape *shape = x->operand_count > 0 ? x->operands[0]->shape : x->shape;
  return hlo_shape_is_array(shape) ? shape->type : WEFT_F32;
}

/* The price inside a kernel of one measure of x. Operations on complex numbers that are more than one on each part have
 * their own, for parts of 32 bits. */
static double unit_ns(const hlo_instr *x, const price *price)
{
  weft_dtype type = type_of(x);
  double ns = 0;

  if (weft_dtype_is_complex(type)) switch (x->op) {
    case HLO_MULTIPLY: ns = 0.12; break;
    case HLO_ABS: ns = 1.2; break;
    case HLO_DIVIDE: ns = 2.6; break;
    default: ns = hlo_opcode_is_transcendental(x->op) ? 3.4 : 0; break;
    }
  return ns > 0 ? ns * width(weft_dtype_component(type)) : price->kernel_ns * width(type);
}

/* Adds to `wanted` how many elements of each operand are needed for `n` elements of x. A reduction needs all the
 * elements that it combines. No operand needs more elements than it has. */
static void want(const hlo_instr *x, double n, double *wanted)
{
  /* operand 0 is updated in place: what is not updated is not read */
  bool in_place = x->op == HLO_DYNAMIC_UPDATE_SLICE || x->op == HLO_SCATTER;
  bool all = x->op == HLO_DOT || x->op == HLO_SCATTER || x->op == HLO_TUPLE ||
             (x->called_count > 0 && !hlo_calls_are_embedded(x->op));
  double each = all                          ? INFINITY
                : x->op == HLO_REDUCE        ? amount(x, OPERANDS)
                : x->op == HLO_REDUCE_WINDOW ? amount(x, TAPS)
                                             : 1;

  for (int i = in_place; i < x->operand_count; i++) {
    double *w = &wanted[x->operands[i]->id];
    *w = WEFT_MIN(*w + n * each, elems_of(x->operands[i]->shape));
  }
}

typedef struct pricing {
  const gen_target *target;
  weft_arena *arena;
} pricing;

static double computation_ns(const pricing *p, const hlo_computation *comp, double least, int depth,
                             double *read_bytes);

static double called_ns(const pricing *p, const hlo_instr *x, double n, int depth)
{
  double ns = 0, ignored = 0;

  if (depth == DEEPEST) return 0;
  for (int i = 0; i < x->called_count; i++)
    ns +=
      computation_ns(p, x->called[i], hlo_calls_are_embedded(x->op) ? 1 : least_elems(p->target), depth + 1, &ignored);
  switch (x->op) {
  case HLO_REDUCE: return hlo_reducer_op(x->called[0]) == HLO_OPCODE_COUNT ? ns * n * amount(x, OPERANDS) : 0;
  case HLO_REDUCE_WINDOW: return hlo_reducer_op(x->called[0]) == HLO_OPCODE_COUNT ? ns * n * amount(x, TAPS) : 0;
  case HLO_MAP: return ns * n;
  case HLO_WHILE: {
    int64_t trips = hlo_known_trip_count(x);
    return ns * (trips >= 0 ? (double)trips : GUESSED_TRIPS);
  }
  default: return ns;
  }
}

/* The time of `comp`: from the root down, the wanted elements of each instruction times its price. Adds the bytes
 * that are read of the parameters to *read_bytes. */
static double computation_ns(const pricing *p, const hlo_computation *comp, double least, int depth, double *read_bytes)
{
  int low, count;
  double ns = 0;

  hlo_id_range(comp, &low, &count);
  double *wanted = WEFT_ARENA_ARRAY(p->arena, double, count);
  if (!wanted) return 0;
  wanted -= low;
  wanted[comp->root->id] = elems_of(comp->root->shape);
  for (const hlo_instr *x = comp->last; x; x = x->prev) {
    double n = wanted[x->id];
    if (n == 0) continue;
    const price *price = price_of(x->op);
    want(x, n, wanted);
    if (x->op == HLO_PARAMETER && hlo_shape_is_array(x->shape))
      *read_bytes += n * (double)weft_dtype_bits(x->shape->type) / 8;
    if (price->kernel_ns > 0) ns += WEFT_MAX(n * amount(x, price->per), least) * unit_ns(x, price);
    if (x->called_count > 0) ns += called_ns(p, x, n, depth);
  }
  return ns;
}

static double bytes_written(const hlo_instr *root)
{
  double bytes = 0;

  if (root->op == HLO_TUPLE) {
    for (int i = 0; i < root->operand_count; i++) bytes += bytes_written(root->operands[i]);
    return bytes;
  }
  if (root->op == HLO_DYNAMIC_UPDATE_SLICE) return (double)hlo_shape_total_bytes(root->operands[1]->shape);
  if (root->op == HLO_SCATTER) return (double)hlo_shape_total_bytes(root->operands[root->operand_count - 1]->shape);
  return (double)hlo_shape_total_bytes(root->shape);
}

static double bytes_ns(const gen_target *target, double bytes)
{
  double near = WEFT_MIN(bytes, (double)target->cache_bytes);
  return near * target->costs.near_byte_ns + (bytes - near) * target->costs.far_byte_ns;
}

void gen_price(const gen_target *target, weft_arena *arena, const hlo_instr *fusion, gen_kernel *kernel)
{
  const hlo_computation *comp = fusion->called[0];
  pricing p = {target, arena};
  double bytes = bytes_written(comp->root), work = computation_ns(&p, comp, least_elems(target), 0, &bytes);
  double ns = target->costs.call_ns + work * target->costs.scale;

  ns += bytes_ns(target, bytes);
  kernel->bytes = bytes;
  HLO_FOREACH(x, comp)
    if (x->op == HLO_TRANSPOSE) ns += (double)hlo_shape_total_bytes(x->shape) * target->costs.turned_byte_ns;
  for (int i = 0; i < kernel->phase_count; i++) {
    gen_phase *phase = &kernel->phases[i];
    if (phase->unit_ns == 0 && phase->units > 0) phase->unit_ns = ns / (double)phase->units;
  }
}

/* A convolution whose groups have too few features for products of matrices. */
static bool has_few_features(const hlo_instr *instr)
{
  enum { FEW = 16 };
  if (instr->op != HLO_CONVOLUTION || instr->u.conv->feature_group_count == 1) return false;
  const hlo_shape *kernel = instr->operands[1]->shape;
  int64_t out = kernel->dims[instr->u.conv->rhs_out_feature] / instr->u.conv->feature_group_count;
  return out * kernel->dims[instr->u.conv->rhs_in_feature] <= FEW;
}

/* What it takes to convert the right operand of a dot of few rows as it is read, instead of once for all. */
static double widening_ns(const hlo_instr *dot)
{
  const double WIDENED_NS = 0.1; /* an element: 0.11 to 0.14 on Emerald Rapids, with the product of one row */
  gen_stored w;
  weft_dtype stored = dot->operands[1]->shape->type;

  if (gen_stored_of(dot->operands[1], true, &w)) stored = w.view.array->shape->type;
  return weft_dtype_bytes(stored) < weft_dtype_bytes(dot->operands[0]->shape->type)
           ? WIDENED_NS * elems_of(dot->operands[1]->shape)
           : 0;
}

double gen_library_ns(const gen_target *target, const hlo_instr *instr)
{
  if (gen_calls_kernel(instr)) { /* its products; the kernel is not the library's */
    double ns = 0;
    HLO_FOREACH(x, instr->called[0])
      if (gen_library_dot(x) || x->op == HLO_CONVOLUTION) ns += gen_library_ns(target, x);
    return ns;
  }
  if (gen_is_library_fusion(instr)) instr = instr->called[0]->root; /* a dot of parts of arrays reads these alone */
  const price *p = price_of(instr->op);
  double bytes = (double)hlo_shape_total_bytes(instr->shape), scale = width(type_of(instr));

  for (int i = 0; i < instr->operand_count; i++) bytes += (double)hlo_shape_total_bytes(instr->operands[i]->shape);
  if (has_few_features(instr)) scale *= 2; /* 0.04 to 0.06 ns with AVX2 */
  else if (p->per == FLOPS && scale == 1 && weft_dtype_bits(type_of(instr)) < 32) scale = 0.4; /* tiles */
  double work = WEFT_MAX(elems_of(instr->shape), 1) * amount(instr, p->per) * p->library_ns * scale;
  if (instr->op == HLO_REDUCE_WINDOW) work = elems_of(instr->shape) * SCAN_NS; /* a scan, whatever its windows */
  if (instr->op == HLO_DOT && target->block_threads <= 1) work += widening_ns(instr);
  return target->costs.library_ns + bytes_ns(target, bytes) + work * target->costs.scale;
}

/* A core reads what another core wrote at a third of the speed of its own cache, and the other core later writes
 * there again at that same speed (0.16 ns a byte for both on Sapphire and Emerald Rapids, up to 0.5 on Zen 4; a byte
 * that both cores read before one of them writes it costs 0.3 there). Threads keep
 * their shares from step to step (rt_parallel_for), and kernels are cut along their results, so few of the bytes
 * that they touch move between cores. If one thread produced an operand, half of its bytes must move to other cores,
 * so these bytes cost more; so do, where one thread does the step, the operands that several threads wrote, and its own
 * results if later steps are shared. In a matrix product each share reads a whole operand, so a byte of a library's
 * operation costs more than a byte of a kernel: 64x256 by 256x64, which one core does in
 * 14 us where it has the operands in its caches, takes two cores 19 to 28 us if each wrote a half of them. Bytes that
 * nobody writes do not move: each core keeps its own copy of what it reads. */
bool gen_pays_to_share(const gen_target *target, const gen_shareable *step, int threads)
{
  double most = (double)target->cache_bytes, whole = WEFT_MIN(step->whole, most);
  double rest = WEFT_MIN(WEFT_MAX(step->bytes - step->given - whole, 0), most);
  double alone = WEFT_MIN(step->shared + step->passed, most);
  const gen_costs *c = &target->costs;
  double read_ns = step->kind == GEN_LIBRARY ? WEFT_MIN(step->given, most) * c->near_byte_ns : 0;

  return step->ns - step->ns / threads + alone * c->whole_byte_ns >
         c->handover_ns + read_ns + rest * c->moved_byte_ns[step->kind] + whole * c->whole_byte_ns;
}
