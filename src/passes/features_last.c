/* passes/features_last.c -- features-last: networks of convolutions whose features come before their pixels get arrays
 * whose features come last.
 *
 * A library that multiplies tiles of neighbouring features (conv_rows.c) has to gather and spread the pixels of an
 * array whose features come first.  Where convolutions and what stands between them (elementwise operations, pooling,
 * padding, slices and joins) form a net of arrays of one rank, all of the net's arrays are turned:
 *
 *   [batch, features, space...]  ->  [batch, space..., features]
 *
 * Broadcasts that enter the net and reductions that leave it take the new order by their dimensions; every other array
 * is transposed at the net's border.  Kernels keep their order: the library packs them once.  A net is turned if the
 * elements of its convolutions' arrays are enough times those that are transposed for it. */
#include <config.h>

#include <string.h>

#include "passes/build.h"
#include "passes/passes.h"

enum {
  LEAST_GAIN = 3,      /* elements read and written by convolutions, for each element that is transposed */
  LEAST_FEATURES = 32, /* with fewer input features the library makes patches in either order */
};

/* The net around some convolution. Members are in the order of the computation. */
typedef struct net {
  pass_ctx *ctx;
  int rank, count;
  hlo_instr **members;
  pass_map *nets;   /* by id: the net that the instruction is a member of, of all nets of the computation */
  pass_map *turned; /* by id: the value with its features last, of all nets */
} net;

static bool is_member(const net *n, const hlo_instr *value) { return pass_map_get(n->nets, value->id) == n; }

/* Is dimension d of a label i + 2, for each spatial dimension i? */
static bool is_in_order(hlo_ints spatial)
{
  for (int d = 0; d < spatial.count; d++)
    if (spatial.v[d] != d + 2) return false;
  return true;
}

static bool is_convolution(const net *n, const hlo_instr *instr)
{
  const pass_options *options = n->ctx->options;
  const hlo_conv_attrs *a;
  weft_dtype type;

  if (instr->op != HLO_CONVOLUTION) return false;
  a = instr->u.conv;
  type = instr->operands[0]->shape->type;
  if (!(type == WEFT_BF16 && options->bf16_features_last) && !(type == WEFT_F32 && options->f32_features_last))
    return false;
  for (int d = 0; d < a->window.rank; d++)
    if (a->window.dims[d].base_dilation != 1 || a->window.dims[d].reversal) return false;
  return instr->shape->rank >= 3 && a->lhs_batch == 0 && a->lhs_feature == 1 && a->out_batch == 0 &&
         a->out_feature == 1 && is_in_order(a->lhs_spatial) && is_in_order(a->out_spatial) &&
         a->feature_group_count == 1 && a->batch_group_count == 1 && instr->operands[1]->shape->type == type;
}

/* Is it a window of pixels, of one array? A window along other dimensions may be a scan. */
static bool is_pooling(const hlo_instr *instr)
{
  const hlo_window *w = instr->u.window;

  if (instr->op != HLO_REDUCE_WINDOW || instr->operand_count != 2) return false;
  return w->dims[0].size == 1 && w->dims[1].size == 1;
}

/* Can the instruction be of a net? */
static bool can_turn(const net *n, const hlo_instr *instr)
{
  if (!hlo_shape_is_array(instr->shape) || pass_has_control_edges(instr) || instr->operand_count == 0) return false;
  switch (instr->op) {
  case HLO_CONVOLUTION: return is_convolution(n, instr);
  case HLO_REDUCE_WINDOW: return is_pooling(instr);
  case HLO_PAD: case HLO_SLICE: case HLO_CONCATENATE: return instr->shape->rank >= 3;
  default:
    return hlo_opcode_is_elementwise(instr->op) && !hlo_opcode_is(instr->op, HLO_SIDE_EFFECT) &&
           instr->called_count == 0 && instr->shape->rank >= 3;
  }
}

/* Is operand i one of the arrays that have the order of the result? The others are kernels and scalars. */
static bool has_order(const hlo_instr *instr, int i)
{
  if (instr->op == HLO_CONVOLUTION || instr->op == HLO_REDUCE_WINDOW || instr->op == HLO_PAD) return i == 0;
  return instr->operands[i]->shape->rank == instr->shape->rank;
}

/* Dimension i of a turned array is dimension permutation[i] of the array; place[permutation[i]] = i. */
static void list_dims(int rank, int64_t *permutation, int64_t *place)
{
  for (int i = 0; i < rank; i++) {
    permutation[i] = i == 0 ? 0 : i == rank - 1 ? 1 : i + 1;
    place[permutation[i]] = i;
  }
}

/* Does turning the array move dimensions of 1 only? */
static bool moves_units(const hlo_shape *shape)
{
  int64_t pixels = 1;

  for (int d = 2; d < shape->rank; d++) pixels *= shape->dims[d];
  return shape->dims[1] == 1 || pixels == 1;
}

/* The dimensions of a broadcast's operand in the order of their places in the turned result. *in_order: the operand has
 * that order. */
static void order_operand(const hlo_instr *broadcast, int64_t *order, int64_t *dims, bool *in_order)
{
  int64_t permutation[HLO_MAX_RANK], place[HLO_MAX_RANK];
  int count = 0;

  list_dims(broadcast->shape->rank, permutation, place);
  *in_order = true;
  for (int i = 0; i < broadcast->shape->rank; i++)
    for (int64_t d = 0; d < broadcast->dims.count; d++)
      if (place[broadcast->dims.v[d]] == i) {
        *in_order &= d == count;
        order[count] = d;
        dims[count++] = i;
      }
}

/* True if the reduction of a turned array gives the same dimensions in the same order. */
static bool absorbs_order(const hlo_instr *reduce)
{
  int64_t permutation[HLO_MAX_RANK], place[HLO_MAX_RANK], last = -1;
  int rank;

  if (reduce->op != HLO_REDUCE || reduce->operand_count != 2 || pass_has_control_edges(reduce)) return false;
  rank = reduce->operands[0]->shape->rank;
  list_dims(rank, permutation, place);
  for (int d = 0; d < rank; d++) {
    if (pass_ints_contain(reduce->dims, d)) continue;
    if (place[d] < last) return false;
    last = place[d];
  }
  return true;
}

/* ---- finding a net ----------------------------------------------------------------------------------------------- */

static weft_status *add_member(net *n, pass_worklist *list, hlo_instr *instr)
{
  if (is_member(n, instr) || instr->shape->rank != n->rank || !can_turn(n, instr)) return NULL;
  WEFT_TRY(pass_map_set(n->nets, instr->id, n));
  n->count++;
  return pass_worklist_push(list, instr);
}

/* Collects the net of a convolution. */
static weft_status *find_net(net *n, hlo_instr *conv)
{
  pass_worklist list = {.arena = n->ctx->scratch};

  n->rank = conv->shape->rank;
  n->count = 0;
  WEFT_TRY(add_member(n, &list, conv));
  for (hlo_instr *instr; (instr = pass_worklist_pop(&list));) {
    for (int i = 0; i < instr->operand_count; i++)
      if (has_order(instr, i)) WEFT_TRY(add_member(n, &list, instr->operands[i]));
    for (int u = 0; u < instr->user_count; u++) {
      hlo_instr *user = instr->users[u];
      for (int i = 0; i < user->operand_count; i++)
        if (user->operands[i] == instr && can_turn(n, user) && has_order(user, i)) WEFT_TRY(add_member(n, &list, user));
    }
  }
  n->members = WEFT_ARENA_ARRAY(n->ctx->scratch, hlo_instr *, n->count);
  WEFT_TRY_ALLOC(n->members);
  n->count = 0; /* list_members fills the list */
  return NULL;
}

static void list_members(const hlo_computation *comp, const pass_map *nets)
{
  HLO_FOREACH(instr, comp) {
    net *n = pass_map_get(nets, instr->id);
    if (n) n->members[n->count++] = instr;
  }
}

/* The elements that are transposed so that the net can read `value`. */
static double cost_of_entry(const hlo_instr *value)
{
  int64_t order[HLO_MAX_RANK], dims[HLO_MAX_RANK];
  bool in_order;

  if (moves_units(value->shape)) return 0;
  if (value->op != HLO_BROADCAST) return (double)hlo_shape_elems(value->shape);
  order_operand(value, order, dims, &in_order);
  return in_order ? 0 : (double)hlo_shape_elems(value->operands[0]->shape);
}

/* Is `member`, as operand i of `user`, read as the program has it? */
static bool leaves(const net *n, const hlo_instr *user, int i)
{
  if (is_member(n, user) && has_order(user, i)) return false;
  return !absorbs_order(user) || i != 0;
}

static bool is_read_outside(const net *n, const hlo_instr *member)
{
  if (member == member->parent->root) return true;
  for (int u = 0; u < member->user_count; u++)
    for (int i = 0; i < member->users[u]->operand_count; i++)
      if (member->users[u]->operands[i] == member && leaves(n, member->users[u], i)) return true;
  return false;
}

static weft_status *pays(net *n, bool *out_pays)
{
  pass_map seen = {.arena = n->ctx->scratch};
  double gain = 0, cost = 0;

  for (int m = 0; m < n->count; m++) {
    hlo_instr *member = n->members[m];
    if (is_convolution(n, member) && member->operands[0]->shape->dims[1] >= LEAST_FEATURES)
      gain += (double)hlo_shape_elems(member->operands[0]->shape) + (double)hlo_shape_elems(member->shape);
    if (is_read_outside(n, member) && !moves_units(member->shape)) cost += (double)hlo_shape_elems(member->shape);
    for (int i = 0; i < member->operand_count; i++) {
      hlo_instr *value = member->operands[i];
      if (!has_order(member, i) || is_member(n, value) || pass_map_get(&seen, value->id)) continue;
      WEFT_TRY(pass_map_set(&seen, value->id, value));
      cost += cost_of_entry(value);
    }
  }
  *out_pays = gain > 0 && gain >= LEAST_GAIN * cost;
  return NULL;
}

/* ---- turning a net ----------------------------------------------------------------------------------------------- */

static void turned_dims(const hlo_shape *shape, int64_t *dims)
{
  int64_t permutation[HLO_MAX_RANK], place[HLO_MAX_RANK];

  list_dims(shape->rank, permutation, place);
  for (int i = 0; i < shape->rank; i++) dims[i] = shape->dims[permutation[i]];
}

/* The value with its features last, of an array that the net does not contain. */
static hlo_instr *turn_entry(pass_build *b, hlo_instr *value)
{
  int rank = value->shape->rank;
  int64_t permutation[HLO_MAX_RANK], place[HLO_MAX_RANK], dims[HLO_MAX_RANK], order[HLO_MAX_RANK], map[HLO_MAX_RANK];
  bool in_order;

  turned_dims(value->shape, dims);
  if (value->op == HLO_BROADCAST) {
    order_operand(value, order, map, &in_order);
    return pb_broadcast(b, pb_transpose(b, value->operands[0], order), rank, dims, map);
  }
  if (moves_units(value->shape)) return pb_reshape(b, value, rank, dims);
  list_dims(rank, permutation, place);
  return pb_transpose(b, value, permutation);
}

/* A turned value as the program has it. */
static hlo_instr *turn_back(pass_build *b, hlo_instr *value, const hlo_shape *shape)
{
  int64_t permutation[HLO_MAX_RANK], place[HLO_MAX_RANK];

  if (moves_units(shape)) return pb_reshape(b, value, shape->rank, shape->dims);
  list_dims(shape->rank, permutation, place);
  return pb_transpose(b, value, place);
}

static weft_status *turn_window(weft_arena *arena, int rank, const hlo_window_dim *from, const hlo_window_dim **out)
{
  int64_t permutation[HLO_MAX_RANK], place[HLO_MAX_RANK];
  hlo_window_dim *dims = WEFT_ARENA_ARRAY(arena, hlo_window_dim, rank);

  if (!dims) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  list_dims(rank, permutation, place);
  for (int i = 0; i < rank; i++) dims[i] = from[permutation[i]];
  *out = dims;
  return NULL;
}

/* Gives the copy of a member the attributes of the new order. */
static weft_status *turn_attributes(hlo_instr *copy, const hlo_instr *member)
{
  hlo_module *module = copy->parent->module;
  int64_t permutation[HLO_MAX_RANK], place[HLO_MAX_RANK], lists[3][HLO_MAX_RANK];
  int rank = copy->shape->rank;

  list_dims(rank, permutation, place);
  switch (member->op) {
  case HLO_CONVOLUTION: {
    hlo_conv_attrs *a = WEFT_ARENA_NEW(&module->arena, hlo_conv_attrs);
    if (!a) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
    *a = *member->u.conv;
    a->lhs_feature = a->out_feature = rank - 1;
    for (int d = 0; d < rank - 2; d++) lists[0][d] = d + 1;
    WEFT_TRY(hlo_ints_new(module, rank - 2, lists[0], &a->lhs_spatial));
    a->out_spatial = a->lhs_spatial;
    copy->u.conv = a;
    return NULL;
  }
  case HLO_REDUCE_WINDOW: {
    hlo_window *w = WEFT_ARENA_NEW(&module->arena, hlo_window);
    if (!w) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
    w->rank = rank;
    copy->u.window = w;
    return turn_window(&module->arena, rank, member->u.window->dims, &w->dims);
  }
  case HLO_PAD: {
    hlo_pad_dim *dims = WEFT_ARENA_ARRAY(&module->arena, hlo_pad_dim, rank);
    if (!dims) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
    for (int i = 0; i < rank; i++) dims[i] = member->u.pad.dims[permutation[i]];
    copy->u.pad.dims = dims;
    return NULL;
  }
  case HLO_SLICE: {
    const hlo_slice_attrs *a = member->u.slice;
    for (int i = 0; i < rank; i++) {
      lists[0][i] = a->start.v[permutation[i]];
      lists[1][i] = a->limit.v[permutation[i]];
      lists[2][i] = a->stride.count ? a->stride.v[permutation[i]] : 1;
    }
    return hlo_set_slice(copy, rank, lists[0], lists[1], lists[2]);
  }
  case HLO_CONCATENATE: return hlo_ints_new(module, 1, &place[member->dims.v[0]], &copy->dims);
  default: return NULL;
  }
}

/* Makes the copy of a member in the new order, before the member. */
static weft_status *turn_member(net *n, hlo_instr *member)
{
  pass_build b = PASS_BUILD_AT(member);
  weft_arena *arena = &member->parent->module->arena;
  hlo_instr **operands = WEFT_ARENA_ARRAY(n->ctx->scratch, hlo_instr *, member->operand_count), *copy;
  int64_t dims[HLO_MAX_RANK];

  WEFT_TRY_ALLOC(operands);
  for (int i = 0; i < member->operand_count; i++) {
    hlo_instr *value = member->operands[i];
    operands[i] = has_order(member, i) ? pass_map_get(n->turned, value->id) : value;
    if (operands[i]) continue;
    operands[i] = turn_entry(&b, value);
    WEFT_TRY(pass_build_finish(&b));
    WEFT_TRY(pass_map_set(n->turned, value->id, operands[i]));
  }
  copy = pb_clone(&b, member, operands);
  WEFT_TRY(pass_build_finish(&b));
  turned_dims(member->shape, dims);
  copy->shape = hlo_shape_array(arena, member->shape->type, n->rank, dims);
  if (!copy->shape) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  WEFT_TRY(turn_attributes(copy, member));
  return pass_map_set(n->turned, member->id, copy);
}

static weft_status *turn_reduce(hlo_instr *reduce, hlo_instr *turned)
{
  pass_build b = PASS_BUILD_AT(reduce);
  int64_t permutation[HLO_MAX_RANK], place[HLO_MAX_RANK], dims[HLO_MAX_RANK];
  hlo_instr *copy = pb_clone(&b, reduce, (hlo_instr *[]){turned, reduce->operands[1]});

  list_dims(turned->shape->rank, permutation, place);
  for (int64_t d = 0; d < reduce->dims.count; d++) dims[d] = place[reduce->dims.v[d]];
  WEFT_TRY(pass_build_finish(&b));
  WEFT_TRY(hlo_ints_new(reduce->parent->module, (int)reduce->dims.count, dims, &copy->dims));
  return hlo_replace(reduce, copy);
}

/* Gives what reads a member from outside of the net the copy, or the copy turned back. */
static weft_status *connect_users(net *n, hlo_instr *member)
{
  hlo_instr *copy = pass_map_get(n->turned, member->id);
  pass_build b = PASS_BUILD_AT(member);

  for (int u = member->user_count - 1; u >= 0; u--) {
    hlo_instr *user = member->users[u];
    if (absorbs_order(user) && user->operands[0] == member && user->operands[1] != member)
      WEFT_TRY(turn_reduce(user, copy));
  }
  if (!is_read_outside(n, member)) return NULL;
  hlo_instr *back = turn_back(&b, copy, member->shape);
  WEFT_TRY(pass_build_finish(&b));
  return hlo_replace_uses(member, back);
}

static weft_status *turn(net *n)
{
  for (int m = 0; m < n->count; m++) WEFT_TRY(turn_member(n, n->members[m]));
  for (int m = 0; m < n->count; m++) WEFT_TRY(connect_users(n, n->members[m]));
  for (int m = n->count - 1; m >= 0; m--)
    if (n->members[m]->parent && hlo_is_dead(n->members[m])) WEFT_TRY(hlo_remove(n->members[m]));
  return NULL;
}

static weft_status *turn_nets(hlo_computation *comp, pass_ctx *ctx, bool *changed)
{
  pass_map of = {.arena = ctx->scratch}, turned = {.arena = ctx->scratch};
  const net none = {.ctx = ctx, .nets = &of, .turned = &turned};
  int count = 0;
  net *nets;

  HLO_FOREACH(instr, comp) count += is_convolution(&none, instr);
  if (count == 0) return NULL;
  nets = WEFT_ARENA_ARRAY(ctx->scratch, net, count);
  WEFT_TRY_ALLOC(nets);
  count = 0;
  HLO_FOREACH(instr, comp) {
    if (!is_convolution(&none, instr) || pass_map_get(&of, instr->id)) continue;
    nets[count] = none;
    WEFT_TRY(find_net(&nets[count++], instr));
  }
  list_members(comp, &of);
  for (int i = 0; i < count; i++) {
    bool does;
    WEFT_TRY(pays(&nets[i], &does));
    if (!does) continue;
    WEFT_TRY(turn(&nets[i]));
    *changed = true;
  }
  return NULL;
}

static weft_status *features_last_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_comps comps;

  if (!ctx->options->bf16_features_last && !ctx->options->f32_features_last) return NULL;
  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int c = 0; c < comps.count; c++) WEFT_TRY(turn_nets(comps.v[c], ctx, changed));
  return NULL;
}
const hlo_pass pass_features_last = {"features-last", features_last_run};
