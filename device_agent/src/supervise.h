/* A function in a process of its own, with a watchdog: what a vendor's driver breaks stays there.
 */
#ifndef NP_SUPERVISE_H
#define NP_SUPERVISE_H

#include <stddef.h>
#include <stdint.h>

#include "np_status.h"

/* How a child came to its end. */
struct np_outcome {
  int exit_code; /* where signal is 0 */
  int signal;    /* that ended it, 0 for none */
  int timed_out; /* the watchdog killed it */
  int abandoned; /* the watched file's reader went away, and the child was killed */
  long rss_peak_kb;
};

/* Forks, runs work(ctx) in the child, and waits for its end, for timeout_ms at the most; then the
 * child is killed. Processes that the child made and left behind are killed at its end. The child
 * dies with its parent, its standard output goes to standard error (to nowhere where both are one
 * file), it writes no core file, and it exits with what work returns, without running exit
 * handlers.
 *
 * watch_fd (-1 for none) is the write end of a pipe, socket or terminal: when its reader goes away
 * the child is killed early. NP_IO with the failed call in *why where no child could be made. */
enum np_status np_supervise(int (*work)(void *ctx), void *ctx, uint32_t timeout_ms, int watch_fd,
                            struct np_outcome *outcome, struct np_message *why);

/* Memory that a child and its parent share, zeroed; NULL where there is none. */
void *np_shared_memory(size_t n_bytes);
void np_shared_free(void *memory, size_t n_bytes);

/* "SIGSEGV" and so on; "signal 42" goes to text[text_size] for one without a name here. */
const char *np_signal_name(int signal, char *text, size_t text_size);

#endif
