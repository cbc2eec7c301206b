/* tests/fuzz/mutate.c -- libFuzzer's hooks: which format an input has, and how many changes are made at once. */
#include <config.h>

#include "mutate.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* A serialised executable: magic and version, three sizes of which the first two are of the options and the program, those two. */
enum { MOST_CHANGES = 4, EXE_SIZES = 40, EXE_HEADER = 64 };

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
static bool is_executable(mut_bytes b) { return b.size >= EXE_HEADER && memcmp(b.data, "weftexe1", 8) == 0; }

static bool is_text(mut_bytes b)
{
  size_t odd = 0;

  for (size_t i = 0; i < b.size; i++) odd += !isprint(b.data[i]) && !isspace(b.data[i]);
  return odd <= b.size / 64;
}

static void sizes_of(mut_bytes b, uint64_t sizes[2])
{
  memcpy(sizes, b.data + EXE_SIZES, 2 * sizeof *sizes);
  if (sizes[0] > b.size - EXE_HEADER) sizes[0] = 0;
  sizes[1] = b.size - EXE_HEADER - sizes[0];
}

/* Changes the options or the program and repairs the sizes.  The target repairs the checksum. */
static bool change_executable(mut_job *job)
{
  mut_bytes whole = job->receiver, donor = job->donor;
  bool is_options = mut_below(job, 4) == 0;
  uint64_t sizes[2], theirs[2];

  sizes_of(whole, sizes);
  sizes_of(is_executable(donor) ? donor : whole, theirs);
  donor = is_executable(donor) ? donor : whole;
  mut_put(job, whole.data, EXE_HEADER);
  if (!is_options) mut_put(job, whole.data + EXE_HEADER, sizes[0]);
  size_t before = job->size;
  job->receiver = (mut_bytes){whole.data + EXE_HEADER + (is_options ? 0 : sizes[0]), sizes[!is_options]};
  job->donor = (mut_bytes){donor.data + EXE_HEADER + (is_options ? 0 : theirs[0]), theirs[!is_options]};
  bool changed = mut_proto(job);
  job->receiver = whole;
  sizes[!is_options] = job->size - before;
  if (is_options) mut_put(job, whole.data + EXE_HEADER + (whole.size - EXE_HEADER - sizes[1]), sizes[1]);
  if (changed && !job->failed) memcpy(job->out + EXE_SIZES, sizes, sizeof sizes);
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
