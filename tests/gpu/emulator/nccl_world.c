/* tests/gpu/emulator/nccl_world.c -- the shared memory in which the ranks of an emulated communicator meet. */
#include <config.h>

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "nccl.h"

static size_t world_bytes(int size)
{
  return sizeof(emu_nccl_world) + (size_t)size * sizeof(emu_nccl_member) +
         (size_t)size * (size_t)size * sizeof(emu_nccl_box);
}

static const char *name_of(uint64_t token, char *out, size_t size)
{
  snprintf(out, size, "/weft-emu-nccl-%016llx", (unsigned long long)token);
  return out;
}

emu_nccl_world *emu_nccl_open(uint64_t token, int size)
{
  char name[64];
  int fd = shm_open(name_of(token, name, sizeof name), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  uint32_t none = 0;

  if (fd < 0) return NULL;
  emu_nccl_world *w = MAP_FAILED;
  /* the file grows to the size that its first rank says; fresh memory is zero, which is how everything begins */
  if (ftruncate(fd, (off_t)world_bytes(size)) == 0)
    w = mmap(NULL, world_bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (w == MAP_FAILED) return NULL;
  if (!atomic_compare_exchange_strong(&w->size, &none, (uint32_t)size) && none != (uint32_t)size)
    atomic_store(&w->wrong, WNC_InvalidArgument);
  return w;
}

void emu_nccl_close(emu_nccl_world *world, int size)
{
  if (world) munmap(world, world_bytes(size));
}

void emu_nccl_unlink(uint64_t token)
{
  char name[64];
  shm_unlink(name_of(token, name, sizeof name));
}

uint64_t emu_nccl_token(void)
{
  uint64_t token = 0;
  while (token == 0)
    if (getrandom(&token, sizeof token, 0) < 0) token = (uint64_t)getpid() << 32 | 1;
  return token;
}
