/* coord/net.c -- addresses, sockets, TLS contexts. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/crypto.h>
#include <openssl/err.h>

#include "base/inet.h"
#include "coord/conn.h"
#include "coord/hello.h"

/* ---- addresses ---- */

/* Splits "host:port" or "[v6]:port"; an empty host is all interfaces. */
static weft_status *split_address(const char *address, char host[256], char port[16])
{
  const char *colon = strrchr(address, ':'), *start = address, *end = colon;

  if (!colon || !colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1) || strlen(colon + 1) > 5 ||
      atoi(colon + 1) > 65535)
    return WEFT_ERR(INVALID_ARGUMENT, "address \"%s\": expected host:port", address);
  if (*start == '[') {
    if (end == start || end[-1] != ']')
      return WEFT_ERR(INVALID_ARGUMENT, "address \"%s\": expected [v6]:port", address);
    start++;
    end--;
  }
  if (end - start >= 256) return WEFT_ERR(INVALID_ARGUMENT, "address \"%.64s...\": host too long", address);
  memcpy(host, start, (size_t)(end - start));
  host[end - start] = '\0';
  strcpy(port, colon + 1);
  return NULL;
}

static weft_status *resolve(const char *address, bool passive, char host[256], struct addrinfo **out)
{
  struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = passive ? AI_PASSIVE : 0};
  char port[16];
  int rc;

  WEFT_TRY(split_address(address, host, port));
  rc = getaddrinfo(*host ? host : NULL, port, &hints, out);
  if (rc != 0) return WEFT_ERR(UNAVAILABLE, "address \"%s\": %s", address, gai_strerror(rc));
  return NULL;
}

static weft_status *bound_address(int fd, const char *asked_host, char **out)
{
  struct sockaddr_storage name;
  socklen_t size = sizeof name;
  char host[NI_MAXHOST], port[NI_MAXSERV];

  if (getsockname(fd, (struct sockaddr *)&name, &size) != 0 ||
      getnameinfo((struct sockaddr *)&name, size, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return WEFT_ERR(INTERNAL, "cannot find out the bound address: %s", strerror(errno));
  if (*asked_host && strcmp(asked_host, "::") != 0 && strcmp(asked_host, "0.0.0.0") != 0)
    snprintf(host, sizeof host, "%s", asked_host);
  if (asprintf(out, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port) < 0) {
    *out = NULL;
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  return NULL;
}

weft_status *coord_listen(const char *address, int *out_fd, char **out_bound)
{
  struct addrinfo *list;
  char host[256];
  int error = 0, one = 1;
  weft_status *st;

  *out_fd = -1;
  *out_bound = NULL;
  WEFT_TRY(resolve(address, true, host, &list));
  for (struct addrinfo *a = list; a && *out_fd < 0; a = a->ai_next) {
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
      error = errno;
      continue;
    }
    /* No SO_REUSEPORT: two services on one port would divide the job's processes between them. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (a->ai_family == AF_INET6) {
      int v6_only = 0;
      setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof v6_only);
    }
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 4096) == 0) {
      *out_fd = fd;
    } else {
      error = errno;
      close(fd);
    }
  }
  freeaddrinfo(list);
  if (*out_fd < 0) return WEFT_ERR(UNAVAILABLE, "cannot listen on %s: %s", address, strerror(error));
  st = bound_address(*out_fd, host, out_bound);
  if (!st) return NULL;
  close(*out_fd);
  *out_fd = -1;
  return st;
}

weft_status *coord_dial(const char *address, int *out_fd)
{
  struct addrinfo *list;
  char host[256];
  int error = 0;

  *out_fd = -1;
  WEFT_TRY(resolve(address, false, host, &list));
  for (struct addrinfo *a = list; a && *out_fd < 0; a = a->ai_next) {
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && (connect(fd, a->ai_addr, a->ai_addrlen) == 0 || errno == EINPROGRESS)) {
      *out_fd = fd;
      break;
    }
    error = errno;
    if (fd >= 0) close(fd);
  }
  freeaddrinfo(list);
  if (*out_fd < 0) return WEFT_ERR(UNAVAILABLE, "cannot connect to %s: %s", address, strerror(error));
  coord_socket_tune(*out_fd);
  return NULL;
}

void coord_socket_tune(int fd)
{
  weft_tcp_tune(fd, &(weft_tcp_watch){.idle_s = 30, .interval_s = 10, .count = 3, .unacked_ms = 60000});
}

/* ---- TLS ---- */

static weft_status *tls_error(const char *what, const char *file)
{
  char text[256];

  ERR_error_string_n(ERR_get_error(), text, sizeof text);
  ERR_clear_error();
  return WEFT_ERR(INVALID_ARGUMENT, "%s \"%s\": %s", what, file, text);
}

static int select_h2(SSL *ssl, const unsigned char **out, unsigned char *out_size, const unsigned char *in,
                     unsigned in_size, void *ctx)
{
  static const unsigned char h2[] = {2, 'h', '2'};

  (void)ssl;
  (void)ctx;
  if (SSL_select_next_proto((unsigned char **)(uintptr_t)out, out_size, h2, sizeof h2, in, in_size) ==
      OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_OK;
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

weft_status *coord_tls_new(bool is_server, const char *cert_file, const char *key_file, const char *ca_file,
                           SSL_CTX **out)
{
  SSL_CTX *tls;
  weft_status *st = NULL;

  *out = NULL;
  if (!*cert_file && !*ca_file) return NULL;
  if (is_server && !*cert_file)
    return WEFT_ERR(INVALID_ARGUMENT,
                    "WEFT_COORD_TLS_CA without WEFT_COORD_TLS_CERT: a TLS service needs a certificate");
  tls = SSL_CTX_new(is_server ? TLS_server_method() : TLS_client_method());
  WEFT_TRY_ALLOC(tls);
  SSL_CTX_set_min_proto_version(tls, TLS1_3_VERSION); /* coord/hello.h relies on it */
  SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  if (*cert_file) {
    if (SSL_CTX_use_certificate_chain_file(tls, cert_file) != 1) st = tls_error("certificate", cert_file);
    else if (SSL_CTX_use_PrivateKey_file(tls, key_file, SSL_FILETYPE_PEM) != 1 || SSL_CTX_check_private_key(tls) != 1)
      st = tls_error("key", key_file);
  }
  if (!st && *ca_file && SSL_CTX_load_verify_locations(tls, ca_file, NULL) != 1) st = tls_error("authorities", ca_file);
  if (st) {
    SSL_CTX_free(tls);
    return st;
  }
  if (is_server) {
    SSL_CTX_set_alpn_select_cb(tls, select_h2, NULL);
    SSL_CTX_set_max_cert_list(tls, COORD_HELLO_BYTES);
    if (*ca_file) SSL_CTX_set_verify(tls, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
  } else {
    static const unsigned char h2[] = {2, 'h', '2'};
    SSL_CTX_set_alpn_protos(tls, h2, sizeof h2);
    SSL_CTX_set_verify(tls, SSL_VERIFY_PEER, NULL);
    if (!*ca_file) SSL_CTX_set_default_verify_paths(tls);
  }
  *out = tls;
  return NULL;
}

weft_status *coord_tls_session(SSL_CTX *tls, bool is_server, int fd, const char *address, SSL **out)
{
  char host[256], port[16];
  SSL *ssl;

  *out = NULL;
  if (!tls) return NULL;
  ssl = SSL_new(tls);
  WEFT_TRY_ALLOC(ssl);
  if (is_server) {
    BIO *hello = coord_hello_bio(), *socket = BIO_new_socket(fd, BIO_NOCLOSE);
    if (!hello || !socket) {
      BIO_free(hello);
      BIO_free(socket);
      SSL_free(ssl);
      return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
    }
    BIO_push(hello, socket);
    SSL_set_bio(ssl, hello, hello);
    SSL_set_accept_state(ssl);
  } else {
    SSL_set_fd(ssl, fd);
    weft_status *st = split_address(address, host, port);
    unsigned char numeric[16];
    if (st) {
      SSL_free(ssl);
      return st;
    }
    if (inet_pton(AF_INET, host, numeric) == 1 || inet_pton(AF_INET6, host, numeric) == 1) {
      X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host);
    } else {
      SSL_set_tlsext_host_name(ssl, host);
      SSL_set1_host(ssl, host);
    }
    SSL_set_connect_state(ssl);
  }
  *out = ssl;
  return NULL;
}
