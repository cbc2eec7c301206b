/* hlo/frames.c -- call stacks in the source (frames.h). */
#include "hlo/frames.h"

#include <string.h>

static const char *name_at(int count, const char *const *names, int id)
{
  return id > 0 && id <= count ? names[id - 1] : "";
}

bool hlo_frame_get(const hlo_module *module, int id, hlo_frame *out_frame)
{
  const hlo_stack_frames *f = module->stack_frames;
  const struct hlo_file_location *at;
  int location, parent;

  if (!f || id < 1 || id > f->frame_count) return false;
  location = f->frames[id - 1].location;
  if (location < 1 || location > f->location_count) return false;
  at = &f->locations[location - 1];
  parent = f->frames[id - 1].parent - 1;
  *out_frame = (hlo_frame){.function = name_at(f->function_count, f->functions, at->function),
                           .file = name_at(f->file_count, f->files, at->file),
                           .line = at->line,
                           .column = at->column,
                           .end_line = at->end_line,
                           .end_column = at->end_column,
                           .parent = parent > 0 && parent < id ? parent : 0};
  return true;
}

bool hlo_source_place(const hlo_instr *instr, const char **out_file, int *out_line)
{
  const hlo_metadata *m = instr->metadata;
  hlo_frame frame;

  if (!m) return false;
  *out_file = m->source_file;
  *out_line = m->source_line;
  if (m->source_file) return true;
  if (!instr->parent || !hlo_frame_get(instr->parent->module, m->stack_frame_id, &frame) || !frame.file[0])
    return false;
  *out_file = frame.file;
  *out_line = frame.line;
  return true;
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

/* A growing table of rows of one size with ids from 1 on, in which equal rows are stored once. */
typedef struct row_table {
  char *rows;
  uint32_t row_bytes;
  int count, capacity;
  int *slots; /* hash table of twice the capacity: the id of a row, at its hash or in a later slot; 0: free */
} row_table;

struct hlo_frame_builder {
  weft_arena *arena;
  row_table files, functions, locations, frames;
};

static uint32_t hash_row(const row_table *t, const char *row)
{
  uint32_t hash = 0, word;

  for (uint32_t i = 0; i < t->row_bytes; i += (uint32_t)sizeof word) {
    memcpy(&word, row + i, sizeof word);
    hash = (hash ^ word) * 0x9e3779b1u;
    hash ^= hash >> 15;
  }
  return hash;
}

static int *find_slot(const row_table *t, const char *row)
{
  uint32_t mask = 2 * (uint32_t)t->capacity - 1, at = hash_row(t, row) & mask;

  while (t->slots[at] && memcmp(t->rows + (size_t)(t->slots[at] - 1) * t->row_bytes, row, t->row_bytes) != 0)
    at = (at + 1) & mask;
  return &t->slots[at];
}

static weft_status *grow(weft_arena *arena, row_table *t)
{
  int capacity = WEFT_MAX(2 * t->capacity, 16);
  char *rows = weft_arena_alloc_array(arena, (size_t)capacity, t->row_bytes);

  WEFT_TRY_ALLOC(rows);
  if (t->count) memcpy(rows, t->rows, (size_t)t->count * t->row_bytes);
  t->rows = rows;
  t->capacity = capacity;
  t->slots = WEFT_ARENA_ARRAY(arena, int, 2 * capacity);
  WEFT_TRY_ALLOC(t->slots);
  for (int i = 0; i < t->count; i++) *find_slot(t, rows + (size_t)i * t->row_bytes) = i + 1;
  return NULL;
}

static weft_status *intern(weft_arena *arena, row_table *t, const void *row, int *out_id)
{
  int *slot;

  if (t->count == t->capacity) WEFT_TRY(grow(arena, t));
  slot = find_slot(t, row);
  if (!*slot) {
    memcpy(t->rows + (size_t)t->count * t->row_bytes, row, t->row_bytes);
    *slot = ++t->count;
  }
  *out_id = *slot;
  return NULL;
}

weft_status *hlo_frame_builder_new(weft_arena *arena, hlo_frame_builder **out_builder)
{
  hlo_frame_builder *b = WEFT_ARENA_NEW(arena, hlo_frame_builder);
  enum { NAME = sizeof(const char *), PLACE = sizeof(struct hlo_file_location), FRAME = sizeof(struct hlo_stack_frame) };

  *out_builder = b;
  WEFT_TRY_ALLOC(b);
  b->arena = arena;
  b->files = b->functions = (row_table){.row_bytes = NAME};
  b->locations = (row_table){.row_bytes = PLACE};
  b->frames = (row_table){.row_bytes = FRAME};
  return NULL;
}

weft_status *hlo_frame_add(hlo_frame_builder *b, const hlo_frame *frame, int *out_id)
{
  struct hlo_file_location place = {.line = frame->line, .column = frame->column,
                                    .end_line = frame->end_line, .end_column = frame->end_column};
  struct hlo_stack_frame row = {.parent = frame->parent + 1};

  WEFT_TRY(intern(b->arena, &b->files, &frame->file, &place.file));
  WEFT_TRY(intern(b->arena, &b->functions, &frame->function, &place.function));
  WEFT_TRY(intern(b->arena, &b->locations, &place, &row.location));
  return intern(b->arena, &b->frames, &row, out_id);
}

static void *copy_rows(weft_arena *arena, const row_table *t)
{
  return weft_arena_memdup(arena, t->rows, (size_t)t->count * t->row_bytes);
}

weft_status *hlo_frame_builder_finish(const hlo_frame_builder *b, hlo_module *module)
{
  hlo_stack_frames *f;

  if (b->frames.count == 0) return NULL;
  f = WEFT_ARENA_NEW(&module->arena, hlo_stack_frames);
  WEFT_TRY_ALLOC(f);
  f->file_count = b->files.count;
  f->function_count = b->functions.count;
  f->location_count = b->locations.count;
  f->frame_count = b->frames.count;
  f->files = copy_rows(&module->arena, &b->files);
  f->functions = copy_rows(&module->arena, &b->functions);
  f->locations = copy_rows(&module->arena, &b->locations);
  f->frames = copy_rows(&module->arena, &b->frames);
  WEFT_TRY_ALLOC(f->files && f->functions && f->locations && f->frames);
  module->stack_frames = f;
  return NULL;
}
