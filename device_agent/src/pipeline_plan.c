#include <stdlib.h>

#include "pipeline.h"

enum np_status np_pipeline_plan_make(uint32_t n_tensors, uint32_t n_segments,
                                     struct np_pipeline_plan *plan) {
  *plan =
      (struct np_pipeline_plan){.n_tensors = n_tensors, .n_segments = n_segments, .folder_fd = -1};
  plan->tensors = calloc(n_tensors + (size_t)1, sizeof *plan->tensors);
  plan->segments = calloc(n_segments + (size_t)1, sizeof *plan->segments);
  return plan->tensors && plan->segments ? NP_OK : NP_NO_MEMORY;
}

enum np_status np_pipeline_plan_bindings(struct np_pipeline_segment *segment, uint32_t n_inputs,
                                         uint32_t n_outputs) {
  segment->n_inputs = n_inputs;
  segment->n_outputs = n_outputs;
  segment->inputs = calloc(n_inputs + (size_t)1, sizeof *segment->inputs);
  segment->outputs = calloc(n_outputs + (size_t)1, sizeof *segment->outputs);
  return segment->inputs && segment->outputs ? NP_OK : NP_NO_MEMORY;
}

void np_pipeline_plan_free(struct np_pipeline_plan *plan) {
  for (uint32_t s = 0; plan->segments && s < plan->n_segments; s++) {
    free(plan->segments[s].inputs);
    free(plan->segments[s].outputs);
  }
  free(plan->tensors);
  free(plan->segments);
  *plan = (struct np_pipeline_plan){.n_tensors = 0};
}
