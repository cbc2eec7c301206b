/* hlo/query.c -- questions about instructions: effects, equality, hashes, descriptions. */
#include <config.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hlo/attributes.h"
#include "hlo/frames.h"
#include "base/hash.h"

/* A program may nest calls, and call one computation, without bound.  Past these limits the answer is the safe one: the
 * instruction has an effect, the computations differ. */
enum { MAX_CALL_DEPTH = 200, MAX_VISITS = 1 << 18, REMEMBERED = 256 };

typedef struct effect_search {
  int visits;
  const hlo_computation *clear[REMEMBERED]; /* computations without effects, by id modulo REMEMBERED */
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
    snprintf(buf + at, size - (size_t)at, " (%s%s%s%s%.0d)", m->op_name ? m->op_name : "",
             m->op_name && located ? ", " : "", located ? file : "", located && line ? ":" : "", located ? line : 0);
  return buf;
}

/* ---- equality ---------------------------------------------------------------------------------------------------- */

bool hlo_ints_equal(hlo_ints a, hlo_ints b)
{
  return a.count == b.count && (a.count == 0 || memcmp(a.v, b.v, (size_t)a.count * sizeof *a.v) == 0);
}

static bool same_text(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

static bool same_mesh(const hlo_mesh *a, const hlo_mesh *b)
{
  if (a->axis_count != b->axis_count || !hlo_ints_equal(a->device_ids, b->device_ids)) return false;
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
      if (!hlo_ints_equal(a->groups[i], b->groups[i])) return false;
    return true;
  case HLO_GROUPS_IOTA:
    return a->num_groups == b->num_groups && a->group_size == b->group_size &&
           hlo_ints_equal(a->reshape_dims, b->reshape_dims) && hlo_ints_equal(a->transpose_perm, b->transpose_perm);
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

static bool computation_equal(const hlo_computation *a, const hlo_computation *b, int depth, int *visits);

/* Everything but operands. */
static bool same_but_operands(const hlo_instr *a, const hlo_instr *b, int depth, int *visits)
{
  if (++*visits > MAX_VISITS) return false;
  if (a->op != b->op || a->operand_count != b->operand_count || a->called_count != b->called_count ||
      !hlo_shape_equal(a->shape, b->shape, true) || !hlo_same_attributes(a, b))
    return false;
  for (int i = 0; i < a->called_count; i++)
    if (!computation_equal(a->called[i], b->called[i], depth + 1, visits)) return false;
  return true;
}

bool hlo_instr_alike(const hlo_instr *a, const hlo_instr *b) { return same_but_operands(a, b, 0, &(int){0}); }

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

/* Walks both lists together.  The operands of two instructions must stand at the same places of their lists, so equal
 * computations that are listed in different orders count as different, which is safe.  Computations whose calls nest
 * too deep, or visit too many instructions, count as different, too. */
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

static uint64_t hash_shape(uint64_t hash, const hlo_shape *s)
{
  hash = weft_mix(hash, (uint64_t)s->type << 8 | (uint64_t)s->rank);
  if (s->elements) {
    for (int i = 0; i < s->rank; i++) hash = hash_shape(hash, s->elements[i]);
    return hash;
  }
  return s->rank ? weft_hash_bytes(hash, s->dims, (size_t)s->rank * sizeof *s->dims) : hash;
}

static uint64_t computation_hash(const hlo_computation *comp, int depth);

/* The hash follows calls to this depth, which keeps it linear for all but hostile programs. */
enum { HASHED_CALLS = 3 };

static uint64_t hash_but_operands(const hlo_instr *instr, int depth)
{
  uint64_t hash = hash_shape(weft_mix(1, instr->op), instr->shape);

  hash = hlo_hash_attributes(hash, instr);
  if (depth < HASHED_CALLS)
    for (int i = 0; i < instr->called_count; i++) hash = weft_mix(hash, computation_hash(instr->called[i], depth + 1));
  return hash;
}

uint64_t hlo_instr_hash(const hlo_instr *instr)
{
  uint64_t hash = hash_but_operands(instr, 0);

  for (int i = 0; i < instr->operand_count; i++) hash = weft_mix(hash, (uint64_t)instr->operands[i]->id);
  return hash;
}

static uint64_t computation_hash(const hlo_computation *comp, int depth)
{
  weft_arena scratch;
  int *place, at = 0, least, count;
  uint64_t hash = weft_mix(2, (uint64_t)comp->instr_count);

  weft_arena_init(&scratch);
  hlo_id_range(comp, &least, &count);
  place = WEFT_ARENA_ARRAY(&scratch, int, count);
  for (const hlo_instr *instr = comp->first; place && instr; instr = instr->next) {
    place[instr->id - least] = at++;
    hash = weft_mix(hash, hash_but_operands(instr, depth));
    for (int i = 0; i < instr->operand_count; i++)
      hash = weft_mix(hash, (uint64_t)place[instr->operands[i]->id - least]);
  }
  if (place && comp->root) hash = weft_mix(hash, (uint64_t)place[comp->root->id - least]);
  weft_arena_fini(&scratch);
  return hash;
}

uint64_t hlo_computation_hash(const hlo_computation *comp) { return computation_hash(comp, 0); }
