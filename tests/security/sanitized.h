/* tests/security/sanitized.h -- for programs that measure the memory of processes, which have no other sanitized.h.
 * AddressSanitizer keeps up to 256 MiB of freed memory, to find accesses to it.  Where an attack makes libfabric's
 * connections fail, for example, libfabric makes and frees 28 KiB for each attempt, hundreds of times in a second.  All
 * of that would count as memory of the process, so AddressSanitizer keeps only one MiB in these programs: the tests
 * bound what is in use. */
#ifndef WEFT_TESTS_SECURITY_SANITIZED_H
#define WEFT_TESTS_SECURITY_SANITIZED_H

__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "quarantine_size_mb=1"; }

#endif
