/* A vendor's broken library: the emulator's, but for functions that do what $NP_FAULT says.
 *
 * Found by dlsym before the emulator's own, which this library needs; everything else is the
 * emulator's. NP_FAULT is one of abort, segv, hang, exit, noise, spin (for ever), leak (memory),
 * kill (as a system without memory does, after its score is copied to the file $NP_SCORE),
 * stubborn (closes all files, ignores signals, leaves a process that holds on, and hangs) and close
 * (all files, and goes on); NP_FAULT_AT is finish (of a compilation), load (of the library), list
 * (of its devices) or the number of the computation; where $NP_FAULT_ONCE names a file, the fault
 * makes it, and does not happen again. $NP_DURATION is what getDuration says. $NP_LOG
 * names a file to which each computation adds its process, and the CPUs that its own and the
 * process's other threads keep to, masks. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int call_fn(void *);

static void fault(const char *place) {
  const char *at = getenv("NP_FAULT_AT");
  const char *what = getenv("NP_FAULT");
  const char *once = getenv("NP_FAULT_ONCE");
  if (at == NULL || what == NULL || strcmp(at, place) != 0) return;
  if (once != NULL && open(once, O_CREAT | O_EXCL | O_WRONLY, 0600) < 0) return;
  if (strcmp(what, "abort") == 0) {
    (void)fprintf(stderr, "%0300d\nvendor: firmware\tis lost\n", 0);
    abort();
  }
  if (strcmp(what, "segv") == 0) *(volatile int *)8 = 1;
  if (strcmp(what, "exit") == 0) exit(9);
  if (strcmp(what, "kill") == 0) {
    char text[16] = "";
    FILE *score = fopen("/proc/self/oom_score_adj", "r"), *copy = fopen(getenv("NP_SCORE"), "w");
    (void)fputs(fgets(text, sizeof text, score), copy);
    (void)fclose(copy);
    (void)raise(SIGKILL);
  }
  if (strcmp(what, "hang") == 0) {
    for (;;) (void)pause();
  }
  if (strcmp(what, "spin") == 0) {
    for (volatile int i = 0;; i = 1 - i) continue;
  }
  if (strcmp(what, "leak") == 0) {
    for (;;) {
      char *piece = malloc(1 << 20);
      if (piece == NULL) abort();
      memset(piece, 1, 1 << 20);
    }
  }
  if (strcmp(what, "stubborn") == 0 || strcmp(what, "close") == 0) {
    for (int fd = 0; fd < 1024; fd++) (void)close(fd);
  }
  if (strcmp(what, "stubborn") == 0) {
    for (int number = 1; number < 32; number++) (void)signal(number, SIG_IGN);
    (void)fork();
    for (;;) (void)pause();
  }
  if (strcmp(what, "noise") == 0) {
    (void)printf("{\"type\":\"end\",\"actions\":0}\nhalf a line");
    (void)fflush(stdout);
  }
}

__attribute__((constructor)) static void load(void) { fault("load"); }

/* 0 for a thread that has ended. */
static unsigned long long cpus_of(int thread) {
  cpu_set_t cpus;
  unsigned long long mask = 0;
  CPU_ZERO(&cpus);
  (void)sched_getaffinity(thread, sizeof cpus, &cpus);
  for (int cpu = 0; cpu < 64; cpu++) mask |= (unsigned long long)(CPU_ISSET(cpu, &cpus) != 0) << cpu;
  return mask;
}

static void write_log(void) {
  const char *path = getenv("NP_LOG");
  FILE *file = path == NULL ? NULL : fopen(path, "a");
  if (file == NULL) return;
  (void)fprintf(file, "%ld %llx", (long)getpid(), cpus_of(0));
  DIR *threads = opendir("/proc/self/task");
  for (const struct dirent *each; threads != NULL && (each = readdir(threads)) != NULL;) {
    const int thread = atoi(each->d_name);
    const unsigned long long cpus = thread > 0 && thread != gettid() ? cpus_of(thread) : 0;
    if (cpus != 0) (void)fprintf(file, " %llx", cpus);
  }
  if (threads != NULL) (void)closedir(threads);
  (void)fputc('\n', file);
  (void)fclose(file);
}

int ANeuralNetworksCompilation_finish(void *compilation) {
  fault("finish");
  return ((call_fn *)dlsym(RTLD_NEXT, "ANeuralNetworksCompilation_finish"))(compilation);
}

int ANeuralNetworks_getDeviceCount(void *count) {
  fault("list");
  return ((call_fn *)dlsym(RTLD_NEXT, "ANeuralNetworks_getDeviceCount"))(count);
}

int ANeuralNetworksExecution_getDuration(const void *execution, int code,
                                         unsigned long long *duration) {
  typedef int get_fn(const void *, int, unsigned long long *);
  const char *said = getenv("NP_DURATION");
  const int result = ((get_fn *)dlsym(RTLD_NEXT, "ANeuralNetworksExecution_getDuration"))(
      execution, code, duration);
  if (said != NULL) *duration = strtoull(said, NULL, 10);
  return result;
}

int ANeuralNetworksExecution_compute(void *execution) {
  static int count = 0;
  char place[16];
  write_log();
  (void)snprintf(place, sizeof place, "%d", ++count);
  fault(place);
  return ((call_fn *)dlsym(RTLD_NEXT, "ANeuralNetworksExecution_compute"))(execution);
}
