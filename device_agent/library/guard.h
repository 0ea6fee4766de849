/* Engine calls on a separate thread, with a time limit. NNAPI cannot cancel a call, so one that
 * takes too long is abandoned, and everything that it may still access is kept alive for it. */
#ifndef NP_GUARD_H
#define NP_GUARD_H

#include <stdatomic.h>

#include "engine.h"

struct np_guard;

/* Everything that an abandoned call may access until it returns. */
struct np_guarded {
  struct np_engine engine;
  void (*hold)(void *ctx);    /* called once when the guard is made: keeps what the engine needs
                                 ... */
  void (*release)(void *ctx); /* ... until this is called, on any thread */
  void *ctx;
  _Atomic uint32_t *n_left; /* number of freed guards whose call still uses the model */
};

/* Makes a guard; NULL if memory is short. */
struct np_guard *np_guard_make(const struct np_guarded *guarded);

/* Calls the engine's `compile`; the guard keeps the compiled model. `model` and *n_left must
 * outlive the guard. NP_DEADLINE if it took longer than limit_ns: the caller must free the guard
 * then. */
enum np_status np_guard_compile(struct np_guard *guard, const struct np_model *model,
                                const struct np_options *options, uint64_t limit_ns,
                                struct np_fault *fault);

/* Calls the engine's `run`. NP_DEADLINE if it took longer than limit_ns, or an earlier run that did
 * has not returned yet: such a run may still access shared memory. */
enum np_status np_guard_run(struct np_guard *guard, const struct np_io *inputs,
                            const struct np_io *outputs, uint64_t limit_ns, struct np_fault *fault);

/* Calls the engine's `settle` for a run that has returned. */
void np_guard_settle(struct np_guard *guard, struct np_durations *durations);

/* Frees the compiled model and the guard, once a call that still lasts has returned. NULL does
 * nothing. */
void np_guard_free(struct np_guard *guard);

#endif
