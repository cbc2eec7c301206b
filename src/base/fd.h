/* base/fd.h -- whole reads and writes on file descriptors. */
#ifndef WEFT_BASE_FD_H
#define WEFT_BASE_FD_H

#include <stdbool.h>
#include <stddef.h>

/* Reads exactly `size` bytes.  Interrupted calls are repeated.  Returns false on an error, with errno set, and
 * where the file ends first, with errno 0. */
bool weft_fd_read_all(int fd, void *out, size_t size);

/* Writes all `size` bytes.  Interrupted and partial writes go on.  Returns false on an error, with errno set.  May be
 * called between fork and exec. */
bool weft_fd_write_all(int fd, const void *data, size_t size);

#endif
