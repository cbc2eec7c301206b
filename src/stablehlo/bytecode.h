/* stablehlo/bytecode.h -- shared by the two files of the bytecode reader: bytecode.c (container and IR) and vhlo.c
 * (attributes, types and properties of the builtin, vhlo and sdy dialects). */
#ifndef WEFT_STABLEHLO_BYTECODE_H
#define WEFT_STABLEHLO_BYTECODE_H

#include <string.h>

#include "stablehlo/mlir.h"

/* The bytes of a part that are not read yet. */
typedef struct bc_cursor { const uint8_t *p, *end; } bc_cursor;

typedef struct bc_string { const char *s; size_t size; } bc_string;

/* An attribute or type: the place where it is written (which reaches to the place of the next one), and its value
 * once it has been decoded. */
typedef struct bc_entry {
  const void *value;    /* a const mlir_attr * or const mlir_type *; NULL: not decoded yet */
  uint64_t at : 46;     /* offset in the input */
  uint64_t dialect : 14;
  uint64_t custom : 1;  /* true: in the encoding of its dialect; false: NUL-terminated assembly */
  uint64_t busy : 1;    /* it is being decoded: to meet it again is a cycle */
  uint64_t is_location : 1; /* the value is a const mlir_location * */
} bc_entry;

/* One inherent attribute of an operation. */
typedef struct bc_property { const char *name; bool optional; } bc_property;

/* The name of an operation. Fields that are NULL or negative are worked out when the first operation has the name. */
typedef struct bc_op_name {
  const char *spelling, *dialect; /* "vhlo.add_v1", "vhlo" */
  mlir_op_kind *kind;
  int property_count;
  const bc_property *properties;
  mlir_table decoded; /* looked up by their bytes: the properties of this operation (bc_properties) */
} bc_op_name;

/* The properties of an operation, which many operations share. They were decoded for `op`. */
typedef struct bc_properties {
  bc_cursor bytes;
  const bc_op_name *op;
  int count;
  const mlir_named_attr *attrs;
} bc_properties;

/* A region that uses no values from outside, shared by all operations whose region has the same bytes. */
typedef struct bc_kept_region {
  const uint8_t *bytes; /* NULL: this slot is empty */
  size_t size;
  mlir_region region;
} bc_kept_region;
enum { BC_KEPT_REGIONS = 256, BC_KEPT_PROBES = 8, BC_LARGEST_KEPT = 256 /* bytes */ };

/* Values by number. Those of a stream's block lie side by side in one array; all others follow. */
typedef struct bc_values {
  mlir_value *flat;
  int64_t flat_count, flat_defined; /* the values defined first, side by side */
  mlir_value **table;    /* by number less flat_count; NULL: not defined */
  int64_t capacity;
} bc_values;

/* the bytes that quick_op may look at: 8 numbers of 4 bytes for operands, 4 more numbers and 4 bytes */
enum { BC_QUICK_BYTES = 64 };

typedef struct bc_reader {
  mlir_program *program;
  weft_arena *arena;     /* belongs to the program: attributes, types, kinds */
  weft_arena *op_arena;  /* operations and their regions */
  weft_arena *numbers;   /* holds the table of values */
  bool in_parts;         /* the bodies of functions are read later, one operation at a time */
  const uint8_t *near_end; /* from this place on fewer than 8 bytes of input remain */
  const uint8_t *quick_end; /* fewer than BC_QUICK_BYTES */
  int version;           /* of the bytecode */
  int builtin;           /* the dialect of locations; -1: none */
  int string_count, dialect_count, op_count, attr_count, type_count, property_count;
  bc_string *strings;
  const char **dialects;
  bc_op_name *ops;
  bc_entry *attrs, *types;
  bc_properties *properties;
  bc_kept_region *kept;  /* by a hash of their bytes; NULL: no region is shared */
  int depth;
  bc_values values;
} bc_reader;

/* INVALID_ARGUMENT "byte N: ..." for the place `at` in the input. */
WEFT_PRINTF(3, 4) weft_status *bc_fail(const bc_reader *r, const uint8_t *at, const char *fmt, ...);

WEFT_NODISCARD weft_status *bc_byte(const bc_reader *r, bc_cursor *c, uint8_t *out);
/* Reads a variable-length integer: the trailing zero bits of the first byte count the bytes that follow. */
/* the input may end inside the number */
WEFT_NODISCARD weft_status *bc_last_varint(const bc_reader *r, bc_cursor *c, uint64_t *out);
WEFT_NODISCARD static inline weft_status *bc_varint(const bc_reader *r, bc_cursor *c, uint64_t *out)
{
  uint64_t v;
  int bytes;

  if (WEFT_LIKELY(c->p < c->end && *c->p & 1)) { /* most numbers have one byte */
    *out = *c->p++ >> 1;
    return NULL;
  }
  if (WEFT_UNLIKELY(c->p >= r->near_end || *c->p == 0)) return bc_last_varint(r, c, out);
  memcpy(&v, c->p, 8);
  bytes = __builtin_ctzll(v) + 1;
  if (WEFT_UNLIKELY(c->end - c->p < bytes)) return bc_last_varint(r, c, out);
  *out = v << (64 - 8 * bytes) >> (64 - 7 * bytes);
  c->p += bytes;
  return NULL;
}
WEFT_NODISCARD weft_status *bc_svarint(const bc_reader *r, bc_cursor *c, int64_t *out);
WEFT_NODISCARD weft_status *bc_flagged(const bc_reader *r, bc_cursor *c, uint64_t *out, bool *out_flag);

WEFT_NODISCARD weft_status *bc_bad_number(const bc_reader *r, const uint8_t *at, const char *what, uint64_t n,
                                          uint64_t limit);
/* Reads the count of things that take at least one byte each. The bytes that are left bound it. */
WEFT_NODISCARD static inline weft_status *bc_count(const bc_reader *r, bc_cursor *c, int *out)
{
  const uint8_t *at = c->p;
  uint64_t n = 0, limit;

  WEFT_TRY(bc_varint(r, c, &n));
  limit = WEFT_MIN((uint64_t)(c->end - c->p), (uint64_t)INT32_MAX / 2);
  if (WEFT_UNLIKELY(n > limit)) return bc_bad_number(r, at, "a count", n, limit);
  *out = (int)n;
  return NULL;
}
/* Reads an index below `limit`. */
WEFT_NODISCARD static inline weft_status *bc_index(const bc_reader *r, bc_cursor *c, int limit, int *out)
{
  const uint8_t *at = c->p;
  uint64_t n = 0;

  WEFT_TRY(bc_varint(r, c, &n));
  if (WEFT_UNLIKELY(n >= (uint64_t)limit)) return bc_bad_number(r, at, "an index", n, (uint64_t)limit);
  *out = (int)n;
  return NULL;
}
WEFT_NODISCARD weft_status *bc_string_ref(const bc_reader *r, bc_cursor *c, bc_string *out);
WEFT_NODISCARD weft_status *bc_blob(const bc_reader *r, bc_cursor *c, bc_cursor *out);

static inline bc_cursor bc_entry_bytes(const bc_reader *r, const bc_entry *e)
{
  const uint8_t *input = (const uint8_t *)r->program->input;

  return (bc_cursor){input + e->at, input + e[1].at};
}
WEFT_NODISCARD weft_status *bc_attr(bc_reader *r, int index, const mlir_attr **out);
WEFT_NODISCARD weft_status *bc_decode_type_entry(bc_reader *r, bc_entry *e, const mlir_type **out);
WEFT_NODISCARD static inline weft_status *bc_type(bc_reader *r, int index, const mlir_type **out)
{
  *out = r->types[index].value;
  return *out ? NULL : bc_decode_type_entry(r, &r->types[index], out);
}
/* reads an index and decodes the attribute with that index */
WEFT_NODISCARD weft_status *bc_attr_ref(bc_reader *r, bc_cursor *c, const mlir_attr **out);
WEFT_NODISCARD static inline weft_status *bc_type_ref(bc_reader *r, bc_cursor *c, const mlir_type **out)
{
  int index;

  WEFT_TRY(bc_index(r, c, r->type_count, &index));
  return bc_type(r, index, out);
}

/* vhlo.c: decodes one entry in its dialect's encoding, and requires that all its bytes are used. */
WEFT_NODISCARD weft_status *bc_decode_attr(bc_reader *r, const char *dialect, bc_cursor *c, const mlir_attr **out);
WEFT_NODISCARD weft_status *bc_decode_type(bc_reader *r, const char *dialect, bc_cursor *c, const mlir_type **out);
/* Finds the inherent attributes of the operation `op` by its name without version. */
WEFT_NODISCARD weft_status *bc_list_properties(bc_reader *r, bc_op_name *op);
WEFT_NODISCARD weft_status *bc_decode_properties(bc_reader *r, const bc_op_name *op, bc_properties *properties);
/* Decodes a location, which is the entry `e` of an attribute; *out is NULL if the location says nothing. */
WEFT_NODISCARD weft_status *bc_new_location(bc_reader *r, bc_entry *e, const mlir_location **out);
WEFT_NODISCARD static inline weft_status *bc_location(bc_reader *r, int index, const mlir_location **out)
{
  bc_entry *e = &r->attrs[index];

  if (!e->is_location) return bc_new_location(r, e, out);
  *out = e->value;
  return NULL;
}

#endif
