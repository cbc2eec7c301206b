/* hlo/query.c -- questions about instructions: effects, equality, hashes, descriptions. */
#include <config.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hlo/frames.h"
#include "hlo/hlo.h"

/* Call chains are as deep, and callers of one computation as many, as a program makes them; past these the answer is the
 * safe one. */
enum { MAX_CALL_DEPTH = 200, MAX_VISITS = 1 << 18, REMEMBERED = 256 };

typedef struct effect_search {
  int visits;
  const hlo_computation *clear[REMEMBERED]; /* computations without effects, by the end of their ids */
} effect_search;

static bool instr_itself_has_side_effect(const hlo_instr *instr)
{
  if (hlo_opcode_has_side_effect(instr->op)) return true;
  if (hlo_opcode_is_collective(instr->op) && instr->u.collective && instr->u.collective->channel_id) return true;
  return instr->op == HLO_CUSTOM_CALL && instr->u.custom && instr->u.custom->has_side_effect;
}

static bool calls_have_side_effect(effect_search *s, const hlo_instr *instr, int depth)
{
  if (depth > MAX_CALL_DEPTH) return true;
  for (int i = 0; i < instr->called_count; i++) {
    const hlo_computation *comp = instr->called[i], **known = &s->clear[comp->id % REMEMBERED];
    if (*known == comp) continue;
    for (const hlo_instr *x = comp->first; x; x = x->next)
      if (++s->visits > MAX_VISITS || instr_itself_has_side_effect(x) || calls_have_side_effect(s, x, depth + 1))
        return true;
    *known = comp;
  }
  return false;
}

bool hlo_has_side_effect(const hlo_instr *instr)
{
  if (instr_itself_has_side_effect(instr)) return true;
  return instr->called_count > 0 && calls_have_side_effect(&(effect_search){0}, instr, 0);
}

bool hlo_is_dead(const hlo_instr *instr)
{
  return instr->user_count == 0 && instr->parent->root != instr && instr->op != HLO_PARAMETER &&
         instr->control->pred_count == 0 && instr->control->succ_count == 0 && !hlo_has_side_effect(instr);
}

bool hlo_is_constant_scalar(const hlo_instr *instr, double value)
{
  while (instr->op == HLO_BROADCAST) instr = instr->operands[0];
  return instr->op == HLO_CONSTANT && hlo_shape_is_array(instr->shape) && hlo_literal_is_all(instr->u.literal, value);
}

bool hlo_calls_are_embedded(hlo_opcode op)
{
  switch (op) {
  case HLO_CALL:
  case HLO_CONDITIONAL:
  case HLO_WHILE:
  case HLO_FUSION:
  case HLO_ASYNC_START:
  case HLO_ASYNC_UPDATE:
  case HLO_ASYNC_DONE:
  case HLO_CUSTOM_CALL: return false;
  default: return hlo_opcode_calls(op);
  }
}

double hlo_multiply_add_flops(const hlo_instr *instr)
{
  double flops = 2 * (instr->op == HLO_DOT || instr->op == HLO_CONVOLUTION ? (double)hlo_shape_elems(instr->shape) : 0);

  if (instr->op == HLO_DOT) {
    const hlo_ints contracting = instr->u.dot->lhs_contracting;
    for (int i = 0; i < contracting.count; i++) flops *= (double)instr->operands[0]->shape->dims[contracting.v[i]];
  } else if (instr->op == HLO_CONVOLUTION) {
    const hlo_shape *kernel = instr->operands[1]->shape;
    flops *= (double)hlo_shape_elems(kernel) / (double)WEFT_MAX(kernel->dims[instr->u.conv->rhs_out_feature], 1);
  }
  return flops;
}

int64_t hlo_known_trip_count(const hlo_instr *loop)
{
  const char *at = loop->extra ? loop->extra->backend_config : NULL;
  long long n;

  at = at ? strstr(at, "\"known_trip_count\"") : NULL;
  at = at ? strstr(at, "\"n\"") : NULL;
  at = at ? strpbrk(at + 3, "0123456789}") : NULL;
  return at && sscanf(at, "%lld", &n) == 1 ? n : -1;
}

hlo_opcode hlo_reducer_op(const hlo_computation *comp)
{
  const hlo_instr *root = comp->root;

  if (comp->param_count != 2 || comp->instr_count != 3 || root->operand_count != 2) return HLO_OPCODE_COUNT;
  if ((root->operands[0] == comp->params[0] && root->operands[1] == comp->params[1]) ||
      (root->operands[0] == comp->params[1] && root->operands[1] == comp->params[0])) {
    switch (root->op) { /* where the order of operands does not matter */
    case HLO_ADD:
    case HLO_MULTIPLY:
    case HLO_MAXIMUM:
    case HLO_MINIMUM:
    case HLO_AND:
    case HLO_OR:
    case HLO_XOR: return root->op;
    default: return HLO_OPCODE_COUNT;
    }
  }
  return HLO_OPCODE_COUNT;
}

const char *hlo_frontend_attribute(const hlo_instr *instr, const char *key)
{
  if (!instr->extra) return NULL;
  for (int i = 0; i < instr->extra->frontend_count; i++)
    if (strcmp(instr->extra->frontend_attributes[i].key, key) == 0) return instr->extra->frontend_attributes[i].value;
  return NULL;
}

const char *hlo_describe(const hlo_instr *instr, char *buf, size_t size)
{
  const hlo_metadata *m = instr->metadata;
  const char *file = NULL;
  int at = snprintf(buf, size, "%%%s", instr->name), line = 0;
  bool located;

  if (!m || at < 0 || (size_t)at >= size) return buf;
  located = hlo_source_place(instr, &file, &line);
  if (m->op_name || located)
    snprintf(buf + at, size - (size_t)at, " (%s%s%s%s%.0d)", m->op_name ? m->op_name : "", m->op_name && located ? ", " : "",
             located ? file : "", located && line ? ":" : "", located ? line : 0);
  return buf;
}

/* ---- equality ---------------------------------------------------------------------------------------------------- */

static bool same_ints(hlo_ints a, hlo_ints b)
{
  return a.count == b.count && (a.count == 0 || memcmp(a.v, b.v, (size_t)a.count * sizeof *a.v) == 0);
}

static bool same_text(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

static bool same_window(const hlo_window *a, const hlo_window *b)
{
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++) {
    const hlo_window_dim *x = &a->dims[i], *y = &b->dims[i];
    if (x->size != y->size || x->stride != y->stride || x->pad_low != y->pad_low || x->pad_high != y->pad_high ||
        x->window_dilation != y->window_dilation || x->base_dilation != y->base_dilation || x->reversal != y->reversal)
      return false;
  }
  return true;
}

static bool same_precision(int a_count, const hlo_precision *a, int b_count, const hlo_precision *b)
{
  return a_count == b_count && (a_count == 0 || memcmp(a, b, (size_t)a_count * sizeof *a) == 0);
}

static bool same_dot(const hlo_dot_attrs *a, const hlo_dot_attrs *b)
{
  return same_ints(a->lhs_batch, b->lhs_batch) && same_ints(a->rhs_batch, b->rhs_batch) &&
         same_ints(a->lhs_contracting, b->lhs_contracting) && same_ints(a->rhs_contracting, b->rhs_contracting) &&
         same_precision(a->precision_count, a->precision, b->precision_count, b->precision) &&
         a->algorithm == b->algorithm && same_ints(a->lhs_ragged, b->lhs_ragged) &&
         same_ints(a->rhs_group, b->rhs_group) && same_text(a->sparsity, b->sparsity);
}

static bool same_conv(const hlo_conv_attrs *a, const hlo_conv_attrs *b)
{
  return same_window(&a->window, &b->window) && a->lhs_batch == b->lhs_batch && a->lhs_feature == b->lhs_feature &&
         a->rhs_in_feature == b->rhs_in_feature && a->rhs_out_feature == b->rhs_out_feature &&
         a->out_batch == b->out_batch && a->out_feature == b->out_feature && same_ints(a->lhs_spatial, b->lhs_spatial) &&
         same_ints(a->rhs_spatial, b->rhs_spatial) && same_ints(a->out_spatial, b->out_spatial) &&
         a->feature_group_count == b->feature_group_count && a->batch_group_count == b->batch_group_count &&
         same_precision(a->precision_count, a->precision, b->precision_count, b->precision) && a->kind == b->kind;
}

static bool same_gather(const hlo_gather_attrs *a, const hlo_gather_attrs *b)
{
  return same_ints(a->offset_dims, b->offset_dims) && same_ints(a->collapsed_slice_dims, b->collapsed_slice_dims) &&
         same_ints(a->start_index_map, b->start_index_map) &&
         same_ints(a->operand_batching_dims, b->operand_batching_dims) &&
         same_ints(a->start_indices_batching_dims, b->start_indices_batching_dims) &&
         a->index_vector_dim == b->index_vector_dim && same_ints(a->slice_sizes, b->slice_sizes) &&
         a->indices_are_sorted == b->indices_are_sorted;
}

static bool same_scatter(const hlo_scatter_attrs *a, const hlo_scatter_attrs *b)
{
  return same_ints(a->update_window_dims, b->update_window_dims) &&
         same_ints(a->inserted_window_dims, b->inserted_window_dims) &&
         same_ints(a->scatter_dims_to_operand_dims, b->scatter_dims_to_operand_dims) &&
         same_ints(a->input_batching_dims, b->input_batching_dims) &&
         same_ints(a->scatter_indices_batching_dims, b->scatter_indices_batching_dims) &&
         a->index_vector_dim == b->index_vector_dim && a->indices_are_sorted == b->indices_are_sorted &&
         a->unique_indices == b->unique_indices;
}

static bool same_aliases(int a_count, const hlo_output_alias *a, int b_count, const hlo_output_alias *b)
{
  if (a_count != b_count) return false;
  for (int i = 0; i < a_count; i++)
    if (!same_ints(a[i].output_index, b[i].output_index) || a[i].operand != b[i].operand ||
        !same_ints(a[i].operand_index, b[i].operand_index))
      return false;
  return true;
}

static bool same_mesh(const hlo_mesh *a, const hlo_mesh *b)
{
  if (a->axis_count != b->axis_count || !same_ints(a->device_ids, b->device_ids)) return false;
  for (int i = 0; i < a->axis_count; i++)
    if (a->axes[i].size != b->axes[i].size || !same_text(a->axes[i].name, b->axes[i].name)) return false;
  return true;
}

bool hlo_replica_groups_equal(const hlo_replica_groups *a, const hlo_replica_groups *b)
{
  if (a->form != b->form) return false;
  switch (a->form) {
  case HLO_GROUPS_LIST:
    if (a->group_count != b->group_count) return false;
    for (int i = 0; i < a->group_count; i++)
      if (!same_ints(a->groups[i], b->groups[i])) return false;
    return true;
  case HLO_GROUPS_IOTA:
    return a->num_groups == b->num_groups && a->group_size == b->group_size && same_ints(a->reshape_dims, b->reshape_dims) &&
           same_ints(a->transpose_perm, b->transpose_perm);
  case HLO_GROUPS_MESH:
    if (a->axis_count != b->axis_count || !same_mesh(a->mesh, b->mesh)) return false;
    for (int i = 0; i < a->axis_count; i++)
      if (a->axes[i].pre_size != b->axes[i].pre_size || a->axes[i].size != b->axes[i].size ||
          !same_text(a->axes[i].name, b->axes[i].name))
        return false;
    return true;
  }
  return false;
}

/* Custom calls and collectives are compared by identity of their attributes: they are never merged. */
static bool same_attributes(const hlo_instr *a, const hlo_instr *b)
{
  if (!same_ints(a->dims, b->dims)) return false;
  switch (a->op) {
  case HLO_PARAMETER: return a->u.parameter_number == b->u.parameter_number;
  case HLO_GET_TUPLE_ELEMENT: return a->u.tuple_index == b->u.tuple_index;
  case HLO_CONSTANT: return hlo_literal_equal(a->u.literal, b->u.literal);
  case HLO_COMPARE:
    return a->u.compare.direction == b->u.compare.direction && a->u.compare.type == b->u.compare.type;
  case HLO_SLICE:
    return same_ints(a->u.slice->start, b->u.slice->start) && same_ints(a->u.slice->limit, b->u.slice->limit) &&
           same_ints(a->u.slice->stride, b->u.slice->stride);
  case HLO_DYNAMIC_SLICE: return same_ints(a->u.slice_sizes, b->u.slice_sizes);
  case HLO_PAD:
    return a->u.pad.rank == b->u.pad.rank &&
           (a->u.pad.rank == 0 ||
            memcmp(a->u.pad.dims, b->u.pad.dims, (size_t)a->u.pad.rank * sizeof *a->u.pad.dims) == 0);
  case HLO_REDUCE_PRECISION:
    return a->u.reduce_precision.exponent_bits == b->u.reduce_precision.exponent_bits &&
           a->u.reduce_precision.mantissa_bits == b->u.reduce_precision.mantissa_bits;
  case HLO_DOT:
  case HLO_RAGGED_DOT:
  case HLO_SCALED_DOT: return same_dot(a->u.dot, b->u.dot);
  case HLO_CONVOLUTION: return same_conv(a->u.conv, b->u.conv);
  case HLO_REDUCE_WINDOW:
  case HLO_SELECT_AND_SCATTER: return same_window(a->u.window, b->u.window);
  case HLO_GATHER: return same_gather(a->u.gather, b->u.gather);
  case HLO_SCATTER: return same_scatter(a->u.scatter, b->u.scatter);
  case HLO_FFT: return a->u.fft_type == b->u.fft_type;
  case HLO_CHOLESKY: return a->u.lower == b->u.lower;
  case HLO_TRIANGULAR_SOLVE:
    return a->u.triangular.left_side == b->u.triangular.left_side && a->u.triangular.lower == b->u.triangular.lower &&
           a->u.triangular.unit_diagonal == b->u.triangular.unit_diagonal &&
           a->u.triangular.transpose_a == b->u.triangular.transpose_a;
  case HLO_TOPK:
    return a->u.topk.k == b->u.topk.k && a->u.topk.largest == b->u.topk.largest &&
           a->u.topk.is_stable == b->u.topk.is_stable;
  case HLO_SORT: return a->u.is_stable == b->u.is_stable;
  case HLO_SCAN:
    return a->u.scan.num_carries == b->u.scan.num_carries && a->u.scan.is_reverse == b->u.scan.is_reverse &&
           a->u.scan.is_associative == b->u.scan.is_associative;
  case HLO_RNG: return a->u.distribution == b->u.distribution;
  case HLO_RNG_BIT_GENERATOR: return a->u.rng_algorithm == b->u.rng_algorithm;
  case HLO_RNG_GET_AND_UPDATE_STATE: return a->u.delta == b->u.delta;
  case HLO_BATCH_NORM_GRAD:
  case HLO_BATCH_NORM_INFERENCE:
  case HLO_BATCH_NORM_TRAINING:
    return a->u.batch_norm.epsilon == b->u.batch_norm.epsilon &&
           a->u.batch_norm.feature_index == b->u.batch_norm.feature_index;
  case HLO_FUSION:
    return a->u.fusion.kind == b->u.fusion.kind &&
           same_text(a->extra ? a->extra->backend_config : NULL, b->extra ? b->extra->backend_config : NULL) &&
           same_aliases(a->u.fusion.alias_count, a->u.fusion.aliases, b->u.fusion.alias_count, b->u.fusion.aliases);
  case HLO_CALL: return a->u.is_composite == b->u.is_composite;
  case HLO_CUSTOM_CALL: return a->u.custom == b->u.custom && a->extra == b->extra;
  case HLO_DOMAIN: return a->u.domain.entry == b->u.domain.entry && a->u.domain.exit == b->u.domain.exit;
  case HLO_INFEED:
  case HLO_OUTFEED: return same_text(a->u.feed.config, b->u.feed.config);
  case HLO_COPY_START:
    return a->u.copy_start.is_prefetch == b->u.copy_start.is_prefetch &&
           a->u.copy_start.prefetch_index == b->u.copy_start.prefetch_index;
  default:
    if (hlo_opcode_is_collective(a->op) || a->op == HLO_SEND || a->op == HLO_RECV || a->op == HLO_SEND_DONE ||
        a->op == HLO_RECV_DONE)
      return a->u.collective == b->u.collective;
    return true;
  }
}

static bool computation_equal(const hlo_computation *a, const hlo_computation *b, int depth, int *visits);

/* Everything but operands. */
static bool same_but_operands(const hlo_instr *a, const hlo_instr *b, int depth, int *visits)
{
  if (++*visits > MAX_VISITS) return false;
  if (a->op != b->op || a->operand_count != b->operand_count || a->called_count != b->called_count ||
      !hlo_shape_equal(a->shape, b->shape, true) || !same_attributes(a, b))
    return false;
  for (int i = 0; i < a->called_count; i++)
    if (!computation_equal(a->called[i], b->called[i], depth + 1, visits)) return false;
  return true;
}

bool hlo_instr_equal(const hlo_instr *a, const hlo_instr *b)
{
  if (a == b) return true;
  if (a->operand_count != b->operand_count) return false;
  for (int i = 0; i < a->operand_count; i++)
    if (a->operands[i] != b->operands[i]) return false;
  return same_but_operands(a, b, 0, &(int){0});
}

void hlo_id_range(const hlo_computation *comp, int *out_least, int *out_count)
{
  int least = comp->first ? comp->first->id : 0, most = least;

  for (const hlo_instr *instr = comp->first; instr; instr = instr->next) {
    least = WEFT_MIN(least, instr->id);
    most = WEFT_MAX(most, instr->id);
  }
  *out_least = least;
  *out_count = most - least + 1;
}

/* Walks both lists together; operands must sit at the same places.  Equal computations listed in another order count
 * as different, which is safe; so do those that call too deep, or too much. */
static bool computation_equal(const hlo_computation *a, const hlo_computation *b, int depth, int *visits)
{
  weft_arena scratch;
  const hlo_instr **twin;
  bool equal = true;
  int least, count;

  if (a == b) return true;
  if (a->instr_count != b->instr_count || a->param_count != b->param_count || depth > MAX_CALL_DEPTH) return false;
  weft_arena_init(&scratch);
  hlo_id_range(a, &least, &count);
  twin = WEFT_ARENA_ARRAY(&scratch, const hlo_instr *, count);
  equal = twin != NULL;
  for (const hlo_instr *x = a->first, *y = b->first; equal && x; x = x->next, y = y->next) {
    twin[x->id - least] = y;
    equal = same_but_operands(x, y, depth, visits);
    for (int i = 0; equal && i < x->operand_count; i++) equal = twin[x->operands[i]->id - least] == y->operands[i];
  }
  equal = equal && twin[a->root->id - least] == b->root;
  weft_arena_fini(&scratch);
  return equal;
}

bool hlo_computation_equal(const hlo_computation *a, const hlo_computation *b)
{
  return computation_equal(a, b, 0, &(int){0});
}

/* ---- hashes ------------------------------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t hash, uint64_t value)
{
  hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
  return hash ^ hash >> 29;
}

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t size)
{
  const char *at = data;

  for (; size >= 8; at += 8, size -= 8) {
    uint64_t word;
    memcpy(&word, at, 8);
    hash = mix(hash, word);
  }
  if (size) {
    uint64_t word = 0;
    memcpy(&word, at, size);
    hash = mix(hash, word ^ size << 56);
  }
  return hash;
}

static uint64_t hash_shape(uint64_t hash, const hlo_shape *s)
{
  hash = mix(hash, (uint64_t)s->type << 8 | (uint64_t)s->rank);
  if (s->elements) {
    for (int i = 0; i < s->rank; i++) hash = hash_shape(hash, s->elements[i]);
    return hash;
  }
  return s->rank ? hash_bytes(hash, s->dims, (size_t)s->rank * sizeof *s->dims) : hash;
}

/* The whole of a literal up to this size, and its ends above: equal literals hash alike either way. */
enum { HASHED_LITERAL_BYTES = 1 << 16 };

static uint64_t hash_literal(uint64_t hash, const hlo_literal *lit)
{
  size_t bytes = (size_t)hlo_shape_bytes(lit->shape);

  if (lit->elements) {
    for (int i = 0; i < lit->shape->rank; i++) hash = hash_literal(hash, lit->elements[i]);
    return hash;
  }
  if (bytes <= HASHED_LITERAL_BYTES) return hash_bytes(hash, lit->data, bytes);
  hash = hash_bytes(hash, lit->data, HASHED_LITERAL_BYTES / 2);
  return hash_bytes(hash, (const char *)lit->data + bytes - HASHED_LITERAL_BYTES / 2, HASHED_LITERAL_BYTES / 2);
}

static uint64_t computation_hash(const hlo_computation *comp, int depth);

/* What is called is looked into to a depth that keeps this linear for all but hostile programs. */
enum { HASHED_CALLS = 3 };

static uint64_t hash_but_operands(const hlo_instr *instr, int depth)
{
  uint64_t hash = hash_shape(mix(1, instr->op), instr->shape);

  if (instr->dims.count) hash = hash_bytes(hash, instr->dims.v, (size_t)instr->dims.count * sizeof *instr->dims.v);
  switch (instr->op) {
  case HLO_PARAMETER: hash = mix(hash, (uint64_t)instr->u.parameter_number); break;
  case HLO_GET_TUPLE_ELEMENT: hash = mix(hash, (uint64_t)instr->u.tuple_index); break;
  case HLO_CONSTANT: hash = hash_literal(hash, instr->u.literal); break;
  case HLO_COMPARE: hash = mix(hash, instr->u.compare.direction); break;
  case HLO_SLICE:
    if (instr->u.slice->start.count)
      hash = hash_bytes(hash, instr->u.slice->start.v, (size_t)instr->u.slice->start.count * sizeof(int64_t));
    break;
  default: break;
  }
  if (depth < HASHED_CALLS)
    for (int i = 0; i < instr->called_count; i++) hash = mix(hash, computation_hash(instr->called[i], depth + 1));
  return hash;
}

uint64_t hlo_instr_hash(const hlo_instr *instr)
{
  uint64_t hash = hash_but_operands(instr, 0);

  for (int i = 0; i < instr->operand_count; i++) hash = mix(hash, (uint64_t)instr->operands[i]->id);
  return hash;
}

static uint64_t computation_hash(const hlo_computation *comp, int depth)
{
  weft_arena scratch;
  int *place, at = 0, least, count;
  uint64_t hash = mix(2, (uint64_t)comp->instr_count);

  weft_arena_init(&scratch);
  hlo_id_range(comp, &least, &count);
  place = WEFT_ARENA_ARRAY(&scratch, int, count);
  for (const hlo_instr *instr = comp->first; place && instr; instr = instr->next) {
    place[instr->id - least] = at++;
    hash = mix(hash, hash_but_operands(instr, depth));
    for (int i = 0; i < instr->operand_count; i++) hash = mix(hash, (uint64_t)place[instr->operands[i]->id - least]);
  }
  if (place && comp->root) hash = mix(hash, (uint64_t)place[comp->root->id - least]);
  weft_arena_fini(&scratch);
  return hash;
}

uint64_t hlo_computation_hash(const hlo_computation *comp) { return computation_hash(comp, 0); }
