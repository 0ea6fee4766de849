/* What an executable for Android meets that was compiled carelessly with musl's headers.
 * Prints a line for each fact; test_rig.py knows which ones a phone's libc gives. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BIONIC_PAGESIZE 0x27

int *__errno(void);

static void handler(int number) { (void)number; }

__attribute__((constructor)) static void begin(void) { (void)setenv("CANARY", "constructed", 1); }

__attribute__((destructor)) static void end(void) { puts("destructor ran"); }

static void numbers(void) {
  printf("musl's number of the page size: %ld\n", sysconf(_SC_PAGESIZE));
  printf("bionic's number of the page size: %s\n",
         sysconf(BIONIC_PAGESIZE) == getpagesize() ? "right" : "wrong");
}

static void layouts(void) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = 0};
  const int result = sigaction(SIGUSR1, &action, NULL);
  /* signal() has no layout: it tells what was stored. */
  printf("musl's sigaction: %d, %s\n", result,
         signal(SIGUSR1, SIG_IGN) == handler ? "kept" : "not kept");

  union {
    pthread_mutexattr_t attributes;
    unsigned char bytes[16];
  } room;
  memset(&room, 0x55, sizeof room);
  (void)pthread_mutexattr_init(&room.attributes);
  size_t written = 0;
  while (written < sizeof room.bytes && room.bytes[written] == 0)
    written++;
  printf("mutex attributes: %zu bytes of %zu\n", written, sizeof(pthread_mutexattr_t));
}

int main(int argc, char **argv) {
  const char *const constructed = getenv("CANARY");
  printf("%d arguments, the last %s; %s\n", argc, argv[argc - 1],
         constructed == NULL ? "not constructed" : constructed);
  (void)open("/nowhere/at/all", O_RDONLY);
  printf("errno: %s\n", *__errno() == ENOENT ? "right" : "wrong");
  numbers();
  layouts();
  return 7;
}
