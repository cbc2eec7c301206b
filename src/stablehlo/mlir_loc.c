/* stablehlo/mlir_loc.c -- locations in MLIR text:
 *   loc(unknown)  loc("file":3:7)  loc("file":3:7 to 4:2)  loc("name")  loc("name"(inner))  loc(#alias)
 *   loc(callsite(callee at caller))  loc(fused[a, b])  loc(fused<metadata>[a, b])
 * Aliases are printed behind the module, so what they stand for is filled in later.  Metadata of fused locations is
 * passed over. */
#include "stablehlo/mlir_text.h"

static weft_status *body(text_parser *ps, mlir_location *loc);

static weft_status *child(text_parser *ps, const mlir_location **out)
{
  mlir_location *loc = WEFT_ARENA_NEW(ps->arena, mlir_location);

  WEFT_TRY_ALLOC(loc);
  if (++ps->depth > MLIR_MAX_DEPTH) return text_fail(ps, ps->p, "locations nested deeper than %d", MLIR_MAX_DEPTH);
  WEFT_TRY(body(ps, loc));
  ps->depth--;
  *out = loc;
  return NULL;
}

static weft_status *alias_slot(text_parser *ps, mlir_location **out)
{
  const char *name;
  size_t size;
  void **slot;

  if (!text_word(ps, &name, &size)) return text_fail(ps, ps->p, "expected the name of a location");
  WEFT_TRY(mlir_table_slot(ps->arena, &ps->location_aliases, name, size, &slot));
  if (!*slot) *slot = WEFT_ARENA_NEW(ps->arena, mlir_location);
  WEFT_TRY_ALLOC(*slot);
  *out = *slot;
  return NULL;
}

static weft_status *number(text_parser *ps, int *out)
{
  int64_t v;

  WEFT_TRY(text_integer(ps, &v));
  *out = v < 0 || v > INT32_MAX ? INT32_MAX : (int)v;
  return NULL;
}

/* After "file": `:3:7`, `:3:7 to :9`, `:3:7 to 4:2` */
static weft_status *place(text_parser *ps, mlir_location *loc)
{
  WEFT_TRY(text_expect(ps, ':'));
  WEFT_TRY(number(ps, &loc->line));
  if (text_accept(ps, ':')) WEFT_TRY(number(ps, &loc->column));
  loc->end_line = loc->line;
  loc->end_column = loc->column;
  if (!text_accept_word(ps, "to")) return NULL;
  if (text_peek(ps) != ':') WEFT_TRY(number(ps, &loc->end_line));
  WEFT_TRY(text_expect(ps, ':'));
  return number(ps, &loc->end_column);
}

static weft_status *fused(text_parser *ps, mlir_location *loc)
{
  text_list parts = {0};
  const char *ignored;
  size_t size;

  if (text_accept(ps, '<')) {
    WEFT_TRY(text_balanced(ps, '>', &ignored, &size));
    WEFT_TRY(text_expect(ps, '>'));
  }
  WEFT_TRY(text_expect(ps, '['));
  while (!text_accept(ps, ']')) {
    const mlir_location *part;
    if (parts.count > 0) WEFT_TRY(text_expect(ps, ','));
    WEFT_TRY(child(ps, &part));
    WEFT_TRY(text_push(ps, &parts, part));
  }
  loc->rest_count = parts.count;
  loc->rest = (const mlir_location *const *)parts.items;
  return NULL;
}

static weft_status *body(text_parser *ps, mlir_location *loc)
{
  const char *ignored;
  char *s;
  size_t size;
  mlir_location *alias;

  if (text_accept(ps, '#')) {
    WEFT_TRY(alias_slot(ps, &alias));
    loc->inner = alias;
    return NULL;
  }
  if (text_peek(ps) == '"') {
    WEFT_TRY(text_string(ps, &s, &size));
    if (text_peek(ps) == ':') {
      loc->file = s;
      return place(ps, loc);
    }
    loc->name = s;
    if (!text_accept(ps, '(')) return NULL;
    WEFT_TRY(child(ps, &loc->inner));
    return text_expect(ps, ')');
  }
  if (text_accept_word(ps, "unknown")) return NULL;
  if (text_accept_word(ps, "fused")) return fused(ps, loc);
  if (text_accept_word(ps, "callsite")) {
    WEFT_TRY(text_expect(ps, '('));
    WEFT_TRY(child(ps, &loc->inner));
    WEFT_TRY(text_expect_word(ps, "at"));
    WEFT_TRY(child(ps, &loc->caller));
    return text_expect(ps, ')');
  }
  return text_balanced(ps, ')', &ignored, &size); /* a location of another kind */
}

weft_status *text_location(text_parser *ps, const mlir_location **out)
{
  mlir_location *alias;

  *out = NULL;
  if (!text_accept_word(ps, "loc")) return NULL;
  WEFT_TRY(text_expect(ps, '('));
  if (text_accept(ps, '#')) {
    WEFT_TRY(alias_slot(ps, &alias));
    *out = alias;
  } else {
    WEFT_TRY(child(ps, out));
  }
  return text_expect(ps, ')');
}

weft_status *text_location_alias(text_parser *ps, const char *name, size_t size)
{
  void **slot;
  const mlir_location *loc;

  WEFT_TRY(text_location(ps, &loc));
  WEFT_TRY(mlir_table_slot(ps->arena, &ps->location_aliases, name, size, &slot));
  if (!*slot) *slot = WEFT_ARENA_NEW(ps->arena, mlir_location);
  WEFT_TRY_ALLOC(*slot);
  ((mlir_location *)*slot)->inner = loc;
  return NULL;
}
