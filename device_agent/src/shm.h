/* Memory that another process may map: what NNAPI's drivers take without copying it. */
#ifndef NP_SHM_H
#define NP_SHM_H

#include <stddef.h>

/* Kinds of memory by which tensors reach a driver, in the order in which they are tried. */
enum np_shm_kind {
  NP_SHM_UNKNOWN,
  NP_SHM_ASHMEM,   /* by the NDK's ASharedMemory_create, or the kernel's device behind it */
  NP_SHM_FILE,     /* a file without a name in a folder of ours */
  NP_SHM_MEMFD,    /* drivers of Android may not map what an app or the shell made so */
  NP_SHM_POINTERS, /* none is shared: the runtime copies from and to addresses */
};

struct np_shm {
  int fd;
  void *data; /* mapped to be read and written, all zero at first */
  size_t size;
  enum np_shm_kind kind;
};

/* Loads the library that makes shared memory on this phone, where it takes one, so that processes
 * made from then on have it. Another process loads it first: a library that crashes or hangs is not
 * loaded in this one. */
void np_shm_prepare(void);

/* Makes memory of at least `size` bytes of the first kind from `first` on that this system has
 * (NP_SHM_UNKNOWN: of any); a file lies in the folder folder_fd (-1: none). 0, or -1 where there is
 * no way or no memory. */
int np_shm_make(size_t size, int folder_fd, enum np_shm_kind first, struct np_shm *shared);

/* Puts memory of the next kind that this system has in the place of this one, with the same bytes
 * at the same address. 0, or -1 where there is none: all is as it was then. */
int np_shm_next(struct np_shm *shared, int folder_fd);

/* Whether a kind is memory that a driver maps. */
static inline int np_shm_is_shared(enum np_shm_kind kind) {
  return kind != NP_SHM_UNKNOWN && kind != NP_SHM_POINTERS;
}

/* "ashmem", "file", "memfd"; "pointers" of what is not shared. */
const char *np_shm_text(enum np_shm_kind kind);

/* Leaves the memory to those who have mapped its file, and goes on with a copy that is nobody
 * else's, at the same address. 0, or -1 where there is no memory for it. */
int np_shm_leave(struct np_shm *shared);

void np_shm_free(struct np_shm *shared);

#endif
