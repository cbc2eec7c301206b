/* passes/spmd/rule.c -- reads Shardy's sharding rules, which say in text which dimensions of a custom-call belong
 * together. */
#include <config.h>

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "passes/spmd/custom.h"

enum { UNCUT = 2147483647 }; /* the size of factors that stay whole: a prime greater than any axis */

static bool accept(const char **p, char c)
{
  while (isspace((unsigned char)**p)) ++*p;
  if (**p != c) return false;
  ++*p;
  return true;
}

static bool number(const char **p, int64_t *out)
{
  char *end;

  if (!isdigit((unsigned char)**p)) return false;
  *out = strtoll(*p, &end, 10);
  *p = end;
  return true;
}

/* A letter from i on, or z_1, z_2, ...: the factors 0, 1, 2, ... */
static bool factor(const char **p, int *out)
{
  int64_t more = 0;

  while (isspace((unsigned char)**p)) ++*p;
  if (**p < 'i' || **p > 'z') return false;
  *out = *(*p)++ - 'i';
  if (**p != '_') return *out < SPMD_MAX_FACTORS;
  ++*p;
  if (!number(p, &more) || more > SPMD_MAX_FACTORS) return false;
  *out += (int)more;
  return *out < SPMD_MAX_FACTORS;
}

/* {i=8, j=4} or {j}, behind its word: sizes, or marks. */
static bool factor_list(const char **p, int64_t *sizes, bool *marks)
{
  if (!accept(p, '{')) return false;
  while (!accept(p, '}')) {
    int f;
    (void)accept(p, ',');
    if (!factor(p, &f)) return false;
    if (marks) marks[f] = true;
    else if (!accept(p, '=') || !number(p, &sizes[f])) return false;
  }
  return true;
}

/* ([i, jk], [j]), whose tensors are those from `first` on. */
static bool mappings(const char **p, spmd_factors *f, int first, int count, bool uses)
{
  int t = first;

  if (!accept(p, '(')) return false;
  while (!accept(p, ')')) {
    int dim = 0, n;
    if (t > first && !accept(p, ',')) return false;
    if (!accept(p, '[') || t == first + count) return false;
    while (!accept(p, ']')) {
      if (dim > 0 && !accept(p, ',')) return false;
      if (dim == f->tensors[t].shape->rank) return false;
      while (factor(p, &n)) {
        spmd_tensor *tensor = &f->tensors[t];
        for (int u = 0; uses && u < tensor->use_count; u++)
          if (tensor->uses[u].factor == n) return false; /* one factor for two dimensions */
        if (uses && tensor->use_count == 2 * HLO_MAX_RANK) return false;
        if (uses) tensor->uses[tensor->use_count++] = (spmd_use){(uint8_t)dim, (uint8_t)n};
        else f->count = WEFT_MAX(f->count, n + 1);
      }
      dim++;
    }
    if (dim != f->tensors[t].shape->rank) return false;
    t++;
  }
  return t == first + count;
}

static bool both_mappings(const char **p, spmd_factors *f, bool uses)
{
  return mappings(p, f, 0, f->operand_count, uses) && accept(p, '-') && accept(p, '>') &&
         mappings(p, f, f->operand_count, f->tensor_count - f->operand_count, uses);
}

/* The factors of each dimension must multiply to its size. A dimension without factors stays whole. */
static bool sizes_fit(const spmd_factors *f, const int64_t *sizes)
{
  bool fits = true;

  for (int t = 0; t < f->tensor_count && fits; t++) {
    int64_t products[HLO_MAX_RANK];
    const spmd_tensor *tensor = &f->tensors[t];
    for (int d = 0; d < HLO_MAX_RANK; d++) products[d] = 1;
    for (int u = 0; u < tensor->use_count; u++)
      fits &= !__builtin_mul_overflow(products[tensor->uses[u].dim], sizes[tensor->uses[u].factor],
                                      &products[tensor->uses[u].dim]);
    for (int d = 0; d < tensor->shape->rank; d++) fits &= products[d] == tensor->shape->dims[d] || products[d] == 1;
  }
  return fits;
}

bool spmd_rule_factors(const char *text, spmd_factors *f)
{
  static const char *const words[] = {"reduction", "need_replication", "permutation", "blocked_propagation"};
  bool marks[WEFT_COUNT(words)][SPMD_MAX_FACTORS] = {{false}}, ok;
  int64_t sizes[SPMD_MAX_FACTORS] = {0};
  const char *start = strchr(text, '('), *p = start;

  ok = p && both_mappings(&p, f, false) && factor_list(&p, sizes, NULL);
  for (size_t w = 0; ok && w < WEFT_COUNT(words); w++) {
    while (isspace((unsigned char)*p)) p++;
    if (strncmp(p, words[w], strlen(words[w])) != 0) continue;
    p += strlen(words[w]);
    ok = accept(&p, '=') && factor_list(&p, NULL, marks[w]);
  }
  for (int i = 0; ok && i < f->count; i++) {
    f->factor[i] = (spmd_factor){.size = sizes[i], .is_reduced = marks[0][i], .is_moved = marks[2][i]};
    if (marks[1][i]) f->factor[i].size = UNCUT;
    ok = sizes[i] > 0;
  }
  p = start;
  ok = ok && both_mappings(&p, f, true) && sizes_fit(f, sizes);
  if (ok) return true;
  f->count = 0;
  for (int t = 0; t < f->tensor_count; t++) f->tensors[t].use_count = 0;
  return false;
}
