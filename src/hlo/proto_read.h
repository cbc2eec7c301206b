/* hlo/proto_read.h -- shared by the files that read an HloModuleProto: proto_read.c (unpacking, instructions, modules),
 * proto_shape.c and proto_attrs.c. */
#ifndef WEFT_HLO_PROTO_READ_H
#define WEFT_HLO_PROTO_READ_H

#include "hlo/proto_internal.h"

typedef struct instr_by_id instr_by_id; /* proto_read.c's tables */
typedef struct comp_by_id comp_by_id;
typedef struct name_in_use name_in_use;

typedef struct proto_reader {
  hlo_module *module;
  weft_arena *arena;   /* the module's */
  weft_arena scratch;  /* messages and tables */
  const HloPb__Module *pb;
  comp_by_id *comps;
  instr_by_id *instrs; /* of the computation being read */
  name_in_use *names;  /* of its instructions */
  name_in_use *comp_names;
} proto_reader;

#define BAD(...) WEFT_ERR(INVALID_ARGUMENT, __VA_ARGS__)

/* proto_read.c: copies into the module's arena.  Lists may be empty; an absent string is NULL. */
WEFT_NODISCARD weft_status *hlo_proto_copy_ints(proto_reader *r, size_t count, const int64_t *v, hlo_ints *out);
#define COPY_INTS(r, message, field, out) WEFT_TRY(hlo_proto_copy_ints((r), (message)->n_##field, (message)->field, (out)))
/* Copies the permutation of an iota of `rank` dimensions; the identity becomes empty, as text omits it. */
WEFT_NODISCARD weft_status *hlo_proto_copy_permutation(proto_reader *r, size_t count, const int32_t *v, int rank,
                                                       hlo_ints *out);
WEFT_NODISCARD weft_status *hlo_proto_copy_bools(proto_reader *r, size_t count, const protobuf_c_boolean *v,
                                                 hlo_ints *out);
WEFT_NODISCARD weft_status *hlo_proto_copy_string(proto_reader *r, const char *text, const char **out);
WEFT_NODISCARD weft_status *hlo_proto_copy_bytes(proto_reader *r, ProtobufCBinaryData bytes, const char **out);

/* proto_shape.c.  `depth`: number of shapes around this one; too many are an error. */
WEFT_NODISCARD weft_status *hlo_proto_read_shape(proto_reader *r, const HloPb__Shape *p, int depth,
                                                 const hlo_shape **out);
WEFT_NODISCARD weft_status *hlo_proto_read_literal(proto_reader *r, const HloPb__Literal *p, const hlo_literal **out);
WEFT_NODISCARD weft_status *hlo_proto_read_mesh(proto_reader *r, const HloPb__Mesh *p, const hlo_mesh **out);
WEFT_NODISCARD weft_status *hlo_proto_read_axes(proto_reader *r, const hlo_mesh *mesh, size_t count, HloPb__AxisRef **p,
                                                const hlo_axis_ref **out, int *out_count);
WEFT_NODISCARD weft_status *hlo_proto_read_sharding(proto_reader *r, const HloPb__Sharding *p, bool nested,
                                                    const hlo_sharding **out);

/* proto_attrs.c: reads the attributes of the instruction's opcode and those that every instruction may have. */
WEFT_NODISCARD weft_status *hlo_proto_read_key_values(proto_reader *r, const HloPb__Attributes *p,
                                                      const hlo_key_value **out, int *out_count);
WEFT_NODISCARD weft_status *hlo_proto_read_attributes(proto_reader *r, const HloPb__Instruction *p, hlo_instr *instr);

#endif
