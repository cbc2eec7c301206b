/* collective/host/simulate.c -- simulates discrete events: a rank enters a round, a send meets its receive. */
#include <config.h>

#include "collective/host/simulate.h"

#include <stdlib.h>
#include <string.h>

const coll_net coll_net_default = {
  .node_latency_ns = 500, .node_ns_per_byte = 0.1,
  .link_latency_ns = 2000, .link_ns_per_byte = 0.08,
  .reduce_ns_per_byte = 0.05, .copy_ns_per_byte = 0.05,
};

/* A posted send or receive that has not met its counterpart, in the FIFO of its pair of ranks. */
typedef struct posted {
  int rank, next; /* `next`: index of the next one of the same pair and direction; -1: none */
  size_t step;
  double at_ns;
} posted;

/* A pair of ranks that has posted something.  All are in a hash table with open addressing, whose size is a power of
 * two. */
typedef struct channel {
  int64_t key; /* src * size + dst + 1; 0: free */
  int head, tail;
  bool holds_sends;
} channel;

typedef struct sim_rank {
  coll_schedule schedule;
  size_t round_begin, next; /* steps of the current round: [round_begin, next) */
  size_t unmatched;         /* messages of the round that have not met their counterparts */
  double round_end_ns;      /* time at which the current round ends, as far as it is known */
  int64_t rounds, sent_bytes;
  char *memory[COLL_MEMORY_COUNT];
} sim_rank;

typedef struct sim {
  const coll_problem *p;
  const coll_net *net;
  sim_rank *ranks;
  channel *channels;
  size_t channel_mask;
  posted *posts;
  int post_count, free_post;
  size_t post_capacity;
  double *egress_ns, *ingress_ns; /* when the link of each node is free again */
  int64_t *link_bytes;
  struct arrival { double at_ns; int rank; } *heap; /* ranks about to enter a round */
  int heap_count;
  bool verify;
  coll_sim_result *result;
} sim;

static int node_of(const sim *s, int rank) { return s->p->topology ? s->p->topology->node[rank] : rank; }

static void heap_push(sim *s, double at_ns, int rank)
{
  int i = s->heap_count++;
  for (; i && s->heap[(i - 1) / 2].at_ns > at_ns; i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
  s->heap[i] = (struct arrival){at_ns, rank};
}

static struct arrival heap_pop(sim *s)
{
  struct arrival top = s->heap[0], last = s->heap[--s->heap_count];
  int i = 0, child;
  for (; (child = 2 * i + 1) < s->heap_count; i = child) {
    if (child + 1 < s->heap_count && s->heap[child + 1].at_ns < s->heap[child].at_ns) child++;
    if (last.at_ns <= s->heap[child].at_ns) break;
    s->heap[i] = s->heap[child];
  }
  s->heap[i] = last;
  return top;
}

static char *at(sim_rank *r, int memory, int64_t offset) { return r->memory[memory] + offset; }

static void add_u64(char *dst, const char *a, const char *b, int64_t bytes)
{
  for (int64_t i = 0; i < bytes; i += 8) {
    uint64_t x, y;
    memcpy(&x, a + i, 8);
    memcpy(&y, b + i, 8);
    x += y;
    memcpy(dst + i, &x, 8);
  }
}

/* Copies, folds or zeroes; returns the time that it takes, in ns. */
static double run_local(sim *s, sim_rank *r, const coll_step *step)
{
  int64_t total = step->kind == COLL_FOLD ? step->bytes * step->peer : step->bytes;

  if (s->verify && step->bytes) {
    char *dst = at(r, step->dst_in, step->dst);
    if (step->kind == COLL_ZERO) {
      memset(dst, 0, (size_t)step->bytes);
    } else {
      char *src = at(r, step->src_in, step->src);
      memmove(dst, src, (size_t)step->bytes);
      for (int k = 1; step->kind == COLL_FOLD && k < step->peer; k++)
        add_u64(dst, dst, src + k * step->bytes, step->bytes);
    }
  }
  return (double)total * (step->kind == COLL_FOLD ? s->net->reduce_ns_per_byte : s->net->copy_ns_per_byte);
}

/* The send meets its receive: moves the data, and notes when each side is done. */
static weft_status *transfer(sim *s, const posted *from, const posted *to)
{
  sim_rank *src = &s->ranks[from->rank], *dst = &s->ranks[to->rank];
  const coll_step *out = &src->schedule.steps[from->step], *in = &dst->schedule.steps[to->step];
  int src_node = node_of(s, from->rank), dst_node = node_of(s, to->rank);
  bool crosses = src_node != dst_node;
  double wire_ns = (double)out->bytes * (crosses ? s->net->link_ns_per_byte : s->net->node_ns_per_byte);
  double start_ns = from->at_ns, end_ns;

  if (out->bytes != in->bytes)
    return WEFT_ERR(INTERNAL, "rank %d step %zu sends %lld bytes, rank %d step %zu expects %lld", from->rank,
                    from->step, (long long)out->bytes, to->rank, to->step, (long long)in->bytes);
  if (s->verify && in->bytes) {
    char *data = at(src, out->src_in, out->src), *target = at(dst, in->dst_in, in->dst);
    if (in->kind == COLL_RECV) memmove(target, data, (size_t)in->bytes);
    else add_u64(target, at(dst, in->src_in, in->src), data, in->bytes);
  }
  if (crosses) {
    start_ns = WEFT_MAX(start_ns, WEFT_MAX(s->egress_ns[src_node], s->ingress_ns[dst_node] - s->net->link_latency_ns));
    s->egress_ns[src_node] = start_ns + wire_ns;
    end_ns = start_ns + wire_ns + s->net->link_latency_ns;
    s->ingress_ns[dst_node] = end_ns;
    s->link_bytes[src_node] += out->bytes;
  } else {
    end_ns = start_ns + wire_ns + s->net->node_latency_ns;
  }
  end_ns = WEFT_MAX(end_ns, to->at_ns);
  if (in->kind == COLL_RECV_REDUCE) end_ns += (double)in->bytes * s->net->reduce_ns_per_byte;
  src->sent_bytes += out->bytes;
  s->result->messages++;
  const posted *sides[2] = {from, to};
  double ends_ns[2] = {start_ns + wire_ns, end_ns};
  for (int i = 0; i < 2; i++) {
    sim_rank *r = &s->ranks[sides[i]->rank];
    r->round_end_ns = WEFT_MAX(r->round_end_ns, ends_ns[i]);
    if (--r->unmatched == 0) heap_push(s, r->round_end_ns, sides[i]->rank);
  }
  return NULL;
}

static channel *channel_of(sim *s, int src, int dst)
{
  int64_t key = (int64_t)src * s->p->size + dst + 1;
  size_t i = (size_t)((uint64_t)key * 0x9e3779b97f4a7c15u >> 20) & s->channel_mask;

  while (s->channels[i].key && s->channels[i].key != key) i = (i + 1) & s->channel_mask;
  if (!s->channels[i].key) s->channels[i] = (channel){key, -1, -1, false};
  return &s->channels[i];
}

static weft_status *post(sim *s, int rank, size_t index, double at_ns)
{
  const coll_step *step = &s->ranks[rank].schedule.steps[index];
  bool sends = step->kind == COLL_SEND;
  channel *c = channel_of(s, sends ? rank : step->peer, sends ? step->peer : rank);
  posted mine = {rank, -1, index, at_ns};

  if (c->head >= 0 && c->holds_sends != sends) {
    int met = c->head;
    posted theirs = s->posts[met];
    c->head = theirs.next;
    s->posts[met].next = s->free_post;
    s->free_post = met;
    return transfer(s, sends ? &mine : &theirs, sends ? &theirs : &mine);
  }
  int slot = s->free_post;
  if (slot >= 0) s->free_post = s->posts[slot].next;
  else slot = s->post_count++;
  s->posts[slot] = mine;
  if (c->head < 0) c->head = slot;
  else s->posts[c->tail].next = slot;
  c->tail = slot;
  c->holds_sends = sends;
  return NULL;
}

static weft_status *enter_round(sim *s, int rank, double now_ns)
{
  sim_rank *r = &s->ranks[rank];
  const coll_schedule *sch = &r->schedule;

  s->result->time_ns = WEFT_MAX(s->result->time_ns, now_ns);
  if (r->next == sch->count) {
    r->round_begin = r->next;
    return NULL;
  }
  r->round_begin = r->next;
  r->round_end_ns = now_ns;
  size_t end = r->round_begin, messages = 0;
  do {
    messages += sch->steps[end].kind <= COLL_RECV_REDUCE;
  } while (!sch->steps[end++].ends_round);
  r->next = end;
  r->unmatched = messages + 1; /* one more, so that the round cannot end before the loop below does */
  r->rounds += messages > 0;
  for (size_t i = r->round_begin; i < end; i++) {
    if (sch->steps[i].kind <= COLL_RECV_REDUCE) WEFT_TRY(post(s, rank, i, now_ns));
    else r->round_end_ns = WEFT_MAX(r->round_end_ns, now_ns + run_local(s, r, &sch->steps[i]));
  }
  if (--r->unmatched == 0) heap_push(s, r->round_end_ns, rank);
  return NULL;
}

/* ---- data ---- */

static uint64_t value(int rank, int64_t index) { return (uint64_t)(rank + 1) * 1000003u + (uint64_t)index * 7919u; }

static weft_status *prepare(sim *s, coll_algorithm algorithm)
{
  size_t steps = 0;

  for (int rank = 0; rank < s->p->size; rank++) {
    coll_problem mine = *s->p;
    sim_rank *r = &s->ranks[rank];
    mine.rank = rank;
    if (mine.kind == WEFT_PERMUTE) {
      mine.target = (rank + 1) % mine.size;
      mine.source = (rank + mine.size - 1) % mine.size;
    }
    WEFT_TRY(coll_schedule_build(&mine, algorithm, &r->schedule));
    steps += r->schedule.count;
    s->result->tmp_bytes = WEFT_MAX(s->result->tmp_bytes, r->schedule.tmp_bytes);
    if (!s->verify) continue;
    int64_t sizes[COLL_MEMORY_COUNT] = {coll_problem_in_bytes(&mine), coll_problem_out_bytes(&mine), r->schedule.tmp_bytes};
    for (int m = 0; m < COLL_MEMORY_COUNT; m++) WEFT_TRY_ALLOC(r->memory[m] = malloc((size_t)sizes[m] + 8));
    for (int m = 1; m < COLL_MEMORY_COUNT; m++) memset(r->memory[m], 0xa5, (size_t)sizes[m]);
    for (int64_t i = 0; i < sizes[COLL_IN] / 8; i++) {
      uint64_t v = value(rank, i);
      memcpy(r->memory[COLL_IN] + 8 * i, &v, 8);
    }
    if (mine.in_place) {
      memcpy(r->memory[COLL_OUT], r->memory[COLL_IN], (size_t)WEFT_MIN(sizes[0], sizes[1]));
      free(r->memory[COLL_IN]);
      r->memory[COLL_IN] = r->memory[COLL_OUT];
    }
  }
  s->post_capacity = steps + 1;
  size_t slots = 16;
  while (slots < 2 * steps + 2) slots *= 2;
  s->channel_mask = slots - 1;
  WEFT_TRY_ALLOC(s->channels = calloc(slots, sizeof *s->channels));
  WEFT_TRY_ALLOC(s->posts = malloc(s->post_capacity * sizeof *s->posts));
  return NULL;
}

/* Element i of the result of `rank`. */
static uint64_t expected(const coll_problem *p, int rank, int64_t i)
{
  int64_t n = p->bytes / 8, block = n ? i / n : 0, within = n ? i % n : 0;
  uint64_t total = (uint64_t)p->size * ((uint64_t)p->size + 1) / 2 * 1000003u;

  switch (p->kind) {
  case WEFT_ALL_REDUCE:
  case WEFT_REDUCE: return total + (uint64_t)p->size * (uint64_t)i * 7919u;
  case WEFT_REDUCE_SCATTER: return total + (uint64_t)p->size * (uint64_t)(i + rank * n) * 7919u;
  case WEFT_BROADCAST: return value(p->root, i);
  case WEFT_SCATTER: return value(p->root, rank * n + i);
  case WEFT_ALL_TO_ALL: return value((int)block, rank * n + within);
  case WEFT_PERMUTE: return value((rank + p->size - 1) % p->size, i);
  default: return value((int)block, within); /* the kinds that gather */
  }
}

static weft_status *verify_results(sim *s)
{
  for (int rank = 0; rank < s->p->size; rank++) {
    coll_problem mine = *s->p;
    mine.rank = rank;
    for (int64_t i = 0; i < coll_problem_out_bytes(&mine) / 8; i++) {
      uint64_t got, want = expected(&mine, rank, i);
      memcpy(&got, s->ranks[rank].memory[COLL_OUT] + 8 * i, 8);
      if (got != want)
        return WEFT_ERR(INTERNAL, "rank %d element %lld: got %llu, want %llu", rank, (long long)i,
                        (unsigned long long)got, (unsigned long long)want);
    }
  }
  return NULL;
}

static weft_status *run(sim *s)
{
  for (int rank = 0; rank < s->p->size; rank++) heap_push(s, 0, rank);
  while (s->heap_count) {
    struct arrival next = heap_pop(s);
    WEFT_TRY(enter_round(s, next.rank, next.at_ns));
  }
  for (int rank = 0; rank < s->p->size; rank++) {
    sim_rank *r = &s->ranks[rank];
    if (r->round_begin < r->schedule.count)
      return WEFT_ERR(INTERNAL, "deadlock: rank %d waits in step %zu of %zu", rank, r->round_begin, r->schedule.count);
    s->result->rounds = WEFT_MAX(s->result->rounds, r->rounds);
    s->result->rank_bytes = WEFT_MAX(s->result->rank_bytes, r->sent_bytes);
    s->result->link_bytes = WEFT_MAX(s->result->link_bytes, s->link_bytes[node_of(s, rank)]);
  }
  return s->verify ? verify_results(s) : NULL;
}

weft_status *coll_simulate(const coll_problem *problem, coll_algorithm algorithm, const coll_net *net, bool verify,
                           coll_sim_result *out)
{
  size_t size = (size_t)problem->size;
  sim s = {.p = problem, .net = net ? net : &coll_net_default, .verify = verify, .free_post = -1, .result = out};
  weft_status *st = NULL;

  *out = (coll_sim_result){0};
  s.ranks = calloc(size, sizeof *s.ranks);
  s.heap = calloc(size + 1, sizeof *s.heap);
  s.egress_ns = calloc(2 * size, sizeof *s.egress_ns);
  s.link_bytes = calloc(size, sizeof *s.link_bytes);
  if (!s.ranks || !s.heap || !s.egress_ns || !s.link_bytes) {
    st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory simulating %zu ranks", size);
  } else {
    s.ingress_ns = s.egress_ns + size;
    st = prepare(&s, algorithm);
    if (!st) st = run(&s);
  }
  for (size_t i = 0; s.ranks && i < size; i++) {
    coll_schedule_fini(&s.ranks[i].schedule);
    if (s.ranks[i].memory[COLL_IN] != s.ranks[i].memory[COLL_OUT]) free(s.ranks[i].memory[COLL_IN]);
    free(s.ranks[i].memory[COLL_OUT]);
    free(s.ranks[i].memory[COLL_TMP]);
  }
  free(s.ranks);
  free(s.heap);
  free(s.egress_ns);
  free(s.link_bytes);
  free(s.channels);
  free(s.posts);
  return weft_status_note(st, __FILE__, __LINE__, "simulating %s %s, %d ranks", weft_coll_kind_name(problem->kind),
                          coll_algorithm_name(algorithm), problem->size);
}
