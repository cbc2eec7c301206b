/* hlo/text_kinds.h -- the kinds of attribute values in HLO text: how a value is read, when it need not be printed,
 * and how it is printed.  attributes.def lists the attributes and the kind of each. */
#ifndef WEFT_HLO_TEXT_KINDS_H
#define WEFT_HLO_TEXT_KINDS_H

#include "hlo/attributes.h"
#include "hlo/text_internal.h"

/* The instruction or module whose attributes are read or printed. */
typedef struct attr_site {
  hlo_instr *instr;   /* NULL: a module */
  hlo_module *module;
  hlo_extra extra;    /* becomes instr->extra if an attribute was read into it */
  bool has_extra;
  hlo_computation *called_slots[2];
  int called_count;
  hlo_computation **called; /* called_slots, or a list in the arena */
} attr_site;

typedef struct attr_value {
  attr_site *site;
  const hlo_attr *attr;
  void *field;
} attr_value;

typedef struct hlo_text_kind {
  weft_status *(*read)(hlo_reader *r, attr_value v);
  bool (*is_usual)(attr_value v); /* true: the value need not be printed; NULL: it always is */
  void (*print)(FILE *out, attr_value v);
} hlo_text_kind;

/* hlo_text_int64 and so on: text_kinds.c has numbers, words, text and lists of integers; text_kinds_hlo.c has what
 * is special to HLO.  hlo_text_none is for attributes that stand elsewhere in the text. */
extern const hlo_text_kind hlo_text_none, hlo_text_int64, hlo_text_count, hlo_text_int32, hlo_text_bool,
  hlo_text_tristate, hlo_text_float, hlo_text_enum, hlo_text_compare_type, hlo_text_string, hlo_text_word,
  hlo_text_ignored, hlo_text_braces, hlo_text_config, hlo_text_map, hlo_text_metadata, hlo_text_accuracy, hlo_text_ints,
  hlo_text_dim, hlo_text_bools, hlo_text_slice, hlo_text_padding, hlo_text_precision, hlo_text_pairs,
  hlo_text_int_lists;
extern const hlo_text_kind hlo_text_window, hlo_text_dim_labels, hlo_text_computation, hlo_text_computations,
  hlo_text_branch, hlo_text_branches, hlo_text_control_preds, hlo_text_shape, hlo_text_shapes, hlo_text_literal,
  hlo_text_sharding, hlo_text_domain, hlo_text_groups, hlo_text_output_aliases, hlo_text_prefetch,
  hlo_text_entry_layout, hlo_text_io_aliases, hlo_text_donors;

/* is_usual for kinds whose usual value is an empty list, or NULL. */
bool hlo_list_is_empty(attr_value v);
bool hlo_pointer_is_null(attr_value v);
/* Reads `open item {, item} close` into the list at count_field.  `item` reads one item into `size` zeroed bytes. */
WEFT_NODISCARD weft_status *hlo_rd_list(hlo_reader *r, char open, char close, size_t size,
                                        weft_status *(*item)(hlo_reader *r, void *out), void *count_field);

#endif
