/* hlo/proto.h -- HloModuleProto in and out (messages: hlo.proto, our own subset with XLA's field numbers). */
#ifndef WEFT_HLO_PROTO_H
#define WEFT_HLO_PROTO_H

#include "hlo/hlo.h"

/* Whether the bytes look like a serialised HloModuleProto rather than text. */
bool hlo_looks_like_proto(const char *data, size_t size);

/* Reads a serialized HloModuleProto; also HloProto, HloSnapshot and HloModuleProtoWithConfig, told apart by content.
 * Not verified yet.  Errors: INVALID_ARGUMENT naming computation, instruction and field. */
WEFT_NODISCARD weft_status *hlo_from_proto(const void *data, size_t size, hlo_module **out_module);
/* Serialises; *out_data is malloc'd and the caller's. */
WEFT_NODISCARD weft_status *hlo_to_proto(const hlo_module *module, void **out_data, size_t *out_size);
/* The same inside an HloModuleProtoWithConfig, which also has replica and partition counts and the entry layout (what
 * PJRT calls "hlo_with_config"). */
WEFT_NODISCARD weft_status *hlo_to_proto_with_config(const hlo_module *module, void **out_data, size_t *out_size);
/* OpSharding on its own (PJRT hands it about). */
WEFT_NODISCARD weft_status *hlo_sharding_from_proto(weft_arena *arena, const void *data, size_t size,
                                                    const hlo_sharding **out);
WEFT_NODISCARD weft_status *hlo_shape_from_proto(weft_arena *arena, const void *data, size_t size,
                                                 const hlo_shape **out);
WEFT_NODISCARD weft_status *hlo_shape_to_proto(const hlo_shape *shape, void **out_data,
                                               size_t *out_size); /* a ShapeProto */
WEFT_NODISCARD weft_status *hlo_sharding_to_proto(const hlo_sharding *sharding, void **out_data, size_t *out_size);

/* Makes parameters and results of a verified module row-major, as NumPy's arrays are, whatever layouts the entry computation
 * asks for. */
WEFT_NODISCARD weft_status *hlo_use_row_major_entry(hlo_module *module);

#endif
