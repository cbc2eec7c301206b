/* coord/trust.c -- which clients without the secret are let in: by certificate, user id, host, or all of them. */
#include <config.h>

#include "coord/trust.h"

#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/inet.h"
#include "base/log.h"

enum { MOST_HOSTS = 65536 };

/* ---- addresses ---- */

static bool is_loopback(const struct in6_addr *address)
{
  return IN6_IS_ADDR_V4MAPPED(address) ? address->s6_addr[12] == 127 : IN6_IS_ADDR_LOOPBACK(address);
}

static int compare_addresses(const void *a, const void *b) { return memcmp(a, b, sizeof(struct in6_addr)); }

static weft_status *add_host(coord_trust_policy *policy, const char *name)
{
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
  int rc = getaddrinfo(name, NULL, &hints, &list);

  if (rc != 0) { /* the job can do without: its own processes have the secret */
    WEFT_LOG("coord", WARN, "WEFT_COORD_HOSTS: host \"%s\": %s; clients without the secret are not let in from there",
             name, gai_strerror(rc));
    return NULL;
  }
  for (const struct addrinfo *a = list; a; a = a->ai_next) {
    struct sockaddr_storage address = {0};
    if (policy->host_count == MOST_HOSTS || !WEFT_RESIZE(policy->hosts, policy->host_count + 1)) {
      freeaddrinfo(list);
      return WEFT_ERR(RESOURCE_EXHAUSTED, "WEFT_COORD_HOSTS: more addresses than memory, or than %d", MOST_HOSTS);
    }
    memcpy(&address, a->ai_addr, a->ai_addrlen);
    policy->hosts[policy->host_count++] = weft_inet_address(&address);
  }
  freeaddrinfo(list);
  return NULL;
}

/* ---- policy ---- */

weft_status *coord_trust_init(coord_trust_policy *policy, const weft_coord_service_options *options, bool has_secret)
{
  char *names = strdup(options->hosts), *rest = names;
  weft_status *st = NULL;

  *policy = (coord_trust_policy){.by_certificate = *options->tls_ca_file && !has_secret,
                                 .by_anyone = options->allow_unauthenticated ||
                                              (options->insecure && !has_secret && !*options->tls_ca_file)};
  WEFT_TRY_ALLOC(names);
  for (char *name; !st && (name = strsep(&rest, ", "));)
    if (*name) st = add_host(policy, name);
  free(names);
  if (policy->host_count) qsort(policy->hosts, policy->host_count, sizeof *policy->hosts, compare_addresses);
  return st;
}

void coord_trust_fini(coord_trust_policy *policy)
{
  free(policy->hosts);
  *policy = (coord_trust_policy){.hosts = NULL};
}

/* In a user namespace, all users that the namespace does not know have the overflow user id: is `uid` that id? */
static bool is_nobody_in_particular(uid_t uid)
{
  FILE *file = fopen("/proc/sys/kernel/overflowuid", "re");
  unsigned overflow = 65534, first = 1, outside = 1, count = 0;
  bool is_whole;

  if (file) {
    if (fscanf(file, "%u", &overflow) != 1) overflow = 65534;
    fclose(file);
  }
  if (uid != overflow) return false;
  file = fopen("/proc/self/uid_map", "re");
  is_whole = file && fscanf(file, "%u %u %u", &first, &outside, &count) == 3 && count == UINT32_MAX;
  if (file) fclose(file);
  return !is_whole;
}

/* True if `uid` is this process's user or root: both could read the secret as well. */
static bool is_trusted_user(uid_t uid) { return uid == 0 || (uid == geteuid() && !is_nobody_in_particular(uid)); }

static coord_trust trust_of(const coord_trust_policy *policy, int fd)
{
  struct sockaddr_storage peer = {0}, here = {0};
  socklen_t peer_size = sizeof peer, here_size = sizeof here;
  struct in6_addr from, to;
  uid_t uid;

  if (policy->by_certificate) return COORD_TRUST_CERTIFICATE; /* the handshake fails without a certificate */
  if (getpeername(fd, (struct sockaddr *)&peer, &peer_size) == 0 &&
      getsockname(fd, (struct sockaddr *)&here, &here_size) == 0) {
    from = weft_inet_address(&peer);
    to = weft_inet_address(&here);
    if (is_loopback(&from) ||
        compare_addresses(&from, &to) == 0) { /* other users share this machine, so its address proves nothing */
      if (coord_peer_uid(&peer, &here, &uid) && is_trusted_user(uid)) return COORD_TRUST_UID;
    } else if (policy->host_count &&
               bsearch(&from, policy->hosts, policy->host_count, sizeof from, compare_addresses)) {
      return COORD_TRUST_HOST;
    }
  }
  return policy->by_anyone ? COORD_TRUST_ANYONE : COORD_TRUST_NONE;
}

/* Logs each kind of trust once, so that an operator knows which are in use. */
static void tell(coord_trust_policy *policy, coord_trust trust)
{
  if (policy->is_told[trust]) return;
  policy->is_told[trust] = true;
  switch (trust) {
  case COORD_TRUST_UID:
    WEFT_LOG("coord", INFO, "clients without the secret are let in from this machine by their user id (%u)",
             (unsigned)geteuid());
    break;
  case COORD_TRUST_HOST:
    WEFT_LOG("coord", WARN, "clients without the secret are let in from the addresses of the job's hosts (%zu)",
             policy->host_count);
    break;
  case COORD_TRUST_ANYONE:
    WEFT_LOG(
      "coord", WARN,
      "clients without the secret are let in from anywhere (WEFT_COORD_ALLOW_UNAUTHENTICATED, WEFT_COORD_INSECURE)");
    break;
  case COORD_TRUST_NONE:
    WEFT_LOG("coord", WARN,
             "a client without the secret was refused; further refusals are only counted (see `weft coord status`)");
    break;
  default: break;
  }
}

coord_trust coord_trust_of(coord_trust_policy *policy, int fd)
{
  coord_trust trust = trust_of(policy, fd);

  tell(policy, trust);
  return trust;
}

weft_status *coord_trust_check_listener(const weft_coord_service_options *options, bool has_secret, int fd)
{
  struct sockaddr_storage here = {0};
  socklen_t size = sizeof here;
  struct in6_addr address;

  if (has_secret || *options->tls_ca_file || options->insecure || options->allow_unauthenticated) return NULL;
  if (getsockname(fd, (struct sockaddr *)&here, &size) != 0)
    return WEFT_ERR(INTERNAL, "cannot find out the bound address");
  address = weft_inet_address(&here);
  if (is_loopback(&address)) return NULL;
  return WEFT_ERR(
    FAILED_PRECONDITION,
    "a coordination service at %s, which other machines reach, must be able to recognise the job's processes: "
    "set a secret (WEFT_COORD_SECRET_FILE: a file that only its user may read, the same for every process; `weft launch` "
    "makes one), or TLS client certificates (WEFT_COORD_TLS_CERT, _KEY and _CA); WEFT_COORD_INSECURE=1 (--insecure) lets "
    "everyone in",
    options->address);
}
