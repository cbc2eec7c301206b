/* tests/random_control.h -- Random programs of control flow: arrays of one shape that loops, conditionals, calls,
 * optimisation barriers, updates in place and custom calls with aliased outputs compute, exchange, repeat and hand on
 * as they are.  Values are integers, so that results are the same bits everywhere.  The same seed gives the same
 * program and arguments everywhere.
 *
 * A program of several devices has collectives too, except in *lonely* code: branches and loops that depend on what
 * each device has, so that some devices may not come there. */
#ifndef WEFT_TESTS_RANDOM_CONTROL_H
#define WEFT_TESTS_RANDOM_CONTROL_H

#include "passes/eval_compare.h"

#include "hlo/infer.h"
#include "hlo/text.h"
#include "passes/build.h"
#include "passes/util.h"
#include "random_collectives.h"

enum { MOST_VALUES = 4, MOST_NESTING = 3, TYPED_FFI = 4 };
#define CONTROL_TARGET "weft.test.mix"

/* The custom call: result r is the sum of (r + k + 1) times operand k.  Each element depends on those of its own index
 * alone, and all operands' elements are read before a result's is written, so that any output may alias any operand. */
static inline void control_mix(int operands, const uint32_t *const *in, int results, uint32_t *const *out,
                               int64_t elems)
{
  for (int64_t i = 0; i < elems; i++) {
    uint32_t sums[MOST_VALUES] = {0};
    for (int r = 0; r < results; r++)
      for (int k = 0; k < operands; k++) sums[r] += (uint32_t)(r + k + 1) * in[k][i];
    for (int r = 0; r < results; r++) out[r][i] = sums[r];
  }
}

/* The same for the evaluator. */
static weft_status *eval_control_mix(void *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                     weft_arena *arena, const hlo_literal **out)
{
  bool is_tuple = hlo_shape_is_tuple(instr->shape);
  int results = is_tuple ? instr->shape->rank : 1;
  const uint32_t *in[MOST_VALUES];
  uint32_t *to[MOST_VALUES];
  hlo_literal *tuple, *each;

  (void)ctx;
  WEFT_TRY(hlo_literal_new(arena, instr->shape, &tuple));
  for (int i = 0; i < instr->operand_count; i++) in[i] = operands[i]->data;
  for (int r = 0; r < results; r++) {
    each = tuple;
    if (is_tuple) WEFT_TRY(hlo_literal_new(arena, instr->shape->elements[r], &each));
    if (is_tuple) tuple->elements[r] = each;
    to[r] = each->data;
  }
  control_mix(instr->operand_count, in, results, to, hlo_shape_elems(operands[0]->shape));
  *out = tuple;
  return NULL;
}

typedef struct juggler {
  uint64_t state;
  hlo_module *module;
  weft_arena *arena;
  const hlo_shape *shape; /* of every value */
  int budget;             /* steps that may still be made */
  device_grid grid;
  bool is_lonely;         /* in code that some devices may not reach */
} juggler;

static int64_t draw(juggler *j, int64_t below) { return (int64_t)(next_random(&j->state) % (uint64_t)below); }

static void juggle(juggler *j, pass_build *b, hlo_instr **v, int count, int depth);

static bool is_alone(const juggler *j) { return j->grid.replicas * j->grid.partitions == 1; }

static hlo_computation *new_computation(juggler *j, const char *prefix)
{
  hlo_computation *comp;
  const char *name;

  T_OK(hlo_unique_name(j->module, prefix, &name));
  T_OK(hlo_computation_new(j->module, name, &comp));
  return comp;
}

/* Operands from the values: mostly each value at its own place, sometimes two values exchanged, or one value several
 * times. */
static void choose(juggler *j, hlo_instr **v, int count, hlo_instr **out)
{
  bool any = draw(j, 2);
  for (int i = 0; i < count; i++) out[i] = v[any && draw(j, 2) ? draw(j, count) : i];
}

/* A scalar index from the first element of some value. */
static hlo_instr *small_number(juggler *j, pass_build *b, hlo_instr **v, int count, int64_t below)
{
  hlo_instr *one = pb_reshape(b, pb_slice_dim(b, v[draw(j, count)], 0, 0, 1), 0, NULL);
  return pb_convert(b, pb_op2(b, HLO_REMAINDER, one, pb_int(b, WEFT_U32, below)), WEFT_S32);
}

/* A computation from a tuple of values to a tuple of as many. */
static hlo_computation *branch(juggler *j, const hlo_shape *tuple, int count, int depth)
{
  hlo_computation *comp = new_computation(j, "branch");
  hlo_instr *p, *v[MOST_VALUES], *out[MOST_VALUES];

  T_OK(hlo_add_parameter(comp, 0, tuple, NULL, &p));
  pass_build b = PASS_BUILD_IN(comp);
  if (draw(j, 6) == 0) { /* what came, whole */
    comp->root = p;
    return comp;
  }
  for (int i = 0; i < count; i++) v[i] = pb_gte(&b, p, i);
  if (draw(j, 3)) juggle(j, &b, v, count, depth + 1);
  choose(j, v, count, out);
  comp->root = pb_tuple(&b, count, out);
  T_OK(pass_build_finish(&b));
  return comp;
}

static void conditional(juggler *j, pass_build *b, hlo_instr **v, int count, int depth)
{
  int branches = 1 + (int)draw(j, 3);
  hlo_instr *operands[4], *given[MOST_VALUES], *r;
  hlo_computation *called[3];
  bool was_lonely = j->is_lonely;

  operands[0] = small_number(j, b, v, count, branches);
  if (!is_alone(j) && !j->is_lonely) {
    if (draw(j, 2)) operands[0] = grid_agree(&j->grid, b, operands[0]);
    else j->is_lonely = true;
  }
  for (int k = 0; k < branches; k++) {
    choose(j, v, count, given);
    operands[k + 1] = pb_tuple(b, count, given);
    called[k] = branch(j, operands[k + 1]->shape, count, depth);
  }
  j->is_lonely = was_lonely;
  r = pb_instr(b, HLO_CONDITIONAL, operands[1]->shape, branches + 1, operands);
  T_OK(hlo_set_called(r, branches, called));
  if (draw(j, 4) == 0) r = pb_instr(b, HLO_OPT_BARRIER, r->shape, 1, &r);
  for (int i = 0; i < count; i++)
    if (draw(j, 5)) v[i] = pb_gte(b, r, i);
}

static void loop(juggler *j, pass_build *b, hlo_instr **v, int count, int depth)
{
  hlo_computation *body = new_computation(j, "body"), *cond = new_computation(j, "cond");
  hlo_instr *state[MOST_VALUES + 1], *inner[MOST_VALUES], *next[MOST_VALUES + 1], *tuple, *p, *r;
  bool was_lonely = j->is_lonely;

  state[0] = pb_int(b, WEFT_S32, 0);
  if (!is_alone(j) && draw(j, 4) == 0) {
    state[0] = small_number(j, b, v, count, 3);
    j->is_lonely = true;
  }
  choose(j, v, count, state + 1);
  tuple = pb_tuple(b, count + 1, state);
  T_OK(hlo_add_parameter(body, 0, tuple->shape, NULL, &p));
  pass_build in = PASS_BUILD_IN(body);
  for (int i = 0; i < count; i++) inner[i] = pb_gte(&in, p, i + 1);
  next[0] = pb_add(&in, pb_gte(&in, p, 0), pb_int(&in, WEFT_S32, 1));
  juggle(j, &in, inner, count, depth + 1);
  choose(j, inner, count, next + 1);
  j->is_lonely = was_lonely;
  body->root = pb_tuple(&in, count + 1, next);
  if (draw(j, 5) == 0) body->root = pb_instr(&in, HLO_OPT_BARRIER, body->root->shape, 1, &body->root);
  T_OK(pass_build_finish(&in));
  T_OK(hlo_add_parameter(cond, 0, tuple->shape, NULL, &p));
  in = PASS_BUILD_IN(cond);
  cond->root = pb_compare(&in, HLO_LT, pb_gte(&in, p, 0), pb_int(&in, WEFT_S32, draw(j, 4)));
  T_OK(pass_build_finish(&in));
  r = pb_instr(b, HLO_WHILE, tuple->shape, 1, &tuple);
  T_OK(hlo_set_called(r, 2, (hlo_computation *[]){body, cond}));
  for (int i = 0; i < count; i++)
    if (draw(j, 5)) v[i] = pb_gte(b, r, i + 1);
}

static void call(juggler *j, pass_build *b, hlo_instr **v, int count, int depth)
{
  hlo_instr *tuple = pb_tuple(b, count, v), *r;
  hlo_computation *callee = branch(j, tuple->shape, count, depth);

  r = pb_instr(b, HLO_CALL, tuple->shape, 1, &tuple);
  T_OK(hlo_set_called(r, 1, &callee));
  for (int i = 0; i < count; i++) v[i] = pb_gte(b, r, i);
}

/* Operands may be one value several times; outputs alias any operands, several of
 * them the same one, or one output several. */
static void custom_call(juggler *j, pass_build *b, hlo_instr **v, int count)
{
  int operands = 1 + (int)draw(j, count), results = 1 + (int)draw(j, count), aliases = (int)draw(j, results + 2);
  hlo_custom_call_attrs *attrs = WEFT_ARENA_NEW(j->arena, hlo_custom_call_attrs);
  hlo_output_alias *list = WEFT_ARENA_ARRAY(j->arena, hlo_output_alias, aliases);
  const hlo_shape *shapes[MOST_VALUES];
  hlo_instr *given[MOST_VALUES], *r;

  choose(j, v, count, given);
  for (int i = 0; i < results; i++) shapes[i] = j->shape;
  r =
    pb_instr(b, HLO_CUSTOM_CALL, results == 1 ? j->shape : hlo_shape_tuple(j->arena, results, shapes), operands, given);
  for (int i = 0; i < aliases; i++) {
    int64_t result = draw(j, results);
    list[i].operand = draw(j, operands);
    list[i].output_index = pb_ints(b, results > 1, &result);
  }
  *attrs = (hlo_custom_call_attrs){.target = CONTROL_TARGET,
                                   .api_version = TYPED_FFI,
                                   .has_side_effect = draw(j, 2),
                                   .alias_count = aliases,
                                   .aliases = list};
  r->u.custom = attrs;
  for (int i = 0; i < results; i++) v[draw(j, count)] = results == 1 ? r : pb_gte(b, r, i);
}

static void one_step(juggler *j, pass_build *b, hlo_instr **v, int count, int depth)
{
  static const hlo_opcode ops[] = {HLO_ADD, HLO_SUBTRACT, HLO_MULTIPLY, HLO_XOR, HLO_MAXIMUM};
  int to = (int)draw(j, count), from = (int)draw(j, count);
  hlo_instr *copy[MOST_VALUES];
  int64_t first = 0;

  switch (draw(j, is_alone(j) || j->is_lonely ? 12 : 18)) {
  case 0: case 1: v[to] = pb_op2(b, ops[draw(j, 5)], v[from], v[draw(j, count)]); break;
  case 2:
    v[to] = pb_instr(b, HLO_REVERSE, j->shape, 1, &v[from]);
    v[to]->dims = pb_ints(b, 1, &first);
    break;
  case 3:
    choose(j, v, count, copy);
    memcpy(v, copy, (size_t)count * sizeof *v);
    break;
  case 4:
    copy[0] = pb_tuple(b, count, v);
    copy[0] = pb_instr(b, HLO_OPT_BARRIER, copy[0]->shape, 1, copy);
    for (int i = 0; i < count; i++)
      if (draw(j, 3)) v[i] = pb_gte(b, copy[0], i);
    break;
  case 5: case 6: if (depth < MOST_NESTING) conditional(j, b, v, count, depth); break;
  case 7: case 8: if (depth < MOST_NESTING) loop(j, b, v, count, depth); break;
  case 9: custom_call(j, b, v, count); break;
  case 10:
    v[to] =
      pb_update_at(b, v[to], pb_slice_dim(b, v[from], 0, 0, 1), 0, small_number(j, b, v, count, j->shape->dims[0]));
    break;
  case 11:
    if (depth < MOST_NESTING) call(j, b, v, count, depth);
    break;
  default: v[to] = random_collective(&j->grid, b, v, count); break;
  }
}

static void juggle(juggler *j, pass_build *b, hlo_instr **v, int count, int depth)
{
  for (int64_t steps = 1 + draw(j, 5); steps > 0 && j->budget-- > 0; steps--) {
    one_step(j, b, v, count, depth);
    if (b->error) T_OK(b->error);
  }
}

/* Each parameter may be given to one result. */
static void donate(juggler *j, int count)
{
  hlo_input_output_alias *aliases = WEFT_ARENA_ARRAY(j->arena, hlo_input_output_alias, count);
  pass_build b = PASS_BUILD_IN(j->module->entry);
  int64_t turn = draw(j, count);

  for (int64_t i = 0; i < count; i++) {
    if (draw(j, 3)) continue;
    int64_t result = (i + turn) % count;
    aliases[j->module->alias_count++] =
      (hlo_input_output_alias){.parameter = i, .output_index = pb_ints(&b, 1, &result)};
  }
  j->module->aliases = aliases;
}

/* Its parameters and results are `count` arrays; it may be run, and evaluated, any number of times. */
typedef struct control_program {
  hlo_module *module;
  int replicas, partitions, count;
  const hlo_literal *arguments[MOST_DEVICES * MOST_VALUES]; /* of the first device, then of the second, ... */
} control_program;

static void choose_grid(juggler *j, device_grid *g)
{
  *g = (device_grid){.state = &j->state, .module = j->module};
  do g->replicas = 1 + (int)draw(j, 4), g->partitions = 1 + (int)draw(j, 4);
  while (is_alone(j) || g->replicas * g->partitions > MOST_DEVICES);
}

/* The program of a seed, of one device or of several; the caller frees the module. */
static inline control_program random_control(uint64_t seed, bool is_distributed, weft_arena *arena)
{
  static const int64_t sizes[] = {1, 3, 40, 5000};
  juggler j = {.state = seed, .budget = 24};
  control_program p = {.count = 1 + (int)draw(&j, MOST_VALUES)};
  hlo_instr *v[MOST_VALUES], *out[MOST_VALUES];
  hlo_computation *entry;

  T_OK(hlo_module_new("control", &j.module));
  j.arena = &j.module->arena;
  j.grid = (device_grid){.replicas = 1, .partitions = 1};
  if (is_distributed) choose_grid(&j, &j.grid);
  j.shape = hlo_shape_array(j.arena, WEFT_U32, 1, &sizes[draw(&j, WEFT_COUNT(sizes))]);
  T_OK(hlo_computation_new(j.module, "entry", &entry));
  j.module->entry = entry;
  pass_build b = PASS_BUILD_IN(entry);
  for (int i = 0; i < p.count; i++) {
    T_OK(hlo_add_parameter(entry, i, j.shape, NULL, &v[i]));
    for (int d = 0; d < j.grid.replicas * j.grid.partitions; d++)
      p.arguments[d * p.count + i] = random_literal(arena, j.shape, &j.state);
  }
  while (j.budget > 0) juggle(&j, &b, v, p.count, 0);
  choose(&j, v, p.count, out);
  entry->root = pb_tuple(&b, p.count, out);
  T_OK(pass_build_finish(&b));
  if (draw(&j, 3) == 0) donate(&j, p.count);
  T_OK(hlo_module_gc(j.module));
  T_OK(hlo_verify(j.module));
  p.module = j.module;
  p.replicas = j.grid.replicas;
  p.partitions = j.grid.partitions;
  return p;
}

#endif
