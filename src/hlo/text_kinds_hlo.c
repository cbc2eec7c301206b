/* hlo/text_kinds_hlo.c -- kinds of attribute values that are HLO's own: windows and dimension labels, names of
 * computations and instructions, shapes, shardings, groups, aliasing, and what the module's header has. */
#include <config.h>

#include "hlo/text_kinds.h"

#include <inttypes.h>

/* ---- windows and convolutions ------------------------------------------------------------------------------------ */

/* high: 0 for a single number */
typedef struct window_part { const char *name; size_t low, high; int64_t usual; } window_part;
#define WINDOW_PART(name, field, usual) {name, offsetof(hlo_window_dim, field), 0, usual}
static const window_part window_parts[] = {
  WINDOW_PART("size", size, -1),
  WINDOW_PART("stride", stride, 1),
  {"pad", offsetof(hlo_window_dim, pad_low), offsetof(hlo_window_dim, pad_high), 0},
  WINDOW_PART("lhs_dilate", base_dilation, 1),
  WINDOW_PART("rhs_dilate", window_dilation, 1),
  {"rhs_reversal", offsetof(hlo_window_dim, reversal), 0, 0},
};
static bool is_reversal(const window_part *part) { return part->low == offsetof(hlo_window_dim, reversal); }

/* AxBx..., or lAxhA x...: one number, or two joined by `_`, for each dimension. */
static weft_status *read_window_part(hlo_reader *r, const window_part *part, hlo_window_dim *dims, int *rank)
{
  const char *at = r->p;
  int count = 0;

  do {
    char *dim = (char *)&dims[count];
    int64_t value;

    if (count == HLO_MAX_RANK) return hlo_rd_error(r, at, "more than %d dimensions", HLO_MAX_RANK);
    WEFT_TRY(hlo_rd_int(r, &value));
    if (is_reversal(part)) {
      dims[count].reversal = value != 0;
    } else {
      memcpy(dim + part->low, &value, sizeof value);
    }
    if (part->high) {
      WEFT_TRY(hlo_rd_expect(r, '_'));
      WEFT_TRY(hlo_rd_int(r, &value));
      memcpy(dim + part->high, &value, sizeof value);
    }
    count++;
  } while (r->p[-1] != '\n' && r->p[-1] != ' ' && hlo_rd_accept(r, 'x')) /* not the `x` of the next line's `x = ...` */;
  if (*rank != 0 && *rank != count) return hlo_rd_error(r, at, "window: %d dimensions here, %d before", count, *rank);
  *rank = count;
  return NULL;
}
static weft_status *read_window_dims(hlo_reader *r, hlo_window *window)
{
  hlo_window_dim dims[HLO_MAX_RANK];

  window->rank = 0;
  for (int i = 0; i < HLO_MAX_RANK; i++)
    dims[i] = (hlo_window_dim){.size = 1, .stride = 1, .window_dilation = 1, .base_dilation = 1};
  WEFT_TRY(hlo_rd_expect(r, '{'));
  while (!hlo_rd_at(r, '}')) {
    hlo_span word;
    size_t i = 0;

    WEFT_TRY(hlo_rd_word(r, "a property of the window", &word));
    while (i < WEFT_COUNT(window_parts) && !hlo_span_is(word, window_parts[i].name)) i++;
    if (i == WEFT_COUNT(window_parts))
      return hlo_rd_error(r, word.p, "expected size, stride, pad, lhs_dilate, rhs_dilate or rhs_reversal");
    WEFT_TRY(hlo_rd_expect(r, '='));
    WEFT_TRY(read_window_part(r, &window_parts[i], dims, &window->rank));
    hlo_rd_accept(r, ',');
  }
  window->dims = weft_arena_memdup(r->arena, dims, (size_t)window->rank * sizeof *dims);
  WEFT_TRY_ALLOC(window->dims);
  return hlo_rd_expect(r, '}');
}
static weft_status *read_window(hlo_reader *r, attr_value v) { return read_window_dims(r, v.field); }
static int64_t window_value(const hlo_window_dim *dim, const window_part *part, bool high)
{
  int64_t value;

  if (is_reversal(part)) return dim->reversal;
  memcpy(&value, (const char *)dim + (high ? part->high : part->low), sizeof value);
  return value;
}
static bool window_part_is_usual(const hlo_window *window, const window_part *part)
{
  for (int i = 0; i < window->rank; i++)
    if (window_value(&window->dims[i], part, false) != part->usual ||
        (part->high && window_value(&window->dims[i], part, true) != part->usual))
      return false;
  return true;
}
static void print_window(FILE *out, attr_value v)
{
  const hlo_window *window = v.field;
  const char *separator = "{";

  for (size_t p = 0; p < WEFT_COUNT(window_parts); p++) {
    const window_part *part = &window_parts[p];

    if (window_part_is_usual(window, part)) continue;
    fprintf(out, "%s%s=", separator, part->name);
    for (int i = 0; i < window->rank; i++) {
      fprintf(out, "%s%" PRId64, i ? "x" : "", window_value(&window->dims[i], part, false));
      if (part->high) fprintf(out, "_%" PRId64, window_value(&window->dims[i], part, true));
    }
    separator = " ";
  }
  fputs(*separator == '{' ? "{}" : "}", out);
}
const hlo_text_kind hlo_text_window = {read_window, hlo_list_is_empty, print_window};

/* dim_labels=b01f_01io->b01f: each group gives the roles of the dimensions of input, kernel and output in order; a
 * digit is a spatial dimension, `?` a dimension without a role. */
typedef struct label_group { char batch, feature; int64_t *batch_dim, *feature_dim; hlo_ints *spatial; } label_group;
enum { MAX_SPATIAL = 10 };

static weft_status *read_label_group(hlo_reader *r, const label_group *group)
{
  const char *at = r->p;
  int64_t spatial[MAX_SPATIAL];
  int64_t dim = 0;
  int seen = 0, count = 0;
  bool batch = false, feature = false;

  for (; *r->p && !strchr("_-, \t\r\n", *r->p); r->p++, dim++) {
    if (dim == HLO_MAX_RANK) return hlo_rd_error(r, at, "more than %d dimensions", HLO_MAX_RANK);
    if (*r->p == group->batch && !batch) {
      *group->batch_dim = dim;
      batch = true;
    } else if (*r->p == group->feature && !feature) {
      *group->feature_dim = dim;
      feature = true;
    } else if (*r->p >= '0' && *r->p <= '9' && !(seen >> (*r->p - '0') & 1)) {
      spatial[*r->p - '0'] = dim;
      seen |= 1 << (*r->p - '0');
      count++;
    } else if (*r->p != '?') {
      return hlo_rd_error(r, r->p, "dim_labels: expected each of %c, %c and the spatial dimensions 0, 1, ... once",
                          group->batch, group->feature);
    }
  }
  if (!batch || !feature || seen != (1 << count) - 1)
    return hlo_rd_error(r, at, "dim_labels: expected %c, %c and the spatial dimensions 0, 1, ...", group->batch,
                        group->feature);
  group->spatial->count = count;
  group->spatial->v = weft_arena_memdup(r->arena, spatial, (size_t)count * sizeof *spatial);
  WEFT_TRY_ALLOC(group->spatial->v);
  return NULL;
}
static void label_groups(hlo_conv_attrs *conv, label_group groups[3])
{
  groups[0] = (label_group){'b', 'f', &conv->lhs_batch, &conv->lhs_feature, &conv->lhs_spatial};
  groups[1] = (label_group){'i', 'o', &conv->rhs_in_feature, &conv->rhs_out_feature, &conv->rhs_spatial};
  groups[2] = (label_group){'b', 'f', &conv->out_batch, &conv->out_feature, &conv->out_spatial};
}
static weft_status *read_dim_labels(hlo_reader *r, attr_value v)
{
  const char *at = r->p;
  hlo_conv_attrs *conv = v.field;
  label_group groups[3];

  label_groups(conv, groups);
  for (int i = 0; i < 3; i++) {
    if (i == 1) WEFT_TRY(hlo_rd_expect(r, '_'));
    if (i == 2) WEFT_TRY(hlo_rd_expect_text(r, "->"));
    WEFT_TRY(read_label_group(r, &groups[i]));
  }
  if (conv->lhs_spatial.count != conv->rhs_spatial.count || conv->lhs_spatial.count != conv->out_spatial.count)
    return hlo_rd_error(r, at, "dim_labels: input, kernel and output have %d, %d and %d spatial dimensions",
                        conv->lhs_spatial.count, conv->rhs_spatial.count, conv->out_spatial.count);
  hlo_rd_space(r);
  return NULL;
}
/* A custom-call may have other attributes of a convolution, but no labels; then lhs_batch and lhs_feature are 0. */
static bool labels_are_absent(attr_value v)
{
  const hlo_conv_attrs *conv = v.field;

  return conv->lhs_batch == conv->lhs_feature;
}
static void print_dim_labels(FILE *out, attr_value v)
{
  static const char *const before[3] = {"", "_", "->"};
  label_group groups[3];

  label_groups((hlo_conv_attrs *)v.field, groups);
  for (int g = 0; g < 3; g++) {
    char labels[HLO_MAX_RANK + 1] = "";
    int64_t last = WEFT_MAX(*groups[g].batch_dim, *groups[g].feature_dim);

    for (int i = 0; i < groups[g].spatial->count; i++) last = WEFT_MAX(last, groups[g].spatial->v[i]);
    memset(labels, '?', (size_t)last + 1);
    labels[*groups[g].batch_dim] = groups[g].batch;
    labels[*groups[g].feature_dim] = groups[g].feature;
    for (int i = 0; i < groups[g].spatial->count; i++) labels[groups[g].spatial->v[i]] = (char)('0' + i);
    fprintf(out, "%s%s", before[g], labels);
  }
}
const hlo_text_kind hlo_text_dim_labels = {read_dim_labels, labels_are_absent, print_dim_labels};

/* ---- computations and instructions by name ----------------------------------------------------------------------- */

static weft_status *read_computation(hlo_reader *r, attr_value v)
{
  v.site->called = v.site->called_slots;
  v.site->called_count = WEFT_MAX(v.site->called_count, (int)v.attr->offset + 1);
  return hlo_rd_computation_ref(r, &v.site->called_slots[v.attr->offset]);
}
static void print_computation(FILE *out, attr_value v) { fputs(v.site->instr->called[v.attr->offset]->name, out); }
static bool computation_is_absent(attr_value v) { return (int)v.attr->offset >= v.site->instr->called_count; }
const hlo_text_kind hlo_text_computation = {read_computation, computation_is_absent, print_computation};

static weft_status *read_computation_item(hlo_reader *r, void *out) { return hlo_rd_computation_ref(r, out); }
static weft_status *read_computations(hlo_reader *r, attr_value v)
{
  struct { int count; hlo_computation **v; } list = {0};

  WEFT_TRY(hlo_rd_list(r, '{', '}', sizeof(hlo_computation *), read_computation_item, &list));
  v.site->called = list.v;
  v.site->called_count = list.count;
  return NULL;
}
static bool computations_are_absent(attr_value v) { return v.site->instr->called_count == 0; }
static void print_computations(FILE *out, attr_value v)
{
  fputc('{', out);
  for (int i = 0; i < v.site->instr->called_count; i++)
    fprintf(out, "%s%s", i ? ", " : "", v.site->instr->called[i]->name);
  fputc('}', out);
}
const hlo_text_kind hlo_text_computations = {read_computations, computations_are_absent, print_computations};

/* A conditional on a pred has one attribute for each branch; a conditional on an s32 has a list of branches. */
static bool on_pred(attr_value v)
{
  const hlo_instr *instr = v.site->instr;

  return instr->operand_count && instr->operands[0]->shape->type == WEFT_PRED && instr->called_count == 2;
}
static bool branch_is_absent(attr_value v) { return !on_pred(v); }
static bool branches_are_absent(attr_value v) { return on_pred(v); }
const hlo_text_kind hlo_text_branch = {read_computation, branch_is_absent, print_computation};
const hlo_text_kind hlo_text_branches = {read_computations, branches_are_absent, print_computations};

static weft_status *read_control_preds(hlo_reader *r, attr_value v)
{
  bool first = true;

  WEFT_TRY(hlo_rd_expect(r, '{'));
  for (; !hlo_rd_at(r, '}'); first = false) {
    hlo_instr *pred;

    if (!first) WEFT_TRY(hlo_rd_expect(r, ','));
    WEFT_TRY(hlo_rd_instr_ref(r, &pred));
    WEFT_TRY(hlo_add_control_edge(pred, v.site->instr));
  }
  return hlo_rd_expect(r, '}');
}
static void print_control_preds(FILE *out, attr_value v)
{
  fputc('{', out);
  for (int i = 0; i < v.site->instr->control->pred_count; i++)
    fprintf(out, "%s%s", i ? ", " : "", v.site->instr->control->preds[i]->name);
  fputc('}', out);
}
static bool has_no_control_preds(attr_value v) { return v.site->instr->control->pred_count == 0; }
const hlo_text_kind hlo_text_control_preds = {read_control_preds, has_no_control_preds, print_control_preds};

/* ---- shapes, literals, shardings, groups, aliases ---------------------------------------------------------------- */

static weft_status *read_shape(hlo_reader *r, attr_value v) { return hlo_rd_shape(r, v.field); }
static void print_shape(FILE *out, attr_value v) { hlo_pr_shape(out, *(const hlo_shape *const *)v.field); }
const hlo_text_kind hlo_text_shape = {read_shape, hlo_pointer_is_null, print_shape};

static weft_status *read_shape_item(hlo_reader *r, void *out) { return hlo_rd_shape(r, out); }
static weft_status *read_shapes(hlo_reader *r, attr_value v)
{
  return hlo_rd_list(r, '{', '}', sizeof(hlo_shape *), read_shape_item, v.field);
}
static void print_shapes(FILE *out, attr_value v)
{
  fputc('{', out);
  for (int i = 0; i < hlo_list_count(v.field); i++) {
    if (i) fputs(", ", out);
    hlo_pr_shape(out, HLO_LIST_ITEMS(v.field, hlo_shape *)[i]);
  }
  fputc('}', out);
}
const hlo_text_kind hlo_text_shapes = {read_shapes, hlo_list_is_empty, print_shapes};

/* Makes one tuple of the literals on the reader's stack above `mark`. */
static weft_status *take_tuple_literal(hlo_reader *r, size_t mark, const hlo_literal **out)
{
  hlo_literal *tuple = WEFT_ARENA_NEW(r->arena, hlo_literal);
  const hlo_shape **shapes;
  int count;

  WEFT_TRY_ALLOC(tuple);
  WEFT_TRY(hlo_rd_take(r, mark, sizeof *tuple->elements, &tuple->elements, &count));
  shapes = WEFT_ARENA_ARRAY(r->arena, const hlo_shape *, count);
  WEFT_TRY_ALLOC(shapes);
  for (int i = 0; i < count; i++) shapes[i] = tuple->elements[i]->shape;
  tuple->shape = hlo_shape_tuple(r->arena, count, shapes);
  WEFT_TRY_ALLOC(tuple->shape);
  *out = tuple;
  return NULL;
}
/* typed := shape literal | '(' [ typed {',' typed} ] ')' */
static weft_status *read_typed_literal(hlo_reader *r, int depth, const hlo_literal **out)
{
  size_t mark = r->stack_used;
  const hlo_shape *shape;

  if (!hlo_rd_at(r, '(')) {
    WEFT_TRY(hlo_rd_shape(r, &shape));
    return hlo_rd_literal(r, shape, out);
  }
  if (depth == HLO_MAX_TUPLE_DEPTH) return hlo_rd_error(r, r->p, "tuples nested over %d deep", HLO_MAX_TUPLE_DEPTH);
  hlo_rd_skip(r, 1);
  while (!hlo_rd_at(r, ')')) {
    const hlo_literal *element;

    if (r->stack_used > mark) WEFT_TRY(hlo_rd_expect(r, ','));
    WEFT_TRY(read_typed_literal(r, depth + 1, &element));
    WEFT_TRY(hlo_rd_push(r, &element, sizeof element));
  }
  WEFT_TRY(hlo_rd_expect(r, ')'));
  return take_tuple_literal(r, mark, out);
}
static weft_status *read_literal(hlo_reader *r, attr_value v) { return read_typed_literal(r, 0, v.field); }
static void print_typed_literal(FILE *out, const hlo_literal *literal)
{
  if (hlo_shape_is_tuple(literal->shape)) {
    for (int i = 0; i < literal->shape->rank; i++) {
      fputs(i ? ", " : "( ", out);
      print_typed_literal(out, literal->elements[i]);
    }
    fputs(literal->shape->rank ? " )" : "()", out);
    return;
  }
  hlo_pr_shape(out, literal->shape);
  if (hlo_shape_is_array(literal->shape) && !literal->shape->layout && literal->shape->rank > 0) {
    fputc('{', out); /* without a layout, the braces of the elements would be read as one */
    for (int i = literal->shape->rank - 1; i >= 0; i--) fprintf(out, "%d%s", i, i ? "," : "}");
  }
  fputc(' ', out);
  hlo_pr_literal(out, literal, 0);
}
static void print_literal(FILE *out, attr_value v) { print_typed_literal(out, *(const hlo_literal *const *)v.field); }
const hlo_text_kind hlo_text_literal = {read_literal, hlo_pointer_is_null, print_literal};

static weft_status *read_sharding(hlo_reader *r, attr_value v) { return hlo_rd_sharding(r, v.field); }
static void print_sharding(FILE *out, attr_value v) { hlo_pr_sharding(out, *(const hlo_sharding *const *)v.field); }
const hlo_text_kind hlo_text_sharding = {read_sharding, hlo_pointer_is_null, print_sharding};

/* domain={kind="sharding", entry={...}, exit={...}} */
static weft_status *read_domain(hlo_reader *r, attr_value v)
{
  const hlo_sharding **ends = v.field; /* entry, exit */
  const char *at, *kind;

  WEFT_TRY(hlo_rd_expect(r, '{'));
  WEFT_TRY(hlo_rd_expect_text(r, "kind="));
  at = r->p;
  WEFT_TRY(hlo_rd_string(r, &kind));
  if (strcmp(kind, "sharding") != 0) return hlo_rd_error(r, at, "the only kind of domain is \"sharding\"");
  WEFT_TRY(hlo_rd_expect(r, ','));
  WEFT_TRY(hlo_rd_expect_text(r, "entry="));
  WEFT_TRY(hlo_rd_sharding(r, &ends[0]));
  WEFT_TRY(hlo_rd_expect(r, ','));
  WEFT_TRY(hlo_rd_expect_text(r, "exit="));
  WEFT_TRY(hlo_rd_sharding(r, &ends[1]));
  return hlo_rd_expect(r, '}');
}
static void print_domain(FILE *out, attr_value v)
{
  const hlo_sharding *const *ends = v.field;

  fputs("{kind=\"sharding\", entry=", out);
  hlo_pr_sharding(out, ends[0]);
  fputs(", exit=", out);
  hlo_pr_sharding(out, ends[1]);
  fputc('}', out);
}
const hlo_text_kind hlo_text_domain = {read_domain, hlo_pointer_is_null, print_domain};

static weft_status *read_groups(hlo_reader *r, attr_value v) { return hlo_rd_replica_groups(r, v.field); }
static bool groups_are_usual(attr_value v)
{
  const hlo_replica_groups *groups = v.field;

  return groups->form == HLO_GROUPS_LIST && groups->group_count == 0;
}
static void print_groups(FILE *out, attr_value v) { hlo_pr_replica_groups(out, v.field); }
const hlo_text_kind hlo_text_groups = {read_groups, groups_are_usual, print_groups};

/* output_to_operand_aliasing={ {0}: (1, {}), ... } */
static weft_status *read_output_alias(hlo_reader *r, void *out)
{
  hlo_output_alias *alias = out;

  WEFT_TRY(hlo_rd_ints(r, '{', '}', &alias->output_index));
  WEFT_TRY(hlo_rd_expect(r, ':'));
  WEFT_TRY(hlo_rd_expect(r, '('));
  WEFT_TRY(hlo_rd_int_in(r, 0, INT32_MAX, &alias->operand));
  if (hlo_rd_accept(r, ',')) WEFT_TRY(hlo_rd_ints(r, '{', '}', &alias->operand_index));
  return hlo_rd_expect(r, ')');
}
static weft_status *read_output_aliases(hlo_reader *r, attr_value v)
{
  return hlo_rd_list(r, '{', '}', sizeof(hlo_output_alias), read_output_alias, v.field);
}
static void print_output_aliases(FILE *out, attr_value v)
{
  fputc('{', out);
  for (int i = 0; i < hlo_list_count(v.field); i++) {
    const hlo_output_alias *alias = &HLO_LIST_ITEMS(v.field, hlo_output_alias)[i];
    if (i) fputs(", ", out);
    hlo_pr_ints(out, '{', alias->output_index, '}');
    fprintf(out, ": (%" PRId64 ", ", alias->operand);
    hlo_pr_ints(out, '{', alias->operand_index, '}');
    fputc(')', out);
  }
  fputc('}', out);
}
const hlo_text_kind hlo_text_output_aliases = {read_output_aliases, hlo_list_is_empty, print_output_aliases};

/* cross_program_prefetch_index of copy-start; older: is_cross_program_prefetch=true */
static weft_status *read_prefetch_index(hlo_reader *r, attr_value v)
{
  v.site->instr->u.copy_start.is_prefetch = true;
  return hlo_rd_int_in(r, 0, INT32_MAX, &v.site->instr->u.copy_start.prefetch_index);
}
static bool prefetch_is_absent(attr_value v) { return !v.site->instr->u.copy_start.is_prefetch; }
static void print_prefetch_index(FILE *out, attr_value v)
{
  fprintf(out, "%" PRId64, v.site->instr->u.copy_start.prefetch_index);
}
const hlo_text_kind hlo_text_prefetch = {read_prefetch_index, prefetch_is_absent, print_prefetch_index};

/* ---- attributes of the module ------------------------------------------------------------------------------------ */

/* entry_computation_layout={(shape, ...)->shape} */
static weft_status *read_entry_layout(hlo_reader *r, attr_value v)
{
  hlo_module *module = v.site->module;
  struct { int count; const hlo_shape **v; } params = {0};

  WEFT_TRY(hlo_rd_expect(r, '{'));
  WEFT_TRY(hlo_rd_list(r, '(', ')', sizeof(hlo_shape *), read_shape_item, &params));
  WEFT_TRY(hlo_rd_expect_text(r, "->"));
  WEFT_TRY(hlo_rd_shape(r, &module->entry_result_shape));
  module->has_entry_layout = true;
  module->entry_param_shapes = params.v;
  r->entry_layout_params = params.count;
  return hlo_rd_expect(r, '}');
}
static bool entry_layout_is_absent(attr_value v) { return !v.site->module->has_entry_layout; }
static void print_entry_layout(FILE *out, attr_value v)
{
  const hlo_module *module = v.site->module;

  fputs("{(", out);
  for (int i = 0; i < module->entry->param_count; i++) {
    if (i) fputs(", ", out);
    if (i && i % 5 == 0) fprintf(out, "/*index=%d*/", i);
    hlo_pr_shape(out, module->entry_param_shapes[i]);
  }
  fputs(")->", out);
  hlo_pr_shape(out, module->entry_result_shape);
  fputc('}', out);
}
const hlo_text_kind hlo_text_entry_layout = {read_entry_layout, entry_layout_is_absent, print_entry_layout};

/* input_output_alias={ {1}: (0, {}, may-alias), ... } */
static weft_status *read_io_alias(hlo_reader *r, void *out)
{
  hlo_input_output_alias *alias = out;

  WEFT_TRY(hlo_rd_ints(r, '{', '}', &alias->output_index));
  WEFT_TRY(hlo_rd_expect(r, ':'));
  if (!hlo_rd_accept(r, '(')) return hlo_rd_int_in(r, 0, INT32_MAX, &alias->parameter); /* the oldest form */
  WEFT_TRY(hlo_rd_int_in(r, 0, INT32_MAX, &alias->parameter));
  if (hlo_rd_accept(r, ',')) WEFT_TRY(hlo_rd_ints(r, '{', '}', &alias->parameter_index));
  if (hlo_rd_accept(r, ',')) {
    alias->must_alias = hlo_rd_accept_word(r, "must-alias");
    if (!alias->must_alias && !hlo_rd_accept_word(r, "may-alias")) return hlo_rd_expected(r, "may-alias or must-alias");
  }
  return hlo_rd_expect(r, ')');
}
static weft_status *read_io_aliases(hlo_reader *r, attr_value v)
{
  struct { int count; const hlo_input_output_alias *v; } list = {0};

  WEFT_TRY(hlo_rd_list(r, '{', '}', sizeof *list.v, read_io_alias, &list));
  v.site->module->alias_count = list.count;
  v.site->module->aliases = list.v;
  return NULL;
}
static bool io_aliases_are_absent(attr_value v) { return v.site->module->alias_count == 0; }
static void print_io_aliases(FILE *out, attr_value v)
{
  for (int i = 0; i < v.site->module->alias_count; i++) {
    const hlo_input_output_alias *alias = &v.site->module->aliases[i];
    fputs(i ? ", " : "{ ", out);
    hlo_pr_ints(out, '{', alias->output_index, '}');
    fprintf(out, ": (%" PRId64 ", ", alias->parameter);
    hlo_pr_ints(out, '{', alias->parameter_index, '}');
    fputs(alias->must_alias ? ", must-alias)" : ", may-alias)", out);
  }
  fputs(" }", out);
}
const hlo_text_kind hlo_text_io_aliases = {read_io_aliases, io_aliases_are_absent, print_io_aliases};

/* buffer_donor={ (0, {}), ... } */
static weft_status *read_donor(hlo_reader *r, void *out)
{
  hlo_buffer_donor *donor = out;

  WEFT_TRY(hlo_rd_expect(r, '('));
  WEFT_TRY(hlo_rd_int_in(r, 0, INT32_MAX, &donor->parameter));
  if (hlo_rd_accept(r, ',')) WEFT_TRY(hlo_rd_ints(r, '{', '}', &donor->parameter_index));
  return hlo_rd_expect(r, ')');
}
static weft_status *read_donors(hlo_reader *r, attr_value v)
{
  struct { int count; const hlo_buffer_donor *v; } list = {0};

  WEFT_TRY(hlo_rd_list(r, '{', '}', sizeof *list.v, read_donor, &list));
  v.site->module->donor_count = list.count;
  v.site->module->donors = list.v;
  return NULL;
}
static bool donors_are_absent(attr_value v) { return v.site->module->donor_count == 0; }
static void print_donors(FILE *out, attr_value v)
{
  for (int i = 0; i < v.site->module->donor_count; i++) {
    fprintf(out, "%s(%" PRId64 ", ", i ? ", " : "{ ", v.site->module->donors[i].parameter);
    hlo_pr_ints(out, '{', v.site->module->donors[i].parameter_index, '}');
    fputc(')', out);
  }
  fputs(" }", out);
}
const hlo_text_kind hlo_text_donors = {read_donors, donors_are_absent, print_donors};
