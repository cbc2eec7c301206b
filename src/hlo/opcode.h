/* hlo/opcode.h -- opcodes and their properties (table: opcodes.def). */
#ifndef WEFT_HLO_OPCODE_H
#define WEFT_HLO_OPCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

typedef enum hlo_opcode {
#define X(NAME, ...) HLO_##NAME,
#include "hlo/opcodes.def"
#undef X
  HLO_OPCODE_COUNT
} __attribute__((packed)) hlo_opcode; /* a byte */

/* Traits of an opcode. */
enum {
  HLO_ELEMENTWISE = 1, HLO_TRANSCENDENTAL = 2, HLO_SIDE_EFFECT = 4, HLO_COLLECTIVE = 8, HLO_ASYNC = 16, HLO_CALLS = 32,
  HLO_NAMES = 64, HLO_NAMES_WHOLE = 128, HLO_DONE = 256, HLO_TALKS = 512, HLO_RUNS_STEPS = 1024,
};
/* Classes of element types. */
enum { HLO_CLASS_PRED = 1, HLO_CLASS_INT = 2, HLO_CLASS_FLOAT = 4, HLO_CLASS_COMPLEX = 8 };
typedef struct hlo_opcode_info {
  const char *name;
  int8_t least, most;
  uint8_t length;
  uint8_t classes; /* for elementwise operations: the classes of element types that the first operand may have */
  uint16_t traits;
} hlo_opcode_info;
extern const hlo_opcode_info hlo_opcode_infos[HLO_OPCODE_COUNT + 1];

static inline const hlo_opcode_info *hlo_opcode_info_of(hlo_opcode op)
{
  return &hlo_opcode_infos[op < HLO_OPCODE_COUNT ? op : HLO_OPCODE_COUNT];
}
static inline bool hlo_opcode_is(hlo_opcode op, int trait) { return hlo_opcode_info_of(op)->traits & trait; }

static inline const char *hlo_opcode_name(hlo_opcode op)
{
  return hlo_opcode_info_of(op)->name;
} /* "dynamic-update-slice", static */
static inline size_t hlo_opcode_name_length(hlo_opcode op) { return hlo_opcode_info_of(op)->length; }

/* The opcode with that text name; HLO_OPCODE_COUNT if there is none.  Constant time. */
hlo_opcode hlo_opcode_from_name(const char *name, size_t length);

static inline int hlo_opcode_least_operands(hlo_opcode op) { return hlo_opcode_info_of(op)->least; }
static inline int hlo_opcode_most_operands(hlo_opcode op) { return hlo_opcode_info_of(op)->most; } /* -1: any number */
/* Element i of the result depends on elements i of the operands alone. */
static inline bool hlo_opcode_is_elementwise(hlo_opcode op) { return hlo_opcode_is(op, HLO_ELEMENTWISE); }
static inline bool hlo_opcode_is_transcendental(hlo_opcode op) { return hlo_opcode_is(op, HLO_TRANSCENDENTAL); }
/* True if every operation of this opcode has a side effect; of custom-calls, each one says so itself. */
static inline bool hlo_opcode_has_side_effect(hlo_opcode op) { return hlo_opcode_is(op, HLO_SIDE_EFFECT); }
static inline bool hlo_opcode_is_collective(hlo_opcode op) { return hlo_opcode_is(op, HLO_COLLECTIVE); }
static inline bool hlo_opcode_is_async(hlo_opcode op) { return hlo_opcode_is(op, HLO_ASYNC); }
static inline bool hlo_opcode_calls(hlo_opcode op) { return hlo_opcode_is(op, HLO_CALLS); } /* may call computations */

/* True if the elementwise operation exists for a first operand of that type. */
static inline bool hlo_opcode_takes(hlo_opcode op, weft_dtype type)
{
  static const uint8_t class_of[] = {
    [WEFT_CLASS_PRED] = HLO_CLASS_PRED, [WEFT_CLASS_SINT] = HLO_CLASS_INT, [WEFT_CLASS_UINT] = HLO_CLASS_INT,
    [WEFT_CLASS_FLOAT] = HLO_CLASS_FLOAT, [WEFT_CLASS_COMPLEX] = HLO_CLASS_COMPLEX,
  };

  return hlo_opcode_info_of(op)->classes & class_of[weft_dtype_class_of(type)];
}

/* The result is another name for existing bytes: no code runs for it. */
static inline bool hlo_opcode_is_alias(hlo_opcode op) { return hlo_opcode_is(op, HLO_NAMES); }
/* The result is an alias of operand 0, leaf by leaf. */
static inline bool hlo_opcode_is_alias_of_operand(hlo_opcode op) { return hlo_opcode_is(op, HLO_NAMES_WHOLE); }
/* Control flow: the computations that it calls are sequences of steps. */
static inline bool hlo_opcode_runs_steps(hlo_opcode op) { return hlo_opcode_is(op, HLO_RUNS_STEPS); }
/* Communicates with other devices or the host, or is the done of such an operation. */
static inline bool hlo_opcode_talks(hlo_opcode op) { return hlo_opcode_is(op, HLO_TALKS); }
/* Code runs for it, or it is control flow. */
static inline bool hlo_opcode_is_step(hlo_opcode op) { return !hlo_opcode_is(op, HLO_NAMES | HLO_DONE); }

#endif
