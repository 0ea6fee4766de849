/* A process of its own for what a vendor's driver may break, which takes turns with its parent: the
 * child works until it has something to show (it reaches a turn), and waits to be ordered on. */
#ifndef NP_CHILD_H
#define NP_CHILD_H

#include <stdint.h>
#include <sys/types.h>

#include "np_status.h"
#include "words.h"

/* The turns of a child, in memory that both share; zero before it starts. */
struct np_turns {
  uint32_t reached; /* by the child */
  uint32_t ordered; /* by the parent */
};

/* What a parent knows of its child. */
struct np_child {
  pid_t pid; /* 0: none, or one that this process did not make */
  int fd;    /* where it knocks, -1 once that tells nothing any more */
  int statm_fd;
  struct np_turns *turns;
  int64_t used_kb; /* of resident memory, as it was read last; -1 unknown */
  struct np_words words;
};

/* No child. */
#define NP_NO_CHILD                                                                                \
  ((struct np_child){.fd = -1, .statm_fd = -1, .used_kb = -1, .words = {.fd = -1}})

/* The child's own side. */
struct np_link {
  int fd;
  uint64_t inode; /* of the socket fd */
  struct np_turns *turns;
  uint32_t ordered; /* orders that were carried out or are */
};

/* What a parent watches for while it waits. */
struct np_watch {
  uint32_t timeout_ms;
  int reader_fd;     /* write end of a pipe, socket or terminal whose reader may leave; -1: none */
  int64_t memory_kb; /* resident memory that the child may have; -1: any */
};

enum np_event {
  NP_EVENT_REACHED,  /* the turn that was waited for */
  NP_EVENT_ENDED,    /* the child came to its end by itself */
  NP_EVENT_LATE,     /* the time is over */
  NP_EVENT_TOO_BIG,  /* it has more memory than it may */
  NP_EVENT_ABANDONED /* the reader is gone */
};

/* How a child came to its end. */
struct np_outcome {
  int exit_code; /* where signal is 0 */
  int signal;    /* that ended it, 0 for none */
  long rss_peak_kb;
  char words[NP_WORDS_BYTES]; /* what it printed last, "": nothing */
};

/* Forks and runs work(ctx, link) in the child. The child dies with its parent, leads a process
 * group of its own, goes before the phone's own processes where memory runs out, its outputs
 * go to its parent, who passes them on to standard error (to nowhere where that is standard output,
 * too), it writes no core file, and it exits with what work returns, without running exit handlers.
 * To be ended with np_child_end. NP_IO with the failed call in *why where no child could be made.
 */
enum np_status np_child_start(int (*work)(void *ctx, struct np_link *link), void *ctx,
                              struct np_turns *turns, struct np_child *child,
                              struct np_message *why);

#define NP_CHILD_FIRST_FILE 3 /* descriptor of a program's link; its other files follow it */
#define NP_CHILD_FILES 4      /* the link included */
#define NP_CHILD_NOT_EXECUTED 127

/* The same of a program: arguments[0] is its file, and the list ends in NULL. It has its link as
 * descriptor NP_CHILD_FIRST_FILE, then files[n]; it ends with code NP_CHILD_NOT_EXECUTED where it
 * cannot be started. By fork and exec: Android has posix_spawn from API 28 on. */
enum np_status np_child_spawn(char *const *arguments, const int *files, uint32_t n,
                              struct np_turns *turns, struct np_child *child,
                              struct np_message *why);

/* Takes a process that somebody else made, and that has the other end of the socket fd, for a
 * child. It is at its end once nobody has that other end, and nothing else can be known of it or
 * done to it. To be ended with np_child_end, which closes fd. */
void np_child_adopt(int fd, struct np_turns *turns, struct np_child *child);

/* The program's own side of its link. */
struct np_link np_link_over(int fd, struct np_turns *turns);

/* Waits until the child has reached `turn` turns (UINT32_MAX: until its end), or anything else
 * happens. Nothing is done to the child then. */
enum np_event np_child_wait(struct np_child *child, uint32_t turn, const struct np_watch *watch);

/* Sends the child on by one turn. */
void np_child_send(struct np_child *child);

/* Kills the child where it is not at its end, and whatever processes it made and left behind.
 * NP_IO with the failed call in *why. */
enum np_status np_child_end(struct np_child *child, struct np_outcome *outcome,
                            struct np_message *why);

/* Whether the system has the low memory killer of kernels up to Android 9. */
int np_has_kernel_killer(void);

/* The child's side: tells that the next turn is reached; waits for the next order. */
void np_link_reach(struct np_link *link);
void np_link_await(struct np_link *link);

#endif
