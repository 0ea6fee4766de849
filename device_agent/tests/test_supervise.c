/* Children that end in every possible way. */
#define _POSIX_C_SOURCE 200809L

#include <signal.h>
#include <stdlib.h>
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
  while (pause() != 0) {
    continue; /* pause returns -1 for handled signals, and there are none */
  }
  return 0;
}

static int write_noise(void *ctx) {
  (void)ctx;
  return write(STDOUT_FILENO, "noise", 5) == 5 ? 0 : 1;
}

/* Acts like a driver that becomes a daemon: also closes the pipe to the parent. */
static int close_all_and_hang(void *ctx) {
  for (int fd = 0; fd < 256; fd++) {
    (void)close(fd);
  }
  return hang(ctx);
}

static int close_all_and_return(void *ctx) {
  (void)ctx;
  for (int fd = 0; fd < 256; fd++) {
    (void)close(fd);
  }
  const struct timespec pause = {.tv_sec = 0, .tv_nsec = 30000000};
  (void)nanosleep(&pause, NULL);
  return 6;
}

/* A helper process that outlives the child and holds its files open. */
static int leave_helper(void *ctx) {
  const pid_t helper = fork();
  if (helper == 0) {
    return hang(NULL);
  }
  *(pid_t *)ctx = helper;
  return 7;
}

/* Returns whether a process ends soon, or is only a zombie; this may take a while. */
static int goes_away(pid_t process) {
  const struct timespec pause = {.tv_sec = 0, .tv_nsec = 10000000};
  for (int i = 0; i < 500; i++) {
    char path[64];
    char state = 'Z';
    (void)snprintf(path, sizeof path, "/proc/%ld/stat", (long)process);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%*d %*s %c", &state) != 1) {
      state = 'Z';
    }
    if (file) {
      (void)fclose(file);
    }
    if (state == 'Z') {
      return 1;
    }
    (void)nanosleep(&pause, NULL);
  }
  return 0;
}

static enum np_event supervise(int (*work)(void *ctx), void *ctx, uint32_t timeout_ms,
                               int reader_fd, struct np_outcome *outcome) {
  const struct np_watch watch = {.timeout_ms = timeout_ms, .reader_fd = reader_fd, .memory_kb = -1};
  struct np_message why = {""};
  enum np_event event = NP_EVENT_REACHED;
  CHECK(np_supervise(work, ctx, &watch, &event, outcome, &why) == NP_OK);
  return event;
}

/* The watchdog works whatever the child does to its files, and does not wait for an ended child. */
static void test_files_prove_nothing(void) {
  struct np_outcome outcome;
  CHECK(supervise(close_all_and_hang, NULL, 100, -1, &outcome) == NP_EVENT_LATE);
  CHECK(outcome.signal == SIGKILL);
  CHECK(supervise(close_all_and_return, NULL, 60000, -1, &outcome) == NP_EVENT_ENDED);
  CHECK(outcome.exit_code == 6);

  pid_t *helper = np_shared_memory(sizeof *helper);
  if (!CHECK(helper != NULL)) {
    return;
  }
  const time_t before = time(NULL);
  CHECK(supervise(leave_helper, helper, 60000, -1, &outcome) == NP_EVENT_ENDED);
  CHECK(outcome.exit_code == 7 && time(NULL) - before < 20);
  CHECK(*helper > 0 && goes_away(*helper));
  np_shared_free(helper, sizeof *helper);
}

/* Memory that a child and its parent share in the tests of turns. */
struct shared {
  struct np_turns turns;
  int value;
};

/* Takes three turns, between which the parent writes 0. With `closes` the child closes its files
 * first. */
static int count(struct shared *shared, struct np_link *link, int closes) {
  for (int fd = 0; closes && fd < 256; fd++) {
    (void)close(fd);
  }
  for (int i = 1; i <= 3; i++) {
    shared->value = shared->value == 0 ? i : -1;
    np_link_reach(link);
    if (i < 3) {
      np_link_await(link);
    }
  }
  return 8;
}

static int count_turns(void *ctx, struct np_link *link) { return count(ctx, link, 0); }

static int count_turns_without_files(void *ctx, struct np_link *link) {
  return count(ctx, link, 1);
}

static void test_turns(int (*work)(void *ctx, struct np_link *link)) {
  struct shared *shared = np_shared_memory(sizeof *shared);
  struct np_child child;
  struct np_outcome outcome;
  struct np_message why = {""};
  const struct np_watch watch = {.timeout_ms = 20000, .reader_fd = -1, .memory_kb = 1 << 30};
  if (!CHECK(shared && np_child_start(work, shared, &shared->turns, &child, &why) == NP_OK)) {
    return;
  }
  for (int i = 1; i <= 3; i++) {
    CHECK(np_child_wait(&child, (uint32_t)i, &watch) == NP_EVENT_REACHED);
    CHECK(shared->value == i && child.used_kb != 0);
    shared->value = 0;
    if (i < 3) {
      np_child_send(&child);
    }
  }
  CHECK(np_child_wait(&child, UINT32_MAX, &watch) == NP_EVENT_ENDED);
  CHECK(np_child_end(&child, &outcome, &why) == NP_OK && outcome.exit_code == 8);
  CHECK(np_child_end(&child, &outcome, &why) == NP_OK); /* once more changes nothing */
  np_shared_free(shared, sizeof *shared);
}

/* A child that waits for an order which never comes can be ended. */
static void test_idle_child(void) {
  struct shared *shared = np_shared_memory(sizeof *shared);
  struct np_child child;
  struct np_outcome outcome;
  struct np_message why = {""};
  const struct np_watch watch = {.timeout_ms = 50, .reader_fd = -1, .memory_kb = -1};
  if (!CHECK(shared &&
             np_child_start(count_turns, shared, &shared->turns, &child, &why) == NP_OK)) {
    return;
  }
  CHECK(np_child_wait(&child, 2, &watch) == NP_EVENT_LATE);
  CHECK(np_child_end(&child, &outcome, &why) == NP_OK && outcome.signal == SIGKILL);
  np_shared_free(shared, sizeof *shared);
}

/* Takes nearly 1 GB of memory a second, up to 4 GB; no faster, since on a busy machine the
 * supervisor may get its turn late. */
static int leak(void *ctx) {
  (void)ctx;
  enum { PIECE = 1 << 20 };
  for (int i = 0; i < 4096; i++) {
    char *piece = malloc(PIECE);
    if (!piece) {
      return 1;
    }
    memset(piece, 1, PIECE);
    __asm__ volatile("" : : "r"(piece) : "memory"); /* must not be optimised away */
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  return 0;
}

static void test_memory(void) {
  enum { LIMIT_KB = 300 << 10 };
  const struct np_watch watch = {.timeout_ms = 60000, .reader_fd = -1, .memory_kb = LIMIT_KB};
  struct np_message why = {""};
  struct np_outcome outcome;
  enum np_event event;
  CHECK(np_supervise(leak, NULL, &watch, &event, &outcome, &why) == NP_OK);
  CHECK(event == NP_EVENT_TOO_BIG && outcome.signal == SIGKILL);
  CHECK(outcome.rss_peak_kb > LIMIT_KB && outcome.rss_peak_kb < 3 * LIMIT_KB);
}

int main(void) {
  (void)signal(SIGPIPE, SIG_IGN);
  struct np_outcome outcome;
  int *shared = np_shared_memory(sizeof *shared);
  if (!CHECK(shared != NULL)) {
    return np_test_exit();
  }
  CHECK(supervise(return_code, shared, 60000, -1, &outcome) == NP_EVENT_ENDED);
  CHECK(outcome.exit_code == 5 && outcome.signal == 0);
  CHECK(*shared == 77 && outcome.rss_peak_kb > 0);
  np_shared_free(shared, sizeof *shared);

  CHECK(supervise(be_killed, NULL, 60000, -1, &outcome) == NP_EVENT_ENDED);
  CHECK(outcome.signal == SIGKILL);

  CHECK(supervise(hang, NULL, 50, -1, &outcome) == NP_EVENT_LATE);
  CHECK(outcome.signal == SIGKILL);

  int ends[2];
  if (CHECK(pipe(ends) == 0)) { /* a reader of the answers that goes away */
    (void)close(ends[0]);
    CHECK(supervise(hang, NULL, 60000, ends[1], &outcome) == NP_EVENT_ABANDONED);
    CHECK(outcome.signal == SIGKILL);
    (void)close(ends[1]);
  }
  CHECK(supervise(write_noise, NULL, 60000, -1, &outcome) == NP_EVENT_ENDED);
  CHECK(outcome.exit_code == 0);

  test_files_prove_nothing();
  test_turns(count_turns);
  test_turns(count_turns_without_files);
  test_idle_child();
  test_memory();

  char text[32];
  CHECK(strcmp(np_signal_name(SIGSEGV, text, sizeof text), "SIGSEGV") == 0);
  CHECK(strcmp(np_signal_name(1000, text, sizeof text), "signal 1000") == 0);
  return np_test_exit();
}
