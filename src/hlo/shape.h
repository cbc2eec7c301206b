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
  HLO_MAX_SHAPE_PARTS = 1 << 20, /* shapes that the shape of an instruction consists of, itself included */
  /* the same for all instructions of a module together: bounds the cost of verifying and planning it */
  HLO_MAX_MODULE_PARTS = 1 << 24,
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

/* How an array lies in memory.  If every member except minor_to_major is zero, the array is dense. */
typedef struct hlo_layout {
  const int64_t *minor_to_major; /* as many entries as the shape has dimensions */
  int tile_count, split_count;
  const hlo_tile *tiles;
  const hlo_split *splits;
  int64_t element_bits;    /* E(n): bits of a packed element; 0: the type's own */
  int64_t memory_space;    /* S(n): 0 device, 5 host */
  int64_t tail_padding;    /* L(n) in elements; 0 and 1 mean the same */
  weft_dtype index_type, pointer_type; /* #(t), *(t); WEFT_INVALID when absent */
  int64_t dynamic_prefix_bytes;        /* M(n) */
  const hlo_shape *physical_shape;     /* P(shape), or NULL */
} hlo_layout;

struct hlo_shape {
  weft_dtype type;          /* an array type, WEFT_TUPLE, WEFT_TOKEN, WEFT_OPAQUE or WEFT_BUFFER */
  int rank;                 /* array: number of dimensions; tuple: number of elements; buffer: 1 */
  const int64_t *dims;      /* array: sizes; the bound of a dynamic dimension; HLO_UNBOUNDED for `?` */
  const bool *dynamic;      /* array: for each dimension; NULL: all are static */
  const hlo_layout *layout; /* array: NULL for the default (descending minor_to_major, that is, row-major) */
  const hlo_shape *const *elements; /* elements of a tuple, or the one array of a WEFT_BUFFER */
  /* tuple: true only if no element is a tuple, so that leaf i is element i; false is always correct */
  bool is_flat;
  uint8_t depth;            /* tuple: levels of tuples, itself included, at most UINT8_MAX; 0: not noted */
  int part_count;           /* tuple: shapes in it, itself included, at most INT32_MAX; 0: not noted */
};

/* A scalar shape as a compound literal; at file scope it is static. */
#define HLO_SCALAR_SHAPE(dtype) ((hlo_shape){.type = (dtype)})

/* Make a shape in `arena`.  Arguments are copied, but element shapes are borrowed: they must live as long.  NULL
 * only without memory. */
hlo_shape *hlo_shape_array(weft_arena *arena, weft_dtype type, int rank, const int64_t *dims);
hlo_shape *hlo_shape_tuple(weft_arena *arena, int count, const hlo_shape *const *elements);
/* sets is_flat, depth and part_count of a tuple that was not made by hlo_shape_tuple */
void hlo_shape_note_parts(hlo_shape *tuple);
/* The number of shapes in `s`, itself included.  An element that occurs several times counts each time: a tuple of
 * twice a tuple of twice ... is small in memory and exponential to walk.  The shape of an instruction has at most
 * HLO_MAX_SHAPE_PARTS. */
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
                               int64_t memory_space); /* an array; borrows the lists of shape's layout */
hlo_shape *hlo_shape_without_layout(weft_arena *arena, const hlo_shape *shape); /* deep, dynamic kept */

static inline bool hlo_shape_is_tuple(const hlo_shape *s) { return s->type == WEFT_TUPLE; }
static inline bool hlo_shape_is_token(const hlo_shape *s) { return s->type == WEFT_TOKEN; }
static inline bool hlo_shape_is_array(const hlo_shape *s) { return weft_dtype_is_array(s->type); }
static inline bool hlo_shape_is_scalar(const hlo_shape *s) { return hlo_shape_is_array(s) && s->rank == 0; }
bool hlo_shape_is_dynamic(const hlo_shape *s); /* true if any dimension of any array is dynamic or unbounded */

/* Number of elements of an array; for a dynamic dimension the bound counts.  The reader and the verifier have
 * checked that the product of all nonzero dimensions and the element size fits int64_t, so callers need not check
 * again. */
int64_t hlo_shape_elems(const hlo_shape *s);
/* Bytes of an array in memory (dense, weft_dtype_bytes for each element); 0 for tokens, opaques and tuples. */
int64_t hlo_shape_bytes(const hlo_shape *s);
/* Bytes of all arrays in s together. */
int64_t hlo_shape_total_bytes(const hlo_shape *s);
/* False if an array has a negative dimension or more than HLO_MAX_RANK dimensions, or if the product of its nonzero
 * dimensions and the element size overflows int64_t. */
bool hlo_shape_is_sane(const hlo_shape *s);

/* Equal types, dimensions and dynamic dimensions, recursively.  If `layouts`, equal layouts, too (NULL equals the
 * default). */
bool hlo_shape_equal(const hlo_shape *a, const hlo_shape *b, bool layouts);
/* Equal types and dimensions, recursively, dynamic or not: the check of an operand's shape in texts. */
bool hlo_shape_compatible(const hlo_shape *a, const hlo_shape *b);
/* Equal dimensions of two arrays; the element types may differ. */
bool hlo_shape_same_dims(const hlo_shape *a, const hlo_shape *b);
/* True if in every array of s minor_to_major is descending or the layout is absent. */
bool hlo_shape_is_default_layout(const hlo_shape *s);

/* The leaves of a shape are its arrays, tokens and opaques in depth-first order.  A shape that is no tuple has
 * itself as its only leaf. */
int hlo_shape_leaf_count(const hlo_shape *s);
const hlo_shape *hlo_shape_leaf(const hlo_shape *s, int leaf); /* NULL if out of range */
/* The number of the first leaf in element `index` of tuple s. */
int hlo_shape_leaf_offset(const hlo_shape *s, int64_t index);
/* The shape at an index path into nested tuples; NULL if there is none. */
const hlo_shape *hlo_shape_at(const hlo_shape *s, const int64_t *path, int depth);

/* RESOURCE_EXHAUSTED if s has more than HLO_MAX_SHAPE_PARTS parts or more than HLO_MAX_TUPLE_DEPTH levels, else
 * NULL.  Instructions are checked when they are added and when their shapes are inferred, so every walk over the
 * shape of an instruction is bounded. */
WEFT_NODISCARD weft_status *hlo_shape_check_parts(const hlo_shape *s);

/* Writes a shape as in HLO text: "f32[2,3]{1,0}", "(f32[], s32[4])". */
void hlo_shape_print(const hlo_shape *s, bool layouts, FILE *out);
/* The same text as a string in `arena`; NULL only without memory. */
char *hlo_shape_text(weft_arena *arena, const hlo_shape *s, bool layouts);
/* For error messages: writes the text to `buf`, at most `size` bytes, and returns buf. */
const char *hlo_shape_format(const hlo_shape *s, char *buf, size_t size);

#endif
