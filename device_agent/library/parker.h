/* One thread sleeps until another says that something has changed. Neither takes a lock, and where
 * nobody sleeps, waking is one load. */
#ifndef NP_PARKER_H
#define NP_PARKER_H

#include <stdatomic.h>
#include <stdint.h>

/* All zero at first. The sleeper's way, in a loop:
 *
 *   np_parker_begin(&parker);
 *   if (what it waits for is there) { np_parker_end(&parker); break; }
 *   in_time = np_parker_sleep(&parker, until_ns);
 *
 * The waker's: change what is waited for, then np_parker_wake. Both access it with
 * memory_order_seq_cst, so that one of them sees the other. */
struct np_parker {
  _Atomic uint32_t parked;
};

#define NP_PARKER_FOREVER UINT64_MAX

void np_parker_begin(struct np_parker *parker);
void np_parker_end(struct np_parker *parker);

/* Sleeps until woken, or until CLOCK_MONOTONIC says until_ns; ends what _begin began. It may return
 * early for no reason. 0 where the time is over. */
int np_parker_sleep(struct np_parker *parker, uint64_t until_ns);

void np_parker_wake(struct np_parker *parker);

#endif
