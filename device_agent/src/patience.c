#define _POSIX_C_SOURCE 200809L

#include "patience.h"

#include <poll.h>

#include "timing.h"

#define COOLING_STEP_MS 250
#define FREE_REPEATS 16u

uint64_t np_patience_limit(const struct np_patience *patience, uint64_t cool_ns) {
  if (patience->fruitless) {
    return 0;
  }
  return cool_ns < patience->wait_ns ? cool_ns : patience->wait_ns;
}

void np_patience_spend(struct np_patience *patience, uint64_t *cool_ns, uint64_t spent_ns,
                       int cool) {
  *cool_ns -= spent_ns < *cool_ns ? spent_ns : *cool_ns;
  patience->waited_ns += spent_ns;
  if (patience->wait_ns != NP_FOREVER) {
    patience->wait_ns -= spent_ns < patience->wait_ns ? spent_ns : patience->wait_ns;
  }
  patience->fruitless |= spent_ns != 0 && !cool;
}

/* The time of each look at the device counts as waiting. */
enum np_status np_patience_wait(const struct np_session *session, uint64_t cpu_mask, int reader_fd,
                                uint64_t *cool_ns, int *cool) {
  const uint64_t start = np_now_ns();
  const uint64_t limit_ns = np_patience_limit(session->patience, *cool_ns);
  for (;;) {
    struct np_readings readings;
    np_sysfs_read(session->sysfs, cpu_mask, &readings);
    *cool = readings.throttled != 1;
    const uint64_t spent_ns = np_now_ns() - start;
    if (*cool || spent_ns >= limit_ns) {
      np_patience_spend(session->patience, cool_ns, limit_ns == 0 ? 0 : spent_ns, *cool);
      return NP_OK;
    }
    const uint64_t left_ms = (limit_ns - spent_ns) / 1000000u + 1;
    struct pollfd reader = {.fd = reader_fd, .events = 0, .revents = 0};
    if (poll(&reader, 1, left_ms < COOLING_STEP_MS ? (int)left_ms : COOLING_STEP_MS) > 0) {
      return NP_IO;
    }
  }
}

int np_patience_repeat(struct np_patience *patience) {
  if (patience->n_repeats >= FREE_REPEATS + patience->n_rounds / 2) {
    return 0;
  }
  patience->n_repeats++;
  return 1;
}
