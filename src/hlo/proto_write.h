/* hlo/proto_write.h -- shared by the files that write an HloModuleProto: proto_write.c (instructions, modules),
 * proto_write_shape.c (shapes, literals, shardings) and proto_write_attrs.c (attributes). */
#ifndef WEFT_HLO_PROTO_WRITE_H
#define WEFT_HLO_PROTO_WRITE_H

#include <string.h>

#include "hlo/proto_internal.h"

typedef struct written_name written_name; /* proto_write.c's table */

typedef struct proto_writer {
  const hlo_module *module;
  weft_arena scratch;
  int32_t *local_ids;    /* by instruction id: position in its computation */
  bool *called_by_fusion; /* by computation id */
  written_name *names;    /* names of the instructions written so far */
  int64_t next_suffix;
} proto_writer;

/* A new message in *out, prepared by `init`.  Returns RESOURCE_EXHAUSTED from the calling function without memory. */
#define NEW(w, out, init)                                        \
  do {                                                           \
    *(out) = weft_arena_alloc(&(w)->scratch, sizeof **(out));    \
    WEFT_TRY_ALLOC(*(out));                                      \
    init(*(out));                                                \
  } while (0)

/* An array of `count` zeroed items in *out. */
#define NEW_ARRAY(w, out, count)                                                                \
  do {                                                                                          \
    *(out) = weft_arena_alloc_array(&(w)->scratch, (size_t)(count), sizeof **(out));            \
    WEFT_TRY_ALLOC(*(out));                                                                     \
  } while (0)

/* Lists of int64 are borrowed: the packer only reads them. */
#define PUT_INTS(message, field, ints) ((message)->n_##field = (size_t)(ints).count, (message)->field = (int64_t *)(ints).v)

static inline char *hlo_proto_string(const char *text) { return (char *)(text ? text : ""); }
static inline ProtobufCBinaryData hlo_proto_bytes(const char *text)
{
  return (ProtobufCBinaryData){text ? strlen(text) : 0, (uint8_t *)text};
}

/* proto_write_shape.c */
WEFT_NODISCARD weft_status *hlo_proto_put_int32s(proto_writer *w, hlo_ints ints, size_t *out_count, int32_t **out);
WEFT_NODISCARD weft_status *hlo_proto_put_bools(proto_writer *w, hlo_ints ints, size_t *out_count,
                                                protobuf_c_boolean **out);
WEFT_NODISCARD weft_status *hlo_proto_put_shape(proto_writer *w, const hlo_shape *shape, HloPb__Shape **out);
/* `shape` is the shape of `literal` with the layout in whose order the elements are stored. */
WEFT_NODISCARD weft_status *hlo_proto_put_literal(proto_writer *w, const hlo_literal *literal, const hlo_shape *shape,
                                                  HloPb__Literal **out);
WEFT_NODISCARD weft_status *hlo_proto_put_mesh(proto_writer *w, const hlo_mesh *mesh, HloPb__Mesh **out);
WEFT_NODISCARD weft_status *hlo_proto_put_axes(proto_writer *w, const hlo_mesh *mesh, int count,
                                               const hlo_axis_ref *axes, size_t *out_count, HloPb__AxisRef ***out);
WEFT_NODISCARD weft_status *hlo_proto_put_sharding(proto_writer *w, const hlo_sharding *s, HloPb__Sharding **out);

/* proto_write_attrs.c */
WEFT_NODISCARD weft_status *hlo_proto_put_key_values(proto_writer *w, int count, const hlo_key_value *list,
                                                     HloPb__Attributes **out);
WEFT_NODISCARD weft_status *hlo_proto_put_attributes(proto_writer *w, const hlo_instr *instr, HloPb__Instruction *p);

#endif
