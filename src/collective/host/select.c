/* collective/host/select.c -- which algorithm for which size: a table that a file can replace. */
#include <config.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "collective/internal.h"
#include "collective/host/select.h"

/* The first row is taken that covers the kind, the ranks and the bytes (of the vector or of one block), and whose
 * algorithm applies.  The rows were measured on a two-core node (`weft bench collectives`) and checked on the
 * simulator's network. */
static const coll_rule defaults[] = {
  {WEFT_BARRIER, INT32_MAX, INT64_MAX, COLL_ALG_DISSEMINATION},
  {WEFT_ALL_REDUCE, INT32_MAX, 16 << 10, COLL_ALG_HIERARCHICAL},
  {WEFT_ALL_REDUCE, INT32_MAX, INT64_MAX, COLL_ALG_LANES},
  {WEFT_ALL_REDUCE, INT32_MAX, 4 << 10, COLL_ALG_RECURSIVE_DOUBLING},
  {WEFT_ALL_REDUCE, INT32_MAX, 1 << 20, COLL_ALG_RABENSEIFNER},
  {WEFT_ALL_REDUCE, 512, INT64_MAX, COLL_ALG_RING},
  {WEFT_ALL_REDUCE, INT32_MAX, INT64_MAX, COLL_ALG_RABENSEIFNER},
  {WEFT_REDUCE, INT32_MAX, 32 << 10, COLL_ALG_BINOMIAL},
  {WEFT_REDUCE, 512, INT64_MAX, COLL_ALG_SCATTER_GATHER},
  {WEFT_REDUCE, INT32_MAX, INT64_MAX, COLL_ALG_BINOMIAL},
  {WEFT_REDUCE_SCATTER, INT32_MAX, 64 << 10, COLL_ALG_RECURSIVE_DOUBLING},
  {WEFT_REDUCE_SCATTER, INT32_MAX, INT64_MAX, COLL_ALG_LANES},
  {WEFT_REDUCE_SCATTER, INT32_MAX, INT64_MAX, COLL_ALG_RING},
  {WEFT_BROADCAST, INT32_MAX, 64 << 10, COLL_ALG_HIERARCHICAL},
  {WEFT_BROADCAST, INT32_MAX, 64 << 10, COLL_ALG_BINOMIAL},
  {WEFT_BROADCAST, 2, INT64_MAX, COLL_ALG_BINOMIAL},
  {WEFT_BROADCAST, 3, INT64_MAX, COLL_ALG_CHAIN},
  {WEFT_BROADCAST, 64, INT64_MAX, COLL_ALG_SCATTER_GATHER},
  {WEFT_BROADCAST, INT32_MAX, INT64_MAX, COLL_ALG_DOUBLE_TREE},
  {WEFT_ALL_GATHER, 3, INT64_MAX, COLL_ALG_DIRECT},
  {WEFT_ALL_GATHER, INT32_MAX, 8 << 10, COLL_ALG_BRUCK},
  {WEFT_ALL_GATHER, INT32_MAX, INT64_MAX, COLL_ALG_LANES},
  {WEFT_ALL_GATHER, INT32_MAX, INT64_MAX, COLL_ALG_RING},
  {WEFT_ALL_GATHER_V, 4, INT64_MAX, COLL_ALG_DIRECT},
  {WEFT_ALL_GATHER_V, INT32_MAX, INT64_MAX, COLL_ALG_RING},
  {WEFT_GATHER, 8, INT64_MAX, COLL_ALG_DIRECT},
  {WEFT_GATHER, INT32_MAX, 4 << 10, COLL_ALG_BINOMIAL},
  {WEFT_SCATTER, 8, INT64_MAX, COLL_ALG_DIRECT},
  {WEFT_SCATTER, INT32_MAX, 4 << 10, COLL_ALG_BINOMIAL},
  {WEFT_ALL_TO_ALL, 8, 64 << 10, COLL_ALG_DIRECT},
  {WEFT_ALL_TO_ALL, INT32_MAX, 256, COLL_ALG_BRUCK},
  {WEFT_ALL_TO_ALL, INT32_MAX, INT64_MAX, COLL_ALG_PAIRWISE},
  {WEFT_ALL_TO_ALL_V, 8, INT64_MAX, COLL_ALG_DIRECT},
  {WEFT_ALL_TO_ALL_V, INT32_MAX, INT64_MAX, COLL_ALG_PAIRWISE},
  {WEFT_RAGGED_ALL_TO_ALL, 8, INT64_MAX, COLL_ALG_DIRECT},
  {WEFT_RAGGED_ALL_TO_ALL, INT32_MAX, INT64_MAX, COLL_ALG_PAIRWISE},
};

/* For reductions in rank order: small contributions go to every rank whole, large ones are cut. */
static const coll_rule rank_ordered[] = {
  {WEFT_ALL_REDUCE, 16, 2 << 10, COLL_ALG_GATHER_FOLD},
  {WEFT_REDUCE, 16, 8 << 10, COLL_ALG_GATHER_FOLD},
};

/* For ranks that are each on a node of their own: the cost of a message outweighs that of its bytes. */
static const coll_rule apart[] = {
  {WEFT_ALL_GATHER, 3, INT64_MAX, COLL_ALG_DIRECT},
  {WEFT_ALL_GATHER, 8, 256 << 10, COLL_ALG_BRUCK},
  {WEFT_ALL_TO_ALL, 2, INT64_MAX, COLL_ALG_DIRECT},
  {WEFT_ALL_TO_ALL, 8, 8 << 10, COLL_ALG_BRUCK},
};

static coll_rule *loaded; /* rows of the file, used before the defaults; immutable after `once` */
static size_t loaded_count;
static pthread_once_t once = PTHREAD_ONCE_INIT;

bool coll_kind_from_name(const char *name, weft_coll_kind *out)
{
  for (int k = 0; k < WEFT_COLL_KIND_COUNT; k++) {
    if (strcmp(name, weft_coll_kind_name((weft_coll_kind)k)) != 0) continue;
    *out = (weft_coll_kind)k;
    return true;
  }
  return false;
}

weft_status *coll_rules_read(const char *path, coll_rule **out_rules, size_t *out_count)
{
  enum { MOST_RULES = 4096 };
  char line[256], kind[64], algorithm[64];
  FILE *file = fopen(path, "re");
  coll_rule *rules = calloc(MOST_RULES, sizeof *rules);
  size_t count = 0;
  int number = 0;
  weft_status *st = NULL;

  *out_rules = NULL;
  *out_count = 0;
  if (!file) st = WEFT_ERR(NOT_FOUND, "algorithm table %s cannot be read", path);
  if (!rules) st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  while (!st && fgets(line, sizeof line, file)) {
    coll_rule *r = &rules[count];
    long long ranks, bytes;
    number++;
    if (line[strspn(line, " \t\n")] == '\0' || line[0] == '#') continue;
    if (sscanf(line, "%63s %lld %lld %63s", kind, &ranks, &bytes, algorithm) != 4 || ranks < 1 || bytes < 0 ||
        !coll_kind_from_name(kind, &r->kind) || !coll_algorithm_from_name(algorithm, strlen(algorithm), &r->algorithm))
      st = WEFT_ERR(INVALID_ARGUMENT, "%s:%d: expected: kind most-ranks most-bytes algorithm", path, number);
    else if (count + 1 == MOST_RULES) st = WEFT_ERR(INVALID_ARGUMENT, "%s: more than %d rows", path, MOST_RULES);
    r->most_ranks = ranks > INT32_MAX ? INT32_MAX : (int)ranks;
    r->most_bytes = bytes;
    count += !st;
  }
  if (file) fclose(file);
  if (st) {
    free(rules);
    return st;
  }
  *out_rules = rules;
  *out_count = count;
  return NULL;
}

static void load(void)
{
  const char *path = coll_settings_get()->table;
  weft_status *st = *path ? coll_rules_read(path, &loaded, &loaded_count) : NULL;

  if (st) WEFT_LOG("coll", WARN, "%s; using the built-in table", weft_status_message(st));
  weft_status_ignore(st);
}

static bool search(const coll_rule *rules, size_t count, const coll_problem *p, coll_algorithm *out)
{
  for (size_t i = 0; i < count; i++) {
    if (rules[i].kind != p->kind || p->size > rules[i].most_ranks || p->bytes > rules[i].most_bytes) continue;
    if (!coll_algorithm_applies(rules[i].algorithm, p)) continue;
    *out = rules[i].algorithm;
    return true;
  }
  return false;
}

coll_algorithm coll_select(const coll_group *g, const coll_problem *p)
{
  coll_algorithm found = COLL_ALG_DIRECT; /* has a form of every kind except barrier, which the table covers */

  pthread_once(&once, load);
  if (g->forced_algorithm != COLL_ALG_AUTO && coll_algorithm_applies((coll_algorithm)g->forced_algorithm, p))
    return (coll_algorithm)g->forced_algorithm;
  if (search(loaded, loaded_count, p, &found)) return found;
  if (p->rank_order && search(rank_ordered, WEFT_COUNT(rank_ordered), p, &found)) return found;
  if ((!p->topology || p->topology->node_count == p->size) && search(apart, WEFT_COUNT(apart), p, &found)) return found;
  search(defaults, WEFT_COUNT(defaults), p, &found);
  return found;
}
