/* lower/print.c -- interpreter.print: prints values of a program while it runs. */
#include <config.h>

#include <stdio.h>

#include "hlo/text.h"
#include "lower/host_steps.h"

typedef struct print_thunk {
  rt_thunk base;
  const hlo_instr *instr; /* an instruction of the executable's module */
} print_thunk;

/* Prints one line for each operand. The stream is locked while a line is printed, so that lines stay whole. */
static weft_status *print_run(const rt_thunk *thunk, rt_ctx *ctx)
{
  const hlo_instr *instr = ((const print_thunk *)thunk)->instr;
  void *const *args = rt_args(thunk, ctx);

  for (int i = 0; i < instr->operand_count; i++) {
    hlo_literal value = {.shape = instr->operands[i]->shape, .data = args[i]};
    char shape[128];
    if (!hlo_shape_is_array(value.shape)) continue;
    flockfile(stdout);
    printf("%s %s ", instr->operands[i]->name, hlo_shape_format(value.shape, shape, sizeof shape));
    weft_status *st = hlo_print_literal(&value, stdout);
    putchar('\n');
    funlockfile(stdout);
    if (st) return st;
  }
  return NULL;
}
static const rt_thunk_ops print_ops = {.size = sizeof(rt_thunk_ops), .kind = "print", .run = print_run};

weft_status *low_print_make(low_step *step, rt_thunk **out_thunk)
{
  WEFT_TRY(low_thunk_new(step, &print_ops, sizeof(print_thunk), out_thunk));
  ((print_thunk *)*out_thunk)->instr = step->instr;
  (*out_thunk)->wants_host_memory = true;
  return NULL;
}
