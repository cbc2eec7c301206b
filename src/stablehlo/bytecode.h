/* stablehlo/bytecode.h -- what the two files of the bytecode reader share: bytecode.c (container, IR) and vhlo.c
 * (attributes, types and properties of the builtin, vhlo and sdy dialects). */
#ifndef WEFT_STABLEHLO_BYTECODE_H
#define WEFT_STABLEHLO_BYTECODE_H

#include "stablehlo/mlir.h"

/* Bytes that are left of something. */
typedef struct bc_cursor { const uint8_t *p, *end; } bc_cursor;

typedef struct bc_string { const char *s; size_t size; } bc_string;

/* An attribute or type: where it is written, and what it is once asked for. */
typedef struct bc_entry {
  bc_cursor bytes;
  int dialect;
  bool custom;          /* in its dialect's encoding; else NUL-terminated assembly */
  bool busy;            /* being decoded: meeting it again is a cycle */
  const void *value;    /* const mlir_attr * or const mlir_type *, or NULL: not yet */
  const mlir_location *location; /* when one was asked for */
} bc_entry;

/* One inherent attribute of an operation. */
typedef struct bc_property { const char *name; bool optional; } bc_property;

/* An operation's name; what is NULL or negative is worked out when an operation has it. */
typedef struct bc_op_name {
  const char *spelling, *dialect; /* "vhlo.add_v1", "vhlo" */
  mlir_op_kind *kind;
  int property_count;
  const bc_property *properties;
} bc_op_name;

/* The properties of an operation, which many share: decoded for `op`. */
typedef struct bc_properties {
  bc_cursor bytes;
  const bc_op_name *op;
  int count;
  mlir_named_attr *attrs;
} bc_properties;

typedef struct bc_reader {
  mlir_program *program;
  weft_arena *arena;
  int version;           /* of the bytecode */
  int string_count, dialect_count, op_count, attr_count, type_count, property_count;
  bc_string *strings;
  const char **dialects;
  bc_op_name *ops;
  bc_entry *attrs, *types;
  bc_properties *properties;
  int depth;
  mlir_value **values;   /* by number; NULL where not defined */
  int64_t value_capacity;
} bc_reader;

WEFT_PRINTF(3, 4) weft_status *bc_fail(const bc_reader *r, const uint8_t *at, const char *fmt, ...);

WEFT_NODISCARD weft_status *bc_byte(const bc_reader *r, bc_cursor *c, uint8_t *out);
WEFT_NODISCARD weft_status *bc_long_varint(const bc_reader *r, bc_cursor *c, uint64_t *out);
WEFT_NODISCARD static inline weft_status *bc_varint(const bc_reader *r, bc_cursor *c, uint64_t *out)
{
  if (c->p == c->end || !(*c->p & 1)) return bc_long_varint(r, c, out);
  *out = *c->p++ >> 1; /* most are one byte */
  return NULL;
}
WEFT_NODISCARD weft_status *bc_svarint(const bc_reader *r, bc_cursor *c, int64_t *out);
WEFT_NODISCARD weft_status *bc_flagged(const bc_reader *r, bc_cursor *c, uint64_t *out, bool *out_flag);
/* A count of things that take a byte each at least: bounded by what is left. */
WEFT_NODISCARD weft_status *bc_count(const bc_reader *r, bc_cursor *c, int *out);
/* An index below `limit`. */
WEFT_NODISCARD weft_status *bc_index(const bc_reader *r, bc_cursor *c, int limit, int *out);
WEFT_NODISCARD weft_status *bc_string_ref(const bc_reader *r, bc_cursor *c, bc_string *out);
WEFT_NODISCARD weft_status *bc_blob(const bc_reader *r, bc_cursor *c, bc_cursor *out);

WEFT_NODISCARD weft_status *bc_attr(bc_reader *r, int index, const mlir_attr **out);
WEFT_NODISCARD weft_status *bc_type(bc_reader *r, int index, const mlir_type **out);
WEFT_NODISCARD weft_status *bc_attr_ref(bc_reader *r, bc_cursor *c, const mlir_attr **out); /* index, then the attribute */
WEFT_NODISCARD weft_status *bc_type_ref(bc_reader *r, bc_cursor *c, const mlir_type **out);

/* vhlo.c: one entry in its dialect's encoding; all its bytes are taken. */
WEFT_NODISCARD weft_status *bc_decode_attr(bc_reader *r, const char *dialect, bc_cursor *c, const mlir_attr **out);
WEFT_NODISCARD weft_status *bc_decode_type(bc_reader *r, const char *dialect, bc_cursor *c, const mlir_type **out);
/* The inherent attributes of the operation `op`, looked up by its name without version. */
WEFT_NODISCARD weft_status *bc_list_properties(bc_reader *r, bc_op_name *op);
WEFT_NODISCARD weft_status *bc_decode_properties(bc_reader *r, const bc_op_name *op, bc_properties *properties);
/* A location: the entry of an attribute, or NULL when it says nothing. */
WEFT_NODISCARD weft_status *bc_location(bc_reader *r, int index, const mlir_location **out);

#endif
