#define _GNU_SOURCE /* wait4, ppoll, SOCK_CLOEXEC */

#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "timing.h"

/* Shortest pause between two polls without a signal. */
#define SHORTEST_PAUSE_NS 50000u
#define LONGEST_PAUSE_NS 250000000u
#define CHILDS_PAUSE_NS 5000000u

/* Memory is polled often enough to catch a process that takes 4 GB a second. */
#define NS_PER_KB 238u
#define SHORTEST_WATCH_NS 1000000u

int np_has_kernel_killer(void) {
  const char *root = getenv("NNAPI_PROF_SYSFS");
  char path[512];
  (void)snprintf(path, sizeof path, "%s/module/lowmemorykiller", root ? root : "/sys");
  return access(path, F_OK) == 0;
}

/* Makes the system kill this process before the phone's own if memory runs out. Not on kernels with
 * their own low memory killer, which kills by the score as soon as little memory is free, as it
 * usually is on such phones. The score stays below that of cached apps, 900 or more. */
static void volunteer(void) {
  if (np_has_kernel_killer()) {
    return;
  }
  const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) {
    return;
  }
  const ssize_t n = write(fd, "700", 3);
  (void)n; /* the system may not allow it */
  (void)close(fd);
}

static void prepare_child(pid_t parent, int words) {
  (void)setpgid(0, 0);
#ifdef __linux__
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (getppid() != parent) {
    _exit(127); /* it died before the line above */
  }
#else
  (void)parent;
#endif
  const struct rlimit no_core = {0, 0};
  (void)setrlimit(RLIMIT_CORE, &no_core);
  volunteer();
  np_words_speak(words);
}

static int open_statm(pid_t pid) {
  char path[64];
  (void)snprintf(path, sizeof path, "/proc/%ld/statm", (long)pid);
  return open(path, O_RDONLY | O_CLOEXEC);
}

/* Forks a child, which gets ends[1]; pid is 0 in the child. NP_IO with the failed call in *why. */
static enum np_status make_child(struct np_turns *turns, struct np_child *child, int ends[2],
                                 struct np_message *why) {
  int mouth = -1;
  *child = NP_NO_CHILD;
  child->turns = turns;
  NP_REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0, NP_IO,
             why, "cannot make a pair of sockets: %s", strerror(errno));
  const enum np_status piped = np_words_open(&child->words, &mouth);
  const pid_t parent = getpid();
  const pid_t pid = piped == NP_OK ? fork() : -1;
  if (pid < 0) {
    np_message_set(why, "cannot %s: %s", piped == NP_OK ? "fork" : "make a pipe", strerror(errno));
    (void)close(ends[0]);
    (void)close(ends[1]);
    if (piped == NP_OK) {
      (void)close(mouth);
    }
    np_words_close(&child->words);
    return NP_IO;
  }
  if (pid == 0) {
    (void)close(ends[0]);
    prepare_child(parent, mouth);
    (void)close(mouth);
    (void)close(child->words.fd);
    return NP_OK;
  }
  (void)close(ends[1]);
  (void)close(mouth);
  child->pid = pid;
  child->fd = ends[0];
  child->statm_fd = open_statm(pid);
  return NP_OK;
}

struct np_link np_link_over(int fd, struct np_turns *turns) {
  struct stat facts;
  memset(&facts, 0, sizeof facts);
  (void)fstat(fd, &facts);
  return (struct np_link){.fd = fd, .inode = (uint64_t)facts.st_ino, .turns = turns};
}

enum np_status np_child_start(int (*work)(void *ctx, struct np_link *link), void *ctx,
                              struct np_turns *turns, struct np_child *child,
                              struct np_message *why) {
  int ends[2];
  const enum np_status status = make_child(turns, child, ends, why);
  if (status == NP_OK && child->pid == 0) {
    struct np_link link = np_link_over(ends[1], turns);
    _exit(work(ctx, &link));
  }
  return status;
}

/* Runs between fork and exec, where other threads of the parent may have held any lock, so it makes
 * only system calls. */
static void execute(char *const *arguments, const int *files, uint32_t n) {
  int copies[NP_CHILD_FILES];
  for (uint32_t i = 0; i < n; i++) { /* away from their final numbers */
    copies[i] = fcntl(files[i], F_DUPFD_CLOEXEC, NP_CHILD_FIRST_FILE + NP_CHILD_FILES);
  }
  for (uint32_t i = 0; i < n; i++) {
    if (copies[i] < 0 || dup2(copies[i], NP_CHILD_FIRST_FILE + (int)i) < 0) {
      return;
    }
  }
  (void)execv(arguments[0], arguments);
}

enum np_status np_child_spawn(char *const *arguments, const int *files, uint32_t n,
                              struct np_turns *turns, struct np_child *child,
                              struct np_message *why) {
  int all[NP_CHILD_FILES] = {-1};
  int ends[2];
  NP_REQUIRE(n < NP_CHILD_FILES, NP_BAD_ARGUMENT, why, "%u files for a child, %d at most", n,
             NP_CHILD_FILES - 1);
  const enum np_status status = make_child(turns, child, ends, why);
  if (status == NP_OK && child->pid == 0) {
    all[0] = ends[1];
    memcpy(all + 1, files, n * sizeof *files);
    execute(arguments, all, n + 1);
    _exit(NP_CHILD_NOT_EXECUTED);
  }
  return status;
}

void np_child_adopt(int fd, struct np_turns *turns, struct np_child *child) {
  (void)fcntl(fd, F_SETFL, O_NONBLOCK);
  *child = (struct np_child){.fd = fd, .statm_fd = -1, .turns = turns, .used_kb = -1};
}

/* Drains a socket's signals. Returns 0 if its other end is closed. */
static int take_knocks(int fd) {
  char bytes[16];
  const ssize_t n = read(fd, bytes, sizeof bytes);
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
}

/* Signals a socket's other end. If that fails, the other side finds out by polling. */
static void knock(int fd) {
  const ssize_t n = fd >= 0 ? write(fd, "", 1) : 0;
  (void)n;
}

/* Whether the file's reader is gone. */
static int reader_left(const struct pollfd *watched) {
  return watched->fd >= 0 && (watched->revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
}

/* Returns whether the child has ended; it stays a zombie, so that its process group keeps its
 * number. */
static int has_ended(pid_t child) {
  siginfo_t info;
  memset(&info, 0, sizeof info);
  return waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
         info.si_pid == child;
}

/* Returns the child's resident memory, -1 if it cannot be read. */
static int64_t resident_kb(const struct np_child *child) {
  char text[128];
  const ssize_t n = child->statm_fd < 0 ? -1 : pread(child->statm_fd, text, sizeof text - 1, 0);
  if (n <= 0) {
    return -1;
  }
  text[n] = 0;
  char *end = text;
  (void)strtoll(text, &end, 10);
  const long long pages = strtoll(end, &end, 10);
  return pages < 0 ? -1 : (int64_t)pages * (getpagesize() / 1024);
}

/* Returns how long the child cannot exceed its limit, given the memory it has left. */
static uint64_t watch_pause_ns(const struct np_child *child, int64_t limit_kb) {
  const int64_t left_kb = limit_kb - child->used_kb;
  const uint64_t pause_ns = left_kb > 0 ? (uint64_t)left_kb * NS_PER_KB : 0;
  return pause_ns < SHORTEST_WATCH_NS ? SHORTEST_WATCH_NS : pause_ns;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* A signal on the socket wakes us early but proves nothing, nor does its absence: a driver may
 * close every file it finds, and a process that it made may hold the socket open. So turns and the
 * child's end are checked at each wake-up and, without the socket, after growing pauses. */
enum np_event np_child_wait(struct np_child *child, uint32_t turn, const struct np_watch *watch) {
  const uint64_t start = np_now_ns();
  const uint64_t timeout_ns = (uint64_t)watch->timeout_ms * 1000000u;
  uint64_t pause_ns = child->fd >= 0 ? LONGEST_PAUSE_NS : SHORTEST_PAUSE_NS;
  for (;;) {
    np_words_listen(&child->words);
    if (turn != UINT32_MAX && __atomic_load_n(&child->turns->reached, __ATOMIC_ACQUIRE) >= turn) {
      return NP_EVENT_REACHED;
    }
    if (child->pid != 0 ? has_ended(child->pid) : child->fd < 0) {
      return NP_EVENT_ENDED;
    }
    const uint64_t spent_ns = np_now_ns() - start;
    if (spent_ns >= timeout_ns) {
      return NP_EVENT_LATE;
    }
    uint64_t wait_ns = least(pause_ns, timeout_ns - spent_ns);
    if (watch->memory_kb >= 0) {
      child->used_kb = resident_kb(child);
      if (child->used_kb > watch->memory_kb) {
        return NP_EVENT_TOO_BIG;
      }
      wait_ns = least(wait_ns, watch_pause_ns(child, watch->memory_kb));
    }
    const struct timespec pause = {.tv_sec = 0, .tv_nsec = (long)wait_ns};
    struct pollfd files[2] = {{.fd = child->fd, .events = POLLIN, .revents = 0},
                              {.fd = watch->reader_fd, .events = 0, .revents = 0}};
    if (ppoll(files, 2, &pause, NULL) > 0 && reader_left(&files[1])) {
      return NP_EVENT_ABANDONED;
    }
    if (child->fd >= 0 && files[0].revents != 0 && !take_knocks(child->fd)) {
      (void)close(child->fd);
      child->fd = -1;
      pause_ns = SHORTEST_PAUSE_NS;
    } else if (pause_ns < LONGEST_PAUSE_NS) {
      pause_ns *= 2;
    }
  }
}

void np_child_send(struct np_child *child) {
  (void)__atomic_add_fetch(&child->turns->ordered, 1, __ATOMIC_ACQ_REL);
  knock(child->fd);
}

enum np_status np_child_end(struct np_child *child, struct np_outcome *outcome,
                            struct np_message *why) {
  *outcome = (struct np_outcome){.rss_peak_kb = -1};
  const pid_t pid = child->pid;
  if (child->fd >= 0) {
    (void)close(child->fd);
  }
  if (child->statm_fd >= 0) {
    (void)close(child->statm_fd);
  }
  child->fd = child->statm_fd = -1;
  child->pid = 0;
  if (pid == 0) {
    np_words_close(&child->words);
    return NP_OK;
  }
  if (!has_ended(pid)) {
    (void)kill(pid, SIGKILL);
  }
  (void)kill(-pid, SIGKILL); /* and whatever it made and left behind */

  int status = 0;
  struct rusage usage;
  memset(&usage, 0, sizeof usage);
  pid_t found;
  do {
    found = wait4(pid, &status, 0, &usage);
  } while (found < 0 && errno == EINTR);
  np_words_close(&child->words);
  memcpy(outcome->words, child->words.last, sizeof outcome->words);
  NP_REQUIRE(found >= 0, NP_IO, why, "cannot wait for process %ld: %s", (long)pid, strerror(errno));
  outcome->rss_peak_kb = usage.ru_maxrss;
  if (WIFSIGNALED(status)) {
    outcome->signal = WTERMSIG(status);
  }
  if (WIFEXITED(status)) {
    outcome->exit_code = WEXITSTATUS(status);
  }
  return NP_OK;
}

/* Returns whether the link's descriptor is still its socket: a driver may close it and open another
 * file under its number. */
static int is_ours(const struct np_link *link) {
  struct stat facts;
  return link->fd >= 0 && fstat(link->fd, &facts) == 0 && S_ISSOCK(facts.st_mode) &&
         (uint64_t)facts.st_ino == link->inode;
}

void np_link_reach(struct np_link *link) {
  (void)__atomic_add_fetch(&link->turns->reached, 1, __ATOMIC_ACQ_REL);
  if (is_ours(link)) {
    knock(link->fd);
  }
}

void np_link_await(struct np_link *link) {
  uint64_t pause_ns = SHORTEST_PAUSE_NS;
  while (__atomic_load_n(&link->turns->ordered, __ATOMIC_ACQUIRE) <= link->ordered) {
    if (is_ours(link)) {
      const struct timespec pause = {.tv_sec = 0, .tv_nsec = LONGEST_PAUSE_NS};
      struct pollfd file = {.fd = link->fd, .events = POLLIN, .revents = 0};
      if (ppoll(&file, 1, &pause, NULL) > 0 && is_ours(link) && !take_knocks(link->fd)) {
        link->fd = -1;
      }
      continue;
    }
    np_sleep_ns(pause_ns);
    if (pause_ns < CHILDS_PAUSE_NS) {
      pause_ns *= 2;
    }
  }
  link->ordered++;
}
