/* tests/gpu/emulator/matrix.c -- mma.sync: products of small matrices that a warp holds together. */
#include <config.h>

#include "internal.h"

ptx_handler *ptx_pick_matrix(const ptx_inst *i)
{
  (void)i;
  return NULL;
}
