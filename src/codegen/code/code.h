/* codegen/code/code.h -- compiled kernels without their compiler: the requests that a module makes, the table of the
 * compiled functions by instruction, and machine code as one relocatable block of bytes. Nothing here needs LLVM. */
#ifndef WEFT_CODEGEN_CODE_CODE_H
#define WEFT_CODEGEN_CODE_CODE_H

#include "base/arena.h"
#include "base/wire.h"
#include "codegen/codegen.h"

/* ---- what a module asks for (requests.c) ----------------------------------------------------------------------- */

typedef enum gen_unit_kind { GEN_UNIT_KERNEL, GEN_UNIT_COMPARE, GEN_UNIT_APPLY } gen_unit_kind;
enum { GEN_UNIT_KINDS = 3 };

/* One thing that a module needs compiled: the kernel of a fusion, the comparator of a sort, or a reducer. */
typedef struct gen_request {
  gen_unit_kind kind;
  const hlo_instr *fusion;     /* of a kernel; NULL for the others */
  const hlo_computation *comp; /* the computation that is compiled */
  bool in_strips;              /* of a kernel: it is a part of a step of pass strips, and may take a bound */
} gen_request;

/* Lists the requests of `module` in an order that depends on its instructions alone: a module that was written and
 * read again has the same list. The list is in `arena`. */
WEFT_NODISCARD weft_status *gen_requests_of(const hlo_module *module, weft_arena *arena, gen_request **out_requests,
                                            int *out_count);

/* ---- the table (code.c) ---------------------------------------------------------------------------------------- */

/* One compiled thing. Equal requests share a unit. */
typedef struct gen_unit {
  gen_unit_kind kind;
  int number;        /* in gen_code.units */
  gen_kernel kernel; /* of a kernel */
  void *fn;          /* of a comparator or a reducer */
} gen_unit;

struct gen_code {
  weft_arena arena;
  gen_unit **by_instr;                   /* by instruction id; NULL: not compiled */
  gen_unit **by_comp[GEN_UNIT_KINDS];    /* by computation id: comparators and reducers */
  int instr_ids, comp_ids;
  gen_unit **units;                      /* all units, in the order in which requests first name them */
  int unit_count;
  gen_stats stats;
  void *memory;                          /* the owner of the machine code */
  void (*free_memory)(void *memory);
};

/* A table without entries for the ids of `module`. */
WEFT_NODISCARD weft_status *gen_code_new(const hlo_module *module, gen_code **out_code);
void gen_code_answer(gen_code *code, const gen_request *request, gen_unit *unit);
/* The unit that answers the request; NULL: none does. */
gen_unit *gen_code_find(const gen_code *code, const gen_request *request);

/* ---- machine code as bytes (image.c) --------------------------------------------------------------------------- */

/* Machine code that may lie anywhere in memory: code first, then constants, which begin at a multiple of
 * GEN_IMAGE_PAGE. References inside the image are relative, but for the fixups. All offsets are in bytes from the
 * image's start. */
enum { GEN_IMAGE_PAGE = 4096 };

typedef struct gen_import {
  const char *name; /* a C function of gen_externals */
  uint64_t slot;    /* where its address goes */
} gen_import;

typedef struct gen_image {
  uint64_t size, code_size;
  const unsigned char *bytes;
  int fixup_count, import_count;
  const uint64_t *fixups;    /* places of 8 bytes that hold an offset, and are to hold an address */
  const gen_import *imports;
} gen_image;

/* Maps the image so that its code can run, and no part of it can be written. The memory lives until gen_image_unmap.
 * Errors: INVALID_ARGUMENT for a fixup or import outside of the image, or a function that generated code may not call;
 * RESOURCE_EXHAUSTED. */
typedef struct gen_mapped gen_mapped;
WEFT_NODISCARD weft_status *gen_image_map(const gen_image *image, gen_mapped **out_mapped);
void gen_image_unmap(gen_mapped *mapped); /* NULL is fine */
void *gen_mapped_base(const gen_mapped *mapped);

/* ---- C functions that generated code may call (externals.c) ---------------------------------------------------- */

typedef struct gen_external {
  const char *name;
  void (*address)(void);
} gen_external;
extern const gen_external gen_externals[];
extern const int gen_external_count;

/* ---- as bytes (saved.c) ---------------------------------------------------------------------------------------- */

/* Machine code of one module for one processor, as files hold it. */
typedef struct gen_variant {
  const char *cpu, *features;
  const gen_code *code;
  const gen_image *image;
  /* The offset of a unit's function in the image; 0: the unit has no such function. `phase` is 0 but for kernels. */
  uint64_t (*entry_of)(void *ctx, const gen_unit *unit, int phase);
  void *ctx;
} gen_variant;

/* Appends the variant to `out`. `module` is the module of variant->code. */
WEFT_NODISCARD weft_status *gen_variant_write(const hlo_module *module, const gen_variant *variant, weft_writer *out);

#endif
