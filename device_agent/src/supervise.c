#define _GNU_SOURCE /* wait4, MAP_ANONYMOUS, pipe2 */

#include "supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "timing.h"

/* Keeps a library's prints away from the answers: they go to standard error, and nowhere where that
 * is the same file (adb's first shell protocol has only one), as they might end in half a line. */
static void hush(void) {
  struct stat output, error;
  int target = STDERR_FILENO;
  if (fstat(STDOUT_FILENO, &output) != 0 || fstat(STDERR_FILENO, &error) != 0 ||
      (output.st_dev == error.st_dev && output.st_ino == error.st_ino)) {
    target = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (target < 0)
      return;
    (void)dup2(target, STDERR_FILENO);
  }
  (void)dup2(target, STDOUT_FILENO);
}

/* Prepares the child: dies with the parent, is silent on standard output, leaves no core file. */
static void prepare_child(pid_t parent) {
#ifdef __linux__
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (getppid() != parent)
    _exit(127); /* it died before the line above */
#else
  (void)parent;
#endif
  const struct rlimit no_core = {0, 0};
  (void)setrlimit(RLIMIT_CORE, &no_core);
  hush();
}

/* Whether the file's reader is gone. */
static int reader_left(const struct pollfd *watched) {
  return watched->fd >= 0 && (watched->revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
}

/* Waits until the child closed its end of the pipe, which its end does at the latest. */
static void wait_for_end(int pipe_fd, int watch_fd, uint32_t timeout_ms,
                         struct np_outcome *outcome) {
  const struct np_clock clock = np_monotonic_clock();
  const uint64_t start = clock.now_ns(clock.ctx);
  for (;;) {
    const uint64_t spent_ms = (clock.now_ns(clock.ctx) - start) / 1000000u;
    if (spent_ms >= timeout_ms) {
      outcome->timed_out = 1;
      return;
    }
    const uint64_t left_ms = timeout_ms - spent_ms;
    struct pollfd files[2] = {{.fd = pipe_fd, .events = POLLIN, .revents = 0},
                              {.fd = watch_fd, .events = 0, .revents = 0}};
    const int n = poll(files, 2, left_ms > 60000 ? 60000 : (int)left_ms);
    if (n < 0 && errno != EINTR)
      return; /* then waiting for the process is all there is */
    if (n <= 0)
      continue;
    if (files[0].revents != 0)
      return;
    if (reader_left(&files[1])) {
      outcome->abandoned = 1;
      return;
    }
  }
}

enum np_status np_supervise(int (*work)(void *ctx), void *ctx, uint32_t timeout_ms, int watch_fd,
                            struct np_outcome *outcome, struct np_message *why) {
  memset(outcome, 0, sizeof *outcome);
  int life[2];
  if (pipe2(life, O_CLOEXEC) != 0) {
    np_message_set(why, "cannot make a pipe: %s", strerror(errno));
    return NP_IO;
  }
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    np_message_set(why, "cannot fork: %s", strerror(errno));
    (void)close(life[0]);
    (void)close(life[1]);
    return NP_IO;
  }
  if (child == 0) {
    (void)close(life[0]);
    prepare_child(parent);
    _exit(work(ctx));
  }
  (void)close(life[1]);
  wait_for_end(life[0], watch_fd, timeout_ms, outcome);
  (void)close(life[0]);
  if (outcome->timed_out || outcome->abandoned)
    (void)kill(child, SIGKILL);

  int status = 0;
  struct rusage usage;
  memset(&usage, 0, sizeof usage);
  pid_t found;
  do {
    found = wait4(child, &status, 0, &usage);
  } while (found < 0 && errno == EINTR);
  if (found < 0) {
    np_message_set(why, "cannot wait for process %ld: %s", (long)child, strerror(errno));
    return NP_IO;
  }
  outcome->rss_peak_kb = usage.ru_maxrss;
  if (WIFSIGNALED(status))
    outcome->signal = WTERMSIG(status);
  if (WIFEXITED(status))
    outcome->exit_code = WEXITSTATUS(status);
  return NP_OK;
}

void *np_shared_memory(size_t n_bytes) {
#ifdef MAP_NORESERVE
  const int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
#else
  const int flags = MAP_SHARED | MAP_ANONYMOUS;
#endif
  void *memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

void np_shared_free(void *memory, size_t n_bytes) {
  if (memory)
    (void)munmap(memory, n_bytes);
}

const char *np_signal_name(int number, char *text, size_t text_size) {
  static const struct {
    int number;
    const char *name;
  } names[] = {
      {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},   {SIGHUP, "SIGHUP"},
      {SIGILL, "SIGILL"},   {SIGINT, "SIGINT"},   {SIGKILL, "SIGKILL"}, {SIGPIPE, "SIGPIPE"},
      {SIGQUIT, "SIGQUIT"}, {SIGSEGV, "SIGSEGV"}, {SIGSYS, "SIGSYS"},   {SIGTERM, "SIGTERM"},
      {SIGTRAP, "SIGTRAP"}, {SIGXCPU, "SIGXCPU"}, {SIGALRM, "SIGALRM"},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (names[i].number == number)
      return names[i].name;
  }
  (void)snprintf(text, text_size, "signal %d", number);
  return text;
}
