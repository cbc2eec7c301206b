/* base/options.h -- settings as tables: one table is the source of the parser, the manual and the defaults.
 * A module declares a plain struct of settings and a weft_option row for each member; weft_options_load fills the
 * struct from defaults and the environment, and `weft info` prints the rows. */
#ifndef WEFT_BASE_OPTIONS_H
#define WEFT_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

WEFT_PUBLIC_BEGIN

typedef enum weft_option_type {
  WEFT_OPT_BOOL,     /* bool: 1 0 true false on off yes no */
  WEFT_OPT_INT,      /* int64_t */
  WEFT_OPT_BYTES,    /* int64_t: with suffix K M G T (powers of 1024) */
  WEFT_OPT_DURATION, /* int64_t nanoseconds: with suffix ns us ms s m h; a bare number is seconds; 0 is none */
  WEFT_OPT_STRING,   /* const char *: borrowed from the environment or the table */
} weft_option_type;

typedef struct weft_option {
  const char *name; /* name of the environment variable: "WEFT_COLLECTIVE_TIMEOUT" */
  weft_option_type type;
  const char *default_text;
  size_t offset; /* offset of the member in the settings struct */
  const char *help;
  /* The allowed values, if not all values of the type are.  For a string its words, "auto|shm|fabric"; the empty
   * string is always allowed.  For a number a range "LEAST..MOST" with both ends written as values of the type;
   * either end may be left out: "1..4096", "8K..1G", "1..".  NULL: all values. */
  const char *allowed;
} weft_option;

typedef struct weft_option_table {
  const char *module; /* "collective" */
  const weft_option *options;
  size_t count;
} weft_option_table;

/* Fills *settings.  Errors: INVALID_ARGUMENT naming the variable, its value and what was expected. */
WEFT_NODISCARD weft_status *weft_options_load(const weft_option_table *table, void *settings);

/* Checks the variables and defaults as weft_options_load does, and stores nothing.  Options with neither are
 * skipped. */
WEFT_NODISCARD weft_status *weft_options_check(const weft_option_table *table);

/* Parses `text` as a value of `option` into *out, whose C type weft_option_type states.  `what` names the value in
 * errors: the variable, or the option of a command.  Errors: INVALID_ARGUMENT, also for a value that the option does
 * not allow. */
WEFT_NODISCARD weft_status *weft_option_read(const weft_option *option, const char *what, const char *text, void *out);

/* Parses one value as `type` into *out, whose C type weft_option_type states. */
WEFT_NODISCARD weft_status *weft_option_parse(weft_option_type type, const char *what, const char *text, void *out);

/* Writes a size such as "330.8 KiB" to `buf` and returns `buf`. */
const char *weft_bytes_text(int64_t bytes, char *buf, size_t size);
#ifndef __cplusplus /* C++ has no unnamed array that lives to the end of its block */
#define WEFT_BYTES(n) weft_bytes_text((n), (char[32]){0}, 32)
#endif

WEFT_PUBLIC_END

#endif
