/* hlo/proto_internal.h -- shared by the reader and the writer of HloModuleProto. */
#ifndef WEFT_HLO_PROTO_INTERNAL_H
#define WEFT_HLO_PROTO_INTERNAL_H

#include "hlo/hlo.h"
#include "hlo/hlo.pb-c.h"

/* Where the elements of a literal are in its message, which has a field for each element type.  A field of bytes
 * holds the elements as in memory, but of types narrower than a byte only the value bits count.  The other fields
 * are repeated scalars. */
typedef struct hlo_literal_field {
  weft_dtype type;
  size_t count_offset; /* offset of n_x, or of the ProtobufCBinaryData */
  size_t data_offset;
  bool is_bytes, is_bool;
} hlo_literal_field;
const hlo_literal_field *hlo_literal_field_of(weft_dtype type); /* NULL: none */

/* Walks over the elements of an array in the order of its layout, a run of `run` elements at a time that lie side by
 * side in both orders (a row-major array is one run): hlo_layout_walk_next goes to the next run. */
typedef struct hlo_layout_walk {
  const hlo_shape *shape;
  int64_t at, run;                                      /* index of the run's first element in row-major order */
  int outer;                                          /* minor_to_major[outer] is the first dimension outside of runs */
  int64_t index[HLO_MAX_RANK], stride[HLO_MAX_RANK];
} hlo_layout_walk;
void hlo_layout_walk_init(hlo_layout_walk *walk, const hlo_shape *shape);
void hlo_layout_walk_next(hlo_layout_walk *walk);

/* The target of the custom-call that stands for an erfc in a proto: XLA has no such opcode. */
#define HLO_PROTO_ERFC "weft.erfc"

#endif
