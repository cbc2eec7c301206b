/* cli/package.h -- a compiled program for applications in C: a header with typed shapes, a C source that holds the
 * machine code, or a shared library of both (docs/aot.md). */
#ifndef WEFT_CLI_PACKAGE_H
#define WEFT_CLI_PACKAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "hlo/hlo.h"

/* What `weft compile -o PATH` is to write. */
typedef enum cli_package_kind {
  CLI_PACKAGE_FILE,    /* machine code alone, for `weft run` */
  CLI_PACKAGE_FOLDER,  /* PATH is a folder, or ends in "/": NAME.weft, NAME.h, NAME.c */
  CLI_PACKAGE_LIBRARY, /* PATH ends in ".so": a shared library, and its header beside it */
} cli_package_kind;
cli_package_kind cli_package_kind_of(const char *path);

typedef struct cli_package {
  const char *path;         /* -o */
  const char *name;         /* the prefix of the C names; NULL: made of the path, or of `program` for a folder */
  const char *program;      /* the program's file */
  const hlo_module *module; /* its entry gives the names and shapes of parameters and results */
  int devices;
  const void *code;         /* the bytes of a compiled program */
  size_t code_size;
} cli_package;

/* Writes a folder's files, or a library and its header. A library is linked by the compiler that CC names, by default
 * cc.
 * Errors: INVALID_ARGUMENT: a file cannot be written, or the name is no C identifier; FAILED_PRECONDITION: Weft's
 * headers or libweft_runtime.so are not installed, or the compiler fails. */
WEFT_NODISCARD weft_status *cli_package_write(const cli_package *package);

#endif
