/* passes/scopes.c -- scopes: the operation's name (`op_name`) of an instruction inside a called computation begins with
 * the scopes of the caller, so that profiles and errors tell which call of a function an operation belongs to.
 *
 * JAX lowers a function once, with names that begin inside it, and XLA completes these names where it inlines the call.
 *
 *   caller                       instruction inside      its complete name
 *   call   jit(g)/a/jit(f)       in_f/sin                jit(g)/a/jit(f)/in_f/sin
 *   while  jit(g)/a/in_f/while   in_f/while/body/add     jit(g)/a/in_f/while/body/add
 *
 * A name whose first scope is that of the caller's name is complete already. */
#include <config.h>

#include <string.h>

#include "passes/passes.h"
#include "passes/scopes.h"

/* Names of a chain of calls grow with each call: a longer one stays as it is, or they would take the square of their
 * text. */
enum { MOST_NAME_BYTES = 4096 };

/* The length of the first scope of a name: jit(f) of jit(f)/sin. */
static size_t first_scope(const char *name) { return strcspn(name, "/"); }

static bool begins_with_scopes(const char *name, const char *scopes)
{
  size_t length = strlen(scopes);

  return strncmp(name, scopes, length) == 0 && (name[length] == '/' || name[length] == '\0');
}

/* How much of `outer` stands before `name` in the complete name; -1: `name` is
 * complete, or has nothing to do with it. */
static int kept_length(const char *outer, const char *name, bool is_call)
{
  size_t first = first_scope(outer);

  if (first == first_scope(name) && strncmp(outer, name, first) == 0) return -1;
  if (is_call) return (int)strlen(outer);
  for (const char *end = strchr(outer, '/'); end; end = strchr(end + 1, '/'))
    if (begins_with_scopes(name, end + 1)) return (int)(end - outer);
  return -1;
}

weft_status *pass_complete_scopes(hlo_instr *instr, const char *outer, bool is_call, bool *changed)
{
  const hlo_metadata *old = instr->metadata;
  weft_arena *arena = &instr->parent->module->arena;
  int kept = outer && old && old->op_name && *old->op_name ? kept_length(outer, old->op_name, is_call) : -1;
  hlo_metadata *complete;

  if (kept < 0 || (size_t)kept + strlen(old->op_name) >= MOST_NAME_BYTES) return NULL;
  complete = WEFT_ARENA_NEW(arena, hlo_metadata);
  WEFT_TRY_ALLOC(complete);
  *complete = *old;
  complete->op_name = weft_arena_printf(arena, "%.*s/%s", kept, outer, old->op_name);
  WEFT_TRY_ALLOC(complete->op_name);
  instr->metadata = complete;
  if (changed) *changed = true;
  return NULL;
}

static weft_status *scopes_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  (void)ctx;
  for (hlo_computation *comp = module->last; comp; comp = comp->prev) /* callers come first */
    HLO_FOREACH(caller, comp) {
      if (!hlo_opcode_runs_steps(caller->op) || !caller->metadata) continue;
      for (int i = 0; i < caller->called_count; i++)
        HLO_FOREACH(instr, caller->called[i])
          WEFT_TRY(pass_complete_scopes(instr, caller->metadata->op_name, caller->op == HLO_CALL, changed));
    }
  return NULL;
}
const hlo_pass pass_scopes = {"scopes", scopes_run};
