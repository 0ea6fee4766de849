/* What a pipeline consists of, and which memory its tensors have: for pipeline*.c only. */
#ifndef NP_PIPELINE_MEMORY_H
#define NP_PIPELINE_MEMORY_H

#include "pipeline.h"
#include "shm.h"

#define TENSOR_ALIGNMENT 64u /* a cache line, and what vendor drivers like best */

/* One segment as it runs. */
struct segment_run {
  struct np_pipeline *pipeline;
  struct np_engine engine;
  struct np_compiled *compiled; /* NULL until compiled */
  int is_borrowed;              /* it is another pipeline's */
  uint32_t n_inputs;
  uint32_t n_outputs;
  struct np_io *inputs;
  struct np_io *outputs;
  struct np_fault *fault; /* the pipeline's */
  int wants_shared;       /* its engine takes shared memory, and may be given some */
  int shared;
  int has_run; /* with what it is handed now */
};

/* Room for the bytes of a tensor. */
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
  int folder_fd;                   /* our own, of the plan's; -1: none */
  struct np_engine_memory *handle; /* the engines' of it, NULL: nothing is shared */
  const struct np_engine *sharer;  /* who made the handle */
  struct segment_run *runs;        /* [n_segments] */
  struct np_step *steps;
};

/* Marks the tensors that segments which want shared memory touch. */
void np_pipeline_list_slots(struct np_pipeline *self);

/* Makes shared memory for the marked slots. Where there is none they are marked no longer. */
void np_pipeline_share(struct np_pipeline *self);

/* Hands over what a failed run may want in place of what it had; 0 where that would change nothing.
 * *was_late, 0 at first, is that one of the run's tries was given up. */
int np_pipeline_hand_over_anew(struct segment_run *run, enum np_status status, int *was_late);

#endif
