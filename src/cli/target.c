/* cli/target.c -- `weft inspect --target`: the kernels that a program has on a GPU, which need not be there. */
#include <config.h>

#include <inttypes.h>
#include <string.h>

#include "base/arena.h"
#include "cli/ptxas.h"
#include "cli/target.h"
#include "codegen/model/cost.h"
#include "codegen/nvptx/nvptx.h"
#include "passes/util.h"

/* The time of a launch that does little: that of an H200. */
static const double LAUNCH_US = 2;

typedef struct report {
  const gen_target *target;
  const char *kernel; /* print the text of this fusion's kernels; NULL: list all kernels */
  gen_options options;
  weft_arena *arena;
  int steps[HLO_OPCODE_COUNT]; /* that no kernel does */
  int kernels, refused;
  double bytes, us;
  bool found;
} report;

static weft_status *target_of(const char *name, gen_target *out)
{
  const gen_target *known = gen_gpu_target(name);

  if (!known && strpbrk(name, "./")) return gen_gpu_target_load(name, out);
  if (!known)
    return WEFT_ERR(INVALID_ARGUMENT,
                    "--target: expected T4, A100, A10, L4, H100, H200, a processor such as sm_90, or a "
                    "file, got \"%s\"",
                    name);
  *out = *known;
  return NULL;
}

static void print_launches(const gen_artefact *a)
{
  for (int i = 0; i < a->launch_count; i++) {
    const gen_launch *l = &a->launches[i];
    printf("// launch %d: %s, %" PRId64 " blocks of %d threads", i, l->entry, l->blocks, l->threads);
    if (l->shared_bytes) printf(" with %d bytes of dynamic shared memory", l->shared_bytes);
    printf("%s\n", l->copy_from >= 0 ? ", nothing if done in place" : "");
  }
  printf("// %d arguments, %" PRId64 " bytes of scratch\n%s\n", a->arg_count, a->scratch_bytes, a->text);
}

/* A line for the kernels of `fusion`. The time is that of moving its bytes, or that of its launches. */
static weft_status *print_line(report *r, const hlo_instr *fusion, const gen_artefact *a)
{
  cli_registers registers;
  gen_kernel price = {.strategy = a->strategy, .phase_count = 1, .phases = {{.units = 1}}};
  int64_t blocks = 0;
  int launches = 0, threads = 0;

  if (fusion->op == HLO_FUSION) gen_price(r->target, r->arena, fusion, &price);
  else price.bytes = 2 * (double)hlo_shape_total_bytes(fusion->operands[0]->shape) * fusion->operand_count;
  for (int i = 0; i < a->launch_count; i++) {
    if (a->launches[i].copy_from >= 0) continue;
    launches++;
    if (a->launches[i].blocks >= blocks) blocks = a->launches[i].blocks, threads = a->launches[i].threads;
  }
  WEFT_TRY_NOTE(cli_ptxas(a->text, r->target->name, &registers), "the kernel of \"%s\"", fusion->name);
  double us = WEFT_MAX(price.bytes / r->target->memory_gb_s / 1000, LAUNCH_US * launches);
  r->bytes += price.bytes;
  r->us += us;
  printf("%-40s %-10s %8d %10" PRId64 " %7d %12" PRId64 " %14.0f %9.2f us", fusion->name,
         fusion->op == HLO_FUSION ? gen_strategy_name(a->strategy) : hlo_opcode_name(fusion->op), launches, blocks,
         threads, a->scratch_bytes, price.bytes, us);
  if (registers.most) printf(" %9d %7d\n", registers.most, registers.spilled);
  else printf(" %9s %7s\n", "-", "-");
  return NULL;
}

static weft_status *take_fusion(report *r, const hlo_instr *fusion)
{
  gen_artefact a;

  if (r->kernel && strcmp(r->kernel, fusion->name) != 0) return NULL;
  r->found = true;
  weft_status *st = gen_nvptx_compile_for(fusion, r->target, &r->options, &a);
  if (st && (weft_status_code(st) != WEFT_UNIMPLEMENTED || r->kernel)) return st;
  if (st) {
    printf("%-40s no kernel: %s\n", fusion->name, weft_status_message(st));
    r->refused++;
    weft_status_ignore(st);
    return NULL;
  }
  r->kernels++;
  if (r->kernel) print_launches(&a);
  else st = print_line(r, fusion, &a);
  gen_artefact_fini(&a);
  return st;
}

/* Steps that are not done by a kernel, but are work. */
static bool is_step(const hlo_instr *x)
{
  return x->op != HLO_PARAMETER && x->op != HLO_CONSTANT && x->op != HLO_TUPLE && !hlo_opcode_is_alias(x->op);
}

static weft_status *report_all(report *r, const hlo_module *module)
{
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, r->arena, &comps));
  if (!r->kernel) {
    printf("%s (%s): %d multiprocessors, %.0f GB/s, %.0f MHz\n", r->target->device, r->target->name, r->target->cores,
           r->target->memory_gb_s, r->target->clock_mhz);
    printf("%-40s %-10s %8s %10s %7s %12s %14s %12s %9s %7s\n", "kernel", "strategy", "launches", "blocks", "threads",
           "scratch", "bytes", "estimate", "registers", "spilled");
  }
  for (int i = 0; i < comps.count; i++)
    HLO_FOREACH(x, comps.v[i]) {
      if (gen_nvptx_takes(x)) WEFT_TRY(take_fusion(r, x));
      else if (is_step(x)) r->steps[x->op]++;
    }
  if (r->kernel)
    return r->found ? NULL
                    : WEFT_ERR(NOT_FOUND, "no fusion \"%s\" in the optimised module (see --optimized)", r->kernel);
  printf("%d kernels, %d without one, %.0f bytes, %.2f us at the least\n", r->kernels, r->refused, r->bytes, r->us);
  for (int op = 0; op < HLO_OPCODE_COUNT; op++)
    if (r->steps[op]) printf("no kernel: %-24s %6d\n", hlo_opcode_name((hlo_opcode)op), r->steps[op]);
  return NULL;
}

weft_status *cli_inspect_target(const cli_target_options *o, hlo_module *module)
{
  gen_target target;
  report r = {.target = &target, .kernel = o->kernel};
  weft_arena arena;

  WEFT_TRY(target_of(o->target, &target));
  WEFT_TRY(gen_options_load(&r.options));
  pass_options passes = {.has_solver = true, .has_blas = true, .has_dnn = true, .fold_limit_bytes = 1 << 20, .num_threads = 1, .target = &target};
  WEFT_TRY(pass_run(&pass_gpu_pipeline, module, &passes, o->observer, o->observer_ctx));
  if (o->optimized) WEFT_TRY(hlo_print(module, HLO_PRINT_DEFAULT, stdout));
  if (o->observer && !o->kernel && !o->kernels) return NULL;
  weft_arena_init(&arena);
  r.arena = &arena;
  weft_status *st = report_all(&r, module);
  weft_arena_fini(&arena);
  return st;
}
