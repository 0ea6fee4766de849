/* See count_calls.c. */
#ifndef COUNT_CALLS_H
#define COUNT_CALLS_H

struct counts {
  long allocations, frees, locks;
};

void count_start(void);
struct counts count_stop(void);

#endif
