#include "fallback.h"

#include <stdio.h>
#include <stdlib.h>

#include "cpu.h"
#include "guard.h"
#include "np_nnapi.h"
#include "pipeline.h"

struct np_compiled {
  const struct np_fallback *fallback;
  const struct np_model *model;
  struct np_options options;
  struct np_engine engine;          /* the engine that runs it */
  struct np_compiled *inner;        /* the engine's compiled model; NULL: the guard has it */
  struct np_guard *guard;           /* for NNAPI's calls, NULL: they have no time limits */
  struct np_trial_verdict too_late; /* verdict of an abandoned run */
  int has_run;                      /* on NNAPI */
  struct np_stand_in stand_in;
};

nnp_cause np_fallback_cause(enum np_status status, const struct np_fault *fault, int has_compiled) {
  if (fault->wrong_shape ||
      (fault->has_code && fault->code == ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE)) {
    return NNP_WRONG_SHAPE;
  }
  switch (status) {
  case NP_OK:
    return NNP_NO_CAUSE;
  case NP_MISSING:
    return NNP_NO_ACCELERATOR;
  case NP_DEADLINE:
    return NNP_TOO_LATE;
  case NP_UNSUPPORTED:
    return NNP_REFUSED;
  default:
    return has_compiled ? NNP_RUN_FAILED : NNP_COMPILE_FAILED;
  }
}

static void tell(const struct np_compiled *self, int32_t code) {
  const struct np_fallback *fallback = self->fallback;
  if (!fallback->log) {
    return;
  }
  char message[512];
  const char *accelerator = self->options.accelerator;
  (void)snprintf(message, sizeof message, "segment %u of plan %u runs on the CPU instead of %s: %s",
                 self->options.number, fallback->plan, accelerator ? accelerator : "NNAPI's choice",
                 self->stand_in.why.text);
  const nnp_event event = {.plan = fallback->plan,
                           .segment = self->options.number,
                           .accelerator = accelerator,
                           .cause = self->stand_in.cause,
                           .nnapi_code = code,
                           .message = message};
  fallback->log(fallback->log_context, &event);
}

/* Lets the CPU run the model from now on, for the reason in *fault. Returns `status` if that is not
 * allowed, or the CPU engine's status if it fails, too. */
static enum np_status fall_back(struct np_compiled *self, nnp_cause cause, enum np_status status,
                                struct np_fault *fault) {
  if (!self->fallback->is_allowed) {
    return status;
  }
  const struct np_engine cpu = np_cpu_engine(NULL);
  struct np_compiled *inner = NULL;
  struct np_fault refusal = {.has_code = 0};
  status = cpu.compile(cpu.ctx, self->model, &self->options, &inner, &refusal);
  if (status != NP_OK) {
    *fault = refusal;
    return status;
  }
  np_guard_free(self->guard);
  self->guard = NULL;
  if (self->inner) {
    self->engine.free(self->inner);
  }
  self->engine = cpu;
  self->inner = inner;
  self->stand_in.cause = cause;
  self->stand_in.why = fault->why;
  if (cpu.describe) {
    cpu.describe(inner, &self->stand_in.engine);
  }
  atomic_store_explicit(&self->stand_in.is_cpu, 1, memory_order_release);
  tell(self, fault->has_code ? fault->code : 0);
  *fault = (struct np_fault){.has_code = 0};
  return NP_OK;
}

/* ---- NNAPI, with limits or without ---- */

static void hold_nnapi(void *ctx) { np_nnapi_hold(ctx); }

static void release_nnapi(void *ctx) { np_nnapi_close(ctx); }

static enum np_status compile_on_nnapi(struct np_compiled *self, struct np_fault *fault) {
  const struct np_fallback *fallback = self->fallback;
  const struct np_engine *engine = &self->engine;
  if (fallback->compile_limit_ns == 0 && fallback->run_limit_ns == 0) {
    return engine->compile(engine->ctx, self->model, &self->options, &self->inner, fault);
  }
  const struct np_guarded guarded = {.engine = *engine,
                                     .hold = hold_nnapi,
                                     .release = release_nnapi,
                                     .ctx = fallback->nnapi,
                                     .n_left = fallback->n_left};
  self->guard = np_guard_make(&guarded);
  NP_REQUIRE(self->guard, NP_NO_MEMORY, &fault->why, "no memory for a thread that calls NNAPI");
  const uint64_t limit = fallback->compile_limit_ns;
  return np_guard_compile(self->guard, self->model, &self->options, limit ? limit : UINT64_MAX,
                          fault);
}

static enum np_status run_on_nnapi(struct np_compiled *self, const struct np_io *inputs,
                                   const struct np_io *outputs, struct np_fault *fault) {
  if (!self->guard) {
    return self->engine.run(self->inner, inputs, outputs, fault);
  }
  const uint64_t limit = self->fallback->run_limit_ns;
  return np_guard_run(self->guard, inputs, outputs, limit ? limit : UINT64_MAX, fault);
}

/* ---- The engine ---- */

static void fallback_free(struct np_compiled *self) {
  np_guard_free(self->guard);
  if (self->inner) {
    self->engine.free(self->inner);
  }
  free(self);
}

static enum np_status fallback_compile(void *ctx, const struct np_model *model,
                                       const struct np_options *options,
                                       struct np_compiled **compiled, struct np_fault *fault) {
  const struct np_fallback *fallback = ctx;
  struct np_compiled *self = calloc(1, sizeof *self);
  NP_REQUIRE(self, NP_NO_MEMORY, &fault->why, "no memory for a compilation");
  self->fallback = fallback;
  self->model = model;
  self->options = *options;
  enum np_status status = NP_OK;
  nnp_cause cause = NNP_NO_CAUSE;
  if (!fallback->nnapi) {
    fault->why = fallback->missing;
    status = NP_MISSING;
    cause = fallback->missing_cause;
  } else if (fallback->verdicts && fallback->verdicts[options->number].cause != NNP_NO_CAUSE) {
    const struct np_trial_verdict *verdict = &fallback->verdicts[options->number];
    *fault = verdict->fault;
    status = verdict->status;
    cause = verdict->cause;
  } else {
    self->engine = np_nnapi_engine(fallback->nnapi);
    status = compile_on_nnapi(self, fault);
    cause = np_fallback_cause(status, fault, 0);
  }
  if (status != NP_OK) {
    status = fall_back(self, cause, status, fault);
  }
  if (status != NP_OK) {
    fallback_free(self);
    return status;
  }
  *compiled = self;
  return NP_OK;
}

static int has_shared(uint32_t n, const struct np_io *ios) {
  for (uint32_t i = 0; i < n; i++) {
    if (ios[i].memory) {
      return 1;
    }
  }
  return 0;
}

/* Returns whether the driver may only be unable to map the shared memory; it is then tried again
 * with another kind or without (pipeline_memory.c). */
static int may_be_memory(const struct np_compiled *self, const struct np_io *inputs,
                         const struct np_io *outputs, const struct np_fault *fault) {
  return np_pipeline_blames_memory(fault, self->has_run) &&
         (has_shared(self->model->graph.n_inputs, inputs) ||
          has_shared(self->model->graph.n_outputs, outputs));
}

static enum np_status fallback_run(struct np_compiled *self, const struct np_io *inputs,
                                   const struct np_io *outputs, struct np_fault *fault) {
  if (self->stand_in.is_cpu) {
    return self->engine.run(self->inner, inputs, outputs, fault);
  }
  enum np_status status = NP_OK;
  if (self->too_late.status == NP_OK || !self->fallback->is_allowed) {
    status = run_on_nnapi(self, inputs, outputs, fault);
    self->has_run |= status == NP_OK;
    if (status == NP_OK || may_be_memory(self, inputs, outputs, fault)) {
      return status;
    }
    if (status == NP_DEADLINE) { /* to be tried again, with memory that the driver does not have */
      self->too_late = (struct np_trial_verdict){NNP_TOO_LATE, status, *fault, 1};
      return status;
    }
  } else {
    *fault = self->too_late.fault;
    status = self->too_late.status;
  }
  status = fall_back(self, np_fallback_cause(status, fault, 1), status, fault);
  return status == NP_OK ? self->engine.run(self->inner, inputs, outputs, fault) : status;
}

static void fallback_settle(struct np_compiled *self, struct np_durations *durations) {
  if (self->guard) {
    np_guard_settle(self->guard, durations);
  } else if (self->engine.settle && self->inner) {
    self->engine.settle(self->inner, durations);
  }
}

static int fallback_ask(struct np_compiled *self) {
  return !self->guard && self->engine.ask && self->engine.ask(self->inner);
}

static void fallback_describe(const struct np_compiled *self, struct np_engine_facts *facts) {
  facts->stand_in = &self->stand_in;
}

static enum np_status fallback_share(void *ctx, int fd, size_t size,
                                     struct np_engine_memory **memory) {
  const struct np_engine engine = np_nnapi_engine(((const struct np_fallback *)ctx)->nnapi);
  return engine.share(engine.ctx, fd, size, memory);
}

static void fallback_unshare(void *ctx, struct np_engine_memory *memory) {
  const struct np_engine engine = np_nnapi_engine(((const struct np_fallback *)ctx)->nnapi);
  engine.unshare(engine.ctx, memory);
}

struct np_engine np_fallback_engine(struct np_fallback *fallback) {
  return (struct np_engine){.name = "nnapi",
                            .ctx = fallback,
                            .compile = fallback_compile,
                            .run = fallback_run,
                            .lingers = 1,
                            .settle = fallback_settle,
                            .ask = fallback_ask,
                            .describe = fallback_describe,
                            .free = fallback_free,
                            .share = fallback->nnapi ? fallback_share : NULL,
                            .unshare = fallback->nnapi ? fallback_unshare : NULL};
}
