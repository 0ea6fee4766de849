#define _POSIX_C_SOURCE 200809L

#include "stall.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "simulator.h"
#include "supervise.h"

struct question {
  const char *library;
  char *name; /* [NP_STALL_BYTES], shared with the parent */
};

/* Runs in a child: asks a simulated phone which of its services hangs. */
static int ask_simulator(void *ctx) {
  const struct question *question = ctx;
  struct np_nnapi *nnapi;
  struct np_message ignored;
  if (np_nnapi_open(question->library, &nnapi, &ignored) == NP_OK) {
    struct np_simulator simulator = np_simulator_of(nnapi);
    const char *name = simulator.stopped ? simulator.stopped() : NULL;
    (void)snprintf(question->name, NP_STALL_BYTES, "%s", name ? name : "");
  }
  return 0;
}

static int name_simulated(const char *library, char name[NP_STALL_BYTES]) {
  struct question question = {.library = library, .name = np_shared_memory(NP_STALL_BYTES)};
  const struct np_watch watch = {.timeout_ms = 2000, .reader_fd = -1, .memory_kb = -1};
  enum np_event event;
  struct np_outcome outcome;
  struct np_message ignored;
  name[0] = '\0';
  if (question.name &&
      np_supervise(ask_simulator, &question, &watch, &event, &outcome, &ignored) == NP_OK) {
    question.name[NP_STALL_BYTES - 1] = '\0';
    (void)snprintf(name, NP_STALL_BYTES, "%s", question.name);
  }
  np_shared_free(question.name, NP_STALL_BYTES);
  return name[0] != '\0';
}

static ssize_t read_of(const char *pid, const char *file, char *text, size_t size) {
  char path[64];
  (void)snprintf(path, sizeof path, "/proc/%.20s/%s", pid, file);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
  if (fd >= 0) {
    (void)close(fd);
  }
  text[n > 0 ? n : 0] = '\0';
  return n;
}

/* Returns whether a process is a driver, by its command, and is stuck: stopped, traced, or waiting
 * in the kernel for hardware. On every Android, drivers have "neuralnetworks" in their service's
 * name. */
static int is_stuck_driver(const char *pid, char name[NP_STALL_BYTES]) {
  char stat[512];
  if (read_of(pid, "cmdline", name, NP_STALL_BYTES) <= 0 || !strstr(name, "neuralnetworks") ||
      read_of(pid, "stat", stat, sizeof stat) <= 0) {
    return 0;
  }
  const char *state = strrchr(stat, ')'); /* behind the command: a space, and the state */
  return state && state[1] == ' ' && state[2] != '\0' && strchr("TtD", state[2]) != NULL;
}

/* Finds the name of a stuck driver's process in the system's list of processes. */
static int name_process(char name[NP_STALL_BYTES]) {
  DIR *list = opendir("/proc");
  int is_there = 0;
  for (struct dirent *entry; list && !is_there && (entry = readdir(list));) {
    is_there = isdigit((unsigned char)entry->d_name[0]) && is_stuck_driver(entry->d_name, name);
  }
  if (list) {
    (void)closedir(list);
  }
  return is_there;
}

int np_stalled_driver(const char *library, char name[NP_STALL_BYTES]) {
  return name_simulated(library, name) || name_process(name);
}
