/* Runs a function in a separate process with a watchdog, which contains damage by a vendor's
 * driver. */
#ifndef NP_SUPERVISE_H
#define NP_SUPERVISE_H

#include <stddef.h>

#include "child.h"
#include "np_status.h"

/* Runs work(ctx) in a child process (np_child_start) and waits for its end within the limits of
 * `watch`; any other event kills the process and is returned in *event. NP_IO with the failed call
 * in *why if no child could be made. */
enum np_status np_supervise(int (*work)(void *ctx), void *ctx, const struct np_watch *watch,
                            enum np_event *event, struct np_outcome *outcome,
                            struct np_message *why);

/* Allocates zeroed memory that a child and its parent share; NULL if memory is short. */
void *np_shared_memory(size_t n_bytes);
void np_shared_free(void *memory, size_t n_bytes);

/* Returns "SIGSEGV" and so on; for a signal without a name here, "signal 42", written to
 * text[text_size]. */
const char *np_signal_name(int signal, char *text, size_t text_size);

#endif
