#define _GNU_SOURCE /* syscall */

#include "affinity.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The system calls, whose mask is a row of bits everywhere. */
int np_affinity_enter(uint64_t mask, struct np_affinity *affinity) {
  memset(affinity, 0, sizeof *affinity);
  if (mask == 0) {
    return 0;
  }
  if (syscall(__NR_sched_getaffinity, 0, sizeof affinity->before, affinity->before) < 0 ||
      syscall(__NR_sched_setaffinity, 0, sizeof mask, &mask) != 0) {
    return errno;
  }
  affinity->is_changed = 1;
  return 0;
}

void np_affinity_leave(const struct np_affinity *affinity) {
  if (affinity->is_changed) {
    (void)syscall(__NR_sched_setaffinity, 0, sizeof affinity->before, affinity->before);
  }
}
