/* passes/strip_groups.c -- strip-groups: dots and kernels that exchange arrays of scores become one step of the CPU's
 * library (gen_is_strip_group), as the backward pass of attention:
 *
 *   s = dot(q, k)        dp = dot(g, v)        p, ds = kernel(s, dp, mask)
 *   dq = dot(ds, k)      dk = dot(ds', q)      dv = dot(p', g)           (': rows and columns change places)
 *
 * The library computes some rows of the scores at a time (cpu/strip_groups.c), so that no array of scores is ever in
 * memory as a whole.
 *
 * Terms: the *scores* are all arrays of rows x columns elements that are computed of the results of the *sources*, dots
 * as the first two above. *Sinks* are dots that read scores. One that reads them on its right side becomes the dot of
 * the exchanged sides, whose result is transposed. What lies between are *links*:
 * fusions in which each row needs no other row of the scores, and views of their results. If an array of scores, or a
 * number for each row of one, is wanted by anything else, the whole net of them stays as it is.
 *
 * The sinks of a net are distributed over groups. A group computes all that its sinks need, so that two groups may both
 * compute some scores: in a training step the gradients need the result of the network, which needs the product of
 * the shares and the values. Links of a group become one fusion over rows. Where a group has one source and one sink
 * over rows, no more is done, but that the sink reads the scores on its left side: pass strips makes a step of them.
 *
 * The pass runs before pass strips, on finished fusions. */
#include <config.h>

#include <string.h>

#include "base/swap.h"
#include "codegen/model/library.h"
#include "codegen/model/strategy.h"
#include "passes/fusion.h"
#include "passes/passes.h"

enum {
  LEAST_ROWS = 16,         /* of each matrix; fewer are one tile of the products */
  LEAST_BYTES = 128 << 10, /* of an array of scores; smaller ones stay in the cache as they are */
  MOST_SINKS = 8,
  MOST_SOURCES = 4,
  MOST_LINKS = 64,
};

typedef enum role { NOTHING, SOURCE, LINK } role;

typedef struct net {
  const pass_ctx *ctx;
  hlo_computation *comp;
  int64_t rows, cols, matrix_rows; /* rows: of all matrices */
  int low, count;
  role *roles;                     /* by id - low: of the instructions that depend on sources through links alone */
  bool *is_in;                     /* by id - low: of the sources and links of the net */
  hlo_instr *sinks[MOST_SINKS];
  bool is_done[MOST_SINKS];
  int sink_count, source_count, link_count;
} net;

/* ---- what is a part of a net ------------------------------------------------------------------------------------- */

/* A dot of floats that the library does as it is. */
static bool is_plain_dot(const pass_ctx *ctx, const hlo_instr *instr)
{
  const hlo_instr *dot = gen_library_dot(instr);

  return dot && pass_is_canonical_dot(dot) && !pass_has_control_edges(instr) && weft_dtype_is_float(dot->shape->type) &&
         weft_dtype_is_float(dot->operands[0]->shape->type) && weft_dtype_is_float(dot->operands[1]->shape->type) &&
         gen_multiplies_stored(instr) && !gen_dot_needs_kernel(pass_target(ctx), dot, false);
}

static bool is_score(const net *n, const hlo_shape *shape)
{
  return hlo_shape_is_array(shape) && hlo_shape_elems(shape) == n->rows * n->cols;
}

static bool is_row_number(const net *n, const hlo_shape *shape)
{
  return hlo_shape_is_array(shape) && hlo_shape_elems(shape) == n->rows;
}

/* Scores as the result of a dot, or the left side of one. */
static bool has_form(const net *n, const hlo_shape *s)
{
  return is_score(n, s) && s->rank >= 2 && s->rank <= 3 && s->dims[s->rank - 1] == n->cols &&
         s->dims[s->rank - 2] == n->matrix_rows;
}

static bool is_view(const hlo_instr *x) { return x->op == HLO_RESHAPE || x->op == HLO_BITCAST; }

static bool may_be_link(const net *n, const hlo_instr *x)
{
  if (pass_has_control_edges(x)) return false;
  if (x->op == HLO_FUSION && (gen_is_library_fusion(x) || x->u.fusion.alias_count > 0)) return false;
  if (x->op != HLO_FUSION && x->op != HLO_GET_TUPLE_ELEMENT && !is_view(x)) return false;
  for (int i = 0; i < hlo_shape_leaf_count(x->shape); i++) {
    const hlo_shape *leaf = hlo_shape_leaf(x->shape, i);
    if (!is_score(n, leaf) && !is_row_number(n, leaf)) return false;
  }
  return true;
}

static role role_of(const net *n, const hlo_instr *x)
{
  return x->id >= n->low && x->id - n->low < n->count ? n->roles[x->id - n->low] : NOTHING;
}

static void find_roles(net *n)
{
  HLO_FOREACH(x, n->comp) {
    role *r = &n->roles[x->id - n->low];
    bool depends = false;
    for (int i = 0; i < x->operand_count; i++) depends = depends || role_of(n, x->operands[i]) != NOTHING;
    *r = NOTHING;
    if (depends) {
      if (may_be_link(n, x)) *r = LINK;
    } else if (is_plain_dot(n->ctx, x) && has_form(n, x->shape)) {
      *r = SOURCE;
    }
  }
}

/* The operand of `instr` that is the left (0) or right (1) side of its dot; NULL: as for gen_library_left. */
static hlo_instr *side_of(const hlo_instr *instr, int side)
{
  if (side == 0) return gen_library_left(instr);
  return instr->op == HLO_DOT ? instr->operands[1] : NULL;
}

/* The side of the dot `x` that reads scores; -1: it is no sink. */
static int score_side(const net *n, const hlo_instr *x)
{
  if (!is_plain_dot(n->ctx, x)) return -1;
  for (int i = 0; i < 2; i++) {
    const hlo_instr *side = side_of(x, i);
    if (side && role_of(n, side) == LINK && has_form(n, gen_library_dot(x)->operands[i]->shape)) return i;
  }
  return -1;
}

static hlo_instr *scores_of(const net *n, const hlo_instr *sink) { return side_of(sink, score_side(n, sink)); }

/* Does the dot add up over the columns of the scores? Otherwise it adds up over the rows of each matrix. */
static bool is_over_columns(const net *n, const hlo_instr *sink)
{
  const hlo_instr *dot = gen_library_dot(sink);
  int side = score_side(n, sink);
  int64_t sum = side == 0 ? dot->u.dot->lhs_contracting.v[0] : dot->u.dot->rhs_contracting.v[0];

  return sum == dot->operands[side]->shape->rank - 1;
}

/* Adds `x`, a source or a link, and all that is connected with it. False: an array of scores is wanted elsewhere. */
static bool add_to_net(net *n, hlo_instr *x)
{
  bool *in = &n->is_in[x->id - n->low];

  if (*in) return true;
  *in = true;
  bool is_source = role_of(n, x) == SOURCE;
  if (is_source ? ++n->source_count > MOST_SOURCES : ++n->link_count > MOST_LINKS) return false;
  if (x == n->comp->root) return false;
  for (int i = 0; !is_source && i < x->operand_count; i++)
    if (role_of(n, x->operands[i]) != NOTHING && !add_to_net(n, x->operands[i])) return false;
  for (int i = 0; i < x->user_count; i++) {
    hlo_instr *user = x->users[i];
    if (role_of(n, user) == LINK) {
      if (!add_to_net(n, user)) return false;
      continue;
    }
    bool is_known = false;
    for (int k = 0; k < n->sink_count; k++) is_known = is_known || n->sinks[k] == user;
    if (is_known) continue;
    int uses = 0;
    for (int k = 0; k < user->operand_count; k++) uses += role_of(n, user->operands[k]) != NOTHING;
    if (uses != 1 || score_side(n, user) < 0 || scores_of(n, user) != x || n->sink_count == MOST_SINKS) return false;
    n->sinks[n->sink_count++] = user;
  }
  return true;
}

/* Is there a source among what `x` is computed of through links? At most `*visits` values are looked at. */
static bool has_source(const net *n, const hlo_instr *x, int *visits)
{
  if (--*visits < 0) return false;
  if (!may_be_link(n, x)) return is_plain_dot(n->ctx, x) && has_form(n, x->shape);
  for (int i = 0; i < x->operand_count; i++)
    if (has_source(n, x->operands[i], visits)) return true;
  return false;
}

/* Fills `n` with the net whose scores the dot `sink` reads on that side; false: there is none that pays. */
static weft_status *find_net(const pass_ctx *ctx, hlo_instr *sink, int side, net *n, bool *out)
{
  const hlo_instr *dot = gen_library_dot(sink);
  const hlo_shape *s = dot ? dot->operands[side]->shape : NULL;
  hlo_instr *scores = side_of(sink, side);

  *out = false;
  if (!scores || !is_plain_dot(ctx, sink) || gen_through_views(scores)->op == HLO_PARAMETER) return NULL;
  *n = (net){.ctx = ctx, .comp = sink->parent, .cols = s->dims[s->rank - 1], .matrix_rows = s->dims[s->rank - 2]};
  if (n->cols < 2 || n->matrix_rows < LEAST_ROWS || hlo_shape_bytes(s) < LEAST_BYTES) return NULL;
  n->rows = hlo_shape_elems(s) / n->cols;
  int visits = MOST_LINKS;
  if (!may_be_link(n, scores) || !has_source(n, scores, &visits))
    return NULL; /* most dots, without a look at all others */
  hlo_id_range(n->comp, &n->low, &n->count);
  n->roles = WEFT_ARENA_ARRAY(ctx->scratch, role, n->count);
  n->is_in = WEFT_ARENA_ARRAY(ctx->scratch, bool, n->count);
  WEFT_TRY_ALLOC(n->roles && n->is_in);
  find_roles(n);
  *out = score_side(n, sink) == side && add_to_net(n, scores);
  return NULL;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

typedef struct group {
  net *net;
  bool *needs;                /* by id - low: its sources and links */
  hlo_instr *sinks[MOST_SINKS];
  int sink_count;
  /* of the fusion that its links become */
  hlo_instr *outside[MOST_LINKS * 4], *results[MOST_SINKS], *kernel;
  int outside_count, result_count;
} group;

static void need(group *g, const hlo_instr *x)
{
  if (!g->net->is_in[x->id - g->net->low] || g->needs[x->id - g->net->low]) return;
  g->needs[x->id - g->net->low] = true;
  if (role_of(g->net, x) == SOURCE) return;
  for (int i = 0; i < x->operand_count; i++)
    if (role_of(g->net, x->operands[i]) != NOTHING) need(g, x->operands[i]);
}

static bool is_in_group(const group *g, const hlo_instr *x)
{
  if (x == g->kernel) return true;
  for (int i = 0; i < g->sink_count; i++)
    if (g->sinks[i] == x) return true;
  return x->id - g->net->low >= 0 && x->id - g->net->low < g->net->count && g->needs[x->id - g->net->low];
}

/* Could the group be one step: does none of its members depend on a sink? */
static weft_status *is_one_step(const group *g, bool *out)
{
  const net *n = g->net;
  int low, count;

  hlo_id_range(n->comp, &low, &count);
  bool *after = WEFT_ARENA_ARRAY(n->ctx->scratch, bool, count); /* by id - low: depends on a sink */
  WEFT_TRY_ALLOC(after);
  *out = false;
  HLO_FOREACH(x, n->comp) {
    bool follows = false, member = is_in_group(g, x);
    for (int i = 0; i < x->operand_count; i++) {
      const hlo_instr *o = x->operands[i];
      bool is_sink_of_it = false;
      for (int k = 0; k < g->sink_count; k++) is_sink_of_it = is_sink_of_it || g->sinks[k] == o;
      follows = follows || is_sink_of_it || after[o->id - low];
    }
    if (member && follows) return NULL;
    after[x->id - low] = follows;
  }
  *out = true;
  return NULL;
}

/* Takes sinks that no group has yet into `g`: those over rows first, since these need whole arrays otherwise. */
static weft_status *choose_sinks(group *g)
{
  net *n = g->net;

  for (int over_columns = 0; over_columns < 2; over_columns++)
    for (int i = 0; i < n->sink_count; i++) {
      if (n->is_done[i] || is_over_columns(n, n->sinks[i]) != over_columns) continue;
      bool *before = WEFT_ARENA_ARRAY(n->ctx->scratch, bool, n->count), fits = true;
      WEFT_TRY_ALLOC(before);
      memcpy(before, g->needs, (size_t)n->count * sizeof *before);
      g->sinks[g->sink_count++] = n->sinks[i];
      need(g, scores_of(n, n->sinks[i]));
      if (g->sink_count > 1) WEFT_TRY(is_one_step(g, &fits));
      if (fits) {
        n->is_done[i] = true;
        continue;
      }
      g->sink_count--;
      g->needs = before;
    }
  return NULL;
}

/* ---- one kernel of all links ------------------------------------------------------------------------------------- */

/* The copy in `body` of a value from outside the links. */
static weft_status *bring_in(group *g, hlo_computation *body, hlo_instr *value, pass_map *map, bool *ok)
{
  hlo_instr *inside;

  if (pass_map_get(map, value->id)) return NULL;
  if (value->op == HLO_CONSTANT && hlo_shape_is_scalar(value->shape)) {
    WEFT_TRY(hlo_add_clone(body, NULL, value, NULL, &inside));
  } else {
    *ok = *ok && g->outside_count < (int)WEFT_COUNT(g->outside) && hlo_shape_is_array(value->shape) &&
          value->op != HLO_CONSTANT;
    if (!*ok) return NULL;
    WEFT_TRY(hlo_add_parameter(body, g->outside_count, value->shape, NULL, &inside));
    g->outside[g->outside_count++] = value;
  }
  return pass_map_set(map, value->id, inside);
}

/* Copies an instruction of a link to the end of `body`, unless that has an equal one: links repeat what they have in
 * common. */
static weft_status *copy_instr(hlo_computation *body, const hlo_instr *x, hlo_instr *const *operands, hlo_instr **out)
{
  WEFT_TRY(hlo_add_clone(body, NULL, x, operands, out));
  for (hlo_instr *y = body->first; y != *out; y = y->next)
    if (hlo_instr_equal(y, *out)) {
      WEFT_TRY(hlo_remove(*out));
      *out = y;
      return NULL;
    }
  return NULL;
}

/* Copies the link `x` to the end of `body`, and if it is a fusion what is in it. */
static weft_status *copy_link(hlo_computation *body, const hlo_instr *x, pass_map *map)
{
  hlo_instr **operands = NULL, *copy;
  int capacity = 0;

  if (x->op == HLO_GET_TUPLE_ELEMENT) {
    hlo_instr *tuple = pass_map_get(map, x->operands[0]->id);
    return pass_map_set(map, x->id, tuple->operands[x->u.tuple_index]);
  }
  if (x->op != HLO_FUSION) {
    WEFT_TRY(pass_mapped_operands(x, map, &operands, &capacity));
    WEFT_TRY(copy_instr(body, x, operands, &copy));
    return pass_map_set(map, x->id, copy);
  }
  HLO_FOREACH(y, x->called[0]) {
    if (y->op == HLO_PARAMETER) {
      copy = pass_map_get(map, x->operands[y->u.parameter_number]->id);
    } else {
      WEFT_TRY(pass_mapped_operands(y, map, &operands, &capacity));
      WEFT_TRY(copy_instr(body, y, operands, &copy));
    }
    WEFT_TRY(pass_map_set(map, y->id, copy));
  }
  return pass_map_set(map, x->id, pass_map_get(map, x->called[0]->root->id));
}

/* Makes g->kernel of the links, before the first sink; NULL: they do not fit into one kernel over rows. */
static weft_status *make_kernel(group *g)
{
  net *n = g->net;
  pass_map map = {.arena = n->ctx->scratch};
  hlo_computation *body;
  hlo_instr *roots[MOST_SINKS], *kernel;
  const char *name;
  bool ok = true;
  gen_strategy strategy;

  g->outside_count = g->result_count = 0;
  g->kernel = NULL;
  WEFT_TRY(hlo_unique_name(n->comp->module, "fused_computation", &name));
  WEFT_TRY(hlo_computation_new(n->comp->module, name, &body));
  HLO_FOREACH(x, n->comp) {
    if (role_of(n, x) != LINK || !g->needs[x->id - n->low]) continue;
    for (int i = 0; i < x->operand_count && ok; i++) WEFT_TRY(bring_in(g, body, x->operands[i], &map, &ok));
    if (!ok) return NULL;
    WEFT_TRY(copy_link(body, x, &map));
  }
  for (int i = 0; i < g->sink_count; i++) {
    hlo_instr *scores = scores_of(n, g->sinks[i]);
    bool is_new = true;
    for (int k = 0; k < g->result_count; k++) is_new = is_new && g->results[k] != scores;
    if (!is_new) continue;
    roots[g->result_count] = pass_map_get(&map, scores->id);
    g->results[g->result_count++] = scores;
  }
  body->root = roots[0];
  if (g->result_count > 1) WEFT_TRY(hlo_add_tuple(body, NULL, g->result_count, roots, &body->root));
  WEFT_TRY(hlo_unique_name(n->comp->module, "score_fusion", &name));
  WEFT_TRY(hlo_add(n->comp, g->sinks[0], HLO_FUSION, body->root->shape, g->outside_count, g->outside, name, &kernel));
  WEFT_TRY(hlo_set_called(kernel, 1, &body));
  WEFT_TRY(pass_fusion_classify(kernel, "row"));
  /* what tuples of fusions with several results are left unused */
  for (hlo_instr *x = body->last, *before; x; x = before) {
    before = x->prev;
    if (hlo_is_dead(x)) WEFT_TRY(hlo_remove(x));
  }
  WEFT_TRY(gen_decide(pass_target(n->ctx), n->ctx->scratch, kernel, &strategy));
  ok = strategy == GEN_STRATEGY_ROWS && kernel->u.fusion.alias_count == 0;
  for (int i = 0; ok && i < kernel->operand_count; i++)
    if (role_of(n, kernel->operands[i]) == SOURCE)
      WEFT_TRY(gen_keeps_rows(n->ctx->scratch, kernel, i, n->rows, n->cols, &ok));
  if (ok) g->kernel = kernel;
  else WEFT_TRY(hlo_remove(kernel));
  return NULL;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* Exchanges the sides of a sink that reads scores on its right side. *sink becomes the new dot. */
static weft_status *exchange_sides(net *n, hlo_instr **sink)
{
  hlo_instr *dot = *sink, *turned, *fusion, *operands[] = {dot->operands[1], dot->operands[0]};
  weft_arena *arena = &n->comp->module->arena;
  pass_map map = {.arena = n->ctx->scratch};
  int64_t dims[HLO_MAX_RANK], perm[HLO_MAX_RANK];
  int rank = dot->shape->rank;

  for (int i = 0; i < rank; i++) dims[i] = dot->shape->dims[perm[i] = i];
  perm[rank - 2] = rank - 1, perm[rank - 1] = rank - 2;
  dims[rank - 2] = dot->shape->dims[rank - 1], dims[rank - 1] = dot->shape->dims[rank - 2];
  const hlo_shape *shape = hlo_shape_array(arena, dot->shape->type, rank, dims);
  hlo_dot_attrs *attrs = weft_arena_memdup(arena, dot->u.dot, sizeof *attrs);
  WEFT_TRY_ALLOC(shape && attrs);
  WEFT_SWAP(attrs->lhs_batch, attrs->rhs_batch);
  WEFT_SWAP(attrs->lhs_contracting, attrs->rhs_contracting);
  if (attrs->precision_count == 2) {
    attrs->precision =
      weft_arena_memdup(arena, (hlo_precision[]){attrs->precision[1], attrs->precision[0]}, 2 * sizeof(hlo_precision));
    WEFT_TRY_ALLOC(attrs->precision);
  }
  WEFT_TRY(hlo_add(n->comp, dot, HLO_DOT, shape, 2, operands, NULL, sink));
  (*sink)->u.dot = attrs;
  (*sink)->metadata = dot->metadata;
  WEFT_TRY(hlo_add_transpose(n->comp, dot, *sink, perm, &turned));
  WEFT_TRY(hlo_replace(dot, turned));
  WEFT_TRY(pass_outline(&turned, 1, &turned, 1, &map, "wrapped_transpose", &fusion));
  return pass_fusion_classify(fusion, NULL);
}

/* The sinks read the kernel instead of the links. */
static weft_status *use_kernel(group *g)
{
  hlo_instr *values[MOST_SINKS] = {g->kernel};

  for (int i = 0; i < g->sink_count; i++)
    if (score_side(g->net, g->sinks[i]) == 1) WEFT_TRY(exchange_sides(g->net, &g->sinks[i]));
  for (int i = 0; g->result_count > 1 && i < g->result_count; i++)
    WEFT_TRY(hlo_add_gte(g->net->comp, g->sinks[0], g->kernel, i, &values[i]));
  for (int i = 0; i < g->sink_count; i++) {
    hlo_instr *sink = g->sinks[i], *left = gen_library_left(sink);
    int r = 0, at = 0;
    while (g->results[r] != left) r++;
    while (sink->operands[at] != left) at++;
    WEFT_TRY(hlo_set_operand(sink, at, values[r]));
  }
  return hlo_computation_sort(g->net->comp);
}

/* Sources, kernel and sinks become one step. */
static weft_status *outline(group *g)
{
  net *n = g->net;
  pass_map map = {.arena = n->ctx->scratch};
  hlo_instr *members[MOST_SOURCES + 2 * MOST_SINKS + 1], *fusion;
  int count = 0;

  HLO_FOREACH(x, n->comp) {
    bool is_member = x == g->kernel || (x->op == HLO_GET_TUPLE_ELEMENT && x->operands[0] == g->kernel);
    for (int i = 0; i < g->sink_count; i++) is_member = is_member || g->sinks[i] == x;
    is_member = is_member || (role_of(n, x) == SOURCE && g->needs[x->id - n->low]);
    if (is_member) members[count++] = x;
  }
  WEFT_TRY(pass_outline(members, count, g->sinks, g->sink_count, &map, "strips_fusion", &fusion));
  WEFT_TRY(pass_fusion_classify(fusion, GEN_STRIP_GROUP));
  return hlo_computation_sort(n->comp);
}

static weft_status *remove_dead_links(net *n)
{
  for (hlo_instr *x = n->comp->last, *before; x; x = before) {
    before = x->prev;
    if (x->id - n->low < n->count && n->is_in[x->id - n->low] && hlo_is_dead(x)) WEFT_TRY(hlo_remove(x));
  }
  return NULL;
}

static int links_in(const group *g)
{
  int count = 0;

  HLO_FOREACH(x, g->net->comp)
    count += x->op == HLO_FUSION && role_of(g->net, x) == LINK && g->needs[x->id - g->net->low];
  return count;
}

static int sources_in(const group *g)
{
  int count = 0;

  HLO_FOREACH(x, g->net->comp) count += role_of(g->net, x) == SOURCE && g->needs[x->id - g->net->low];
  return count;
}

/* Would pass strips make a step of it, if its links were one fusion? */
static bool is_single_chain(const group *g)
{
  return g->sink_count == 1 && is_over_columns(g->net, g->sinks[0]) && sources_in(g) == 1;
}

/* Distributes the sinks of the net over groups and makes the step of each. */
static weft_status *take_net(net *n, bool *changed)
{
  group *groups = WEFT_ARENA_ARRAY(n->ctx->scratch, group, MOST_SINKS);
  bool is_chain[MOST_SINKS];
  int count = 0;

  WEFT_TRY_ALLOC(groups);
  for (int done = 0; done < n->sink_count; done += groups[count++].sink_count) {
    groups[count].net = n;
    groups[count].needs = WEFT_ARENA_ARRAY(n->ctx->scratch, bool, n->count);
    WEFT_TRY_ALLOC(groups[count].needs);
    WEFT_TRY(choose_sinks(&groups[count]));
  }
  if (count == 1 && is_single_chain(&groups[0]) && links_in(&groups[0]) == 1 && score_side(n, n->sinks[0]) == 0)
    return NULL; /* pass strips does it */
  /* all or none: a group that stays would need whole arrays */
  for (int i = 0; i < count; i++) {
    WEFT_TRY(make_kernel(&groups[i]));
    if (groups[i].kernel) continue;
    while (--i >= 0) WEFT_TRY(hlo_remove(groups[i].kernel));
    return NULL;
  }
  for (int i = 0; i < count; i++) is_chain[i] = is_single_chain(&groups[i]);
  for (int i = 0; i < count; i++) WEFT_TRY(use_kernel(&groups[i]));
  for (int i = 0; i < count; i++) {
    bool fits = false; /* two groups may each be one step, but not both */
    if (!is_chain[i]) WEFT_TRY(is_one_step(&groups[i], &fits));
    if (fits) WEFT_TRY(outline(&groups[i]));
  }
  *changed = true;
  return remove_dead_links(n);
}

static weft_status *strip_groups_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_map tried = {.arena = ctx->scratch};
  pass_comps comps;
  bool made = false; /* kernels, which may have been given up */

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int c = 0; c < comps.count; c++)
    for (hlo_instr *x = comps.v[c]->first; x;) {
      net n;
      bool is_net = false, took = false;
      if (x->op != HLO_FUSION && x->op != HLO_DOT) {
        x = x->next;
        continue;
      }
      for (int side = 0; side < 2 && !is_net && !pass_map_get(&tried, x->id); side++)
        WEFT_TRY(find_net(ctx, x, side, &n, &is_net));
      WEFT_TRY(pass_map_set(&tried, x->id, x));
      if (is_net) {
        for (int i = 0; i < n.sink_count; i++) WEFT_TRY(pass_map_set(&tried, n.sinks[i]->id, n.sinks[i]));
        WEFT_TRY(take_net(&n, &took));
        made = true;
      }
      *changed = *changed || took;
      x = took ? comps.v[c]->first : x->next; /* the order has changed */
    }
  return made ? hlo_module_gc(module) : NULL;
}
const hlo_pass pass_strip_groups = {"strip-groups", strip_groups_run};
