/* tests/hlo/ir_test.c -- the IR: building, editing, cloning, equality and hashes. */
#include "test.h"

#include "hlo/hlo.h"
#include "hlo/text.h"

static const int64_t dims_2x3[] = {2, 3};

/* add(p0, multiply(p0, p1)) on f32[2,3]; the caller frees the module. */
static hlo_module *make_module(hlo_computation **comp, hlo_instr **p, hlo_instr **mul, hlo_instr **add)
{
  hlo_module *module;
  const hlo_shape *shape;

  T_OK(hlo_module_new("m", &module));
  shape = hlo_shape_array(&module->arena, WEFT_F32, 2, dims_2x3);
  T_OK(hlo_computation_new(module, "main", comp));
  module->entry = *comp;
  T_OK(hlo_add_parameter(*comp, 0, shape, "p0", &p[0]));
  T_OK(hlo_add_parameter(*comp, 1, shape, "p1.7", &p[1]));
  T_OK(hlo_add_binary(*comp, NULL, HLO_MULTIPLY, p[0], p[1], mul));
  T_OK(hlo_add_binary(*comp, NULL, HLO_ADD, p[0], *mul, add));
  (*comp)->root = *add;
  return module;
}

TEST(operands_and_users_mirror_each_other)
{
  hlo_computation *comp;
  hlo_instr *p[2], *mul, *add, *neg;
  hlo_module *module = make_module(&comp, p, &mul, &add);

  T_EQ_INT(p[0]->user_count, 2);
  T_EQ_STR(mul->name, "multiply.8"); /* above p1.7 */
  T_OK(hlo_add_unary(comp, add, HLO_NEGATE, mul, &neg));
  T_OK(hlo_replace_uses(mul, neg)); /* neg keeps its own use of mul */
  T_TRUE(neg->operands[0] == mul && add->operands[1] == neg);
  T_EQ_INT(mul->user_count, 1);
  T_OK(hlo_set_operand(add, 1, mul));
  T_EQ_INT(neg->user_count, 0);
  T_TRUE(hlo_is_dead(neg));
  T_OK(hlo_remove_with_dead_operands(neg));
  T_EQ_INT(comp->instr_count, 4);
  T_OK(hlo_replace(add, p[0])); /* takes the root along */
  T_TRUE(comp->root == p[0]);
  T_OK(hlo_remove_with_dead_operands(mul));
  T_EQ_INT(comp->instr_count, 2);
  T_FAILS(hlo_remove(p[1]), "parameter");
  hlo_module_free(module);
}

/* Each operand slot has one entry among its operand's users, and there are no others. */
static void check_uses(const hlo_computation *comp)
{
  HLO_FOREACH(value, comp) {
    int slots = 0;
    HLO_FOREACH(user, comp) {
      int named = 0, listed = 0;
      for (int i = 0; i < user->operand_count; i++) named += user->operands[i] == value;
      for (int i = 0; i < value->user_count; i++) listed += value->users[i] == user;
      T_EQ_INT(listed, named);
      slots += named;
    }
    T_EQ_INT(value->user_count, slots);
  }
}

TEST(uses_survive_edits_in_any_order)
{
  enum { VALUES = 6, EDITS = 3000 };
  hlo_module *module;
  hlo_computation *comp;
  hlo_instr *values[VALUES], *tuples[2];
  uint64_t seed = 1;

  T_OK(hlo_module_new("m", &module));
  T_OK(hlo_computation_new(module, "main", &comp));
  module->entry = comp;
  for (int i = 0; i < VALUES; i++)
    T_OK(hlo_add_parameter(comp, i, hlo_shape_array(&module->arena, WEFT_F32, 2, dims_2x3), NULL, &values[i]));
  for (int i = 0; i < 2; i++) T_OK(hlo_add_tuple(comp, NULL, 3 * i, values, &tuples[i]));
  comp->root = tuples[0];
  for (int edit = 0; edit < EDITS; edit++) {
    uint64_t draw = (seed = seed * 6364136223846793005u + 1442695040888963407u) >> 33;
    hlo_instr *tuple = tuples[draw & 1], *value = values[(draw >> 1) % VALUES], *other = values[(draw >> 8) % VALUES];
    bool keep[64];
    for (int i = 0; i < 64; i++) keep[i] = (draw >> (i % 24)) & 1;
    switch ((draw >> 16) % 8) {
    case 0: T_OK(hlo_replace_uses(value, other)); break;
    case 1:
      if (tuple->operand_count > 48) hlo_keep_operands(tuple, keep);
      break;
    case 2: case 3: if (tuple->operand_count < 64) T_OK(hlo_append_operand(tuple, value)); break;
    case 4:
      T_OK(hlo_add_clone(comp, tuple, tuple, NULL, &other));
      T_OK(hlo_remove(other));
      break;
    default:
      if (tuple->operand_count > 0)
        T_OK(hlo_set_operand(tuple, (int)((draw >> 4) % (unsigned)tuple->operand_count), value));
    }
    check_uses(comp);
  }
  hlo_module_free(module);
}

TEST(clones_outlive_their_source_and_equal_it)
{
  hlo_computation *comp;
  hlo_instr *p[2], *mul, *add;
  hlo_module *module = make_module(&comp, p, &mul, &add), *clone;
  uint64_t hash = hlo_computation_hash(comp);

  T_OK(hlo_module_clone(module, &clone));
  T_TRUE(hlo_computation_equal(comp, clone->entry));
  T_TRUE(clone->entry->root != add);
  hlo_module_free(module);
  T_TRUE(hlo_computation_hash(clone->entry) == hash);
  T_EQ_INT(clone->entry->root->shape->dims[1], 3);
  hlo_module_free(clone);
}

TEST(clones_in_a_module_with_computations_get_names_of_their_own)
{
  static const char text[] = "HloModule m\n"
                             "add {\n"
                             "  a = f32[] parameter(0)\n"
                             "  b = f32[] parameter(1)\n"
                             "  ROOT c = f32[] add(a, b)\n"
                             "}\n"
                             "ENTRY e {\n"
                             "  x = f32[4] parameter(0)\n"
                             "  zero = f32[] constant(0)\n"
                             "  ROOT r = f32[] reduce(x, zero), dimensions={0}, to_apply=add\n"
                             "}\n";
  hlo_module *from, *to;
  hlo_computation *copy;

  T_OK(hlo_parse(text, strlen(text), &from));
  T_OK(hlo_parse(text, strlen(text), &to));
  T_OK(hlo_computation_clone(to, from->entry, NULL, to->entry, &copy));
  for (const hlo_computation *a = to->first; a; a = a->next)
    for (const hlo_computation *b = a->next; b; b = b->next) T_TRUE(strcmp(a->name, b->name) != 0);
  T_EQ_INT(to->computation_count, 4);
  hlo_module_free(from);
  hlo_module_free(to);
}

TEST(sorting_restores_the_order_and_finds_cycles)
{
  hlo_computation *comp;
  hlo_instr *p[2], *mul, *add;
  hlo_module *module = make_module(&comp, p, &mul, &add);

  hlo_move_before(add, comp->first);
  T_TRUE(comp->first == add);
  T_OK(hlo_computation_sort(comp));
  T_TRUE(comp->last == add);
  T_OK(hlo_add_control_edge(add, mul));
  T_FAILS(hlo_computation_sort(comp), "depend on each other");
  hlo_module_free(module);
}

TEST(a_reducer_is_recognised_by_its_operation)
{
  hlo_module *module;
  hlo_computation *comp;

  T_OK(hlo_module_new("m", &module));
  T_OK(hlo_add_reducer(module, HLO_MAXIMUM, WEFT_BF16, &comp));
  T_EQ_INT(hlo_reducer_op(comp), HLO_MAXIMUM);
  hlo_module_free(module);
}

TEST(shapes_count_leaves_and_print)
{
  weft_arena arena;
  const hlo_shape *array, *inner, *outer, *elements[2];
  static const int64_t path[] = {1, 0}, ascending[] = {0, 1};

  weft_arena_init(&arena);
  array = hlo_shape_array(&arena, WEFT_S32, 2, dims_2x3);
  elements[0] = elements[1] = array;
  inner = hlo_shape_tuple(&arena, 2, elements);
  elements[1] = inner;
  outer = hlo_shape_tuple(&arena, 2, elements);
  T_EQ_INT(hlo_shape_leaf_count(outer), 3);
  T_EQ_INT(hlo_shape_leaf_offset(outer, 1), 1);
  T_TRUE(hlo_shape_at(outer, path, 2) == array);
  T_EQ_INT(hlo_shape_total_bytes(outer), 72);
  T_EQ_STR(hlo_shape_text(&arena, outer, true), "(s32[2,3], (s32[2,3], s32[2,3]))");
  array = hlo_shape_with_layout(&arena, array, ascending);
  T_EQ_STR(hlo_shape_text(&arena, array, true), "s32[2,3]{0,1}");
  T_TRUE(!hlo_shape_is_default_layout(array));
  T_TRUE(hlo_shape_is_sane(array));
  array = hlo_shape_array(&arena, WEFT_F64, 3, (int64_t[]){INT64_C(1) << 31, INT64_C(1) << 31, 1});
  T_TRUE(!hlo_shape_is_sane(array));
  weft_arena_fini(&arena);
}

TEST(literals_store_by_the_rules_of_convert)
{
  weft_arena arena;
  hlo_literal *lit;

  weft_arena_init(&arena);
  T_OK(hlo_literal_scalar_f64(&arena, WEFT_S8, 300, &lit));
  T_EQ_INT(hlo_literal_get_s64(lit, 0), 127);
  T_OK(hlo_literal_scalar_f64(&arena, WEFT_U32, -5, &lit));
  T_EQ_INT(hlo_literal_get_s64(lit, 0), 0);
  T_OK(hlo_literal_scalar_s64(&arena, WEFT_S4, 9, &lit)); /* wraps */
  T_EQ_INT(hlo_literal_get_s64(lit, 0), -7);
  weft_arena_fini(&arena);
}

TEST(opcode_names_lead_back)
{
  for (int op = 0; op < HLO_OPCODE_COUNT; op++) {
    const char *name = hlo_opcode_name((hlo_opcode)op);
    T_EQ_INT(hlo_opcode_from_name(name, strlen(name)), op);
  }
  T_EQ_INT(hlo_opcode_from_name("nonesuch", 8), HLO_OPCODE_COUNT);
}

TEST_MAIN(UNIT(operands_and_users_mirror_each_other), UNIT(uses_survive_edits_in_any_order),
          UNIT(clones_outlive_their_source_and_equal_it),
          UNIT(clones_in_a_module_with_computations_get_names_of_their_own),
          UNIT(sorting_restores_the_order_and_finds_cycles), UNIT(a_reducer_is_recognised_by_its_operation),
          UNIT(shapes_count_leaves_and_print), UNIT(literals_store_by_the_rules_of_convert),
          UNIT(opcode_names_lead_back))
