/* cli/compiled.c -- a program compiled by this command itself (compiled.h). */
#include <config.h>

#include "cli/compiled.h"

#include "cli/program.h"
#include "platform/registry.h"

enum { MOST_DEVICES = 4096 };

weft_status *cli_compile(hlo_module *module, int devices, weft_compile_options *options, cli_compiled *out)
{
  WEFT_AUTO(hlo_module) mine = module;
  weft_platform_options platform = {0};
  weft_status *st;

  cli_counts(mine, devices, &options->replica_count, &options->partition_count);
  platform.device_count = (int)WEFT_MIN(options->replica_count * options->partition_count, MOST_DEVICES);
  WEFT_TRY(plat_new(&platform, &out->platform));
  WEFT_TRY(cli_passes_begin(&out->passes, mine));
  options->pass_observer = cli_passes_observe;
  options->observer_ctx = &out->passes;
  st = weft_compile(out->platform, WEFT_MOVE(mine), options, &out->exe);
  return st ? st : WEFT_MOVE(out->passes.st);
}

void cli_compiled_fini(cli_compiled *c)
{
  weft_executable_release(c->exe);
  weft_platform_release(c->platform);
  cli_passes_fini(&c->passes);
}

/* ---- the memory plan ---- */

void cli_show_sizes(const buf_plan *plan, cli_json *json)
{
  const buf_stats *s = buf_plan_stats(plan);
  int64_t peak_bytes;
  int peak = buf_plan_peak_step(plan, &peak_bytes);

  cli_json_int(json, "parameter_bytes", s->parameter_bytes);
  cli_json_int(json, "constant_bytes", s->constant_bytes);
  cli_json_int(json, "output_bytes", s->output_bytes);
  cli_json_int(json, "alias_bytes", s->alias_bytes);
  cli_json_int(json, "temp_bytes", s->temp_bytes);
  cli_json_int(json, "lower_bound_bytes", s->lower_bound_bytes);
  cli_json_number(json, "fragmentation", s->fragmentation);
  cli_json_int(json, "steps", buf_plan_step_count(plan));
  cli_json_int(json, "peak_step", peak);
  cli_json_int(json, "peak_bytes", peak_bytes);
  cli_json_int(json, "reused_buffers", s->reused_count);
  cli_json_int(json, "added_dependences", s->added_edge_count);
  cli_json_number(json, "critical_path_by_data_us", s->critical_path_free / 1e3);
  cli_json_number(json, "critical_path_us", s->critical_path / 1e3);
  cli_json_number(json, "work_us", s->total_cost / 1e3);
}

static void put_outside(const buf_plan *plan, buf_alloc_kind kind, const char *key, cli_json *json)
{
  cli_json_array(json, key);
  for (int a = 0; a < buf_plan_alloc_count(plan); a++) {
    const buf_alloc *alloc = buf_plan_alloc(plan, a);
    if (alloc->kind != kind) continue;
    cli_json_object(json, NULL);
    if (kind == BUF_PARAMETER) cli_json_int(json, "leaf", alloc->param_leaf);
    if (kind == BUF_PARAMETER) cli_json_bool(json, "written", alloc->written);
    cli_json_int(json, "bytes", alloc->bytes);
    cli_json_end_object(json);
  }
  cli_json_end_array(json);
}

static void put_buffer(const buf_placed *b, cli_json *json)
{
  char shape[256];

  cli_json_object(json, NULL);
  cli_json_text(json, "name", b->instr->name);
  cli_json_text(json, "kind", b->is_scratch ? "scratch" : hlo_opcode_name(b->instr->op));
  if (!b->is_scratch)
    cli_json_text(json, "shape", hlo_shape_format(hlo_shape_leaf(b->instr->shape, b->leaf), shape, sizeof shape));
  cli_json_int(json, "offset", b->offset);
  cli_json_int(json, "bytes", b->bytes);
  cli_json_int(json, "first_step", b->first_step);
  cli_json_int(json, "last_step", b->last_step);
  cli_json_end_object(json);
}

void cli_show_memory(const buf_plan *plan, cli_json *json)
{
  cli_json_object(json, "memory");
  cli_show_sizes(plan, json);
  put_outside(plan, BUF_PARAMETER, "parameters", json);
  put_outside(plan, BUF_OUTPUT, "results", json);
  cli_json_array(json, "buffers");
  for (int b = 0; b < buf_plan_buffer_count(plan); b++) {
    buf_placed buffer;
    if (buf_plan_buffer(plan, b, &buffer)) put_buffer(&buffer, json);
  }
  cli_json_end_array(json);
  cli_json_end_object(json);
}

/* ---- steps ---- */

static void put_step(void *ctx, const weft_step *step)
{
  cli_json *json = ctx;

  cli_json_object(json, NULL);
  cli_json_text(json, "sequence", step->sequence);
  cli_json_text(json, "kind", step->kind);
  cli_json_text(json, "name", step->name);
  if (step->detail) cli_json_text(json, "detail", step->detail);
  cli_json_number(json, "cost_us", step->cost_ns / 1e3);
  cli_json_bool(json, "splits", step->splits);
  if (step->trips >= 0) cli_json_int(json, "trips", step->trips);
  if (step->called_count > 0) {
    cli_json_array(json, "calls");
    for (int i = 0; i < step->called_count; i++) cli_json_text(json, NULL, step->called[i]);
    cli_json_end_array(json);
  }
  cli_json_array(json, "waited_for_by");
  for (int i = 0; i < step->successor_count; i++) cli_json_int(json, NULL, step->successors[i]);
  cli_json_end_array(json);
  cli_json_end_object(json);
}

static void put_sequence(void *ctx, const weft_sequence *sequence)
{
  cli_json *json = ctx;

  cli_json_object(json, NULL);
  cli_json_text(json, "name", sequence->name);
  cli_json_bool(json, "entry", sequence->is_entry);
  cli_json_bool(json, "in_order", sequence->in_order);
  cli_json_int(json, "steps", sequence->step_count);
  cli_json_int(json, "dependences", sequence->dependence_count);
  cli_json_number(json, "work_us", sequence->work_ns / 1e3);
  cli_json_number(json, "longest_path_us", sequence->path_ns / 1e3);
  cli_json_end_object(json);
}

void cli_show_steps(const weft_executable *exe, cli_json *json)
{
  cli_json_array(json, "sequences");
  weft_executable_each_sequence(exe, put_sequence, json);
  cli_json_end_array(json);
  cli_json_array(json, "steps");
  weft_executable_each_step(exe, put_step, json);
  cli_json_end_array(json);
}
