/* Segments that run one after the other over common tensors. Knows neither files nor processes. */
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
  const struct np_port *inputs; /* [n_inputs], in the order of the model's */
  uint32_t n_outputs;
  const struct np_port *outputs;
};

/* What is to run. Indices and sizes are taken as checked. */
struct np_pipeline_plan {
  uint32_t n_tensors;
  struct np_pipeline_tensor *tensors;
  uint32_t n_segments;
  struct np_pipeline_segment *segments;
  int folder_fd;           /* where shared memory may lie as a file; -1: nowhere */
  enum np_shm_kind memory; /* the first kind to try; NP_SHM_UNKNOWN: the usual one */
};

struct np_pipeline;

/* Makes the tensors' memory, aligned to 64 bytes, and what the segments run with; tensors of a
 * segment whose engine takes shared memory lie there, unless its options say `pointers` or there is
 * none. Memory of the next kind takes its place, at the same addresses, where the first run of a
 * segment with it fails, and addresses alone where none is left: a driver may be kept from mapping
 * it, and says no more than that the run failed. The plan must outlive the pipeline and is not
 * written; so must *fault, which every later failure is told in. NP_NO_MEMORY with what it was for
 * in fault->why; *pipeline is NULL then. */
enum np_status np_pipeline_make(const struct np_pipeline_plan *plan, struct np_fault *fault,
                                struct np_pipeline **pipeline);

void np_pipeline_free(struct np_pipeline *pipeline); /* may be NULL */

/* The pipeline's own memory of a tensor, all zero at first. */
void *np_pipeline_data(const struct np_pipeline *pipeline, uint32_t tensor);

/* Lets all segments read and write a tensor at `data` from now on, NULL: in its own
 * memory again. 0 where it cannot, for it lies in shared memory: then its own holds it still. */
int np_pipeline_bind(struct np_pipeline *pipeline, uint32_t tensor, void *data);

/* Whether a failure may be that the driver cannot map shared memory, with which it has run or not:
 * what the runtime says of a driver that is gone, full or late is something else. */
int np_pipeline_blames_memory(const struct np_fault *fault, int has_run);

/* Whether a tensor lies in shared memory. */
int np_pipeline_is_shared(const struct np_pipeline *pipeline, uint32_t tensor);

/* Compiles one segment; the engine's status. */
enum np_status np_pipeline_compile(struct np_pipeline *pipeline, uint32_t segment);

/* Lets a segment that is not compiled run what segment `lent` of another pipeline is compiled to:
 * the same model, with options and shapes alike. The two may not run at the same time, and neither
 * after the lender was freed; the lender is to be freed first, as its engine's `unshare` wants it.
 */
void np_pipeline_borrow(struct np_pipeline *pipeline, uint32_t segment,
                        const struct np_pipeline *lender, uint32_t lent);

/* Tells a segment's failures of now on in *fault, which must outlive the pipeline: for segments
 * that run at once. */
void np_pipeline_tell(struct np_pipeline *pipeline, uint32_t segment, struct np_fault *fault);

/* Asks the engines for durations from the next run on; 0 where none can tell them. */
int np_pipeline_ask(struct np_pipeline *pipeline);

/* What became of a segment that is compiled. */
void np_pipeline_describe(const struct np_pipeline *pipeline, uint32_t segment,
                          struct np_engine_facts *facts);

/* The steps of a run, [n_segments], of a pipeline whose segments are all compiled. */
const struct np_step *np_pipeline_steps(const struct np_pipeline *pipeline);

#endif
