/* Memory that another process can map, which NNAPI's drivers use without copying. */
#ifndef NP_SHM_H
#define NP_SHM_H

#include <stddef.h>

/* Kinds of memory in which tensors are passed to a driver, in the order in which they are tried. */
enum np_shm_kind {
  NP_SHM_UNKNOWN,
  NP_SHM_ASHMEM,   /* from the NDK's ASharedMemory_create, or the kernel device behind it */
  NP_SHM_FILE,     /* an unnamed file in a folder of ours */
  NP_SHM_MEMFD,    /* Android may forbid drivers to map a memfd of an app or the shell */
  NP_SHM_POINTERS, /* not shared: the runtime copies from and to addresses */
};

struct np_shm {
  int fd;
  void *data; /* mapped for reading and writing, zero at first */
  size_t size;
  enum np_shm_kind kind;
};

/* Loads the library that makes shared memory on this phone, if one is needed, so that processes
 * forked afterwards have it. Tries it in another process first: a library that crashes or hangs is
 * not loaded in this one. */
void np_shm_prepare(void);

/* Makes memory of at least `size` bytes, of the first kind from `first` on that this system has
 * (NP_SHM_UNKNOWN: of any); a file is made in the folder folder_fd (-1: none). Returns 0, or -1 if
 * there is no such kind or no memory. */
int np_shm_make(size_t size, int folder_fd, enum np_shm_kind first, struct np_shm *shared);

/* Replaces the memory with memory of the next kind that this system has, with the same bytes at the
 * same address. Returns 0, or -1 if there is none; then nothing changes. */
int np_shm_next(struct np_shm *shared, int folder_fd);

/* Returns whether a kind is memory that a driver maps. */
static inline int np_shm_is_shared(enum np_shm_kind kind) {
  return kind != NP_SHM_UNKNOWN && kind != NP_SHM_POINTERS;
}

/* Returns "ashmem", "file" or "memfd"; "pointers" for a kind that is not shared. */
const char *np_shm_text(enum np_shm_kind kind);

/* Leaves the memory to the processes that have mapped its file and continues with a private copy at
 * the same address. Returns 0, or -1 if memory is short. */
int np_shm_leave(struct np_shm *shared);

void np_shm_free(struct np_shm *shared);

#endif
