/* stablehlo/bytecode.c -- MLIR bytecode, versions 0 to 6: the container and the IR (facts: programs.md 9.1-9.3).
 *
 *   "ML\xEFR" version producer sections...      section = id (| 0x80: aligned), length, [alignment, padding], payload
 *   0 strings  1 dialects and operation names  2 attributes and types  3 their sizes  4 IR  5, 6 resources
 *   7 dialect versions  8 properties
 *
 * Sections are found first, since they refer to each other; attributes and types are decoded when they are asked for.
 * No count is trusted: each is bounded by the bytes behind it. */
#include "stablehlo/bytecode.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECTION_STRING, SECTION_DIALECT, SECTION_ATTR_TYPE, SECTION_OFFSET, SECTION_IR, SECTION_RESOURCE,
       SECTION_RESOURCE_OFFSET, SECTION_DIALECT_VERSIONS, SECTION_PROPERTIES, SECTION_COUNT };
enum { NEWEST_VERSION = 6 };
/* the bytes of memory for values, attributes and locations that one byte of operations needs, roughly */
enum { TABLES_PER_CODE = 5 };

/* ---- primitives -------------------------------------------------------------------------------------------------- */

weft_status *bc_fail(const bc_reader *r, const uint8_t *at, const char *fmt, ...)
{
  char message[256];
  va_list ap;

  va_start(ap, fmt);
  vsnprintf(message, sizeof message, fmt, ap);
  va_end(ap);
  return WEFT_ERR(INVALID_ARGUMENT, "byte %td: %s", at - (const uint8_t *)r->program->input, message);
}

weft_status *bc_byte(const bc_reader *r, bc_cursor *c, uint8_t *out)
{
  if (c->p == c->end) return bc_fail(r, c->p, "it ends too early");
  *out = *c->p++;
  return NULL;
}

weft_status *bc_last_varint(const bc_reader *r, bc_cursor *c, uint64_t *out)
{
  uint64_t value = 0;
  int extra;

  if (c->p == c->end) return bc_fail(r, c->p, "it ends too early");
  extra = *c->p ? __builtin_ctz(*c->p) : 8;
  if (c->end - c->p < extra + 1) return bc_fail(r, c->p, "it ends inside a number");
  memcpy(&value, c->p + (extra == 8), (size_t)extra + (extra < 8));
  *out = extra == 8 ? value : value >> (extra + 1);
  c->p += extra + 1;
  return NULL;
}

weft_status *bc_svarint(const bc_reader *r, bc_cursor *c, int64_t *out)
{
  uint64_t v = 0;

  WEFT_TRY(bc_varint(r, c, &v));
  *out = (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
  return NULL;
}

weft_status *bc_flagged(const bc_reader *r, bc_cursor *c, uint64_t *out, bool *out_flag)
{
  WEFT_TRY(bc_varint(r, c, out));
  *out_flag = *out & 1;
  *out >>= 1;
  return NULL;
}

weft_status *bc_bad_number(const bc_reader *r, const uint8_t *at, const char *what, uint64_t n, uint64_t limit)
{
  return bc_fail(r, at, "%s of %" PRIu64 ", the limit is %" PRIu64, what, n, limit);
}

weft_status *bc_string_ref(const bc_reader *r, bc_cursor *c, bc_string *out)
{
  int index;

  WEFT_TRY(bc_index(r, c, r->string_count, &index));
  *out = r->strings[index];
  return NULL;
}

static weft_status *take(const bc_reader *r, bc_cursor *c, uint64_t size, bc_cursor *out)
{
  if (size > (uint64_t)(c->end - c->p))
    return bc_fail(r, c->p, "%" PRIu64 " bytes are wanted, %td are left", size, c->end - c->p);
  *out = (bc_cursor){c->p, c->p + size};
  c->p += size;
  return NULL;
}

weft_status *bc_blob(const bc_reader *r, bc_cursor *c, bc_cursor *out)
{
  uint64_t size = 0;

  WEFT_TRY(bc_varint(r, c, &size));
  return take(r, c, size, out);
}

/* ---- sections ---------------------------------------------------------------------------------------------------- */

static weft_status *section(const bc_reader *r, bc_cursor *c, int *out_id, bc_cursor *out)
{
  const uint8_t *at = c->p;
  uint8_t id = 0;
  uint64_t length = 0, alignment = 1;

  WEFT_TRY(bc_byte(r, c, &id));
  WEFT_TRY(bc_varint(r, c, &length));
  if (id & 0x80) {
    WEFT_TRY(bc_varint(r, c, &alignment));
    if (alignment == 0 || alignment & (alignment - 1) || alignment > 1 << 20)
      return bc_fail(r, at, "an alignment of %" PRIu64, alignment);
    while ((size_t)(c->p - (const uint8_t *)r->program->input) % alignment) {
      uint8_t pad = 0;
      WEFT_TRY(bc_byte(r, c, &pad));
      if (pad != 0xCB) return bc_fail(r, c->p - 1, "padding of another byte than 0xCB");
    }
  }
  *out_id = id & 0x7f;
  return take(r, c, length, out);
}

/* Reads a section of strings: the count, the sizes with their NUL in reverse order, then the characters. */
static weft_status *read_strings(bc_reader *r, bc_cursor c)
{
  const uint8_t *end = c.end;

  WEFT_TRY(bc_count(r, &c, &r->string_count));
  r->strings = WEFT_ARENA_ARRAY(r->arena, bc_string, r->string_count);
  WEFT_TRY_ALLOC(r->strings);
  for (int i = r->string_count - 1; i >= 0; i--) {
    uint64_t size = 0;
    WEFT_TRY(bc_varint(r, &c, &size));
    if (size == 0 || end < c.p || size > (uint64_t)(end - c.p))
      return bc_fail(r, c.p, "a string of %" PRIu64 " bytes", size);
    end -= size;
    if (end[size - 1] != 0) return bc_fail(r, end, "a string without NUL");
    r->strings[i] = (bc_string){(const char *)end, (size_t)size - 1};
  }
  if (end != c.p) return bc_fail(r, c.p, "strings and their sizes do not fit");
  return NULL;
}

static weft_status *read_dialects(bc_reader *r, bc_cursor c)
{
  uint64_t total = 0;
  int capacity;

  WEFT_TRY(bc_count(r, &c, &r->dialect_count));
  r->builtin = -1;
  if (r->dialect_count >= 1 << 14) return bc_fail(r, c.p, "%d dialects", r->dialect_count);
  r->dialects = WEFT_ARENA_ARRAY(r->arena, const char *, r->dialect_count);
  WEFT_TRY_ALLOC(r->dialects);
  for (int i = 0; i < r->dialect_count; i++) {
    uint64_t name = 0;
    bool versioned = false;
    if (r->version >= 1) {
      WEFT_TRY(bc_flagged(r, &c, &name, &versioned));
    } else {
      WEFT_TRY(bc_varint(r, &c, &name));
    }
    if (name >= (uint64_t)r->string_count) return bc_fail(r, c.p, "a dialect named by string %" PRIu64, name);
    r->dialects[i] = r->strings[name].s;
    if (strcmp(r->dialects[i], "builtin") == 0) r->builtin = i;
    if (versioned) {
      int id;
      bc_cursor skipped;
      WEFT_TRY(section(r, &c, &id, &skipped));
    }
  }
  if (r->version >= 4) WEFT_TRY(bc_varint(r, &c, &total));
  capacity = (int)(c.end - c.p); /* each name takes at least one byte */
  r->ops = WEFT_ARENA_ARRAY(r->arena, bc_op_name, capacity);
  WEFT_TRY_ALLOC(r->ops);
  while (c.p < c.end) {
    int dialect, count;
    WEFT_TRY(bc_index(r, &c, r->dialect_count, &dialect));
    WEFT_TRY(bc_count(r, &c, &count));
    for (int i = 0; i < count; i++) {
      uint64_t name = 0;
      bool registered;
      bc_op_name *op = &r->ops[r->op_count];
      const uint8_t *at = c.p;
      if (r->version >= 5) {
        WEFT_TRY(bc_flagged(r, &c, &name, &registered));
      } else {
        WEFT_TRY(bc_varint(r, &c, &name));
      }
      if (name >= (uint64_t)r->string_count) return bc_fail(r, at, "an operation named by string %" PRIu64, name);
      op->dialect = r->dialects[dialect];
      op->spelling = weft_arena_printf(r->arena, "%s.%s", op->dialect, r->strings[name].s);
      WEFT_TRY_ALLOC(op->spelling);
      r->op_count++;
    }
  }
  return NULL;
}

static uint64_t offset_of(const bc_reader *r, const uint8_t *p)
{
  return (uint64_t)(p - (const uint8_t *)r->program->input) & (((uint64_t)1 << 46) - 1);
}

/* The entries stand in groups of one dialect each: a number, then sizes with a flag. The entries follow each other
 * in section 2. */
static weft_status *read_entries(bc_reader *r, bc_cursor *sizes, bc_cursor *bytes, bc_entry *entries, int total)
{
  for (int done = 0; done < total;) {
    int dialect, count;
    WEFT_TRY(bc_index(r, sizes, r->dialect_count, &dialect));
    WEFT_TRY(bc_count(r, sizes, &count));
    if (count > total - done) return bc_fail(r, sizes->p, "more attributes or types than announced");
    for (int i = 0; i < count; i++, done++) {
      uint64_t size = 0;
      bool custom = false;
      bc_cursor taken;
      WEFT_TRY(bc_flagged(r, sizes, &size, &custom));
      WEFT_TRY(take(r, bytes, size, &taken));
      entries[done] = (bc_entry){.at = offset_of(r, taken.p), .dialect = (uint64_t)dialect, .custom = custom};
    }
  }
  return NULL;
}

static weft_status *read_offsets(bc_reader *r, bc_cursor sizes, bc_cursor bytes)
{
  WEFT_TRY(bc_count(r, &sizes, &r->attr_count));
  WEFT_TRY(bc_count(r, &sizes, &r->type_count));
  r->attrs = WEFT_ARENA_ARRAY(r->arena, bc_entry, (int64_t)r->attr_count + r->type_count + 1);
  WEFT_TRY_ALLOC(r->attrs);
  r->types = r->attrs + r->attr_count;
  WEFT_TRY(read_entries(r, &sizes, &bytes, r->attrs, r->attr_count));
  WEFT_TRY(read_entries(r, &sizes, &bytes, r->types, r->type_count));
  r->types[r->type_count].at = offset_of(r, bytes.p); /* the end of the last entry */
  return NULL;
}

static weft_status *read_properties(bc_reader *r, bc_cursor c)
{
  WEFT_TRY(bc_count(r, &c, &r->property_count));
  r->properties = WEFT_ARENA_ARRAY(r->arena, bc_properties, r->property_count);
  WEFT_TRY_ALLOC(r->properties);
  for (int i = 0; i < r->property_count; i++) WEFT_TRY(bc_blob(r, &c, &r->properties[i].bytes));
  return NULL;
}

/* ---- attributes and types by number ------------------------------------------------------------------------------ */

static weft_status *begin_entry(bc_reader *r, bc_entry *e)
{
  const uint8_t *at = bc_entry_bytes(r, e).p;

  if (e->busy) return bc_fail(r, at, "an attribute or type that contains itself");
  if (++r->depth > MLIR_MAX_DEPTH) return bc_fail(r, at, "nested deeper than %d", MLIR_MAX_DEPTH);
  e->busy = true;
  return NULL;
}

static void end_entry(bc_reader *r, bc_entry *e, const void *value)
{
  e->value = value;
  e->busy = false;
  r->depth--;
}

/* An entry without an encoding of its dialect is NUL-terminated assembly. */
static weft_status *assembly(const bc_reader *r, bc_cursor c, size_t *out_size)
{
  const uint8_t *nul = memchr(c.p, 0, (size_t)(c.end - c.p));

  if (!nul) return bc_fail(r, c.p, "assembly without NUL");
  *out_size = (size_t)(nul - c.p);
  return NULL;
}

weft_status *bc_attr(bc_reader *r, int index, const mlir_attr **out)
{
  static const mlir_attr location = {.kind = MLIR_OPAQUE, .u.text.s = ""};
  bc_entry *e = &r->attrs[index];
  bc_cursor c = bc_entry_bytes(r, e);
  size_t size;

  *out = e->is_location ? &location : e->value;
  if (*out) return NULL;
  WEFT_TRY(begin_entry(r, e));
  if (e->custom) {
    WEFT_TRY(bc_decode_attr(r, r->dialects[e->dialect], &c, out));
    if (c.p != c.end) return bc_fail(r, c.p, "%td bytes too many in an attribute", c.end - c.p);
  } else {
    WEFT_TRY(assembly(r, c, &size));
    WEFT_TRY(mlir_parse_attr_text(r->program, (const char *)c.p, size, out));
  }
  WEFT_TRY(mlir_refer_attr(r->program, *out, 0));
  end_entry(r, e, *out);
  return NULL;
}

weft_status *bc_decode_type_entry(bc_reader *r, bc_entry *e, const mlir_type **out)
{
  bc_cursor c = bc_entry_bytes(r, e);
  size_t size;

  WEFT_TRY(begin_entry(r, e));
  if (e->custom) {
    WEFT_TRY(bc_decode_type(r, r->dialects[e->dialect], &c, out));
    if (c.p != c.end) return bc_fail(r, c.p, "%td bytes too many in a type", c.end - c.p);
  } else {
    WEFT_TRY(assembly(r, c, &size));
    WEFT_TRY(mlir_parse_type_text(r->program, (const char *)c.p, size, out));
  }
  WEFT_TRY(mlir_refer_type(r->program, *out, 0));
  end_entry(r, e, *out);
  return NULL;
}

weft_status *bc_attr_ref(bc_reader *r, bc_cursor *c, const mlir_attr **out)
{
  int index;

  WEFT_TRY(bc_index(r, c, r->attr_count, &index));
  return bc_attr(r, index, out);
}

/* ---- IR ---------------------------------------------------------------------------------------------------------- */

enum { OP_ATTRS = 1, OP_RESULTS = 2, OP_OPERANDS = 4, OP_SUCCESSORS = 8, OP_REGIONS = 0x10, OP_USE_LISTS = 0x20,
       OP_PROPERTIES = 0x40 };

/* The values of a region are numbered from `base` on; `next` is the number of the next one to be defined. */
typedef struct scope { int64_t base, end, next; } scope;

static weft_status *read_region(bc_reader *r, bc_cursor *c, mlir_region *region, int64_t base);
static weft_status *put_aside(const bc_reader *r, bc_cursor *c, mlir_region *region);

static weft_status *define(bc_reader *r, bc_cursor *c, scope *s, int count, mlir_value *values)
{
  bc_values *v = &r->values;

  if (count > s->end - s->next) return bc_fail(r, c->p, "more values than the region has");
  if (s->next < v->flat_count) { /* the results are in place already: new_results put them there */
    s->next = v->flat_defined += count;
    return NULL;
  }
  for (int i = 0; i < count; i++) v->table[s->next++ - v->flat_count] = &values[i];
  return NULL;
}

/* The results of an operation, which are defined after it has been read. */
static weft_status *new_results(bc_reader *r, bc_cursor *c, const scope *s, int count, mlir_value **out)
{
  if (s->next >= r->values.flat_count) *out = WEFT_ARENA_ARRAY(r->op_arena, mlir_value, count);
  else if (count > s->end - s->next) return bc_fail(r, c->p, "more values than the region has");
  else *out = &r->values.flat[s->next];
  WEFT_TRY_ALLOC(*out);
  return NULL;
}

/* The value of that number; NULL if it is not defined. */
static mlir_value *value_at(const bc_reader *r, const scope *s, uint64_t number)
{
  const bc_values *v = &r->values;

  if (number < (uint64_t)v->flat_defined) return &v->flat[number];
  if (number >= (uint64_t)s->next || number < (uint64_t)v->flat_count) return NULL;
  return v->table[number - (uint64_t)v->flat_count];
}

/* Skips the orders of uses, which say how to permute lists of users; nothing here depends on them. */
static weft_status *skip_use_lists(bc_reader *r, bc_cursor *c, int value_count)
{
  int ranges = 1;
  uint64_t ignored, numbers;
  bool pairs;

  if (value_count != 1) WEFT_TRY(bc_count(r, c, &ranges));
  for (int i = 0; i < ranges; i++) {
    if (value_count != 1) WEFT_TRY(bc_varint(r, c, &ignored));
    WEFT_TRY(bc_flagged(r, c, &numbers, &pairs));
    if (numbers > (uint64_t)(c->end - c->p)) return bc_fail(r, c->p, "a use list of %" PRIu64, numbers);
    for (uint64_t k = 0; k < numbers; k++) WEFT_TRY(bc_varint(r, c, &ignored));
  }
  return NULL;
}

static weft_status *read_operands(bc_reader *r, bc_cursor *c, mlir_op *op, const scope *s)
{
  WEFT_TRY(bc_count(r, c, &op->operand_count));
  op->operands = WEFT_ARENA_ARRAY(r->op_arena, mlir_value *, op->operand_count);
  WEFT_TRY_ALLOC(op->operands);
  for (int i = 0; i < op->operand_count; i++) {
    const uint8_t *at = c->p;
    uint64_t number = 0;
    WEFT_TRY(bc_varint(r, c, &number));
    op->operands[i] = value_at(r, s, number);
    if (!op->operands[i]) return bc_fail(r, at, "value %" PRIu64 " is used before it is defined", number);
  }
  return NULL;
}

/* The reductions of a program have few different regions, so a short region that uses no outer values is read once. */
static weft_status *read_kept_region(bc_reader *r, bc_cursor *c, mlir_op *op)
{
  size_t size = (size_t)(c->end - c->p);
  uint32_t at = mlir_hash((const char *)c->p, size);
  bc_kept_region *kept;
  bool same = false;

  /* the region's own slot, a free one, or the last of those in which it is looked up */
  for (int probe = 0; probe < BC_KEPT_PROBES; probe++) {
    kept = &r->kept[at++ % BC_KEPT_REGIONS];
    same = kept->bytes && kept->size == size && memcmp(kept->bytes, c->p, size) == 0;
    if (same || !kept->bytes) break;
  }
  if (!same) {
    weft_arena *op_arena = r->op_arena;
    const uint8_t *bytes = c->p;
    mlir_region region = {0};
    r->op_arena = r->arena;
    weft_status *st = read_region(r, c, &region, 0);
    r->op_arena = op_arena;
    WEFT_TRY(st);
    if (c->p != c->end) return NULL; /* the caller reports the error */
    *kept = (bc_kept_region){bytes, size, region};
  }
  c->p = c->end;
  *op->regions = kept->region;
  op->shares_region = true;
  return NULL;
}

static weft_status *read_regions(bc_reader *r, bc_cursor *c, mlir_op *op, const scope *s)
{
  const uint8_t *at = c->p;
  uint64_t count = 0;
  bool isolated = false;

  WEFT_TRY(bc_flagged(r, c, &count, &isolated));
  if (count > (uint64_t)(c->end - c->p)) return bc_fail(r, at, "%" PRIu64 " regions", count);
  op->region_count = (int)count;
  op->regions = WEFT_ARENA_ARRAY(r->op_arena, mlir_region, count);
  WEFT_TRY_ALLOC(op->regions);
  if (!isolated) {
    for (int i = 0; i < op->region_count; i++) WEFT_TRY(read_region(r, c, &op->regions[i], s->end));
    return NULL;
  }
  /* Reads the regions of an operation. Value numbers start anew inside, and the outer values are saved. From version
   * 2 on regions stand in a section of their own. */
  const bc_values outer = r->values;
  bc_cursor nested, *inner = c;
  int id = SECTION_IR;
  r->values = (bc_values){0};
  if (r->version >= 2) {
    WEFT_TRY(section(r, c, &id, &nested));
    inner = &nested;
  }
  if (id != SECTION_IR) return bc_fail(r, at, "section %d where regions are expected", id);
  if (r->in_parts && inner != c && op->region_count == 1 && op->dialect == SHLO_FUNC)
    WEFT_TRY(put_aside(r, inner, op->regions));
  if (r->kept && inner != c && op->region_count == 1 && op->dialect != SHLO_FUNC &&
      inner->end - inner->p <= BC_LARGEST_KEPT)
    WEFT_TRY(read_kept_region(r, inner, op));
  for (int i = 0; !op->shares_region && i < op->region_count && !op->regions[i].first; i++)
    WEFT_TRY(read_region(r, inner, &op->regions[i], 0));
  if (inner != c && inner->p != inner->end) return bc_fail(r, inner->p, "bytes after the regions of an operation");
  r->values = outer;
  return NULL;
}

static weft_status *op_name(bc_reader *r, bc_cursor *c, bc_op_name **out)
{
  int index;
  bc_op_name *name;

  WEFT_TRY(bc_index(r, c, r->op_count, &index));
  *out = name = &r->ops[index];
  if (name->kind) return NULL;
  WEFT_TRY(mlir_kind(r->program, name->spelling, strlen(name->spelling), &name->kind));
  return bc_list_properties(r, name);
}

/* MLIR writes the properties of each operation anew. Properties with the same bytes become one, so that operations
 * share them. */
static weft_status *decode_properties(bc_reader *r, bc_op_name *name, bc_properties *p)
{
  void **known;

  WEFT_TRY(
    mlir_table_slot(r->arena, &name->decoded, (const char *)p->bytes.p, (size_t)(p->bytes.end - p->bytes.p), &known));
  if (!*known) {
    WEFT_TRY_NOTE(bc_decode_properties(r, name, p), "properties of %s", name->spelling);
    *known = weft_arena_memdup(r->arena, p, sizeof *p);
    WEFT_TRY_ALLOC(*known);
  }
  *p = *(const bc_properties *)*known;
  return NULL;
}

/* The attributes of an operation: its properties, its dictionary, or both, one behind the other. */
static weft_status *read_attrs(bc_reader *r, bc_cursor *c, mlir_op *op, bc_op_name *name, uint8_t mask)
{
  const uint8_t *at = c->p;
  const mlir_attr *dict = NULL;
  int index;

  op->shares_attrs = true;
  if (mask & OP_ATTRS) {
    WEFT_TRY(bc_attr_ref(r, c, &dict));
    if (dict->kind != MLIR_DICT) return bc_fail(r, at, "attributes that are no dictionary");
    WEFT_TRY(mlir_refer_attr(r->program, dict, 0));
    op->attrs = dict->u.dict.items;
    op->attr_count = dict->u.dict.count;
  }
  if (!(mask & OP_PROPERTIES)) return NULL;
  WEFT_TRY(bc_index(r, c, r->property_count, &index));
  bc_properties *p = &r->properties[index];
  if (p->op != name) WEFT_TRY(decode_properties(r, name, p));
  if (!dict) {
    op->attrs = p->attrs;
  } else if (p->count > 0) {
    mlir_named_attr *all = WEFT_ARENA_ARRAY(r->op_arena, mlir_named_attr, op->attr_count + p->count);
    WEFT_TRY_ALLOC(all);
    memcpy(all, op->attrs, (size_t)op->attr_count * sizeof *all);
    memcpy(all + op->attr_count, p->attrs, (size_t)p->count * sizeof *all);
    op->attrs = all;
    op->shares_attrs = false;
  }
  op->attr_count += p->count;
  return NULL;
}

static weft_status *read_op(bc_reader *r, bc_cursor *c, mlir_block *block, scope *s)
{
  const uint8_t *at = c->p;
  mlir_op *op = WEFT_ARENA_NEW(r->op_arena, mlir_op);
  bc_op_name *name;
  int location;
  uint8_t mask = 0;

  WEFT_TRY_ALLOC(op);
  WEFT_TRY(op_name(r, c, &name));
  op->kind = name->kind;
  op->name = name->kind->name;
  op->dialect = name->kind->dialect;
  op->position = (size_t)(at - (const uint8_t *)r->program->input);
  WEFT_TRY(bc_byte(r, c, &mask));
  WEFT_TRY(bc_index(r, c, r->attr_count, &location));
  WEFT_TRY(bc_location(r, location, &op->location));
  WEFT_TRY(read_attrs(r, c, op, name, mask));
  if (mask & OP_RESULTS) {
    WEFT_TRY(bc_count(r, c, &op->result_count));
    WEFT_TRY(new_results(r, c, s, op->result_count, &op->results));
    for (int i = 0; i < op->result_count; i++) WEFT_TRY(bc_type_ref(r, c, &op->results[i].type));
  }
  if (mask & OP_OPERANDS) WEFT_TRY(read_operands(r, c, op, s));
  if (mask & OP_SUCCESSORS) return bc_fail(r, at, "an operation with successor blocks");
  if (mask & OP_USE_LISTS) WEFT_TRY(skip_use_lists(r, c, op->result_count));
  if (mask & OP_REGIONS) WEFT_TRY(read_regions(r, c, op, s));
  WEFT_TRY(define(r, c, s, op->result_count, op->results));
  if (block->last) block->last->next = op;
  else block->first = op;
  block->last = op;
  return NULL;
}

/* Reads a number of at most four bytes; false if it is longer. */
static inline bool quick_number(const uint8_t **p, uint32_t *out)
{
  static const uint32_t masks[] = {0xff, 0xffff, 0xffffff, 0xffffffff};
  uint32_t v;
  int more;

  memcpy(&v, *p, sizeof v);
  more = __builtin_ctz(v | 0x10);
  if (WEFT_UNLIKELY(more > 3)) return false;
  *out = (v & masks[more]) >> (more + 1);
  *p += more + 1;
  return true;
}

enum { QUICK_OPERANDS = 8 };

/* The attributes of an operation whose properties or dictionary have been read before. */
static inline bool quick_attrs(const bc_reader *r, const uint8_t **p, const bc_op_name *name, int mask, mlir_op *op)
{
  const bc_properties *properties;
  const mlir_attr *dict;
  uint32_t index;

  op->attrs = NULL;
  op->attr_count = 0;
  if (!(mask & (OP_ATTRS | OP_PROPERTIES))) return true;
  if (!quick_number(p, &index)) return false;
  if (mask & OP_PROPERTIES) {
    if (mask & OP_ATTRS || index >= (uint32_t)r->property_count) return false;
    properties = &r->properties[index];
    op->attrs = properties->attrs;
    op->attr_count = properties->count;
    return properties->op == name;
  }
  if (index >= (uint32_t)r->attr_count || r->attrs[index].is_location) return false;
  dict = r->attrs[index].value;
  if (!dict || dict->kind != MLIR_DICT) return false;
  op->attrs = dict->u.dict.items;
  op->attr_count = dict->u.dict.count;
  return true;
}

/* Most operations are short, have one result and no region, and refer only to what came before. For any other operation
 * the result is false and nothing has been taken: read_op reads it, or reports what is wrong with it. */
static bool quick_op(bc_reader *r, bc_cursor *c, scope *s, mlir_op *op, mlir_value *operands[QUICK_OPERANDS])
{
  const uint8_t *p = c->p, *input = (const uint8_t *)r->program->input;
  const bc_op_name *name;
  uint32_t location, type, number;
  int mask;

  if (p >= r->quick_end || !(*p & 1) || *p >> 1 >= r->op_count) return false;
  name = &r->ops[*p++ >> 1];
  mask = *p++;
  if (!name->kind || mask & ~(OP_ATTRS | OP_RESULTS | OP_OPERANDS | OP_PROPERTIES) || !(mask & OP_RESULTS))
    return false;
  if (!quick_number(&p, &location) || location >= (uint32_t)r->attr_count || !r->attrs[location].is_location)
    return false;
  if (!quick_attrs(r, &p, name, mask, op)) return false;
  if (*p++ != (1 << 1 | 1) || !quick_number(&p, &type) || type >= (uint32_t)r->type_count || !r->types[type].value)
    return false;
  op->operand_count = 0;
  if (mask & OP_OPERANDS) {
    if (!(*p & 1) || *p >> 1 > QUICK_OPERANDS) return false;
    op->operand_count = *p++ >> 1;
  }
  for (int i = 0; i < op->operand_count; i++) {
    if (!quick_number(&p, &number) || number >= (uint64_t)r->values.flat_defined) return false;
    operands[i] = &r->values.flat[number];
  }
  if (p > c->end || s->next >= s->end) return false;
  op->name = name->kind->name;
  op->dialect = name->kind->dialect;
  op->kind = name->kind;
  op->position = (size_t)(c->p - input);
  op->location = r->attrs[location].value;
  op->results = &r->values.flat[s->next];
  op->results->type = r->types[type].value;
  s->next = ++r->values.flat_defined;
  c->p = p;
  return true;
}

static weft_status *read_block_arguments(bc_reader *r, bc_cursor *c, mlir_block *block)
{
  WEFT_TRY(bc_count(r, c, &block->arg_count));
  block->args = WEFT_ARENA_ARRAY(r->op_arena, mlir_value, block->arg_count);
  block->arg_locations = WEFT_ARENA_ARRAY(r->op_arena, const mlir_location *, block->arg_count);
  WEFT_TRY_ALLOC(block->args);
  WEFT_TRY_ALLOC(block->arg_locations);
  for (int i = 0; i < block->arg_count; i++) {
    uint64_t type = 0;
    bool located = true;
    int location;
    if (r->version >= 4) {
      WEFT_TRY(bc_flagged(r, c, &type, &located));
    } else {
      WEFT_TRY(bc_varint(r, c, &type));
    }
    if (type >= (uint64_t)r->type_count) return bc_fail(r, c->p, "type %" PRIu64 " of %d", type, r->type_count);
    WEFT_TRY(bc_type(r, (int)type, &block->args[i].type));
    if (!located) continue;
    WEFT_TRY(bc_index(r, c, r->attr_count, &location));
    WEFT_TRY(bc_location(r, location, &block->arg_locations[i]));
  }
  if (r->version >= 3) {
    uint8_t mask = 0;
    WEFT_TRY(bc_byte(r, c, &mask));
    if (mask) WEFT_TRY(skip_use_lists(r, c, block->arg_count));
  }
  return NULL;
}

/* The number of operations that follow, and the block's arguments. */
static weft_status *read_block_head(bc_reader *r, bc_cursor *c, mlir_block *block, uint64_t *out_ops)
{
  const uint8_t *at = c->p;
  bool arguments = false;

  WEFT_TRY(bc_flagged(r, c, out_ops, &arguments));
  if (*out_ops > (uint64_t)(c->end - c->p)) return bc_fail(r, at, "%" PRIu64 " operations", *out_ops);
  return arguments ? read_block_arguments(r, c, block) : NULL;
}

static weft_status *read_block(bc_reader *r, bc_cursor *c, mlir_block *block, scope *s)
{
  uint64_t ops = 0;

  WEFT_TRY(read_block_head(r, c, block, &ops));
  WEFT_TRY(define(r, c, s, block->arg_count, block->args));
  for (uint64_t i = 0; i < ops; i++) WEFT_TRY(read_op(r, c, block, s));
  return NULL;
}

static weft_status *reserve_values(bc_reader *r, int64_t count)
{
  bc_values *v = &r->values;
  mlir_value **grown;
  int64_t wanted = count - v->flat_count, capacity = WEFT_MAX(2 * v->capacity, wanted);

  if (wanted <= v->capacity) return NULL;
  grown = WEFT_ARENA_ARRAY(r->numbers, mlir_value *, capacity);
  WEFT_TRY_ALLOC(grown);
  if (v->capacity) memcpy(grown, v->table, (size_t)v->capacity * sizeof(*grown));
  v->table = grown;
  v->capacity = capacity;
  return NULL;
}

static weft_status *read_region(bc_reader *r, bc_cursor *c, mlir_region *region, int64_t base)
{
  const uint8_t *at = c->p;
  mlir_block **tail = &region->first;
  int values;

  if (++r->depth > MLIR_MAX_DEPTH) return bc_fail(r, at, "regions nested deeper than %d", MLIR_MAX_DEPTH);
  WEFT_TRY(bc_count(r, c, &region->block_count));
  if (region->block_count > 0) {
    WEFT_TRY(bc_count(r, c, &values));
    WEFT_TRY(reserve_values(r, base + values));
    scope s = {.base = base, .end = base + values, .next = base};
    for (int i = 0; i < region->block_count; i++) {
      mlir_block *block = WEFT_ARENA_NEW(r->op_arena, mlir_block);
      WEFT_TRY_ALLOC(block);
      *tail = block;
      tail = &block->next;
      WEFT_TRY(read_block(r, c, block, &s));
    }
    /* the numbers of these values are free again */
    for (int64_t v = base; v < s.end; v++) r->values.table[v - r->values.flat_count] = NULL;
  }
  r->depth--;
  return NULL;
}

/* ---- bodies of functions, one operation after the other ---------------------------------------------------------- */

struct mlir_unread {
  const bc_reader *reader;
  bc_cursor at; /* behind the arguments */
  uint64_t ops;
  int value_count;
  mlir_value *values; /* NULL until a stream of the body is opened; no two streams of one body are open at a time */
};

/* Of a body with one block only the arguments are read now; afterwards `c` is behind the body. */
static weft_status *put_aside(const bc_reader *reader, bc_cursor *c, mlir_region *region)
{
  bc_reader r = *reader;
  bc_cursor at = *c;
  mlir_block *block = WEFT_ARENA_NEW(r.op_arena, mlir_block);
  struct mlir_unread *unread = WEFT_ARENA_NEW(r.op_arena, struct mlir_unread);
  int blocks;

  WEFT_TRY_ALLOC(block && unread);
  WEFT_TRY(bc_count(&r, &at, &blocks));
  if (blocks != 1) return NULL;
  WEFT_TRY(bc_count(&r, &at, &unread->value_count));
  WEFT_TRY(read_block_head(&r, &at, block, &unread->ops));
  unread->reader = reader;
  unread->at = at;
  block->unread = unread;
  *region = (mlir_region){.first = block, .block_count = 1};
  c->p = c->end;
  return NULL;
}

struct mlir_stream {
  bc_reader r;
  bc_cursor at;
  uint64_t ops;
  scope scope;
  mlir_op quick;         /* the last operation that was asked for: this one, with */
  mlir_value *operands[QUICK_OPERANDS];
  weft_arena op;         /* or one that is here */
  weft_arena values;     /* holds what lives as long as the stream: the tables of values of regions */
};

weft_status *mlir_stream_open(const mlir_block *block, mlir_stream **out)
{
  struct mlir_unread *unread = block->unread;
  mlir_stream *s = *out = calloc(1, sizeof *s);

  WEFT_TRY_ALLOC(s);
  weft_arena_init(&s->op);
  weft_arena_init(&s->values);
  s->r = *unread->reader;
  s->r.values = (bc_values){0};
  s->r.in_parts = false;
  s->r.op_arena = &s->op;
  s->r.numbers = &s->values;
  s->at = unread->at;
  s->ops = unread->ops;
  s->scope = (scope){.end = unread->value_count};
  s->quick = (mlir_op){.operands = s->operands, .result_count = 1, .shares_attrs = true};
  if (unread->values) memset(unread->values, 0, (size_t)unread->value_count * sizeof *unread->values);
  else WEFT_TRY_ALLOC(unread->values = WEFT_ARENA_ARRAY(s->r.arena, mlir_value, unread->value_count));
  s->r.values.flat = unread->values;
  s->r.values.flat_count = unread->value_count;
  WEFT_TRY(define(&s->r, &s->at, &s->scope, block->arg_count, block->args));
  if (block->arg_count) memcpy(s->r.values.flat, block->args, (size_t)block->arg_count * sizeof *block->args);
  return NULL;
}

weft_status *mlir_stream_next(mlir_stream *s, const mlir_op **out)
{
  mlir_block block = {0};

  *out = NULL;
  if (s->ops == 0)
    return s->at.p == s->at.end ? NULL : bc_fail(&s->r, s->at.p, "bytes after the regions of an operation");
  s->ops--;
  if (WEFT_LIKELY(quick_op(&s->r, &s->at, &s->scope, &s->quick, s->operands))) {
    *out = &s->quick;
    return NULL;
  }
  weft_arena_reset(&s->op);
  WEFT_TRY(read_op(&s->r, &s->at, &block, &s->scope));
  *out = block.first;
  return NULL;
}

void mlir_stream_close(mlir_stream *s)
{
  if (!s) return;
  weft_arena_fini(&s->op);
  weft_arena_fini(&s->values);
  free(s);
}

/* ---- the module -------------------------------------------------------------------------------------------------- */

/* Reads the module, which is the one operation of one block. */
static weft_status *read_ir(bc_reader *r, bc_cursor c)
{
  mlir_block block = {0};
  scope s = {0};
  mlir_module *m = WEFT_ARENA_NEW(r->arena, mlir_module);

  WEFT_TRY_ALLOC(m);
  WEFT_TRY(read_block(r, &c, &block, &s));
  if (!block.first || block.first->next || block.first->dialect != SHLO_BUILTIN ||
      strcmp(block.first->name, "module") != 0)
    return bc_fail(r, c.p, "the top level is not one module");
  if (c.p != c.end) return bc_fail(r, c.p, "bytes after the module");
  m->op = block.first;
  m->name = mlir_attr_text(mlir_attr_of(m->op, "sym_name"), NULL);
  r->program->modules = m;
  r->program->module_count = 1;
  return NULL;
}

/* True if bodies may be read later. Types decide whether sizes are unknown, and unknown sizes change how everything
 * is lowered. */
static bool may_read_in_parts(bc_reader *r)
{
  const mlir_type *ignored;
  weft_status *st = NULL;

  for (int i = 0; i < r->type_count && !st; i++) st = bc_type(r, i, &ignored);
  weft_status_free(st); /* only reading everything shows whether the type matters */
  r->depth = 0;
  return !st && !r->program->has_dynamic_types;
}

static weft_status *read_container(bc_reader *r)
{
  bc_cursor c = {(const uint8_t *)r->program->input + 4, (const uint8_t *)r->program->input + r->program->size};
  bc_cursor sections[SECTION_COUNT] = {{0}};
  uint64_t version = 0;
  const uint8_t *nul;

  WEFT_TRY(bc_varint(r, &c, &version));
  nul = memchr(c.p, 0, (size_t)(c.end - c.p));
  if (!nul) return bc_fail(r, c.p, "the producer's name does not end");
  r->program->producer = (const char *)c.p;
  if (version > NEWEST_VERSION)
    return WEFT_ERR(UNIMPLEMENTED, "bytecode version %" PRIu64 " of producer %.64s: versions up to %d are known",
                    version, r->program->producer, NEWEST_VERSION);
  r->version = (int)version;
  c.p = nul + 1;
  while (c.p < c.end) {
    const uint8_t *at = c.p;
    bc_cursor payload;
    int id;
    WEFT_TRY(section(r, &c, &id, &payload));
    if (id >= SECTION_COUNT) return bc_fail(r, at, "section %d is not known", id);
    if (sections[id].p) return bc_fail(r, at, "section %d comes twice", id);
    sections[id] = payload;
  }
  static const int needed[] = {SECTION_STRING, SECTION_DIALECT, SECTION_ATTR_TYPE, SECTION_OFFSET, SECTION_IR};
  for (size_t i = 0; i < WEFT_COUNT(needed); i++)
    if (!sections[needed[i]].p) return bc_fail(r, c.p, "section %d is missing", needed[i]);
  r->program->code_bytes = (size_t)(sections[SECTION_IR].end - sections[SECTION_IR].p);
  if (r->in_parts) weft_arena_expect(r->arena, r->program->code_bytes * TABLES_PER_CODE);
  WEFT_TRY(read_strings(r, sections[SECTION_STRING]));
  WEFT_TRY(read_dialects(r, sections[SECTION_DIALECT]));
  WEFT_TRY(read_offsets(r, sections[SECTION_OFFSET], sections[SECTION_ATTR_TYPE]));
  r->in_parts = r->in_parts && may_read_in_parts(r);
  if (r->in_parts) WEFT_TRY_ALLOC(r->kept = WEFT_ARENA_ARRAY(r->arena, bc_kept_region, BC_KEPT_REGIONS));
  if (sections[SECTION_PROPERTIES].p) WEFT_TRY(read_properties(r, sections[SECTION_PROPERTIES]));
  return read_ir(r, sections[SECTION_IR]);
}

weft_status *mlir_read_bytecode(mlir_program *program, bool in_parts)
{
  bc_reader *reader = WEFT_ARENA_NEW(&program->arena, bc_reader);

  WEFT_TRY_ALLOC(reader);
  *reader = (bc_reader){
    .near_end = (const uint8_t *)program->input + program->size - WEFT_MIN(program->size, (size_t)7),
    .quick_end = (const uint8_t *)program->input + program->size - WEFT_MIN(program->size, (size_t)BC_QUICK_BYTES - 1),
    .program = program,
    .arena = &program->arena,
    .op_arena = &program->arena,
    .numbers = &program->arena,
    .in_parts = in_parts};
  return read_container(reader);
}
