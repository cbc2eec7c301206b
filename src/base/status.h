/* base/status.h -- the one value by which errors travel.
 * NULL is success; anything else is an owned error that the holder returns or frees. */
#ifndef WEFT_BASE_STATUS_H
#define WEFT_BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/macros.h"

WEFT_PUBLIC_BEGIN

/* The canonical codes of absl, gRPC and PJRT with their numbers, so that no interface needs to translate them. */
#define WEFT_CODES(X)                                                                            \
  X(OK, 0)                                                                                       \
  X(CANCELLED, 1)           /* the caller asked for it */                                        \
  X(UNKNOWN, 2)             /* a foreign error with no better code */                            \
  X(INVALID_ARGUMENT, 3)    /* the program, shapes or values given are wrong; a retry can't help */ \
  X(DEADLINE_EXCEEDED, 4)   /* a wait passed its deadline; the message names who is missing */   \
  X(NOT_FOUND, 5)                                                                                \
  X(ALREADY_EXISTS, 6)                                                                           \
  X(PERMISSION_DENIED, 7)                                                                        \
  X(RESOURCE_EXHAUSTED, 8)  /* memory, or a stated limit */                                      \
  X(FAILED_PRECONDITION, 9) /* the state forbids it: a dead peer, ranks that disagree */         \
  X(ABORTED, 10)            /* the failure of another process or operation ended this one */     \
  X(OUT_OF_RANGE, 11)                                                                            \
  X(UNIMPLEMENTED, 12)      /* legal, and not supported; the message names the operation */      \
  X(INTERNAL, 13)           /* a bug in Weft */                                                  \
  X(UNAVAILABLE, 14)        /* a peer or device is gone; a retry may help */                     \
  X(DATA_LOSS, 15)                                                                               \
  X(UNAUTHENTICATED, 16)

typedef enum weft_code {
#define WEFT_CODE_ENUM(name, number) WEFT_##name = number,
  WEFT_CODES(WEFT_CODE_ENUM)
#undef WEFT_CODE_ENUM
} weft_code;

typedef struct weft_status weft_status;

/* Makes an error.  Never NULL: when memory is exhausted, returns a static RESOURCE_EXHAUSTED that weft_status_free
 * ignores. */
WEFT_NODISCARD WEFT_PRINTF(4, 5) weft_status *weft_status_new(weft_code code, const char *file, int line,
                                                              const char *fmt, ...);

/* Takes `st`, adds a context line to it, returns it.  NULL passes through. */
WEFT_NODISCARD WEFT_PRINTF(4, 5) weft_status *weft_status_note(weft_status *st, const char *file, int line,
                                                               const char *fmt, ...);

/* A deep copy of `st`, payloads included; NULL for NULL. */
WEFT_NODISCARD weft_status *weft_status_dup(const weft_status *st);

void weft_status_free(weft_status *st); /* NULL is fine */
WEFT_DEFINE_AUTO(weft_status, weft_status_free)

/* Frees an error that the caller has decided to ignore, by name so that a reader sees the decision. */
static inline void weft_status_ignore(weft_status *st) { weft_status_free(st); }

weft_code weft_status_code(const weft_status *st); /* WEFT_OK for NULL */

/* The message without the context lines, borrowed from st; "" for NULL. */
const char *weft_status_message(const weft_status *st);

/* The full text for a person: "CODE: message" and one indented line for each note; of more than 24 notes the first
 * 12 and the last 12.  `debug` adds source positions (file:line).  Borrowed from st until the next call on it. */
const char *weft_status_text(weft_status *st, bool debug);

/* The upper-case name of a code ("INVALID_ARGUMENT"), static. */
const char *weft_code_name(weft_code code);

/* Attaches a typed payload (copied), replacing one of the same type_url.  Takes and returns st; NULL passes through.
 * When memory is exhausted, st is returned without the payload. */
WEFT_NODISCARD weft_status *weft_status_with_payload(weft_status *st, const char *type_url, const void *data,
                                                     size_t size);

/* The payload of that type, borrowed from st, or NULL.  *out_size is its bytes; out_size may be NULL. */
const void *weft_status_payload(const weft_status *st, const char *type_url, size_t *out_size);

/* Calls visit for each payload until it returns false. */
void weft_status_each_payload(const weft_status *st,
                              bool (*visit)(void *ctx, const char *type_url, const void *data, size_t size), void *ctx);

WEFT_PUBLIC_END

#define WEFT_ERR(code, ...) weft_status_new(WEFT_##code, __FILE__, __LINE__, __VA_ARGS__)

/* Returns from the caller with the error of `expr`, if any. */
#define WEFT_TRY(expr)                             \
  do {                                             \
    weft_status *st_ = (expr);                     \
    if (WEFT_UNLIKELY(st_ != NULL)) return st_;    \
  } while (0)

/* The same with a line of context for the reader of the error. */
#define WEFT_TRY_NOTE(expr, ...)                                                              \
  do {                                                                                        \
    weft_status *st_ = (expr);                                                                \
    if (WEFT_UNLIKELY(st_ != NULL)) return weft_status_note(st_, __FILE__, __LINE__, __VA_ARGS__); \
  } while (0)

/* RESOURCE_EXHAUSTED unless the allocation succeeded. */
#define WEFT_TRY_ALLOC(ptr)                                                                   \
  do {                                                                                        \
    if (WEFT_UNLIKELY(!(ptr))) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");          \
  } while (0)

#endif
