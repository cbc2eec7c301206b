/* hlo/text_attrs.c -- the attributes of instructions and modules in text: a walk over the schema (attributes.h).
 *
 * An opcode has its own attributes, in the order in which they print; every instruction may have the common ones. */
#include <config.h>

#include "hlo/text_kinds.h"

static const hlo_text_kind *text_kind(hlo_attr_kind kind)
{
  static const hlo_text_kind *const kinds[HLO_ATTR_KIND_COUNT] = {
#define K(KIND, text, proto, compare) [HLO_KIND_##KIND] = &hlo_text_##text,
    HLO_ATTR_KINDS(K)
#undef K
  };

  return kinds[kind];
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static void *field_of(const attr_site *site, const hlo_attr *attr, const hlo_extra *extra)
{
  return attr->base == HLO_IN_MODULE ? (char *)site->module + attr->offset : hlo_attr_field(attr, site->instr, extra);
}

static weft_status *read_attr(hlo_reader *r, attr_site *site, const hlo_attr *attr)
{
  if (attr->base == HLO_IN_CUSTOM_CONV) WEFT_TRY(hlo_init_custom_conv(site->instr));
  if (attr->base == HLO_IN_EXTRA) site->has_extra = true;
  return text_kind(attr->kind)->read(r, (attr_value){site, attr, field_of(site, attr, &site->extra)});
}

static int find_attr(const hlo_attr_family *list, hlo_span name)
{
  for (int i = 0; i < list->count; i++)
    if (list->attrs[i].name && hlo_span_is(name, list->attrs[i].name)) return i;
  return -1;
}

/* Reads one `name=value` as an attribute of the first list that has the name.  seen[i] has a bit for each attribute
 * of lists[i]. */
static weft_status *read_one(hlo_reader *r, int list_count, const hlo_attr_family *const *lists,
                             attr_site *const *sites, uint64_t *seen, const char *owner)
{
  hlo_span name;

  WEFT_TRY(hlo_rd_word(r, "an attribute", &name));
  for (int l = 0; l < list_count; l++) {
    int i = find_attr(lists[l], name);

    if (i < 0) continue;
    if (seen[l] >> i & 1) return hlo_rd_error(r, name.p, "%s is given twice", lists[l]->attrs[i].name);
    seen[l] |= UINT64_C(1) << i;
    WEFT_TRY(hlo_rd_expect(r, '='));
    return read_attr(r, sites[l], &lists[l]->attrs[i]);
  }
  return hlo_rd_error(r, name.p, "%s has no attribute \"%.*s\"", owner, (int)WEFT_MIN(name.length, 60u), name.p);
}

static weft_status *check_required(const hlo_reader *r, const char *at, const hlo_attr_family *list, uint64_t seen,
                                   const char *owner)
{
  for (int i = 0; i < list->count; i++)
    if (list->attrs[i].flags & HLO_ATTR_REQUIRED && !(seen >> i & 1))
      return hlo_rd_error(r, at, "%s needs the attribute \"%s\"", owner, list->attrs[i].name);
  return NULL;
}

/* Moves the called computations and extra attributes, which were collected in the site, into the instruction. */
static weft_status *finish_site(hlo_reader *r, attr_site *site)
{
  hlo_instr *instr = site->instr;

  for (int i = 0; i < site->called_count; i++)
    if (!site->called[i]) return hlo_rd_error(r, r->p, "%s lacks a called computation", hlo_opcode_name(instr->op));
  if (site->called_count) WEFT_TRY(hlo_set_called(instr, site->called_count, site->called));
  if (site->has_extra) {
    instr->extra = weft_arena_memdup(r->arena, &site->extra, sizeof site->extra);
    WEFT_TRY_ALLOC(instr->extra);
  }
  return NULL;
}

weft_status *hlo_rd_attributes(hlo_reader *r, hlo_instr *instr)
{
  const char *at = r->p, *owner = hlo_opcode_name(instr->op);
  attr_site site = {.instr = instr};
  attr_site *const sites[] = {&site, &site};
  const hlo_attr_family *const lists[] = {hlo_attrs_of(instr->op), hlo_common_attrs()};
  uint64_t seen[2] = {0};

  while (hlo_rd_accept(r, ',')) WEFT_TRY(read_one(r, 2, lists, sites, seen, owner));
  WEFT_TRY(check_required(r, at, lists[0], seen[0], owner));
  return finish_site(r, &site);
}

weft_status *hlo_rd_async_attributes(hlo_reader *r, hlo_instr *instr, hlo_instr *wrapped)
{
  const char *at = r->p, *owner = hlo_opcode_name(wrapped->op);
  attr_site outer = {.instr = instr}, inner = {.instr = wrapped};
  attr_site *const sites[] = {&outer, &inner, &outer};
  /* output_to_operand_aliasing exists for both: the start's list stands first, so the attribute is the start's */
  const hlo_attr_family start = {instr->op == HLO_ASYNC_START, hlo_attrs_of(HLO_ASYNC_START)->attrs, NULL};
  const hlo_attr_family *const lists[] = {&start, hlo_attrs_of(wrapped->op), hlo_common_attrs()};
  uint64_t seen[3] = {0};

  while (hlo_rd_accept(r, ',')) WEFT_TRY(read_one(r, 3, lists, sites, seen, owner));
  if (instr->op == HLO_ASYNC_START) WEFT_TRY(check_required(r, at, lists[1], seen[1], owner));
  WEFT_TRY(finish_site(r, &inner));
  return finish_site(r, &outer);
}

weft_status *hlo_rd_module_attributes(hlo_reader *r, hlo_module *module)
{
  attr_site site = {.module = module};
  attr_site *const sites[] = {&site};
  const hlo_attr_family *list = hlo_module_attrs();
  uint64_t seen = 0;

  while (hlo_rd_accept(r, ',')) WEFT_TRY(read_one(r, 1, &list, sites, &seen, "HloModule"));
  return NULL;
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static void print_list(FILE *out, const hlo_attr_family *list, attr_site *site, const hlo_extra *extra, bool metadata)
{
  for (int i = 0; i < list->count; i++) {
    const hlo_attr *attr = &list->attrs[i];
    const hlo_text_kind *kind = text_kind(attr->kind);
    attr_value v = {site, attr, field_of(site, attr, extra)};

    if (!attr->name || !v.field || attr->flags & HLO_ATTR_OLD) continue;
    if (!(attr->flags & HLO_ATTR_ALWAYS) && kind->is_usual && kind->is_usual(v)) continue;
    if (attr->kind == HLO_KIND_METADATA && !metadata) continue;
    fprintf(out, ", %s=", attr->name);
    kind->print(out, v);
  }
}

void hlo_pr_attributes(FILE *out, const hlo_instr *instr, hlo_print_options options)
{
  attr_site site = {.instr = (hlo_instr *)instr};

  print_list(out, hlo_attrs_of(instr->op), &site, NULL, options.metadata);
  print_list(out, hlo_common_attrs(), &site, instr->extra, options.metadata);
}

void hlo_pr_module_attributes(FILE *out, const hlo_module *module)
{
  attr_site site = {.module = (hlo_module *)module};

  print_list(out, hlo_module_attrs(), &site, NULL, true);
}
