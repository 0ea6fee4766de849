#define _GNU_SOURCE /* wait4, MAP_ANONYMOUS, pipe2, ppoll */

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

/* Between two questions whether a child is done, where its pipe does not tell. */
#define SHORTEST_PAUSE_NS 50000u
#define LONGEST_PAUSE_NS 250000000u

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

/* Prepares the child: dies with the parent, leads a process group of its own, is silent on standard
 * output, leaves no core file. */
static void prepare_child(pid_t parent) {
  (void)setpgid(0, 0);
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

/* Whether the child is done; it stays a zombie, so that its process group keeps its number. */
static int has_ended(pid_t child) {
  siginfo_t info;
  memset(&info, 0, sizeof info);
  return waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
         info.si_pid == child;
}

/* Waits for the child's end. Its end of the pipe wakes us early, but proves nothing: a driver may
 * close every file it finds, and a process that it made may hold the pipe open. So the child is
 * asked for at each wake-up, and without the pipe after pauses that grow. */
static void wait_for_end(pid_t child, int pipe_fd, int watch_fd, uint32_t timeout_ms,
                         struct np_outcome *outcome) {
  const struct np_clock clock = np_monotonic_clock();
  const uint64_t start = clock.now_ns(clock.ctx);
  const uint64_t timeout_ns = (uint64_t)timeout_ms * 1000000u;
  uint64_t pause_ns = LONGEST_PAUSE_NS;
  while (!has_ended(child)) {
    const uint64_t spent_ns = clock.now_ns(clock.ctx) - start;
    if (spent_ns >= timeout_ns) {
      outcome->timed_out = 1;
      return;
    }
    const uint64_t left_ns = timeout_ns - spent_ns;
    const struct timespec pause = {.tv_sec = 0,
                                   .tv_nsec = (long)(left_ns < pause_ns ? left_ns : pause_ns)};
    struct pollfd files[2] = {{.fd = pipe_fd, .events = POLLIN, .revents = 0},
                              {.fd = watch_fd, .events = 0, .revents = 0}};
    if (ppoll(files, 2, &pause, NULL) > 0 && reader_left(&files[1])) {
      outcome->abandoned = 1;
      return;
    }
    if (pipe_fd >= 0 && files[0].revents != 0) {
      pipe_fd = -1;
      pause_ns = SHORTEST_PAUSE_NS;
    } else if (pause_ns < LONGEST_PAUSE_NS) {
      pause_ns *= 2;
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
  wait_for_end(child, life[0], watch_fd, timeout_ms, outcome);
  (void)close(life[0]);
  if (outcome->timed_out || outcome->abandoned)
    (void)kill(child, SIGKILL);
  (void)kill(-child, SIGKILL); /* and whatever it made and left behind */

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
