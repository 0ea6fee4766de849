/* A worker thread that executes calls for one other thread. */
#define _POSIX_C_SOURCE 200809L

#include "guard.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "parker.h"
#include "timing.h"

#define NS_PER_MS 1000000u

enum guard_job { JOB_NONE, JOB_COMPILE, JOB_RUN };
enum guard_state {
  STATE_IDLE, /* the thread waits for a job, or there is none */
  STATE_BUSY,
  STATE_END, /* the thread is to end */
  STATE_LEFT /* the job was abandoned: the thread frees the guard */
};

/* Inputs or outputs for the engine, copied to the guard's own memory unless they are in shared
 * memory. */
struct guard_ends {
  uint32_t n;
  struct np_io *ios;
  void **own; /* [n], NULL until needed */
};

struct np_guard {
  struct np_guarded guarded;
  struct np_compiled *compiled;
  const struct np_model *model;
  struct np_options options;
  struct guard_ends inputs;
  struct guard_ends outputs;

  enum guard_job job; /* the thread owns the fields from here on while it is busy */
  enum np_status status;
  struct np_fault fault;
  _Atomic uint32_t state;
  int has_thread;
  pthread_t thread;
  struct np_parker worker;
  struct np_parker caller;
};

static void free_ends(struct guard_ends *ends) {
  for (uint32_t i = 0; ends->own && i < ends->n; i++) {
    free(ends->own[i]);
  }
  free(ends->own);
  free(ends->ios);
}

static void dispose(struct np_guard *self) {
  if (self->compiled) {
    self->guarded.engine.free(self->compiled);
  }
  free_ends(&self->inputs);
  free_ends(&self->outputs);
  self->guarded.release(self->guarded.ctx);
  free(self);
}

/* ---- The thread ---- */

static void work(struct np_guard *self) {
  const struct np_engine *engine = &self->guarded.engine;
  self->fault = (struct np_fault){.has_code = 0};
  self->status =
      self->job == JOB_COMPILE
          ? engine->compile(engine->ctx, self->model, &self->options, &self->compiled, &self->fault)
          : engine->run(self->compiled, self->inputs.ios, self->outputs.ios, &self->fault);
}

static void *run_worker(void *argument) {
  struct np_guard *self = argument;
  for (;;) {
    const uint32_t state = atomic_load(&self->state);
    if (state == STATE_END) {
      return NULL;
    }
    if (state == STATE_IDLE) {
      np_parker_begin(&self->worker);
      if (atomic_load(&self->state) == STATE_IDLE) {
        (void)np_parker_sleep(&self->worker, NP_PARKER_FOREVER);
      } else {
        np_parker_end(&self->worker);
      }
      continue;
    }
    work(self);
    uint32_t expected = STATE_BUSY;
    if (!atomic_compare_exchange_strong(&self->state, &expected, STATE_IDLE)) {
      _Atomic uint32_t *n_left = self->guarded.n_left;
      dispose(self);
      (void)atomic_fetch_sub(n_left, 1);
      return NULL;
    }
    np_parker_wake(&self->caller);
  }
}

/* Ends the idle thread. The next caller that needs one starts it, so that it inherits the caller's
 * CPUs. */
static void end_thread(struct np_guard *self) {
  if (self->has_thread) {
    atomic_store(&self->state, STATE_END);
    np_parker_wake(&self->worker);
    (void)pthread_join(self->thread, NULL);
    self->has_thread = 0;
    atomic_store(&self->state, STATE_IDLE);
  }
}

/* ---- The caller ---- */

static enum np_status late(const struct np_guard *self, const char *what, uint64_t limit_ns,
                           struct np_fault *fault) {
  const char *name = self->options.accelerator;
  *fault = (struct np_fault){.has_code = 0};
  return np_error(NP_DEADLINE, &fault->why, "%s on %s took longer than %.6g ms", what,
                  name ? name : "NNAPI's choice", (double)limit_ns / NS_PER_MS);
}

/* Has the thread do a job; returns 0 if it exceeds the time limit. */
static int order(struct np_guard *self, enum guard_job job, uint64_t limit_ns) {
  const uint64_t now = np_now_ns();
  const uint64_t until_ns = limit_ns > UINT64_MAX - now ? NP_PARKER_FOREVER : now + limit_ns;
  self->job = job;
  atomic_store(&self->state, STATE_BUSY);
  np_parker_wake(&self->worker);
  for (int in_time = 1;;) {
    np_parker_begin(&self->caller);
    const int is_done = atomic_load(&self->state) == STATE_IDLE;
    if (is_done || !in_time) {
      np_parker_end(&self->caller);
      return is_done;
    }
    in_time = np_parker_sleep(&self->caller, until_ns);
  }
}

static enum np_status start_thread(struct np_guard *self, struct np_fault *fault) {
  NP_REQUIRE(self->has_thread || pthread_create(&self->thread, NULL, run_worker, self) == 0,
             NP_NO_MEMORY, &fault->why, "no memory for a thread that calls NNAPI");
  self->has_thread = 1;
  return NP_OK;
}

static enum np_status make_ends(struct guard_ends *ends, uint32_t n, struct np_fault *fault) {
  ends->n = n;
  ends->ios = calloc(n + (size_t)1, sizeof *ends->ios);
  ends->own = calloc(n + (size_t)1, sizeof *ends->own);
  return ends->ios && ends->own
             ? NP_OK
             : np_error(NP_NO_MEMORY, &fault->why, "no memory for inputs and outputs");
}

/* Takes over the inputs or outputs of a run. */
static enum np_status take_ends(struct guard_ends *ends, const struct np_io *ios, int is_input,
                                struct np_fault *fault) {
  for (uint32_t i = 0; i < ends->n; i++) {
    ends->ios[i] = ios[i];
    if (ios[i].memory) {
      continue;
    }
    if (!ends->own[i] && posix_memalign(&ends->own[i], 64, ios[i].n_bytes) != 0) {
      ends->own[i] = NULL;
      return np_error(NP_NO_MEMORY, &fault->why, "no memory for inputs and outputs");
    }
    ends->ios[i].data = ends->own[i];
    if (is_input) {
      memcpy(ends->own[i], ios[i].data, ios[i].n_bytes);
    }
  }
  return NP_OK;
}

struct np_guard *np_guard_make(const struct np_guarded *guarded) {
  struct np_guard *self = calloc(1, sizeof *self);
  if (self) {
    self->guarded = *guarded;
    guarded->hold(guarded->ctx);
  }
  return self;
}

enum np_status np_guard_compile(struct np_guard *self, const struct np_model *model,
                                const struct np_options *options, uint64_t limit_ns,
                                struct np_fault *fault) {
  self->model = model;
  self->options = *options;
  NP_TRY(make_ends(&self->inputs, model->graph.n_inputs, fault));
  NP_TRY(make_ends(&self->outputs, model->graph.n_outputs, fault));
  NP_TRY(start_thread(self, fault));
  if (!order(self, JOB_COMPILE, limit_ns)) {
    return late(self, "compiling", limit_ns, fault);
  }
  end_thread(self);
  *fault = self->fault;
  return self->status;
}

enum np_status np_guard_run(struct np_guard *self, const struct np_io *inputs,
                            const struct np_io *outputs, uint64_t limit_ns,
                            struct np_fault *fault) {
  if (atomic_load(&self->state) == STATE_BUSY) {
    return late(self, "an earlier run", limit_ns, fault);
  }
  NP_TRY(take_ends(&self->inputs, inputs, 1, fault));
  NP_TRY(take_ends(&self->outputs, outputs, 0, fault));
  NP_TRY(start_thread(self, fault));
  if (!order(self, JOB_RUN, limit_ns)) {
    return late(self, "a run", limit_ns, fault);
  }
  for (uint32_t i = 0; i < self->outputs.n && self->status == NP_OK; i++) {
    if (!outputs[i].memory) {
      memcpy(outputs[i].data, self->outputs.own[i], outputs[i].n_bytes);
    }
  }
  *fault = self->fault;
  return self->status;
}

void np_guard_settle(struct np_guard *self, struct np_durations *durations) {
  if (self->guarded.engine.settle && atomic_load(&self->state) != STATE_BUSY) {
    self->guarded.engine.settle(self->compiled, durations);
  }
}

void np_guard_free(struct np_guard *self) {
  if (!self) {
    return;
  }
  (void)atomic_fetch_add(self->guarded.n_left, 1);
  uint32_t expected = STATE_BUSY;
  const pthread_t thread = self->thread;
  if (atomic_compare_exchange_strong(&self->state, &expected, STATE_LEFT)) {
    (void)pthread_detach(thread);
    return;
  }
  (void)atomic_fetch_sub(self->guarded.n_left, 1);
  end_thread(self);
  dispose(self);
}
