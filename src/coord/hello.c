/* coord/hello.c -- a BIO that reads along while a TLS client greets, and ends the connection at too long a message. */
#include <config.h>

#include "coord/hello.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/macros.h"

enum { RECORD_HEAD = 5, MESSAGE_HEAD = 4 }; /* RFC 8446, 5.1 and 4 */
enum { HANDSHAKE = 22 };                    /* type of a record */

/* The position of the client's next byte in records and messages. Records of other types than HANDSHAKE, among them
 * encrypted ones, are skipped. The reader never stops: a client may send records of early data, which look encrypted,
 * before a second ClientHello in the clear. */
typedef struct reader {
  uint8_t record[RECORD_HEAD], message[MESSAGE_HEAD]; /* the heads, as far as they have come */
  size_t record_size, message_size;                   /* of what has come of them */
  size_t record_left, message_left;                   /* bytes of the bodies that are still to come */
} reader;

/* Reads a part of a record of handshake messages. False: a message is too long. */
static bool messages_fit(reader *r, const uint8_t *data, size_t size)
{
  while (size > 0) {
    size_t n = WEFT_MIN(size, r->message_left);
    data += n;
    size -= n;
    r->message_left -= n;
    if (size == 0 || r->message_left > 0) return true;
    r->message[r->message_size++] = *data++;
    size--;
    if (r->message_size < MESSAGE_HEAD) continue;
    r->message_size = 0;
    r->message_left = (size_t)r->message[1] << 16 | (size_t)r->message[2] << 8 | r->message[3];
    if (r->message_left > COORD_HELLO_BYTES - MESSAGE_HEAD) return false;
  }
  return true;
}

static bool fits(reader *r, const uint8_t *data, size_t size)
{
  while (size > 0) {
    if (r->record_left > 0) {
      size_t n = WEFT_MIN(size, r->record_left);
      if (r->record[0] == HANDSHAKE && !messages_fit(r, data, n)) return false;
      data += n;
      size -= n;
      r->record_left -= n;
      continue;
    }
    r->record[r->record_size++] = *data++;
    size--;
    if (r->record_size < RECORD_HEAD) continue;
    r->record_size = 0;
    r->record_left = (size_t)r->record[3] << 8 | r->record[4];
  }
  return true;
}

/* ---- the BIO ---- */

static int create(BIO *bio)
{
  reader *r = calloc(1, sizeof *r);

  BIO_set_data(bio, r);
  BIO_set_init(bio, r != NULL);
  return r != NULL;
}

static int destroy(BIO *bio)
{
  free(BIO_get_data(bio));
  BIO_set_data(bio, NULL);
  return 1;
}

static int read_along(BIO *bio, char *data, int size)
{
  int n = BIO_read(BIO_next(bio), data, size);

  BIO_clear_retry_flags(bio);
  BIO_copy_next_retry(bio);
  return n <= 0 || fits(BIO_get_data(bio), (const uint8_t *)data, (size_t)n) ? n : -1;
}

static int write_on(BIO *bio, const char *data, int size)
{
  int n = BIO_write(BIO_next(bio), data, size);

  BIO_clear_retry_flags(bio);
  BIO_copy_next_retry(bio);
  return n;
}

static long control(BIO *bio, int command, long number, void *pointer)
{
  return BIO_ctrl(BIO_next(bio), command, number, pointer);
}

static BIO_METHOD *method; /* for the life of the process */

static void make_method(void)
{
  BIO_METHOD *made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_FILTER, "weft hello");

  if (!made) return;
  BIO_meth_set_create(made, create);
  BIO_meth_set_destroy(made, destroy);
  BIO_meth_set_read(made, read_along);
  BIO_meth_set_write(made, write_on);
  BIO_meth_set_ctrl(made, control);
  method = made;
}

BIO *coord_hello_bio(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;

  pthread_once(&once, make_method);
  return method ? BIO_new(method) : NULL;
}
