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
};

/* Makes memory of at least `size` bytes, by whichever of these this system has: ashmem, which every
 * Android's drivers take (its device, or the NDK's ASharedMemory_create), memfd, or a file without
 * a name in the folder folder_fd (-1: none). 0, or -1 where there is no way or no memory. */
int np_shm_make(size_t size, int folder_fd, struct np_shm *shared);

/* Leaves the memory to those who have mapped its file, and goes on with a copy that is nobody
 * else's, at the same address. 0, or -1 where there is no memory for it. */
int np_shm_leave(struct np_shm *shared);

void np_shm_free(struct np_shm *shared);

#endif
