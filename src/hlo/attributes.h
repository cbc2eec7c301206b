/* hlo/attributes.h -- the schema of attributes, which text, protos, equality and hashing follow.
 *
 * attributes.def has a row for each attribute; this header says what a row means.  A row has a kind.
 * The kind is one line in HLO_ATTR_KINDS, which names the functions for values of that kind in each
 * of the three places that walk the schema:
 *   text     text_kinds.c, text_kinds_hlo.c: reads, prints, and says when the value need not be printed
 *   proto    proto_attrs.c reads a value from HloModuleProto (get_*), proto_write_attrs.c writes it (put_*)
 *   compare  attributes.c: equality (same_*) and hash (hash_*)
 * A kind without functions in one of them does not build.  Cloning shares the values (hlo.c). */
#ifndef WEFT_HLO_ATTRIBUTES_H
#define WEFT_HLO_ATTRIBUTES_H

#include <protobuf-c/protobuf-c.h>

#include "hlo/hlo.h"

/* K(KIND, text, proto, compare): `none` where no value of the kind occurs.  The C type of the field is in brackets. */
#define HLO_ATTR_KINDS(K)                                                                                             \
  K(INT64, int64, int64, int64)                       /* [int64_t] */                                                 \
  K(COUNT, count, count, int64)                       /* [int64_t] at least 1 */                                      \
  K(CHANNEL, int64, channel, int64)                   /* [int64_t] channel_id */                                      \
  K(INT32, int32, int32, int32)                       /* [int] */                                                     \
  K(BOOL, bool, bool, bool)                           /* [bool] */                                                    \
  K(TRISTATE, tristate, enum, int32)                  /* [int] 0 unknown, 1 true, 2 false */                          \
  K(FLOAT, float, float, float)                       /* [float] */                                                   \
  K(ENUM, enum, enum, int32)                          /* [an enum or int] a number in protos */                       \
  K(WORD_ENUM, enum, word_enum, int32)                /* [an enum or int] the word in protos, too */                  \
  K(COMPARE_TYPE, compare_type, compare_type, int32)  /* [hlo_compare_type] */                                        \
  K(API_VERSION, enum, api_version, int32)            /* [int] of a custom-call */                                    \
  K(STRING, string, string, text)                     /* [const char *] */                                            \
  K(BYTES, string, bytes, text)                       /* [const char *] a field of bytes in protos */                 \
  K(PADDING_TYPE, word, padding_type, text)           /* [const char *] of a custom-call */                           \
  K(BRACES, braces, none, text)                       /* [const char *] balanced braces, kept as written */           \
  K(SPARSITY, braces, sparsity, text)                 /* [const char *] sparsity_config */                            \
  K(CONFIG, config, config, text)                     /* [const char *] backend_config */                             \
  K(IGNORED, ignored, none, none)                     /* read from text and dropped */                                \
  K(INTS, ints, ints, ints)                           /* [hlo_ints] */                                                \
  K(DIM, dim, dim, ints)                              /* [hlo_ints] of one item, printed without braces */            \
  K(BOOLS, bools, bools, ints)                        /* [hlo_ints] of 0 and 1 */                                     \
  K(SLICE, slice, slice, slice)                       /* [hlo_slice_attrs] */                                         \
  K(PADDING, padding, padding, padding)               /* [int, const hlo_pad_dim *] */                                \
  K(PRECISION, precision, precision, precision)       /* [int, const hlo_precision *] .usual: XLA's list length */    \
  K(PAIRS, pairs, pairs, none)                        /* [int, const int64_t (*)[2]] source_target_pairs */           \
  K(SLICE_SIZES, int_lists, slice_sizes, none)        /* [int, const hlo_ints *] of a collective-permute */           \
  K(GROUPS, groups, groups, none)                     /* [hlo_replica_groups] */                                      \
  K(WINDOW, window, window, window)                   /* [hlo_window] */                                              \
  K(DIM_LABELS, dim_labels, dim_labels, dim_labels)   /* [hlo_conv_attrs] all of it */                                \
  K(CUSTOM_CONV, none, custom_conv, none)             /* [const hlo_conv_attrs *] in a custom-call */                 \
  K(OUTPUT_ALIASES, output_aliases, output_aliases, output_aliases) /* [int, const hlo_output_alias *] */             \
  K(SHAPE, shape, shape, shape)                       /* [const hlo_shape *] outfeed_shape */                         \
  K(SHAPES, shapes, layouts, none)                    /* [int, const hlo_shape **] operand_layout_constraints */      \
  K(LITERAL, literal, literal, literal)               /* [const hlo_literal *] in a custom-call */                    \
  K(CONSTANT, none, constant, literal)                /* [const hlo_literal *] of a constant */                       \
  K(DOMAIN, domain, domain, domain)                   /* [const hlo_sharding *[2]] entry and exit of a domain */      \
  K(PREFETCH, prefetch, prefetch, prefetch)           /* [hlo_instr.u.copy_start] */                                  \
  K(COMPUTATION, computation, none, none)             /* a called computation; the offset is its index */             \
  K(COMPUTATIONS, computations, none, none)           /* all called computations */                                   \
  K(BRANCH, branch, none, none)                       /* one branch of a conditional on a pred */                     \
  K(BRANCHES, branches, none, none)                   /* all branches of a conditional on a number */                 \
  K(CONTROL_PREDS, control_preds, none, none)         /* control predecessors */                                      \
  K(ACCURACY, accuracy, accuracy, none)               /* [const hlo_accuracy *] */                                    \
  K(SHARDING, sharding, sharding, none)               /* [const hlo_sharding *] */                                    \
  K(MAP, map, map, none)                              /* [int, const hlo_key_value *] frontend_attributes */          \
  K(METADATA, metadata, metadata, none)               /* [const hlo_metadata *] */                                    \
  K(ENTRY_LAYOUT, entry_layout, none, none)           /* the module's entry_computation_layout */                     \
  K(IO_ALIASES, io_aliases, none, none)               /* the module's input_output_alias */                           \
  K(DONORS, donors, none, none)                       /* the module's buffer_donor */

typedef enum hlo_attr_kind {
#define K(KIND, text, proto, compare) HLO_KIND_##KIND,
  HLO_ATTR_KINDS(K)
#undef K
  HLO_ATTR_KIND_COUNT
} hlo_attr_kind;

/* Where the field of an attribute is. */
typedef enum hlo_attr_base {
  HLO_IN_INSTR,
  HLO_IN_GROUP,       /* in the memory that the pointer in hlo_instr.u leads to */
  HLO_IN_CUSTOM_CONV, /* in the convolution of a custom-call's group */
  HLO_IN_EXTRA,       /* hlo_instr.extra */
  HLO_IN_MODULE,
  HLO_IN_CALLED,      /* in hlo_instr.called; the offset is the index */
} hlo_attr_base;

enum { /* flags */
  HLO_ATTR_REQUIRED = 1,
  HLO_ATTR_ALWAYS = 2, /* printed even when it has the usual value */
  HLO_ATTR_OLD = 4,    /* only read from text: another spelling of what an earlier row prints */
};

/* The words of an enum, by number; NULL for numbers without a word. */
typedef struct hlo_words {
  const char *subject; /* for error messages about protos */
  int least, count;    /* the numbers that a proto may have: [least, count) */
  const char *const *word;
} hlo_words;

/* A message inside HloModuleProto's instruction that holds fields of attributes. */
typedef struct hlo_attr_message {
  const struct hlo_attr_message *parent; /* NULL: the instruction */
  size_t offset;                         /* of the pointer to the message, in its parent */
  const ProtobufCMessageDescriptor *type;
  /* the message's name in XLA if an instruction without it is refused; or NULL */
  const char *required;
} hlo_attr_message;

typedef struct hlo_attr {
  const char *name; /* in text, or NULL */
  hlo_attr_kind kind;
  hlo_attr_base base;
  size_t offset;
  int flags;
  int64_t usual;    /* for numbers, truth values and enums: the value that need not be printed */
  const hlo_words *words;
  const hlo_attr_message *message; /* the message with the field in protos; NULL: the instruction */
  int field;        /* offset of the field, or of the count `n_...` of a repeated field; or HLO_NO_FIELD */
} hlo_attr;
enum { HLO_NO_FIELD = -1 };

typedef struct hlo_attr_family hlo_attr_family;

/* The memory that the pointer in hlo_instr.u leads to, for opcodes whose attributes lie in such memory. */
typedef struct hlo_attr_group {
  size_t bytes;           /* 0: the opcode has no group */
  const void *defaults;   /* or NULL: zeros */
  /* instructions are equal only if they share the group, so custom-calls and collectives never merge */
  bool by_identity;
  const hlo_attr_family *wire; /* the fields that all opcodes with the group have in protos, or NULL */
} hlo_attr_group;

struct hlo_attr_family {
  int count;
  const hlo_attr *attrs;
  const hlo_attr_group *group;
};

/* The attributes of an opcode; static. */
const hlo_attr_family *hlo_attrs_of(hlo_opcode op);
const hlo_attr_family *hlo_common_attrs(void); /* of every instruction */
const hlo_attr_family *hlo_module_attrs(void); /* those of a module's header */

/* The address of the attribute's field, or NULL if the instruction has no group or `extra` is NULL.  Not for
 * HLO_IN_MODULE. */
void *hlo_attr_field(const hlo_attr *attr, const hlo_instr *instr, const hlo_extra *extra);

/* Gives `instr` the attribute group of its opcode, with all defaults. */
WEFT_NODISCARD weft_status *hlo_init_attributes(hlo_instr *instr);
/* Gives a custom-call the attributes of a convolution, with all defaults, if it has none yet. */
WEFT_NODISCARD weft_status *hlo_init_custom_conv(hlo_instr *custom_call);

/* True if two instructions of one opcode have equal attributes.  Names, metadata and control edges are not compared.
 * `extra` is compared only in custom-calls (by pointer), and backend_config in fusions, too, where it says how the
 * fusion is compiled. */
bool hlo_same_attributes(const hlo_instr *a, const hlo_instr *b);
uint64_t hlo_hash_attributes(uint64_t hash, const hlo_instr *instr); /* equal attributes have equal hashes */

/* The type of a compare on operands of that type if the program gives none.  Where the program gives this type, the
 * IR keeps HLO_COMPARE_DEFAULT. */
hlo_compare_type hlo_default_compare_type(weft_dtype operand);

/* A list in hlo.h is a count and, at the next aligned address behind it, a pointer to the items. */
static inline void *hlo_list_pointer(const void *count)
{
  return (void *)WEFT_ALIGN_UP((uintptr_t)count + sizeof(int), sizeof(void *));
}
static inline int hlo_list_count(const void *count) { return *(const int *)count; }
#define HLO_LIST_ITEMS(count_field, type) (*(const type *const *)hlo_list_pointer(count_field))

#endif
