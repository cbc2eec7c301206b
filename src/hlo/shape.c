/* hlo/shape.c -- shapes and layouts (shape.h). */
#include <config.h>

#include "hlo/shape.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

hlo_shape *hlo_shape_array(weft_arena *arena, weft_dtype type, int rank, const int64_t *dims)
{
  hlo_shape *s = WEFT_ARENA_NEW(arena, hlo_shape);

  if (!s) return NULL;
  s->type = type;
  s->rank = rank;
  s->dims = weft_arena_memdup(arena, dims, (size_t)rank * sizeof *dims);
  return s->dims ? s : NULL;
}

void hlo_shape_note_parts(hlo_shape *tuple)
{
  int64_t parts = 1;
  int depth = 0;

  tuple->is_flat = true;
  for (int i = 0; i < tuple->rank; i++) {
    tuple->is_flat &= !hlo_shape_is_tuple(tuple->elements[i]);
    depth = WEFT_MAX(depth, tuple->elements[i]->depth);
    parts += hlo_shape_parts(tuple->elements[i]);
  }
  tuple->depth = (uint8_t)WEFT_MIN(depth + 1, UINT8_MAX);
  tuple->part_count = (int)WEFT_MIN(parts, INT32_MAX);
}

hlo_shape *hlo_shape_tuple(weft_arena *arena, int count, const hlo_shape *const *elements)
{
  hlo_shape *s = WEFT_ARENA_NEW(arena, hlo_shape);

  if (!s) return NULL;
  s->type = WEFT_TUPLE;
  s->rank = count;
  s->elements = weft_arena_memdup(arena, elements, (size_t)count * sizeof *elements);
  if (s->elements) hlo_shape_note_parts(s);
  return s->elements ? s : NULL;
}

hlo_shape *hlo_shape_token(weft_arena *arena)
{
  hlo_shape *s = WEFT_ARENA_NEW(arena, hlo_shape);

  if (s) s->type = WEFT_TOKEN;
  return s;
}

/* A copy of a layout in `arena`. */
static hlo_layout *copy_layout(weft_arena *arena, const hlo_layout *layout, int rank)
{
  hlo_layout *copy = weft_arena_memdup(arena, layout, sizeof *layout);
  hlo_tile *tiles;
  hlo_split *splits;

  if (!copy) return NULL;
  copy->minor_to_major = weft_arena_memdup(arena, layout->minor_to_major, (size_t)rank * sizeof(int64_t));
  copy->tiles = tiles = WEFT_ARENA_ARRAY(arena, hlo_tile, layout->tile_count);
  copy->splits = splits = WEFT_ARENA_ARRAY(arena, hlo_split, layout->split_count);
  if (!copy->minor_to_major || !tiles || !splits) return NULL;
  for (int i = 0; i < layout->tile_count; i++) {
    tiles[i] = layout->tiles[i];
    tiles[i].dims = weft_arena_memdup(arena, layout->tiles[i].dims, (size_t)tiles[i].rank * sizeof(int64_t));
    if (!tiles[i].dims) return NULL;
  }
  for (int i = 0; i < layout->split_count; i++) {
    splits[i] = layout->splits[i];
    splits[i].indices =
      weft_arena_memdup(arena, layout->splits[i].indices, (size_t)splits[i].index_count * sizeof(int64_t));
    if (!splits[i].indices) return NULL;
  }
  if (layout->physical_shape) {
    copy->physical_shape = hlo_shape_copy(arena, layout->physical_shape);
    if (!copy->physical_shape) return NULL;
  }
  return copy;
}

/* A deep copy; recursion is bounded by HLO_MAX_TUPLE_DEPTH, which every reader enforces. */
static hlo_shape *copy_shape(weft_arena *arena, const hlo_shape *shape, bool layouts)
{
  hlo_shape *s = weft_arena_memdup(arena, shape, sizeof *shape);

  if (!s) return NULL;
  s->layout = NULL;
  if (shape->elements) {
    const hlo_shape **elements = WEFT_ARENA_ARRAY(arena, const hlo_shape *, shape->rank);
    if (!elements) return NULL;
    for (int i = 0; i < shape->rank; i++)
      if (!(elements[i] = copy_shape(arena, shape->elements[i], layouts))) return NULL;
    s->elements = elements;
  }
  if (shape->dims && !(s->dims = weft_arena_memdup(arena, shape->dims, (size_t)s->rank * sizeof(int64_t)))) return NULL;
  if (shape->dynamic && !(s->dynamic = weft_arena_memdup(arena, shape->dynamic, (size_t)s->rank))) return NULL;
  if (layouts && shape->layout && !(s->layout = copy_layout(arena, shape->layout, s->rank))) return NULL;
  return s;
}

hlo_shape *hlo_shape_copy(weft_arena *arena, const hlo_shape *shape) { return copy_shape(arena, shape, true); }
hlo_shape *hlo_shape_without_layout(weft_arena *arena, const hlo_shape *shape)
{
  return copy_shape(arena, shape, false);
}

hlo_shape *hlo_shape_with_type(weft_arena *arena, const hlo_shape *shape, weft_dtype type)
{
  hlo_shape *s = copy_shape(arena, shape, true);

  if (s) s->type = type;
  return s;
}

hlo_shape *hlo_shape_with_layout(weft_arena *arena, const hlo_shape *shape, const int64_t *minor_to_major)
{
  hlo_shape *s = copy_shape(arena, shape, false);

  if (s && minor_to_major) {
    hlo_layout *layout = WEFT_ARENA_NEW(arena, hlo_layout);
    if (!layout) return NULL;
    layout->minor_to_major = weft_arena_memdup(arena, minor_to_major, (size_t)s->rank * sizeof(int64_t));
    if (!layout->minor_to_major) return NULL;
    s->layout = layout;
  }
  return s;
}

hlo_shape *hlo_shape_in_memory(weft_arena *arena, const hlo_shape *shape, int64_t memory_space)
{
  int64_t order[HLO_MAX_RANK];
  hlo_layout *layout;
  hlo_shape *s;

  for (int i = 0; i < shape->rank; i++) order[i] = shape->rank - 1 - i;
  s = shape->layout ? copy_shape(arena, shape, false) : hlo_shape_with_layout(arena, shape, order);
  layout = s ? weft_arena_memdup(arena, shape->layout ? shape->layout : s->layout, sizeof *layout) : NULL;
  if (!layout) return NULL;
  layout->memory_space = memory_space;
  s->layout = layout;
  return s;
}

bool hlo_shape_is_dynamic(const hlo_shape *s)
{
  if (s->elements) {
    for (int i = 0; i < s->rank; i++)
      if (hlo_shape_is_dynamic(s->elements[i])) return true;
    return false;
  }
  for (int i = 0; i < s->rank; i++)
    if ((s->dynamic && s->dynamic[i]) || s->dims[i] == HLO_UNBOUNDED) return true;
  return false;
}

int64_t hlo_shape_elems(const hlo_shape *s)
{
  int64_t count = 1;

  for (int i = 0; i < s->rank; i++) count *= s->dims[i];
  return count;
}

int64_t hlo_shape_bytes(const hlo_shape *s)
{
  return hlo_shape_is_array(s) ? hlo_shape_elems(s) * (int64_t)weft_dtype_bytes(s->type) : 0;
}

int64_t hlo_shape_total_bytes(const hlo_shape *s)
{
  int64_t total = 0;

  if (!s->elements) return hlo_shape_bytes(s);
  for (int i = 0; i < s->rank; i++) total += hlo_shape_total_bytes(s->elements[i]);
  return total;
}

bool hlo_shape_is_sane(const hlo_shape *s)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(s->type);

  if (s->elements) {
    for (int i = 0; i < s->rank; i++)
      if (!hlo_shape_is_sane(s->elements[i])) return false;
    return true;
  }
  if (s->rank > HLO_MAX_RANK) return false;
  for (int i = 0; i < s->rank; i++) {
    int64_t dim = s->dims[i];
    if (dim == HLO_UNBOUNDED) continue;
    if (dim < 0 || (dim > 0 && __builtin_mul_overflow(bytes, dim, &bytes))) return false;
  }
  return true;
}

weft_status *hlo_shape_check_parts(const hlo_shape *s)
{
  if (hlo_shape_parts(s) > HLO_MAX_SHAPE_PARTS)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "a shape of more than %d parts", HLO_MAX_SHAPE_PARTS);
  if (s->depth > HLO_MAX_TUPLE_DEPTH + 1)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "a tuple shape nested over %d deep", HLO_MAX_TUPLE_DEPTH);
  return NULL;
}

/* minor_to_major[i]; the layout may be absent. */
static int64_t minor(const hlo_shape *s, int i) { return s->layout ? s->layout->minor_to_major[i] : s->rank - 1 - i; }

static bool same_layout(const hlo_shape *a, const hlo_shape *b)
{
  static const hlo_layout plain;
  const hlo_layout *x = a->layout ? a->layout : &plain, *y = b->layout ? b->layout : &plain;

  for (int i = 0; i < a->rank; i++)
    if (minor(a, i) != minor(b, i)) return false;
  if (x->tile_count != y->tile_count || x->split_count != y->split_count || x->element_bits != y->element_bits ||
      x->memory_space != y->memory_space || x->index_type != y->index_type || x->pointer_type != y->pointer_type ||
      x->dynamic_prefix_bytes != y->dynamic_prefix_bytes ||
      WEFT_MAX(x->tail_padding, 1) != WEFT_MAX(y->tail_padding, 1))
    return false;
  for (int i = 0; i < x->tile_count; i++)
    if (x->tiles[i].rank != y->tiles[i].rank ||
        memcmp(x->tiles[i].dims, y->tiles[i].dims, (size_t)x->tiles[i].rank * sizeof(int64_t)) != 0)
      return false;
  for (int i = 0; i < x->split_count; i++)
    if (x->splits[i].dim != y->splits[i].dim || x->splits[i].index_count != y->splits[i].index_count ||
        memcmp(x->splits[i].indices, y->splits[i].indices, (size_t)x->splits[i].index_count * sizeof(int64_t)) != 0)
      return false;
  if (!x->physical_shape != !y->physical_shape) return false;
  return !x->physical_shape || hlo_shape_equal(x->physical_shape, y->physical_shape, true);
}

bool hlo_shape_equal(const hlo_shape *a, const hlo_shape *b, bool layouts)
{
  if (a == b) return true;
  if (a->type != b->type || a->rank != b->rank) return false;
  if (a->elements) {
    for (int i = 0; i < a->rank; i++)
      if (!hlo_shape_equal(a->elements[i], b->elements[i], layouts)) return false;
    return true;
  }
  for (int i = 0; i < a->rank; i++)
    if (a->dims[i] != b->dims[i] || (a->dynamic && a->dynamic[i]) != (b->dynamic && b->dynamic[i])) return false;
  return !layouts || same_layout(a, b);
}

bool hlo_shape_compatible(const hlo_shape *a, const hlo_shape *b)
{
  if (a->type != b->type || a->rank != b->rank) return false;
  if (!a->elements) return hlo_shape_same_dims(a, b);
  for (int i = 0; i < a->rank; i++)
    if (!hlo_shape_compatible(a->elements[i], b->elements[i])) return false;
  return true;
}

bool hlo_shape_same_dims(const hlo_shape *a, const hlo_shape *b)
{
  return a->rank == b->rank && !a->elements && !b->elements &&
         (a->rank == 0 || memcmp(a->dims, b->dims, (size_t)a->rank * sizeof(int64_t)) == 0);
}

bool hlo_shape_is_default_layout(const hlo_shape *s)
{
  if (s->elements) {
    for (int i = 0; i < s->rank; i++)
      if (!hlo_shape_is_default_layout(s->elements[i])) return false;
    return true;
  }
  for (int i = 0; i < s->rank; i++)
    if (minor(s, i) != s->rank - 1 - i) return false;
  return true;
}

int hlo_shape_leaf_count(const hlo_shape *s)
{
  int count = 0;

  if (!hlo_shape_is_tuple(s)) return 1;
  if (s->is_flat) return s->rank;
  for (int i = 0; i < s->rank; i++) count += hlo_shape_leaf_count(s->elements[i]);
  return count;
}

const hlo_shape *hlo_shape_leaf(const hlo_shape *s, int leaf)
{
  if (!hlo_shape_is_tuple(s)) return leaf == 0 ? s : NULL;
  if (s->is_flat) return leaf >= 0 && leaf < s->rank ? s->elements[leaf] : NULL;
  for (int i = 0; i < s->rank; i++) {
    int below = hlo_shape_leaf_count(s->elements[i]);
    if (leaf < below) return hlo_shape_leaf(s->elements[i], leaf);
    leaf -= below;
  }
  return NULL;
}

int hlo_shape_leaf_offset(const hlo_shape *s, int64_t index)
{
  int offset = 0;

  if (s->is_flat) return (int)index;
  for (int64_t i = 0; i < index; i++) offset += hlo_shape_leaf_count(s->elements[i]);
  return offset;
}

const hlo_shape *hlo_shape_at(const hlo_shape *s, const int64_t *path, int depth)
{
  for (int i = 0; i < depth; i++) {
    if (!hlo_shape_is_tuple(s) || path[i] < 0 || path[i] >= s->rank) return NULL;
    s = s->elements[path[i]];
  }
  return s;
}

static void print_layout(const hlo_shape *s, FILE *out)
{
  const hlo_layout *l = s->layout;

  if (!l) return;
  fputc('{', out);
  for (int i = 0; i < s->rank; i++) fprintf(out, "%s%" PRId64, i ? "," : "", l->minor_to_major[i]);
  if (l->tile_count || l->tail_padding > 1 || l->index_type || l->pointer_type || l->element_bits || l->memory_space ||
      l->split_count || l->physical_shape || l->dynamic_prefix_bytes)
    fputc(':', out);
  for (int i = 0; i < l->tile_count; i++) {
    fputs(i ? "(" : "T(", out);
    for (int d = 0; d < l->tiles[i].rank; d++) {
      if (d) fputc(',', out);
      if (l->tiles[i].dims[d] == HLO_TILE_COMBINE) fputc('*', out);
      else fprintf(out, "%" PRId64, l->tiles[i].dims[d]);
    }
    fputc(')', out);
  }
  if (l->tail_padding > 1) fprintf(out, "L(%" PRId64 ")", l->tail_padding);
  if (l->index_type) fprintf(out, "#(%s)", weft_dtype_name(l->index_type));
  if (l->pointer_type) fprintf(out, "*(%s)", weft_dtype_name(l->pointer_type));
  if (l->element_bits) fprintf(out, "E(%" PRId64 ")", l->element_bits);
  if (l->memory_space) fprintf(out, "S(%" PRId64 ")", l->memory_space);
  for (int i = 0; i < l->split_count; i++) {
    fprintf(out, "%s%" PRId64 ":", i ? "(" : "SC(", l->splits[i].dim);
    for (int j = 0; j < l->splits[i].index_count; j++)
      fprintf(out, "%s%" PRId64, j ? "," : "", l->splits[i].indices[j]);
    fputc(')', out);
  }
  if (l->physical_shape) {
    fputs("P(", out);
    hlo_shape_print(l->physical_shape, true, out);
    fputc(')', out);
  }
  if (l->dynamic_prefix_bytes) fprintf(out, "M(%" PRId64 ")", l->dynamic_prefix_bytes);
  fputc('}', out);
}

void hlo_shape_print(const hlo_shape *s, bool layouts, FILE *out)
{
  if (hlo_shape_is_tuple(s)) {
    fputc('(', out);
    for (int i = 0; i < s->rank; i++) {
      if (i) fputs(", ", out);
      if (i && i % 5 == 0) fprintf(out, "/*index=%d*/", i);
      hlo_shape_print(s->elements[i], layouts, out);
    }
    fputc(')', out);
    return;
  }
  if (s->type == WEFT_BUFFER) {
    fputs("b(", out);
    hlo_shape_print(s->elements[0], layouts, out);
    fputc(')', out);
    return;
  }
  fprintf(out, "%s[", weft_dtype_name(s->type));
  for (int i = 0; i < s->rank; i++) {
    if (i) fputc(',', out);
    if (s->dims[i] == HLO_UNBOUNDED) fputc('?', out);
    else fprintf(out, "%s%" PRId64, s->dynamic && s->dynamic[i] ? "<=" : "", s->dims[i]);
  }
  fputc(']', out);
  if (layouts) print_layout(s, out);
}

char *hlo_shape_text(weft_arena *arena, const hlo_shape *s, bool layouts)
{
  char *text = NULL, *copy = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);

  if (!out) return NULL;
  hlo_shape_print(s, layouts, out);
  if (fclose(out) == 0) copy = weft_arena_strndup(arena, text, size);
  free(text);
  return copy;
}

const char *hlo_shape_format(const hlo_shape *s, char *buf, size_t size)
{
  FILE *out;

  if (size == 0) return buf;
  buf[0] = '\0';
  out = fmemopen(buf, size, "w");
  if (!out) return buf;
  hlo_shape_print(s, false, out);
  fclose(out);
  buf[size - 1] = '\0';
  return buf;
}
