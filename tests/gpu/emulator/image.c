/* tests/gpu/emulator/image.c -- see image.h. */
#include <config.h>

#include "image.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx.h"

enum { MASK = 0xa5, MOST_BYTES = 1 << 30 };

typedef struct header {
  char magic[8];
  int32_t sm;
  uint32_t unused;
  uint64_t bytes, sum; /* of the text, without a zero */
} header;
static const char magic[8] = "\177ELFemu";

static uint64_t sum_of(const unsigned char *bytes, size_t count, int sm)
{
  uint64_t sum = 0xcbf29ce484222325u + (uint64_t)sm;
  for (size_t i = 0; i < count; i++) sum = (sum ^ bytes[i]) * 0x100000001b3u;
  return sum;
}

static bool make_global(void *ctx, size_t size, size_t align, uint64_t *address, uint8_t **host)
{
  (void)ctx, (void)align;
  *host = calloc(1, size ? size : 1);
  *address = (uint64_t)(uintptr_t)*host;
  return *host != NULL;
}

static void drop_global(void *ctx, uint64_t address)
{
  (void)ctx;
  free((void *)(uintptr_t)address);
}

static bool check(const char *ptx, int sm, char *error, size_t error_size)
{
  ptx_globals globals = {make_global, drop_global, NULL};
  ptx_module *module = ptx_load(ptx, strlen(ptx), &globals, error, error_size);
  if (!module) return false;
  bool fits = ptx_target(module) <= (unsigned)sm;
  if (!fits)
    snprintf(error, error_size, "the PTX is for sm_%u, machine code is wanted for sm_%d", ptx_target(module), sm);
  ptx_free(module);
  return fits;
}

void *emu_image_make(const char *ptx, int sm, size_t *out_size, char *error, size_t error_size)
{
  if (!check(ptx, sm, error, error_size)) return NULL;
  header h = {.sm = sm, .bytes = strlen(ptx)};
  unsigned char *image = malloc(sizeof h + h.bytes);
  if (!image) return snprintf(error, error_size, "no memory"), NULL;
  memcpy(h.magic, magic, sizeof magic);
  for (size_t i = 0; i < h.bytes; i++) image[sizeof h + i] = (unsigned char)ptx[i] ^ MASK;
  h.sum = sum_of(image + sizeof h, h.bytes, sm);
  memcpy(image, &h, sizeof h);
  *out_size = sizeof h + h.bytes;
  return image;
}

bool emu_image_is(const void *image) { return memcmp(image, magic, 4) == 0; }

char *emu_image_open(const void *image, int *out_sm, char *error, size_t error_size)
{
  const unsigned char *bytes = (const unsigned char *)image + sizeof(header);
  header h;

  *out_sm = 0;
  snprintf(error, error_size, "the machine code is damaged, or not the emulator's");
  if (strncmp(image, magic, sizeof magic) != 0) return NULL;
  memcpy(&h, image, sizeof h);
  *out_sm = h.sm;
  if (h.bytes > MOST_BYTES || sum_of(bytes, h.bytes, h.sm) != h.sum) return NULL;
  char *ptx = malloc(h.bytes + 1);
  if (!ptx) return NULL;
  for (size_t i = 0; i < h.bytes; i++) ptx[i] = (char)(bytes[i] ^ MASK);
  ptx[h.bytes] = 0;
  return ptx;
}
