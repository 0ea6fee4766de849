/* A function in a process of its own, with a watchdog: what a vendor's driver breaks stays there.
 */
#ifndef NP_SUPERVISE_H
#define NP_SUPERVISE_H

#include <stddef.h>

#include "child.h"
#include "np_status.h"

/* Runs work(ctx) in a process of its own (np_child_start) and waits for its end as `watch` says; it
 * is killed when anything else happens, which *event tells. NP_IO with the failed call in *why
 * where no child could be made. */
enum np_status np_supervise(int (*work)(void *ctx), void *ctx, const struct np_watch *watch,
                            enum np_event *event, struct np_outcome *outcome,
                            struct np_message *why);

/* Memory that a child and its parent share, zeroed; NULL where there is none. */
void *np_shared_memory(size_t n_bytes);
void np_shared_free(void *memory, size_t n_bytes);

/* "SIGSEGV" and so on; "signal 42" goes to text[text_size] for one without a name here. */
const char *np_signal_name(int signal, char *text, size_t text_size);

#endif
