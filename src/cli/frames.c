/* cli/frames.c -- the messages between `weft launch` and its nodes (frames.h). */
#include <config.h>

#include "cli/frames.h"

#include <endian.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"

enum { READ_BYTES = 1 << 16 };

typedef struct header {
  uint32_t kind, rank, size;
} header;

/* Makes room for `size` bytes and a NUL at the end. */
static weft_status *reserve(cli_queue *queue, size_t size)
{
  size_t used = cli_queue_size(queue), wanted = used + size + 1;

  if (queue->begin > 0) {
    memmove(queue->data, queue->data + queue->begin, used);
    queue->begin = 0;
    queue->end = used;
  }
  WEFT_TRY_ALLOC(WEFT_RESERVE(queue->data, queue->capacity, wanted, 256));
  return NULL;
}

weft_status *cli_queue_add(cli_queue *queue, const void *data, size_t size)
{
  WEFT_TRY(reserve(queue, size));
  if (size > 0) memcpy(queue->data + queue->end, data, size);
  queue->end += size;
  return NULL;
}

weft_status *cli_queue_add_frame(cli_queue *queue, cli_frame_kind kind, int rank, const void *data, size_t size)
{
  header h = {htole32((uint32_t)kind), htole32((uint32_t)rank), htole32((uint32_t)size)};

  if (size > CLI_FRAME_MOST_BYTES)
    return WEFT_ERR(INVALID_ARGUMENT, "command and environment of rank %d have %zu bytes, over %d", rank, size,
                    (int)CLI_FRAME_MOST_BYTES);
  WEFT_TRY(reserve(queue, sizeof h + size));
  WEFT_TRY(cli_queue_add(queue, &h, sizeof h));
  return cli_queue_add(queue, data, size);
}

weft_status *cli_queue_next_frame(cli_queue *queue, cli_frame *out, bool *out_found)
{
  header h;

  *out_found = false;
  if (cli_queue_size(queue) < sizeof h) return NULL;
  memcpy(&h, queue->data + queue->begin, sizeof h);
  size_t size = le32toh(h.size);
  uint32_t kind = le32toh(h.kind), rank = le32toh(h.rank);
  if (kind < CLI_FRAME_SECRET || kind > CLI_FRAME_ENDED || rank > INT32_MAX || size > CLI_FRAME_MOST_BYTES)
    return WEFT_ERR(INVALID_ARGUMENT, "not a frame of weft launch: kind %u, rank %u, %zu bytes", kind, rank, size);
  if (cli_queue_size(queue) < sizeof h + size) return NULL;
  queue->begin += sizeof h;
  *out = (cli_frame){(cli_frame_kind)kind, (int)rank, queue->data + queue->begin, size};
  queue->begin += size;
  *out_found = true;
  return NULL;
}

char *cli_queue_next_line(cli_queue *queue)
{
  size_t size = cli_queue_size(queue);
  char *line = size > 0 ? queue->data + queue->begin : NULL, *end = size > 0 ? memchr(line, '\n', size) : NULL;

  if (!end) return NULL;
  *end = '\0';
  queue->begin = (size_t)(end + 1 - queue->data);
  return line;
}

weft_status *cli_queue_read(cli_queue *queue, int fd, bool *out_ended)
{
  *out_ended = false;
  WEFT_TRY(reserve(queue, READ_BYTES));
  ssize_t n = read(fd, queue->data + queue->end, READ_BYTES);
  if (n > 0) queue->end += (size_t)n;
  else *out_ended = n == 0 || (errno != EAGAIN && errno != EINTR);
  return NULL;
}

void cli_queue_free(cli_queue *queue)
{
  if (queue->data) explicit_bzero(queue->data, queue->capacity); /* it may have held the job's secret */
  free(queue->data);
  *queue = (cli_queue){0};
}
