/* The CPUs of the calling thread, put back after a call. */
#ifndef NP_AFFINITY_H
#define NP_AFFINITY_H

#include <stdint.h>

struct np_affinity {
  int is_changed;
  uint64_t before[16]; /* the kernel's mask of up to 1024 CPUs */
};

/* Keeps the calling thread to the CPUs of a mask; 0 changes nothing. 0, or errno. */
int np_affinity_enter(uint64_t mask, struct np_affinity *affinity);

/* Gives it back the CPUs it had. */
void np_affinity_leave(const struct np_affinity *affinity);

#endif
