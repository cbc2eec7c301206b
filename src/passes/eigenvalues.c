/* passes/eigenvalues.c -- eigenvalues: LAPACK is asked for the eigenvalues of a symmetric or Hermitian matrix alone
 * where nobody reads its eigenvectors.
 *
 * JAX's eigvalsh is eigh without its second result, so the call asks for vectors (mode 'V'), which take more than half
 * of the time. With mode 'N' LAPACK computes the values by another algorithm of the same accuracy. Runs after dead code
 * is gone, on CPUs. */
#include <config.h>

#include <string.h>

#include "passes/passes.h"
#include "passes/util.h"

#define WITH_VECTORS "mode = 86 : ui8" /* 'V' */
#define WITHOUT "mode = 78 : ui8"      /* 'N' */

/* Is it a call whose vectors, result 0, nobody reads? */
static bool makes_unread_vectors(const hlo_instr *instr)
{
  static const char *const targets[] = {"lapack_ssyevd_ffi", "lapack_dsyevd_ffi", "lapack_cheevd_ffi", "lapack_zheevd_ffi"};
  bool found = false;

  if (instr->op != HLO_CUSTOM_CALL || instr == instr->parent->root || !instr->extra || !instr->extra->backend_config)
    return false;
  for (size_t i = 0; i < WEFT_COUNT(targets); i++) found = found || strcmp(instr->u.custom->target, targets[i]) == 0;
  for (int i = 0; i < instr->user_count; i++)
    found = found && instr->users[i]->op == HLO_GET_TUPLE_ELEMENT && instr->users[i]->u.tuple_index != 0;
  return found;
}

static weft_status *eigenvalues_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  (void)ctx;
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      char *mode;
      if (!makes_unread_vectors(instr) || !strstr(instr->extra->backend_config, WITH_VECTORS)) continue;
      hlo_extra *extra = WEFT_ARENA_NEW(&module->arena, hlo_extra);
      WEFT_TRY_ALLOC(extra);
      *extra = *instr->extra;
      char *config = weft_arena_strdup(&module->arena, extra->backend_config);
      WEFT_TRY_ALLOC(config);
      mode = strstr(config, WITH_VECTORS);
      memcpy(mode, WITHOUT, strlen(WITHOUT));
      extra->backend_config = config;
      instr->extra = extra;
      *changed = true;
    }
  return NULL;
}
const hlo_pass pass_eigenvalues = {"eigenvalues", eigenvalues_run};
