/* hlo/text_shape.c -- shapes in HLO text: `f32[2,<=3,?]{1,0:T(8,128)S(5)}`, `(s32[], token[])`, `b(f32[4])`.
 * Printing is hlo_shape_print's (hlo/shape.c). */
#include <config.h>

#include "hlo/text_internal.h"

/* A shape begins with the name of a dtype and '[', with "b(", or with '('. */
bool hlo_rd_at_shape(const hlo_reader *r)
{
  const char *behind;
  hlo_span word;

  if (hlo_rd_at(r, '(')) return true;
  if (hlo_rd_at(r, '%')) return false;
  word = hlo_rd_peek_word(r);
  if (word.length == 0) return false;
  behind = word.p + word.length;
  while (*behind == ' ') behind++;
  if (*behind == '[') return weft_dtype_from_name(word.p, word.length) != WEFT_INVALID;
  return word.length == 1 && word.p[0] == 'b' && word.p[1] == '(';
}

/* dims := '[' [ dim {',' dim} ] ']'; dim := '?' | ['<='] int */
static weft_status *read_dims(hlo_reader *r, hlo_shape *shape)
{
  int64_t dims[HLO_MAX_RANK];
  bool dynamic[HLO_MAX_RANK], any_dynamic = false;

  WEFT_TRY(hlo_rd_expect(r, '['));
  while (!hlo_rd_at(r, ']')) {
    if (shape->rank > 0) WEFT_TRY(hlo_rd_expect(r, ','));
    if (shape->rank == HLO_MAX_RANK) return hlo_rd_error(r, r->p, "more than %d dimensions", HLO_MAX_RANK);
    if (hlo_rd_accept(r, '?')) {
      dims[shape->rank] = HLO_UNBOUNDED;
      dynamic[shape->rank] = any_dynamic = true;
    } else {
      dynamic[shape->rank] = hlo_rd_accept_text(r, "<=");
      any_dynamic |= dynamic[shape->rank];
      WEFT_TRY(hlo_rd_int_in(r, 0, INT64_MAX, &dims[shape->rank]));
    }
    shape->rank++;
  }
  WEFT_TRY(hlo_rd_expect(r, ']'));
  shape->dims = weft_arena_memdup(r->arena, dims, (size_t)shape->rank * sizeof *dims);
  WEFT_TRY_ALLOC(shape->dims);
  if (any_dynamic) {
    shape->dynamic = weft_arena_memdup(r->arena, dynamic, (size_t)shape->rank);
    WEFT_TRY_ALLOC(shape->dynamic);
  }
  return NULL;
}

/* tiles := { '(' [ size {',' size} ] ')' }; size := int | '*' */
static weft_status *read_tiles(hlo_reader *r, hlo_layout *layout)
{
  size_t mark = r->stack_used;

  while (hlo_rd_accept(r, '(')) {
    size_t dims_mark = r->stack_used;
    hlo_tile tile = {0};

    while (!hlo_rd_at(r, ')')) {
      int64_t size = HLO_TILE_COMBINE;

      if (r->stack_used > dims_mark) WEFT_TRY(hlo_rd_expect(r, ','));
      if (!hlo_rd_accept(r, '*')) WEFT_TRY(hlo_rd_int_in(r, 0, INT64_MAX, &size));
      WEFT_TRY(hlo_rd_push(r, &size, sizeof size));
    }
    WEFT_TRY(hlo_rd_expect(r, ')'));
    WEFT_TRY(hlo_rd_take(r, dims_mark, sizeof(int64_t), &tile.dims, &tile.rank));
    WEFT_TRY(hlo_rd_push(r, &tile, sizeof tile));
  }
  return hlo_rd_take(r, mark, sizeof(hlo_tile), &layout->tiles, &layout->tile_count);
}

/* splits := { '(' dim ':' index {',' index} ')' } */
static weft_status *read_splits(hlo_reader *r, hlo_layout *layout)
{
  size_t mark = r->stack_used;

  while (hlo_rd_accept(r, '(')) {
    hlo_split split = {0};
    hlo_ints indices;
    size_t indices_mark;

    WEFT_TRY(hlo_rd_int_in(r, 0, HLO_MAX_RANK - 1, &split.dim));
    WEFT_TRY(hlo_rd_expect(r, ':'));
    indices_mark = r->stack_used;
    do {
      int64_t index;
      WEFT_TRY(hlo_rd_int(r, &index));
      WEFT_TRY(hlo_rd_push(r, &index, sizeof index));
    } while (hlo_rd_accept(r, ','));
    WEFT_TRY(hlo_rd_expect(r, ')'));
    WEFT_TRY(hlo_rd_take(r, indices_mark, sizeof(int64_t), &indices.v, &indices.count));
    split.indices = indices.v;
    split.index_count = indices.count;
    WEFT_TRY(hlo_rd_push(r, &split, sizeof split));
  }
  return hlo_rd_take(r, mark, sizeof(hlo_split), &layout->splits, &layout->split_count);
}

static weft_status *read_parenthesised_int(hlo_reader *r, int64_t *out)
{
  WEFT_TRY(hlo_rd_expect(r, '('));
  WEFT_TRY(hlo_rd_int_in(r, 0, INT64_MAX, out));
  return hlo_rd_expect(r, ')');
}

static weft_status *read_parenthesised_type(hlo_reader *r, weft_dtype *out)
{
  hlo_span word;

  WEFT_TRY(hlo_rd_expect(r, '('));
  WEFT_TRY(hlo_rd_word(r, "an element type", &word));
  *out = weft_dtype_from_name(word.p, word.length);
  if (!weft_dtype_is_unsigned(*out)) return hlo_rd_error(r, word.p, "expected an unsigned element type");
  return hlo_rd_expect(r, ')');
}

static weft_status *read_shape(hlo_reader *r, int depth, const hlo_shape **out);

/* What stands behind the ':' of a layout, one letter each with its argument. */
static weft_status *read_layout_suffixes(hlo_reader *r, hlo_layout *layout, int depth)
{
  while (!hlo_rd_at(r, '}')) {
    if (hlo_rd_accept_word(r, "T")) {
      WEFT_TRY(read_tiles(r, layout));
    } else if (hlo_rd_accept_word(r, "SC")) {
      WEFT_TRY(read_splits(r, layout));
    } else if (hlo_rd_accept_word(r, "L")) {
      WEFT_TRY(read_parenthesised_int(r, &layout->tail_padding));
    } else if (hlo_rd_accept_word(r, "E")) {
      WEFT_TRY(read_parenthesised_int(r, &layout->element_bits));
    } else if (hlo_rd_accept_word(r, "S")) {
      WEFT_TRY(read_parenthesised_int(r, &layout->memory_space));
    } else if (hlo_rd_accept_word(r, "M")) {
      WEFT_TRY(read_parenthesised_int(r, &layout->dynamic_prefix_bytes));
    } else if (hlo_rd_accept(r, '#')) {
      WEFT_TRY(read_parenthesised_type(r, &layout->index_type));
    } else if (hlo_rd_accept(r, '*')) {
      WEFT_TRY(read_parenthesised_type(r, &layout->pointer_type));
    } else if (hlo_rd_accept_word(r, "P")) {
      WEFT_TRY(hlo_rd_expect(r, '('));
      WEFT_TRY(read_shape(r, depth + 1, &layout->physical_shape));
      WEFT_TRY(hlo_rd_expect(r, ')'));
    } else if (hlo_rd_accept_word(r, "D")) { /* dimension level types of old dumps: all dense, so not kept */
      WEFT_TRY(hlo_rd_expect(r, '('));
      do {
        if (!hlo_rd_accept_word(r, "D"))
          return hlo_rd_error(r, r->p, "expected D: only dense dimensions are supported");
      } while (hlo_rd_accept(r, ','));
      WEFT_TRY(hlo_rd_expect(r, ')'));
    } else {
      return hlo_rd_expected(r, "a layout property (T L # * E S SC P M)");
    }
  }
  return NULL;
}

/* layout := '{' minor_to_major [':' suffixes] '}'.  The default layout is kept as NULL. */
static weft_status *read_layout(hlo_reader *r, hlo_shape *shape, int depth)
{
  static const hlo_layout none;
  const char *at = r->p;
  hlo_layout layout = none;
  int64_t order[HLO_MAX_RANK];
  uint64_t seen = 0;
  int count = 0;
  bool plain = true;

  WEFT_TRY(hlo_rd_expect(r, '{'));
  while (!hlo_rd_at(r, '}') && !hlo_rd_at(r, ':')) {
    if (count > 0) WEFT_TRY(hlo_rd_expect(r, ','));
    if (count == shape->rank) return hlo_rd_error(r, at, "the layout has more than the shape's %d dimensions", count);
    WEFT_TRY(hlo_rd_int_in(r, 0, shape->rank - 1, &order[count]));
    if (seen >> order[count] & 1) return hlo_rd_error(r, at, "the layout names dimension %d twice", (int)order[count]);
    seen |= UINT64_C(1) << order[count];
    plain &= order[count] == shape->rank - 1 - count;
    count++;
  }
  if (count != shape->rank)
    return hlo_rd_error(r, at, "the layout has %d dimensions, the shape %d", count, shape->rank);
  if (hlo_rd_accept(r, ':')) {
    WEFT_TRY(read_layout_suffixes(r, &layout, depth));
    if (layout.tail_padding == 1) layout.tail_padding = 0;
    plain &= memcmp(&layout, &none, sizeof layout) == 0;
  }
  WEFT_TRY(hlo_rd_expect(r, '}'));
  if (plain) return NULL;
  layout.minor_to_major = weft_arena_memdup(r->arena, order, (size_t)count * sizeof *order);
  shape->layout = weft_arena_memdup(r->arena, &layout, sizeof layout);
  return layout.minor_to_major && shape->layout ? NULL : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
}

static weft_status *read_tuple_shape(hlo_reader *r, int depth, hlo_shape *shape)
{
  size_t mark = r->stack_used;

  shape->type = WEFT_TUPLE;
  WEFT_TRY(hlo_rd_expect(r, '('));
  while (!hlo_rd_at(r, ')')) {
    const hlo_shape *element;

    if (r->stack_used > mark) WEFT_TRY(hlo_rd_expect(r, ','));
    WEFT_TRY(read_shape(r, depth + 1, &element));
    WEFT_TRY(hlo_rd_push(r, &element, sizeof element));
  }
  WEFT_TRY(hlo_rd_expect(r, ')'));
  WEFT_TRY(hlo_rd_take(r, mark, sizeof(hlo_shape *), &shape->elements, &shape->rank));
  if (!shape->elements) shape->elements = weft_arena_alloc(r->arena, 0); /* () must have a list, too: an empty one */
  WEFT_TRY_ALLOC(shape->elements);
  hlo_shape_note_parts(shape);
  return NULL;
}

static weft_status *read_array_shape(hlo_reader *r, int depth, hlo_shape *shape)
{
  const char *at = r->p;
  hlo_span word;

  WEFT_TRY(hlo_rd_word(r, "a shape", &word));
  shape->type = weft_dtype_from_name(word.p, word.length);
  if (shape->type == WEFT_INVALID || shape->type == WEFT_TUPLE)
    return hlo_rd_error(r, at, "expected a shape, got \"%.*s\"", (int)WEFT_MIN(word.length, 60u), word.p);
  if (shape->type == WEFT_BUFFER) {
    const hlo_shape **element = weft_arena_alloc(r->arena, sizeof *element);

    WEFT_TRY_ALLOC(element);
    shape->rank = 1;
    shape->elements = element;
    WEFT_TRY(hlo_rd_expect(r, '('));
    WEFT_TRY(read_shape(r, depth + 1, element));
    if (!hlo_shape_is_array(*element)) return hlo_rd_error(r, at, "b(...) holds an array");
    return hlo_rd_expect(r, ')');
  }
  WEFT_TRY(read_dims(r, shape));
  if (!hlo_shape_is_array(shape) && shape->rank > 0)
    return hlo_rd_error(r, at, "a %s has no dimensions", weft_dtype_name(shape->type));
  if (!hlo_shape_is_sane(shape)) return hlo_rd_error(r, at, "the shape has more than 2^63 bytes");
  if (hlo_rd_at(r, '{')) {
    hlo_reader ahead = *r;

    hlo_rd_skip(&ahead, 1);
    if (hlo_rd_at(&ahead, ':') || (*ahead.p >= '0' && *ahead.p <= '9') || (shape->rank == 0 && hlo_rd_at(&ahead, '}')))
      WEFT_TRY(read_layout(r, shape, depth));
  }
  return NULL;
}

static weft_status *read_shape(hlo_reader *r, int depth, const hlo_shape **out)
{
  hlo_shape *shape = WEFT_ARENA_NEW(r->arena, hlo_shape);

  WEFT_TRY_ALLOC(shape);
  if (depth > HLO_MAX_TUPLE_DEPTH) return hlo_rd_error(r, r->p, "a shape nested over %d deep", HLO_MAX_TUPLE_DEPTH);
  *out = shape;
  if (hlo_rd_at(r, '(')) return read_tuple_shape(r, depth, shape);
  return read_array_shape(r, depth, shape);
}

weft_status *hlo_rd_shape(hlo_reader *r, const hlo_shape **out) { return read_shape(r, 0, out); }

weft_status *hlo_parse_shape(weft_arena *arena, const char *text, size_t size, const hlo_shape **out)
{
  hlo_reader r;
  weft_status *st = hlo_rd_init(&r, arena, text, size);

  *out = NULL;
  if (!st) st = hlo_rd_shape(&r, out);
  if (!st && r.p != r.end) st = hlo_rd_expected(&r, "the end of the shape");
  hlo_rd_fini(&r);
  return st;
}
