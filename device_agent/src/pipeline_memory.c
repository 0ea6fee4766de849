#include "pipeline_memory.h"

#include "np_nnapi.h"

void np_pipeline_list_slots(struct np_pipeline *self) {
  const struct np_pipeline_plan *plan = self->plan;
  for (uint32_t t = 0; t < plan->n_tensors; t++) {
    self->slots[t].n_bytes = plan->tensors[t].n_bytes;
  }
  for (uint32_t s = 0; s < plan->n_segments; s++) {
    const struct np_pipeline_segment *segment = &plan->segments[s];
    for (uint32_t i = 0; i < segment->n_inputs + segment->n_outputs; i++) {
      const struct np_port *port =
          i < segment->n_inputs ? &segment->inputs[i] : &segment->outputs[i - segment->n_inputs];
      self->slots[port->tensor].is_shared |= self->runs[s].wants_shared;
    }
  }
}

/* Assigns offsets to the marked slots; *size is their total. Returns -1 on overflow. */
static int lay_out(struct np_pipeline *self, size_t *size) {
  *size = 0;
  for (uint32_t p = 0; p < self->plan->n_tensors; p++) {
    struct buffer_slot *slot = &self->slots[p];
    if (!slot->is_shared) {
      continue;
    }
    slot->offset = *size;
    size_t room;
    if (__builtin_add_overflow(slot->n_bytes, TENSOR_ALIGNMENT - 1, &room) ||
        __builtin_add_overflow(*size, room / TENSOR_ALIGNMENT * TENSOR_ALIGNMENT, size)) {
      return -1;
    }
  }
  return 0;
}

void np_pipeline_share(struct np_pipeline *self) {
  size_t size;
  if (self->sharer && lay_out(self, &size) == 0 &&
      np_shm_make(size, self->folder_fd, self->plan->memory, &self->memory) == 0 &&
      self->sharer->share(self->sharer->ctx, self->memory.fd, self->memory.size, &self->handle) !=
          NP_OK) {
    self->handle = NULL;
    np_shm_free(&self->memory);
  }
  for (uint32_t p = 0; p < self->plan->n_tensors && !self->handle; p++) {
    self->slots[p].is_shared = 0;
  }
}

/* Lets a segment pass addresses from now on. */
static void use_addresses(struct segment_run *run) {
  for (uint32_t i = 0; i < run->n_inputs; i++) {
    run->inputs[i].memory = NULL;
  }
  for (uint32_t i = 0; i < run->n_outputs; i++) {
    run->outputs[i].memory = NULL;
  }
  run->shared = 0;
}

int np_pipeline_blames_memory(const struct np_fault *fault, int has_run) {
  return fault->has_code && (fault->code == ANEURALNETWORKS_UNMAPPABLE ||
                             (!has_run && (fault->code == ANEURALNETWORKS_OP_FAILED ||
                                           fault->code == ANEURALNETWORKS_BAD_DATA)));
}

/* Returns whether a segment has run successfully with the present memory. */
static int memory_works(const struct np_pipeline *self) {
  for (uint32_t s = 0; s < self->plan->n_segments; s++) {
    if (self->runs[s].shared && self->runs[s].has_run) {
      return 1;
    }
  }
  return 0;
}

static void use_handle(const struct np_engine_memory *handle, uint32_t n, struct np_io *ios) {
  for (uint32_t i = 0; i < n; i++) {
    ios[i].memory = ios[i].memory ? handle : NULL;
  }
}

/* Replaces the shared memory, with which no segment may have run successfully, with the next kind.
 * Returns 0 if the engine accepts no other. */
static int use_next_memory(struct np_pipeline *self) {
  struct np_engine_memory *handle = NULL;
  do {
    if (memory_works(self) || np_shm_next(&self->memory, self->folder_fd) != 0) {
      return 0;
    }
  } while (self->sharer->share(self->sharer->ctx, self->memory.fd, self->memory.size, &handle) !=
           NP_OK);
  self->sharer->unshare(self->sharer->ctx, self->handle);
  self->handle = handle;
  for (uint32_t s = 0; s < self->plan->n_segments; s++) {
    use_handle(handle, self->runs[s].n_inputs, self->runs[s].inputs);
    use_handle(handle, self->runs[s].n_outputs, self->runs[s].outputs);
  }
  return 1;
}

/* Leaves the shared memory to an abandoned run, which may still access it: its contents are copied
 * to private memory at the same addresses. Returns 0 if memory is short. */
static int leave_shared(struct np_pipeline *self) {
  if (self->handle && np_shm_leave(&self->memory) != 0) {
    return 0;
  }
  self->handle = NULL;
  for (uint32_t s = 0; s < self->plan->n_segments; s++) {
    use_addresses(&self->runs[s]);
  }
  return 1;
}

int np_pipeline_hand_over_anew(struct segment_run *run, enum np_status status, int *was_late) {
  if (run->shared && np_pipeline_blames_memory(run->fault, run->has_run)) {
    if (run->has_run || !use_next_memory(run->pipeline)) {
      use_addresses(run);
    }
    return 1;
  }
  if (status != NP_DEADLINE || !run->engine.lingers || *was_late) {
    return 0;
  }
  *was_late = 1;
  return leave_shared(run->pipeline);
}
