/* tests/fuzz/mutate_wire.c -- changes of two binary formats whose parts carry their lengths, which are repaired.
 * Protocol buffers: a field is replaced, joined or followed by one that stands at the same path in the donor,
 * repeated, dropped or given another number.  An instruction of HLO that comes from a donor gets an
 * identifier of its own and operands of the receiver. MLIR bytecode (version 6 and before): a section is
 * replaced by the donor's, or bytes within it are. */
#include <config.h>

#include "mutate.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FIELDS = 8192, MOST_DEPTH = 16, VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5, MOST_VARINT = 10 };

/* Numbers of fields in hlo.proto. */
enum { MODULE_COMPUTATIONS = 3, COMPUTATION_INSTRUCTIONS = 2, INSTRUCTION_ID = 35, INSTRUCTION_OPERANDS = 36 };

typedef struct field {
  uint32_t number, path; /* path: a hash of the numbers from the top */
  int wire, parent;      /* parent -1: at the top */
  size_t start, value, end; /* of the tag, of what follows tag and length, of the field */
} field;

typedef struct tree {
  mut_bytes bytes;
  int count;
  field fields[MOST_FIELDS];
} tree;

static size_t read_varint(mut_bytes b, size_t at, uint64_t *out)
{
  *out = 0;
  for (size_t i = 0; i < MOST_VARINT && at + i < b.size; i++) {
    *out |= (uint64_t)(b.data[at + i] & 127) << (i < 9 ? 7 * i : 63);
    if (b.data[at + i] < 128) return i + 1;
  }
  return 0;
}

static size_t write_varint(uint8_t *out, uint64_t value)
{
  size_t size = 0;

  for (; value >= 128; value >>= 7) out[size++] = (uint8_t)(value | 128);
  out[size++] = (uint8_t)value;
  return size;
}

static bool is_words(const uint8_t *data, size_t size)
{
  for (size_t i = 0; i < size; i++)
    if (!isprint(data[i])) return false;
  return true;
}

/* Reads [at, end) as a message.  False, with no field added: it is none. */
static bool read_message(tree *t, size_t at, size_t end, int parent, int depth)
{
  const mut_bytes b = {t->bytes.data, end};
  int first = t->count;

  while (at < end && t->count < MOST_FIELDS) {
    uint64_t tag, number;
    size_t tag_size = read_varint(b, at, &tag), value = at + tag_size, n;
    if (tag_size == 0 || tag >> 3 == 0 || tag >> 32) break;
    field f = {.number = (uint32_t)(tag >> 3), .wire = (int)(tag & 7), .parent = parent, .start = at, .value = value};
    f.path = ((parent < 0 ? 17 : t->fields[parent].path) * 31 + f.number) * 2654435761u;
    switch (f.wire) {
    case VARINT:
      n = read_varint(b, value, &number);
      f.end = n ? value + n : end + 1;
      break;
    case FIXED64: f.end = value + 8; break;
    case FIXED32: f.end = value + 4; break;
    case BYTES:
      n = read_varint(b, value, &number);
      f.value = value + n;
      f.end = n && number <= end - f.value ? f.value + (size_t)number : end + 1;
      break;
    default: f.end = end + 1;
    }
    if (f.end > end) break;
    int me = t->count;
    t->fields[t->count++] = f;
    if (f.wire == BYTES && depth < MOST_DEPTH && !is_words(t->bytes.data + f.value, f.end - f.value))
      read_message(t, f.value, f.end, me, depth + 1);
    at = f.end;
  }
  if (at == end || t->count == MOST_FIELDS) return true;
  t->count = first;
  return false;
}

static bool read_tree(tree *t, mut_bytes bytes)
{
  t->bytes = bytes;
  t->count = 0;
  return read_message(t, 0, bytes.size, -1, 0) && t->count > 0;
}

/* The receiver, with `with` in the place of the bytes [start, end) that are within
 * the field `parent` and in none below it. */
static void put_replaced(mut_job *job, const tree *t, int parent, size_t start, size_t end, mut_bytes with)
{
  const uint8_t *data = t->bytes.data;
  size_t capacity = t->bytes.size + with.size + 16 * (MOST_DEPTH + 2), size = with.size;
  uint8_t *now = malloc(capacity), *next = malloc(capacity);

  if (now && next && with.size) memcpy(now, with.data, with.size);
  for (; now && next; parent = t->fields[parent].parent) {
    size_t at = 0, from = 0, to = t->bytes.size;
    if (parent >= 0) {
      const field *f = &t->fields[parent];
      size_t inner = size + (start - f->value) + (f->end - end);
      at = write_varint(next, (uint64_t)f->number << 3 | BYTES);
      at += write_varint(next + at, inner);
      from = f->value;
      to = f->end;
    }
    memcpy(next + at, data + from, start - from);
    memcpy(next + at + (start - from), now, size);
    memcpy(next + at + (start - from) + size, data + end, to - end);
    size += at + (start - from) + (to - end);
    uint8_t *swap = now;
    now = next;
    next = swap;
    if (parent < 0) break;
    start = t->fields[parent].start;
    end = t->fields[parent].end;
  }
  if (now && next) mut_put(job, now, size);
  free(now);
  free(next);
}

static void put_field_replaced(mut_job *job, const tree *t, int at, mut_bytes with)
{
  put_replaced(job, t, t->fields[at].parent, t->fields[at].start, t->fields[at].end, with);
}

static bool is_instruction(const tree *t, int at)
{
  int parent = t->fields[at].parent;

  return t->fields[at].number == COMPUTATION_INSTRUCTIONS && parent >= 0 &&
         t->fields[parent].number == MODULE_COMPUTATIONS;
}

/* The identifier of a random instruction of the computation before byte `before`; 0 if there is none. */
static uint64_t random_operand(mut_job *job, const tree *t, int computation, size_t before)
{
  uint64_t chosen = 0, id;
  size_t seen = 0;

  for (int i = computation + 1; i < t->count && t->fields[i].start < before; i++) {
    int parent = t->fields[i].parent;
    if (t->fields[i].number != INSTRUCTION_ID || parent < 0 || t->fields[parent].parent != computation) continue;
    if (read_varint(t->bytes, t->fields[i].value, &id) && mut_below(job, ++seen) == 0) chosen = id;
  }
  return chosen;
}

/* The donor's instruction as one of the receiver's, placed after its field `after`: malloc'd. */
static uint8_t *adapted(mut_job *job, const tree *donor, int instruction, const tree *t, int after, size_t *out_size)
{
  const field *whole = &donor->fields[instruction];
  uint8_t *body = malloc(3 * (whole->end - whole->start) + 64), *out = malloc(3 * (whole->end - whole->start) + 128);
  size_t size = 0;
  uint64_t number;

  for (int i = instruction + 1; body && out && i < donor->count && donor->fields[i].start < whole->end; i++) {
    const field *f = &donor->fields[i];
    if (f->parent != instruction) continue;
    if (f->number == INSTRUCTION_ID || f->number == INSTRUCTION_OPERANDS) {
      size_t count = 1;
      if (f->wire == BYTES) { /* packed */
        count = 0;
        for (size_t at = f->value, n; at < f->end && (n = read_varint(donor->bytes, at, &number)); at += n) count++;
      }
      for (size_t k = 0; k < count; k++) {
        uint64_t id = f->number == INSTRUCTION_ID
                        ? 1000000 + mut_below(job, 1000000)
                        : random_operand(job, t, t->fields[after].parent, t->fields[after].end);
        size += write_varint(body + size, (uint64_t)f->number << 3 | VARINT);
        size += write_varint(body + size, id);
        if (size > 2 * (whole->end - whole->start)) break;
      }
    } else {
      memcpy(body + size, donor->bytes.data + f->start, f->end - f->start);
      size += f->end - f->start;
    }
  }
  if (body && out) {
    *out_size = write_varint(out, (uint64_t)whole->number << 3 | BYTES);
    *out_size += write_varint(out + *out_size, size);
    memcpy(out + *out_size, body, size);
    *out_size += size;
  }
  free(body);
  return out;
}

/* A field of the donor at the path of the receiver's field `at`, -1. */
static int partner(mut_job *job, const tree *t, int at, const tree *donor)
{
  int found = -1;
  size_t seen = 0;

  for (int i = 0; i < donor->count; i++) {
    bool equal = donor->bytes.data == t->bytes.data && i == at;
    if (!equal && donor->fields[i].path == t->fields[at].path && donor->fields[i].wire == t->fields[at].wire &&
        mut_below(job, ++seen) == 0)
      found = i;
  }
  return found;
}

static bool splice_field(mut_job *job, const tree *t, int at, const tree *donor)
{
  int from = partner(job, t, at, donor);
  bool joins = mut_below(job, 2);

  if (from < 0) return false;
  const field *f = &donor->fields[from], *place = &t->fields[at];
  mut_bytes with = {donor->bytes.data + f->start, f->end - f->start};
  if (is_instruction(t, at) && is_instruction(donor, from) && mut_below(job, 8)) {
    size_t size = 0;
    uint8_t *made = adapted(job, donor, from, t, at, &size);
    if (made) put_replaced(job, t, place->parent, place->end, place->end, (mut_bytes){made, size});
    free(made);
    return made != NULL;
  }
  if (joins) put_replaced(job, t, place->parent, place->end, place->end, with);
  else put_field_replaced(job, t, at, with);
  return true;
}

/* Another number in the place of a varint, or of one of those that a packed field may be. */
static bool change_number(mut_job *job, const tree *t, int at)
{
  const field *f = &t->fields[at];
  uint8_t number[MOST_VARINT];
  uint64_t old = 0;
  size_t start = f->value, size;

  if (f->wire == FIXED32 || f->wire == FIXED64 || (f->wire == BYTES && f->end == f->value)) return false;
  if (f->wire == BYTES) start += mut_below(job, f->end - f->value);
  size = read_varint((mut_bytes){t->bytes.data, f->end}, start, &old);
  if (size == 0) return false;
  uint64_t value = mut_below(job, 3) == 0 ? old + 1 - 2 * mut_below(job, 2) : (uint64_t)mut_boundary(job);
  mut_bytes with = {number, write_varint(number, value)};
  if (f->wire == BYTES) put_replaced(job, t, at, start, start + size, with);
  else put_replaced(job, t, f->parent, start, start + size, with);
  return true;
}

static bool change_bytes(mut_job *job, const tree *t, int at)
{
  const field *f = &t->fields[at];
  uint8_t bytes[256];
  size_t size = f->end - f->value;

  if (f->wire != BYTES || size > sizeof bytes / 2) return false;
  memcpy(bytes, t->bytes.data + f->value, size);
  size = LLVMFuzzerMutate(bytes, size, sizeof bytes);
  put_replaced(job, t, at, f->value, f->end, (mut_bytes){bytes, size});
  return true;
}

bool mut_proto(mut_job *job)
{
  static tree t, donor; /* one thread makes inputs; large allocations are slow under sanitizers */
  bool done = false;

  if (read_tree(&t, job->receiver) && read_tree(&donor, job->donor)) {
    for (int tries = 0; tries < 8 && !done; tries++) {
      int at = (int)mut_below(job, (size_t)t.count);
      const field *f = &t.fields[at];
      switch (mut_below(job, 8)) {
      case 0:
        put_field_replaced(job, &t, at, (mut_bytes){NULL, 0});
        done = true;
        break;
      case 1:
        put_replaced(job, &t, f->parent, f->end, f->end, (mut_bytes){t.bytes.data + f->start, f->end - f->start});
        done = true;
        break;
      case 2: case 3: case 4: done = change_number(job, &t, at); break;
      case 5: done = change_bytes(job, &t, at); break;
      default: done = splice_field(job, &t, at, &donor);
      }
    }
  }
  return done;
}

/* ---- MLIR bytecode: "ML\xefR", a version, the producer's name with its NUL, sections.  A section is its number, whose
 * high bit says that an alignment and padding follow the length, its length, and its bytes.  A number's size is told by
 * the zeros at the end of its first byte. ---- */

enum { MOST_SECTIONS = 16, ALIGNED = 0x80, PADDING = 0xcb, IR_SECTION = 4 };

typedef struct section {
  int id;
  uint64_t alignment; /* 0: not aligned */
  size_t start, end;  /* of its bytes */
} section;

typedef struct outline {
  mut_bytes bytes;
  size_t head; /* what lies before the first section */
  section sections[MOST_SECTIONS];
  size_t count;
} outline;

static size_t read_number(mut_bytes b, size_t at, uint64_t *out)
{
  if (at >= b.size) return 0;
  size_t size = b.data[at] ? (size_t)__builtin_ctz(b.data[at]) + 1 : 9;
  uint64_t raw = 0;
  if (size > b.size - at) return 0;
  memcpy(&raw, b.data + at + (size == 9), size == 9 ? 8 : size);
  *out = size == 9 ? raw : raw >> size;
  return size;
}

static size_t write_number(uint8_t *out, uint64_t value)
{
  size_t size = 1;

  while (size < 9 && value >> (7 * size)) size++;
  uint64_t raw = size == 9 ? value : (value << 1 | 1) << (size - 1);
  if (size == 9) *out++ = 0;
  memcpy(out, &raw, size == 9 ? 8 : size);
  return size;
}

static bool read_outline(outline *o, mut_bytes b)
{
  uint64_t number;
  size_t at = 4, n = read_number(b, at, &number);
  const uint8_t *nul = n ? memchr(b.data + at + n, 0, b.size - at - n) : NULL;

  *o = (outline){.bytes = b};
  if (!nul) return false;
  o->head = at = (size_t)(nul - b.data) + 1;
  while (at < b.size && o->count < MOST_SECTIONS) {
    section s = {.id = b.data[at] & ~ALIGNED};
    bool is_aligned = b.data[at++] & ALIGNED;
    if (!(n = read_number(b, at, &number))) return false;
    at += n;
    if (is_aligned) {
      if (!(n = read_number(b, at, &s.alignment)) || s.alignment == 0 || s.alignment > 4096) return false;
      at = (size_t)((at + n + s.alignment - 1) / s.alignment * s.alignment);
    }
    if (at > b.size || number > b.size - at) return false;
    s.start = at;
    s.end = at += (size_t)number;
    o->sections[o->count++] = s;
  }
  return o->count > 0;
}

static void put_section(mut_job *job, const section *s, mut_bytes content)
{
  uint8_t head[24] = {(uint8_t)(s->id | (s->alignment ? ALIGNED : 0))};
  size_t size = 1 + write_number(head + 1, content.size);

  if (s->alignment) size += write_number(head + size, s->alignment);
  mut_put(job, head, size);
  while (s->alignment && !job->failed && job->size % s->alignment) mut_put(job, &(uint8_t){PADDING}, 1);
  mut_put(job, content.data, content.size);
}

/* The sections of isolated regions lie within the section of operations: their lengths
 * grow by `more` where byte `at` is within. */
static void repair_nested(uint8_t *data, size_t size, size_t at, size_t more)
{
  for (size_t i = 0; i < at && i + 10 < size; i++) {
    uint64_t length;
    size_t n = data[i] == IR_SECTION ? read_number((mut_bytes){data, size}, i + 1, &length) : 0;
    if (n == 0 || length < 8 || i + 1 + n > at || length > size - i - 1 - n || i + 1 + n + length <= at) continue;
    uint8_t now[9];
    if (write_number(now, length + more) == n) memcpy(data + i + 1, now, n);
  }
}

/* Bytes of the section for other ones: a number for a number, or a run for a run of the donor's. */
static bool change_section(mut_job *job, const outline *o, size_t index, mut_bytes theirs)
{
  const section *s = &o->sections[index];
  size_t size = s->end - s->start, at = mut_below(job, size), drop = 1 + mut_below(job, 4), count;
  uint8_t number[9], *content = malloc(size + 64);
  uint64_t old;

  if (!content || size == 0) return free(content), false;
  memcpy(content, o->bytes.data + s->start, size);
  drop = drop > size - at ? size - at : drop;
  const uint8_t *with = number;
  if (mut_below(job, 3) == 0 && theirs.size > 32) {
    with = theirs.data + mut_below(job, theirs.size - 32);
    count = mut_below(job, 2) ? drop : mut_below(job, 32);
  } else {
    drop = read_number((mut_bytes){content, size}, at, &old);
    if (drop == 0) return free(content), false;
    uint64_t value = mut_below(job, 2)   ? old + 2 * mut_below(job, 2) - 1
                     : mut_below(job, 2) ? mut_below(job, 64)
                                         : (uint64_t)mut_boundary(job);
    count = write_number(number, value);
  }
  repair_nested(content, size, at, count - drop);
  memmove(content + at + count, content + at + drop, size - at - drop);
  memcpy(content + at, with, count);
  put_section(job, s, (mut_bytes){content, size + count - drop});
  free(content);
  return true;
}

bool mut_bytecode(mut_job *job)
{
  outline o, donor;
  size_t chosen, from = 0;
  bool done = true;

  if (!read_outline(&o, job->receiver)) return false;
  if (!read_outline(&donor, job->donor)) donor = o;
  chosen = mut_below(job, o.count);
  for (size_t i = 0; i < o.count && mut_below(job, 2); i++) /* operations more often than others */
    if (o.sections[i].id == IR_SECTION) chosen = i;
  while (from < donor.count && donor.sections[from].id != o.sections[chosen].id) from++;
  if (from == donor.count) donor = o, from = chosen;
  mut_bytes theirs = {donor.bytes.data + donor.sections[from].start, donor.sections[from].end - donor.sections[from].start};
  mut_put(job, o.bytes.data, o.head);
  for (size_t i = 0; i < o.count; i++) {
    const section *s = &o.sections[i];
    if (i == chosen && theirs.data != o.bytes.data + s->start && mut_below(job, 8) == 0) put_section(job, s, theirs);
    else if (i == chosen) done = change_section(job, &o, i, theirs);
    else put_section(job, s, (mut_bytes){o.bytes.data + s->start, s->end - s->start});
  }
  return done;
}
