/* cli/frames.h -- the messages between `weft launch` and its nodes (node.h): frames, each about one rank.
 *
 * A frame is its kind, its rank and the number of its bytes as little-endian numbers of four bytes, and its bytes. A
 * queue holds bytes that wait to be written, or bytes that were read and are not a whole frame yet. */
#ifndef WEFT_CLI_FRAMES_H
#define WEFT_CLI_FRAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum { CLI_FRAME_MOST_BYTES = 8 << 20 };

typedef enum cli_frame_kind {
  /* launcher to node */
  CLI_FRAME_SECRET = 1, /* the job's secret */
  CLI_FRAME_START,      /* strings, each with its NUL, the first letter says what: see node.c */
  CLI_FRAME_SIGNAL,     /* a signal's number, in decimal digits */
  /* node to launcher */
  CLI_FRAME_OUTPUT,     /* what a process wrote to standard output */
  CLI_FRAME_ERROR,      /* what a process wrote to standard error, or why it cannot be started */
  CLI_FRAME_ENDED,      /* the status that waitpid gave, in decimal digits; a process's last frame */
} cli_frame_kind;

typedef struct cli_queue {
  char *data;
  size_t begin, end, capacity;
} cli_queue;

typedef struct cli_frame {
  cli_frame_kind kind;
  int rank;
  const char *data; /* in the queue, until its next change */
  size_t size;
} cli_frame;

static inline size_t cli_queue_size(const cli_queue *queue) { return queue->end - queue->begin; }
WEFT_NODISCARD weft_status *cli_queue_add(cli_queue *queue, const void *data, size_t size);
WEFT_NODISCARD weft_status *cli_queue_add_frame(cli_queue *queue, cli_frame_kind kind, int rank, const void *data,
                                                size_t size);
/* Takes the first frame. *out_found: it is there as a whole. Errors: INVALID_ARGUMENT if these are no frames. */
WEFT_NODISCARD weft_status *cli_queue_next_frame(cli_queue *queue, cli_frame *out, bool *out_found);
/* Takes the first line without its end, as a string that stays until the queue's next change; NULL: there is no whole
 * line. */
char *cli_queue_next_line(cli_queue *queue);
/* Reads once from a descriptor that does not block. *out_ended: nothing more will come. */
WEFT_NODISCARD weft_status *cli_queue_read(cli_queue *queue, int fd, bool *out_ended);
void cli_queue_free(cli_queue *queue);

#endif
