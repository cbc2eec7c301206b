/* codegen/model/keys.h -- the keys that a sort's comparator orders by.
 *
 * A comparator "by keys" compares one or more operands lexicographically, each ascending or descending, as the plain
 * compare or as JAX writes it (NaNs alike and last, -0 alike 0). A plain compare of floats is no order where there are
 * NaNs. It is taken for the order in which NaNs are alike and last in both directions, and -0 is alike 0. */
#ifndef WEFT_CODEGEN_MODEL_KEYS_H
#define WEFT_CODEGEN_MODEL_KEYS_H

#include "hlo/hlo.h"

enum { GEN_MOST_KEYS = 8 };

typedef struct gen_key {
  int operand;
  weft_dtype type;
  bool descending;
  bool merge_zeros; /* -0 and 0 compare as equal */
  bool merge_nans;  /* all NaNs compare as equal and come last (with nans_last also in descending order) */
  bool nans_last;
} gen_key;

/* Reads the comparator. False if it does not order by keys. keys: of GEN_MOST_KEYS. */
bool gen_keys_of(const hlo_computation *comparator, gen_key *keys, int *key_count);
/* Do the bits of such elements become an unsigned integer that orders them, as integers and IEEE's floats do? */
bool gen_key_is_bits(weft_dtype type);

#endif
