/* runtime/untyped.c -- custom calls by XLA's older conventions, without the typed FFI (untyped.h). */
#include <config.h>

#include "runtime/untyped.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/targets.h"

enum { ORIGINAL = 1, STATUS_RETURNING = 2, UNIFIED = 3, LONGEST_MESSAGE = 4096 };

/* ---- the status ------------------------------------------------------------------------------------------------ */

/* XlaCustomCallStatus. The functions that fill one (XlaCustomCallStatusSetFailure) are compiled into the library of
 * the target, since jaxlib exports none, so the layout is fixed: libstdc++'s std::optional<std::string>. */
typedef struct call_status {
  char *text; /* `local`, or allocated by operator new, which is malloc */
  size_t length;
  union {
    char local[16];
    size_t capacity;
  };
  bool failed;
} call_status;

/* The error in a status, or NULL. Frees what `s` holds. */
static weft_status *status_of(call_status *s)
{
  weft_status *st;

  if (!s->failed) return NULL;
  st = WEFT_ERR(INTERNAL, "CustomCall failed: %.*s", (int)WEFT_MIN(s->length, (size_t)LONGEST_MESSAGE), s->text);
  if (s->text != s->local) free(s->text);
  return st;
}

/* ---- functions by name ----------------------------------------------------------------------------------------- */

weft_status *rt_untyped_register(const char *name, size_t length, rt_untyped_fn *function)
{
  return rt_target_add(RT_TARGET_UNTYPED, name, length, &function, sizeof function);
}

rt_untyped_fn *rt_untyped_find(const char *name)
{
  rt_untyped_fn *function;

  return rt_target_find(RT_TARGET_UNTYPED, name, &function) ? function : NULL;
}

/* ---- a call ---------------------------------------------------------------------------------------------------- */

static int digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

/* The bytes of a backend_config: see hlo_extra. */
static weft_status *read_opaque(weft_arena *arena, const char *config, rt_untyped_call *out)
{
  bool is_hex = strncmp(config, "hex:", 4) == 0;
  size_t length = strlen(config);
  char *bytes = weft_arena_strdup(arena, config);

  WEFT_TRY_ALLOC(bytes);
  out->opaque = bytes;
  out->opaque_bytes = length;
  if (!is_hex) return NULL;
  out->opaque_bytes = (length - 4) / 2;
  for (size_t i = 0; i < out->opaque_bytes; i++) {
    int high = digit(config[4 + 2 * i]), low = digit(config[5 + 2 * i]);
    if (high < 0 || low < 0)
      return WEFT_ERR(INVALID_ARGUMENT, "backend_config: expected hexadecimal digits after \"hex:\"");
    bytes[i] = (char)(high << 4 | low);
  }
  bytes[out->opaque_bytes] = '\0';
  return NULL;
}

weft_status *rt_untyped_call_read(weft_arena *arena, const hlo_instr *instr, rt_untyped_fn *function,
                                  rt_untyped_call *out)
{
  int version = instr->u.custom->api_version;

  *out = (rt_untyped_call){
    .function = function, .api_version = WEFT_MAX(version, ORIGINAL), .tuple = hlo_shape_is_tuple(instr->shape)};
  if (version < 0 || version > UNIFIED)
    return WEFT_ERR(INVALID_ARGUMENT, "custom call \"%s\": API version %d", instr->u.custom->target, version);
  for (int i = 0; i < instr->operand_count; i++) out->operand_leaves += hlo_shape_leaf_count(instr->operands[i]->shape);
  return read_opaque(arena, instr->extra && instr->extra->backend_config ? instr->extra->backend_config : "", out);
}

weft_status *rt_untyped_call_run(const rt_untyped_call *c, void *const *buffers)
{
  const void **in = (const void **)(uintptr_t)buffers;
  void *const *results = buffers + c->operand_leaves;
  void *out = c->tuple ? (void *)(uintptr_t)results : results[0];
  call_status status = {.text = NULL};

  switch (c->api_version) {
  case STATUS_RETURNING: ((void (*)(void *, const void **, void *))(void *)c->function)(out, in, &status); break;
  case UNIFIED:
    ((void (*)(void *, const void **, const char *, size_t, void *))(void *)c->function)(out, in, c->opaque,
                                                                                         c->opaque_bytes, &status);
    break;
  default: ((void (*)(void *, const void **))(void *)c->function)(out, in); break;
  }
  return status_of(&status);
}
