/* A vendor's broken library: the emulator's, but for two functions that do what $NP_FAULT says.
 *
 * Found by dlsym before the emulator's own, which this library needs; everything else is the
 * emulator's. NP_FAULT is one of abort, segv, hang, exit, noise; NP_FAULT_AT is finish (of a
 * compilation), load (of the library) or the number of the computation. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int call_fn(void *);

static void fault(const char *place) {
  const char *at = getenv("NP_FAULT_AT");
  const char *what = getenv("NP_FAULT");
  if (at == NULL || what == NULL || strcmp(at, place) != 0) return;
  if (strcmp(what, "abort") == 0) abort();
  if (strcmp(what, "segv") == 0) *(volatile int *)8 = 1;
  if (strcmp(what, "exit") == 0) exit(9);
  if (strcmp(what, "hang") == 0) {
    for (;;) (void)pause();
  }
  if (strcmp(what, "noise") == 0) {
    (void)printf("{\"type\":\"end\",\"actions\":0}\nhalf a line");
    (void)fflush(stdout);
  }
}

__attribute__((constructor)) static void load(void) { fault("load"); }

int ANeuralNetworksCompilation_finish(void *compilation) {
  fault("finish");
  return ((call_fn *)dlsym(RTLD_NEXT, "ANeuralNetworksCompilation_finish"))(compilation);
}

int ANeuralNetworksExecution_compute(void *execution) {
  static int count = 0;
  char place[16];
  (void)snprintf(place, sizeof place, "%d", ++count);
  fault(place);
  return ((call_fn *)dlsym(RTLD_NEXT, "ANeuralNetworksExecution_compute"))(execution);
}
