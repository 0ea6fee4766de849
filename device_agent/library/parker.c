#define _GNU_SOURCE /* syscall */

#include "parker.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "timing.h"

/* The kernel's time structure for __NR_futex, whatever libc's time_t is. */
struct kernel_time {
  long seconds;
  long nanoseconds;
};

void np_parker_begin(struct np_parker *parker) { atomic_store(&parker->parked, 1); }

void np_parker_end(struct np_parker *parker) { atomic_store(&parker->parked, 0); }

int np_parker_sleep(struct np_parker *parker, uint64_t until_ns) {
  struct kernel_time left = {0, 0};
  const struct kernel_time *timeout = NULL;
  int in_time = 1;
  if (until_ns != NP_PARKER_FOREVER) {
    const uint64_t now = np_now_ns();
    const uint64_t ns = until_ns > now ? until_ns - now : 0;
    const uint64_t seconds = ns / 1000000000u;
    left.seconds = seconds > 1000000 ? 1000000 : (long)seconds; /* a long may have 32 bits */
    left.nanoseconds = (long)(ns % 1000000000u);
    timeout = &left;
    in_time = ns > 0;
  }
  if (in_time &&
      syscall(__NR_futex, &parker->parked, FUTEX_WAIT_PRIVATE, 1, timeout, NULL, 0) != 0) {
    in_time = errno != ETIMEDOUT || until_ns > np_now_ns();
  }
  np_parker_end(parker);
  return in_time;
}

void np_parker_wake(struct np_parker *parker) {
  if (atomic_load(&parker->parked) != 0 && atomic_exchange(&parker->parked, 0) != 0) {
    (void)syscall(__NR_futex, &parker->parked, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
  }
}
