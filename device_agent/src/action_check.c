#include "action_check.h"

#include <stdlib.h>

#include "beside.h"

/* Checks one list of a segment's tensors. written[n_tensors] tells which tensors have their bytes;
 * outputs set it. */
static enum np_status check_list(const struct np_action *action, const struct np_graph *graph,
                                 int is_output, uint32_t n, const struct np_port *list,
                                 uint8_t *written, struct np_message *why) {
  const char *what = is_output ? "output" : "input";
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t t = list[i].tensor;
    if (t >= action->n_tensors) {
      np_message_set(why, "%s %u: tensor %u of %u", what, i, t, action->n_tensors);
      return NP_BAD_REQUEST;
    }
    if (list[i].order != 0) {
      np_message_set(why, "%s %u: order 0x%x, want 0: layouts are the model's", what, i,
                     list[i].order);
      return NP_BAD_REQUEST;
    }
    const uint32_t operand = is_output ? graph->outputs[i] : graph->inputs[i];
    const struct np_tensor *tensor = &action->tensors[t];
    if (!np_port_fits(tensor->type, tensor->rank, tensor->dims, &graph->operands[operand])) {
      np_message_set(why, "%s %u: tensor %u has another type or shape than the model's operand %u",
                     what, i, t, operand);
      return NP_BAD_REQUEST;
    }
    if (!is_output && !written[t]) {
      np_message_set(why, "input %u: tensor %u is read before a segment writes it", i, t);
      return NP_BAD_REQUEST;
    }
    if (is_output && written[t]) {
      np_message_set(why, "output %u: tensor %u has its bytes already", i, t);
      return NP_BAD_REQUEST;
    }
    if (is_output) {
      written[t] = 1;
    }
  }
  return NP_OK;
}

/* Checks the flow of tensors through the segments. */
static enum np_status check_flow(const struct np_request *request, const struct np_action *action,
                                 struct np_message *why) {
  uint8_t *written = calloc(action->n_tensors + (size_t)1, 1);
  if (!written) {
    return NP_NO_MEMORY;
  }
  for (uint32_t t = 0; t < action->n_tensors; t++) {
    written[t] = action->tensors[t].source != NP_FROM_SEGMENT;
  }
  enum np_status status = NP_OK;
  for (uint32_t s = 0; s < action->n_segments && status == NP_OK; s++) {
    const struct np_segment *segment = &action->segments[s];
    const struct np_graph *graph = &request->models[segment->model].model.graph;
    struct np_message inner = {""};
    status = check_list(action, graph, 0, segment->n_inputs, segment->inputs, written, &inner);
    if (status == NP_OK) {
      status = check_list(action, graph, 1, segment->n_outputs, segment->outputs, written, &inner);
    }
    if (status != NP_OK) {
      np_message_set(why, "segment %u: %s", s, inner.text);
    }
  }
  for (uint32_t t = 0; t < action->n_tensors && status == NP_OK; t++) {
    if (!written[t]) {
      np_message_set(why, "tensor %u: source 0, but no segment writes it", t);
      status = NP_BAD_REQUEST;
    }
  }
  free(written);
  return status;
}

/* Whether two segments would be on one processor. */
static int same_processor(const struct np_segment *a, const struct np_segment *b) {
  if (a->engine != b->engine) {
    return 0;
  }
  return a->engine == NP_ENGINE_CPU || a->accelerator == b->accelerator;
}

/* The rules of segments that run at once. */
static enum np_status check_beside(const struct np_action *action, struct np_message *why) {
  const uint32_t n = action->n_segments;
  if (n < 2 || n > NP_MAX_BESIDE) {
    np_message_set(why, "%u segments, want 2 to %u side by side (flag bit 4)", n, NP_MAX_BESIDE);
    return NP_BAD_REQUEST;
  }
  for (uint32_t s = 0; s < n; s++) {
    const struct np_segment *segment = &action->segments[s];
    if (segment->engine == NP_ENGINE_NNAPI && segment->accelerator == NP_NONE) {
      np_message_set(why, "segment %u: NNAPI's own choice is no processor to run side by side on",
                     s);
      return NP_BAD_REQUEST;
    }
    for (uint32_t o = 0; o < s; o++) {
      if (same_processor(segment, &action->segments[o])) {
        np_message_set(why, "segment %u: it runs side by side with segment %u, on its processor", s,
                       o);
        return NP_BAD_REQUEST;
      }
    }
    for (uint32_t i = 0; i < segment->n_inputs; i++) {
      if (action->tensors[segment->inputs[i].tensor].source == NP_FROM_SEGMENT) {
        np_message_set(why, "segment %u: it reads tensor %u of a segment that runs side by side", s,
                       segment->inputs[i].tensor);
        return NP_BAD_REQUEST;
      }
    }
  }
  return NP_OK;
}

enum np_status np_action_check(const struct np_request *request, const struct np_action *action,
                               struct np_message *why) {
  const enum np_status status = check_flow(request, action, why);
  return status == NP_OK && (action->flags & NP_ACTION_BESIDE) != 0 ? check_beside(action, why)
                                                                    : status;
}
