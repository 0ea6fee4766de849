#include "written.h"

#include <stdlib.h>
#include <string.h>

#include "drivers.h"
#include "tensors.h"

/* The pattern of an unwritten element, and a second one: NaNs that no arithmetic produces, and
 * bytes that are not truth values. */
static void pattern_of(int32_t type, int again, uint8_t pattern[8]) {
  memset(pattern, again ? 0x5a : 0xa5, 8);
  if (type == NP_TYPE_TENSOR_FLOAT32 || type == NP_TYPE_FLOAT32) {
    const uint32_t bits = again ? 0x7fc05a5au : 0x7fc0a5a5u;
    memcpy(pattern, &bits, sizeof bits);
  } else if (type == NP_TYPE_TENSOR_FLOAT16 || type == NP_TYPE_FLOAT16) {
    const uint16_t bits = again ? 0x7e5au : 0x7ea5u;
    memcpy(pattern, &bits, sizeof bits);
  }
}

static size_t width_of(int32_t type) {
  const size_t n_bytes = np_type_bytes(type);
  return n_bytes == 0 || n_bytes > 8 ? 1 : n_bytes;
}

static int is_nan(int32_t type, const uint8_t *element) {
  uint32_t bits = 0;
  if (type == NP_TYPE_TENSOR_FLOAT32 || type == NP_TYPE_FLOAT32) {
    memcpy(&bits, element, 4);
    return (bits & 0x7fffffffu) > 0x7f800000u;
  }
  if (type == NP_TYPE_TENSOR_FLOAT16 || type == NP_TYPE_FLOAT16) {
    memcpy(&bits, element, 2);
    return (bits & 0x7fffu) > 0x7c00u;
  }
  return 0;
}

static const struct np_bundle *bundle_of(const struct np_written *self) {
  return &self->action->bundle;
}

/* Returns the caller's buffer of a tensor, NULL: none. */
static uint8_t *buffer_of(const struct np_written *self, uint32_t tensor) {
  const uint32_t output = np_end_of(bundle_of(self)->outputs, bundle_of(self)->n_outputs, tensor);
  return output < bundle_of(self)->n_outputs ? self->outputs[output] : NULL;
}

/* Returns a tensor's bytes after a run. */
static uint8_t *bytes_of(const struct np_written *self, uint32_t tensor) {
  uint8_t *buffer = buffer_of(self, tensor);
  return buffer ? buffer : np_pipeline_data(self->pipeline, tensor);
}

static void put(const struct np_written *self, uint32_t tensor, size_t at, const uint8_t *element,
                size_t width) {
  uint8_t *buffer = buffer_of(self, tensor);
  if (buffer) {
    memcpy(buffer + at, element, width);
  }
  memcpy((uint8_t *)np_pipeline_data(self->pipeline, tensor) + at, element, width);
}

int np_written_matters(const struct np_action *action) {
  const uint32_t others = NP_ACTION_CORUN | NP_ACTION_FRAMES | NP_ACTION_UNTIMED;
  return action->n_kept == 0 && (action->flags & others) == 0 && np_uses_nnapi(action);
}

/* Calls `each` for every output of a segment on NNAPI, until one fails. */
static enum np_status for_each(struct np_written *self,
                               enum np_status (*each)(struct np_written *self, uint32_t tensor,
                                                      struct np_message *why),
                               struct np_message *why) {
  for (uint32_t s = 0; s < bundle_of(self)->n_segments; s++) {
    const struct np_bundle_segment *segment = &bundle_of(self)->segments[s];
    for (uint32_t i = 0; i < segment->n_outputs && segment->engine == NP_BUNDLE_NNAPI; i++) {
      NP_TRY(each(self, segment->outputs[i].tensor, why));
    }
  }
  return NP_OK;
}

static enum np_status fill(struct np_written *self, uint32_t tensor, struct np_message *why) {
  (void)why;
  const struct np_bundle_tensor *described = &bundle_of(self)->tensors[tensor];
  const size_t width = width_of(described->type);
  uint8_t pattern[8];
  pattern_of(described->type, 0, pattern);
  for (size_t at = 0; at + width <= described->n_bytes; at += width) {
    put(self, tensor, at, pattern, width);
  }
  return NP_OK;
}

enum np_status np_written_open(const struct np_action *action, struct np_pipeline *pipeline,
                               void *const *inputs, void *const *outputs,
                               struct np_written *written) {
  *written = (struct np_written){
      .action = action,
      .pipeline = pipeline,
      .inputs = inputs,
      .outputs = outputs,
      .suspects = calloc(action->bundle.n_tensors + (size_t)1, sizeof *written->suspects)};
  return written->suspects ? for_each(written, fill, NULL) : NP_NO_MEMORY;
}

void np_written_close(struct np_written *written) {
  for (uint32_t t = 0; written->suspects && t < written->action->bundle.n_tensors; t++) {
    free(written->suspects[t]);
  }
  free(written->suspects);
  written->suspects = NULL;
}

static enum np_status unwritten(const struct np_written *self, uint32_t tensor, size_t n,
                                struct np_message *why) {
  const struct np_bundle_tensor *described = &bundle_of(self)->tensors[tensor];
  return np_error(NP_RUN_FAILED, why,
                  "the driver says that it ran the model, and left %zu of %zu elements of an "
                  "output unwritten",
                  n, described->n_bytes / width_of(described->type));
}

/* Writes a second pattern to elements that contain the first, by chance or by a fault, and
 * remembers them. */
static enum np_status suspect(struct np_written *self, uint32_t tensor, size_t n) {
  const struct np_bundle_tensor *described = &bundle_of(self)->tensors[tensor];
  const size_t width = width_of(described->type);
  uint8_t first[8], second[8];
  pattern_of(described->type, 0, first);
  pattern_of(described->type, 1, second);
  uint8_t *suspects = n == 0 ? NULL : calloc(described->n_bytes / width / 8 + 1, 1);
  self->suspects[tensor] = suspects;
  for (size_t i = 0; suspects && (i + 1) * width <= described->n_bytes; i++) {
    if (memcmp(bytes_of(self, tensor) + i * width, first, width) == 0) {
      suspects[i / 8] |= (uint8_t)(1u << i % 8);
      put(self, tensor, i * width, second, width);
    }
  }
  return n == 0 || suspects ? NP_OK : NP_NO_MEMORY;
}

static enum np_status look(struct np_written *self, uint32_t tensor, struct np_message *why) {
  const struct np_bundle_tensor *described = &bundle_of(self)->tensors[tensor];
  const size_t width = width_of(described->type);
  uint8_t pattern[8];
  pattern_of(described->type, 0, pattern);
  const uint8_t *bytes = bytes_of(self, tensor);
  size_t n = 0;
  for (size_t at = 0; at + width <= described->n_bytes; at += width) {
    n += (size_t)(memcmp(bytes + at, pattern, width) == 0);
  }
  /* Other patterns, such as a zero point, may be written everywhere by a correct model. */
  if (n != 0 && is_nan(described->type, pattern)) {
    return unwritten(self, tensor, n, why);
  }
  return suspect(self, tensor, n);
}

static size_t count_nan(const struct np_bundle_tensor *described, const uint8_t *bytes) {
  const size_t width = width_of(described->type);
  size_t n = 0;
  for (size_t at = 0; at + width <= described->n_bytes; at += width) {
    n += (size_t)is_nan(described->type, bytes + at);
  }
  return n;
}

/* Runs a segment on the CPU's engine. */
static enum np_status run_twin(const struct np_bundle *twin, const struct np_written *self,
                               struct np_executable *cpu) {
  NP_TRY(np_executable_contexts(cpu, 1));
  struct np_pipeline *pipeline = cpu->contexts->pipeline;
  NP_TRY(np_pipeline_compile(pipeline, 0));
  np_executable_take(twin, pipeline, (const void *const *)self->inputs);
  const struct np_step *step = np_pipeline_steps(pipeline);
  NP_TRY(step->run(step->ctx));
  (void)np_step_settle(step);
  return NP_OK;
}

/* Returns whether the CPU also computes NaN, as some models do; also true if the CPU cannot run the
 * model, since that proves nothing. */
static int is_nan_on_cpu(const struct np_written *self, const struct np_nnapi_library *library,
                         uint32_t tensor) {
  struct np_bundle twin = *bundle_of(self);
  struct np_bundle_segment segment = twin.segments[0];
  struct np_bundle_plan plan = twin.plans[0];
  segment.engine = NP_BUNDLE_CPU;
  segment.accelerator = NULL;
  plan.segments = twin.segments = &segment;
  twin.plans = &plan;
  const nnp_options options = np_action_options(self->action);
  struct np_executable cpu;
  enum np_status status = np_executable_describe(&twin, 0, &options, library, &cpu);
  NP_THEN(status, run_twin(&twin, self, &cpu));
  const int is_known = status == NP_OK;
  const int is = is_known && count_nan(&twin.tensors[tensor],
                                       np_pipeline_data(cpu.contexts->pipeline, tensor)) != 0;
  np_executable_free(&cpu);
  return is || !is_known;
}

enum np_status np_written_check(struct np_written *self, const struct np_nnapi_library *library,
                                struct np_message *why) {
  NP_TRY(for_each(self, look, why));
  const struct np_bundle_segment *segment = &bundle_of(self)->segments[0];
  for (uint32_t i = 0; i < segment->n_outputs && bundle_of(self)->n_segments == 1; i++) {
    const uint32_t tensor = segment->outputs[i].tensor;
    const size_t n = count_nan(&bundle_of(self)->tensors[tensor], bytes_of(self, tensor));
    if (n != 0 && !is_nan_on_cpu(self, library, tensor)) {
      return np_error(NP_RUN_FAILED, why,
                      "the driver says that it ran the model, and wrote NaN into %zu elements of "
                      "an output, where the CPU writes numbers",
                      n);
    }
  }
  return NP_OK;
}

enum np_status np_written_again(const struct np_written *self, struct np_message *why) {
  for (uint32_t t = 0; t < bundle_of(self)->n_tensors; t++) {
    const struct np_bundle_tensor *described = &bundle_of(self)->tensors[t];
    const uint8_t *suspects = self->suspects[t];
    const size_t width = width_of(described->type);
    uint8_t pattern[8];
    pattern_of(described->type, 1, pattern);
    size_t n = 0;
    for (size_t i = 0; suspects && (i + 1) * width <= described->n_bytes; i++) {
      const int is_suspect = suspects[i / 8] >> i % 8 & 1;
      n += (size_t)(is_suspect && memcmp(bytes_of(self, t) + i * width, pattern, width) == 0);
    }
    if (n != 0) {
      return unwritten(self, t, n, why);
    }
  }
  return NP_OK;
}
