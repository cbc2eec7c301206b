/* hlo/proto_common.c -- tables and the element order that the proto reader and writer share. */
#include <config.h>

#include "hlo/proto_internal.h"

#define SCALARS(TYPE, field) {WEFT_##TYPE, offsetof(HloPb__Literal, n_##field), offsetof(HloPb__Literal, field), false, false}
#define BYTES(TYPE, field) {WEFT_##TYPE, offsetof(HloPb__Literal, field), offsetof(HloPb__Literal, field), true, false}
static const hlo_literal_field fields[] = {
  {WEFT_PRED, offsetof(HloPb__Literal, n_preds), offsetof(HloPb__Literal, preds), false, true},
  BYTES(S1, s1s), BYTES(S2, s2s), BYTES(S4, s4s), BYTES(S8, s8s), BYTES(S16, s16s),
  SCALARS(S32, s32s), SCALARS(S64, s64s),
  BYTES(U1, u1s), BYTES(U2, u2s), BYTES(U4, u4s), BYTES(U8, u8s), BYTES(U16, u16s),
  SCALARS(U32, u32s), SCALARS(U64, u64s),
  BYTES(F16, f16s), BYTES(BF16, bf16s), SCALARS(F32, f32s), SCALARS(F64, f64s),
  BYTES(F8E5M2, f8e5m2s), BYTES(F8E4M3, f8e4m3s), BYTES(F8E3M4, f8e3m4s), BYTES(F8E4M3FN, f8e4m3fns),
  BYTES(F8E4M3B11FNUZ, f8e4m3b11fnuzs), BYTES(F8E5M2FNUZ, f8e5m2fnuzs), BYTES(F8E4M3FNUZ, f8e4m3fnuzs),
  BYTES(F8E8M0FNU, f8e8m0fnus), BYTES(F6E2M3FN, f6e2m3fns), BYTES(F6E3M2FN, f6e3m2fns), BYTES(F4E2M1FN, f4e2m1fns),
  SCALARS(C64, c64s), SCALARS(C128, c128s),
};

const hlo_literal_field *hlo_literal_field_of(weft_dtype type)
{
  for (size_t i = 0; i < WEFT_COUNT(fields); i++)
    if (fields[i].type == type) return &fields[i];
  return NULL;
}

static int64_t minor(const hlo_shape *shape, int i)
{
  return shape->layout ? shape->layout->minor_to_major[i] : shape->rank - 1 - i;
}

void hlo_layout_walk_init(hlo_layout_walk *walk, const hlo_shape *shape)
{
  int64_t stride = 1;

  *walk = (hlo_layout_walk){.shape = shape, .run = 1};
  for (int i = shape->rank - 1; i >= 0; i--) {
    walk->stride[i] = stride;
    stride *= shape->dims[i];
  }
  while (walk->outer < shape->rank && minor(shape, walk->outer) == shape->rank - 1 - walk->outer)
    walk->run *= shape->dims[shape->rank - 1 - walk->outer++];
}

void hlo_layout_walk_next(hlo_layout_walk *walk)
{
  const hlo_shape *shape = walk->shape;

  for (int i = walk->outer; i < shape->rank; i++) {
    int64_t dim = minor(shape, i);

    walk->at += walk->stride[dim];
    if (++walk->index[dim] < shape->dims[dim]) return;
    walk->at -= walk->stride[dim] * shape->dims[dim];
    walk->index[dim] = 0;
  }
}
