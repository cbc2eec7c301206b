/* tests/pjrt/abi_test.c -- The structs of include/weft/pjrt_c_api.h have the sizes and offsets of the public ABI. */
#include "test.h"

#include "weft/pjrt_c_api.h"

TEST(structs_have_the_public_sizes_and_offsets)
{
#define X(type, member, size, offset)               \
  T_EQ_INT(sizeof(type), (size_t)(size));           \
  T_EQ_INT(offsetof(type, member), (size_t)(offset));
#include "abi_sizes.def"
#undef X
}

/* facts: offset(i) = 40 + 8 i over 138 functions. */
TEST(the_table_has_its_functions_in_order)
{
  size_t i = 0;

#define X(name) T_EQ_INT(offsetof(PJRT_Api, PJRT_##name), 40 + 8 * i++);
  PJRT_API_FUNCTIONS(X)
#undef X
  T_EQ_INT(i, 138);
  T_EQ_INT(offsetof(PJRT_Api, PJRT_LoadedExecutable_Execute), 40 + 8 * 55);
  T_EQ_INT(offsetof(PJRT_Api, PJRT_Error_ForEachPayload), 40 + 8 * 132);
}

TEST_MAIN(UNIT(structs_have_the_public_sizes_and_offsets), UNIT(the_table_has_its_functions_in_order))
