#define _GNU_SOURCE /* syscall, RTLD_NOLOAD */

#include "shm.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bind.h"
#include "timing.h"

#define REGION_NAME "nnapi-prof"
#define ASHMEM_SET_SIZE _IOW(0x77, 3, size_t)
#define MEMFD_CLOEXEC 1u
#define NDK_LIBRARY "libandroid.so"
#define LOADING_MS 10000

typedef int create_fn(const char *name, size_t size);

/* Uses the NDK, from API 26 on. Its library is large: `flags` may restrict this to a library that
 * is already loaded, as in an app. */
static int from_ndk(size_t size, int flags) {
  void *library = dlopen(NDK_LIBRARY, NP_BIND_NOW | RTLD_LOCAL | flags);
  if (!library) {
    return -1;
  }
  void *symbol = dlsym(library, "ASharedMemory_create");
  create_fn *create;
  memcpy(&create, &symbol, sizeof symbol);
  const int fd = create ? create(REGION_NAME, size) : -1;
  (void)dlclose(library);
  return fd;
}

/* Uses the kernel device behind it, which every process may open up to Android 9. */
static int from_device(size_t size) {
  const int fd = open("/dev/ashmem", O_RDWR | O_CLOEXEC);
  if (fd >= 0 && ioctl(fd, (int)ASHMEM_SET_SIZE, size) != 0) {
    (void)close(fd);
    return -1;
  }
  return fd;
}

/* Sets the size of a new file. Uses the system call, since off_t of the C library's function
 * differs in size between C libraries of 32-bit systems. */
static int sized(int fd, size_t size) {
  if (fd >= 0 && syscall(__NR_ftruncate, fd, (long)size) != 0) {
    (void)close(fd);
    return -1;
  }
  return fd;
}

/* Uses the system call, since Android's C library has the function only from API 30 on. */
static int from_memfd(size_t size) {
  return sized((int)syscall(__NR_memfd_create, REGION_NAME, MEMFD_CLOEXEC), size);
}

static int from_file(size_t size, int folder_fd) {
  if (folder_fd < 0) {
    return -1;
  }
  static const char name[] = "." REGION_NAME "-shared";
  /* A process that died between the two calls may have left this. */
  (void)unlinkat(folder_fd, name, 0);
  const int fd = openat(folder_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd >= 0) {
    (void)unlinkat(folder_fd, name, 0);
  }
  return sized(fd, size);
}

static int from_ashmem(size_t size) {
  int fd = from_ndk(size, RTLD_NOLOAD);
  fd = fd < 0 ? from_device(size) : fd;
  return fd < 0 ? from_ndk(size, 0) : fd;
}

void np_shm_prepare(void) {
  const int fd = from_device((size_t)getpagesize());
  if (fd >= 0) {
    (void)close(fd);
    return;
  }
  const pid_t child = fork();
  if (child == 0) {
    _exit(dlopen(NDK_LIBRARY, NP_BIND_NOW | RTLD_LOCAL) ? 0 : 1);
  }
  int status = 1;
  for (int ms = 0; child > 0 && waitpid(child, &status, WNOHANG) == 0; ms++) {
    if (ms == LOADING_MS) {
      (void)kill(child, SIGKILL);
    }
    np_sleep_ns(1000000);
  }
  if (child > 0 && status == 0) {
    (void)dlopen(NDK_LIBRARY, NP_BIND_NOW | RTLD_LOCAL); /* and is never closed */
  }
}

static int descriptor_of(enum np_shm_kind kind, size_t size, int folder_fd) {
  switch (kind) {
  case NP_SHM_ASHMEM:
    return from_ashmem(size);
  case NP_SHM_FILE:
    return from_file(size, folder_fd);
  case NP_SHM_MEMFD:
    return from_memfd(size);
  case NP_SHM_UNKNOWN:
  case NP_SHM_POINTERS:
    break;
  }
  return -1;
}

static void *map(size_t size, int fd) {
  return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

int np_shm_make(size_t size, int folder_fd, enum np_shm_kind first, struct np_shm *shared) {
  const size_t page = (size_t)getpagesize(); /* not sysconf: its numbers differ on Android */
  *shared = (struct np_shm){.fd = -1};
  if (size > SIZE_MAX / 2 - page) {
    return -1;
  }
  size = size == 0 ? page : (size + page - 1) / page * page;
  for (enum np_shm_kind kind = first; kind < NP_SHM_POINTERS; kind++) {
    const int fd = descriptor_of(kind, size, folder_fd);
    void *data = fd < 0 ? MAP_FAILED : map(size, fd);
    if (data != MAP_FAILED) {
      *shared = (struct np_shm){.fd = fd, .data = data, .size = size, .kind = kind};
      return 0;
    }
    if (fd >= 0) {
      (void)close(fd);
    }
  }
  return -1;
}

int np_shm_next(struct np_shm *shared, int folder_fd) {
  struct np_shm next;
  if (np_shm_make(shared->size, folder_fd, shared->kind + 1, &next) != 0) {
    return -1;
  }
  memcpy(next.data, shared->data, shared->size);
  if (mmap(shared->data, shared->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, next.fd,
           0) == MAP_FAILED) {
    np_shm_free(&next);
    return -1;
  }
  (void)munmap(next.data, next.size);
  (void)close(shared->fd);
  shared->fd = next.fd;
  shared->kind = next.kind;
  return 0;
}

const char *np_shm_text(enum np_shm_kind kind) {
  switch (kind) {
  case NP_SHM_ASHMEM:
    return "ashmem";
  case NP_SHM_FILE:
    return "file";
  case NP_SHM_MEMFD:
    return "memfd";
  case NP_SHM_UNKNOWN:
  case NP_SHM_POINTERS:
    break;
  }
  return "pointers";
}

int np_shm_leave(struct np_shm *shared) {
  void *copy = mmap(NULL, shared->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) {
    return -1;
  }
  memcpy(copy, shared->data, shared->size);
  if (mremap(copy, shared->size, shared->size, MREMAP_MAYMOVE | MREMAP_FIXED, shared->data) ==
      MAP_FAILED) {
    (void)munmap(copy, shared->size);
    return -1;
  }
  return 0;
}

void np_shm_free(struct np_shm *shared) {
  if (!shared->data) {
    return;
  }
  (void)munmap(shared->data, shared->size);
  (void)close(shared->fd);
  *shared = (struct np_shm){.fd = -1};
}
