/* tests/gpu/emulator/library.c -- the emulated driver's side of library.h. */
#include <config.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define EMU_LIBRARY_API __attribute__((visibility("default")))

EMU_LIBRARY_API int weft_emu_fault(const char *call) { return emu_enter(call, EMU_ANYTIME); }

EMU_LIBRARY_API bool weft_emu_ready(void)
{
  return emu_initialized && emu_current && !__atomic_load_n(&emu_current->sticky, __ATOMIC_ACQUIRE);
}

EMU_LIBRARY_API int weft_emu_enqueue(struct wcu_stream_st *stream, weft_emu_job *job, const void *args, size_t bytes)
{
  emu_work w = {.what = EMU_LIBRARY, .job = job, .bytes = malloc(bytes + 1), .byte_count = bytes};

  if (!w.bytes) return WCU_ERROR_OUT_OF_MEMORY;
  memcpy(w.bytes, args, bytes);
  return emu_submit(stream, &w);
}

static atomic_size_t kept_bytes;

EMU_LIBRARY_API size_t weft_emu_kept_bytes(void) { return atomic_load(&kept_bytes); }

EMU_LIBRARY_API void *weft_emu_keep(size_t bytes)
{
  enum { BLOCK_BYTES = 256 << 10 };
  typedef struct block { struct block *next; size_t used; max_align_t bytes[]; } block;
  static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
  static block *blocks; /* a list, so that leak checkers find them */
  size_t size = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
  void *out = NULL;

  pthread_mutex_lock(&mu);
  if (!blocks || blocks->used + size > BLOCK_BYTES - sizeof(block)) {
    block *made = size <= BLOCK_BYTES - sizeof(block) ? calloc(1, BLOCK_BYTES) : NULL;
    if (made) made->next = blocks, blocks = made;
    if (made) atomic_fetch_add(&kept_bytes, BLOCK_BYTES);
  }
  if (blocks && blocks->used + size <= BLOCK_BYTES - sizeof(block)) {
    out = (char *)blocks->bytes + blocks->used;
    blocks->used += size;
  }
  pthread_mutex_unlock(&mu);
  return out;
}

EMU_LIBRARY_API int weft_emu_record(struct wcu_stream_st *stream, weft_emu_job *job, const void *args, size_t bytes,
                                    void (*count)(const void *args, int change))
{
  emu_work w = {.what = EMU_LIBRARY, .job = job, .count = count, .bytes = malloc(bytes + 1), .byte_count = bytes};

  if (!w.bytes) return WCU_ERROR_OUT_OF_MEMORY;
  memcpy(w.bytes, args, bytes);
  count(w.bytes, 1);
  return emu_submit(stream, &w);
}

EMU_LIBRARY_API bool weft_emu_is_capturing(struct wcu_stream_st *stream)
{
  pthread_mutex_lock(&emu_mu);
  bool captures = stream && stream->capture;
  pthread_mutex_unlock(&emu_mu);
  return captures;
}

EMU_LIBRARY_API bool weft_emu_is_mapped(uint64_t at)
{
  emu_block b;

  return emu_lookup(at, &b) && b.kind == EMU_MAPPED;
}

EMU_LIBRARY_API void *weft_emu_reach(int device, uint64_t at, size_t bytes, bool write, char *error, size_t size)
{
  char why[200];

  if (emu_reachable(device, at, bytes, write, why, sizeof why)) return emu_host(at);
  snprintf(error, size, "a library call %s %zu bytes at %#llx: %s", write ? "writes" : "reads", bytes,
           (unsigned long long)at, why);
  return NULL;
}
