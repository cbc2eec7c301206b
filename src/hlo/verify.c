/* hlo/verify.c -- checks that a module is well formed: its structure first, because shape inference relies on it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/infer_internal.h"

/* Working memory of one verification. */
typedef struct verifier {
  const hlo_module *module;
  weft_arena scratch;
  int *position;         /* by instruction id: 1 + position in its computation's list, 0: not seen yet */
  int *uses;             /* by instruction id: number of operands that name it */
  bool *computation_seen; /* by computation id */
  int64_t parts;         /* parts of the instructions' shapes so far */
} verifier;

#define BAD(fmt, ...) WEFT_ERR(INVALID_ARGUMENT, fmt __VA_OPT__(, ) __VA_ARGS__)

/* ---- structure --------------------------------------------------------------------------------------------------- */

static weft_status *verify_links(verifier *v, const hlo_instr *in, const hlo_computation *comp)
{
  for (int i = 0; i < in->operand_count; i++) {
    const hlo_instr *operand = in->operands[i];
    if (!operand) return BAD("operand %d is missing", i);
    if (operand->parent != comp)
      return BAD("operand %d, \"%s\", is in computation \"%s\"", i, operand->name,
                 operand->parent ? operand->parent->name : "(removed)");
    if (!v->position[operand->id]) return BAD("operand %d, \"%s\", comes after its user", i, operand->name);
    v->uses[operand->id]++;
  }
  for (int i = 0; i < in->control->pred_count; i++)
    if (in->control->preds[i]->parent != comp || !v->position[in->control->preds[i]->id])
      return BAD("control predecessor \"%s\" does not come before it", in->control->preds[i]->name);
  for (int i = 0; i < in->called_count; i++) {
    const hlo_computation *called = in->called[i];
    if (!called || called->module != v->module) return BAD("called computation %d is of no or another module", i);
    if (called == comp || !v->computation_seen[called->id])
      return BAD("computation \"%s\" is called before its end: calls may not recurse", called->name);
  }
  if (in->called_count > 0 && !hlo_opcode_calls(in->op)) return BAD("it may not call computations");
  return NULL;
}

static weft_status *verify_parameter(const hlo_instr *in, const hlo_computation *comp)
{
  int64_t number = in->u.parameter_number;

  if (number < 0 || number >= comp->param_count || comp->params[number] != in)
    return BAD("parameter number %" PRId64 " of a computation of %d, or given twice", number, comp->param_count);
  return NULL;
}

/* output_to_operand_aliasing: each entry names a part of the result and a part of an operand, of compatible shapes. */
static weft_status *verify_output_aliases(const hlo_instr *in, int count, const hlo_output_alias *aliases)
{
  for (int i = 0; i < count; i++) {
    const hlo_output_alias *a = &aliases[i];
    if (a->operand < 0 || a->operand >= in->operand_count)
      return BAD("output_to_operand_aliasing names operand %" PRId64 " of %d", a->operand, in->operand_count);
    const hlo_shape *from = in->operands[a->operand]->shape;
    const hlo_shape *part = hlo_shape_at(from, a->operand_index.v, a->operand_index.count);
    const hlo_shape *out = hlo_shape_at(in->shape, a->output_index.v, a->output_index.count);
    if (!part)
      return BAD("output_to_operand_aliasing names an element that operand %" PRId64 ", %s, does not have", a->operand,
                 SHAPE_TEXT(from));
    if (!out)
      return BAD("output_to_operand_aliasing names an element that the result, %s, does not have",
                 SHAPE_TEXT(in->shape));
    if (!hlo_shape_compatible(part, out))
      return BAD("output_to_operand_aliasing: operand %" PRId64 " has %s there, the result %s", a->operand,
                 SHAPE_TEXT(part), SHAPE_TEXT(out));
  }
  return NULL;
}

static weft_status *verify_instr(verifier *v, const hlo_instr *in, const hlo_computation *comp)
{
  const hlo_shape *inferred = NULL;

  if (in->parent != comp) return BAD("its parent is another computation");
  if (in->id < 0 || in->id >= v->module->next_id || v->position[in->id]) return BAD("its id %d is not its own", in->id);
  if (!in->shape) return BAD("it has no shape");
  v->parts += hlo_shape_parts(in->shape);
  if (v->parts > HLO_MAX_MODULE_PARTS)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "the shapes of all instructions have over %d parts", HLO_MAX_MODULE_PARTS);
  WEFT_TRY(verify_links(v, in, comp));
  if (in->op == HLO_PARAMETER) WEFT_TRY(verify_parameter(in, comp));
  WEFT_TRY(hlo_infer_shape(in, &inferred));
  if (!hlo_shape_is_sane(in->shape))
    return BAD("its shape %s is too large or has a negative size", SHAPE_TEXT(in->shape));
  if (!infer_same_shape(inferred, in->shape))
    return BAD("%s: the shape is %s, its operands give %s", hlo_opcode_name(in->op), SHAPE_TEXT(in->shape),
               SHAPE_TEXT(inferred));
  if (in->op == HLO_CUSTOM_CALL) return verify_output_aliases(in, in->u.custom->alias_count, in->u.custom->aliases);
  if (in->op == HLO_FUSION) return verify_output_aliases(in, in->u.fusion.alias_count, in->u.fusion.aliases);
  return NULL;
}

/* Names must be unique in a computation.  Duplicates are found by sorting the names. */
static int by_name(const void *a, const void *b)
{
  return strcmp((*(const hlo_instr *const *)a)->name, (*(const hlo_instr *const *)b)->name);
}

static weft_status *verify_names(verifier *v, const hlo_computation *comp, int count)
{
  const hlo_instr **sorted = WEFT_ARENA_ARRAY(&v->scratch, const hlo_instr *, count);
  int n = 0;

  WEFT_TRY_ALLOC(sorted);
  HLO_FOREACH(in, comp) {
    if (!in->name || !in->name[0]) return BAD("instruction %d has no name", in->id);
    sorted[n++] = in;
  }
  qsort(sorted, (size_t)n, sizeof(*sorted), by_name);
  for (int i = 1; i < n; i++)
    if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
      return BAD("two instructions are named \"%s\"", sorted[i]->name);
  return NULL;
}

static weft_status *verify_computation(verifier *v, const hlo_computation *comp)
{
  int count = 0;
  const hlo_instr *last = NULL;

  if (comp->module != v->module) return BAD("it belongs to another module");
  if (!comp->root || comp->root->parent != comp) return BAD("it has no root");
  for (int i = 0; i < comp->param_count; i++)
    if (!comp->params[i] || comp->params[i]->op != HLO_PARAMETER || comp->params[i]->parent != comp)
      return BAD("parameter %d is missing", i);
  HLO_FOREACH(in, comp) {
    WEFT_TRY_NOTE(verify_instr(v, in, comp), "instruction %s", hlo_describe(in, (char[256]){0}, 256));
    if (in->prev != last) return BAD("the list of instructions is broken at \"%s\"", in->name);
    v->position[in->id] = ++count;
    last = in;
  }
  if (comp->last != last || comp->instr_count != count)
    return BAD("it counts %d instructions and lists %d", comp->instr_count, count);
  HLO_FOREACH(in, comp) {
    if (in->user_count != v->uses[in->id])
      return BAD("instruction \"%s\" lists %d users, %d operands name it", in->name, in->user_count, v->uses[in->id]);
  }
  return verify_names(v, comp, count);
}

/* ---- the entry --------------------------------------------------------------------------------------------------- */

static weft_status *verify_parameter_index(const hlo_module *m, const char *what, int64_t parameter, hlo_ints index,
                                           const hlo_shape **out)
{
  if (parameter < 0 || parameter >= m->entry->param_count)
    return BAD("%s names parameter %" PRId64 " of %d", what, parameter, m->entry->param_count);
  const hlo_shape *at = hlo_shape_at(m->entry->params[parameter]->shape, index.v, index.count);
  if (!at) return BAD("%s names an element that parameter %" PRId64 " does not have", what, parameter);
  *out = at;
  return NULL;
}

static weft_status *verify_entry(const hlo_module *m)
{
  const hlo_shape *root = m->entry->root->shape;

  for (int i = 0; m->has_entry_layout && i < m->entry->param_count; i++)
    if (!m->entry_param_shapes || !m->entry_param_shapes[i])
      return BAD("entry_computation_layout lacks parameter %d", i);
  if (m->has_entry_layout && !m->entry_result_shape) return BAD("entry_computation_layout lacks the result");
  for (int i = 0; i < m->alias_count; i++) {
    const hlo_input_output_alias *a = &m->aliases[i];
    const hlo_shape *in, *out = hlo_shape_at(root, a->output_index.v, a->output_index.count);
    WEFT_TRY(verify_parameter_index(m, "input_output_alias", a->parameter, a->parameter_index, &in));
    if (!out) return BAD("input_output_alias names an output that %s does not have", SHAPE_TEXT(root));
    if (hlo_shape_total_bytes(in) != hlo_shape_total_bytes(out))
      return BAD("input_output_alias: sizes differ: %s (parameter %" PRId64 "), %s (output)", SHAPE_TEXT(in),
                 a->parameter, SHAPE_TEXT(out));
  }
  for (int i = 0; i < m->donor_count; i++) {
    const hlo_shape *in;
    WEFT_TRY(verify_parameter_index(m, "buffer_donor", m->donors[i].parameter, m->donors[i].parameter_index, &in));
  }
  if (m->replica_count < 1 || m->num_partitions < 1 || m->replica_count > INT32_MAX || m->num_partitions > INT32_MAX)
    return BAD("%" PRId64 " replicas, %" PRId64 " partitions", m->replica_count, m->num_partitions);
  return NULL;
}

static weft_status *verify_module(verifier *v)
{
  const hlo_module *m = v->module;
  int count = 0;

  v->position = WEFT_ARENA_ARRAY(&v->scratch, int, m->next_id + 1);
  v->uses = WEFT_ARENA_ARRAY(&v->scratch, int, m->next_id + 1);
  v->computation_seen = WEFT_ARENA_ARRAY(&v->scratch, bool, m->next_computation_id + 1);
  WEFT_TRY_ALLOC(v->position);
  WEFT_TRY_ALLOC(v->uses);
  WEFT_TRY_ALLOC(v->computation_seen);
  HLO_FOREACH_COMPUTATION(comp, m) {
    if (comp->id < 0 || comp->id >= m->next_computation_id || v->computation_seen[comp->id])
      return BAD("computation \"%s\": its id %d is not its own", comp->name, comp->id);
    WEFT_TRY_NOTE(verify_computation(v, comp), "computation \"%s\"", comp->name);
    v->computation_seen[comp->id] = true;
    count++;
  }
  if (count != m->computation_count) return BAD("it counts %d computations and lists %d", m->computation_count, count);
  if (!m->entry || m->entry->module != m || !v->computation_seen[m->entry->id])
    return BAD("it has no entry computation");
  return verify_entry(m);
}

weft_status *hlo_verify(const hlo_module *module)
{
  verifier v = {.module = module};

  weft_arena_init(&v.scratch);
  weft_status *st = verify_module(&v);
  weft_arena_fini(&v.scratch);
  WEFT_TRY_NOTE(st, "module \"%s\"", module->name);
  return NULL;
}
