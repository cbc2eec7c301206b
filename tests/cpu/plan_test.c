/* tests/cpu/plan_test.c -- each step of a program is planned once, and made once of its plan. */
#include "cpu/run.h"

#include "cpu/cpu_internal.h"
#include "lower/lower.h"

static weft_status *(*cpu_plan)(void *ctx, weft_arena *arena, const hlo_instr *instr, low_plan *plan);
static weft_status *(*cpu_make)(void *ctx, low_step *step, rt_thunk **out_thunk);
static int planned, made;
static struct { const hlo_instr *instr; const void *data; } plans[16];

static weft_status *count_plan(void *ctx, weft_arena *arena, const hlo_instr *instr, low_plan *plan)
{
  weft_status *st = cpu_plan(ctx, arena, instr, plan);

  for (int i = 0; i < planned; i++) T_TRUE(plans[i].instr != instr);
  T_TRUE(planned < (int)WEFT_COUNT(plans));
  plans[planned].instr = instr;
  plans[planned++].data = plan->data;
  return st;
}

static weft_status *count_make(void *ctx, low_step *step, rt_thunk **out_thunk)
{
  int i = 0;

  while (i < planned && plans[i].instr != step->instr) i++;
  T_TRUE(i < planned && plans[i].data == step->plan->data);
  T_EQ_INT(step->use_count - step->operand_count - step->result_count, step->plan->scratch_bytes > 0);
  if (step->plan->scratch_bytes > 0) T_EQ_INT(step->uses[step->use_count - 1].slice.bytes, step->plan->scratch_bytes);
  made++;
  return cpu_make(ctx, step, out_thunk);
}

static void count_steps(low_target *target)
{
  cpu_plan = target->plan;
  cpu_make = target->make;
  target->plan = count_plan;
  target->make = count_make;
}

/* The steps of this program run in order, which is known when its thunks have been made on a draft of the memory plan:
 * see plan_and_lower in lower/lower.c. */
TEST(a_step_is_planned_once_and_made_as_it_was_planned)
{
  const char *text = "HloModule m\n"
                     "less {\n"
                     "  a = f32[] parameter(0)\n"
                     "  b = f32[] parameter(1)\n"
                     "  ROOT r = pred[] compare(a, b), direction=LT\n"
                     "}\n"
                     "ENTRY e {\n"
                     "  a = f32[128,128] parameter(0)\n"
                     "  b = f32[128,128] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
                     "  c = f32[128,128] sort(b), dimensions={1}, to_apply=less\n"
                     "  d = c64[128,65] fft(c), fft_type=RFFT, fft_length={128}\n"
                     "  ROOT f = f32[128,128] fft(d), fft_type=IRFFT, fft_length={128,128}\n"
                     "}\n";
  weft_platform *platform = test_platform(1, 1);
  static float a[128 * 128], r[128 * 128];
  weft_executable *exe;
  hlo_module *module;

  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(cpu_compile_adapted(platform, module, &(weft_compile_options){0}, count_steps, &exe));
  T_TRUE(planned >= 4);
  T_EQ_INT(made, planned);
  for (int i = 0; i < 128; i++) a[i * 128 + i] = 1; /* the product is the same, and each row sorted: 127 zeros, a one */
  T_OK(test_run(exe, (const void *[]){a}, (void *[]){r}));
  /* all rows are alike, so the inverse transform over both dimensions of their spectra has one row that is not 0 */
  for (int i = 1; i < 128; i++)
    for (int k = 0; k < 128; k++) T_TRUE(r[i * 128 + k] < 1e-5f && r[i * 128 + k] > -1e-5f);
  T_TRUE(r[127] > 0.999f && r[127] < 1.001f);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

TEST_MAIN(UNIT(a_step_is_planned_once_and_made_as_it_was_planned))
