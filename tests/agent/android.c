/* Stands for Android's libandroid.so: makes shared memory, and counts how often it is loaded. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

__attribute__((constructor)) static void loaded(void) {
  const char *path = getenv("LOADS");
  const int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
  if (fd >= 0) {
    (void)!write(fd, ".", 1);
    (void)close(fd);
  }
}

int ASharedMemory_create(const char *name, size_t size) {
  const int fd = memfd_create(name, MFD_CLOEXEC);
  return fd >= 0 && ftruncate(fd, (off_t)size) == 0 ? fd : -1;
}
