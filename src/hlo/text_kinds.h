/* hlo/text_kinds.h -- the kinds of attribute values in HLO text: how one is read, when it goes without saying, and how it
 * is printed.  text_attrs.c says which attributes there are and of what kind each is. */
#ifndef WEFT_HLO_TEXT_KINDS_H
#define WEFT_HLO_TEXT_KINDS_H

#include "hlo/text_internal.h"

/* The instruction or module that is being read or printed. */
typedef struct attr_site {
  hlo_instr *instr;   /* or NULL: a module */
  hlo_module *module;
  hlo_extra extra;    /* becomes instr->extra when something was read into it */
  bool has_extra;
  hlo_computation *called_slots[2];
  int called_count;
  hlo_computation **called; /* called_slots, or a list in the arena */
} attr_site;

/* Where an attribute's field is. */
typedef enum attr_base {
  IN_INSTR,
  IN_GROUP,       /* behind the pointer in hlo_instr.u */
  IN_CUSTOM_CONV, /* the convolution in a custom-call's group */
  IN_EXTRA,
  IN_MODULE,
  CALLED,         /* instr->called; the offset is the index */
} attr_base;

typedef struct hlo_attr_kind hlo_attr_kind;
typedef struct hlo_attr {
  const char *name;
  const hlo_attr_kind *kind;
  attr_base base;
  size_t offset;
  int flags;
  int64_t usual;            /* of a number, truth value or enum */
  const char *const *words; /* HLO_MAX_WORDS of an enum, by number; NULL for numbers without a word */
} hlo_attr;
enum { HLO_MAX_WORDS = 24 };

typedef struct attr_value {
  attr_site *site;
  const hlo_attr *attr;
  void *field;
} attr_value;

struct hlo_attr_kind {
  weft_status *(*read)(hlo_reader *r, attr_value v);
  bool (*is_usual)(attr_value v); /* then it need not be printed; NULL: never */
  void (*print)(FILE *out, attr_value v);
};

/* Numbers, words, text, lists of integers (text_kinds.c). */
extern const hlo_attr_kind hlo_kind_int64, hlo_kind_count, hlo_kind_int32, hlo_kind_bool, hlo_kind_tristate,
    hlo_kind_float, hlo_kind_enum, hlo_kind_string, hlo_kind_word, hlo_kind_ignored, hlo_kind_braces, hlo_kind_config, hlo_kind_map,
    hlo_kind_metadata, hlo_kind_accuracy, hlo_kind_ints, hlo_kind_dim, hlo_kind_bools, hlo_kind_slice,
    hlo_kind_padding, hlo_kind_precision, hlo_kind_pairs,
    hlo_kind_int_lists;
/* What is particular to HLO: windows, references, shapes, the module's header (text_kinds_hlo.c). */
extern const hlo_attr_kind hlo_kind_window, hlo_kind_dim_labels, hlo_kind_computation, hlo_kind_computations,
    hlo_kind_branch, hlo_kind_branches, hlo_kind_control_preds, hlo_kind_shape, hlo_kind_shapes, hlo_kind_literal,
    hlo_kind_sharding, hlo_kind_domain, hlo_kind_groups, hlo_kind_output_aliases, hlo_kind_prefetch,
    hlo_kind_entry_layout, hlo_kind_io_aliases, hlo_kind_donors;

/* In hlo.h a list is a count followed at the next aligned place by a pointer. */
static inline void *list_pointer(void *count)
{
  return (void *)WEFT_ALIGN_UP((uintptr_t)count + sizeof(int), sizeof(void *));
}
static inline int list_count(attr_value v) { return *(const int *)v.field; }
#define LIST_ITEMS(v, type) (*(const type *const *)list_pointer((v).field))

/* For the kinds' tables: a list without items, a pointer that is NULL. */
bool hlo_list_is_empty(attr_value v);
bool hlo_pointer_is_null(attr_value v);
/* `open item {, item} close` into the list at count_field, each item read by `item` into `size` zeroed bytes. */
WEFT_NODISCARD weft_status *hlo_rd_list(hlo_reader *r, char open, char close, size_t size,
                                        weft_status *(*item)(hlo_reader *r, void *out), void *count_field);

#endif
