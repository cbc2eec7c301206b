/* buffer/hazard.c -- which steps must wait for which, found from the bytes they read and write (hazard.h). */
#include <config.h>

#include "buffer/hazard.h"

/* A step that has read a segment since its last write.  The pieces of a split segment share their list of readers. */
typedef struct reader {
  int step;
  const struct reader *next;
} reader;

/* A node of a treap ordered by `begin`.  Priorities are hashes of a counter, so that trees are the same in every
 * run. */
typedef struct buf_segment {
  int64_t begin, end;
  int writer; /* -1: no step yet */
  const reader *readers;
  uint32_t priority;
  struct buf_segment *left, *right;
} buf_segment;

static buf_segment *segment_new(buf_hazards *h, int64_t begin, int64_t end, int writer, const reader *readers)
{
  buf_segment *s = h->free;
  uint32_t priority = ++h->segments_made;

  if (s) h->free = s->right;
  else s = WEFT_ARENA_NEW(h->arena, buf_segment);
  if (!s) return NULL;
  priority = (priority ^ (priority >> 16)) * 0x45d9f3bu;
  priority = (priority ^ (priority >> 16)) * 0x45d9f3bu;
  *s = (buf_segment){
    .begin = begin, .end = end, .writer = writer, .readers = readers, .priority = priority ^ (priority >> 16)};
  return s;
}

/* Each allocation starts as one segment without a writer, so that segments always cover every address. */
weft_status *buf_hazards_init(buf_hazards *h, weft_arena *arena, int alloc_count, buf_hazard_edge *edge, void *ctx)
{
  *h = (buf_hazards){.arena = arena, .alloc_count = alloc_count, .edge = edge, .ctx = ctx};
  h->roots = WEFT_ARENA_ARRAY(arena, buf_segment *, alloc_count);
  WEFT_TRY_ALLOC(h->roots);
  for (int i = 0; i < alloc_count; i++) {
    h->roots[i] = segment_new(h, 0, INT64_MAX, -1, NULL);
    WEFT_TRY_ALLOC(h->roots[i]);
  }
  return NULL;
}

static buf_segment *join(buf_segment *a, buf_segment *b) /* all of a before all of b */
{
  if (!a) return b;
  if (!b) return a;
  if (a->priority >= b->priority) {
    a->right = join(a->right, b);
    return a;
  }
  b->left = join(a, b->left);
  return b;
}

/* Splits by address: segments that begin before `at` go to *low, the others to *high.  A segment across `at` is cut
 * in two; `spare` is the memory for its second half. */
static void split(buf_segment *tree, int64_t at, buf_segment **spare, buf_segment **low, buf_segment **high)
{
  if (!tree) {
    *low = *high = NULL;
  } else if (tree->begin >= at) {
    split(tree->left, at, spare, low, &tree->left);
    *high = tree;
  } else if (tree->end <= at) {
    split(tree->right, at, spare, &tree->right, high);
    *low = tree;
  } else {
    buf_segment *rest = *spare, *after = tree->right;
    *spare = NULL;
    rest->begin = at;
    rest->end = tree->end;
    rest->writer = tree->writer;
    rest->readers = tree->readers;
    tree->end = at;
    tree->right = NULL;
    *low = tree;
    *high = join(rest, after);
  }
}

/* Takes the segments of `slice` out of its tree, cut at both ends of the slice.  The rest is in *out_low and
 * *out_high. */
static weft_status *cut_out(buf_hazards *h, buf_slice slice, buf_segment **out_low, buf_segment **out_middle,
                            buf_segment **out_high)
{
  buf_segment *rest, *spares[2];

  for (int i = 0; i < 2; i++) {
    spares[i] = segment_new(h, slice.offset + i, 0, -1, NULL);
    WEFT_TRY_ALLOC(spares[i]);
  }
  split(h->roots[slice.alloc], slice.offset, &spares[0], out_low, &rest);
  split(rest, slice.offset + slice.bytes, &spares[1], out_middle, out_high);
  for (int i = 0; i < 2; i++)
    if (spares[i]) {
      spares[i]->right = h->free;
      h->free = spares[i];
    }
  return NULL;
}

/* Recursion is as deep as a treap: O(log n). */
static weft_status *note_reads(buf_hazards *h, buf_segment *tree, int step)
{
  reader *r;

  if (!tree) return NULL;
  WEFT_TRY(note_reads(h, tree->left, step));
  if (tree->writer >= 0 && tree->writer != step) WEFT_TRY(h->edge(h->ctx, tree->writer, step));
  if (!tree->readers || tree->readers->step != step) {
    r = WEFT_ARENA_NEW(h->arena, reader);
    WEFT_TRY_ALLOC(r);
    *r = (reader){step, tree->readers};
    tree->readers = r;
  }
  return note_reads(h, tree->right, step);
}

static weft_status *note_writes(buf_hazards *h, buf_segment *tree, int step)
{
  bool read = false;

  if (!tree) return NULL;
  WEFT_TRY(note_writes(h, tree->left, step));
  WEFT_TRY(note_writes(h, tree->right, step));
  for (const reader *r = tree->readers; r; r = r->next) {
    if (r->step == step) continue; /* an update in place: its read got the edge from the writer */
    WEFT_TRY(h->edge(h->ctx, r->step, step));
    read = true;
  }
  if (!read && tree->writer >= 0 && tree->writer != step) WEFT_TRY(h->edge(h->ctx, tree->writer, step));
  tree->right = h->free;
  h->free = tree;
  return NULL;
}

weft_status *buf_hazards_read(buf_hazards *h, int step, buf_slice slice)
{
  buf_segment *low, *middle, *high;

  if (slice.alloc < 0 || slice.bytes == 0) return NULL;
  WEFT_TRY(cut_out(h, slice, &low, &middle, &high));
  WEFT_TRY(note_reads(h, middle, step));
  h->roots[slice.alloc] = join(join(low, middle), high);
  return NULL;
}

weft_status *buf_hazards_write(buf_hazards *h, int step, buf_slice slice)
{
  buf_segment *low, *middle, *high;

  if (slice.alloc < 0 || slice.bytes == 0) return NULL;
  WEFT_TRY(cut_out(h, slice, &low, &middle, &high));
  WEFT_TRY(note_writes(h, middle, step));
  middle = segment_new(h, slice.offset, slice.offset + slice.bytes, step, NULL);
  WEFT_TRY_ALLOC(middle);
  h->roots[slice.alloc] = join(join(low, middle), high);
  return NULL;
}
