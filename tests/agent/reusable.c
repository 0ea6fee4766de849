/* NNAPI that adds a line to the file $NP_LOG for each execution that is made and each that is
 * computed and, with $NP_STUBBORN, computes each once only, whatever it said of it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define BAD_STATE 6

typedef int create_fn(void *compilation, void **execution);
typedef int compute_fn(void *execution);

static void *last;

static void note(const char *what) {
  FILE *file = fopen(getenv("NP_LOG"), "a");
  if (file) {
    (void)fprintf(file, "%s\n", what);
    (void)fclose(file);
  }
}

int ANeuralNetworksExecution_create(void *compilation, void **execution) {
  note("create");
  last = NULL;
  return ((create_fn *)dlsym(RTLD_NEXT, "ANeuralNetworksExecution_create"))(compilation, execution);
}

int ANeuralNetworksExecution_compute(void *execution) {
  if (getenv("NP_STUBBORN") && execution == last) {
    return BAD_STATE;
  }
  last = execution;
  note("compute");
  return ((compute_fn *)dlsym(RTLD_NEXT, "ANeuralNetworksExecution_compute"))(execution);
}
