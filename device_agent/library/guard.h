/* An engine's calls on a thread of their own, with a limit of time: NNAPI has no way to take a call
 * back, so one that takes too long is given up, and what it may touch still is left to it. */
#ifndef NP_GUARD_H
#define NP_GUARD_H

#include <stdatomic.h>

#include "engine.h"

struct np_guard;

/* What a call that was given up may touch for as long as it lasts. */
struct np_guarded {
  struct np_engine engine;
  void (*hold)(void *ctx);    /* once when the guard is made, of `ctx`: what the engine needs ... */
  void (*release)(void *ctx); /* ... and once it is needed no more, on any thread */
  void *ctx;
  _Atomic uint32_t *n_left; /* how many that were freed while a call lasts touch the model */
};

/* NULL where there is no memory. */
struct np_guard *np_guard_make(const struct np_guarded *guarded);

/* As the engine's `compile`, with what the model is compiled to kept in the guard. `model` must
 * outlive the guard, and *n_left. NP_DEADLINE where it took longer than limit_ns: the guard is to
 * be freed then. */
enum np_status np_guard_compile(struct np_guard *guard, const struct np_model *model,
                                const struct np_options *options, uint64_t limit_ns,
                                struct np_fault *fault);

/* As the engine's `run`. NP_DEADLINE where it took longer than limit_ns, or a run that did has not
 * come back: it lasts, as far as shared memory is concerned. */
enum np_status np_guard_run(struct np_guard *guard, const struct np_io *inputs,
                            const struct np_io *outputs, uint64_t limit_ns, struct np_fault *fault);

/* As the engine's `settle`, of a run that came back. */
void np_guard_settle(struct np_guard *guard, struct np_durations *durations);

/* Frees what the model was compiled to and the guard; while a call lasts, as soon as it comes back.
 * NULL does nothing. */
void np_guard_free(struct np_guard *guard);

#endif
