/* stablehlo/mlir_sdy.c -- the assembly of Shardy's meshes and shardings, read
 * into the dictionaries that mlir.h names. */
#include <string.h>

#include "stablehlo/mlir_text.h"

static weft_status *add_int(text_parser *ps, text_attrs *attrs, const char *name, int64_t v)
{
  const mlir_attr *a;

  WEFT_TRY(text_int_attr(ps, v, &a));
  return text_add_attr(ps, attrs, name, a);
}

static weft_status *add_name(text_parser *ps, text_attrs *attrs)
{
  char *s;
  size_t size;
  const mlir_attr *a;

  WEFT_TRY(text_string(ps, &s, &size));
  WEFT_TRY(text_word_attr(ps, MLIR_STRING, s, size, &a));
  return text_add_attr(ps, attrs, "name", a);
}

static weft_status *add_list(text_parser *ps, text_attrs *attrs, const char *name, const text_list *list)
{
  mlir_attr *a;

  WEFT_TRY(text_new_attr(ps, MLIR_ARRAY, &a));
  a->u.array.count = list->count;
  a->u.array.items = (const mlir_attr *const *)list->items;
  return text_add_attr(ps, attrs, name, a);
}

/* {"x", "y":(2)4, ?} -- a question mark leaves the dimension open. */
static weft_status *axis_list(text_parser *ps, text_list *out, bool *out_open)
{
  const mlir_attr *a;

  *out_open = false;
  WEFT_TRY(text_expect(ps, '{'));
  for (bool first = true; !text_accept(ps, '}'); first = false) {
    text_attrs axis = {0};
    if (!first) WEFT_TRY(text_expect(ps, ','));
    if (text_accept(ps, '?')) {
      *out_open = true;
      continue;
    }
    WEFT_TRY(add_name(ps, &axis));
    if (text_accept(ps, ':')) {
      WEFT_TRY(text_sub_axis(ps, &a));
      WEFT_TRY(text_add_attr(ps, &axis, "sub_axis_info", a));
    }
    WEFT_TRY(text_dict_attr(ps, &axis, &a));
    WEFT_TRY(text_push(ps, out, a));
  }
  return NULL;
}

weft_status *text_sdy_manual_axes(text_parser *ps, const mlir_attr **out)
{
  mlir_attr *a;
  text_list names = {0};

  WEFT_TRY(text_expect(ps, '{'));
  while (!text_accept(ps, '}')) {
    text_attrs name = {0};
    if (names.count) WEFT_TRY(text_expect(ps, ','));
    WEFT_TRY(add_name(ps, &name));
    WEFT_TRY(text_push(ps, &names, name.items[0].value));
  }
  WEFT_TRY(text_new_attr(ps, MLIR_ARRAY, &a));
  a->u.array.count = names.count;
  a->u.array.items = (const mlir_attr *const *)names.items;
  *out = a;
  return NULL;
}

weft_status *text_sdy_mesh(text_parser *ps, const mlir_attr **out)
{
  text_attrs mesh = {0};
  text_list axes = {0}, ids = {0};
  const mlir_attr *a;
  int64_t n;

  WEFT_TRY(text_expect(ps, '['));
  while (!text_accept(ps, ']')) {
    text_attrs axis = {0};
    if (axes.count) WEFT_TRY(text_expect(ps, ','));
    WEFT_TRY(add_name(ps, &axis));
    WEFT_TRY(text_expect(ps, '='));
    WEFT_TRY(text_integer(ps, &n));
    WEFT_TRY(add_int(ps, &axis, "size", n));
    WEFT_TRY(text_dict_attr(ps, &axis, &a));
    WEFT_TRY(text_push(ps, &axes, a));
  }
  if (text_accept(ps, ',')) {
    WEFT_TRY(text_expect_word(ps, "device_ids"));
    WEFT_TRY(text_expect(ps, '='));
    WEFT_TRY(text_expect(ps, '['));
    while (!text_accept(ps, ']')) {
      if (ids.count) WEFT_TRY(text_expect(ps, ','));
      WEFT_TRY(text_integer(ps, &n));
      WEFT_TRY(text_int_attr(ps, n, &a));
      WEFT_TRY(text_push(ps, &ids, a));
    }
  }
  WEFT_TRY(add_list(ps, &mesh, "axes", &axes));
  WEFT_TRY(add_list(ps, &mesh, "device_ids", &ids));
  return text_dict_attr(ps, &mesh, out);
}

/* `p1` after a dimension: a priority of propagation. */
static void skip_priority(text_parser *ps)
{
  if (text_peek(ps) != 'p') return;
  ps->p++;
  while (ps->p < ps->end && *ps->p >= '0' && *ps->p <= '9') ps->p++;
}

weft_status *text_sdy_sharding(text_parser *ps, const mlir_attr **out)
{
  text_attrs sharding = {0};
  text_list dims = {0};
  const mlir_attr *a;
  bool open;

  if (text_peek(ps) == '@') {
    WEFT_TRY(text_symbol(ps, &a));
  } else {
    WEFT_TRY(text_expect_word(ps, "mesh"));
    WEFT_TRY(text_expect(ps, '<'));
    WEFT_TRY(text_sdy_mesh(ps, &a));
    WEFT_TRY(text_expect(ps, '>'));
  }
  WEFT_TRY(text_add_attr(ps, &sharding, "mesh", a));
  WEFT_TRY(text_expect(ps, ','));
  WEFT_TRY(text_expect(ps, '['));
  while (!text_accept(ps, ']')) {
    text_attrs dim = {0};
    text_list axes = {0};
    if (dims.count) WEFT_TRY(text_expect(ps, ','));
    WEFT_TRY(axis_list(ps, &axes, &open));
    skip_priority(ps);
    WEFT_TRY(add_list(ps, &dim, "axes", &axes));
    WEFT_TRY(add_int(ps, &dim, "is_closed", !open));
    WEFT_TRY(text_dict_attr(ps, &dim, &a));
    WEFT_TRY(text_push(ps, &dims, a));
  }
  WEFT_TRY(add_list(ps, &sharding, "dims", &dims));
  while (text_accept(ps, ',')) {
    const char *name = text_accept_word(ps, "replicated") ? "replicated" : "unreduced";
    text_list axes = {0};
    if (name[0] == 'u') WEFT_TRY(text_expect_word(ps, name));
    WEFT_TRY(text_expect(ps, '='));
    WEFT_TRY(axis_list(ps, &axes, &open));
    WEFT_TRY(add_list(ps, &sharding, name, &axes));
  }
  return text_dict_attr(ps, &sharding, out);
}

weft_status *text_sdy_per_value(text_parser *ps, const mlir_attr **out)
{
  text_list shardings = {0};
  const mlir_attr *one;
  mlir_attr *a;

  WEFT_TRY(text_expect(ps, '['));
  while (!text_accept(ps, ']')) {
    if (shardings.count) WEFT_TRY(text_expect(ps, ','));
    WEFT_TRY(text_expect(ps, '<'));
    WEFT_TRY(text_sdy_sharding(ps, &one));
    WEFT_TRY(text_expect(ps, '>'));
    WEFT_TRY(text_push(ps, &shardings, one));
  }
  WEFT_TRY(text_new_attr(ps, MLIR_ARRAY, &a));
  a->u.array.count = shardings.count;
  a->u.array.items = (const mlir_attr *const *)shardings.items;
  *out = a;
  return NULL;
}
