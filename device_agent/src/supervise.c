#define _GNU_SOURCE /* MAP_ANONYMOUS */

#include "supervise.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

struct work {
  int (*function)(void *ctx);
  void *ctx;
};

static int do_work(void *ctx, struct np_link *link) {
  const struct work *work = ctx;
  (void)link; /* it takes no turns */
  return work->function(work->ctx);
}

enum np_status np_supervise(int (*work)(void *ctx), void *ctx, const struct np_watch *watch,
                            enum np_event *event, struct np_outcome *outcome,
                            struct np_message *why) {
  struct work all = {.function = work, .ctx = ctx};
  struct np_turns turns = {0, 0};
  struct np_child child;
  NP_TRY(np_child_start(do_work, &all, &turns, &child, why));
  *event = np_child_wait(&child, UINT32_MAX, watch);
  return np_child_end(&child, outcome, why);
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
  if (memory) {
    (void)munmap(memory, n_bytes);
  }
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
    if (names[i].number == number) {
      return names[i].name;
    }
  }
  (void)snprintf(text, text_size, "signal %d", number);
  return text;
}
