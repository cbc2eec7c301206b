/* base/log.h -- diagnostics on standard error, by module and level: WEFT_LOG=coll:debug,warn. */
#ifndef WEFT_BASE_LOG_H
#define WEFT_BASE_LOG_H

#include <stdbool.h>

#include "base/macros.h"

typedef enum weft_log_level { WEFT_LOG_ERROR, WEFT_LOG_WARN, WEFT_LOG_INFO, WEFT_LOG_DEBUG } weft_log_level;

/* True if `module` ("coll", "pass", ...) logs at `level`.  Default: warnings and errors.  Thread-safe; WEFT_LOG is
 * read once. */
bool weft_log_enabled(const char *module, weft_log_level level);

/* One line "weft[pid] LEVEL module: message", written with one write(2). */
WEFT_PRINTF(3, 4) void weft_log(const char *module, weft_log_level level, const char *fmt, ...);

#define WEFT_LOG(module, level, ...)                                                                     \
  do {                                                                                                   \
    if (weft_log_enabled(module, WEFT_LOG_##level)) weft_log(module, WEFT_LOG_##level, __VA_ARGS__);     \
  } while (0)

#endif
