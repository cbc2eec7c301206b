/* coord/peer_uid.c -- whose process is at the other end of a TCP connection within this machine. The kernel's socket
 * diagnosis (sock_diag(7)) tells the owner of the peer's socket, which is found by its two addresses. */
#include <config.h>

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <string.h>
#include <unistd.h>

#include "base/inet.h"
#include "base/macros.h"
#include "coord/trust.h"

enum { STATE_ESTABLISHED = 1, ANSWER_BYTES = 4096 };

typedef struct diag_request {
  struct nlmsghdr head;
  struct inet_diag_req_v2 body;
} diag_request;

static uint16_t port_of(const struct sockaddr_storage *name)
{
  return name->ss_family == AF_INET ? ((const struct sockaddr_in *)name)->sin_port
                                    : ((const struct sockaddr_in6 *)name)->sin6_port;
}

/* An IPv4 address in an IPv6 socket is looked for as IPv4, since the kernel stores it so. */
static void put_address(const struct sockaddr_storage *name, bool is_v4, uint32_t out[4])
{
  struct in6_addr address = weft_inet_address(name);

  if (is_v4) memcpy(out, &address.s6_addr[12], 4);
  else memcpy(out, &address, 16);
}

static diag_request request_for(const struct sockaddr_storage *peer, const struct sockaddr_storage *here)
{
  struct in6_addr address = weft_inet_address(peer);
  bool is_v4 = IN6_IS_ADDR_V4MAPPED(&address);
  diag_request request = {
    .head = {.nlmsg_len = sizeof request, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST},
    .body = {.sdiag_family = is_v4 ? AF_INET : AF_INET6, .sdiag_protocol = IPPROTO_TCP, .idiag_states = UINT32_MAX},
  };

  request.body.id.idiag_sport = port_of(peer); /* the peer's socket: its source is the peer */
  request.body.id.idiag_dport = port_of(here);
  put_address(peer, is_v4, request.body.id.idiag_src);
  put_address(here, is_v4, request.body.id.idiag_dst);
  request.body.id.idiag_cookie[0] = request.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  return request;
}

/* Is it the peer's socket, and open? A socket that its process has closed lives on without an owner, and the kernel
 * then reports user 0 and inode 0. Where the kernel finds no connection it may name a listener at that port. */
static bool is_the_peer(const struct inet_diag_msg *found, const struct inet_diag_sockid *asked)
{
  return found->idiag_state == STATE_ESTABLISHED && found->idiag_inode != 0 &&
         found->id.idiag_sport == asked->idiag_sport && found->id.idiag_dport == asked->idiag_dport;
}

bool coord_peer_uid(const struct sockaddr_storage *peer, const struct sockaddr_storage *here, uid_t *out_uid)
{
  diag_request request = request_for(peer, here);
  _Alignas(struct nlmsghdr) char answer[ANSWER_BYTES];
  const struct nlmsghdr *head = (const struct nlmsghdr *)(const void *)answer;
  const struct inet_diag_msg *found = NLMSG_DATA(head);
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  ssize_t n = -1;
  bool is_found;

  if (fd < 0) return false;
  if (send(fd, &request, sizeof request, 0) == (ssize_t)sizeof request)
    n = recv(fd, answer, sizeof answer, MSG_DONTWAIT); /* the kernel answers within send */
  close(fd);
  is_found = n >= (ssize_t)NLMSG_LENGTH(sizeof *found) && head->nlmsg_type == SOCK_DIAG_BY_FAMILY &&
             is_the_peer(found, &request.body.id);
  if (is_found) *out_uid = found->idiag_uid;
  return is_found;
}
