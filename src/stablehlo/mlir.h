/* stablehlo/mlir.h -- the generic layer between the readers (mlir_text.c, bytecode.c) and the lowering (lower*.c):
 * types, attributes, operations with regions, as MLIR has them but in one spelling.
 *
 * Normal form, which both readers produce, so that one lowering serves text, old text and every bytecode version:
 *  - an operation is (dialect, name): "vhlo.add_v1" and "stablehlo.add" are both (SHLO_STABLEHLO, "add"); versions are
 *    checked by the reader;
 *  - attribute names are VHLO's; what StableHLO groups in one attribute (gather<...>, dot<...>, conv<...>,
 *    channel_handle<...>) is spread over the operation, so offset_dims is an attribute of the gather itself;
 *  - an enumeration is its word ("LT"), whatever it was written as; lists of integers may be MLIR_DENSE or MLIR_ARRAY:
 *    use the accessors, which take both;
 *  - a mesh of sdy is a dictionary {axes = [{name, size}], device_ids}, a sharding {mesh, dims = [{axes, is_closed}],
 *    replicated, unreduced} with axes {name, sub_axis_info = {pre_size, size}}; shardings per value are an array;
 *    a sharding rule is {factor_sizes, operands, results, reduction, need_replication, permutation,
 *    blocked_propagation}, or, in text, MLIR_OPAQUE.
 * All of it lives in the program's arena; dense constants point into the input, which must outlive the program. */
#ifndef WEFT_STABLEHLO_MLIR_H
#define WEFT_STABLEHLO_MLIR_H

#include <stdio.h>

#include "base/arena.h"
#include "base/status.h"
#include "hlo/hlo.h"

enum {
  MLIR_MAX_DEPTH = 64,      /* greatest nesting of regions, attributes and types in outside input */
  MLIR_MAX_PARTS = 1 << 26, /* greatest number of attributes and types that all references of a program may stand for */
};
#define MLIR_DYNAMIC INT64_MIN /* a dimension written `?` */

/* ---- types ------------------------------------------------------------------------------------------------------- */

typedef enum mlir_type_kind {
  MLIR_NONE, MLIR_ELEMENT, MLIR_INDEX, MLIR_QUANTIZED, MLIR_TENSOR, MLIR_UNRANKED, MLIR_TUPLE, MLIR_TOKEN,
  MLIR_FUNCTION, MLIR_BUFFER, MLIR_FUTURE, MLIR_OTHER
} mlir_type_kind;

typedef struct mlir_type mlir_type;

/* value = (stored - zero) * scale; per axis when count > 1 or axis >= 0. */
typedef struct mlir_quant {
  weft_dtype storage, expressed;
  int axis;                  /* the quantized dimension; -1: the whole tensor has one scale */
  int count;                 /* the number of scales and of zeros */
  const double *scales;
  const int64_t *zeros;
  int64_t min, max;          /* of stored values */
} mlir_quant;

struct mlir_type {
  mlir_type_kind kind;
  /* of ELEMENT: the type; of a tensor: the type of its elements (of the storage if they are quantized; s64 for
   * index) */
  weft_dtype dtype;
  int rank;                     /* TENSOR, BUFFER */
  const int64_t *dims;          /* MLIR_DYNAMIC for `?` */
  const int64_t *bounds;        /* bounds of dynamic dimensions, or NULL; an entry may be MLIR_DYNAMIC */
  const mlir_type *element;     /* TENSOR, UNRANKED, BUFFER */
  int count, result_count;      /* of TUPLE and FUTURE: elements; of FUNCTION: inputs, and results */
  const mlir_type *const *elements; /* of FUNCTION: inputs, then results */
  const mlir_quant *quant;      /* of QUANTIZED, and of a tensor of it */
  const char *text;             /* OTHER: as written */
  /* the shape that the program's lowering number `made_by` made of the type; NULL: the type is not static */
  const hlo_shape *shape;
  int made_by;
  int parts, depth;             /* see mlir_refer_type; 0: not counted yet */
};

/* ---- attributes -------------------------------------------------------------------------------------------------- */

typedef enum mlir_attr_kind {
  MLIR_UNIT, MLIR_BOOL, MLIR_INT, MLIR_FLOAT, MLIR_STRING, MLIR_SYMBOL, MLIR_ENUM, MLIR_TYPE, MLIR_ARRAY, MLIR_DICT,
  MLIR_DENSE, MLIR_OPAQUE
} mlir_attr_kind;

/* How the elements of a dense constant are written. */
typedef enum mlir_dense_form {
  MLIR_DENSE_TEXT,    /* the text between < and >: numbers, or a hex string */
  MLIR_DENSE_BLOB,    /* little-endian elements, one after the other */
  MLIR_DENSE_BITS,    /* i1: packed, the least significant bit first */
  MLIR_DENSE_RESOURCE /* the name of a resource, which is looked up in the program when it is read */
} mlir_dense_form;

typedef struct mlir_attr mlir_attr;
typedef struct mlir_named_attr { const char *name; const mlir_attr *value; } mlir_named_attr;

struct mlir_attr {
  mlir_attr_kind kind;
  mlir_dense_form form;
  bool splat;                /* of DENSE in a blob: one element stands for all */
  size_t position;           /* the offset in the input, for messages */
  int parts, depth;          /* see mlir_refer_attr; 0: not counted yet */
  /* the type of the number (INT, FLOAT; or NULL), of the elements (ARRAY, if it is array<...>), the tensor (DENSE),
   * or the value itself (TYPE) */
  const mlir_type *type;
  union {
    int64_t i;               /* INT, BOOL */
    double f;                /* FLOAT */
    /* of STRING, SYMBOL, ENUM and OPAQUE: a NUL-terminated copy; of DENSE: the bytes */
    struct { const char *s; size_t size; } text;
    struct { int count; const mlir_attr *const *items; } array;
    struct { int count; const mlir_named_attr *items; const char *name; /* "stablehlo.gather", or NULL */ } dict;
  } u;
};

/* ---- operations -------------------------------------------------------------------------------------------------- */

typedef enum shlo_dialect { SHLO_STABLEHLO, SHLO_CHLO, SHLO_FUNC, SHLO_CHECK, SHLO_INTERPRETER, SHLO_SDY, SHLO_BUILTIN,
                            SHLO_OTHER } shlo_dialect;

/* What all operations with one spelling share. It is made once for each program. */
typedef struct mlir_op_kind {
  const char *name;       /* the name without dialect and version */
  shlo_dialect dialect;
  bool is_vhlo;           /* an attribute with its default value counts as absent */
  const void *assembly;   /* for the text reader: how the operation is written; NULL until first used */
  const void *rule;       /* for the lowering: how the operation is lowered; NULL until first used */
  const void *constraint; /* for the lowering: what is checked before that; NULL: nothing */
} mlir_op_kind;

/* A location, which is one of: a place in `file`; a `name` with an inner location; a call site, whose callee is the
 * inner location and which has a caller; a list of parts (`rest`) that were fused; an alias, which has only an inner
 * location; empty, if the origin is not known. */
typedef struct mlir_location mlir_location;
struct mlir_location {
  const char *name, *file;     /* or NULL */
  union {
    struct { int line, column, end_line, end_column; };
    struct {
      const mlir_location *caller;
      int framed_by, frame;    /* the program's lowering number `framed_by` made this stack frame for the call site */
    };
  };
  const mlir_location *inner;  /* or NULL */
  const mlir_location *const *rest;
  /* made_by: the program's lowering of that number, or its printer, has made of the location what follows: */
  int rest_count, made_by;
  union {
    const hlo_metadata *metadata;
    int number;                /* for the printer: the number of the alias that stands for it */
  };
};
static inline bool mlir_is_call_site(const mlir_location *loc) { return !loc->file && loc->caller; }

typedef struct mlir_op mlir_op;
typedef struct mlir_block mlir_block;
typedef struct mlir_region mlir_region;

typedef struct mlir_value {
  const mlir_type *type;
  hlo_instr *instr;       /* the instruction that holds the value in the computation being built, or NULL */
  int stamp;              /* for the lowering's search for captured values */
} mlir_value;

struct mlir_region {
  mlir_block *first;      /* or NULL */
  int block_count;
};

struct mlir_block {
  mlir_op *first, *last;
  int arg_count;
  mlir_value *args;
  const mlir_location **arg_locations; /* by argument; or NULL */
  mlir_block *next;
  struct mlir_unread *unread; /* not NULL: the operations come from mlir_stream_next */
};

struct mlir_op {
  const char *name;       /* of its kind, for brevity: the name without dialect and version */
  shlo_dialect dialect;
  int operand_count, result_count, attr_count, region_count;
  mlir_value **operands;
  mlir_value *results;
  const mlir_named_attr *attrs; /* inherent and discardable attributes together; operations may share the array: */
  bool shares_attrs;      /* the attributes belong to other operations too, and live as long as the program */
  bool shares_region;     /* the same for its one region, which uses no value from outside */
  mlir_region *regions;
  size_t position;
  mlir_op_kind *kind;
  const mlir_location *location; /* or NULL: the location is not known */
  mlir_op *next;
};

typedef struct mlir_resource { const char *name; const char *hex; size_t size; } mlir_resource;

/* One builtin.module. */
typedef struct mlir_module {
  const char *name;              /* or NULL */
  mlir_op *op;                   /* the one region of the module holds functions and sdy operations */
  int resource_count;
  const mlir_resource *resources; /* dialect_resources of text */
} mlir_module;

/* From a name, which is borrowed, to what it stands for. */
typedef struct mlir_table {
  struct mlir_entry **buckets;
  int bucket_count, count;
} mlir_table;

typedef struct mlir_program {
  weft_arena arena;
  const char *input;
  size_t size;
  bool is_text;
  bool has_dynamic_types;        /* a dimension of some type is not known */
  const char *producer;          /* for bytecode: "StableHLO_v1.9.0"; otherwise NULL */
  int module_count;
  mlir_module *modules;
  int lowerings;                 /* begun so far */
  int64_t parts;                 /* the number of attributes and types that references have stood for so far */
  size_t code_bytes;             /* for bytecode: the bytes of the input that hold operations */
  mlir_table kinds;              /* kinds of operations by their spelling: "stablehlo.add", "vhlo.add_v1" */
} mlir_program;

/* ---- readers ----------------------------------------------------------------------------------------------------- */

/* Both readers take a program whose arena, input and size are set, and fill in its modules. With `in_parts` the
 * operations of functions that have one block may be read later, if no type has unknown sizes. Errors:
 * INVALID_ARGUMENT "line:column: ..." or "byte N: ..."; UNIMPLEMENTED for a newer version, which it names. */
WEFT_NODISCARD weft_status *mlir_read_text(mlir_program *program);
WEFT_NODISCARD weft_status *mlir_read_bytecode(mlir_program *program, bool in_parts);

/* Gives the operations of a block that is read later, one after the other, and NULL at the end. An operation lives
 * until the next one is asked for; its results live as long as the stream. mlir_stream_close closes *out, also when
 * opening failed. */
typedef struct mlir_stream mlir_stream;
WEFT_NODISCARD weft_status *mlir_stream_open(const mlir_block *block, mlir_stream **out);
WEFT_NODISCARD weft_status *mlir_stream_next(mlir_stream *stream, const mlir_op **out);
void mlir_stream_close(mlir_stream *stream); /* NULL is fine */

/* Reads a type or attribute that stands as MLIR assembly in bytecode. */
WEFT_NODISCARD weft_status *mlir_parse_type_text(mlir_program *program, const char *text, size_t size,
                                                 const mlir_type **out);
WEFT_NODISCARD weft_status *mlir_parse_attr_text(mlir_program *program, const char *text, size_t size,
                                                 const mlir_attr **out);

/* Prints all modules as MLIR text, separated by `// -----`, without locations. Errors: UNIMPLEMENTED naming an
 * attribute that only bytecode can hold. */
WEFT_NODISCARD weft_status *mlir_print(const mlir_program *program, FILE *out);

/* The position: "12:5" in text, "byte 345" in bytecode. Writes at most `size` bytes and returns buf. */
const char *mlir_position(const mlir_program *program, size_t offset, char *buf, size_t size);

/* ---- types and attributes ---------------------------------------------------------------------------------------- */

const mlir_type *mlir_element_type(weft_dtype dtype); /* static */
/* The element type called "f32", "i1", "ui8", "bf16", "f8E4M3FN", ...; WEFT_INVALID if there is none. */
weft_dtype mlir_dtype_from_name(const char *name, size_t size);
WEFT_NODISCARD weft_status *mlir_new_tensor(weft_arena *arena, const mlir_type *element, int rank, const int64_t *dims,
                                            const int64_t *bounds, const mlir_type **out);
/* Checks what the specification demands of the parameters of a quantized type. Errors: INVALID_ARGUMENT naming the
 * constraint. */
WEFT_NODISCARD weft_status *mlir_check_quant(const mlir_quant *q);
bool mlir_type_is_dynamic(const mlir_type *t);
bool mlir_type_equal(const mlir_type *a, const mlir_type *b);
/* The number of elements; 0 if a dimension is dynamic. It does not overflow, because types are checked when they are
 * made. */
int64_t mlir_tensor_elems(const mlir_type *t);

/* Counts one more reference to a type or attribute that others may refer to as well (an alias in text, an entry in
 * bytecode), at a place nested `depth` deep. Since each of them may hold several references to others, what they
 * stand for can grow exponentially. Errors: RESOURCE_EXHAUSTED beyond MLIR_MAX_PARTS in the program, or beyond
 * MLIR_MAX_DEPTH. */
WEFT_NODISCARD weft_status *mlir_refer_type(mlir_program *program, const mlir_type *t, int depth);
WEFT_NODISCARD weft_status *mlir_refer_attr(mlir_program *program, const mlir_attr *a, int depth);

/* The attribute of that name; NULL if it is absent. */
const mlir_attr *mlir_attr_of(const mlir_op *op, const char *name);
const mlir_attr *mlir_dict_get(const mlir_attr *dict, const char *name);
/* The value; or the fallback if the attribute is absent or of another kind. */
int64_t mlir_attr_int(const mlir_attr *a, int64_t fallback);
double mlir_attr_double(const mlir_attr *a, double fallback);
bool mlir_attr_bool(const mlir_attr *a, bool fallback);               /* also accepts i1 and unit */
const char *mlir_attr_text(const mlir_attr *a, const char *fallback); /* a string, symbol or enumeration */
/* A list of integers, dense or array, in `arena`; a list of rank 2 comes as one flat list. An absent attribute gives
 * an empty list. Errors: INVALID_ARGUMENT if the attribute is something else. */
WEFT_NODISCARD weft_status *mlir_attr_ints(const mlir_program *program, const mlir_module *module, weft_arena *arena,
                                           const mlir_attr *a, hlo_ints *out);

/* True for dense_resource<__elided__>, which MLIR prints for a constant whose elements were left out. */
bool mlir_is_elided(const mlir_attr *a);
/* The number of elements to decode: all of them, or the one that stands for all (a splat). The text or the blob has
 * the size for this number, so the input bounds the memory for the elements. */
WEFT_NODISCARD weft_status *mlir_dense_size(const mlir_program *program, const mlir_module *module, const mlir_attr *a,
                                            int64_t *out_count, bool *out_splat);
/* Decodes that many elements into `out`: elements of type->dtype as literals hold them, row-major. */
WEFT_NODISCARD weft_status *mlir_dense_read(const mlir_program *program, const mlir_module *module, const mlir_attr *a,
                                            void *out);

/* ---- building, for the readers ----------------------------------------------------------------------------------- */

/* The entry of `text`; what it names is NULL if the entry is new. */
WEFT_NODISCARD weft_status *mlir_table_slot(weft_arena *arena, mlir_table *table, const char *text, size_t size,
                                            void ***out_slot);
/* What the table holds for `text`, or NULL. */
void *mlir_table_get(const mlir_table *table, const char *text, size_t size);
uint32_t mlir_hash(const char *text, size_t size);

/* Spreads what StableHLO groups in one attribute over the operation, under VHLO's names. */
WEFT_NODISCARD weft_status *mlir_spread(weft_arena *arena, mlir_op *op);
/* The kind of an operation by its spelling ("stablehlo.add", "vhlo.add_v1", "func.func", "return"), which must live
 * as long as the program. Errors: UNIMPLEMENTED for versions of VHLO operations that are newer than the known ones. */
WEFT_NODISCARD weft_status *mlir_kind(mlir_program *program, const char *spelling, size_t size, mlir_op_kind **out);
/* The version in the spelling of a VHLO operation ("add_v1": 1), otherwise 0. *out_size is the size of the name
 * without it. */
int mlir_version_suffix(const char *name, size_t size, size_t *out_size);

#endif
