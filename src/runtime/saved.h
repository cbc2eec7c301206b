/* runtime/saved.h -- an executable as bytes, for files: its optimised module and its machine code. Loading them runs no
 * pass and compiles nothing; memory plan and thunks are made again, for the threads of the loading process. docs/aot.md
 * is the manual, docs/adr/0008 has the reasons.
 *
 *   offset  bytes
 *        0      8  "weft.exe"
 *        8     32  Weft's version, then zeros
 *       40     16  the build: of the sources that make machine code and run it (build_id.h)
 *       56     32  SHA-256 of all that follows
 *       88         in the form of base/wire.h: platform, fingerprint (texts), flags, note, module, entry, code (blocks)
 *
 * The digest detects damage, not forgery: whoever writes a file that is loaded and run decides what the process does.
 * Reading a file of any bytes does no harm. */
#ifndef WEFT_RUNTIME_SAVED_H
#define WEFT_RUNTIME_SAVED_H

#include "runtime/executable.h"
#include "runtime/platform.h"

enum { WEFT_SAVED_HEADER = 88 };

/* The contents of the bytes. All members except the texts are borrowed from the bytes. */
typedef struct weft_saved {
  char platform[32];
  char fingerprint[40];      /* of the program; the client's */
  bool no_excess_precision;
  const void *note;          /* other data of the client, which it gets back */
  size_t note_size;
  const void *module;        /* an HloModuleProtoWithConfig of the optimised module */
  size_t module_size;
  const void *entry;         /* the shapes and layouts of parameters and result as clients see them; or nothing */
  size_t entry_size;
  const void *code;          /* the platform's */
  size_t code_size;
} weft_saved;

bool weft_saved_is(const void *data, size_t size); /* the bytes begin as those of a saved executable do */

/* Reads the header. Errors: INVALID_ARGUMENT: no saved executable; FAILED_PRECONDITION: of another version
 * or build of Weft; DATA_LOSS: damaged. */
WEFT_NODISCARD weft_status *weft_saved_open(const void *data, size_t size, weft_saved *out);
/* Reads and verifies the optimised module; the caller frees it. Errors: INVALID_ARGUMENT, UNIMPLEMENTED. */
WEFT_NODISCARD weft_status *weft_saved_read_module(const weft_saved *saved, hlo_module **out_module);
/* The bytes of `saved`, in memory from malloc. */
WEFT_NODISCARD weft_status *weft_saved_pack(const weft_saved *saved, void **out_data, size_t *out_size);
/* Repairs the magic number, version, build and digest of bytes that were changed; for tests. */
void weft_saved_seal(void *data, size_t size);

/* Saves an executable. `cpus`: for which processors, in the platform's words; NULL: this one. `fingerprint` and
 * `note` come back in weft_saved. *out_data is malloc'd and belongs to the caller. Thread-safe.
 * Errors: UNIMPLEMENTED if the platform cannot; those of compiling for other processors. */
WEFT_NODISCARD weft_status *weft_executable_save(const weft_executable *exe, const char *cpus, const char *fingerprint,
                                                 const void *note, size_t note_size, void **out_data, size_t *out_size);

/* Makes an executable from saved bytes. Of `options` only these are used: the device assignment, time limits, and the
 * order and budget of memory. Numbers of replicas and partitions that are not 0 must be the program's. Errors:
 * INVALID_ARGUMENT; FAILED_PRECONDITION: saved on another platform, or for other processors; RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *weft_executable_load(weft_platform *platform, const weft_saved *saved,
                                                 const weft_compile_options *options, weft_executable **out_executable);
/* The same with `module` (taken, also on failure), which is what weft_saved_read_module has read. */
WEFT_NODISCARD weft_status *weft_executable_load_module(weft_platform *platform, const weft_saved *saved,
                                                        hlo_module *module, const weft_compile_options *options,
                                                        weft_executable **out_executable);

#endif
