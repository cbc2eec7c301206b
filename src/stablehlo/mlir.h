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
 *    a sharding rule is {factor_sizes, operands, results, reduction, need_replication, permutation, blocked_propagation}, or,
 *    in text, MLIR_OPAQUE.
 * All of it lives in the program's arena; dense constants point into the input, which must outlive the program. */
#ifndef WEFT_STABLEHLO_MLIR_H
#define WEFT_STABLEHLO_MLIR_H

#include <stdio.h>

#include "base/arena.h"
#include "base/status.h"
#include "hlo/hlo.h"

enum {
  MLIR_MAX_DEPTH = 64,      /* nesting of regions, attributes and types in outside input */
  MLIR_MAX_PARTS = 1 << 26, /* attributes and types that references to shared ones stand for, over a program */
};
#define MLIR_DYNAMIC INT64_MIN /* a dimension written `?` */

/* ---- types -------------------------------------------------------------------------------------------------------- */

typedef enum mlir_type_kind {
  MLIR_NONE, MLIR_ELEMENT, MLIR_INDEX, MLIR_QUANTIZED, MLIR_TENSOR, MLIR_UNRANKED, MLIR_TUPLE, MLIR_TOKEN,
  MLIR_FUNCTION, MLIR_BUFFER, MLIR_FUTURE, MLIR_OTHER
} mlir_type_kind;

typedef struct mlir_type mlir_type;

/* value = (stored - zero) * scale; per axis when count > 1 or axis >= 0. */
typedef struct mlir_quant {
  weft_dtype storage, expressed;
  int axis;                  /* quantized dimension, or -1: per tensor */
  int count;                 /* of scales and zeros */
  const double *scales;
  const int64_t *zeros;
  int64_t min, max;          /* of stored values */
} mlir_quant;

struct mlir_type {
  mlir_type_kind kind;
  weft_dtype dtype;             /* ELEMENT; of a tensor: its element's dtype (the storage's when quantized, s64 of index) */
  int rank;                     /* TENSOR, BUFFER */
  const int64_t *dims;          /* MLIR_DYNAMIC for `?` */
  const int64_t *bounds;        /* of dynamic dimensions, or NULL; entries may be MLIR_DYNAMIC */
  const mlir_type *element;     /* TENSOR, UNRANKED, BUFFER */
  int count, result_count;      /* TUPLE, FUTURE: elements; FUNCTION: inputs, results */
  const mlir_type *const *elements; /* FUNCTION: inputs, then results */
  const mlir_quant *quant;      /* QUANTIZED, and a tensor of it */
  const char *text;             /* OTHER: as written */
  const hlo_shape *shape;       /* made of it by the program's lowering number `made_by`; NULL: it is not static */
  int made_by;
  int parts, depth;             /* see mlir_refer_type; 0: not counted yet */
};

/* ---- attributes --------------------------------------------------------------------------------------------------- */

typedef enum mlir_attr_kind {
  MLIR_UNIT, MLIR_BOOL, MLIR_INT, MLIR_FLOAT, MLIR_STRING, MLIR_SYMBOL, MLIR_ENUM, MLIR_TYPE, MLIR_ARRAY, MLIR_DICT,
  MLIR_DENSE, MLIR_OPAQUE
} mlir_attr_kind;

/* How the elements of a dense constant are written. */
typedef enum mlir_dense_form {
  MLIR_DENSE_TEXT,    /* what stood between < and >: literals, or a hex string */
  MLIR_DENSE_BLOB,    /* little-endian elements, one slot each */
  MLIR_DENSE_BITS,    /* i1: packed, least significant bit first */
  MLIR_DENSE_RESOURCE /* by name; looked up in the program when read */
} mlir_dense_form;

typedef struct mlir_attr mlir_attr;
typedef struct mlir_named_attr { const char *name; const mlir_attr *value; } mlir_named_attr;

struct mlir_attr {
  mlir_attr_kind kind;
  mlir_dense_form form;
  bool splat;                /* DENSE in a blob: one element stands for all */
  size_t position;           /* offset in the input, for messages */
  int parts, depth;          /* see mlir_refer_attr; 0: not counted yet */
  const mlir_type *type;     /* INT and FLOAT: of the number, or NULL; ARRAY: of elements, if it is array<...>;
                              * DENSE: the tensor; TYPE: the value */
  union {
    int64_t i;               /* INT, BOOL */
    double f;                /* FLOAT */
    struct { const char *s; size_t size; } text;   /* STRING, SYMBOL, ENUM, OPAQUE: NUL-terminated copies; DENSE: bytes */
    struct { int count; const mlir_attr *const *items; } array;
    struct { int count; const mlir_named_attr *items; const char *name; /* "stablehlo.gather", or NULL */ } dict;
  } u;
};

/* ---- operations --------------------------------------------------------------------------------------------------- */

typedef enum shlo_dialect { SHLO_STABLEHLO, SHLO_CHLO, SHLO_FUNC, SHLO_CHECK, SHLO_INTERPRETER, SHLO_SDY, SHLO_BUILTIN,
                            SHLO_OTHER } shlo_dialect;

/* What all operations of one spelling share; made once in a program. */
typedef struct mlir_op_kind {
  const char *name;       /* without dialect and version */
  shlo_dialect dialect;
  bool is_vhlo;           /* an attribute that has its default value stands for none */
  const void *assembly;   /* for the text reader: how the operation is written; NULL until asked for */
  const void *rule;       /* for the lowering: what becomes of it; likewise */
  const void *constraint; /* and what is checked before, or NULL */
} mlir_op_kind;

/* Where something comes from, one of: a place in `file`; `name` and what is inside; a call site, whose callee is inside and
 * which has a caller; parts (`rest`) fused to one; only an inside: an alias; nothing: not known. */
typedef struct mlir_location mlir_location;
struct mlir_location {
  const char *name, *file;     /* or NULL */
  union {
    struct { int line, column, end_line, end_column; };
    struct {
      const mlir_location *caller;
      int framed_by, frame;    /* the program's lowering number `framed_by` has made this stack frame of the call site */
    };
  };
  const mlir_location *inner;  /* or NULL */
  const mlir_location *const *rest;
  int rest_count, made_by;     /* the program's lowering number `made_by`, or its printer, has made of it: */
  union {
    const hlo_metadata *metadata;
    int number;                /* of the alias that stands for it: the printer's */
  };
};
static inline bool mlir_is_call_site(const mlir_location *loc) { return !loc->file && loc->caller; }

typedef struct mlir_op mlir_op;
typedef struct mlir_block mlir_block;
typedef struct mlir_region mlir_region;

typedef struct mlir_value {
  const mlir_type *type;
  hlo_instr *instr;       /* where the lowering has it now, or NULL */
  int stamp;              /* of the lowering's search for captured values */
} mlir_value;

struct mlir_region {
  mlir_block *first;      /* or NULL */
  int block_count;
};

struct mlir_block {
  mlir_op *first, *last;
  int arg_count;
  mlir_value *args;
  const mlir_location **arg_locations; /* by argument, or NULL */
  mlir_block *next;
  struct mlir_unread *unread; /* not NULL: its operations come from mlir_stream_next */
};

struct mlir_op {
  const char *name;       /* of its kind, for short: without dialect and version */
  shlo_dialect dialect;
  int operand_count, result_count, attr_count, region_count;
  mlir_value **operands;
  mlir_value *results;
  const mlir_named_attr *attrs; /* inherent and discardable alike; operations may share them: */
  bool shares_attrs;      /* they are others' as well, and live as long as the program */
  bool shares_region;     /* likewise its one region, which uses no value from outside */
  mlir_region *regions;
  size_t position;
  mlir_op_kind *kind;
  const mlir_location *location; /* or NULL: not known */
  mlir_op *next;
};

typedef struct mlir_resource { const char *name; const char *hex; size_t size; } mlir_resource;

/* One builtin.module. */
typedef struct mlir_module {
  const char *name;              /* or NULL */
  mlir_op *op;                   /* its one region holds functions and sdy ops */
  int resource_count;
  const mlir_resource *resources; /* dialect_resources of text */
} mlir_module;

/* From text, which is borrowed, to what it names. */
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
  const char *producer;          /* of bytecode: "StableHLO_v1.9.0"; else NULL */
  int module_count;
  mlir_module *modules;
  int lowerings;                 /* begun so far */
  int64_t parts;                 /* that references stand for, so far */
  size_t code_bytes;             /* of bytecode: the part of the input that is operations */
  mlir_table kinds;              /* of operations, by their spelling: "stablehlo.add", "vhlo.add_v1" */
} mlir_program;

/* ---- readers ------------------------------------------------------------------------------------------------------ */

/* Both take a program whose arena, input and size are set and fill in modules.  `in_parts`: operations of functions that
 * are one block may be left for later, if no type has unknown sizes.
 * Errors: INVALID_ARGUMENT "line:column: ..." or "byte N: ..."; UNIMPLEMENTED for a newer version, by name. */
WEFT_NODISCARD weft_status *mlir_read_text(mlir_program *program);
WEFT_NODISCARD weft_status *mlir_read_bytecode(mlir_program *program, bool in_parts);

/* The operations of a block that was left for later, one after the other: NULL at the end.  Each lives until the next is
 * asked for, their results as long as the stream.  Open or not, *out is closed by mlir_stream_close. */
typedef struct mlir_stream mlir_stream;
WEFT_NODISCARD weft_status *mlir_stream_open(const mlir_block *block, mlir_stream **out);
WEFT_NODISCARD weft_status *mlir_stream_next(mlir_stream *stream, const mlir_op **out);
void mlir_stream_close(mlir_stream *stream); /* NULL is fine */

/* A type or attribute in MLIR assembly of its own (bytecode without custom encoding). */
WEFT_NODISCARD weft_status *mlir_parse_type_text(mlir_program *program, const char *text, size_t size,
                                                 const mlir_type **out);
WEFT_NODISCARD weft_status *mlir_parse_attr_text(mlir_program *program, const char *text, size_t size,
                                                 const mlir_attr **out);

/* All modules as MLIR text, split by `// -----`.  Locations are left out.
 * Errors: UNIMPLEMENTED naming an attribute that only bytecode can hold. */
WEFT_NODISCARD weft_status *mlir_print(const mlir_program *program, FILE *out);

/* "12:5" in text, "byte 345" in bytecode; writes at most `size` bytes, returns buf. */
const char *mlir_position(const mlir_program *program, size_t offset, char *buf, size_t size);

/* ---- types and attributes ----------------------------------------------------------------------------------------- */

const mlir_type *mlir_element_type(weft_dtype dtype); /* static */
/* The dtype of "f32", "i1", "ui8", "bf16", "f8E4M3FN", ...; WEFT_INVALID if there is none. */
weft_dtype mlir_dtype_from_name(const char *name, size_t size);
WEFT_NODISCARD weft_status *mlir_new_tensor(weft_arena *arena, const mlir_type *element, int rank, const int64_t *dims,
                                            const int64_t *bounds, const mlir_type **out);
/* What the specification demands of the parameters of a quantized type.  Errors: INVALID_ARGUMENT naming the constraint. */
WEFT_NODISCARD weft_status *mlir_check_quant(const mlir_quant *q);
bool mlir_type_is_dynamic(const mlir_type *t);
bool mlir_type_equal(const mlir_type *a, const mlir_type *b);
/* Number of elements; 0 when a dimension is dynamic.  Types are checked when made: it does not overflow. */
int64_t mlir_tensor_elems(const mlir_type *t);

/* Counts one more reference to a type or attribute that others may refer to as well (an alias of text, an entry of bytecode),
 * at a place nested `depth` deep.  Each of them may hold several references to others: what they stand for grows exponentially.
 * Errors: RESOURCE_EXHAUSTED past MLIR_MAX_PARTS over the program, or past MLIR_MAX_DEPTH. */
WEFT_NODISCARD weft_status *mlir_refer_type(mlir_program *program, const mlir_type *t, int depth);
WEFT_NODISCARD weft_status *mlir_refer_attr(mlir_program *program, const mlir_attr *a, int depth);

/* By name; NULL if absent. */
const mlir_attr *mlir_attr_of(const mlir_op *op, const char *name);
const mlir_attr *mlir_dict_get(const mlir_attr *dict, const char *name);
/* Values, or the fallback when the attribute is absent or of another kind. */
int64_t mlir_attr_int(const mlir_attr *a, int64_t fallback);
double mlir_attr_double(const mlir_attr *a, double fallback);
bool mlir_attr_bool(const mlir_attr *a, bool fallback); /* also i1 and unit */
const char *mlir_attr_text(const mlir_attr *a, const char *fallback); /* string, symbol or enumeration */
/* A list of integers, dense or array, in `arena`; rank 2 comes flat.  Absent: empty.
 * Errors: INVALID_ARGUMENT when it is something else. */
WEFT_NODISCARD weft_status *mlir_attr_ints(const mlir_program *program, const mlir_module *module, weft_arena *arena,
                                           const mlir_attr *a, hlo_ints *out);

/* dense_resource<__elided__>: what MLIR prints of a constant whose elements were left out. */
bool mlir_is_elided(const mlir_attr *a);
/* How many elements are to be decoded: all, or the one that stands for all of several (a splat).  What is written has the
 * size for it, so that memory for the elements is bounded by the input. */
WEFT_NODISCARD weft_status *mlir_dense_size(const mlir_program *program, const mlir_module *module, const mlir_attr *a,
                                            int64_t *out_count, bool *out_splat);
/* Decodes that many into `out`: type->dtype elements as literals hold them, row-major. */
WEFT_NODISCARD weft_status *mlir_dense_read(const mlir_program *program, const mlir_module *module, const mlir_attr *a,
                                            void *out);

/* ---- building, for the readers ------------------------------------------------------------------------------------ */

/* The place of what `text` names, NULL in it if the name is new. */
WEFT_NODISCARD weft_status *mlir_table_slot(weft_arena *arena, mlir_table *table, const char *text, size_t size,
                                            void ***out_slot);
/* What the table has for `text`, or NULL. */
void *mlir_table_get(const mlir_table *table, const char *text, size_t size);
uint32_t mlir_hash(const char *text, size_t size);

/* The kind of an operation by its spelling, which must live as long as the program: "stablehlo.add", "vhlo.add_v1",
 * "func.func", "return".  Errors: UNIMPLEMENTED for versions of VHLO operations newer than known. */
/* What StableHLO groups in one attribute is spread over the operation, under VHLO's names. */
WEFT_NODISCARD weft_status *mlir_spread(weft_arena *arena, mlir_op *op);
WEFT_NODISCARD weft_status *mlir_kind(mlir_program *program, const char *spelling, size_t size, mlir_op_kind **out);
/* The version in the spelling of a VHLO operation ("add_v1": 1), else 0; *out_size is the name's size without it. */
int mlir_version_suffix(const char *name, size_t size, size_t *out_size);

#endif
