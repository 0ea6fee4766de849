/* Children that end in every way there is. */
#define _POSIX_C_SOURCE 200809L

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "np_test.h"
#include "supervise.h"

static int return_code(void *ctx) {
  *(int *)ctx = 77; /* in shared memory */
  return 5;
}

static int be_killed(void *ctx) {
  (void)ctx;
  (void)raise(SIGKILL);
  return 0;
}

static int hang(void *ctx) {
  (void)ctx;
  while (pause() != 0)
    continue; /* pause returns -1 for handled signals, and there are none */
  return 0;
}

static int write_noise(void *ctx) {
  (void)ctx;
  return write(STDOUT_FILENO, "noise", 5) == 5 ? 0 : 1;
}

int main(void) {
  struct np_outcome outcome;
  struct np_message why = {""};
  int *shared = np_shared_memory(sizeof *shared);
  if (!CHECK(shared != NULL))
    return np_test_exit();
  CHECK(np_supervise(return_code, shared, 60000, -1, &outcome, &why) == NP_OK);
  CHECK(outcome.exit_code == 5 && outcome.signal == 0 && !outcome.timed_out);
  CHECK(*shared == 77 && outcome.rss_peak_kb > 0);
  np_shared_free(shared, sizeof *shared);

  CHECK(np_supervise(be_killed, NULL, 60000, -1, &outcome, &why) == NP_OK);
  CHECK(outcome.signal == SIGKILL && !outcome.timed_out);

  CHECK(np_supervise(hang, NULL, 50, -1, &outcome, &why) == NP_OK);
  CHECK(outcome.timed_out && outcome.signal == SIGKILL);

  int ends[2];
  if (CHECK(pipe(ends) == 0)) { /* the reader of the answers is gone */
    (void)close(ends[0]);
    CHECK(np_supervise(hang, NULL, 60000, ends[1], &outcome, &why) == NP_OK);
    CHECK(outcome.abandoned && !outcome.timed_out);
    (void)close(ends[1]);
  }
  CHECK(np_supervise(write_noise, NULL, 60000, -1, &outcome, &why) == NP_OK);
  CHECK(outcome.exit_code == 0);

  char text[32];
  CHECK(strcmp(np_signal_name(SIGSEGV, text, sizeof text), "SIGSEGV") == 0);
  CHECK(strcmp(np_signal_name(1000, text, sizeof text), "signal 1000") == 0);
  return np_test_exit();
}
