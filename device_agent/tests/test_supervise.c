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

/* As a driver that turns itself into a daemon would: the pipe to the parent ends, too. */
static int close_all_and_hang(void *ctx) {
  for (int fd = 0; fd < 256; fd++)
    (void)close(fd);
  return hang(ctx);
}

static int close_all_and_return(void *ctx) {
  (void)ctx;
  for (int fd = 0; fd < 256; fd++)
    (void)close(fd);
  const struct timespec pause = {.tv_sec = 0, .tv_nsec = 30000000};
  (void)nanosleep(&pause, NULL);
  return 6;
}

/* A helper process that outlives the child and holds its files open. */
static int leave_helper(void *ctx) {
  const pid_t helper = fork();
  if (helper == 0)
    return hang(NULL);
  *(pid_t *)ctx = helper;
  return 7;
}

/* Whether a process is there and not only waits to be asked for; it may take a while to go. */
static int goes_away(pid_t process) {
  const struct timespec pause = {.tv_sec = 0, .tv_nsec = 10000000};
  for (int i = 0; i < 500; i++) {
    char path[64];
    char state = 'Z';
    (void)snprintf(path, sizeof path, "/proc/%ld/stat", (long)process);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%*d %*s %c", &state) != 1)
      state = 'Z';
    if (file)
      (void)fclose(file);
    if (state == 'Z')
      return 1;
    (void)nanosleep(&pause, NULL);
  }
  return 0;
}

/* The watchdog's word holds whatever the child does to its files, and nothing is waited for that
 * is over. */
static void test_files_prove_nothing(void) {
  struct np_outcome outcome;
  struct np_message why = {""};
  CHECK(np_supervise(close_all_and_hang, NULL, 100, -1, &outcome, &why) == NP_OK);
  CHECK(outcome.timed_out && outcome.signal == SIGKILL);
  CHECK(np_supervise(close_all_and_return, NULL, 60000, -1, &outcome, &why) == NP_OK);
  CHECK(outcome.exit_code == 6 && !outcome.timed_out);

  pid_t *helper = np_shared_memory(sizeof *helper);
  if (!CHECK(helper != NULL))
    return;
  const time_t before = time(NULL);
  CHECK(np_supervise(leave_helper, helper, 60000, -1, &outcome, &why) == NP_OK);
  CHECK(outcome.exit_code == 7 && !outcome.timed_out && time(NULL) - before < 20);
  CHECK(*helper > 0 && goes_away(*helper));
  np_shared_free(helper, sizeof *helper);
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

  test_files_prove_nothing();

  char text[32];
  CHECK(strcmp(np_signal_name(SIGSEGV, text, sizeof text), "SIGSEGV") == 0);
  CHECK(strcmp(np_signal_name(1000, text, sizeof text), "signal 1000") == 0);
  return np_test_exit();
}
