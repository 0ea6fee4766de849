/* A child process for code that a vendor's driver may crash. It takes turns with its parent: the
 * child works until it reaches a turn, then waits for the parent's order to go on. */
#ifndef NP_CHILD_H
#define NP_CHILD_H

#include <stdint.h>
#include <sys/types.h>

#include "np_status.h"
#include "words.h"

/* The turns of a child, in memory that both processes share; zero before it starts. */
struct np_turns {
  uint32_t reached; /* written by the child */
  uint32_t ordered; /* written by the parent */
};

/* The parent's view of its child. */
struct np_child {
  pid_t pid; /* 0: no child, or one that this process did not make */
  int fd;    /* socket on which it signals, -1 once that is of no more use */
  int statm_fd;
  struct np_turns *turns;
  int64_t used_kb; /* resident memory, as last read; -1: unknown */
  struct np_words words;
};

/* No child. */
#define NP_NO_CHILD                                                                                \
  ((struct np_child){.fd = -1, .statm_fd = -1, .used_kb = -1, .words = {.fd = -1}})

/* The child's side. */
struct np_link {
  int fd;
  uint64_t inode; /* inode of the socket fd */
  struct np_turns *turns;
  uint32_t ordered; /* orders received so far */
};

/* Limits that a parent watches while it waits. */
struct np_watch {
  uint32_t timeout_ms;
  int reader_fd;     /* write end of a pipe, socket or terminal whose reader may go away; -1:
                        none */
  int64_t memory_kb; /* limit of the child's resident memory; -1: none */
};

enum np_event {
  NP_EVENT_REACHED,  /* the awaited turn */
  NP_EVENT_ENDED,    /* the child ended by itself */
  NP_EVENT_LATE,     /* the time limit passed */
  NP_EVENT_TOO_BIG,  /* it exceeded the memory limit */
  NP_EVENT_ABANDONED /* the reader is gone */
};

/* How a child ended. */
struct np_outcome {
  int exit_code; /* if signal is 0 */
  int signal;    /* the signal that killed it, 0: none */
  long rss_peak_kb;
  char words[NP_WORDS_BYTES]; /* its last output, "": none */
};

/* Forks and runs work(ctx, link) in the child. The child dies with its parent, leads its own
 * process group, is killed before the phone's own processes if memory runs out, and writes no core
 * file. Its output goes to the parent, which passes it on to standard error, or drops it if that is
 * the same file as standard output. It exits with the return value of work, without running exit
 * handlers. The caller ends it with np_child_end. NP_IO with the failed call in *why if no child
 * could be made. */
enum np_status np_child_start(int (*work)(void *ctx, struct np_link *link), void *ctx,
                              struct np_turns *turns, struct np_child *child,
                              struct np_message *why);

#define NP_CHILD_FIRST_FILE 3 /* descriptor of a program's link; its other files follow it */
#define NP_CHILD_FILES 4      /* the link included */
#define NP_CHILD_NOT_EXECUTED 127

/* Starts a program as a child: arguments[0] is its file, and the list ends in NULL. It gets its
 * link as descriptor NP_CHILD_FIRST_FILE, followed by files[n]. If it cannot be executed, the child
 * exits with NP_CHILD_NOT_EXECUTED. Uses fork and exec, since Android has posix_spawn only from API
 * 28 on. */
enum np_status np_child_spawn(char *const *arguments, const int *files, uint32_t n,
                              struct np_turns *turns, struct np_child *child,
                              struct np_message *why);

/* Treats a process that another one made, and that has the other end of the socket fd, as a child.
 * It counts as ended once that other end is closed; nothing else can be known about it or done to
 * it. The caller ends it with np_child_end, which closes fd. */
void np_child_adopt(int fd, struct np_turns *turns, struct np_child *child);

/* Returns the program's side of its link. */
struct np_link np_link_over(int fd, struct np_turns *turns);

/* Waits until the child has reached `turn` turns (UINT32_MAX: until its end), or another event
 * happens. Does nothing to the child. */
enum np_event np_child_wait(struct np_child *child, uint32_t turn, const struct np_watch *watch);

/* Sends the child on by one turn. */
void np_child_send(struct np_child *child);

/* Kills the child if it has not ended, and any processes that it left behind. NP_IO with the failed
 * call in *why. */
enum np_status np_child_end(struct np_child *child, struct np_outcome *outcome,
                            struct np_message *why);

/* Returns whether the system has the in-kernel low memory killer (up to Android 9). */
int np_has_kernel_killer(void);

/* The child's side: announce that the next turn is reached; wait for the next order. */
void np_link_reach(struct np_link *link);
void np_link_await(struct np_link *link);

#endif
