/* Preloaded into the test's adbd, which offers a root shell without asking for a key: it listens on
 * this machine only, and not for virtual machines (vsock). The shells it starts are not affected.
 *
 * bind() itself goes through syscall(), so that this file needs no symbol of a certain libc. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int bind(int fd, const struct sockaddr *address, socklen_t length) {
  if (address->sa_family == AF_VSOCK) {
    errno = EAFNOSUPPORT;
    return -1;
  }
  struct sockaddr_in6 v6;
  struct sockaddr_in v4;
  if (address->sa_family == AF_INET6 && length >= sizeof(v6)) {
    v6 = *(const struct sockaddr_in6 *)address;
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &v6.sin6_addr);
    return (int)syscall(SYS_bind, fd, &v6, sizeof(v6));
  }
  if (address->sa_family == AF_INET && length >= sizeof(v4)) {
    v4 = *(const struct sockaddr_in *)address;
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return (int)syscall(SYS_bind, fd, &v4, sizeof(v4));
  }
  return (int)syscall(SYS_bind, fd, address, length);
}
