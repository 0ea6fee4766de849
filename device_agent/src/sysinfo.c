#define _GNU_SOURCE /* pipe2, syscall */

#include "sysinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define GETPROP_TIMEOUT_MS 5000
#define MAX_KB (INT64_C(1) << 40) /* times 3 it is still a number */

const char *np_abi(void) {
#if defined(__x86_64__)
  return "x86_64";
#elif defined(__aarch64__)
  return "arm64-v8a";
#elif defined(__arm__)
  return "armeabi-v7a";
#elif defined(__i386__)
  return "x86";
#elif defined(__riscv)
  return "riscv64";
#else
  return "unknown";
#endif
}

/* Reads a line of /proc/meminfo, -1 unless it has a number above 0. */
static int64_t meminfo(const char *key) {
  const char *root = getenv("NNAPI_PROF_PROC");
  char path[512];
  (void)snprintf(path, sizeof path, "%s/meminfo", root ? root : "/proc");
  FILE *file = fopen(path, "re");
  if (!file) {
    return -1;
  }
  int64_t kb = -1;
  char line[128];
  const size_t length = strlen(key);
  while (fgets(line, sizeof line, file)) {
    if (strncmp(line, key, length) == 0) {
      kb = strtoll(line + length, NULL, 10);
      break;
    }
  }
  (void)fclose(file);
  return kb > 0 && kb < MAX_KB ? kb : -1;
}

int64_t np_memory_kb(void) { return meminfo("MemTotal:"); }

int64_t np_memory_available_kb(void) { return meminfo("MemAvailable:"); }

int64_t np_memory_share_kb(void) {
  const int64_t available_kb = np_memory_available_kb();
  return available_kb < 0 ? -1 : available_kb / 4 * 3;
}

void np_kernel_release(char *text, size_t size) {
  struct utsname name;
  (void)snprintf(text, size, "%s", uname(&name) == 0 ? name.release : "");
}

int np_is_android(void) {
  return access("/system/bin/linker64", F_OK) == 0 || access("/system/bin/linker", F_OK) == 0;
}

/* Reads a pipe until its end, until there is no room, or for GETPROP_TIMEOUT_MS between pieces. */
static size_t read_pipe(int fd, char *text, size_t size) {
  size_t used = 0;
  while (used < size - 1) {
    struct pollfd file = {.fd = fd, .events = POLLIN, .revents = 0};
    if (poll(&file, 1, GETPROP_TIMEOUT_MS) <= 0) {
      break;
    }
    const ssize_t n = read(fd, text + used, size - 1 - used);
    if (n <= 0) {
      break;
    }
    used += (size_t)n;
  }
  return used;
}

void np_property(const char *name, char *text, size_t size) {
  text[0] = 0;
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) {
    return;
  }
  const pid_t child = fork();
  if (child == 0) {
    const int nowhere = open("/dev/null", O_RDWR);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)dup2(nowhere, STDIN_FILENO);
    (void)dup2(output[1], STDOUT_FILENO);
    (void)dup2(nowhere, STDERR_FILENO);
    (void)execlp("getprop", "getprop", name, (char *)NULL);
    _exit(127);
  }
  (void)close(output[1]);
  if (child < 0) {
    (void)close(output[0]);
    return;
  }
  size_t used = read_pipe(output[0], text, size);
  (void)close(output[0]);
  (void)kill(child, SIGKILL); /* it is done, or it hangs */
  while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    continue;
  }
  while (used > 0 && (text[used - 1] == '\n' || text[used - 1] == '\r')) {
    used--;
  }
  text[used] = 0;
}

/* Uses the system calls, whose mask has the same layout everywhere. */
int np_set_affinity(uint64_t cpu_mask) {
  return syscall(__NR_sched_setaffinity, 0, sizeof cpu_mask, &cpu_mask) == 0 ? 0 : errno;
}

uint64_t np_affinity(void) {
  struct np_affinity affinity = {.before = {0}};
  return syscall(__NR_sched_getaffinity, 0, sizeof affinity.before, affinity.before) < 0
             ? 0
             : affinity.before[0];
}

int np_affinity_enter(uint64_t cpu_mask, struct np_affinity *affinity) {
  memset(affinity, 0, sizeof *affinity);
  if (cpu_mask == 0) {
    return 0;
  }
  if (syscall(__NR_sched_getaffinity, 0, sizeof affinity->before, affinity->before) < 0) {
    return errno;
  }
  const int cause = np_set_affinity(cpu_mask);
  affinity->is_changed = cause == 0;
  return cause;
}

void np_affinity_leave(const struct np_affinity *affinity) {
  if (affinity->is_changed) {
    (void)syscall(__NR_sched_setaffinity, 0, sizeof affinity->before, affinity->before);
  }
}
