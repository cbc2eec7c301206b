/* codegen/host/link.h -- object files to one relocatable image (codegen/code/code.h), for files that are loaded without
 * LLVM. */
#ifndef WEFT_CODEGEN_HOST_LINK_H
#define WEFT_CODEGEN_HOST_LINK_H

#include "codegen/code/code.h"

/* One object file, in memory. */
typedef struct gen_object_bytes {
  const void *data;
  size_t size;
  const char *table;    /* symbol of the array that holds the addresses of the object's functions */
  uint64_t table_bytes;
} gen_object_bytes;

/* Links the objects. The image is in `arena`; its first bytes are of no function, so that offset 0 says "none".
 * tables[i] is the offset of the table of object i, which holds offsets of functions.
 * Errors: UNIMPLEMENTED on machines other than x86-64, or naming a relocation or section that is not known; INTERNAL
 * for an object that is no such file. */
WEFT_NODISCARD weft_status *gen_link(const gen_object_bytes *objects, int count, weft_arena *arena,
                                     gen_image *out_image, uint64_t *tables);

#endif
