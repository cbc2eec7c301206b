/* codegen/model/strategy.c -- which strategy makes a fusion's kernel, decided once. */
#include <config.h>

#include "codegen/model/strategy.h"

#include <string.h>

const char *gen_strategy_name(gen_strategy strategy)
{
  static const char *const names[] = {
#define GEN_STRATEGY(upper, lower, does) #lower,
    GEN_STRATEGIES(GEN_STRATEGY)
#undef GEN_STRATEGY
  };
  return (unsigned)strategy < GEN_STRATEGY_COUNT ? names[strategy] : "unknown";
}

const hlo_instr *gen_through_views(const hlo_instr *x)
{
  while (x->op == HLO_RESHAPE || x->op == HLO_BITCAST) x = x->operands[0];
  return x;
}

const hlo_instr *gen_updated_leaf(const hlo_computation *comp, int leaf)
{
  const hlo_instr *x = comp->root->op == HLO_TUPLE ? comp->root->operands[leaf] : comp->root;

  while (x->op == HLO_RESHAPE || x->op == HLO_BITCAST || x->op == HLO_COPY) x = x->operands[0];
  return x;
}

/* Does a fusion that declares aliases yield a dynamic-update-slice? *all then says whether every result is one: if
 * so, the fusion updates its operands in place; if not, it loops over its results. */
static bool updates_slices(const hlo_instr *fusion, const hlo_instr *root, bool *all)
{
  const hlo_computation *comp = fusion->called[0];
  bool any = root->op == HLO_DYNAMIC_UPDATE_SLICE;

  if (!fusion->u.fusion.alias_count) return false;
  if (root->op == HLO_TUPLE)
    for (int i = 0; i < root->operand_count; i++) any = any || root->operands[i]->op == HLO_DYNAMIC_UPDATE_SLICE;
  *all = true;
  for (int r = 0; any && r < hlo_shape_leaf_count(fusion->shape); r++)
    *all = *all && gen_updated_leaf(comp, r)->op == HLO_DYNAMIC_UPDATE_SLICE;
  return any;
}

/* Chooses one of the strategies that walk whole arrays. */
static weft_status *decide_walk(const gen_target *target, weft_arena *arena, const hlo_instr *fusion,
                                const hlo_instr *root, gen_strategy *out)
{
  enum { LEAST_COLUMNS = 4 };
  const hlo_computation *comp = fusion->called[0];
  gen_columns columns;
  gen_turned turned;
  gen_rows rows;
  bool fits;

  *out = GEN_STRATEGY_LOOP;
  if (hlo_shape_is_tuple(root->shape) && root->op != HLO_TUPLE && root->op != HLO_REDUCE) return NULL;
  WEFT_TRY(gen_rows_of(arena, comp, &rows, &fits));
  if (fits) return *out = GEN_STRATEGY_ROWS, NULL;
  WEFT_TRY(gen_columns_of(arena, comp, &columns, &fits));
  if (fits && columns.cols < LEAST_COLUMNS) fits = target->block_threads <= 1 && gen_columns_are_narrow(&columns);
  if (fits) return *out = GEN_STRATEGY_COLUMNS, NULL;
  WEFT_TRY(gen_turned_of(arena, fusion, &turned, &fits));
  if (fits) *out = GEN_STRATEGY_TURN;
  return NULL;
}

/* A loop by elements is walked as its results are. */
static weft_status *decide_loop(const gen_target *target, weft_arena *arena, const hlo_computation *comp,
                                gen_strategy *out)
{
  gen_element_loop form;
  bool by_elements = false;

  if (target->block_threads <= 1) WEFT_TRY(gen_element_loop_in(arena, comp, &form, &by_elements));
  *out = by_elements ? GEN_STRATEGY_ELEMENT_LOOP : GEN_STRATEGY_SMALL_LOOP;
  return NULL;
}

weft_status *gen_decide(const gen_target *target, weft_arena *arena, const hlo_instr *fusion, gen_strategy *out)
{
  const hlo_computation *comp = fusion->called[0];
  const char *config = fusion->extra ? fusion->extra->backend_config : NULL;
  const hlo_instr *root = gen_through_views(comp->root);
  bool all;

  if (fusion->u.fusion.strategy) return *out = (gen_strategy)fusion->u.fusion.strategy, NULL;
  if (config && strcmp(config, "region") == 0)
    return *out = GEN_STRATEGY_REGION, NULL; /* how the text of a program names a region */
  if (gen_small_loop_of(comp)) return decide_loop(target, arena, comp, out);
  if (root->op == HLO_SCATTER) return *out = GEN_STRATEGY_SCATTER, NULL;
  if (root->op == HLO_SELECT_AND_SCATTER) return *out = GEN_STRATEGY_PICK, NULL;
  if (updates_slices(fusion, root, &all)) return *out = all ? GEN_STRATEGY_UPDATE : GEN_STRATEGY_LOOP, NULL;
  return decide_walk(target, arena, fusion, root, out);
}

bool gen_scatter_in_any_order(const hlo_instr *scatter)
{
  weft_dtype type = scatter->operands[0]->shape->type;

  if (scatter->operand_count != 3 || weft_dtype_bytes(type) < 4) return false;
  if (!weft_dtype_is_integer(type)) return false;
  switch (hlo_reducer_op(scatter->called[0])) {
  case HLO_ADD: case HLO_MINIMUM: case HLO_MAXIMUM: case HLO_AND: case HLO_OR: case HLO_XOR: return true;
  default: return false;
  }
}

/* ---- equal fusions ------------------------------------------------------------------------------------------- */

static bool text_equal(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

static const char *config_of(const hlo_instr *fusion) { return fusion->extra ? fusion->extra->backend_config : NULL; }

static bool aliases_equal(const hlo_instr *a, const hlo_instr *b)
{
  if (a->u.fusion.alias_count != b->u.fusion.alias_count) return false;
  for (int i = 0; i < a->u.fusion.alias_count; i++) {
    const hlo_output_alias *s = &a->u.fusion.aliases[i], *t = &b->u.fusion.aliases[i];
    if (s->operand != t->operand || s->output_index.count != t->output_index.count ||
        s->operand_index.count != t->operand_index.count)
      return false;
    for (int k = 0; k < s->output_index.count; k++)
      if (s->output_index.v[k] != t->output_index.v[k]) return false;
    for (int k = 0; k < s->operand_index.count; k++)
      if (s->operand_index.v[k] != t->operand_index.v[k]) return false;
  }
  return true;
}

bool gen_fusion_equal(const hlo_instr *a, const hlo_instr *b)
{
  return a->u.fusion.kind == b->u.fusion.kind && a->u.fusion.strategy == b->u.fusion.strategy &&
         text_equal(config_of(a), config_of(b)) && aliases_equal(a, b) &&
         hlo_computation_equal(a->called[0], b->called[0]);
}

weft_status *gen_wrong_form(gen_strategy strategy)
{
  return WEFT_ERR(INTERNAL, "codegen: the fusion does not have the form of the strategy \"%s\"",
                  gen_strategy_name(strategy));
}
