/* cli/page.c -- the data of the page that shows a program in a browser (page.h).
 *
 * Lists of many records are arrays of arrays, whose columns stand in the comment above the function that writes them;
 * page.html reads the same columns. */
#include <config.h>

#include "cli/page.h"

#include <errno.h>
#include <string.h>

#include "base/svg.h"
#include "codegen/codegen.h"

#include "cli/page_html.h"

enum {
  DIFF_BYTES = 2 << 20,     /* of all differences of passes together */
  LINE_BYTES = 160,         /* of a line of a difference, as a mean */
  MOST_INSTRUCTIONS = 15000,
  LONGEST_NAME = 240,
};

/* Where the data stands in page.html. */
static const char mark[] = "\"DATA\"";

typedef struct writer {
  cli_json json;
  const hlo_module *module;
  const hlo_metadata **sources; /* the different ones, in the order of their first use */
  int source_count;
  int *number_of;               /* by instruction id: its place in its computation */
  int *computation_of;          /* by computation id: its place in the page; -1: left out */
  bool *is_body;                /* by computation id: of a fusion, a reduction or the like */
} writer;

static void put_families(cli_json *json)
{
  cli_json_array(json, "families");
  for (int i = 0; i < WEFT_SVG_FAMILIES; i++) {
    cli_json_object(json, NULL);
    cli_json_text(json, "name", weft_svg_families[i].name);
    cli_json_text(json, "colour", weft_svg_families[i].colour);
    cli_json_end_object(json);
  }
  cli_json_end_array(json);
}

/* ---- the graph ---- */

enum { RECENT = 64 };

/* The number of the instruction's source; -1: it has none. Neighbours often share a source, so that only the RECENT
 * last ones are looked at. */
static int source_of(writer *w, const hlo_instr *instr)
{
  const hlo_metadata *m = instr->metadata;

  if (!m || (!m->op_name && !m->source_file)) return -1;
  for (int i = w->source_count - 1; i >= WEFT_MAX(w->source_count - RECENT, 0); i--)
    if (w->sources[i] == m) return i;
  w->sources[w->source_count] = m;
  return w->source_count++;
}

/* name, opcode, family, shape, operands (numbers in the computation), called computations, source */
static void put_instruction(writer *w, const hlo_instr *instr)
{
  cli_json *json = &w->json;
  char shape[LONGEST_NAME];

  cli_json_array(json, NULL);
  cli_json_text(json, NULL, instr->name);
  cli_json_text(json, NULL, hlo_opcode_name(instr->op));
  cli_json_int(json, NULL, weft_svg_family_of(hlo_opcode_name(instr->op)));
  cli_json_text(json, NULL, hlo_shape_format(instr->shape, shape, sizeof shape));
  cli_json_array(json, NULL);
  for (int i = 0; i < instr->operand_count; i++) cli_json_int(json, NULL, w->number_of[instr->operands[i]->id]);
  cli_json_end_array(json);
  cli_json_array(json, NULL);
  for (int i = 0; i < instr->called_count; i++)
    if (w->computation_of[instr->called[i]->id] >= 0) cli_json_int(json, NULL, w->computation_of[instr->called[i]->id]);
  cli_json_end_array(json);
  cli_json_int(json, NULL, source_of(w, instr));
  cli_json_end_array(json);
}

/* Marks the computations that a fusion, a reduction or the like calls: they are no steps of their own. */
static void find_bodies(writer *w)
{
  HLO_FOREACH_COMPUTATION(comp, w->module)
    HLO_FOREACH(instr, comp) {
      bool is_body = instr->op == HLO_FUSION || hlo_calls_are_embedded(instr->op);
      for (int i = 0; is_body && i < instr->called_count; i++) w->is_body[instr->called[i]->id] = true;
    }
}

/* Numbers the computations that the page shows: all that are not bodies of fusions, then bodies of fusions while there
 * is room. Returns the number of computations left out. */
static int choose_computations(writer *w)
{
  int chosen = 0, left_out = 0, instructions = 0;

  for (int bodies = 0; bodies < 2; bodies++)
    HLO_FOREACH_COMPUTATION(comp, w->module) {
      int number = 0;
      if (w->is_body[comp->id] != bodies) continue;
      HLO_FOREACH(instr, comp) w->number_of[instr->id] = number++;
      bool fits = comp == w->module->entry || instructions + comp->instr_count <= MOST_INSTRUCTIONS;
      w->computation_of[comp->id] = fits ? chosen++ : -1;
      left_out += !fits;
      if (fits) instructions += comp->instr_count;
    }
  return left_out;
}

static void put_computations(writer *w)
{
  cli_json *json = &w->json;
  int left_out;

  find_bodies(w);
  left_out = choose_computations(w);

  cli_json_int(json, "entry", w->computation_of[w->module->entry->id]);
  cli_json_int(json, "computations_left_out", left_out);
  cli_json_array(json, "computations");
  for (int bodies = 0; bodies < 2; bodies++) /* the same order as choose_computations */
    HLO_FOREACH_COMPUTATION(comp, w->module) {
      if (w->is_body[comp->id] != bodies || w->computation_of[comp->id] < 0) continue;
      cli_json_object(json, NULL);
      cli_json_text(json, "name", comp->name);
      cli_json_array(json, "instructions");
      HLO_FOREACH(instr, comp) put_instruction(w, instr);
      cli_json_end_array(json);
      cli_json_end_object(json);
    }
  cli_json_end_array(json);
}

/* operation, file, line */
static void put_sources(writer *w)
{
  cli_json *json = &w->json;

  cli_json_array(json, "sources");
  for (int i = 0; i < w->source_count; i++) {
    const hlo_metadata *m = w->sources[i];
    cli_json_array(json, NULL);
    cli_json_text(json, NULL, m->op_name ? m->op_name : "");
    cli_json_text(json, NULL, m->source_file ? m->source_file : "");
    cli_json_int(json, NULL, m->source_line);
    cli_json_end_array(json);
  }
  cli_json_end_array(json);
}

/* ---- the memory plan ---- */

/* name, family, shape, offset, bytes, first step, last step */
static void put_buffers(const buf_plan *plan, cli_json *json)
{
  cli_json_array(json, "buffers");
  for (int i = 0; i < buf_plan_buffer_count(plan); i++) {
    buf_placed b;
    char shape[LONGEST_NAME] = "scratch";
    if (!buf_plan_buffer(plan, i, &b)) continue;
    if (!b.is_scratch) hlo_shape_format(hlo_shape_leaf(b.instr->shape, b.leaf), shape, sizeof shape);
    cli_json_array(json, NULL);
    cli_json_text(json, NULL, b.instr->name);
    cli_json_int(json, NULL, weft_svg_family_of(b.is_scratch ? "scratch" : hlo_opcode_name(b.instr->op)));
    cli_json_text(json, NULL, shape);
    cli_json_int(json, NULL, b.offset);
    cli_json_int(json, NULL, b.bytes);
    cli_json_int(json, NULL, b.first_step);
    cli_json_int(json, NULL, b.last_step);
    cli_json_end_array(json);
  }
  cli_json_end_array(json);
}

/* name, shape, bytes; "parameters" of the entry and "results", which are the leaves of its root */
static void put_leaves(const hlo_instr *const *instrs, int count, const char *key, cli_json *json)
{
  cli_json_array(json, key);
  for (int i = 0; i < count; i++)
    for (int leaf = 0; leaf < hlo_shape_leaf_count(instrs[i]->shape); leaf++) {
      const hlo_shape *shape = hlo_shape_leaf(instrs[i]->shape, leaf);
      char text[LONGEST_NAME];
      cli_json_array(json, NULL);
      cli_json_text(json, NULL, instrs[i]->name);
      cli_json_text(json, NULL, hlo_shape_format(shape, text, sizeof text));
      cli_json_int(json, NULL, hlo_shape_is_array(shape) ? hlo_shape_bytes(shape) : 0);
      cli_json_end_array(json);
    }
  cli_json_end_array(json);
}

static void put_memory(const buf_plan *plan, cli_json *json)
{
  const hlo_computation *entry = buf_plan_module(plan)->entry;
  const hlo_instr *root = entry->root;

  cli_json_object(json, "memory");
  cli_show_sizes(plan, json);
  put_leaves((const hlo_instr *const *)entry->params, entry->param_count, "parameters", json);
  put_leaves(&root, 1, "results", json);
  put_buffers(plan, json);
  cli_json_end_object(json);
}

/* ---- steps ---- */

/* sequence, kind, family, name, detail, estimated microseconds, rounds of a loop (-1: not known) */
static void put_step(void *ctx, const weft_step *step)
{
  cli_json *json = ctx;

  cli_json_array(json, NULL);
  cli_json_text(json, NULL, step->sequence);
  cli_json_text(json, NULL, step->kind);
  cli_json_int(json, NULL, weft_svg_family_of(step->kind));
  cli_json_text(json, NULL, step->name);
  cli_json_text(json, NULL, step->detail);
  cli_json_number(json, NULL, step->cost_ns / 1e3);
  cli_json_int(json, NULL, step->trips);
  cli_json_end_array(json);
}

/* ---- the page ---- */

static size_t lines_per_pass(const cli_passes *passes)
{
  int changed = 0;

  for (int i = 0; i < passes->count; i++) changed += passes->list[i].diff.count > 0;
  return DIFF_BYTES / LINE_BYTES / (size_t)WEFT_MAX(changed, 1);
}

static void put_data(writer *w, const cli_page *page)
{
  const cli_compiled *compiled = page->compiled;
  const buf_plan *plan = weft_executable_plan(compiled->exe);
  cli_json *json = &w->json;

  cli_json_object(json, NULL);
  cli_json_text(json, "program", page->program);
  cli_json_text(json, "module", w->module->name);
  cli_json_text(json, "version", PACKAGE_VERSION);
  cli_json_text(json, "target", gen_target_description());
  put_families(json);
  cli_passes_json(&compiled->passes, lines_per_pass(&compiled->passes), json);
  put_computations(w);
  put_sources(w);
  put_memory(plan, json);
  cli_json_array(json, "steps");
  weft_executable_each_step(compiled->exe, put_step, json);
  cli_json_end_array(json);
  if (page->profile) cli_profile_page(page->profile, json);
  cli_json_end_object(json);
}

static weft_status *write_data(const cli_page *page, FILE *out)
{
  const hlo_module *module = weft_executable_module(page->compiled->exe);
  weft_arena arena;
  writer w = {.json = {.out = out}, .module = module};

  weft_arena_init(&arena);
  w.sources = WEFT_ARENA_ARRAY(&arena, const hlo_metadata *, module->next_id + 1);
  w.number_of = WEFT_ARENA_ARRAY(&arena, int, module->next_id + 1);
  w.computation_of = WEFT_ARENA_ARRAY(&arena, int, module->next_computation_id + 1);
  w.is_body = WEFT_ARENA_ARRAY(&arena, bool, module->next_computation_id + 1);
  bool has_room = w.sources && w.number_of && w.computation_of && w.is_body;
  if (has_room) put_data(&w, page);
  weft_arena_fini(&arena);
  return has_room ? NULL : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
}

static weft_status *write_page(const cli_page *page, FILE *out)
{
  const char *text = (const char *)page_html, *hole = memmem(text, sizeof page_html, mark, sizeof mark - 1);
  size_t before = (size_t)(hole - text), after = sizeof page_html - before - (sizeof mark - 1);

  fwrite(text, 1, before, out);
  WEFT_TRY(write_data(page, out));
  fwrite(hole + sizeof mark - 1, 1, after, out);
  return NULL;
}

weft_status *cli_page_write(const char *path, const cli_page *page)
{
  FILE *out = fopen(path, "we");
  weft_status *st;
  bool failed;

  if (!out) return WEFT_ERR(INVALID_ARGUMENT, "cannot write %s: %s", path, strerror(errno));
  st = write_page(page, out);
  failed = ferror(out) != 0;
  failed |= fclose(out) != 0;
  return failed && !st ? WEFT_ERR(INVALID_ARGUMENT, "cannot write %s: %s", path, strerror(errno)) : st;
}
