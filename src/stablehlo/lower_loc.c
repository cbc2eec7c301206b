/* stablehlo/lower_loc.c -- locations as metadata, after XLA's rules: op_name is what names inside say, joined by ';'
 * ("name@function" is "name", and "Type:" is op_type); then comes a call stack of `"function"("file":3:7)` frames and
 * `callsite(callee at caller)`, or a place in a file.  Locations may share parts, and those of text go in circles: no
 * more than a budget of parts is looked at. */
#include <stdio.h>
#include <string.h>

#include "stablehlo/lower.h"

enum { MOST_PARTS = 4096, DEEPEST = 1024, LONGEST_JOINED = 1024 };

typedef struct reading {
  lowering *l;
  int budget;           /* how many parts may still be looked at */
  const char *name;     /* op_name so far, not terminated; a buffer is used once there are two names */
  size_t length;
  char *joined;
} reading;

/* True if a name gives a type of operation; and its length without the part that '@' begins. */
static bool is_type(const char *name, size_t *length)
{
  *length = strcspn(name, "@");
  return *length > 0 && name[*length - 1] == ':';
}

static weft_status *add_name(reading *r, const char *name, size_t length)
{
  if (!r->name) {
    r->name = name;
    r->length = length;
    return NULL;
  }
  if (!r->joined) {
    r->joined = weft_arena_alloc(&r->l->scratch, LONGEST_JOINED + 1);
    WEFT_TRY_ALLOC(r->joined);
    r->length = WEFT_MIN(r->length, LONGEST_JOINED);
    r->name = memcpy(r->joined, r->name, r->length);
  }
  r->length += (size_t)snprintf(r->joined + r->length, LONGEST_JOINED + 1 - r->length, ";%.*s",
                                (int)WEFT_MIN(length, LONGEST_JOINED), name);
  r->length = WEFT_MIN(r->length, LONGEST_JOINED);
  return NULL;
}

static weft_status *collect_names(reading *r, const mlir_location *loc)
{
  size_t length;

  for (; loc && r->budget-- > 0; loc = loc->inner) {
    if (loc->name && !is_type(loc->name, &length)) return add_name(r, loc->name, length);
    for (int i = 0; i < loc->rest_count; i++) WEFT_TRY(collect_names(r, loc->rest[i]));
  }
  return NULL;
}

/* The outermost "Type:"; of fused parts, that of the first one. */
static const char *find_type(reading *r, const mlir_location *loc, size_t *length)
{
  for (; loc && r->budget-- > 0; loc = loc->rest_count ? loc->rest[0] : loc->inner) {
    if (!loc->name || !is_type(loc->name, length)) continue;
    --*length;
    return loc->name;
  }
  return NULL;
}

static const mlir_location *skip_aliases(reading *r, const mlir_location *loc)
{
  while (loc && loc->inner && !loc->name && !mlir_is_call_site(loc) && r->budget-- > 0) loc = loc->inner;
  return loc;
}

/* The place of "function"("file":3:7), or NULL. */
static const mlir_location *place_of_frame(reading *r, const mlir_location *loc)
{
  const mlir_location *place = loc->name ? skip_aliases(r, loc->inner) : NULL;

  return place && place->file ? place : NULL;
}

/* The module's own copy of a text. */
static weft_status *module_text(lowering *l, const char *text, size_t length, const char **out)
{
  void **copy;

  WEFT_TRY(mlir_table_slot(&l->scratch, &l->names, text, length, &copy));
  if (!*copy) *copy = weft_arena_strndup(l->arena, text, length);
  WEFT_TRY_ALLOC(*copy);
  *out = *copy;
  return NULL;
}

/* Adds a frame. There are at most as many frames as the input has bytes: one stack may be the callee of many call
 * sites, but is not written out for each of them then. */
static weft_status *add_frame(lowering *l, const mlir_location *loc, const mlir_location *place, int caller, int *out)
{
  hlo_frame frame = {.line = place->line, .column = place->column, .end_line = place->end_line,
                     .end_column = place->end_column, .parent = caller};

  if ((size_t)l->last_frame >= l->program->size) return NULL;
  WEFT_TRY(module_text(l, loc->name, strlen(loc->name), &frame.function));
  WEFT_TRY(module_text(l, place->file, strlen(place->file), &frame.file));
  if (!l->frames) WEFT_TRY(hlo_frame_builder_new(&l->scratch, &l->frames));
  WEFT_TRY(hlo_frame_add(l->frames, &frame, out));
  l->last_frame = WEFT_MAX(l->last_frame, *out);
  return NULL;
}

/* The frames of `loc`, called from *frame (0: from nowhere), which becomes the innermost frame. Of a stack deeper
 * than DEEPEST the outermost callers are left out. */
static weft_status *add_frames(reading *r, const mlir_location *loc, int depth, int *frame)
{
  const mlir_location *place;
  mlir_location *site;
  int outside = *frame, lowering_number = r->l->program->lowerings;

  loc = skip_aliases(r, loc);
  if (!loc || depth > DEEPEST || r->budget-- <= 0) return NULL;
  if (!mlir_is_call_site(loc)) {
    place = place_of_frame(r, loc);
    return place ? add_frame(r->l, loc, place, outside, frame) : NULL;
  }
  site = (mlir_location *)(uintptr_t)loc; /* ours: the program's */
  if (outside == 0 && site->framed_by == lowering_number) {
    *frame = site->frame;
    return NULL;
  }
  WEFT_TRY(add_frames(r, site->caller, depth + 1, frame));
  WEFT_TRY(add_frames(r, site->inner, depth + 1, frame));
  if (outside == 0) {
    site->framed_by = lowering_number;
    site->frame = *frame;
  }
  return NULL;
}

/* The last place in a file in `loc` and its parts; with `anywhere` also inside names. */
static void find_place(reading *r, const mlir_location *loc, bool anywhere, const mlir_location **out)
{
  for (; loc && r->budget-- > 0; loc = anywhere || !loc->name ? loc->inner : NULL) {
    if (loc->file) *out = loc;
    for (int i = 0; i < loc->rest_count; i++) find_place(r, loc->rest[i], anywhere, out);
  }
}

/* The names before the first frame are those of the operation. */
static const mlir_location *skip_names(reading *r, const mlir_location *loc)
{
  while ((loc = skip_aliases(r, loc)) && loc->name && !place_of_frame(r, loc) && r->budget-- > 0) loc = loc->inner;
  return loc;
}

static weft_status *read_location(lowering *l, const mlir_location *loc, hlo_metadata *m)
{
  reading r = {.l = l, .budget = MOST_PARTS};
  const mlir_location *place = NULL;
  const char *type;
  size_t length;

  WEFT_TRY(collect_names(&r, loc));
  if (r.length > 0) WEFT_TRY(module_text(l, r.name, r.length, &m->op_name));
  type = find_type(&r, loc, &length);
  if (type && length > 0) WEFT_TRY(module_text(l, type, length, &m->op_type));
  r.budget = MOST_PARTS;
  loc = skip_names(&r, loc);
  WEFT_TRY(add_frames(&r, loc, 0, &m->stack_frame_id));
  if (m->stack_frame_id) return NULL;
  find_place(&r, loc, false, &place);
  if (!place) find_place(&r, loc, true, &place);
  if (!place) return NULL;
  m->source_line = place->line;
  m->source_end_line = place->end_line;
  m->source_column = place->column;
  m->source_end_column = place->end_column;
  return module_text(l, place->file, strlen(place->file), &m->source_file);
}

weft_status *lower_new_metadata(lowering *l, const mlir_location *location, const hlo_metadata **out)
{
  mlir_location *loc = (mlir_location *)(uintptr_t)location; /* ours: the program's */
  hlo_metadata m = {0};

  loc->made_by = l->program->lowerings;
  loc->metadata = NULL;
  WEFT_TRY(read_location(l, loc, &m));
  if (m.op_name || m.op_type || m.source_file || m.stack_frame_id)
    WEFT_TRY_ALLOC(loc->metadata = weft_arena_memdup(l->arena, &m, sizeof m));
  *out = loc->metadata;
  return NULL;
}
