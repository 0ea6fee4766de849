/* Counts this process's allocations, frees and locks between count_start and count_stop: the
 * definitions here override libc's for every loaded library. Needs glibc and -rdynamic. */
#define _GNU_SOURCE
#include "count_calls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *block);

static struct counts counts;
static int counting;

void count_start(void) {
  counts = (struct counts){0};
  __atomic_store_n(&counting, 1, __ATOMIC_SEQ_CST);
}

struct counts count_stop(void) {
  __atomic_store_n(&counting, 0, __ATOMIC_SEQ_CST);
  return counts;
}

static void count(long *counter) {
  if (__atomic_load_n(&counting, __ATOMIC_RELAXED)) {
    __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
  }
}

void *malloc(size_t bytes) {
  count(&counts.allocations);
  return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes) {
  count(&counts.allocations);
  return __libc_calloc(n, bytes);
}

void *realloc(void *block, size_t bytes) {
  count(&counts.allocations);
  return __libc_realloc(block, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
  count(&counts.allocations);
  return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **block, size_t alignment, size_t bytes) {
  count(&counts.allocations);
  *block = __libc_memalign(alignment, bytes);
  return *block == NULL;
}

void free(void *block) {
  if (block != NULL) {
    count(&counts.frees);
  }
  __libc_free(block);
}

/* Each lock is libc's own, looked up once; a race of look-ups has the same result. */
#define LOCK(name, type)                                                                           \
  int name(type *lock) {                                                                           \
    static int (*next)(type *);                                                                    \
    if (next == NULL) {                                                                            \
      *(void **)&next = dlsym(RTLD_NEXT, #name);                                                   \
    }                                                                                              \
    count(&counts.locks);                                                                          \
    return next(lock);                                                                             \
  }

LOCK(pthread_mutex_lock, pthread_mutex_t)
LOCK(pthread_mutex_trylock, pthread_mutex_t)
LOCK(pthread_rwlock_rdlock, pthread_rwlock_t)
LOCK(pthread_rwlock_wrlock, pthread_rwlock_t)
