/* codegen/emit/region.c -- control flow over small arrays as one function.
 *
 * The fused computation is itself scheduled: fusions, copies, while, conditional, call and tuples. Each fusion
 * becomes an internal function (equal ones once; the walker emits it), control flow becomes branches, and every value
 * has a fixed place:
 * an argument, a constant, or an offset in scratch. Values that HLO wants in one place (a loop's state, its initial
 * value and what its body yields; an update in place) are united into one class; copy insertion has made sure that
 * they are never alive at once. Where a value must not be overwritten (an operand, a constant), it is copied instead
 * of united. A loop whose round ends with a copy of a whole array into its state exchanges the two places instead.
 *
 * On a GPU the threads of one block run the function together: all of them take the same branches, and the walker's
 * inner kernels and copies end in a barrier. */
#include <config.h>

#include "codegen/emit/emit.h"

#include <stdio.h>
#include <string.h>

enum { MAX_NESTING = 64, MOST_INSTRS = 200000, INLINE_INSTRS = 24, INNER_BUCKETS = 256, LEAST_SWAPPED_BYTES = 512 };

/* ---- inner kernels --------------------------------------------------------------------------------------------- */

typedef struct inner {
  const hlo_instr *fusion;
  uint64_t hash;
  gen_kernel info;
  gen_ssa fn[GEN_MAX_PHASES];
  struct inner *next;
} inner;

struct gen_inner_table {
  inner *buckets[INNER_BUCKETS];
  int count;
};

static bool all_scalar(const hlo_instr *fusion)
{
  for (int i = 0; i < fusion->operand_count; i++)
    if (hlo_shape_is_array(fusion->operands[i]->shape) && fusion->operands[i]->shape->rank > 0) return false;
  for (int r = 0; r < hlo_shape_leaf_count(fusion->shape); r++)
    if (hlo_shape_leaf(fusion->shape, r)->rank > 0) return false;
  return fusion->called[0]->instr_count <= INLINE_INSTRS;
}

static weft_status *inner_kernel(gen_part *p, const hlo_instr *fusion, inner **out)
{
  char names[GEN_MAX_PHASES][32];
  uint64_t hash = hlo_computation_hash(fusion->called[0]);

  if (!p->inner) WEFT_TRY_ALLOC(p->inner = WEFT_ARENA_NEW(p->arena, struct gen_inner_table));
  inner **bucket = &p->inner->buckets[(hash ^ hash >> 32) % INNER_BUCKETS];
  for (inner *k = *bucket; k; k = k->next)
    if (k->hash == hash && gen_fusion_equal(k->fusion, fusion)) return *out = k, NULL;
  inner *k = WEFT_ARENA_NEW(p->arena, inner);
  WEFT_TRY_ALLOC(k);
  *k = (inner){.fusion = fusion, .hash = hash};
  gen_kernel_spec spec = {.fusion = fusion, .info = &k->info, .nested = true, .inlined = all_scalar(fusion)};
  for (int i = 0; i < GEN_MAX_PHASES; i++) {
    snprintf(names[i], sizeof names[i], "inner%d.%d", p->inner->count, i);
    spec.symbols[i] = names[i];
  }
  p->inner->count++;
  char where[160];
  WEFT_TRY_NOTE(p->walker->inner(p, &spec), "in %s", hlo_describe(fusion, where, sizeof where));
  for (int i = 0; i < k->info.phase_count; i++) {
    k->fn[i] = LLVMGetNamedFunction(p->mod, names[i]);
    LLVMSetLinkage(k->fn[i], LLVMInternalLinkage);
    if (!spec.inlined) continue;
    unsigned always = LLVMGetEnumAttributeKindForName("alwaysinline", 12);
    LLVMAddAttributeAtIndex(k->fn[i], LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(p->ctx, always, 0));
  }
  k->next = *bucket;
  *bucket = k;
  *out = k;
  return NULL;
}

/* ---- instances and places -------------------------------------------------------------------------------------- */

/* One use of a computation in the region. */
typedef struct instance {
  const hlo_computation *comp;
  int low;
  int *node;                 /* by instruction id - low: its first leaf */
  struct instance ***kids;   /* by instruction id - low: one per called computation */
  bool **copies;             /* by instruction id - low: per leaf, see below */
  inner **kernels;           /* by instruction id - low: of fusions */
} instance;
/* copies of a while: [leaf]: the initial value is copied in; [leaves + leaf]: what the body yields is copied back.
 * Of a conditional: [branch * leaves + leaf]: what the branch yields is copied.
 * Of a copy: [0]: nothing is copied, the loop exchanges places (find_swaps). */

typedef struct place {
  enum { PLACE_NONE, PLACE_SCRATCH, PLACE_OPERAND, PLACE_RESULT, PLACE_CONSTANT } kind;
  int index;                 /* operand or result leaf */
  int64_t offset;
  const hlo_instr *constant;
} place;

typedef struct region {
  gen_part *part;
  gen_frame f;
  int *parent;               /* union-find over nodes */
  place *places;             /* of roots */
  gen_ssa *moved;            /* of roots: where the value is inside a loop that exchanges places, or NULL */
  int64_t *bytes;            /* of roots */
  int nodes, capacity, instrs;
  instance *top;
  bool *result_copies;
  int64_t scratch, inner_scratch, inner_shared, inner_scratch_at, inner_shared_at, swap_at, swap_bytes;
} region;

static int find(region *r, int x)
{
  while (r->parent[x] != x) x = r->parent[x] = r->parent[r->parent[x]];
  return x;
}

static bool is_fixed(region *r, int x) /* the region must not write it */
{
  place p = r->places[find(r, x)];
  return p.kind == PLACE_OPERAND || p.kind == PLACE_CONSTANT;
}

static void unite(region *r, int a, int b)
{
  a = find(r, a), b = find(r, b);
  if (a == b) return;
  if (r->places[a].kind == PLACE_NONE) r->places[a] = r->places[b];
  r->bytes[a] = WEFT_MAX(r->bytes[a], r->bytes[b]);
  r->parent[b] = a;
}

static int node_of(const instance *in, const hlo_instr *x) { return in->node[x->id - in->low]; }

static weft_status *new_nodes(region *r, const hlo_shape *shape, int *out)
{
  int n = hlo_shape_leaf_count(shape);

  if (r->nodes + n > r->capacity) {
    int capacity = WEFT_MAX(2 * r->capacity, r->nodes + n + 256);
    int *parent = WEFT_ARENA_ARRAY(r->part->arena, int, capacity);
    place *places = WEFT_ARENA_ARRAY(r->part->arena, place, capacity);
    int64_t *bytes = WEFT_ARENA_ARRAY(r->part->arena, int64_t, capacity);
    if (!parent || !places || !bytes) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
    if (r->nodes) {
      memcpy(parent, r->parent, sizeof *parent * (size_t)r->nodes);
      memcpy(places, r->places, sizeof *places * (size_t)r->nodes);
      memcpy(bytes, r->bytes, sizeof *bytes * (size_t)r->nodes);
    }
    r->parent = parent, r->places = places, r->bytes = bytes, r->capacity = capacity;
  }
  *out = r->nodes;
  for (int i = 0; i < n; i++, r->nodes++) {
    r->parent[r->nodes] = r->nodes;
    r->places[r->nodes] = (place){0};
    r->bytes[r->nodes] = hlo_shape_bytes(hlo_shape_leaf(shape, i));
  }
  return NULL;
}

static weft_status *settle(region *r, instance *in, int depth);

/* Makes the instance and the nodes of all its instructions. settle() unites the nodes. */
static weft_status *build(region *r, const hlo_computation *comp, int depth, instance **out)
{
  gen_part *p = r->part;
  instance *in = WEFT_ARENA_NEW(p->arena, instance);
  int high = 0;

  if (depth > MAX_NESTING) return WEFT_ERR(UNIMPLEMENTED, "codegen: a region nested more than %d deep", MAX_NESTING);
  WEFT_TRY_ALLOC(in);
  in->comp = comp;
  in->low = INT32_MAX;
  HLO_FOREACH(x, comp) in->low = WEFT_MIN(in->low, x->id), high = WEFT_MAX(high, x->id), r->instrs++;
  if (r->instrs > MOST_INSTRS)
    return WEFT_ERR(UNIMPLEMENTED, "codegen: a region of more than %d instructions", MOST_INSTRS);
  in->node = WEFT_ARENA_ARRAY(p->arena, int, high - in->low + 1);
  in->kids = WEFT_ARENA_ARRAY(p->arena, instance **, high - in->low + 1);
  in->copies = WEFT_ARENA_ARRAY(p->arena, bool *, high - in->low + 1);
  in->kernels = WEFT_ARENA_ARRAY(p->arena, inner *, high - in->low + 1);
  if (!in->node || !in->kids || !in->copies || !in->kernels) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  HLO_FOREACH(x, comp) {
    WEFT_TRY(new_nodes(r, x->shape, &in->node[x->id - in->low]));
    if (x->called_count && x->op != HLO_FUSION)
      WEFT_TRY_ALLOC(in->kids[x->id - in->low] = WEFT_ARENA_ARRAY(p->arena, instance *, x->called_count));
  }
  *out = in;
  return NULL;
}

static void unite_leaves(region *r, int a, int b, int n)
{
  for (int i = 0; i < n; i++) unite(r, a + i, b + i);
}

/* The instance of x's k-th computation. The leaves of its one parameter are united with the nodes at `given`. This
 * happens before settle(), because what a computation may overwrite depends on it. */
static weft_status *build_child(region *r, instance *in, const hlo_instr *x, int k, int depth, int given,
                                instance **out)
{
  const hlo_instr *param = x->called[k]->param_count ? x->called[k]->params[0] : NULL;

  WEFT_TRY(build(r, x->called[k], depth + 1, out));
  in->kids[x->id - in->low][k] = *out;
  if (param) unite_leaves(r, given, node_of(*out, param), hlo_shape_leaf_count(param->shape));
  return NULL;
}

/* Does the body yield this leaf of its state unchanged? (States of nested tuples are not looked into.) */
static bool is_invariant(const hlo_instr *loop, int leaf)
{
  const hlo_computation *body = loop->called[0];
  const hlo_instr *root = body->root, *next;

  if (root->op != HLO_TUPLE || hlo_shape_leaf_count(root->shape) != root->operand_count) return false;
  next = root->operands[leaf];
  return next->op == HLO_GET_TUPLE_ELEMENT && next->operands[0] == body->params[0] && next->u.tuple_index == leaf;
}

static weft_status *settle_while(region *r, instance *in, const hlo_instr *x, int depth)
{
  int n = hlo_shape_leaf_count(x->shape), mine = node_of(in, x), init = node_of(in, x->operands[0]);
  bool *copies = WEFT_ARENA_ARRAY(r->part->arena, bool, 2 * n);
  instance *body, *cond;

  WEFT_TRY_ALLOC(copies);
  in->copies[x->id - in->low] = copies;
  for (int i = 0; i < n; i++) {
    bool taken = is_fixed(r, init + i) && !is_invariant(x, i);
    for (int j = 0; j < i && !taken; j++) taken = find(r, mine + j) == find(r, init + i);
    copies[i] = taken;
    if (!taken) unite(r, mine + i, init + i);
  }
  WEFT_TRY(build_child(r, in, x, 0, depth, mine, &body));
  WEFT_TRY(build_child(r, in, x, 1, depth, mine, &cond));
  WEFT_TRY(settle(r, body, depth + 1));
  int root = node_of(body, x->called[0]->root);
  for (int i = 0; i < n; i++) {
    if (find(r, root + i) == find(r, mine + i)) continue;
    copies[n + i] = is_fixed(r, root + i);
    for (int j = 0; j < n && !copies[n + i]; j++) copies[n + i] = find(r, root + i) == find(r, mine + j);
    if (!copies[n + i]) unite(r, mine + i, root + i);
  }
  for (int i = 0; i < n; i++)
    if (copies[n + i]) r->swap_bytes = WEFT_MAX(r->swap_bytes, hlo_shape_total_bytes(x->shape) + 64 * n);
  return settle(r, cond, depth + 1);
}

static weft_status *settle_conditional(region *r, instance *in, const hlo_instr *x, int depth)
{
  int n = hlo_shape_leaf_count(x->shape), mine = node_of(in, x);
  bool *copies = WEFT_ARENA_ARRAY(r->part->arena, bool, n * x->called_count);

  WEFT_TRY_ALLOC(copies);
  in->copies[x->id - in->low] = copies;
  for (int b = 0; b < x->called_count; b++) {
    int given = node_of(in, x->operands[b + 1]), given_count = hlo_shape_leaf_count(x->operands[b + 1]->shape);
    instance *branch;
    WEFT_TRY(build_child(r, in, x, b, depth, given, &branch));
    WEFT_TRY(settle(r, branch, depth + 1));
    int root = node_of(branch, x->called[b]->root);
    for (int i = 0; i < n; i++) {
      bool copy = is_fixed(r, root + i);
      for (int j = 0; j < given_count && !copy; j++) copy = find(r, root + i) == find(r, given + j);
      for (int j = 0; j < n && !copy; j++) copy = j != i && find(r, root + i) == find(r, mine + j);
      copies[b * n + i] = copy;
      if (!copy) unite(r, mine + i, root + i);
    }
  }
  return NULL;
}

static weft_status *settle(region *r, instance *in, int depth)
{
  HLO_FOREACH(x, in->comp) {
    int mine = node_of(in, x), n = hlo_shape_leaf_count(x->shape);
    switch (x->op) {
    case HLO_PARAMETER: case HLO_COPY: case HLO_AFTER_ALL: break;
    case HLO_CONSTANT: r->places[find(r, mine)] = (place){.kind = PLACE_CONSTANT, .constant = x}; break;
    case HLO_GET_TUPLE_ELEMENT:
      unite_leaves(r, node_of(in, x->operands[0]) + hlo_shape_leaf_offset(x->operands[0]->shape, x->u.tuple_index),
                   mine, n);
      break;
    case HLO_TUPLE:
      for (int i = 0, at = mine; i < x->operand_count; i++) {
        int k = hlo_shape_leaf_count(x->operands[i]->shape);
        unite_leaves(r, node_of(in, x->operands[i]), at, k);
        at += k;
      }
      break;
    case HLO_BITCAST: case HLO_RESHAPE: case HLO_OPT_BARRIER: case HLO_ADD_DEPENDENCY:
    case HLO_DOMAIN: unite_leaves(r, node_of(in, x->operands[0]), mine, n); break;
    case HLO_FUSION: {
      inner *k;
      WEFT_TRY(inner_kernel(r->part, x, &k));
      in->kernels[x->id - in->low] = k;
      r->inner_scratch = WEFT_MAX(r->inner_scratch, k->info.scratch_bytes);
      r->inner_shared = WEFT_MAX(r->inner_shared, k->info.shared_bytes);
      for (int a = 0; a < x->u.fusion.alias_count; a++) {
        const hlo_output_alias *alias = &x->u.fusion.aliases[a];
        int out = alias->output_index.count ? hlo_shape_leaf_offset(x->shape, alias->output_index.v[0]) : 0;
        int from = node_of(in, x->operands[alias->operand]);
        if (!hlo_shape_is_array(x->operands[alias->operand]->shape) || is_fixed(r, from))
          continue; /* the kernel copies */
        unite(r, from, mine + out);
      }
      break;
    }
    case HLO_WHILE: WEFT_TRY(settle_while(r, in, x, depth)); break;
    case HLO_CONDITIONAL: WEFT_TRY(settle_conditional(r, in, x, depth)); break;
    case HLO_CALL: {
      instance *callee;
      WEFT_TRY(build(r, x->called[0], depth + 1, &callee));
      in->kids[x->id - in->low][0] = callee;
      for (int i = 0; i < x->operand_count; i++)
        unite_leaves(r, node_of(in, x->operands[i]), node_of(callee, x->called[0]->params[i]),
                     hlo_shape_leaf_count(x->operands[i]->shape));
      WEFT_TRY(settle(r, callee, depth + 1));
      unite_leaves(r, node_of(callee, x->called[0]->root), mine, n);
      break;
    }
    default: {
      char where[160];
      return WEFT_ERR(UNIMPLEMENTED, "codegen: %s in a region (%s)", hlo_opcode_name(x->op),
                      hlo_describe(x, where, sizeof where));
    }
    }
  }
  return NULL;
}

static void reserve(region *r, int64_t *at, int64_t bytes)
{
  r->scratch = bytes >= 64 ? WEFT_ALIGN_UP(r->scratch, 64) : WEFT_ALIGN_UP(r->scratch, 16);
  *at = r->scratch;
  r->scratch += bytes;
}

int gen_alias_leaf(const hlo_instr *fusion, const hlo_output_alias *alias)
{
  return alias->output_index.count ? hlo_shape_leaf_offset(fusion->shape, alias->output_index.v[0]) : 0;
}

static weft_status *lay_out(region *r, const hlo_instr *fusion)
{
  const hlo_computation *comp = fusion->called[0];
  int results = hlo_shape_leaf_count(fusion->shape), leaf = 0;

  WEFT_TRY(build(r, comp, 0, &r->top));
  for (int i = 0; i < comp->param_count; i++)
    for (int l = 0; l < hlo_shape_leaf_count(comp->params[i]->shape); l++)
      r->places[node_of(r->top, comp->params[i]) + l] = (place){.kind = PLACE_OPERAND, .index = leaf++};
  /* the region copies it into the result first, and may write it from then on */
  for (int a = 0; a < fusion->u.fusion.alias_count; a++) {
    const hlo_output_alias *alias = &fusion->u.fusion.aliases[a];
    const hlo_instr *param = comp->params[alias->operand];
    if (!hlo_shape_is_array(param->shape)) continue;
    r->places[node_of(r->top, param)] = (place){.kind = PLACE_RESULT, .index = gen_alias_leaf(fusion, alias)};
  }
  WEFT_TRY(settle(r, r->top, 0));
  WEFT_TRY_ALLOC(r->result_copies = WEFT_ARENA_ARRAY(r->part->arena, bool, results));
  for (int i = 0; i < results; i++) {
    int root = find(r, node_of(r->top, comp->root) + i);
    place p = r->places[root];
    r->result_copies[i] = p.kind != PLACE_NONE && (p.kind != PLACE_RESULT || p.index != i);
    if (p.kind == PLACE_NONE) r->places[root] = (place){.kind = PLACE_RESULT, .index = i};
  }
  for (int i = 0; i < r->nodes; i++) {
    if (find(r, i) != i || r->places[i].kind != PLACE_NONE || r->bytes[i] == 0) continue;
    r->places[i].kind = PLACE_SCRATCH;
    reserve(r, &r->places[i].offset, r->bytes[i]);
  }
  reserve(r, &r->inner_scratch_at, WEFT_ALIGN_UP(r->inner_scratch, 64));
  reserve(r, &r->inner_shared_at, WEFT_ALIGN_UP(r->inner_shared, 64));
  reserve(r, &r->swap_at, r->swap_bytes);
  WEFT_TRY_ALLOC(r->moved = WEFT_ARENA_ARRAY(r->part->arena, gen_ssa, r->nodes));
  return NULL;
}

/* ---- emitting -------------------------------------------------------------------------------------------------- */

static gen_ssa ptr_of(region *r, int node)
{
  gen_emit *e = &r->f.e;
  int root = find(r, node);
  place p = r->places[root];

  if (r->moved[root]) return r->moved[root];
  switch (p.kind) {
  case PLACE_OPERAND: return r->f.operands[p.index].ptr;
  case PLACE_RESULT: return r->f.results[p.index].ptr;
  case PLACE_CONSTANT: return gen_constant_data(e, p.constant);
  case PLACE_SCRATCH: return gen_byte_ptr(e, r->f.scratch, p.offset);
  default: return LLVMConstNull(e->part->ptr);
  }
}

static void copy_bytes(region *r, gen_ssa to, gen_ssa from, int64_t bytes)
{
  if (bytes > 0) r->part->walker->copy(&r->f.e, to, from, bytes);
}

static void copy_leaf(region *r, int to, int from, int64_t bytes)
{
  if (find(r, to) == find(r, from)) return;
  gen_ssa target = ptr_of(r, to);
  copy_bytes(r, target, ptr_of(r, from), bytes);
}

static weft_status *emit_instance(region *r, instance *in);

static weft_status *emit_fusion(region *r, instance *in, const hlo_instr *x)
{
  gen_emit *e = &r->f.e;
  const inner *k = in->kernels[x->id - in->low];
  int n = 0;

  gen_ssa *args = WEFT_ARENA_ARRAY(e->arena, gen_ssa, k->info.arg_count + 2);
  WEFT_TRY_ALLOC(args);
  for (int i = 0; i < x->operand_count; i++)
    for (int l = 0; l < hlo_shape_leaf_count(x->operands[i]->shape); l++)
      args[n++] = ptr_of(r, node_of(in, x->operands[i]) + l);
  for (int l = 0; l < hlo_shape_leaf_count(x->shape); l++) args[n++] = ptr_of(r, node_of(in, x) + l);
  if (k->info.scratch_bytes) args[n++] = gen_byte_ptr(e, r->f.scratch, r->inner_scratch_at);
  if (k->info.shared_bytes) args[n++] = gen_byte_ptr(e, r->f.scratch, r->inner_shared_at);
  for (int i = 0; i < k->info.phase_count; i++) {
    if (k->info.phases[i].units == 0) continue;
    args[n] = gen_i64(e, 0);
    args[n + 1] = gen_i64(e, k->info.phases[i].units);
    LLVMBuildCall2(e->b, LLVMGlobalGetValueType(k->fn[i]), k->fn[i], args, (unsigned)n + 2, "");
  }
  return NULL;
}

/* The value that decides the next branch. All threads load it before any of them goes on and changes its place. */
static gen_ssa load_choice(region *r, int node, LLVMTypeRef type)
{
  gen_emit *e = &r->f.e;
  gen_ssa v = LLVMBuildLoad2(e->b, type, ptr_of(r, node), "");

  r->part->walker->sync(e);
  return v;
}

static gen_ssa load_flag(region *r, int node)
{
  gen_emit *e = &r->f.e;
  gen_ssa v = load_choice(r, node, e->part->i8);
  return gen_icmp(e, LLVMIntNE, v, gen_i(v, 0));
}

/* Two places of one size that a loop exchanges at the end of each round: that of a leaf of its state, and the one in
 * which the body makes the leaf's next value. */
typedef struct swap {
  int root[2];     /* of the state, of the next one */
  gen_ssa outer[2]; /* r->moved outside of the loop */
  gen_ssa home[2]; /* the two places outside of the loop */
  gen_ssa at[2];   /* where they are in a round */
} swap;

static bool is_at(region *r, const instance *in, const hlo_instr *x, const swap *s)
{
  for (int l = 0; l < hlo_shape_leaf_count(x->shape); l++) {
    int root = find(r, node_of(in, x) + l);
    if (root == s->root[0] || root == s->root[1]) return true;
  }
  return false;
}

/* True if `copy` is the body's last use of the two places. */
static bool is_last(region *r, const instance *body, const hlo_instr *copy, const swap *s)
{
  bool after = false;

  HLO_FOREACH(x, body->comp) {
    bool touches = after && !hlo_opcode_is_alias(x->op);
    if (touches && x->called_count && x->op != HLO_FUSION) return false;
    if (touches && is_at(r, body, x, s)) return false;
    for (int i = 0; i < x->operand_count && touches; i++)
      if (is_at(r, body, x->operands[i], s)) return false;
    after = after || x == copy;
  }
  return true;
}

/* The leaves of a loop's state that the body copies at its end from a place that only the body knows. Their copies are
 * marked as done. */
static weft_status *find_swaps(region *r, instance *in, const hlo_instr *loop, swap **out, int *out_count)
{
  instance *body = in->kids[loop->id - in->low][0];
  const hlo_instr *root = loop->called[0]->root;
  int n = hlo_shape_leaf_count(loop->shape), mine = node_of(in, loop);

  WEFT_TRY_ALLOC(*out = WEFT_ARENA_ARRAY(r->part->arena, swap, n));
  *out_count = 0;
  if (root->op != HLO_TUPLE || root->operand_count != n) return NULL;
  for (int i = 0; i < n; i++) {
    const hlo_instr *copy = root->operands[i];
    if (copy->op != HLO_COPY || !hlo_shape_is_array(copy->shape)) continue;
    int state = find(r, mine + i), next = find(r, node_of(body, copy->operands[0]));
    swap s = {.root = {state, next}};
    bool fits = find(r, node_of(body, copy)) == state && r->places[next].kind == PLACE_SCRATCH &&
                r->bytes[state] == r->bytes[next] && r->bytes[next] >= LEAST_SWAPPED_BYTES;
    for (int j = 0; j < n; j++) fits = fits && find(r, mine + j) != next && (j == i || find(r, mine + j) != state);
    for (int j = 0; j < *out_count; j++) fits = fits && (*out)[j].root[1] != next;
    if (!fits || !is_last(r, body, copy, &s)) continue;
    bool **done = &body->copies[copy->id - body->low];
    WEFT_TRY_ALLOC(*done = WEFT_ARENA_ARRAY(r->part->arena, bool, 1));
    **done = true;
    (*out)[(*out_count)++] = s;
  }
  return NULL;
}

/* Begins the loop's head, where the places become those of the round. */
static void enter_swaps(region *r, swap *swaps, int count, LLVMBasicBlockRef head)
{
  gen_emit *e = &r->f.e;

  for (int i = 0; i < count; i++)
    for (int k = 0; k < 2; k++) {
      swaps[i].outer[k] = r->moved[swaps[i].root[k]];
      swaps[i].home[k] = ptr_of(r, swaps[i].root[k]);
    }
  LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b);
  LLVMBuildBr(e->b, head);
  LLVMPositionBuilderAtEnd(e->b, head);
  for (int i = 0; i < count; i++)
    for (int k = 0; k < 2; k++) {
      swap *s = &swaps[i];
      s->at[k] = r->moved[s->root[k]] = LLVMBuildPhi(e->b, e->part->ptr, "");
      LLVMAddIncoming(s->at[k], &s->home[k], &before, 1);
    }
}

/* At the end of the body, before the remaining copies. */
static void exchange(region *r, swap *swaps, int count)
{
  for (int i = 0; i < count; i++)
    for (int k = 0; k < 2; k++) r->moved[swaps[i].root[k]] = swaps[i].at[1 - k];
}

static void end_round(region *r, swap *swaps, int count, LLVMBasicBlockRef head)
{
  LLVMBasicBlockRef last = LLVMGetInsertBlock(r->f.e.b);

  for (int i = 0; i < count; i++)
    for (int k = 0; k < 2; k++) LLVMAddIncoming(swaps[i].at[k], &r->moved[swaps[i].root[k]], &last, 1);
  LLVMBuildBr(r->f.e.b, head);
}

/* After the loop: copies the state to the places that it has outside of the loop. */
static void leave_swaps(region *r, swap *swaps, int count)
{
  gen_emit *e = &r->f.e;

  for (int i = 0; i < count; i++) {
    swap *s = &swaps[i];
    gen_if away;
    gen_if_begin(e, &away, gen_icmp(e, LLVMIntNE, s->at[0], s->home[0]));
    copy_bytes(r, s->home[0], s->at[0], r->bytes[s->root[0]]);
    gen_if_end(e, &away);
    for (int k = 0; k < 2; k++) r->moved[s->root[k]] = s->outer[k];
  }
}

static weft_status *emit_while(region *r, instance *in, const hlo_instr *x)
{
  gen_emit *e = &r->f.e;
  int n = hlo_shape_leaf_count(x->shape), mine = node_of(in, x), swap_count;
  const bool *copies = in->copies[x->id - in->low];
  instance *body = in->kids[x->id - in->low][0], *cond = in->kids[x->id - in->low][1];
  int root = node_of(body, x->called[0]->root);
  swap *swaps;

  for (int i = 0; i < n; i++)
    if (copies[i])
      copy_leaf(r, mine + i, node_of(in, x->operands[0]) + i, hlo_shape_bytes(hlo_shape_leaf(x->shape, i)));
  LLVMBasicBlockRef head = LLVMAppendBasicBlockInContext(e->part->ctx, e->fn, "while");
  LLVMBasicBlockRef inside = LLVMAppendBasicBlockInContext(e->part->ctx, e->fn, "do");
  LLVMBasicBlockRef exit = LLVMAppendBasicBlockInContext(e->part->ctx, e->fn, "done");
  WEFT_TRY(find_swaps(r, in, x, &swaps, &swap_count));
  enter_swaps(r, swaps, swap_count, head);
  WEFT_TRY(emit_instance(r, cond));
  LLVMBuildCondBr(e->b, load_flag(r, node_of(cond, x->called[1]->root)), inside, exit);
  LLVMPositionBuilderAtEnd(e->b, inside);
  WEFT_TRY(emit_instance(r, body));
  exchange(r, swaps, swap_count);
  for (int pass = 0; pass < 2; pass++) { /* through a buffer, because values may exchange places */
    int64_t at = r->swap_at;
    for (int i = 0; i < n; i++) {
      int64_t bytes = hlo_shape_bytes(hlo_shape_leaf(x->shape, i));
      if (!copies[n + i]) continue;
      gen_ssa between = gen_byte_ptr(e, r->f.scratch, at);
      gen_ssa own = ptr_of(r, pass ? mine + i : root + i);
      copy_bytes(r, pass ? own : between, pass ? between : own, bytes);
      at += WEFT_ALIGN_UP(bytes, 16);
    }
  }
  end_round(r, swaps, swap_count, head);
  LLVMPositionBuilderAtEnd(e->b, exit);
  leave_swaps(r, swaps, swap_count);
  return NULL;
}

static weft_status *emit_conditional(region *r, instance *in, const hlo_instr *x)
{
  gen_emit *e = &r->f.e;
  gen_part *p = r->part;
  int n = hlo_shape_leaf_count(x->shape), mine = node_of(in, x), branches = x->called_count;
  const bool *copies = in->copies[x->id - in->low];
  LLVMBasicBlockRef merge = LLVMAppendBasicBlockInContext(p->ctx, e->fn, "join");
  bool is_pred = x->operands[0]->shape->type == WEFT_PRED;
  gen_ssa index = load_choice(r, node_of(in, x->operands[0]), is_pred ? p->i8 : p->i32);

  if (is_pred)
    index = LLVMBuildZExt(e->b, gen_icmp(e, LLVMIntEQ, index, gen_i(index, 0)), p->i32, ""); /* true: branch 0 */
  LLVMBasicBlockRef *blocks = WEFT_ARENA_ARRAY(e->arena, LLVMBasicBlockRef, branches);
  WEFT_TRY_ALLOC(blocks);
  for (int b = 0; b < branches; b++) blocks[b] = LLVMAppendBasicBlockInContext(p->ctx, e->fn, "branch");
  gen_ssa pick = LLVMBuildSwitch(e->b, index, blocks[branches - 1], (unsigned)branches);
  for (int b = 0; b + 1 < branches; b++) LLVMAddCase(pick, LLVMConstInt(p->i32, (unsigned)b, 0), blocks[b]);
  for (int b = 0; b < branches; b++) {
    instance *branch = in->kids[x->id - in->low][b];
    LLVMPositionBuilderAtEnd(e->b, blocks[b]);
    WEFT_TRY(emit_instance(r, branch));
    for (int i = 0; i < n; i++)
      if (copies[b * n + i])
        copy_leaf(r, mine + i, node_of(branch, x->called[b]->root) + i, hlo_shape_bytes(hlo_shape_leaf(x->shape, i)));
    LLVMBuildBr(e->b, merge);
  }
  LLVMPositionBuilderAtEnd(e->b, merge);
  return NULL;
}

static weft_status *emit_instance(region *r, instance *in)
{
  HLO_FOREACH(x, in->comp) {
    switch (x->op) {
    case HLO_FUSION: WEFT_TRY(emit_fusion(r, in, x)); break;
    case HLO_COPY:
      if (in->copies[x->id - in->low]) break;
      for (int l = 0; l < hlo_shape_leaf_count(x->shape); l++)
        copy_leaf(r, node_of(in, x) + l, node_of(in, x->operands[0]) + l, hlo_shape_bytes(hlo_shape_leaf(x->shape, l)));
      break;
    case HLO_WHILE: WEFT_TRY(emit_while(r, in, x)); break;
    case HLO_CONDITIONAL: WEFT_TRY(emit_conditional(r, in, x)); break;
    case HLO_CALL: WEFT_TRY(emit_instance(r, in->kids[x->id - in->low][0])); break;
    default: break;
    }
  }
  return NULL;
}

weft_status *gen_emit_region_kernel(gen_part *part, gen_kernel_spec *spec)
{
  const hlo_instr *fusion = spec->fusion;
  gen_kernel *info = spec->info;
  region r = {.part = part};

  WEFT_TRY(lay_out(&r, fusion));
  info->scratch_bytes = r.scratch;
  WEFT_TRY(part->walker->start(part, spec, &r.f));
  WEFT_TRY(emit_instance(&r, r.top));
  int root = node_of(r.top, fusion->called[0]->root);
  for (int i = 0; i < hlo_shape_leaf_count(fusion->shape); i++)
    if (r.result_copies[i])
      copy_bytes(&r, r.f.results[i].ptr, ptr_of(&r, root + i), hlo_shape_bytes(hlo_shape_leaf(fusion->shape, i)));
  gen_frame_close(&r.f);
  info->phase_count = 1;
  info->phases[0] = (gen_phase){.units = 1};
  return NULL;
}
