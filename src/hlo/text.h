/* hlo/text.h -- reads and prints HLO text. */
#ifndef WEFT_HLO_TEXT_H
#define WEFT_HLO_TEXT_H

#include <stdio.h>

#include "hlo/hlo.h"

/* Parses HLO text of `size` bytes, which need not end in NUL; it is borrowed for the call.  The module is not
 * verified yet.
 * Errors: INVALID_ARGUMENT "line:column: what is wrong" with the line quoted; RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *hlo_parse(const char *text, size_t size, hlo_module **out_module);

/* Parse one shape or sharding (from strings inside StableHLO attributes, from options). */
WEFT_NODISCARD weft_status *hlo_parse_shape(weft_arena *arena, const char *text, size_t size, const hlo_shape **out);
WEFT_NODISCARD weft_status *hlo_parse_sharding(weft_arena *arena, const char *text, size_t size,
                                               const hlo_sharding **out);

typedef struct hlo_print_options {
  bool large_constants;  /* print all elements; else constants of more than 10 print as {...} */
  bool operand_shapes;   /* print operands with their shapes, as old dumps do */
  bool metadata;
  bool percent;          /* print names as %name, as old dumps do */
} hlo_print_options;
#define HLO_PRINT_DEFAULT ((hlo_print_options){.large_constants = true, .metadata = true})

/* Prints HLO text.  print -> parse -> print is the identity (with large_constants). */
WEFT_NODISCARD weft_status *hlo_print(const hlo_module *module, hlo_print_options options, FILE *out);
/* The same into a string: *out_text is malloc'd, ends in NUL and belongs to the caller; *out_size excludes the NUL. */
WEFT_NODISCARD weft_status *hlo_print_to_string(const hlo_module *module, hlo_print_options options, char **out_text,
                                                size_t *out_size);
WEFT_NODISCARD weft_status *hlo_print_literal(const hlo_literal *literal, FILE *out);
WEFT_NODISCARD weft_status *hlo_print_sharding(const hlo_sharding *sharding, FILE *out);

#endif
