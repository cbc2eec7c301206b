/* tests/fuzz/mutate.c -- libFuzzer's hooks: which format an input has, and how many changes are made at once. */
#include <config.h>

#include "mutate.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/saved.h"

/* A serialised executable (src/runtime/saved.h): a header, then blocks behind their sizes, but for the flags, which
 * have no size. The blocks are platform, fingerprint, note, module, entry and code. */
enum { MOST_CHANGES = 4, EXE_HEADER = WEFT_SAVED_HEADER, EXE_FLAGS = 8, EXE_TEXTS = 2, EXE_BLOCKS = 6 };

size_t mut_below(mut_job *job, size_t end)
{
  uint64_t z = job->random += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */

  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return end ? (size_t)((z ^ z >> 31) % end) : 0;
}

void mut_put(mut_job *job, const void *data, size_t size)
{
  job->failed |= size > job->most - job->size;
  if (job->failed || size == 0) return;
  memcpy(job->out + job->size, data, size);
  job->size += size;
}

int64_t mut_boundary(mut_job *job)
{
  static const int powers[] = {0, 0, 0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 48, 62, 63};
  uint64_t power = UINT64_C(1) << powers[mut_below(job, sizeof powers / sizeof *powers)];
  uint64_t value = power + mut_below(job, 3) - 1;

  return (int64_t)(mut_below(job, 4) ? value : -value);
}

static bool is_bytecode(mut_bytes b) { return b.size >= 4 && memcmp(b.data, "ML\xefR", 4) == 0; }
static bool is_executable(mut_bytes b) { return b.size >= EXE_HEADER && memcmp(b.data, "weft.exe", 8) == 0; }

static bool is_text(mut_bytes b)
{
  size_t odd = 0;

  for (size_t i = 0; i < b.size; i++) odd += !isprint(b.data[i]) && !isspace(b.data[i]);
  return odd <= b.size / 64;
}

/* The blocks of an executable, as far as they are inside it. */
static void blocks_of(mut_bytes whole, mut_bytes blocks[EXE_BLOCKS])
{
  const uint8_t *at = whole.data + EXE_HEADER, *end = whole.data + whole.size;

  for (int i = 0; i < EXE_BLOCKS; i++) {
    uint64_t size;
    if (i == EXE_TEXTS) at += end - at < EXE_FLAGS ? end - at : EXE_FLAGS;
    blocks[i] = (mut_bytes){at, 0};
    if (end - at < (ptrdiff_t)sizeof size) continue;
    memcpy(&size, at, sizeof size);
    at += sizeof size;
    blocks[i] = (mut_bytes){at, size > (uint64_t)(end - at) ? (size_t)(end - at) : size};
    at += blocks[i].size;
  }
}

/* Changes a number of 8 bytes, of which the description of machine code is made, in the first bytes of a block. */
static bool change_numbers(mut_job *job)
{
  enum { DESCRIPTION = 2048 };
  mut_bytes whole = job->receiver;
  int64_t value = mut_boundary(job);

  if (whole.size < sizeof value) return false;
  size_t last = whole.size - sizeof value, at = mut_below(job, (last < DESCRIPTION ? last : DESCRIPTION) + 1);
  mut_put(job, whole.data, whole.size);
  if (!job->failed) memcpy(job->out + job->size - whole.size + at, &value, sizeof value);
  return true;
}

/* Changes one block and repairs its size.  The target repairs the digest. */
static bool change_executable(mut_job *job)
{
  mut_bytes whole = job->receiver, donor = is_executable(job->donor) ? job->donor : whole;
  mut_bytes blocks[EXE_BLOCKS], theirs[EXE_BLOCKS];
  size_t chosen = EXE_TEXTS + mut_below(job, EXE_BLOCKS - EXE_TEXTS);
  uint64_t flags = 0;
  bool changed = false;

  blocks_of(whole, blocks);
  blocks_of(donor, theirs);
  mut_put(job, whole.data, EXE_HEADER);
  for (size_t i = 0; i < EXE_BLOCKS; i++) {
    uint64_t size = blocks[i].size;
    if (i == EXE_TEXTS) mut_put(job, &flags, sizeof flags);
    size_t before = job->size;
    mut_put(job, &size, sizeof size);
    if (i != chosen) {
      mut_put(job, blocks[i].data, blocks[i].size);
      continue;
    }
    job->receiver = blocks[i];
    job->donor = theirs[i];
    changed = i == EXE_BLOCKS - 1 ? change_numbers(job) : mut_proto(job);
    if (job->failed) break;
    size = job->size - before - sizeof size;
    memcpy(job->out + before, &size, sizeof size);
  }
  job->receiver = whole;
  return changed;
}

static bool change(mut_job *job)
{
  if (getenv("FUZZ_PLAIN") || mut_below(job, 8) == 0) return false;
  if (is_bytecode(job->receiver)) return mut_bytecode(job);
  if (is_executable(job->receiver)) return change_executable(job);
  return is_text(job->receiver) ? mut_text(job) : mut_proto(job);
}

/* Changes data[0, size) in place, and gives its size. */
static size_t mutate(uint8_t *data, size_t size, mut_bytes donor, size_t most, unsigned seed)
{
  mut_job job = {.random = seed, .donor = donor, .out = malloc(most + 1), .most = most};
  uint8_t *copy = malloc(most + 1);

  for (size_t count = 1 + mut_below(&job, MOST_CHANGES); copy && job.out && count > 0; count--) {
    memcpy(copy, data, size);
    job.receiver = (mut_bytes){copy, size};
    job.size = 0;
    job.failed = false;
    bool changed = size > 0 && change(&job) && !job.failed && job.size > 0;
    if (changed) memcpy(data, job.out, size = job.size);
    else size = LLVMFuzzerMutate(data, size, most);
    if (!changed) break; /* changes of bytes leave little for a parser of structure */
  }
  free(copy);
  free(job.out);
  return size;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
  uint8_t *copy = malloc(size + 1);

  if (!copy) return size;
  memcpy(copy, data, size);
  size = mutate(data, size, (mut_bytes){copy, size}, most, seed);
  free(copy);
  return size;
}

size_t LLVMFuzzerCustomCrossOver(const uint8_t *receiver, size_t receiver_size, const uint8_t *donor, size_t donor_size,
                                 uint8_t *out, size_t most, unsigned seed)
{
  if (receiver_size > most) return 0;
  memcpy(out, receiver, receiver_size);
  return mutate(out, receiver_size, (mut_bytes){donor, donor_size}, most, seed);
}
