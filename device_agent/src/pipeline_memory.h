/* The parts of a pipeline and the memory of its tensors: for pipeline*.c only. */
#ifndef NP_PIPELINE_MEMORY_H
#define NP_PIPELINE_MEMORY_H

#include "pipeline.h"
#include "shm.h"

#define TENSOR_ALIGNMENT 64u /* a cache line, which vendor drivers prefer */

/* One segment as it runs. */
struct segment_run {
  struct np_pipeline *pipeline;
  struct np_engine engine;
  struct np_compiled *compiled; /* NULL until compiled */
  int is_borrowed;              /* it belongs to another pipeline */
  uint32_t n_inputs;
  uint32_t n_outputs;
  struct np_io *inputs;
  struct np_io *outputs;
  struct np_fault *fault; /* the pipeline's */
  int wants_shared;       /* its engine accepts shared memory, and its options allow it */
  int shared;
  int has_run; /* with its present memory */
};

/* Memory of a tensor. */
struct buffer_slot {
  size_t n_bytes;
  int is_shared;
  size_t offset; /* in the shared memory */
  void *own;     /* elsewhere */
};

struct np_pipeline {
  const struct np_pipeline_plan *plan;
  struct np_fault *fault;
  struct buffer_slot *slots; /* [n_tensors] */
  struct np_shm memory;
  int folder_fd;                   /* our own duplicate of the plan's; -1: none */
  struct np_engine_memory *handle; /* the engines' handle of `memory`, NULL: nothing is shared */
  const struct np_engine *sharer;  /* the engine that made the handle */
  struct segment_run *runs;        /* [n_segments] */
  struct np_step *steps;
};

/* Marks the tensors used by segments that want shared memory. */
void np_pipeline_list_slots(struct np_pipeline *self);

/* Makes shared memory for the marked slots; unmarks them if there is none. */
void np_pipeline_share(struct np_pipeline *self);

/* Gives a failed run the next kind of memory to try; returns 0 if there is nothing else to try.
 * *was_late, 0 at first, is set if one of the run's tries was abandoned. */
int np_pipeline_hand_over_anew(struct segment_run *run, enum np_status status, int *was_late);

#endif
