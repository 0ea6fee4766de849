/* Lets one thread sleep until another says that something has changed. Neither takes a lock, and if
 * no thread sleeps, waking is a single load. */
#ifndef NP_PARKER_H
#define NP_PARKER_H

#include <stdatomic.h>
#include <stdint.h>

/* Zero at first. The sleeper, in a loop:
 *
 *   np_parker_begin(&parker);
 *   if (what it waits for is there) { np_parker_end(&parker); break; }
 *   in_time = np_parker_sleep(&parker, until_ns);
 *
 * The waker changes what is waited for, then calls np_parker_wake. Both access it with
 * memory_order_seq_cst, so that at least one of them sees the other's change. */
struct np_parker {
  _Atomic uint32_t parked;
};

#define NP_PARKER_FOREVER UINT64_MAX

void np_parker_begin(struct np_parker *parker);
void np_parker_end(struct np_parker *parker);

/* Sleeps until woken, or until until_ns of CLOCK_MONOTONIC; ends what _begin began. May wake up
 * early for no reason. Returns 0 if the time is over. */
int np_parker_sleep(struct np_parker *parker, uint64_t until_ns);

void np_parker_wake(struct np_parker *parker);

#endif
