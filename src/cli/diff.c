/* cli/diff.c -- the lines in which two texts differ (diff.h).
 *
 * The patience method: lines that each text has exactly once are paired, and the longest run of pairs that stand in
 * the same order in both texts is kept. Equal lines beside a pair are paired too. All other lines are differences. */
#include <config.h>

#include "cli/diff.h"

#include <stdlib.h>
#include <string.h>

typedef struct line {
  const char *text;
  size_t size;
  uint64_t hash;
  int number; /* in its text */
  int pair;   /* the equal line of the other text; -1: none */
} line;

typedef struct text {
  line *lines;
  int count;
} text;

static weft_status *split(const char *from, weft_arena *arena, text *out)
{
  size_t count = 1;

  for (const char *at = from; (at = strchr(at, '\n')); at++) count++;
  out->count = 0;
  out->lines = WEFT_ARENA_ARRAY(arena, line, count);
  WEFT_TRY_ALLOC(out->lines);
  while (*from) {
    line *l = &out->lines[out->count];
    *l =
      (line){.text = from, .size = strcspn(from, "\n"), .hash = 1469598103934665603u, .number = out->count, .pair = -1};
    for (size_t i = 0; i < l->size; i++) l->hash = (l->hash ^ (unsigned char)from[i]) * 1099511628211u; /* FNV-1a */
    from += l->size + (from[l->size] == '\n');
    out->count++;
  }
  return NULL;
}

static bool is_equal(const line *a, const line *b)
{
  return a->hash == b->hash && a->size == b->size && memcmp(a->text, b->text, a->size) == 0;
}

static int by_hash(const void *a, const void *b)
{
  const line *x = *(line *const *)a, *y = *(line *const *)b;

  if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
  return x->number - y->number;
}

static weft_status *sort_by_hash(const text *t, weft_arena *arena, line ***out)
{
  *out = WEFT_ARENA_ARRAY(arena, line *, (size_t)t->count + 1);
  WEFT_TRY_ALLOC(*out);
  for (int i = 0; i < t->count; i++) (*out)[i] = &t->lines[i];
  qsort(*out, (size_t)t->count, sizeof **out, by_hash);
  return NULL;
}

static bool is_single(line *const *sorted, int count, int i)
{
  return (i == 0 || sorted[i - 1]->hash != sorted[i]->hash) &&
         (i + 1 == count || sorted[i + 1]->hash != sorted[i]->hash);
}

/* Pairs the lines that both texts have exactly once. */
static weft_status *pair_single_lines(text *before, text *after, weft_arena *arena)
{
  line **a, **b;

  WEFT_TRY(sort_by_hash(before, arena, &a));
  WEFT_TRY(sort_by_hash(after, arena, &b));
  for (int i = 0, k = 0; i < before->count; i++) {
    while (k < after->count && b[k]->hash < a[i]->hash) k++;
    if (k == after->count) break;
    if (!is_equal(a[i], b[k]) || !is_single(a, before->count, i) || !is_single(b, after->count, k)) continue;
    a[i]->pair = b[k]->number;
    b[k]->pair = a[i]->number;
  }
  return NULL;
}

/* Keeps the longest sequence of pairs that ascends in both texts, and undoes the others. */
static weft_status *keep_ascending(text *before, text *after, weft_arena *arena)
{
  int *last = WEFT_ARENA_ARRAY(arena, int, (size_t)before->count + 1); /* by length: the line that ends such a run */
  int *previous = WEFT_ARENA_ARRAY(arena, int, (size_t)before->count + 1);
  int longest = 0;

  WEFT_TRY_ALLOC(last && previous);
  for (int i = 0; i < before->count; i++) {
    int low = 0, high = longest;
    if (before->lines[i].pair < 0) continue;
    while (low < high) {
      int middle = (low + high) / 2;
      if (before->lines[last[middle]].pair < before->lines[i].pair) low = middle + 1;
      else high = middle;
    }
    previous[i] = low > 0 ? last[low - 1] : -1;
    last[low] = i;
    longest = WEFT_MAX(longest, low + 1);
  }
  for (int i = before->count - 1, kept = longest > 0 ? last[longest - 1] : -1; i >= 0; i--) {
    line *l = &before->lines[i];
    if (i == kept) kept = previous[i];
    else if (l->pair >= 0) l->pair = after->lines[l->pair].pair = -1;
  }
  return NULL;
}

/* Pairs equal lines that follow or precede a pair. */
static void extend(text *before, text *after)
{
  for (int direction = 1; direction >= -1; direction -= 2)
    for (int k = 0; k < before->count; k++) {
      int i = direction > 0 ? k - 1 : before->count - k; /* the neighbour whose pair is known; -1 and count: the ends */
      int other = i < 0 ? -1 : i == before->count ? after->count : before->lines[i].pair;
      int mine = i + direction, yours = other + direction;
      if (other < 0 && i >= 0) continue;
      if (mine < 0 || mine >= before->count || yours < 0 || yours >= after->count) continue;
      if (before->lines[mine].pair >= 0 || after->lines[yours].pair >= 0) continue;
      if (!is_equal(&before->lines[mine], &after->lines[yours])) continue;
      before->lines[mine].pair = yours;
      after->lines[yours].pair = mine;
    }
}

/* ---- the difference ---- */

static void add(cli_diff *diff, char mark, const line *l)
{
  diff->lines[diff->count++] = (cli_diff_line){mark, l->text, l->size};
}

/* The line that begins the computation of line `i`: the nearest one above that does not begin with a space. */
static int heading_of(const text *t, int i)
{
  while (i > 0 && (t->lines[i].size == 0 || t->lines[i].text[0] == ' ' || t->lines[i].text[0] == '}')) i--;
  return i;
}

static void add_changed(cli_diff *diff, char mark, const text *t, int i, int *heading)
{
  int mine = heading_of(t, i);

  if (t->lines[i].size == 0) return;
  if (mine != i && (*heading < 0 || mine != *heading)) add(diff, '@', &t->lines[mine]);
  *heading = mine;
  add(diff, mark, &t->lines[i]);
}

weft_status *cli_diff_texts(const char *before, const char *after, weft_arena *arena, cli_diff *out)
{
  text a, b;
  int heading_a = -1, heading_b = -1;

  WEFT_TRY(split(before, arena, &a));
  WEFT_TRY(split(after, arena, &b));
  WEFT_TRY(pair_single_lines(&a, &b, arena));
  WEFT_TRY(keep_ascending(&a, &b, arena));
  extend(&a, &b);
  *out = (cli_diff){.lines = WEFT_ARENA_ARRAY(arena, cli_diff_line, 2 * ((size_t)a.count + (size_t)b.count) + 1)};
  WEFT_TRY_ALLOC(out->lines);
  for (int i = 0, k = 0; i < a.count || k < b.count;) {
    bool gone = i < a.count && a.lines[i].pair < 0, is_new = k < b.count && b.lines[k].pair < 0;
    if (gone) add_changed(out, '-', &a, i++, &heading_a);
    else if (is_new) add_changed(out, '+', &b, k++, &heading_b);
    else i++, k++;
  }
  return NULL;
}
