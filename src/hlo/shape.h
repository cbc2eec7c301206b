/* hlo/shape.h -- shapes and layouts: immutable values that live in an arena and are shared freely. */
#ifndef WEFT_HLO_SHAPE_H
#define WEFT_HLO_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/dtype.h"
#include "base/status.h"

enum {
  HLO_MAX_RANK = 32,         /* dimensions of an array */
  HLO_MAX_TUPLE_DEPTH = 32,  /* nesting of tuple shapes */
  HLO_MAX_SHAPE_PARTS = 1 << 20, /* shapes in the shape of an instruction, itself included */
  HLO_MAX_MODULE_PARTS = 1 << 24, /* the same, over all instructions of a module: what verifying and planning it may cost */
};
#define HLO_UNBOUNDED INT64_MIN /* the size of a dimension written `?` */

typedef struct hlo_tile {
  int rank;
  const int64_t *dims; /* HLO_TILE_COMBINE for `*` */
} hlo_tile;
#define HLO_TILE_COMBINE INT64_MIN

/* A split configuration SC(dim:i,j). */
typedef struct hlo_split {
  int64_t dim;
  int index_count;
  const int64_t *indices;
} hlo_split;

typedef struct hlo_shape hlo_shape;

/* How an array lies in memory.  Zero everywhere but minor_to_major means plain dense. */
typedef struct hlo_layout {
  const int64_t *minor_to_major; /* rank of the shape */
  int tile_count, split_count;
  const hlo_tile *tiles;
  const hlo_split *splits;
  int64_t element_bits;    /* E(n): packed width, 0 = the type's own */
  int64_t memory_space;    /* S(n): 0 device, 5 host */
  int64_t tail_padding;    /* L(n) in elements, 0 and 1 are the same */
  weft_dtype index_type, pointer_type; /* #(t), *(t); WEFT_INVALID when absent */
  int64_t dynamic_prefix_bytes;        /* M(n) */
  const hlo_shape *physical_shape;     /* P(shape), or NULL */
} hlo_layout;

struct hlo_shape {
  weft_dtype type;          /* an array type, WEFT_TUPLE, WEFT_TOKEN, WEFT_OPAQUE or WEFT_BUFFER */
  int rank;                 /* array: number of dimensions; tuple: number of elements; buffer: 1 */
  const int64_t *dims;      /* array: sizes; the bound where dynamic; HLO_UNBOUNDED for `?` */
  const bool *dynamic;      /* array: per dimension, or NULL when all are static */
  const hlo_layout *layout; /* array: or NULL for the default (descending minor_to_major, i.e. row-major) */
  const hlo_shape *const *elements; /* tuple elements; for WEFT_BUFFER the one array */
  bool is_flat;             /* tuple: known to have no tuple within, so that leaf i is element i; false is always right */
  uint8_t depth;            /* tuple: of nested tuples, itself included, at most UINT8_MAX; 0: not noted */
  int part_count;           /* tuple: shapes in it, itself included, at most INT32_MAX; 0: not noted */
};

/* Scalars and other shapes made of constants may be static: */
#define HLO_SCALAR_SHAPE(dtype) ((hlo_shape){.type = (dtype)})

/* Constructors; the arena owns the result; arguments are copied (element shapes borrowed: same lifetime).
 * NULL only without memory. */
hlo_shape *hlo_shape_array(weft_arena *arena, weft_dtype type, int rank, const int64_t *dims);
hlo_shape *hlo_shape_tuple(weft_arena *arena, int count, const hlo_shape *const *elements);
void hlo_shape_note_parts(hlo_shape *tuple); /* sets is_flat, depth and part_count of one built by hand */
/* Shapes in `s`, itself included.  Elements that are shared count wherever they are: a tuple of a tuple of ... twice each is
 * small in memory and exponential to walk.  Instructions have shapes of HLO_MAX_SHAPE_PARTS at most. */
static inline int hlo_shape_parts(const hlo_shape *s)
{
  return s->part_count ? s->part_count : 1 + (s->elements ? s->rank : 0);
}
hlo_shape *hlo_shape_token(weft_arena *arena);
hlo_shape *hlo_shape_copy(weft_arena *arena, const hlo_shape *shape);                       /* deep */
hlo_shape *hlo_shape_with_type(weft_arena *arena, const hlo_shape *shape, weft_dtype type); /* same dims and layout */
hlo_shape *hlo_shape_with_layout(weft_arena *arena, const hlo_shape *shape,
                                 const int64_t *minor_to_major); /* NULL: default */
hlo_shape *hlo_shape_in_memory(weft_arena *arena, const hlo_shape *shape,
                               int64_t memory_space);                           /* an array; its order kept */
hlo_shape *hlo_shape_without_layout(weft_arena *arena, const hlo_shape *shape); /* deep, dynamic kept */

static inline bool hlo_shape_is_tuple(const hlo_shape *s) { return s->type == WEFT_TUPLE; }
static inline bool hlo_shape_is_token(const hlo_shape *s) { return s->type == WEFT_TOKEN; }
static inline bool hlo_shape_is_array(const hlo_shape *s) { return weft_dtype_is_array(s->type); }
static inline bool hlo_shape_is_scalar(const hlo_shape *s) { return hlo_shape_is_array(s) && s->rank == 0; }
bool hlo_shape_is_dynamic(const hlo_shape *s); /* any dimension, any element */

/* Number of elements of an array; bounds count for dynamic dimensions.  The reader and the verifier have checked that
 * the product of all nonzero dimensions times the element size fits int64_t, so no caller need check again. */
int64_t hlo_shape_elems(const hlo_shape *s);
/* Bytes of an array in memory (weft_dtype_bytes per element, dense); 0 for token, opaque and tuples. */
int64_t hlo_shape_bytes(const hlo_shape *s);
/* Bytes of all arrays in s. */
int64_t hlo_shape_total_bytes(const hlo_shape *s);
/* False if a dimension is negative or the byte size of some array overflows int64_t. */
bool hlo_shape_is_sane(const hlo_shape *s);

/* Equal types, dimensions and dynamism, recursively; `layouts` compares layouts too (NULL equals the default). */
bool hlo_shape_equal(const hlo_shape *a, const hlo_shape *b, bool layouts);
/* Equal types and dimensions, recursively, whether dynamic or not: what texts check of an operand's shape. */
bool hlo_shape_compatible(const hlo_shape *a, const hlo_shape *b);
/* Equal dimensions; element types may differ (arrays only). */
bool hlo_shape_same_dims(const hlo_shape *a, const hlo_shape *b);
/* True if minor_to_major is descending, or the layout is absent, in every array of s. */
bool hlo_shape_is_default_layout(const hlo_shape *s);

/* Leaves: the arrays, tokens and opaques of a shape in depth-first order (a non-tuple is its own single leaf). */
int hlo_shape_leaf_count(const hlo_shape *s);
const hlo_shape *hlo_shape_leaf(const hlo_shape *s, int leaf); /* NULL if out of range */
/* The first leaf below element `index` of tuple s. */
int hlo_shape_leaf_offset(const hlo_shape *s, int64_t index);
/* The subshape at a tuple index path; NULL if there is none. */
const hlo_shape *hlo_shape_at(const hlo_shape *s, const int64_t *path, int depth);

/* RESOURCE_EXHAUSTED past HLO_MAX_SHAPE_PARTS or HLO_MAX_TUPLE_DEPTH.  Instructions are checked when they are added and when
 * their shapes are inferred, so that all walks over the shapes of instructions are bounded. */
WEFT_NODISCARD weft_status *hlo_shape_check_parts(const hlo_shape *s);

/* Text as in HLO: "f32[2,3]{1,0}", "(f32[], s32[4])". */
void hlo_shape_print(const hlo_shape *s, bool layouts, FILE *out);
/* The same as a string.  Owned by the arena; NULL only without memory. */
char *hlo_shape_text(weft_arena *arena, const hlo_shape *s, bool layouts);
/* For error messages: writes at most `size` bytes, returns buf. */
const char *hlo_shape_format(const hlo_shape *s, char *buf, size_t size);

#endif
