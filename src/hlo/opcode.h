/* hlo/opcode.h -- opcodes and what is true of each (table: opcodes.def). */
#ifndef WEFT_HLO_OPCODE_H
#define WEFT_HLO_OPCODE_H

#include <stdbool.h>
#include <stddef.h>

typedef enum hlo_opcode {
#define X(NAME, text, least, most, traits) HLO_##NAME,
#include "hlo/opcodes.def"
#undef X
  HLO_OPCODE_COUNT
} __attribute__((packed)) hlo_opcode; /* a byte */

const char *hlo_opcode_name(hlo_opcode op); /* "dynamic-update-slice", static */
size_t hlo_opcode_name_length(hlo_opcode op);

/* By text name; HLO_OPCODE_COUNT if there is none.  Constant time. */
hlo_opcode hlo_opcode_from_name(const char *name, size_t length);

int hlo_opcode_least_operands(hlo_opcode op);
int hlo_opcode_most_operands(hlo_opcode op);      /* -1: any number */
bool hlo_opcode_is_elementwise(hlo_opcode op);    /* result element i depends on operand elements i alone */
bool hlo_opcode_is_transcendental(hlo_opcode op);
bool hlo_opcode_has_side_effect(hlo_opcode op);   /* by its kind; custom-calls say so themselves */
bool hlo_opcode_is_collective(hlo_opcode op);
bool hlo_opcode_is_async(hlo_opcode op);
bool hlo_opcode_calls(hlo_opcode op);             /* may call computations */

#endif
