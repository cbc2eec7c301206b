/* hlo/text_print.c -- a module as HLO text, in the form that text_parse.c describes. */
#include <config.h>

#include "hlo/text_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <stdlib.h>

#include "hlo/frames.h"

void hlo_pr_shape(FILE *out, const hlo_shape *shape) { hlo_shape_print(shape, true, out); }

void hlo_pr_ints(FILE *out, char open, hlo_ints ints, char close)
{
  fputc(open, out);
  for (int i = 0; i < ints.count; i++) fprintf(out, "%s%" PRId64, i ? "," : "", ints.v[i]);
  fputc(close, out);
}

void hlo_pr_string(FILE *out, const char *text)
{
  fputc('"', out);
  for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
    switch (*p) {
    case '\n': fputs("\\n", out); break;
    case '\r': fputs("\\r", out); break;
    case '\t': fputs("\\t", out); break;
    case '"': fputs("\\\"", out); break;
    case '\\': fputs("\\\\", out); break;
    default:
      if (*p < 0x20 || *p >= 0x7f) fprintf(out, "\\%03o", *p);
      else fputc(*p, out);
    }
  }
  fputc('"', out);
}

enum { LARGE_CONSTANT = 10 /* elements: constants of more are printed as {...} unless large_constants */ };

static void print_operands(FILE *out, const hlo_instr *instr, hlo_print_options options)
{
  for (int i = 0; i < instr->operand_count; i++) {
    if (i) fputs(", ", out);
    if (i && i % 5 == 0) fprintf(out, "/*index=%d*/", i);
    if (options.operand_shapes) {
      hlo_pr_shape(out, instr->operands[i]->shape);
      fputc(' ', out);
    }
    if (options.percent) fputc('%', out);
    fputs(instr->operands[i]->name, out);
  }
}

static void print_instr(FILE *out, const hlo_instr *instr, hlo_print_options options)
{
  if (options.percent) fputc('%', out);
  fprintf(out, "%s = ", instr->name);
  hlo_pr_shape(out, instr->shape);
  fprintf(out, " %s(", hlo_opcode_name(instr->op));
  if (instr->op == HLO_PARAMETER) fprintf(out, "%" PRId64, instr->u.parameter_number);
  else if (instr->op == HLO_CONSTANT)
    hlo_pr_literal(out, instr->u.literal, options.large_constants ? 0 : LARGE_CONSTANT);
  else print_operands(out, instr, options);
  fputc(')', out);
  hlo_pr_attributes(out, instr, options);
}

static void print_computation(FILE *out, const hlo_computation *comp, hlo_print_options options)
{
  fprintf(out, "%s%s%s {\n", comp == comp->module->entry ? "ENTRY " : "", options.percent ? "%" : "", comp->name);
  HLO_FOREACH(instr, comp) {
    fputs(instr == comp->root ? "  ROOT " : "  ", out);
    print_instr(out, instr, options);
    fputc('\n', out);
  }
  fputc('}', out);
  if (comp->execution_thread) {
    fputs(", execution_thread=", out);
    hlo_pr_string(out, comp->execution_thread);
  }
  fputc('\n', out);
}

static void print_stack_frames(FILE *out, const hlo_stack_frames *f)
{
  const struct { const char *title; int count; const char **names; } lists[] = {
    {"FileNames", f->file_count, f->files}, {"FunctionNames", f->function_count, f->functions},
  };

  for (size_t l = 0; l < WEFT_COUNT(lists); l++) {
    fprintf(out, "\n%s\n", lists[l].title);
    for (int i = 0; i < lists[l].count; i++) {
      fprintf(out, "%d ", i + 1);
      hlo_pr_string(out, lists[l].names[i]);
      fputc('\n', out);
    }
  }
  fputs("\nFileLocations\n", out);
  for (int i = 0; i < f->location_count; i++) {
    const struct hlo_file_location *l = &f->locations[i];
    fprintf(out, "%d {file_name_id=%d function_name_id=%d line=%d end_line=%d column=%d end_column=%d}\n", i + 1,
            l->file, l->function, l->line, l->end_line, l->column, l->end_column);
  }
  fputs("\nStackFrames\n", out);
  for (int i = 0; i < f->frame_count; i++)
    fprintf(out, "%d {file_location_id=%d parent_frame_id=%d}\n", i + 1, f->frames[i].location, f->frames[i].parent);
}

/* In the C locale numbers have points, not commas, whatever the caller's locale. */
static weft_status *begin_output(locale_t *plain, locale_t *callers)
{
  *plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  WEFT_TRY_ALLOC(*plain);
  *callers = uselocale(*plain);
  return NULL;
}

static weft_status *end_output(locale_t plain, locale_t callers, FILE *out)
{
  uselocale(callers);
  freelocale(plain);
  return ferror(out) ? WEFT_ERR(RESOURCE_EXHAUSTED, "cannot write HLO text: %s", strerror(errno)) : NULL;
}

weft_status *hlo_print(const hlo_module *module, hlo_print_options options, FILE *out)
{
  locale_t plain, callers;

  WEFT_TRY(begin_output(&plain, &callers));
  fprintf(out, "HloModule %s", module->name);
  hlo_pr_module_attributes(out, module);
  fputc('\n', out);
  if (module->stack_frames && options.metadata) print_stack_frames(out, module->stack_frames);
  HLO_FOREACH_COMPUTATION(comp, module) {
    fputc('\n', out);
    print_computation(out, comp, options);
  }
  return end_output(plain, callers, out);
}

weft_status *hlo_print_literal(const hlo_literal *literal, FILE *out)
{
  locale_t plain, callers;

  WEFT_TRY(begin_output(&plain, &callers));
  hlo_pr_literal(out, literal, 0);
  return end_output(plain, callers, out);
}

weft_status *hlo_print_to_string(const hlo_module *module, hlo_print_options options, char **out_text, size_t *out_size)
{
  char *text = NULL;
  FILE *out = open_memstream(&text, out_size);
  weft_status *st;

  *out_text = NULL;
  WEFT_TRY_ALLOC(out);
  st = hlo_print(module, options, out);
  if (fclose(out) != 0 && !st) st = WEFT_ERR(RESOURCE_EXHAUSTED, "cannot write HLO text: %s", strerror(errno));
  if (st) free(text);
  else *out_text = text;
  return st;
}
