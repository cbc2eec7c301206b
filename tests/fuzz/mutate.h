/* tests/fuzz/mutate.h -- a structure-aware mutator that the targets of programs share.
 * It defines libFuzzer's hooks LLVMFuzzerCustomMutator and LLVMFuzzerCustomCrossOver.  A change is made at the
 * level of the input's format, which is told from its first bytes: text (HLO or MLIR), MLIR bytecode, a
 * serialised executable, a protocol buffer.
 *   receiver  the input that is changed
 *   donor     the input that parts are taken from: another one of the corpus, or the receiver itself
 * One change of eight, each change that finds nothing to do, and all of them where FUZZ_PLAIN is set in the environment
 * are libFuzzer's own changes of bytes. */
#ifndef WEFT_TESTS_MUTATE_H
#define WEFT_TESTS_MUTATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *receiver, size_t receiver_size, const uint8_t *donor, size_t donor_size,
                                 uint8_t *out, size_t most, unsigned seed);

typedef struct mut_bytes {
  const uint8_t *data;
  size_t size;
} mut_bytes;

/* What one change works with. */
typedef struct mut_job {
  uint64_t random; /* the state of its random numbers */
  mut_bytes receiver, donor;
  uint8_t *out; /* the changed receiver */
  size_t size, most;
  bool failed; /* the result is longer than `most` */
} mut_job;

size_t mut_below(mut_job *job, size_t end); /* a random number in [0, end); 0 for end 0 */
void mut_put(mut_job *job, const void *data, size_t size);
/* A number that programs get wrong: around a power of two, or -1, 0 or 1. */
int64_t mut_boundary(mut_job *job);

/* Each makes one change, into job->out.  False: it found nothing to change. */
bool mut_text(mut_job *job);
bool mut_proto(mut_job *job);
bool mut_bytecode(mut_job *job);

#endif
