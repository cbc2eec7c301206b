/* cpu/without_onednn.c -- replaces onednn.c in a build without oneDNN: no convolution is planned. */
#include <config.h>

#include "cpu/onednn.h"

void cpu_onednn_allow(bool allowed) { (void)allowed; }
const char *cpu_onednn_version(void) { return "none: this build was made without it"; }
bool cpu_onednn_is_there(void) { return false; }
void cpu_onednn_free(cpu_onednn *plan) { (void)plan; }
bool cpu_onednn_wants_form(const cpu_onednn *plan) { return (void)plan, false; }
int64_t cpu_onednn_form_bytes(const cpu_onednn *plan) { return (void)plan, 0; }

cpu_onednn *cpu_onednn_plan(const cpu_onednn_conv *conv)
{
  (void)conv;
  return NULL;
}

const void *cpu_onednn_form_key(const cpu_onednn *plan, int64_t *out_bytes)
{
  *out_bytes = 0;
  return plan;
}

weft_status *cpu_onednn_make_form(const cpu_onednn *plan, rt_pool *pool, const void *kernel, void *form)
{
  (void)plan, (void)pool, (void)kernel, (void)form;
  return WEFT_ERR(INTERNAL, "a convolution by oneDNN in a build without it");
}

weft_status *cpu_onednn_run(const cpu_onednn *plan, rt_pool *pool, const void *lhs, const void *kernel,
                            const void *form, void *out)
{
  (void)plan, (void)pool, (void)lhs, (void)kernel, (void)form, (void)out;
  return WEFT_ERR(INTERNAL, "a convolution by oneDNN in a build without it");
}
