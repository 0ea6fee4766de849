/* The reference back end: runs each operation's kernel, a plain loop that specifies it. */
#include "execute/np_clock.h"
#include "np_executor.h"
#include "plan/np_plan.h"

static struct np_call *call_of(const struct np_region *region) {
  return &region->calls[region->operations[0]];
}

static enum np_status reference_compile(const struct np_region *region, void **state,
                                        struct np_message *why) {
  struct np_call *call = call_of(region);
  call->why = why;
  *state = NULL;
  if (call->kernel->prepare == NULL || call->state != NULL) {
    return NP_OK; /* the executor, not the plan, owns the kernels' states */
  }
  return call->kernel->prepare(call, &call->state);
}

static enum np_status reference_run(const struct np_region *region, void *state,
                                    struct np_message *why) {
  (void)state;
  struct np_call *call = call_of(region);
  call->why = why;
  NP_TRY(np_check_inputs(call));
  const enum np_status status = call->kernel->run(call);
  if (status == NP_OK && call->options != NULL && call->options->after != NULL) {
    call->options->after(call->options->context, call);
  }
  const int told = status == NP_OK || status == NP_NO_MEMORY || status == NP_DEADLINE;
  return told ? status : NP_RUN_FAILED;
}

static void reference_free(void *state) { (void)state; }

const struct np_backend np_reference_backend = {.name = "reference",
                                                .compile = reference_compile,
                                                .run = reference_run,
                                                .free = reference_free};
