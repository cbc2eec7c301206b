/* tests/fuzz/coord_hello_fuzz.c -- The bytes of a TLS client at the coordination service (coord/hello.h, coord/conn.h).
 *
 *   PIECE BYTES...   the bytes come in pieces of so many (0: all at once)
 *
 * However they are cut, the reader ends the connection in the piece that has the end of the head of too long a message,
 * and passes all pieces before it unchanged. OpenSSL never takes a block of memory that is much larger than a message
 * may be. */
#include <config.h>

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "coord/hello.h"
#include "coord/conn.h"
#include "fuzz.h"

enum { HANDSHAKE = 22, MOST_BYTES = 160 << 10, MOST_BLOCK = 24 << 10 };

/* ---- OpenSSL's memory ---- */

static bool measures;
static size_t largest;

static void note(size_t size)
{
  if (measures && size > largest) largest = size;
}

static void *take(size_t size, const char *file, int line)
{
  (void)file;
  (void)line;
  note(size);
  return malloc(size);
}

static void *take_again(void *old, size_t size, const char *file, int line)
{
  (void)file;
  (void)line;
  note(size);
  return realloc(old, size);
}

static void give(void *memory, const char *file, int line)
{
  (void)file;
  (void)line;
  free(memory);
}

/* ---- a service's side ---- */

static void write_pem(EVP_PKEY *key, X509 *cert, char *path, size_t path_size)
{
  int fd = memfd_create("pem", 0);
  FILE *f = fdopen(fd, "w");

  FUZZ_TRUE(f && (cert ? PEM_write_X509(f, cert) : PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL)) == 1);
  FUZZ_TRUE(fflush(f) == 0);
  snprintf(path, path_size, "/proc/self/fd/%d", fd); /* open for the life of the process */
}

static SSL_CTX *new_service(void)
{
  char cert_file[64], key_file[64];
  EVP_PKEY *key = EVP_EC_gen("P-256");
  X509 *cert = X509_new();
  SSL_CTX *tls;

  FUZZ_TRUE(key && cert && X509_gmtime_adj(X509_getm_notBefore(cert), 0) &&
            X509_gmtime_adj(X509_getm_notAfter(cert), 86400));
  FUZZ_TRUE(X509_set_pubkey(cert, key) == 1 && X509_sign(cert, key, EVP_sha256()) > 0);
  write_pem(NULL, cert, cert_file, sizeof cert_file);
  write_pem(key, NULL, key_file, sizeof key_file);
  FUZZ_OK(coord_tls_new(true, cert_file, key_file, "", &tls));
  X509_free(cert);
  EVP_PKEY_free(key);
  return tls;
}

/* Sends the pieces to a service, which goes on with its handshake after each, until the handshake ends or fails. */
static void shake(SSL_CTX *tls, const uint8_t *data, size_t size, size_t piece)
{
  char said[4096];
  int fds[2];
  SSL *ssl;

  FUZZ_TRUE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
  measures = true;
  FUZZ_OK(coord_tls_session(tls, true, fds[1], "", &ssl));
  for (int rc = -1, error = SSL_ERROR_WANT_READ; size > 0 && error == SSL_ERROR_WANT_READ;) {
    size_t n = WEFT_MIN(piece, size);
    FUZZ_TRUE(send(fds[0], data, n, MSG_NOSIGNAL) == (ssize_t)n);
    data += n;
    size -= n;
    rc = SSL_do_handshake(ssl);
    error = SSL_get_error(ssl, rc);
    while (recv(fds[0], said, sizeof said, 0) > 0) continue;
  }
  SSL_free(ssl);
  ERR_clear_error();
  measures = false;
  FUZZ_TRUE(largest <= MOST_BLOCK);
  close(fds[0]);
  close(fds[1]);
}

/* ---- the reader ---- */

/* Where the head of the first message that is too long ends, counted from all bytes; SIZE_MAX: there is none. Records
 * of other types than HANDSHAKE, among them encrypted ones, may stand between those of a message. */
static size_t end_of_long_head(const uint8_t *data, size_t size)
{
  static uint8_t text[MOST_BYTES]; /* of all records of handshake messages */
  static size_t at[MOST_BYTES];    /* where each of its bytes is in `data` */
  size_t count = 0, length;

  for (size_t record = 0; record + 5 <= size; record += 5 + length) {
    length = (size_t)data[record + 3] * 256 + data[record + 4];
    for (size_t i = record + 5; data[record] == HANDSHAKE && i < WEFT_MIN(record + 5 + length, size); i++) {
      text[count] = data[i];
      at[count++] = i;
    }
  }
  for (size_t message = 0; message + 4 <= count; message += 4 + length) {
    length = (size_t)text[message + 1] * 65536 + (size_t)text[message + 2] * 256 + text[message + 3];
    if (4 + length > COORD_HELLO_BYTES) return at[message + 3];
  }
  return SIZE_MAX;
}

static void read_along(const uint8_t *data, size_t size, size_t piece)
{
  BIO *hello = coord_hello_bio(), *bytes = BIO_new(BIO_s_mem());
  size_t end = end_of_long_head(data, size);
  static uint8_t came[MOST_BYTES];

  FUZZ_TRUE(hello && bytes);
  BIO_push(hello, bytes);
  for (size_t begin = 0; begin < size; begin += piece) {
    size_t n = WEFT_MIN(piece, size - begin);
    FUZZ_TRUE(BIO_write(bytes, data + begin, (int)n) == (int)n);
    int read = BIO_read(hello, came, sizeof came);
    if (end < begin + n) {
      FUZZ_TRUE(read < 0 && !BIO_should_retry(hello));
      break;
    }
    FUZZ_TRUE(read == (int)n && memcmp(came, data + begin, n) == 0);
  }
  BIO_free_all(hello);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static SSL_CTX *tls;

  if (!tls) {
    FUZZ_TRUE(CRYPTO_set_mem_functions(take, take_again, give) == 1);
    tls = new_service();
  }
  if (size < 2 || size > MOST_BYTES) return 0;
  size_t piece = data[0] ? data[0] : size;
  read_along(data + 1, size - 1, piece);
  shake(tls, data + 1, size - 1, piece);
  return 0;
}
