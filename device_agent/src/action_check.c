#include "action_check.h"

#include <stdlib.h>

#include "beside.h"

#define SHARES 1e-6 /* of plans are 1 in all, but for rounding */

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

/* Checks the flow of tensors through a plan's segments, the first of which is `first`; room of
 * [n_tensors] is written. */
static enum np_status check_flow(const struct np_request *request, const struct np_action *action,
                                 uint32_t first, uint32_t n_segments, uint8_t *written,
                                 struct np_message *why) {
  for (uint32_t t = 0; t < action->n_tensors; t++) {
    written[t] = action->tensors[t].source != NP_FROM_SEGMENT;
  }
  for (uint32_t s = first; s < first + n_segments; s++) {
    const struct np_segment *segment = &action->segments[s];
    const struct np_graph *graph = &request->models[segment->model].model.graph;
    struct np_message inner = {""};
    enum np_status status =
        check_list(action, graph, 0, segment->n_inputs, segment->inputs, written, &inner);
    if (status == NP_OK) {
      status = check_list(action, graph, 1, segment->n_outputs, segment->outputs, written, &inner);
    }
    if (status != NP_OK) {
      np_message_set(why, "segment %u: %s", s, inner.text);
      return status;
    }
  }
  for (uint32_t t = 0; t < action->n_tensors; t++) {
    /* Of several plans each makes what is kept, and the rest as far as it needs it. */
    if (!written[t] && (action->n_plans == 0 || action->tensors[t].keep)) {
      np_message_set(why, "tensor %u: source 0, but no segment writes it", t);
      return NP_BAD_REQUEST;
    }
  }
  return NP_OK;
}

/* The rules of plans that run many frames at once, but for their flow. */
static enum np_status check_plans(const struct np_action *action, struct np_message *why) {
  uint64_t n_segments = 0;
  double total = 0;
  for (uint32_t p = 0; p < action->n_plans; p++) {
    const struct np_action_plan *plan = &action->plans[p];
    if (plan->n_segments == 0 || !(plan->share > 0 && plan->share <= 1)) {
      np_message_set(why, "plan %u: %u segments and a share of %g, want some, and above 0 to 1", p,
                     plan->n_segments, plan->share);
      return NP_BAD_REQUEST;
    }
    n_segments += plan->n_segments;
    total += plan->share;
  }
  if (n_segments != action->n_segments || !(total > 1 - SHARES && total < 1 + SHARES)) {
    np_message_set(why, "plans of %llu segments and %g of the frames, want %u and 1",
                   (unsigned long long)n_segments, total, action->n_segments);
    return NP_BAD_REQUEST;
  }
  for (uint32_t t = 0; t < action->n_tensors; t++) {
    if (action->tensors[t].keep && action->tensors[t].source != NP_FROM_SEGMENT) {
      np_message_set(why, "tensor %u: frames at once keep what segments write", t);
      return NP_BAD_REQUEST;
    }
  }
  return NP_OK;
}

/* Checks the flow of tensors through the segments, of each plan for itself. */
static enum np_status check_flows(const struct np_request *request, const struct np_action *action,
                                  struct np_message *why) {
  uint8_t *written = calloc(action->n_tensors + (size_t)1, 1);
  if (!written) {
    return NP_NO_MEMORY;
  }
  enum np_status status = NP_OK;
  if (action->n_plans == 0) {
    status = check_flow(request, action, 0, action->n_segments, written, why);
  }
  for (uint32_t p = 0, first = 0; p < action->n_plans && status == NP_OK; p++) {
    status = check_flow(request, action, first, action->plans[p].n_segments, written, why);
    first += action->plans[p].n_segments;
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
      np_message_set(why,
                     "segment %u: NNAPI's own choice is not a processor to run side by side on", s);
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
  enum np_status status = action->n_plans == 0 ? NP_OK : check_plans(action, why);
  if (status == NP_OK) {
    status = check_flows(request, action, why);
  }
  return status == NP_OK && (action->flags & NP_ACTION_BESIDE) != 0 ? check_beside(action, why)
                                                                    : status;
}
