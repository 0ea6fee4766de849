#define _POSIX_C_SOURCE 200809L

#include "pipeline_memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Addresses of tensors ---- */

static void *address(const struct np_pipeline *self, const struct buffer_slot *slot) {
  return slot->is_shared ? (char *)self->memory.data + slot->offset : slot->own;
}

void *np_pipeline_data(const struct np_pipeline *self, uint32_t tensor) {
  return address(self, &self->slots[tensor]);
}

static enum np_status allocate_slots(struct np_pipeline *self) {
  for (uint32_t p = 0; p < self->plan->n_tensors; p++) {
    struct buffer_slot *slot = &self->slots[p];
    if (slot->is_shared) {
      continue;
    }
    if (posix_memalign(&slot->own, TENSOR_ALIGNMENT, slot->n_bytes) != 0) {
      slot->own = NULL;
      return np_error(NP_NO_MEMORY, &self->fault->why, "no memory for tensor %u of %zu bytes", p,
                      slot->n_bytes);
    }
    memset(slot->own, 0, slot->n_bytes);
  }
  return NP_OK;
}

/* ---- Segments as they run ---- */

/* Fills a segment's list of inputs or outputs. */
static struct np_io *make_ios(const struct np_pipeline *self, struct segment_run *run, uint32_t n,
                              const struct np_port *ports) {
  struct np_io *ios = calloc(n + (size_t)1, sizeof *ios);
  for (uint32_t i = 0; ios && i < n; i++) {
    const uint32_t t = ports[i].tensor;
    const struct np_pipeline_tensor *tensor = &self->plan->tensors[t];
    ios[i] = (struct np_io){.n_bytes = tensor->n_bytes,
                            .rank = tensor->rank,
                            .dims = tensor->dims,
                            .data = np_pipeline_data(self, t)};
    if (run->wants_shared && self->handle) {
      ios[i].memory = self->handle;
      ios[i].offset = self->slots[t].offset;
      run->shared = 1;
    }
  }
  return ios;
}

static enum np_status run_segment(void *ctx) {
  struct segment_run *run = ctx;
  int was_late = 0;
  enum np_status status = run->engine.run(run->compiled, run->inputs, run->outputs, run->fault);
  while (status != NP_OK && np_pipeline_hand_over_anew(run, status, &was_late)) {
    *run->fault = (struct np_fault){.has_code = 0};
    status = run->engine.run(run->compiled, run->inputs, run->outputs, run->fault);
  }
  run->has_run |= status == NP_OK;
  return status;
}

static void settle_segment(void *ctx, struct np_durations *durations) {
  struct segment_run *run = ctx;
  run->engine.settle(run->compiled, durations);
}

/* Initialises the runs, before slots exist. */
static enum np_status begin_runs(struct np_pipeline *self) {
  for (uint32_t s = 0; s < self->plan->n_segments; s++) {
    const struct np_pipeline_segment *segment = &self->plan->segments[s];
    struct segment_run *run = &self->runs[s];
    run->pipeline = self;
    run->fault = self->fault;
    run->engine = segment->engine;
    run->n_inputs = segment->n_inputs;
    run->n_outputs = segment->n_outputs;
    run->wants_shared = segment->engine.share && !segment->options.pointers;
    if (run->wants_shared && !self->sharer) {
      self->sharer = &segment->engine;
    }
    /* A memory belongs to one library. */
    if (run->wants_shared && self->sharer->ctx != segment->engine.ctx) {
      run->wants_shared = 0;
    }
  }
  self->slots = calloc(self->plan->n_tensors + (size_t)1, sizeof *self->slots);
  return self->slots ? NP_OK
                     : np_error(NP_NO_MEMORY, &self->fault->why, "no memory for the tensors");
}

static enum np_status finish_runs(struct np_pipeline *self) {
  for (uint32_t s = 0; s < self->plan->n_segments; s++) {
    const struct np_pipeline_segment *segment = &self->plan->segments[s];
    struct segment_run *run = &self->runs[s];
    run->inputs = make_ios(self, run, segment->n_inputs, segment->inputs);
    run->outputs = make_ios(self, run, segment->n_outputs, segment->outputs);
    NP_REQUIRE(run->inputs && run->outputs, NP_NO_MEMORY, &self->fault->why,
               "no memory for the segments");
    self->steps[s] = (struct np_step){
        .run = run_segment, .settle = run->engine.settle ? settle_segment : NULL, .ctx = run};
  }
  return NP_OK;
}

/* Points all ports with this tensor at `data`. */
static void bind_ports(uint32_t n, const struct np_port *ports, struct np_io *ios, uint32_t tensor,
                       void *data) {
  for (uint32_t i = 0; i < n; i++) {
    if (ports[i].tensor == tensor) {
      ios[i].data = data;
    }
  }
}

int np_pipeline_bind(struct np_pipeline *self, uint32_t tensor, void *data) {
  if (self->slots[tensor].is_shared) {
    return data == NULL;
  }
  if (!data) {
    data = np_pipeline_data(self, tensor);
  }
  for (uint32_t s = 0; s < self->plan->n_segments; s++) {
    const struct np_pipeline_segment *segment = &self->plan->segments[s];
    struct segment_run *run = &self->runs[s];
    bind_ports(segment->n_inputs, segment->inputs, run->inputs, tensor, data);
    bind_ports(segment->n_outputs, segment->outputs, run->outputs, tensor, data);
  }
  return 1;
}

int np_pipeline_is_shared(const struct np_pipeline *self, uint32_t tensor) {
  return self->slots[tensor].is_shared;
}

/* ---- The whole ---- */

enum np_status np_pipeline_make(const struct np_pipeline_plan *plan, struct np_fault *fault,
                                struct np_pipeline **pipeline) {
  *pipeline = NULL;
  struct np_pipeline *self = calloc(1, sizeof *self);
  NP_REQUIRE(self, NP_NO_MEMORY, &fault->why, "no memory for the segments");
  self->plan = plan;
  self->fault = fault;
  self->folder_fd = plan->folder_fd < 0 ? -1 : fcntl(plan->folder_fd, F_DUPFD_CLOEXEC, 0);
  self->runs = calloc(plan->n_segments + (size_t)1, sizeof *self->runs);
  self->steps = calloc(plan->n_segments + (size_t)1, sizeof *self->steps);
  enum np_status status = self->runs && self->steps
                              ? begin_runs(self)
                              : np_error(NP_NO_MEMORY, &fault->why, "no memory for the segments");
  if (status == NP_OK) {
    np_pipeline_list_slots(self);
    np_pipeline_share(self);
    status = allocate_slots(self);
  }
  NP_THEN(status, finish_runs(self));
  if (status != NP_OK) {
    np_pipeline_free(self);
    return status;
  }
  *pipeline = self;
  return NP_OK;
}

static void free_runs(struct np_pipeline *self) {
  for (uint32_t s = 0; self->runs && s < self->plan->n_segments; s++) {
    struct segment_run *run = &self->runs[s];
    if (run->compiled && !run->is_borrowed) {
      run->engine.free(run->compiled);
    }
    free(run->inputs);
    free(run->outputs);
  }
  free(self->runs);
  free(self->steps);
}

void np_pipeline_free(struct np_pipeline *self) {
  if (!self) {
    return;
  }
  free_runs(self);
  if (self->handle) {
    self->sharer->unshare(self->sharer->ctx, self->handle);
  }
  np_shm_free(&self->memory);
  (void)close(self->folder_fd); /* -1: none */
  for (uint32_t p = 0; self->slots && p < self->plan->n_tensors; p++) {
    free(self->slots[p].own);
  }
  free(self->slots);
  free(self);
}

enum np_status np_pipeline_compile(struct np_pipeline *self, uint32_t segment) {
  const struct np_pipeline_segment *described = &self->plan->segments[segment];
  struct segment_run *run = &self->runs[segment];
  return run->engine.compile(run->engine.ctx, described->model, &described->options, &run->compiled,
                             run->fault);
}

void np_pipeline_borrow(struct np_pipeline *self, uint32_t segment,
                        const struct np_pipeline *lender, uint32_t lent) {
  const struct segment_run *from = &lender->runs[lent];
  self->runs[segment].compiled = from->compiled;
  self->runs[segment].is_borrowed = 1;
}

void np_pipeline_tell(struct np_pipeline *self, uint32_t segment, struct np_fault *fault) {
  self->runs[segment].fault = fault;
}

int np_pipeline_ask(struct np_pipeline *self) {
  int can_tell = 0;
  for (uint32_t s = 0; s < self->plan->n_segments; s++) {
    const struct segment_run *run = &self->runs[s];
    can_tell |= run->engine.ask && run->engine.ask(run->compiled);
  }
  return can_tell;
}

void np_pipeline_describe(const struct np_pipeline *self, uint32_t segment,
                          struct np_engine_facts *facts) {
  const struct segment_run *run = &self->runs[segment];
  *facts = (struct np_engine_facts){.memory = NP_SHM_UNKNOWN};
  if (run->engine.describe && run->compiled) {
    run->engine.describe(run->compiled, facts);
  }
  facts->memory = run->shared ? self->memory.kind : NP_SHM_POINTERS;
}

const struct np_step *np_pipeline_steps(const struct np_pipeline *self) { return self->steps; }
