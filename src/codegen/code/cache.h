/* codegen/code/cache.h -- object files and PTX that are kept between processes, in the folder WEFT_CACHE_DIR.
 *
 * The code in the folder is executed, so whoever can write there can run code as this user. The folder is therefore
 * used only if this user or root owns it and nobody else may write to it; the same holds for each file. A file holds
 * the object's bytes and a SHA-256 digest of its name and those bytes. A file that is damaged, cut short or renamed is
 * not used, and is made again. */
#ifndef WEFT_CODEGEN_CODE_CACHE_H
#define WEFT_CODEGEN_CODE_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum { GEN_CACHE_NAME_BYTES = 68 };

/* One input that an object is made of: the module, the compiler and the build of Weft, the machine. */
typedef struct gen_cache_part {
  const void *data;
  size_t size;
} gen_cache_part;

/* Opens the folder; makes it, for this user alone, if it is absent. -1: it must not be used; a warning in the log
 * says so once. */
int gen_cache_open(const char *folder);
/* The name of the file for an object that is made of these parts. False: no digest could be made. */
bool gen_cache_name(const gen_cache_part *parts, int count, char name[GEN_CACHE_NAME_BYTES]);
/* False: there is no such file, or it must not be trusted. *out is malloc'd and belongs to the caller. */
bool gen_cache_read(int folder, const char *name, void **out, size_t *out_size);
WEFT_NODISCARD weft_status *gen_cache_write(int folder, const char *name, const void *data, size_t size);

#endif
