/* tests/base/inet_test.c -- addresses in one form, and what is set on TCP connections. */
#include "test.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#include "base/inet.h"

/* RFC 4291, section 2.5.5.2: an IPv4 address is ::ffff:a.b.c.d. */
TEST(addresses_of_both_families_have_one_form)
{
  struct sockaddr_storage name = {0};
  struct in6_addr got, want;
  char text[INET6_ADDRSTRLEN];

  name.ss_family = AF_INET;
  T_EQ_INT(inet_pton(AF_INET, "192.0.2.7", &((struct sockaddr_in *)&name)->sin_addr), 1);
  got = weft_inet_address(&name);
  T_EQ_STR(inet_ntop(AF_INET6, &got, text, sizeof text), "::ffff:192.0.2.7");
  memset(&name, 0, sizeof name);
  name.ss_family = AF_INET6;
  T_EQ_INT(inet_pton(AF_INET6, "2001:db8::1", &want), 1);
  ((struct sockaddr_in6 *)&name)->sin6_addr = want;
  got = weft_inet_address(&name);
  T_TRUE(memcmp(&got, &want, sizeof got) == 0);
  name.ss_family = AF_UNIX;
  got = weft_inet_address(&name);
  T_TRUE(IN6_IS_ADDR_UNSPECIFIED(&got));
}

static int option(int fd, int level, int name)
{
  int value = -1;
  socklen_t size = sizeof value;

  T_EQ_INT(getsockopt(fd, level, name, &value, &size), 0);
  return value;
}

TEST(a_tuned_connection_notices_a_dead_peer_and_delays_nothing)
{
  int fd = socket(AF_INET, SOCK_STREAM, 0);

  T_TRUE(fd >= 0);
  weft_tcp_tune(fd, &(weft_tcp_watch){.idle_s = 7, .interval_s = 3, .count = 4, .unacked_ms = 19000});
  T_TRUE(option(fd, IPPROTO_TCP, TCP_NODELAY) != 0);
  T_TRUE(option(fd, SOL_SOCKET, SO_KEEPALIVE) != 0);
  T_EQ_INT(option(fd, IPPROTO_TCP, TCP_KEEPIDLE), 7);
  T_EQ_INT(option(fd, IPPROTO_TCP, TCP_KEEPINTVL), 3);
  T_EQ_INT(option(fd, IPPROTO_TCP, TCP_KEEPCNT), 4);
  T_EQ_INT(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 19000);
  close(fd);
}

int main(void)
{
  const struct CMUnitTest all[] = {UNIT(addresses_of_both_families_have_one_form),
                                  UNIT(a_tuned_connection_notices_a_dead_peer_and_delays_nothing)};

  return cmocka_run_group_tests(all, NULL, NULL);
}
