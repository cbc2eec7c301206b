/* hlo/proto.h -- reads and writes HloModuleProto (messages: hlo.proto, our own subset with XLA's field numbers). */
#ifndef WEFT_HLO_PROTO_H
#define WEFT_HLO_PROTO_H

#include "hlo/hlo.h"

/* True if the bytes look like a serialised HloModuleProto rather than text. */
bool hlo_looks_like_proto(const char *data, size_t size);

/* Reads a serialised HloModuleProto, or one inside an HloProto, HloSnapshot or HloModuleProtoWithConfig; the content
 * decides which it is.  The module is not verified yet.
 * Errors: INVALID_ARGUMENT naming computation, instruction and field; UNIMPLEMENTED; RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *hlo_from_proto(const void *data, size_t size, hlo_module **out_module);
/* Writes a serialised HloModuleProto; *out_data is malloc'd and belongs to the caller. */
WEFT_NODISCARD weft_status *hlo_to_proto(const hlo_module *module, void **out_data, size_t *out_size);
/* The same inside an HloModuleProtoWithConfig, which also has the replica and partition counts and the entry layout
 * (PJRT's format "hlo_with_config"). */
WEFT_NODISCARD weft_status *hlo_to_proto_with_config(const hlo_module *module, void **out_data, size_t *out_size);
/* An OpSharding without a module, as PJRT passes it. */
WEFT_NODISCARD weft_status *hlo_sharding_from_proto(weft_arena *arena, const void *data, size_t size,
                                                    const hlo_sharding **out);
WEFT_NODISCARD weft_status *hlo_shape_from_proto(weft_arena *arena, const void *data, size_t size,
                                                 const hlo_shape **out);
WEFT_NODISCARD weft_status *hlo_shape_to_proto(const hlo_shape *shape, void **out_data,
                                               size_t *out_size); /* a ShapeProto */
WEFT_NODISCARD weft_status *hlo_sharding_to_proto(const hlo_sharding *sharding, void **out_data, size_t *out_size);

/* Sets row-major entry layouts for the parameters and results of a verified module, as NumPy arrays have, whatever
 * layouts its entry computation gives. */
WEFT_NODISCARD weft_status *hlo_use_row_major_entry(hlo_module *module);

#endif
