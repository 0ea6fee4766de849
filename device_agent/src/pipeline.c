#define _POSIX_C_SOURCE 200809L

#include "pipeline.h"

#include <stdlib.h>
#include <string.h>

#include "np_nnapi.h"
#include "shm.h"

#define TENSOR_ALIGNMENT 64u /* a cache line, and what vendor drivers like best */

/* An input or output whose layout is not the tensor's: it has a buffer of its own. */
struct reordered {
  uint32_t order;
  uint32_t index; /* of the tensor */
  const struct np_pipeline_tensor *tensor;
  void *tensor_bytes;
  void *operand_bytes;
  uint32_t dims[NP_MAX_RANK]; /* the operand's */
};

/* One segment as it runs. */
struct lane {
  struct np_engine engine;
  struct np_compiled *compiled; /* NULL until compiled */
  uint32_t n_inputs;
  uint32_t n_outputs;
  struct np_io *inputs;
  struct np_io *outputs;
  struct reordered *reordered; /* [n_reordered], inputs first */
  uint32_t n_reordered_inputs;
  uint32_t n_reordered;
  const struct np_pipeline_plan *plan;
  struct np_fault *fault; /* the pipeline's */
  int wants_shared;       /* its engine takes shared memory, and may be given some */
  int shared;
};

/* A place for the bytes of a tensor, or of a reordered port. */
struct place {
  size_t n_bytes;
  int is_shared;
  size_t offset; /* in the shared memory */
  void *made;    /* elsewhere */
};

struct np_pipeline {
  const struct np_pipeline_plan *plan;
  struct np_fault *fault;
  struct place *places; /* [n_tensors], then one for each reordered port */
  uint32_t n_places;
  struct np_shm memory;
  struct np_engine_memory *handle; /* the engines' of it, NULL: nothing is shared */
  const struct np_engine *sharer;  /* who made the handle */
  struct lane *lanes;              /* [n_segments] */
  struct np_step *steps;
};

static enum np_status no_memory(struct np_fault *fault, const char *what) {
  np_message_set(&fault->why, "no memory for %s", what);
  return NP_NO_MEMORY;
}

static uint32_t count_reordered(uint32_t n, const struct np_port *ports) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < n; i++) {
    found += ports[i].order != 0;
  }
  return found;
}

/* ---- Where bytes lie ---- */

static void *address(const struct np_pipeline *self, const struct place *place) {
  return place->is_shared ? (char *)self->memory.data + place->offset : place->made;
}

void *np_pipeline_data(const struct np_pipeline *self, uint32_t tensor) {
  void *data = address(self, &self->places[tensor]);
  return data ? data : (void *)(uintptr_t)self->plan->tensors[tensor].bytes;
}

/* Marks what lanes that want shared memory touch, and lists every port's place. */
static void list_places(struct np_pipeline *self) {
  const struct np_pipeline_plan *plan = self->plan;
  uint32_t next = plan->n_tensors;
  for (uint32_t t = 0; t < plan->n_tensors; t++) {
    self->places[t].n_bytes = plan->tensors[t].n_bytes;
  }
  for (uint32_t s = 0; s < plan->n_segments; s++) {
    const struct np_pipeline_segment *segment = &plan->segments[s];
    for (uint32_t i = 0; i < segment->n_inputs + segment->n_outputs; i++) {
      const struct np_port *port =
          i < segment->n_inputs ? &segment->inputs[i] : &segment->outputs[i - segment->n_inputs];
      struct place *place = &self->places[port->order != 0 ? next++ : port->tensor];
      place->n_bytes = plan->tensors[port->tensor].n_bytes;
      place->is_shared |= self->lanes[s].wants_shared;
    }
  }
}

/* Gives the marked places their offsets; *size is what they take. -1 where that overflows. */
static int lay_out(struct np_pipeline *self, size_t *size) {
  *size = 0;
  for (uint32_t p = 0; p < self->n_places; p++) {
    struct place *place = &self->places[p];
    if (!place->is_shared) {
      continue;
    }
    place->offset = *size;
    size_t room;
    if (__builtin_add_overflow(place->n_bytes, TENSOR_ALIGNMENT - 1, &room) ||
        __builtin_add_overflow(*size, room / TENSOR_ALIGNMENT * TENSOR_ALIGNMENT, size)) {
      return -1;
    }
  }
  return 0;
}

/* Makes shared memory for the marked places. Where there is none they are marked no longer. */
static void share(struct np_pipeline *self) {
  size_t size;
  if (self->sharer && lay_out(self, &size) == 0 &&
      np_shm_make(size, self->plan->folder_fd, &self->memory) == 0 &&
      self->sharer->share(self->sharer->ctx, self->memory.fd, self->memory.size, &self->handle) !=
          NP_OK) {
    self->handle = NULL;
    np_shm_free(&self->memory);
  }
  for (uint32_t p = 0; p < self->n_places && !self->handle; p++) {
    self->places[p].is_shared = 0;
  }
}

static enum np_status make_places(struct np_pipeline *self) {
  for (uint32_t p = 0; p < self->n_places; p++) {
    struct place *place = &self->places[p];
    const void *bytes = p < self->plan->n_tensors ? self->plan->tensors[p].bytes : NULL;
    if (place->is_shared && bytes) {
      memcpy(address(self, place), bytes, place->n_bytes);
    }
    if (place->is_shared || bytes) {
      continue;
    }
    if (posix_memalign(&place->made, TENSOR_ALIGNMENT, place->n_bytes) != 0) {
      place->made = NULL;
      np_message_set(&self->fault->why, "no memory for tensor %u of %zu bytes", p, place->n_bytes);
      return NP_NO_MEMORY;
    }
    memset(place->made, 0, place->n_bytes);
  }
  return NP_OK;
}

/* ---- Segments as they run ---- */

/* Fills a segment's list of inputs or outputs; *next is the next reordered port's place. */
static struct np_io *make_ios(const struct np_pipeline *self, struct lane *lane, uint32_t n,
                              const struct np_port *ports, uint32_t *next) {
  struct np_io *ios = calloc(n + (size_t)1, sizeof *ios);
  for (uint32_t i = 0; ios && i < n; i++) {
    const struct np_port *port = &ports[i];
    const struct np_pipeline_tensor *tensor = &self->plan->tensors[port->tensor];
    const struct place *place = &self->places[port->order != 0 ? *next : port->tensor];
    struct np_io *io = &ios[i];
    *io = (struct np_io){.n_bytes = tensor->n_bytes, .rank = tensor->rank, .dims = tensor->dims};
    io->data = port->order != 0 ? address(self, place) : np_pipeline_data(self, port->tensor);
    if (lane->wants_shared && self->handle) {
      io->memory = self->handle;
      io->offset = place->offset;
      lane->shared = 1;
    }
    if (port->order == 0) {
      continue;
    }
    struct reordered *reordered = &lane->reordered[lane->n_reordered++];
    *reordered = (struct reordered){.order = port->order,
                                    .index = port->tensor,
                                    .tensor = tensor,
                                    .tensor_bytes = np_pipeline_data(self, port->tensor),
                                    .operand_bytes = io->data};
    np_order_dims(port->order, tensor->rank, tensor->dims, reordered->dims);
    io->dims = reordered->dims;
    (*next)++;
  }
  return ios;
}

/* Changes the layout of inputs before a run, or of outputs after it. */
static void reorder(const struct lane *lane, uint32_t first, uint32_t end) {
  for (uint32_t i = first; i < end; i++) {
    const struct reordered *it = &lane->reordered[i];
    const struct np_pipeline_tensor *tensor = it->tensor;
    const size_t element_bytes = np_type_bytes(tensor->type);
    if (i < lane->n_reordered_inputs) {
      np_order_to_operand(it->order, tensor->rank, tensor->dims, element_bytes, it->tensor_bytes,
                          it->operand_bytes);
    } else {
      np_order_from_operand(it->order, tensor->rank, tensor->dims, element_bytes, it->operand_bytes,
                            it->tensor_bytes);
    }
    if (lane->plan->moved) {
      lane->plan->moved(lane->plan->moved_ctx, tensor->type, tensor->n_bytes);
    }
  }
}

/* Android's runtime says only when it uses memory that it cannot map it: from then on addresses do.
 */
static int cannot_map(struct lane *lane) {
  if (!lane->shared || !lane->fault->has_code || lane->fault->code != ANEURALNETWORKS_UNMAPPABLE) {
    return 0;
  }
  for (uint32_t i = 0; i < lane->n_inputs; i++) {
    lane->inputs[i].memory = NULL;
  }
  for (uint32_t i = 0; i < lane->n_outputs; i++) {
    lane->outputs[i].memory = NULL;
  }
  *lane->fault = (struct np_fault){.has_code = 0};
  lane->shared = 0;
  return 1;
}

static enum np_status run_lane(void *ctx) {
  struct lane *lane = ctx;
  reorder(lane, 0, lane->n_reordered_inputs);
  enum np_status status =
      lane->engine.run(lane->compiled, lane->inputs, lane->outputs, lane->fault);
  if (status != NP_OK && cannot_map(lane)) {
    status = lane->engine.run(lane->compiled, lane->inputs, lane->outputs, lane->fault);
  }
  if (status == NP_OK) {
    reorder(lane, lane->n_reordered_inputs, lane->n_reordered);
  }
  return status;
}

static void settle_lane(void *ctx, struct np_durations *durations) {
  struct lane *lane = ctx;
  lane->engine.settle(lane->compiled, durations);
}

/* What each lane is before anything has a place. */
static enum np_status begin_lanes(struct np_pipeline *self) {
  for (uint32_t s = 0; s < self->plan->n_segments; s++) {
    const struct np_pipeline_segment *segment = &self->plan->segments[s];
    struct lane *lane = &self->lanes[s];
    lane->plan = self->plan;
    lane->fault = self->fault;
    lane->engine = segment->engine;
    lane->n_inputs = segment->n_inputs;
    lane->n_outputs = segment->n_outputs;
    lane->wants_shared = segment->engine.share && !segment->options.pointers;
    if (lane->wants_shared && !self->sharer) {
      self->sharer = &segment->engine;
    }
    /* One memory is one library's. */
    if (lane->wants_shared && self->sharer->ctx != segment->engine.ctx) {
      lane->wants_shared = 0;
    }
    lane->n_reordered_inputs = count_reordered(segment->n_inputs, segment->inputs);
    const uint32_t n =
        lane->n_reordered_inputs + count_reordered(segment->n_outputs, segment->outputs);
    lane->reordered = calloc(n + (size_t)1, sizeof *lane->reordered);
    if (!lane->reordered) {
      return no_memory(self->fault, "the segments");
    }
    self->n_places += n;
  }
  self->places = calloc(self->n_places + (size_t)1, sizeof *self->places);
  return self->places ? NP_OK : no_memory(self->fault, "the tensors");
}

static enum np_status finish_lanes(struct np_pipeline *self) {
  uint32_t next = self->plan->n_tensors;
  for (uint32_t s = 0; s < self->plan->n_segments; s++) {
    const struct np_pipeline_segment *segment = &self->plan->segments[s];
    struct lane *lane = &self->lanes[s];
    lane->inputs = make_ios(self, lane, segment->n_inputs, segment->inputs, &next);
    lane->outputs = make_ios(self, lane, segment->n_outputs, segment->outputs, &next);
    if (!lane->inputs || !lane->outputs) {
      return no_memory(self->fault, "the segments");
    }
    self->steps[s] = (struct np_step){
        .run = run_lane, .settle = lane->engine.settle ? settle_lane : NULL, .ctx = lane};
  }
  return NP_OK;
}

/* Points the ports that are this tensor at some bytes. */
static void bind_ports(struct lane *lane, uint32_t n, const struct np_port *ports,
                       struct np_io *ios, uint32_t tensor, void *data) {
  for (uint32_t i = 0; i < n; i++) {
    if (ports[i].tensor == tensor && ports[i].order == 0) {
      ios[i].data = data;
    }
  }
  for (uint32_t i = 0; i < lane->n_reordered; i++) {
    if (lane->reordered[i].index == tensor) {
      lane->reordered[i].tensor_bytes = data;
    }
  }
}

int np_pipeline_bind(struct np_pipeline *self, uint32_t tensor, void *data) {
  if (self->places[tensor].is_shared) {
    return data == NULL;
  }
  if (!data) {
    data = np_pipeline_data(self, tensor);
  }
  for (uint32_t s = 0; s < self->plan->n_segments; s++) {
    const struct np_pipeline_segment *segment = &self->plan->segments[s];
    struct lane *lane = &self->lanes[s];
    bind_ports(lane, segment->n_inputs, segment->inputs, lane->inputs, tensor, data);
    bind_ports(lane, segment->n_outputs, segment->outputs, lane->outputs, tensor, data);
  }
  return 1;
}

int np_pipeline_is_shared(const struct np_pipeline *self, uint32_t tensor) {
  return self->places[tensor].is_shared;
}

/* ---- The whole ---- */

enum np_status np_pipeline_make(const struct np_pipeline_plan *plan, struct np_fault *fault,
                                struct np_pipeline **pipeline) {
  *pipeline = NULL;
  struct np_pipeline *self = calloc(1, sizeof *self);
  if (!self) {
    return no_memory(fault, "the segments");
  }
  self->plan = plan;
  self->fault = fault;
  self->n_places = plan->n_tensors;
  self->lanes = calloc(plan->n_segments + (size_t)1, sizeof *self->lanes);
  self->steps = calloc(plan->n_segments + (size_t)1, sizeof *self->steps);
  enum np_status status =
      self->lanes && self->steps ? begin_lanes(self) : no_memory(fault, "the segments");
  if (status == NP_OK) {
    list_places(self);
    share(self);
    status = make_places(self);
  }
  if (status == NP_OK) {
    status = finish_lanes(self);
  }
  if (status != NP_OK) {
    np_pipeline_free(self);
    return status;
  }
  *pipeline = self;
  return NP_OK;
}

static void free_lanes(struct np_pipeline *self) {
  for (uint32_t s = 0; self->lanes && s < self->plan->n_segments; s++) {
    struct lane *lane = &self->lanes[s];
    if (lane->compiled) {
      lane->engine.free(lane->compiled);
    }
    free(lane->inputs);
    free(lane->outputs);
    free(lane->reordered);
  }
  free(self->lanes);
  free(self->steps);
}

void np_pipeline_free(struct np_pipeline *self) {
  if (!self) {
    return;
  }
  free_lanes(self);
  if (self->handle) {
    self->sharer->unshare(self->sharer->ctx, self->handle);
  }
  np_shm_free(&self->memory);
  for (uint32_t p = 0; self->places && p < self->n_places; p++) {
    free(self->places[p].made);
  }
  free(self->places);
  free(self);
}

enum np_status np_pipeline_compile(struct np_pipeline *self, uint32_t segment) {
  const struct np_pipeline_segment *described = &self->plan->segments[segment];
  struct lane *lane = &self->lanes[segment];
  return lane->engine.compile(lane->engine.ctx, described->model, &described->options,
                              &lane->compiled, lane->fault);
}

void np_pipeline_replace(struct np_pipeline *self, uint32_t segment, struct np_engine engine) {
  struct lane *lane = &self->lanes[segment];
  lane->engine = engine;
  lane->shared = 0;
  self->steps[segment].settle = engine.settle ? settle_lane : NULL;
}

void np_pipeline_describe(const struct np_pipeline *self, uint32_t segment,
                          struct np_engine_facts *facts) {
  const struct lane *lane = &self->lanes[segment];
  *facts = (struct np_engine_facts){.shared = 0};
  if (lane->engine.describe && lane->compiled) {
    lane->engine.describe(lane->compiled, facts);
  }
  facts->shared = lane->shared;
}

const struct np_step *np_pipeline_steps(const struct np_pipeline *self) { return self->steps; }
