#define _GNU_SOURCE /* sched_setaffinity, pipe2 */

#include "sysinfo.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_CPUS 64u /* as many as a mask has bits */
#define GETPROP_TIMEOUT_MS 5000

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

/* The number at the beginning of a file, -1 where there is none. */
static int64_t read_number(const char *path) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return -1;
  char text[64];
  const ssize_t n = read(fd, text, sizeof text - 1);
  (void)close(fd);
  if (n <= 0)
    return -1;
  text[n] = 0;
  char *end = text;
  const long long value = strtoll(text, &end, 10);
  return end == text || value < 0 ? -1 : (int64_t)value;
}

uint32_t np_cpu_count(void) {
  uint32_t n = 0;
  char path[64];
  for (; n < 4096; n++) {
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%" PRIu32, n);
    if (access(path, F_OK) != 0)
      break;
  }
  return n == 0 ? 1 : n;
}

static int64_t cpufreq(uint32_t cpu, const char *what) {
  char path[96];
  (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%" PRIu32 "/cpufreq/%s", cpu, what);
  return read_number(path);
}

int64_t np_cpu_max_khz(uint32_t cpu) { return cpufreq(cpu, "cpuinfo_max_freq"); }

int64_t np_cpu_now_khz(uint64_t cpu_mask) {
  int64_t highest = -1;
  const uint32_t n = np_cpu_count();
  for (uint32_t i = 0; i < n && i < MAX_CPUS; i++) {
    if (cpu_mask != 0 && (cpu_mask >> i & 1) == 0)
      continue;
    const int64_t khz = cpufreq(i, "scaling_cur_freq");
    if (khz > highest)
      highest = khz;
  }
  return highest;
}

int64_t np_thermal_mc(void) {
  static const char folder[] = "/sys/class/thermal";
  int64_t highest = -1;
  DIR *zones = opendir(folder);
  if (!zones)
    return -1;
  for (const struct dirent *entry = readdir(zones); entry; entry = readdir(zones)) {
    if (strncmp(entry->d_name, "thermal_zone", 12) != 0)
      continue;
    char path[320];
    (void)snprintf(path, sizeof path, "%s/%s/temp", folder, entry->d_name);
    const int64_t mc = read_number(path);
    if (mc > highest && mc < 200000)
      highest = mc;
  }
  (void)closedir(zones);
  return highest > 0 ? highest : -1;
}

int64_t np_memory_kb(void) {
  FILE *file = fopen("/proc/meminfo", "re");
  if (!file)
    return -1;
  int64_t kb = -1;
  char line[128];
  while (kb < 0 && fgets(line, sizeof line, file)) {
    if (strncmp(line, "MemTotal:", 9) == 0)
      kb = strtoll(line + 9, NULL, 10);
  }
  (void)fclose(file);
  return kb;
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
    if (poll(&file, 1, GETPROP_TIMEOUT_MS) <= 0)
      break;
    const ssize_t n = read(fd, text + used, size - 1 - used);
    if (n <= 0)
      break;
    used += (size_t)n;
  }
  return used;
}

void np_property(const char *name, char *text, size_t size) {
  text[0] = 0;
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0)
    return;
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
  while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
    continue;
  while (used > 0 && (text[used - 1] == '\n' || text[used - 1] == '\r'))
    used--;
  text[used] = 0;
}

int np_set_affinity(uint64_t cpu_mask) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (size_t i = 0; i < MAX_CPUS; i++) {
    if ((cpu_mask >> i & 1) != 0)
      CPU_SET(i, &set);
  }
  return sched_setaffinity(0, sizeof set, &set) == 0 ? 0 : errno;
}
