/* The caller's buffers of a run. */
#include <string.h>

#include "executable.h"

static nnp_status check(uint32_t n, const struct np_bundle_end *ends, const void *const *buffers,
                        const char *what, nnp_error *error) {
  for (uint32_t i = 0; buffers && i < n; i++) {
    const size_t element_bytes = np_type_bytes(ends[i].known.type);
    NNP_REQUIRE((uintptr_t)buffers[i] % element_bytes == 0, error, NNP_BAD_ARGUMENT,
                "%s %u (%s) must stand at a multiple of %zu bytes", what, i, ends[i].known.name,
                element_bytes);
  }
  return NNP_OK;
}

nnp_status np_executable_check(const struct np_bundle *bundle, const void *const *inputs,
                               void *const *outputs, nnp_error *error) {
  const nnp_status status = check(bundle->n_inputs, bundle->inputs, inputs, "input", error);
  return status == NNP_OK ? check(bundle->n_outputs, bundle->outputs, (const void *const *)outputs,
                                  "output", error)
                          : status;
}

void np_executable_take(const struct np_bundle *bundle, struct np_pipeline *pipeline,
                        const void *const *inputs) {
  for (uint32_t i = 0; i < bundle->n_inputs; i++) {
    const struct np_bundle_end *end = &bundle->inputs[i];
    const void *from = inputs ? inputs[i] : NULL;
    if (!np_pipeline_bind(pipeline, end->tensor, (void *)(uintptr_t)from)) {
      memcpy(np_pipeline_data(pipeline, end->tensor), from, end->known.n_bytes);
    }
  }
}

void np_executable_place(const struct np_bundle *bundle, struct np_pipeline *pipeline,
                         void *const *outputs) {
  for (uint32_t i = 0; i < bundle->n_outputs; i++) {
    (void)np_pipeline_bind(pipeline, bundle->outputs[i].tensor, outputs ? outputs[i] : NULL);
  }
}

void np_executable_give(const struct np_bundle *bundle, const struct np_pipeline *pipeline,
                        void *const *outputs) {
  for (uint32_t i = 0; outputs && i < bundle->n_outputs; i++) {
    const struct np_bundle_end *end = &bundle->outputs[i];
    if (outputs[i] && np_pipeline_is_shared(pipeline, end->tensor)) {
      memcpy(outputs[i], np_pipeline_data(pipeline, end->tensor), end->known.n_bytes);
    }
  }
}
