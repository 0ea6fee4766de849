/* Reuse of executions, from feature level 5 on: possible while inputs and outputs keep their
 * addresses, since an execution cannot be changed once it has run. */
#include <stdlib.h>
#include <string.h>

#include "nnapi_compiled.h"

/* One input or output as it was set. */
struct np_nnapi_place {
  const void *data;
  size_t n_bytes;
  const struct np_engine_memory *memory;
  size_t offset;
  uint32_t rank;
  uint32_t dims[NP_MAX_RANK];
};

static struct np_nnapi_place place_of(const struct np_io *io) {
  struct np_nnapi_place place = {.data = io->memory ? NULL : io->data,
                                 .n_bytes = io->n_bytes,
                                 .memory = io->memory,
                                 .offset = io->offset,
                                 .rank = io->rank};
  memcpy(place.dims, io->dims, io->rank * sizeof *io->dims);
  return place;
}

static int is_at(const struct np_nnapi_place *place, const struct np_io *io) {
  return io->rank <= NP_MAX_RANK && place->data == (io->memory ? NULL : io->data) &&
         place->n_bytes == io->n_bytes && place->memory == io->memory &&
         place->offset == io->offset && place->rank == io->rank &&
         memcmp(place->dims, io->dims, io->rank * sizeof *io->dims) == 0;
}

int np_nnapi_runs_again(const struct np_compiled *self, const struct np_io *inputs,
                        const struct np_io *outputs) {
  const struct np_graph *graph = &self->source->graph;
  if (!self->execution || !self->places ||
      self->n_unshared != atomic_load(&self->nnapi->n_unshared)) {
    return 0;
  }
  for (uint32_t i = 0; i < graph->n_inputs; i++) {
    if (!is_at(&self->places[i], &inputs[i])) {
      return 0;
    }
  }
  for (uint32_t i = 0; i < graph->n_outputs; i++) {
    if (!is_at(&self->places[graph->n_inputs + i], &outputs[i])) {
      return 0;
    }
  }
  return 1;
}

void np_nnapi_never_reuse(struct np_compiled *self) {
  free(self->places);
  self->places = NULL;
  self->reuse = NP_REUSE_NEVER;
}

void np_nnapi_make_reusable(struct np_compiled *self, const struct np_io *inputs,
                            const struct np_io *outputs) {
  const struct np_graph *graph = &self->source->graph;
  const size_t n = (size_t)graph->n_inputs + graph->n_outputs;
  if (self->reuse == NP_REUSE_NEVER) {
    return;
  }
  if (!self->places) {
    self->places = calloc(n + 1, sizeof *self->places);
  }
  if (!self->places || self->table->ANeuralNetworksExecution_setReusable(self->execution, true) !=
                           ANEURALNETWORKS_NO_ERROR) {
    np_nnapi_never_reuse(self); /* optional */
    return;
  }
  for (uint32_t i = 0; i < graph->n_inputs; i++) {
    self->places[i] = place_of(&inputs[i]);
  }
  for (uint32_t i = 0; i < graph->n_outputs; i++) {
    self->places[graph->n_inputs + i] = place_of(&outputs[i]);
  }
  self->n_unshared = atomic_load(&self->nnapi->n_unshared);
}
