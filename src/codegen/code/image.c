/* codegen/code/image.c -- maps machine code from bytes into memory. The image may come from an untrusted source: its
 * numbers are checked here, so that mapping it writes nowhere else. What its code does at run time is not checked. */
#include <config.h>

#include "codegen/code/code.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct gen_mapped {
  void *base;
  size_t size;
};

static weft_status *check_place(const gen_image *image, uint64_t place, const char *what)
{
  if (image->size >= sizeof(uint64_t) && place <= image->size - sizeof(uint64_t)) return NULL;
  return WEFT_ERR(INVALID_ARGUMENT, "machine code: a %s at byte %llu of %llu", what, (unsigned long long)place,
                  (unsigned long long)image->size);
}

static weft_status *put_addresses(const gen_image *image, char *base)
{
  for (int i = 0; i < image->fixup_count; i++) {
    uint64_t address;
    WEFT_TRY(check_place(image, image->fixups[i], "fixup"));
    memcpy(&address, base + image->fixups[i], sizeof address);
    if (address >= image->size)
      return WEFT_ERR(INVALID_ARGUMENT, "machine code: an address of byte %llu of %llu", (unsigned long long)address,
                      (unsigned long long)image->size);
    address += (uintptr_t)base;
    memcpy(base + image->fixups[i], &address, sizeof address);
  }
  return NULL;
}

static weft_status *put_imports(const gen_image *image, char *base)
{
  for (int i = 0; i < image->import_count; i++) {
    const gen_import *import = &image->imports[i];
    int k = 0;
    WEFT_TRY(check_place(image, import->slot, "slot"));
    while (k < gen_external_count && strcmp(gen_externals[k].name, import->name) != 0) k++;
    if (k == gen_external_count)
      return WEFT_ERR(INVALID_ARGUMENT, "machine code: it calls \"%.60s\", which this Weft does not offer",
                      import->name);
    memcpy(base + import->slot, &gen_externals[k].address, sizeof gen_externals[k].address);
  }
  return NULL;
}

static weft_status *fill(const gen_image *image, char *base)
{
  memcpy(base, image->bytes, image->size);
  WEFT_TRY(put_addresses(image, base));
  WEFT_TRY(put_imports(image, base));
  if (mprotect(base, image->size, PROT_READ) != 0 ||
      (image->code_size > 0 && mprotect(base, image->code_size, PROT_READ | PROT_EXEC) != 0))
    return WEFT_ERR(RESOURCE_EXHAUSTED, "cannot make %llu bytes of machine code executable",
                    (unsigned long long)image->code_size);
  return NULL;
}

weft_status *gen_image_map(const gen_image *image, gen_mapped **out_mapped)
{
  gen_mapped *mapped = calloc(1, sizeof *mapped);
  weft_status *st = NULL;

  *out_mapped = NULL;
  WEFT_TRY_ALLOC(mapped);
  mapped->size = image->size;
  if (image->code_size > image->size || image->code_size % GEN_IMAGE_PAGE != 0)
    st = WEFT_ERR(INVALID_ARGUMENT, "machine code: %llu bytes of code in %llu", (unsigned long long)image->code_size,
                  (unsigned long long)image->size);
  if (!st && image->size > 0) {
    mapped->base = mmap(NULL, image->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped->base == MAP_FAILED) {
      mapped->base = NULL;
      st = WEFT_ERR(RESOURCE_EXHAUSTED, "no memory for %llu bytes of machine code", (unsigned long long)image->size);
    }
  }
  if (!st && mapped->base) st = fill(image, mapped->base);
  if (st) {
    gen_image_unmap(mapped);
    return st;
  }
  *out_mapped = mapped;
  return NULL;
}

void gen_image_unmap(gen_mapped *mapped)
{
  if (!mapped) return;
  if (mapped->base) munmap(mapped->base, mapped->size);
  free(mapped);
}

void *gen_mapped_base(const gen_mapped *mapped) { return mapped->base; }
