/* Runs segments one after the other over shared tensors. Knows neither files nor processes. */
#ifndef NP_PIPELINE_H
#define NP_PIPELINE_H

#include <stddef.h>
#include <stdint.h>

#include "engine.h"
#include "model.h"
#include "np_status.h"
#include "timing.h"

struct np_pipeline_tensor {
  uint32_t rank;
  const uint32_t *dims; /* [rank] */
  size_t n_bytes;
};

struct np_pipeline_segment {
  struct np_engine engine;
  const struct np_model *model;
  struct np_options options;
  uint32_t n_inputs;
  const struct np_port *inputs; /* [n_inputs], in the model's order */
  uint32_t n_outputs;
  const struct np_port *outputs;
};

/* The tensors and segments to run. Indices and sizes must have been checked. */
struct np_pipeline_plan {
  uint32_t n_tensors;
  struct np_pipeline_tensor *tensors;
  uint32_t n_segments;
  struct np_pipeline_segment *segments;
  int folder_fd;           /* folder for shared memory in a file; -1: none */
  enum np_shm_kind memory; /* the first kind to try; NP_SHM_UNKNOWN: the usual one */
};

struct np_pipeline;

/* Allocates the tensors, aligned to 64 bytes, and the state of the segments. Tensors of a segment
 * whose engine takes shared memory are put there, unless its options say `pointers` or there is
 * none. If the first run of a segment with shared memory fails, memory of the next kind replaces it
 * at the same addresses, and plain addresses are used once no kind is left: a driver that is not
 * allowed to map the memory only reports that the run failed. The plan must outlive the pipeline
 * and is not written. *fault must outlive it, too; every later failure is written to it.
 * NP_NO_MEMORY with its purpose in fault->why; *pipeline is NULL then. */
enum np_status np_pipeline_make(const struct np_pipeline_plan *plan, struct np_fault *fault,
                                struct np_pipeline **pipeline);

void np_pipeline_free(struct np_pipeline *pipeline); /* may be NULL */

/* Returns the pipeline's own memory of a tensor, zero at first. */
void *np_pipeline_data(const struct np_pipeline *pipeline, uint32_t tensor);

/* Lets all segments read and write a tensor at `data` from now on; NULL: in its own memory again.
 * Returns 0 if the tensor must stay where it is because it is in shared memory. */
int np_pipeline_bind(struct np_pipeline *pipeline, uint32_t tensor, void *data);

/* Returns whether a failure may mean that the driver cannot map shared memory. has_run: it has
 * already run with that memory. Errors that say that the driver is gone, full or late do not
 * count. */
int np_pipeline_blames_memory(const struct np_fault *fault, int has_run);

/* Returns whether a tensor is in shared memory. */
int np_pipeline_is_shared(const struct np_pipeline *pipeline, uint32_t tensor);

/* Compiles one segment; returns the engine's status. */
enum np_status np_pipeline_compile(struct np_pipeline *pipeline, uint32_t segment);

/* Lets a segment that is not compiled run the compiled segment `lent` of another pipeline: the same
 * model with equal options and shapes. The two must not run at the same time, nor after the lender
 * was freed. The lender must be freed first, as its engine's `unshare` requires. */
void np_pipeline_borrow(struct np_pipeline *pipeline, uint32_t segment,
                        const struct np_pipeline *lender, uint32_t lent);

/* Writes a segment's failures to *fault from now on, which must outlive the pipeline: for segments
 * that run at the same time. */
void np_pipeline_tell(struct np_pipeline *pipeline, uint32_t segment, struct np_fault *fault);

/* Asks the engines for durations from the next run on; returns 0 if none can report them. */
int np_pipeline_ask(struct np_pipeline *pipeline);

/* Fills in the facts about a compiled segment. */
void np_pipeline_describe(const struct np_pipeline *pipeline, uint32_t segment,
                          struct np_engine_facts *facts);

/* Returns the steps of a run, [n_segments]; all segments must be compiled. */
const struct np_step *np_pipeline_steps(const struct np_pipeline *pipeline);

#endif
