/* collective/host/schedule.c -- the algorithms.  Notation: P ranks, `me` is this one, and arithmetic on ranks is
 * modulo P.  problem.c has what the algorithms are given, and the check of what they make. */
#include <config.h>

#include "collective/host/schedule.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define DEFAULT_SEGMENT_BYTES (64 << 10)
#define MAX_SEGMENTS 256

/* Ranks that work together, in the order that the algorithm uses. */
typedef struct group {
  int n, me;
  const int *member; /* NULL: the identity */
} group;

/* A vector cut into n blocks. */
typedef struct blocks {
  int n;
  const int64_t *prefix;       /* byte offsets, or NULL: */
  int64_t equal;               /* blocks of so many bytes, or -1: */
  int64_t elems, elem_bytes;   /* this many elements, as evenly as can be */
} blocks;

/* An offset in one of the three memories. */
typedef struct place {
  coll_memory in;
  int64_t at;
} place;

typedef struct builder {
  const coll_problem *p;
  coll_schedule *s;
  bool failed;
} builder;

static const place IN = {COLL_IN, 0}, OUT = {COLL_OUT, 0}, TMP = {COLL_TMP, 0};

static place plus(place where, int64_t bytes) { return (place){where.in, where.at + bytes}; }
static int real(group g, int i) { return g.member ? g.member[i] : i; }
static int wrap(int i, int n) { return ((i % n) + n) % n; }

static int64_t begin(blocks b, int i)
{
  if (b.prefix) return b.prefix[i];
  if (b.equal >= 0) return b.equal * i;
  return (b.elems / b.n * i + WEFT_MIN((int64_t)i, b.elems % b.n)) * b.elem_bytes;
}
static int64_t extent(blocks b, int first, int end) { return begin(b, end) - begin(b, first); }
static int64_t length(blocks b, int i) { return extent(b, i, i + 1); }
static int64_t longest(blocks b)
{
  int64_t most = 0;
  for (int i = 0; i < b.n; i++) most = WEFT_MAX(most, length(b, i));
  return most;
}
static blocks evenly(const coll_problem *p, int n)
{
  return (blocks){.n = n, .equal = -1, .elems = p->bytes / p->elem_bytes, .elem_bytes = p->elem_bytes};
}
static blocks per_rank(const coll_problem *p) { return (blocks){.n = p->size, .prefix = p->prefix, .equal = p->bytes}; }
static group everybody(const coll_problem *p) { return (group){p->size, p->rank, NULL}; }

/* The ranks of this rank's node; and the i-th rank of any node. */
static group my_node(const coll_problem *p)
{
  const coll_topology *t = p->topology;
  int node = t->node[p->rank];
  group g = {t->first[node + 1] - t->first[node], 0, t->ranks + t->first[node]};

  while (g.member[g.me] != p->rank) g.me++;
  return g;
}
static int on_node(const coll_topology *t, int node, int i) { return t->ranks[t->first[node] + i]; }

static void emit(builder *b, coll_step step)
{
  coll_schedule *s = b->s;

  if (WEFT_RESERVE(s->steps, s->capacity, s->count + 1, 16)) s->steps[s->count++] = step;
  else b->failed = true;
}

static void send(builder *b, int peer, place src, int64_t bytes)
{
  emit(b, (coll_step){.kind = COLL_SEND, .peer = peer, .src_in = src.in, .src = src.at, .bytes = bytes});
}
static void recv(builder *b, int peer, place dst, int64_t bytes)
{
  emit(b, (coll_step){.kind = COLL_RECV, .peer = peer, .dst_in = dst.in, .dst = dst.at, .bytes = bytes});
}
static void recv_reduce(builder *b, int peer, place dst, place src, int64_t bytes, bool incoming_left)
{
  emit(b, (coll_step){.kind = COLL_RECV_REDUCE,
                      .peer = peer,
                      .dst_in = dst.in,
                      .dst = dst.at,
                      .src_in = src.in,
                      .src = src.at,
                      .bytes = bytes,
                      .incoming_left = incoming_left});
}
static bool same_place(const builder *b, place x, place y)
{
  bool alias = x.in == y.in || (b->p->in_place && x.in != COLL_TMP && y.in != COLL_TMP);
  return alias && x.at == y.at;
}
static void copy(builder *b, place dst, place src, int64_t bytes)
{
  if (same_place(b, dst, src)) return;
  emit(b, (coll_step){
            .kind = COLL_COPY, .dst_in = dst.in, .dst = dst.at, .src_in = src.in, .src = src.at, .bytes = bytes});
}
static void fold(builder *b, place dst, place src, int64_t bytes, int contributions)
{
  emit(b, (coll_step){.kind = COLL_FOLD,
                      .dst_in = dst.in,
                      .dst = dst.at,
                      .src_in = src.in,
                      .src = src.at,
                      .bytes = bytes,
                      .peer = contributions});
}
static void end_round(builder *b)
{
  if (b->s->count) b->s->steps[b->s->count - 1].ends_round = true;
}

/* Reserves scratch for the whole schedule. */
static place scratch(builder *b, int64_t bytes)
{
  place where = plus(TMP, b->s->tmp_bytes);
  b->s->tmp_bytes += WEFT_ALIGN_UP(bytes, 64);
  return where;
}

/* ---- all-gather among a group: member i has block i in `data` after its first round, which sends it from `own`; at
 * the end all members have all blocks in `data` ---- */

static void gather_ring(builder *b, group g, blocks bl, place data, place own)
{
  for (int s = 0; s < g.n - 1; s++) {
    int out = wrap(g.me - s, g.n), in = wrap(g.me - s - 1, g.n);
    send(b, real(g, wrap(g.me + 1, g.n)), s ? plus(data, begin(bl, out)) : own, length(bl, out));
    recv(b, real(g, wrap(g.me - 1, g.n)), plus(data, begin(bl, in)), length(bl, in));
    end_round(b);
  }
}

/* A run of blocks that may wrap around the end: one message or two, the same on both sides. */
static void send_run(builder *b, group g, int peer, blocks bl, place data, int first, int count)
{
  int end = WEFT_MIN(first + count, g.n);
  send(b, real(g, peer), plus(data, begin(bl, first)), extent(bl, first, end));
  if (first + count > g.n) send(b, real(g, peer), data, extent(bl, 0, first + count - g.n));
}
static void recv_run(builder *b, group g, int peer, blocks bl, place data, int first, int count)
{
  int end = WEFT_MIN(first + count, g.n);
  recv(b, real(g, peer), plus(data, begin(bl, first)), extent(bl, first, end));
  if (first + count > g.n) recv(b, real(g, peer), data, extent(bl, 0, first + count - g.n));
}

/* Bruck's dissemination with every block in its final place: after round k a rank holds blocks me .. me + 2^(k+1) -
 * 1. */
static void gather_bruck(builder *b, group g, blocks bl, place data, place own)
{
  for (int have = 1; have < g.n; have *= 2) {
    int count = WEFT_MIN(have, g.n - have), from = wrap(g.me + have, g.n), to = wrap(g.me - have, g.n);
    if (have == 1) send(b, real(g, to), own, length(bl, g.me));
    else send_run(b, g, to, bl, data, g.me, count);
    recv_run(b, g, from, bl, data, from, count);
    end_round(b);
  }
}

static void gather_direct(builder *b, group g, blocks bl, place data, place own)
{
  for (int i = 1; i < g.n; i++) {
    int to = wrap(g.me + i, g.n), from = wrap(g.me - i, g.n);
    send(b, real(g, to), own, length(bl, g.me));
    recv(b, real(g, from), plus(data, begin(bl, from)), length(bl, from));
  }
  end_round(b);
}

/* Between nodes, each rank runs a ring with the ranks of its own index on other nodes; then the ranks of a node run
 * a ring with the blocks that this brought.  A block crosses to a node once, and all ranks of a node share that
 * work. */
static void gather_lanes(builder *b)
{
  const coll_topology *t = b->p->topology;
  group node = my_node(b->p);
  blocks bl = per_rank(b->p);
  int n = t->node_count, mine = t->node[b->p->rank];

  for (int s = 0; s < n - 1; s++) {
    int out = on_node(t, wrap(mine - s, n), node.me), in = on_node(t, wrap(mine - s - 1, n), node.me);
    send(b, on_node(t, wrap(mine + 1, n), node.me), s ? plus(OUT, begin(bl, out)) : IN, length(bl, out));
    recv(b, on_node(t, wrap(mine - 1, n), node.me), plus(OUT, begin(bl, in)), length(bl, in));
    end_round(b);
  }
  for (int s = 0; s < node.n - 1; s++) {
    for (int i = 0; i < n; i++) {
      int out = on_node(t, i, wrap(node.me - s, node.n)), in = on_node(t, i, wrap(node.me - s - 1, node.n));
      send(b, real(node, wrap(node.me + 1, node.n)), plus(OUT, begin(bl, out)), length(bl, out));
      recv(b, real(node, wrap(node.me - 1, node.n)), plus(OUT, begin(bl, in)), length(bl, in));
    }
    end_round(b);
  }
}

static void build_all_gather(builder *b, coll_algorithm algorithm)
{
  const coll_problem *p = b->p;
  blocks bl = per_rank(p);

  copy(b, plus(OUT, begin(bl, p->rank)), IN, length(bl, p->rank)); /* a step of the first round */
  if (p->size == 1) end_round(b);
  switch (algorithm) {
  case COLL_ALG_RING: gather_ring(b, everybody(p), bl, OUT, IN); return;
  case COLL_ALG_BRUCK: gather_bruck(b, everybody(p), bl, OUT, IN); return;
  case COLL_ALG_LANES: gather_lanes(b); return;
  default: gather_direct(b, everybody(p), bl, OUT, IN); return;
  }
}

/* ---- reduce-scatter among a group: block me of the sum ends at `out` ---- */

/* Round s passes block me-s-1 on to the next rank; its partial sums alternate between two places of scratch. */
static void reduce_scatter_ring(builder *b, group g, blocks bl, place in, place out)
{
  place partial[2] = {scratch(b, longest(bl)), scratch(b, longest(bl))};

  for (int s = 0; s < g.n - 1; s++) {
    int pass = wrap(g.me - s - 1, g.n), take = wrap(g.me - s - 2, g.n);
    send(b, real(g, wrap(g.me + 1, g.n)), s ? partial[(s - 1) & 1] : plus(in, begin(bl, pass)), length(bl, pass));
    recv_reduce(b, real(g, wrap(g.me - 1, g.n)), s == g.n - 2 ? out : partial[s & 1], plus(in, begin(bl, take)),
                length(bl, take), true);
    end_round(b);
  }
}

/* Every contribution to block me comes here and is folded in group order. */
static void reduce_scatter_direct(builder *b, group g, blocks bl, place in, place out)
{
  int64_t mine = length(bl, g.me);
  place parts = scratch(b, mine * g.n);

  copy(b, plus(parts, mine * g.me), plus(in, begin(bl, g.me)), mine);
  for (int i = 1; i < g.n; i++) {
    int to = wrap(g.me + i, g.n), from = wrap(g.me - i, g.n);
    send(b, real(g, to), plus(in, begin(bl, to)), length(bl, to));
    recv(b, real(g, from), plus(parts, mine * from), mine);
  }
  end_round(b);
  fold(b, out, parts, mine, g.n);
  end_round(b);
}

/* P = 2^k: each round halves the run of blocks that this rank is responsible for. */
static void reduce_scatter_halving(builder *b, group g, blocks bl, place in, place out)
{
  place partial = scratch(b, begin(bl, g.n));
  place acc = in;

  for (int half = g.n / 2, lo = 0; half >= 1; half /= 2) {
    int partner = g.me ^ half, keep = g.me & half ? lo + half : lo, give = g.me & half ? lo : lo + half;
    place dst = half == 1 ? out : plus(partial, begin(bl, keep));
    send(b, real(g, partner), plus(acc, begin(bl, give)), extent(bl, give, give + half));
    recv_reduce(b, real(g, partner), dst, plus(acc, begin(bl, keep)), extent(bl, keep, keep + half), partner < g.me);
    end_round(b);
    lo = keep;
    acc = partial;
  }
}

/* In the node, each rank sums the blocks for the ranks of its own index on all nodes; then the ranks of one index
 * sum between nodes. */
static void reduce_scatter_lanes(builder *b)
{
  const coll_problem *p = b->p;
  const coll_topology *t = p->topology;
  group node = my_node(p);
  int n = t->node_count, m = node.n, *lane = malloc((size_t)n * sizeof *lane);
  blocks bl = {.n = n, .equal = p->bytes};
  place sums = scratch(b, n * p->bytes), partial[2] = {scratch(b, n * p->bytes), scratch(b, n * p->bytes)};

  if (!lane) {
    b->failed = true;
    return;
  }
  for (int i = 0; i < n; i++) lane[i] = on_node(t, i, node.me);
  for (int s = 0; s < m - 1; s++) {
    place from = partial[(s + 1) & 1], to = s == m - 2 ? sums : partial[s & 1];
    for (int i = 0; i < n; i++) {
      int pass = on_node(t, i, wrap(node.me - s - 1, m)), take = on_node(t, i, wrap(node.me - s - 2, m));
      send(b, real(node, wrap(node.me + 1, m)), s ? plus(from, begin(bl, i)) : plus(IN, p->bytes * pass), p->bytes);
      recv_reduce(b, real(node, wrap(node.me - 1, m)), plus(to, begin(bl, i)), plus(IN, p->bytes * take), p->bytes,
                  true);
    }
    end_round(b);
  }
  reduce_scatter_ring(b, (group){n, t->node[p->rank], lane}, bl, sums, OUT);
  free(lane);
}

static void build_reduce_scatter(builder *b, coll_algorithm algorithm)
{
  const coll_problem *p = b->p;
  blocks bl = per_rank(p);
  group g = everybody(p);

  if (g.n == 1) {
    copy(b, OUT, IN, length(bl, 0));
    end_round(b);
    return;
  }
  switch (algorithm) {
  case COLL_ALG_RING: reduce_scatter_ring(b, g, bl, IN, OUT); return;
  case COLL_ALG_RECURSIVE_DOUBLING: reduce_scatter_halving(b, g, bl, IN, OUT); return;
  case COLL_ALG_LANES: reduce_scatter_lanes(b); return;
  default: reduce_scatter_direct(b, g, bl, IN, OUT); return;
  }
}

/* ---- all-reduce among a group: sum of `in` over the group to `out` ---- */

/* Ranks beyond the largest power of two are folded: they first give their input to a neighbour and get the result
 * back at the end.  Of the first 2*extra ranks the even ones give to the odd ones, which keeps runs of ranks
 * together and operands in rank order. */
typedef struct folded {
  int n;     /* the power of two */
  int me;    /* this rank's number among them; -1 for a rank that is folded */
  int extra;
} folded;

static folded fold_to_power_of_two(group g)
{
  folded f = {.n = 1};
  while (2 * f.n <= g.n) f.n *= 2;
  f.extra = g.n - f.n;
  f.me = g.me >= 2 * f.extra ? g.me - f.extra : g.me % 2 ? g.me / 2 : -1;
  return f;
}
static int unfold(folded f, int v) { return v < f.extra ? 2 * v + 1 : v + f.extra; }

static void all_reduce_doubling(builder *b, group g, int64_t bytes, place in, place out)
{
  folded f = fold_to_power_of_two(g);
  bool takes = g.me < 2 * f.extra && f.me >= 0;
  place other = scratch(b, bytes), acc = in;
  int left = takes; /* reductions that this rank has still to do */

  for (int mask = 1; mask < f.n; mask *= 2) left++;
  if (f.me < 0) {
    send(b, real(g, g.me + 1), in, bytes);
    end_round(b);
    recv(b, real(g, g.me + 1), out, bytes);
    end_round(b);
    return;
  }
  /* Sums alternate between `out` and scratch, so that a round never overwrites what it sends. */
  if (takes) {
    left--;
    recv_reduce(b, real(g, g.me - 1), left % 2 ? other : out, acc, bytes, true);
    acc = left % 2 ? other : out;
    end_round(b);
  } else if (left % 2 && same_place(b, in, out)) {
    copy(b, other, in, bytes);
    acc = other;
    end_round(b);
  }
  for (int mask = 1; mask < f.n; mask *= 2) {
    int partner = f.me ^ mask, peer = real(g, unfold(f, partner));
    place dst = --left % 2 ? other : out;
    send(b, peer, acc, bytes);
    recv_reduce(b, peer, dst, acc, bytes, partner < f.me);
    acc = dst;
    end_round(b);
  }
  if (takes) {
    send(b, real(g, g.me - 1), out, bytes);
    end_round(b);
  }
}

static void all_reduce_rabenseifner(builder *b, group g, int64_t bytes, int64_t elem_bytes, place in, place out)
{
  folded f = fold_to_power_of_two(g);
  bool takes = g.me < 2 * f.extra && f.me >= 0;
  blocks bl = {.n = f.n, .equal = -1, .elems = bytes / elem_bytes, .elem_bytes = elem_bytes};
  place acc = in;

  if (f.me < 0) {
    send(b, real(g, g.me + 1), in, bytes);
    end_round(b);
    recv(b, real(g, g.me + 1), out, bytes);
    end_round(b);
    return;
  }
  if (takes) {
    recv_reduce(b, real(g, g.me - 1), out, in, bytes, true);
    acc = out;
    end_round(b);
  }
  for (int half = f.n / 2, lo = 0; half >= 1; half /= 2) {
    int partner = f.me ^ half, peer = real(g, unfold(f, partner));
    int keep = f.me & half ? lo + half : lo, give = f.me & half ? lo : lo + half;
    send(b, peer, plus(acc, begin(bl, give)), extent(bl, give, give + half));
    recv_reduce(b, peer, plus(out, begin(bl, keep)), plus(acc, begin(bl, keep)), extent(bl, keep, keep + half),
                partner < f.me);
    end_round(b);
    lo = keep;
    acc = out;
  }
  for (int have = 1; have < f.n; have *= 2) {
    int partner = f.me ^ have, peer = real(g, unfold(f, partner));
    int mine = f.me & -have, theirs = partner & -have; /* `have` is a power of two: aligned runs */
    send(b, peer, plus(out, begin(bl, mine)), extent(bl, mine, mine + have));
    recv(b, peer, plus(out, begin(bl, theirs)), extent(bl, theirs, theirs + have));
    end_round(b);
  }
  if (takes) {
    send(b, real(g, g.me - 1), out, bytes);
    end_round(b);
  }
}

static void all_reduce_ring(builder *b, group g, blocks bl, place in, place out)
{
  for (int s = 0; s < g.n - 1; s++) {
    int pass = wrap(g.me - s - 1, g.n), take = wrap(g.me - s - 2, g.n);
    send(b, real(g, wrap(g.me + 1, g.n)), plus(s ? out : in, begin(bl, pass)), length(bl, pass));
    recv_reduce(b, real(g, wrap(g.me - 1, g.n)), plus(out, begin(bl, take)), plus(in, begin(bl, take)),
                length(bl, take), true);
    end_round(b);
  }
  gather_ring(b, g, bl, out, plus(out, begin(bl, g.me)));
}

/* In-order binary tree over 1..n: node i of level t (its lowest set bit) has children i -/+ 2^(t-1). */
typedef struct tree_links {
  int parent, child[2]; /* 0: none */
} tree_links;

static tree_links tree_around(int i, int n)
{
  tree_links links = {0, {0, 0}};
  int bit = i & -i;

  if (i != 1 << (31 - __builtin_clz((unsigned)n))) { /* not the root */
    int up = i;
    do {
      int low = up & -up;
      up = (up & ~low) | (low << 1);
    } while (up > n);
    links.parent = up;
  }
  if (bit > 1) {
    links.child[0] = i - bit / 2;
    int right = i + bit / 2;
    while (right > n && (right & -right) > 1) right -= (right & -right) / 2;
    if (right <= n) links.child[1] = right;
  }
  return links;
}

static int64_t segment_count(const coll_problem *p, int64_t bytes)
{
  int64_t segment = p->segment_bytes ? p->segment_bytes : DEFAULT_SEGMENT_BYTES;
  return WEFT_MAX((int64_t)1, WEFT_MIN((int64_t)MAX_SEGMENTS, (bytes + segment - 1) / segment));
}

/* One of the two trees, seen from this rank. */
typedef struct tree {
  int parent, child[2]; /* ranks, -1: none */
  bool under_root;
  int64_t base;
  blocks part;          /* the segments of the tree's half of the vector */
} tree;

static tree tree_of(const coll_problem *p, int t)
{
  /* Broadcast and reduce: ranks are shifted so that the root is the root of the tree.  All-reduce: the second tree
   * is shifted by one. */
  int n = p->size, top = 1 << (31 - __builtin_clz((unsigned)n));
  int shift = p->kind == WEFT_ALL_REDUCE ? t : wrap(p->root - (top - 1), n);
  int self = wrap(p->rank - shift, n) + 1;
  tree_links near = tree_around(self, n);
  blocks halves = evenly(p, 2);
  tree made = {.parent = -1, .child = {-1, -1}, .base = begin(halves, t),
               .part = {.equal = -1, .elems = length(halves, t) / p->elem_bytes, .elem_bytes = p->elem_bytes,
                        .n = (int)segment_count(p, length(halves, t))}};

  for (int c = 0; c < 2; c++)
    if (near.child[c]) made.child[c] = wrap(near.child[c] - 1 + shift, n);
  if (near.parent) {
    made.parent = wrap(near.parent - 1 + shift, n);
    made.under_root = tree_around(near.parent, n).parent == 0;
  }
  return made;
}

static place segment_at(const tree *t, place data, int s) { return plus(data, t->base + begin(t->part, s)); }

/* One direction, up: segment s comes from child c while segment s - 1 goes to the parent.  A leaf, which waits for
 * nothing, sends segment s.  So a rank's round s depends on round s of the ranks below it, and on no later round of
 * any rank, in both trees. */
static void tree_up(builder *b, const tree *t, place acc, int s, int c)
{
  bool leaf = t->child[0] < 0;
  int goes = leaf ? s : s - 1;

  if (s < t->part.n && t->child[c] >= 0) {
    place dst = segment_at(t, acc, s);
    recv_reduce(b, t->child[c], dst, c ? dst : segment_at(t, IN, s), length(t->part, s), false);
  }
  if (c == 0 && t->parent >= 0 && goes >= 0 && goes < t->part.n)
    send(b, t->parent, segment_at(t, leaf ? IN : acc, goes), length(t->part, goes));
}

/* The other direction, down: here the root is ahead by a segment, and leaves are a segment behind, except the
 * children of the root. */
static void tree_down(builder *b, const tree *t, place full, int s)
{
  int comes = t->child[0] < 0 && !t->under_root ? s - 1 : s, goes = t->parent < 0 ? s : s - 1;

  if (t->parent >= 0 && comes >= 0 && comes < t->part.n)
    recv(b, t->parent, segment_at(t, OUT, comes), length(t->part, comes));
  for (int c = 0; c < 2 && goes >= 0 && goes < t->part.n; c++)
    if (t->child[c] >= 0) send(b, t->child[c], segment_at(t, full, goes), length(t->part, goes));
}

/* Half of the vector goes up and down one tree; at the same time the other half goes through a tree shifted by one
 * rank, whose inner nodes are the leaves of the first (Sanders, Speck and Traff 2009).  The segments of a half are
 * pipelined. */
static void build_double_tree(builder *b)
{
  const coll_problem *p = b->p;
  tree trees[2] = {tree_of(p, 0), tree_of(p, 1)};
  int steps = WEFT_MAX(trees[0].part.n, trees[1].part.n);
  place acc = p->kind == WEFT_REDUCE && p->rank != p->root ? scratch(b, p->bytes) : OUT;
  place full = p->kind == WEFT_BROADCAST && p->rank == p->root ? IN : OUT;

  for (int s = 0; p->kind != WEFT_BROADCAST && s <= steps; s++)
    for (int c = 0; c < 2; c++) {
      for (int t = 0; t < 2; t++) tree_up(b, &trees[t], acc, s, c);
      end_round(b);
    }
  for (int s = 0; p->kind != WEFT_REDUCE && s <= steps; s++) {
    for (int t = 0; t < 2; t++) tree_down(b, &trees[t], full, s);
    end_round(b);
  }
}

static void all_reduce_in(builder *b, group g, place in, place out, coll_algorithm algorithm)
{
  const coll_problem *p = b->p;
  blocks bl = evenly(p, g.n);

  if (g.n == 1) {
    copy(b, out, in, p->bytes);
    end_round(b);
    return;
  }
  switch (algorithm) {
  case COLL_ALG_RECURSIVE_DOUBLING: all_reduce_doubling(b, g, p->bytes, in, out); return;
  case COLL_ALG_RABENSEIFNER: all_reduce_rabenseifner(b, g, p->bytes, p->elem_bytes, in, out); return;
  case COLL_ALG_RING: all_reduce_ring(b, g, bl, in, out); return;
  default:
    reduce_scatter_direct(b, g, bl, in, plus(out, begin(bl, g.me)));
    gather_direct(b, g, bl, out, plus(out, begin(bl, g.me)));
  }
}

/* ---- rooted operations among a group; `root` counts in the group ---- */

static void reduce_binomial(builder *b, group g, int root, place in, place out)
{
  int64_t bytes = b->p->bytes;
  int v = wrap(g.me - root, g.n);
  place partial = v == 0 ? out : (v & 1) || v + 1 >= g.n ? in : scratch(b, bytes), acc = in;

  for (int mask = 1; mask < g.n; mask *= 2) {
    if (v & mask) {
      send(b, real(g, wrap(v - mask + root, g.n)), acc, bytes);
      end_round(b);
      return;
    }
    if (v + mask >= g.n) continue;
    recv_reduce(b, real(g, wrap(v + mask + root, g.n)), partial, acc, bytes, false);
    acc = partial;
    end_round(b);
  }
}

/* `full`: where the data is at the root; `out`: where it goes on the other ranks. */
static void broadcast_binomial(builder *b, group g, int root, place full, place out)
{
  int64_t bytes = b->p->bytes;
  int v = wrap(g.me - root, g.n), top = 1;

  while (top < g.n) top *= 2;
  if (v) {
    recv(b, real(g, wrap(v - (v & -v) + root, g.n)), out, bytes);
    end_round(b);
    top = v & -v;
  }
  for (int mask = top / 2; mask >= 1; mask /= 2)
    if (v + mask < g.n) send(b, real(g, wrap(v + mask + root, g.n)), v ? out : full, bytes);
  end_round(b);
}

static void broadcast_chain(builder *b)
{
  const coll_problem *p = b->p;
  int v = wrap(p->rank - p->root, p->size), count = (int)segment_count(p, p->bytes);
  blocks segments = evenly(p, count);

  for (int s = 0; s <= count; s++) {
    if (v && s < count) recv(b, wrap(p->rank - 1, p->size), plus(OUT, begin(segments, s)), length(segments, s));
    if (s && v + 1 < p->size)
      send(b, wrap(p->rank + 1, p->size), plus(v ? OUT : IN, begin(segments, s - 1)), length(segments, s - 1));
    end_round(b);
  }
}

/* The root scatters P blocks; then a ring carries each block around to all ranks but the root, which has them all. */
static void broadcast_scatter_gather(builder *b)
{
  const coll_problem *p = b->p;
  blocks bl = evenly(p, p->size);
  int n = p->size, v = wrap(p->rank - p->root, n);

  if (v == 0) {
    for (int i = 1; i < n; i++) send(b, wrap(p->root + i, n), plus(IN, begin(bl, i)), length(bl, i));
  } else {
    recv(b, p->root, plus(OUT, begin(bl, v)), length(bl, v));
  }
  end_round(b);
  for (int s = 0; s < n - 1; s++) {
    int out = wrap(v - s, n), in = wrap(v - s - 1, n);
    if (v + 1 < n) send(b, wrap(p->rank + 1, n), plus(v ? OUT : IN, begin(bl, out)), length(bl, out));
    if (v > 0) recv(b, wrap(p->rank - 1, n), plus(OUT, begin(bl, in)), length(bl, in));
    end_round(b);
  }
}

/* Gathers IN of all ranks in rank order to scratch of the root (or of every rank), and folds it there once. */
static void build_gather_fold(builder *b)
{
  const coll_problem *p = b->p;
  blocks bl = {.n = p->size, .equal = p->bytes};

  if (p->kind == WEFT_REDUCE && p->rank != p->root) {
    send(b, p->root, IN, p->bytes);
    end_round(b);
    return;
  }
  place parts = scratch(b, p->bytes * p->size);
  copy(b, plus(parts, begin(bl, p->rank)), IN, p->bytes);
  if (p->kind == WEFT_REDUCE) {
    for (int i = 0; i < p->size; i++)
      if (i != p->rank) recv(b, i, plus(parts, begin(bl, i)), p->bytes);
    end_round(b);
  } else {
    end_round(b);
    (p->size > 4 ? gather_bruck : gather_direct)(b, everybody(p), bl, parts, plus(parts, begin(bl, p->rank)));
  }
  fold(b, OUT, parts, p->bytes, p->size);
  end_round(b);
}

/* A reduce as a reduce-scatter and a gather of the pieces. */
static void reduce_scatter_gather(builder *b, coll_algorithm algorithm)
{
  const coll_problem *p = b->p;
  blocks bl = evenly(p, p->size);
  place piece = p->rank == p->root ? plus(OUT, begin(bl, p->rank)) : scratch(b, length(bl, p->rank));

  if (algorithm == COLL_ALG_DIRECT) reduce_scatter_direct(b, everybody(p), bl, IN, piece);
  else reduce_scatter_ring(b, everybody(p), bl, IN, piece);
  if (p->rank != p->root) send(b, p->root, piece, length(bl, p->rank));
  for (int i = 0; p->rank == p->root && i < p->size; i++)
    if (i != p->root) recv(b, i, plus(OUT, begin(bl, i)), length(bl, i));
  end_round(b);
}

/* A gather (`to_root`) or scatter in one round. The root has the blocks of all ranks in `whole`, each rank its own in
 * `own`. */
static void rooted_direct(builder *b, bool to_root, place whole, place own)
{
  const coll_problem *p = b->p;
  blocks bl = per_rank(p);

  if (p->rank != p->root) (to_root ? send : recv)(b, p->root, own, length(bl, p->rank));
  for (int i = 0; p->rank == p->root && i < p->size; i++) {
    place at = plus(whole, begin(bl, i));
    if (i != p->rank) (to_root ? recv : send)(b, i, at, length(bl, i));
    else copy(b, to_root ? at : own, to_root ? own : at, length(bl, i));
  }
  end_round(b);
}

static void build_gather(builder *b, coll_algorithm algorithm)
{
  const coll_problem *p = b->p;
  int n = p->size, v = wrap(p->rank - p->root, n);

  if (algorithm == COLL_ALG_DIRECT) {
    rooted_direct(b, true, OUT, IN);
    return;
  }
  /* Binomial, equal blocks: the subtree of v holds blocks v .. v + span - 1 of the order that starts at the root. */
  int64_t each = p->bytes;
  int span = v ? v & -v : n;
  span = WEFT_MIN(span, n - v);
  place held = span > 1 ? scratch(b, each * span) : IN;
  if (span > 1) copy(b, held, IN, each);
  for (int mask = 1; mask < n && !(v & mask); mask *= 2)
    if (v + mask < n)
      recv(b, wrap(v + mask + p->root, n), plus(held, each * mask), each * WEFT_MIN(mask, n - v - mask));
  end_round(b);
  if (v) {
    send(b, wrap(v - (v & -v) + p->root, n), held, each * span);
  } else {
    copy(b, plus(OUT, each * p->root), held, each * (n - p->root));
    if (p->root) copy(b, OUT, plus(held, each * (n - p->root)), each * p->root);
  }
  end_round(b);
}

static void build_scatter(builder *b, coll_algorithm algorithm)
{
  const coll_problem *p = b->p;
  int n = p->size, v = wrap(p->rank - p->root, n);

  if (algorithm == COLL_ALG_DIRECT) {
    rooted_direct(b, false, IN, OUT);
    return;
  }
  int64_t each = p->bytes;
  int span = WEFT_MIN(v ? v & -v : n, n - v), top = 1;
  place held = span > 1 ? scratch(b, each * span) : OUT;
  if (v) {
    recv(b, wrap(v - (v & -v) + p->root, n), held, each * span);
  } else {
    copy(b, held, plus(IN, each * p->root), each * (n - p->root));
    if (p->root) copy(b, plus(held, each * (n - p->root)), IN, each * p->root);
  }
  end_round(b);
  while (top < (v ? v & -v : n)) top *= 2;
  for (int mask = top / 2; mask >= 1; mask /= 2)
    if (v + mask < n)
      send(b, wrap(v + mask + p->root, n), plus(held, each * mask), each * WEFT_MIN(mask, n - v - mask));
  copy(b, OUT, held, each);
  end_round(b);
}

/* ---- all-to-all ---- */

static int64_t send_at(const coll_problem *p, int i) { return p->send_at ? p->send_at[i] : p->bytes * i; }
static int64_t recv_at(const coll_problem *p, int i) { return p->recv_at ? p->recv_at[i] : p->bytes * i; }
static int64_t send_bytes(const coll_problem *p, int i) { return p->send_bytes ? p->send_bytes[i] : p->bytes; }
static int64_t recv_bytes(const coll_problem *p, int i) { return p->recv_bytes ? p->recv_bytes[i] : p->bytes; }

static void all_to_all_bruck(builder *b)
{
  const coll_problem *p = b->p;
  int n = p->size, me = p->rank;
  int64_t each = p->bytes;
  place slot = scratch(b, each * n), packed = scratch(b, each * n), arrived = scratch(b, each * n);

  /* slot i: the block on its way to rank me + i */
  copy(b, slot, plus(IN, each * me), each * (n - me));
  if (me) copy(b, plus(slot, each * (n - me)), IN, each * me);
  end_round(b);
  for (int mask = 1; mask < n; mask *= 2) {
    int count = 0;
    for (int i = mask; i < n; i++)
      if (i & mask) copy(b, plus(packed, each * count++), plus(slot, each * i), each);
    end_round(b);
    send(b, wrap(me + mask, n), packed, each * count);
    recv(b, wrap(me - mask, n), arrived, each * count);
    end_round(b);
    count = 0;
    for (int i = mask; i < n; i++)
      if (i & mask) copy(b, plus(slot, each * i), plus(arrived, each * count++), each);
    end_round(b);
  }
  for (int i = 0; i < n; i++) copy(b, plus(OUT, each * wrap(me - i, n)), plus(slot, each * i), each);
  end_round(b);
}

static void build_all_to_all(builder *b, coll_algorithm algorithm)
{
  const coll_problem *p = b->p;
  int n = p->size, me = p->rank;

  if (algorithm == COLL_ALG_BRUCK) {
    all_to_all_bruck(b);
    return;
  }
  int pieces = WEFT_MAX(1, p->pieces);
  for (int i = 0; i < n; i++) {
    int to = wrap(me + i, n) * pieces, from = wrap(me - i, n) * pieces;
    for (int k = 0; k < pieces && i == 0; k++)
      copy(b, plus(OUT, recv_at(p, from + k)), plus(IN, send_at(p, to + k)), send_bytes(p, to + k));
    for (int k = 0; k < pieces && i > 0; k++) {
      send(b, to / pieces, plus(IN, send_at(p, to + k)), send_bytes(p, to + k));
      recv(b, from / pieces, plus(OUT, recv_at(p, from + k)), recv_bytes(p, from + k));
    }
    if (algorithm == COLL_ALG_PAIRWISE) end_round(b);
  }
  end_round(b);
}

/* ---- two levels ---- */

static coll_algorithm between_leaders(int64_t bytes, int n)
{
  if (bytes <= 16 << 10) return COLL_ALG_RECURSIVE_DOUBLING;
  return n > 8 && bytes < 4 << 20 ? COLL_ALG_RABENSEIFNER : COLL_ALG_RING;
}

/* Barrier, broadcast and all-reduce: up in the node, across the leaders, down in the node. */
static void build_hierarchical(builder *b)
{
  const coll_problem *p = b->p;
  const coll_topology *t = p->topology;
  group node = my_node(p), leaders = {t->node_count, t->node[p->rank], t->leader};

  if (p->kind != WEFT_BROADCAST) {
    reduce_binomial(b, node, 0, IN, OUT);
    if (node.me == 0) all_reduce_in(b, leaders, node.n > 1 ? OUT : IN, OUT, between_leaders(p->bytes, leaders.n));
    broadcast_binomial(b, node, 0, OUT, OUT);
    return;
  }
  /* root -> leader of its node -> all leaders -> nodes; the root has the data already and drops what comes */
  int root_node = t->node[p->root], lead_of_root = t->leader[root_node];
  place full = p->rank == p->root ? IN : OUT;
  if (p->rank == p->root && node.me != 0) send(b, lead_of_root, IN, p->bytes);
  if (p->rank == lead_of_root && p->rank != p->root) recv(b, p->root, OUT, p->bytes);
  end_round(b);
  if (node.me == 0) broadcast_binomial(b, leaders, root_node, full, OUT);
  broadcast_binomial(b, node, 0, full, p->rank == p->root && node.me != 0 ? scratch(b, p->bytes) : OUT);
}

/* Nodes of equal size: slice j of the vector is summed in each node by the node's j-th rank, then between the j-th
 * ranks. */
static void build_lanes(builder *b)
{
  const coll_problem *p = b->p;
  const coll_topology *t = p->topology;
  group node = my_node(p);
  blocks bl = evenly(p, node.n);
  int64_t mine = length(bl, node.me);
  place sum = scratch(b, mine); /* a node has two ranks or more, else the algorithm does not apply */
  int *lane = malloc((size_t)t->node_count * sizeof *lane);

  if (!lane) {
    b->failed = true;
    return;
  }
  for (int i = 0; i < t->node_count; i++) lane[i] = on_node(t, i, node.me);
  reduce_scatter_ring(b, node, bl, IN, sum);
  coll_problem slice = *p; /* the same operation on this rank's slice */
  builder inner = {&slice, b->s, false};
  slice.bytes = mine;
  all_reduce_in(&inner, (group){t->node_count, t->node[p->rank], lane}, sum, plus(OUT, begin(bl, node.me)),
                between_leaders(mine, t->node_count));
  b->failed |= inner.failed;
  gather_ring(b, node, bl, OUT, plus(OUT, begin(bl, node.me)));
  free(lane);
}

/* ---- the table: which algorithm does which kind ---- */

static void build_all_reduce(builder *b, coll_algorithm algorithm)
{
  all_reduce_in(b, everybody(b->p), IN, OUT, algorithm);
}

static void build_reduce(builder *b, coll_algorithm algorithm)
{
  const coll_problem *p = b->p;

  if (p->size == 1) {
    copy(b, OUT, IN, p->bytes);
    end_round(b);
    return;
  }
  if (algorithm == COLL_ALG_BINOMIAL) reduce_binomial(b, everybody(p), p->root, IN, OUT);
  else reduce_scatter_gather(b, algorithm);
}

static void build_broadcast(builder *b, coll_algorithm algorithm)
{
  const coll_problem *p = b->p;

  if (p->rank == p->root) copy(b, OUT, IN, p->bytes); /* a step of the first round, which sends the data from IN */
  switch (algorithm) {
  case COLL_ALG_CHAIN: broadcast_chain(b); return;
  case COLL_ALG_SCATTER_GATHER: broadcast_scatter_gather(b); return;
  default: broadcast_binomial(b, everybody(p), p->root, IN, OUT); return;
  }
}

static void build_barrier(builder *b, coll_algorithm algorithm)
{
  const coll_problem *p = b->p;

  (void)algorithm;
  for (int distance = 1; distance < p->size; distance *= 2) {
    send(b, wrap(p->rank + distance, p->size), IN, 0);
    recv(b, wrap(p->rank - distance, p->size), OUT, 0);
    end_round(b);
  }
}

static void build_permute(builder *b, coll_algorithm algorithm)
{
  const coll_problem *p = b->p;

  (void)algorithm;
  if (p->target >= 0 && p->target != p->rank) send(b, p->target, IN, p->bytes);
  if (p->source < 0) emit(b, (coll_step){.kind = COLL_ZERO, .dst_in = COLL_OUT, .bytes = p->bytes});
  else if (p->source == p->rank) copy(b, OUT, IN, p->bytes);
  else recv(b, p->source, OUT, p->bytes);
  end_round(b);
}

static void build_tree(builder *b, coll_algorithm algorithm)
{
  (void)algorithm;
  if (b->p->size == 1 || (b->p->kind == WEFT_BROADCAST && b->p->rank == b->p->root)) copy(b, OUT, IN, b->p->bytes);
  end_round(b);
  if (b->p->size > 1) build_double_tree(b);
}
static void build_folded(builder *b, coll_algorithm algorithm)
{
  (void)algorithm;
  build_gather_fold(b);
}
static void build_levels(builder *b, coll_algorithm algorithm)
{
  if (b->p->kind == WEFT_BROADCAST && b->p->rank == b->p->root) copy(b, OUT, IN, b->p->bytes);
  end_round(b);
  if (algorithm == COLL_ALG_LANES) build_lanes(b);
  else build_hierarchical(b);
}

enum { ANY = 0, POWER_OF_TWO = 1, EQUAL_BLOCKS = 2, NODES = 4, EQUAL_NODES = 8, RANK_ORDER_TOO = 16 };

static const struct {
  weft_coll_kind kind;
  coll_algorithm algorithm;
  int needs; /* RANK_ORDER_TOO is an ability instead: to reduce in rank order */
  void (*build)(builder *b, coll_algorithm algorithm);
} forms[] = {
  {WEFT_BARRIER, COLL_ALG_DISSEMINATION, ANY, build_barrier},
  {WEFT_BARRIER, COLL_ALG_HIERARCHICAL, NODES, build_levels},
  {WEFT_ALL_REDUCE, COLL_ALG_RECURSIVE_DOUBLING, ANY, build_all_reduce},
  {WEFT_ALL_REDUCE, COLL_ALG_RABENSEIFNER, ANY, build_all_reduce},
  {WEFT_ALL_REDUCE, COLL_ALG_RING, ANY, build_all_reduce},
  {WEFT_ALL_REDUCE, COLL_ALG_DIRECT, RANK_ORDER_TOO, build_all_reduce},
  {WEFT_ALL_REDUCE, COLL_ALG_GATHER_FOLD, RANK_ORDER_TOO, build_folded},
  {WEFT_ALL_REDUCE, COLL_ALG_DOUBLE_TREE, ANY, build_tree},
  {WEFT_ALL_REDUCE, COLL_ALG_HIERARCHICAL, NODES, build_levels},
  {WEFT_ALL_REDUCE, COLL_ALG_LANES, EQUAL_NODES, build_levels},
  {WEFT_REDUCE, COLL_ALG_BINOMIAL, ANY, build_reduce},
  {WEFT_REDUCE, COLL_ALG_SCATTER_GATHER, ANY, build_reduce},
  {WEFT_REDUCE, COLL_ALG_DIRECT, RANK_ORDER_TOO, build_reduce},
  {WEFT_REDUCE, COLL_ALG_GATHER_FOLD, RANK_ORDER_TOO, build_folded},
  {WEFT_REDUCE, COLL_ALG_DOUBLE_TREE, ANY, build_tree},
  {WEFT_REDUCE_SCATTER, COLL_ALG_RING, ANY, build_reduce_scatter},
  {WEFT_REDUCE_SCATTER, COLL_ALG_RECURSIVE_DOUBLING, POWER_OF_TWO, build_reduce_scatter},
  {WEFT_REDUCE_SCATTER, COLL_ALG_DIRECT, RANK_ORDER_TOO, build_reduce_scatter},
  {WEFT_REDUCE_SCATTER, COLL_ALG_LANES, EQUAL_NODES | EQUAL_BLOCKS, build_reduce_scatter},
  {WEFT_BROADCAST, COLL_ALG_BINOMIAL, ANY, build_broadcast},
  {WEFT_BROADCAST, COLL_ALG_CHAIN, ANY, build_broadcast},
  {WEFT_BROADCAST, COLL_ALG_SCATTER_GATHER, ANY, build_broadcast},
  {WEFT_BROADCAST, COLL_ALG_DOUBLE_TREE, ANY, build_tree},
  {WEFT_BROADCAST, COLL_ALG_HIERARCHICAL, NODES, build_levels},
  {WEFT_ALL_GATHER, COLL_ALG_RING, ANY, build_all_gather},
  {WEFT_ALL_GATHER, COLL_ALG_BRUCK, ANY, build_all_gather},
  {WEFT_ALL_GATHER, COLL_ALG_DIRECT, ANY, build_all_gather},
  {WEFT_ALL_GATHER, COLL_ALG_LANES, EQUAL_NODES, build_all_gather},
  {WEFT_ALL_GATHER_V, COLL_ALG_LANES, EQUAL_NODES, build_all_gather},
  {WEFT_ALL_GATHER_V, COLL_ALG_RING, ANY, build_all_gather},
  {WEFT_ALL_GATHER_V, COLL_ALG_BRUCK, ANY, build_all_gather},
  {WEFT_ALL_GATHER_V, COLL_ALG_DIRECT, ANY, build_all_gather},
  {WEFT_GATHER, COLL_ALG_DIRECT, ANY, build_gather},
  {WEFT_GATHER, COLL_ALG_BINOMIAL, EQUAL_BLOCKS, build_gather},
  {WEFT_GATHER_V, COLL_ALG_DIRECT, ANY, build_gather},
  {WEFT_SCATTER, COLL_ALG_DIRECT, ANY, build_scatter},
  {WEFT_SCATTER, COLL_ALG_BINOMIAL, EQUAL_BLOCKS, build_scatter},
  {WEFT_SCATTER_V, COLL_ALG_DIRECT, ANY, build_scatter},
  {WEFT_ALL_TO_ALL, COLL_ALG_DIRECT, ANY, build_all_to_all},
  {WEFT_ALL_TO_ALL, COLL_ALG_PAIRWISE, ANY, build_all_to_all},
  {WEFT_ALL_TO_ALL, COLL_ALG_BRUCK, EQUAL_BLOCKS, build_all_to_all},
  {WEFT_ALL_TO_ALL_V, COLL_ALG_DIRECT, ANY, build_all_to_all},
  {WEFT_ALL_TO_ALL_V, COLL_ALG_PAIRWISE, ANY, build_all_to_all},
  {WEFT_RAGGED_ALL_TO_ALL, COLL_ALG_DIRECT, ANY, build_all_to_all},
  {WEFT_RAGGED_ALL_TO_ALL, COLL_ALG_PAIRWISE, ANY, build_all_to_all},
  {WEFT_PERMUTE, COLL_ALG_DIRECT, ANY, build_permute},
};

static bool reduces(weft_coll_kind kind)
{
  return kind == WEFT_ALL_REDUCE || kind == WEFT_REDUCE || kind == WEFT_REDUCE_SCATTER;
}

static int form_of(coll_algorithm algorithm, const coll_problem *p)
{
  for (size_t i = 0; i < WEFT_COUNT(forms); i++) {
    if (forms[i].kind != p->kind || forms[i].algorithm != algorithm) continue;
    int needs = forms[i].needs;
    if ((needs & POWER_OF_TWO) && (p->size & (p->size - 1))) return -1;
    if ((needs & EQUAL_BLOCKS) && p->prefix) return -1;
    bool levels = p->topology && p->topology->node_count > 1 && p->topology->node_count < p->size;
    if ((needs & (NODES | EQUAL_NODES)) && !levels) return -1;
    if ((needs & EQUAL_NODES) && !p->topology->equal_nodes) return -1;
    if (p->rank_order && reduces(p->kind) && !(needs & RANK_ORDER_TOO)) return -1;
    return (int)i;
  }
  return -1;
}

bool coll_algorithm_applies(coll_algorithm algorithm, const coll_problem *problem)
{
  return form_of(algorithm, problem) >= 0;
}

weft_status *coll_schedule_build(const coll_problem *problem, coll_algorithm algorithm, coll_schedule *out)
{
  builder b = {problem, out, false};
  int form = form_of(algorithm, problem);

  out->count = 0;
  out->tmp_bytes = 0;
  if (form < 0)
    return WEFT_ERR(INVALID_ARGUMENT, "%s has no %s form for %d ranks", weft_coll_kind_name(problem->kind),
                    coll_algorithm_name(algorithm), problem->size);
  forms[form].build(&b, algorithm);
  end_round(&b);
  return b.failed ? WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory for a schedule") : NULL;
}

void coll_schedule_fini(coll_schedule *schedule)
{
  free(schedule->steps);
  *schedule = (coll_schedule){0};
}
