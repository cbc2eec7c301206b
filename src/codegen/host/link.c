/* codegen/host/link.c -- links object files to an image: sections side by side, references resolved to distances, a
 * stub and a slot for each C function that is called. Formats: System V ABI, chapter 4, and its x86-64 supplement. */
#include <config.h>

#include "codegen/host/link.h"

#include <elf.h>
#include <string.h>

/* The image begins with bytes of no function; a stub is "jmp *slot(%rip)" and two bytes of padding. */
enum { HEAD_BYTES = 16, STUB_BYTES = 8, SLOT_BYTES = 8, JUMP_BYTES = 6 };
static const unsigned char trap = 0xcc; /* int3 */

typedef struct object {
  const char *data;
  size_t size;
  const Elf64_Ehdr *header;
  const Elf64_Shdr *sections;
  uint64_t *places;         /* by section: offset in the image; 0: the section is not part of it */
  const Elf64_Sym *symbols;
  size_t symbol_count;
  const char *names;        /* of symbols: ends with a NUL */
  size_t name_bytes;
} object;

typedef struct linker {
  weft_arena *arena;
  object *objects;
  int count;
  unsigned char *bytes;
  uint64_t code_size, size;          /* laid out so far: of the code; of the constants, then of the whole */
  uint64_t *fixups;
  gen_import *imports;               /* C functions, then addresses of them in tables */
  int fixup_count, import_count, function_count;
  uint64_t stubs;                    /* offset of the stub of the first function */
} linker;

#define MALFORMED(what) WEFT_ERR(INTERNAL, "linking kernels: %s of an object file", what)

/* ---- reading an object ------------------------------------------------------------------------------------------- */

static bool holds(const object *o, uint64_t offset, uint64_t bytes)
{
  return offset <= o->size && bytes <= o->size - offset;
}

static const char *section_name(const object *o, const Elf64_Shdr *s)
{
  const Elf64_Shdr *names = &o->sections[o->header->e_shstrndx];

  if (s->sh_name >= names->sh_size || o->data[names->sh_offset + names->sh_size - 1] != '\0') return "";
  return o->data + names->sh_offset + s->sh_name;
}

static weft_status *read_symbols(object *o, const Elf64_Shdr *s)
{
  if (s->sh_link >= o->header->e_shnum || s->sh_offset % 8 != 0) return MALFORMED("the symbols");
  const Elf64_Shdr *names = &o->sections[s->sh_link];
  o->symbols = (const Elf64_Sym *)(o->data + s->sh_offset);
  o->symbol_count = s->sh_size / sizeof *o->symbols;
  o->names = o->data + names->sh_offset;
  o->name_bytes = names->sh_size;
  if (o->name_bytes == 0 || o->names[o->name_bytes - 1] != '\0') return MALFORMED("the names");
  return NULL;
}

/* Finds the sections and symbols, and checks that all of them are inside the file. */
static weft_status *read_object(linker *l, object *o, const gen_object_bytes *from)
{
  *o = (object){.data = from->data, .size = from->size, .header = from->data};
  const Elf64_Ehdr *h = o->header;
  if (o->size < sizeof *h || memcmp(h->e_ident, ELFMAG, SELFMAG) != 0 || h->e_ident[EI_CLASS] != ELFCLASS64 ||
      h->e_type != ET_REL)
    return MALFORMED("the header");
  if (h->e_machine != EM_X86_64)
    return WEFT_ERR(UNIMPLEMENTED, "saving machine code: only that of x86-64 can be saved (ELF machine %d)",
                    h->e_machine);
  if (h->e_shoff % 8 != 0 || !holds(o, h->e_shoff, (uint64_t)h->e_shnum * sizeof *o->sections) ||
      h->e_shstrndx >= h->e_shnum)
    return MALFORMED("the table of sections");
  o->sections = (const Elf64_Shdr *)(o->data + h->e_shoff);
  o->places = WEFT_ARENA_ARRAY(l->arena, uint64_t, h->e_shnum);
  WEFT_TRY_ALLOC(o->places);
  for (int i = 0; i < h->e_shnum; i++)
    if (o->sections[i].sh_type != SHT_NOBITS && !holds(o, o->sections[i].sh_offset, o->sections[i].sh_size))
      return MALFORMED("a section");
  for (int i = 0; i < h->e_shnum; i++)
    if (o->sections[i].sh_type == SHT_SYMTAB) WEFT_TRY(read_symbols(o, &o->sections[i]));
  return o->symbols ? NULL : MALFORMED("the symbols");
}

static const char *symbol_name(const object *o, const Elf64_Sym *symbol)
{
  return symbol->st_name < o->name_bytes ? o->names + symbol->st_name : "";
}

/* ---- layout ------------------------------------------------------------------------------------------------------ */

/* Tables to unwind the stack are left out: nothing unwinds through a kernel. */
static bool is_wanted(const object *o, const Elf64_Shdr *s)
{
  return (s->sh_flags & SHF_ALLOC) && s->sh_size > 0 && strcmp(section_name(o, s), ".eh_frame") != 0;
}

/* Gives sections of one kind, code or constants, their places behind `*end`. */
static weft_status *place_sections(linker *l, bool code, uint64_t *end)
{
  for (int k = 0; k < l->count; k++) {
    object *o = &l->objects[k];
    for (int i = 0; i < o->header->e_shnum; i++) {
      const Elf64_Shdr *s = &o->sections[i];
      if (!is_wanted(o, s) || !!(s->sh_flags & SHF_EXECINSTR) != code) continue;
      if ((s->sh_flags & SHF_WRITE) && strncmp(section_name(o, s), ".data.rel.ro", 12) != 0)
        return WEFT_ERR(UNIMPLEMENTED, "saving machine code: variables of kernels (section %.60s)", section_name(o, s));
      uint64_t align = WEFT_MAX(s->sh_addralign, 1);
      if (align > GEN_IMAGE_PAGE || (align & (align - 1)) != 0) return MALFORMED("the alignment");
      o->places[i] = WEFT_ALIGN_UP(*end, align);
      *end = o->places[i] + s->sh_size;
    }
  }
  return NULL;
}

/* The number of the function among the imports; a new one where it is not known yet. */
static weft_status *import(linker *l, const char *name, int *out)
{
  for (*out = 0; *out < l->function_count; ++*out)
    if (strcmp(l->imports[*out].name, name) == 0) return NULL;
  if (l->function_count == gen_external_count) return WEFT_ERR(INTERNAL, "kernels call \"%.60s\"", name);
  l->imports[l->function_count++].name = name;
  return NULL;
}

static weft_status *find_imports(linker *l)
{
  int number;

  for (int k = 0; k < l->count; k++)
    for (size_t i = 1; i < l->objects[k].symbol_count; i++) {
      const Elf64_Sym *symbol = &l->objects[k].symbols[i];
      if (symbol->st_shndx == SHN_UNDEF) WEFT_TRY(import(l, symbol_name(&l->objects[k], symbol), &number));
    }
  return NULL;
}

static weft_status *lay_out(linker *l, int relocations)
{
  uint64_t end = HEAD_BYTES;

  l->imports = WEFT_ARENA_ARRAY(l->arena, gen_import, gen_external_count + relocations);
  l->fixups = WEFT_ARENA_ARRAY(l->arena, uint64_t, relocations);
  WEFT_TRY_ALLOC(l->imports && l->fixups);
  WEFT_TRY(find_imports(l));
  WEFT_TRY(place_sections(l, true, &end));
  l->stubs = WEFT_ALIGN_UP(end, (uint64_t)STUB_BYTES);
  end = l->stubs + (uint64_t)l->function_count * STUB_BYTES;
  l->code_size = WEFT_ALIGN_UP(end, (uint64_t)GEN_IMAGE_PAGE);
  end = l->code_size;
  WEFT_TRY(place_sections(l, false, &end));
  end = WEFT_ALIGN_UP(end, (uint64_t)SLOT_BYTES);
  for (int i = 0; i < l->function_count; i++, end += SLOT_BYTES) l->imports[i].slot = end;
  l->import_count = l->function_count;
  l->size = end;
  if (l->size > INT32_MAX) return WEFT_ERR(UNIMPLEMENTED, "saving machine code: more than 2 GiB of it");
  l->bytes = weft_arena_alloc(l->arena, l->size);
  WEFT_TRY_ALLOC(l->bytes);
  memset(l->bytes, trap, l->code_size);
  return NULL;
}

static void put_stubs(linker *l)
{
  static const unsigned char jump[] = {0xff, 0x25};

  for (int i = 0; i < l->function_count; i++) {
    uint64_t at = l->stubs + (uint64_t)i * STUB_BYTES;
    int32_t distance = (int32_t)(l->imports[i].slot - (at + JUMP_BYTES));
    memcpy(l->bytes + at, jump, sizeof jump);
    memcpy(l->bytes + at + sizeof jump, &distance, sizeof distance);
  }
}

/* ---- relocation -------------------------------------------------------------------------------------------------- */

typedef struct target {
  bool is_function; /* a C function: `number` among the imports */
  int number;
  uint64_t offset;  /* in the image otherwise */
} target;

static weft_status *resolve(linker *l, const object *o, uint64_t index, target *out)
{
  if (index == 0 || index >= o->symbol_count) return MALFORMED("a symbol");
  const Elf64_Sym *symbol = &o->symbols[index];
  *out = (target){.is_function = symbol->st_shndx == SHN_UNDEF};
  if (out->is_function) return import(l, symbol_name(o, symbol), &out->number);
  if (symbol->st_shndx >= o->header->e_shnum || !o->places[symbol->st_shndx] ||
      symbol->st_value > o->sections[symbol->st_shndx].sh_size)
    return WEFT_ERR(INTERNAL, "linking kernels: the symbol \"%.60s\" is not in the image", symbol_name(o, symbol));
  out->offset = o->places[symbol->st_shndx] + symbol->st_value;
  return NULL;
}

static weft_status *put_distance(linker *l, uint64_t place, int64_t distance)
{
  int32_t narrow = (int32_t)distance;

  if (narrow != distance) return MALFORMED("a distance");
  memcpy(l->bytes + place, &narrow, sizeof narrow);
  return NULL;
}

static weft_status *put_address(linker *l, uint64_t place, const target *to, int64_t addend)
{
  uint64_t offset = to->offset + (uint64_t)addend;

  if (to->is_function) {
    l->imports[l->import_count++] = (gen_import){l->imports[to->number].name, place};
    return NULL;
  }
  memcpy(l->bytes + place, &offset, sizeof offset);
  l->fixups[l->fixup_count++] = place;
  return NULL;
}

static weft_status *relocate(linker *l, const object *o, uint64_t section, uint64_t section_bytes, const Elf64_Rela *r)
{
  uint64_t place = section + r->r_offset;
  uint32_t type = ELF64_R_TYPE(r->r_info), bytes = type == R_X86_64_64 ? 8 : 4;
  int64_t from = r->r_addend - (int64_t)place;
  target to;

  if (r->r_offset > section_bytes || bytes > section_bytes - r->r_offset) return MALFORMED("a relocation");
  WEFT_TRY(resolve(l, o, ELF64_R_SYM(r->r_info), &to));
  switch (type) {
  case R_X86_64_64: return put_address(l, place, &to, r->r_addend);
  case R_X86_64_PC32: case R_X86_64_PLT32:
    if (to.is_function) to.offset = l->stubs + (uint64_t)to.number * STUB_BYTES;
    return put_distance(l, place, (int64_t)to.offset + from);
  case R_X86_64_GOTPCREL: case R_X86_64_GOTPCRELX: case R_X86_64_REX_GOTPCRELX:
    if (to.is_function) return put_distance(l, place, (int64_t)l->imports[to.number].slot + from);
    break;
  default: break;
  }
  return WEFT_ERR(UNIMPLEMENTED, "saving machine code: relocations of type %u", type);
}

static weft_status *copy_sections(linker *l, const object *o)
{
  for (int i = 0; i < o->header->e_shnum; i++)
    if (o->places[i] && o->sections[i].sh_type != SHT_NOBITS)
      memcpy(l->bytes + o->places[i], o->data + o->sections[i].sh_offset, o->sections[i].sh_size);
  for (int i = 0; i < o->header->e_shnum; i++) {
    const Elf64_Shdr *s = &o->sections[i];
    if (s->sh_type != SHT_RELA || s->sh_info >= o->header->e_shnum || !o->places[s->sh_info]) continue;
    if (s->sh_offset % 8 != 0) return MALFORMED("a relocation");
    const Elf64_Rela *list = (const Elf64_Rela *)(o->data + s->sh_offset);
    for (size_t k = 0; k < s->sh_size / sizeof *list; k++)
      WEFT_TRY(relocate(l, o, o->places[s->sh_info], o->sections[s->sh_info].sh_size, &list[k]));
  }
  return NULL;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static weft_status *find_table(const linker *l, const object *o, const gen_object_bytes *from, uint64_t *out)
{
  for (size_t i = 1; i < o->symbol_count; i++) {
    const Elf64_Sym *symbol = &o->symbols[i];
    if (ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT || strcmp(symbol_name(o, symbol), from->table) != 0) continue;
    if (symbol->st_shndx >= o->header->e_shnum || !o->places[symbol->st_shndx]) break;
    *out = o->places[symbol->st_shndx] + symbol->st_value;
    if (*out <= l->size && from->table_bytes <= l->size - *out) return NULL;
  }
  return WEFT_ERR(INTERNAL, "linking kernels: no table \"%s\"", from->table);
}

static int count_relocations(const object *o)
{
  size_t count = 0;

  for (int i = 0; i < o->header->e_shnum; i++)
    if (o->sections[i].sh_type == SHT_RELA) count += o->sections[i].sh_size / sizeof(Elf64_Rela);
  return (int)count;
}

weft_status *gen_link(const gen_object_bytes *objects, int count, weft_arena *arena, gen_image *out_image,
                      uint64_t *tables)
{
  linker l = {.arena = arena, .count = count, .objects = WEFT_ARENA_ARRAY(arena, object, count)};
  int relocations = 0;

  WEFT_TRY_ALLOC(l.objects);
  for (int i = 0; i < count; i++) {
    WEFT_TRY(read_object(&l, &l.objects[i], &objects[i]));
    relocations += count_relocations(&l.objects[i]);
  }
  WEFT_TRY(lay_out(&l, relocations));
  put_stubs(&l);
  for (int i = 0; i < count; i++) {
    WEFT_TRY(copy_sections(&l, &l.objects[i]));
    WEFT_TRY(find_table(&l, &l.objects[i], &objects[i], &tables[i]));
  }
  *out_image = (gen_image){.size = l.size,
                           .code_size = l.code_size,
                           .bytes = l.bytes,
                           .fixup_count = l.fixup_count,
                           .import_count = l.import_count,
                           .fixups = l.fixups,
                           .imports = l.imports};
  return NULL;
}
