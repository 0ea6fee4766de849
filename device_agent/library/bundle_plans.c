#include <stdlib.h>
#include <string.h>

#include "bundle_sections.h"
#include "np_nnapi.h"

#define LEAST_PLAN_WORDS 2u    /* name, number of segments */
#define LEAST_SEGMENT_WORDS 7u /* all but the ports */
#define END_WORDS 3u           /* name, tensor, dim order */

/* Takes a count and that many ports, in place. */
static const struct np_port *take_ports(struct np_cursor *cursor, uint32_t *n) {
  *n = np_take_u32(cursor);
  if (*n > np_cursor_left(cursor) / 2) {
    cursor->bad = 1;
  }
  return (const struct np_port *)np_take_words(cursor, 2 * (size_t)*n);
}

/* Checks that the tensors of one list exist and fit the model's operands. */
static enum np_status check_ports(const struct np_bundle *bundle, const struct np_graph *graph,
                                  const uint32_t *operands, uint32_t n, const struct np_port *ports,
                                  struct np_message *why) {
  for (uint32_t i = 0; i < n; i++) {
    NP_REQUIRE(ports[i].tensor < bundle->n_tensors, NP_BAD_REQUEST, why, "tensor %u of %u",
               ports[i].tensor, bundle->n_tensors);
    const struct np_bundle_tensor *tensor = &bundle->tensors[ports[i].tensor];
    NP_REQUIRE(ports[i].order == 0, NP_BAD_REQUEST, why,
               "tensor %u has the order 0x%x, of a file made with --peel: make it again with "
               "`nnapi-prof convert`",
               ports[i].tensor, ports[i].order);
    NP_REQUIRE(
        np_port_fits(tensor->type, tensor->rank, tensor->dims, &graph->operands[operands[i]]),
        NP_BAD_REQUEST, why, "tensor %u has not the type and shape of operand %u", ports[i].tensor,
        operands[i]);
  }
  return NP_OK;
}

static enum np_status read_segment(struct np_cursor *cursor, const struct np_bundle *bundle,
                                   struct np_bundle_segment *segment, struct np_message *why) {
  const uint32_t engine = np_take_u32(cursor);
  const uint32_t accelerator = np_take_u32(cursor);
  const uint32_t preference = np_take_u32(cursor);
  segment->flags = np_take_u32(cursor);
  segment->model = np_take_u32(cursor);
  segment->inputs = take_ports(cursor, &segment->n_inputs);
  segment->outputs = take_ports(cursor, &segment->n_outputs);
  NP_REQUIRE(!cursor->bad, NP_BAD_REQUEST, why, "it is cut off");
  segment->engine = engine == NP_BUNDLE_NNAPI ? NP_BUNDLE_NNAPI : NP_BUNDLE_CPU;
  segment->accelerator = np_bundle_string(bundle, accelerator);
  segment->preference = preference == NP_BUNDLE_NONE ? -1 : (int32_t)preference;
  const uint32_t known =
      NP_BUNDLE_RELAXED | (engine == NP_BUNDLE_CPU ? NP_BUNDLE_HALF | NP_BUNDLE_ONE_THREAD : 0u);
  NP_REQUIRE(engine <= NP_BUNDLE_NNAPI && (accelerator == NP_BUNDLE_NONE || segment->accelerator) &&
                 segment->preference <= ANEURALNETWORKS_PREFER_SUSTAINED_SPEED &&
                 segment->preference >= -1 && (segment->flags & ~known) == 0 &&
                 segment->model < bundle->n_models,
             NP_BAD_REQUEST, why,
             "engine %u, accelerator %u, preference %u, flags 0x%x or model %u is none", engine,
             accelerator, preference, segment->flags, segment->model);
  const struct np_graph *graph = &bundle->models[segment->model].graph;
  NP_REQUIRE(segment->n_inputs == graph->n_inputs && segment->n_outputs == graph->n_outputs,
             NP_BAD_REQUEST, why, "%u inputs and %u outputs, its model has %u and %u",
             segment->n_inputs, segment->n_outputs, graph->n_inputs, graph->n_outputs);
  NP_TRY(check_ports(bundle, graph, graph->inputs, segment->n_inputs, segment->inputs, why));
  return check_ports(bundle, graph, graph->outputs, segment->n_outputs, segment->outputs, why);
}

static enum np_status read_plan(struct np_cursor *cursor, struct np_bundle *bundle,
                                struct np_bundle_plan *plan, struct np_message *why) {
  plan->name = np_bundle_string(bundle, np_take_u32(cursor));
  const uint32_t n = np_take_u32(cursor);
  NP_REQUIRE(!cursor->bad && plan->name && n != 0 &&
                 n <= np_cursor_left(cursor) / LEAST_SEGMENT_WORDS,
             NP_BAD_REQUEST, why, "it is cut off, or has no name or segments");
  plan->segments = bundle->segments + bundle->n_segments;
  plan->n_segments = n;
  bundle->n_segments += n;
  for (uint32_t s = 0; s < n; s++) {
    struct np_message inner = {""};
    const enum np_status status = read_segment(cursor, bundle, &plan->segments[s], &inner);
    NP_REQUIRE(status == NP_OK, status, why, "segment %u: %s", s, inner.text);
  }
  return NP_OK;
}

enum np_status np_bundle_read_plans(const struct np_container *container, struct np_bundle *bundle,
                                    struct np_message *why) {
  struct np_cursor cursor;
  uint32_t n;
  NP_TRY(np_bundle_list(container, "PLAN", LEAST_PLAN_WORDS, &cursor, &n, why));
  NP_REQUIRE(n != 0, NP_BAD_REQUEST, why, "PLAN: there is none");
  bundle->plans = calloc(n, sizeof *bundle->plans);
  bundle->segments =
      calloc(np_cursor_left(&cursor) / LEAST_SEGMENT_WORDS + 1, sizeof *bundle->segments);
  NP_REQUIRE(bundle->plans && bundle->segments, NP_NO_MEMORY, why, "no memory for the bundle");
  bundle->n_plans = n;
  for (uint32_t i = 0; i < n; i++) {
    struct np_message inner = {""};
    const enum np_status status = read_plan(&cursor, bundle, &bundle->plans[i], &inner);
    NP_REQUIRE(status == NP_OK, status, why, "PLAN: plan %u: %s", i, inner.text);
  }
  return np_bundle_list_end(&cursor, "PLAN", why);
}

enum np_status np_bundle_read_overlaps(const struct np_container *container,
                                       struct np_bundle *bundle, struct np_message *why) {
  struct np_cursor cursor;
  uint32_t n;
  NP_TRY(np_bundle_list(container, "OVLP", 1, &cursor, &n, why));
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t plan = np_take_u32(&cursor);
    NP_REQUIRE(plan < bundle->n_plans, NP_BAD_REQUEST, why, "OVLP: plan %u of %u", plan,
               bundle->n_plans);
    bundle->plans[plan].overlaps = 1;
  }
  return np_bundle_list_end(&cursor, "OVLP", why);
}

/* Returns the axis of the model's own shape that is axis i < 8 in memory, for a non-zero order. */
static uint32_t order_axis(uint32_t order, uint32_t i) { return order >> 4 * i & 15; }

/* Returns whether an order is 0, or a permutation of 0..rank-1 that is not the identity. */
static int order_is_valid(uint32_t order, uint32_t rank) {
  if (order == 0) {
    return 1;
  }
  uint32_t seen = 0;
  int moves = 0;
  for (uint32_t i = 0; i < NP_MAX_RANK; i++) {
    const uint32_t axis = order_axis(order, i);
    if (i >= rank) {
      if (axis != 0) {
        return 0;
      }
      continue;
    }
    if (axis >= rank || (seen >> axis & 1) != 0) {
      return 0;
    }
    seen |= 1u << axis;
    moves |= axis != i;
  }
  return moves;
}

/* Makes the app's view of a tensor. `order` is 0 or a permutation. */
static nnp_tensor describe(const struct np_bundle_tensor *tensor, const char *name,
                           uint32_t order) {
  nnp_tensor known = {.name = name,
                      .type = tensor->type,
                      .rank = tensor->rank,
                      .scale = tensor->scale,
                      .zero_point = tensor->zero_point,
                      .n_bytes = tensor->n_bytes};
  for (uint32_t i = 0; i < tensor->rank; i++) {
    known.dims[i] = tensor->dims[i];
    known.dim_order[i] = order == 0 ? i : order_axis(order, i);
  }
  return known;
}

static enum np_status read_list(const struct np_container *container, const char *tag,
                                const struct np_bundle *bundle, uint32_t *n,
                                struct np_bundle_end **ends, struct np_message *why) {
  struct np_cursor cursor;
  uint32_t count;
  NP_TRY(np_bundle_list(container, tag, END_WORDS, &cursor, &count, why));
  *ends = calloc(count + (size_t)1, sizeof **ends);
  NP_REQUIRE(*ends, NP_NO_MEMORY, why, "no memory for the bundle");
  *n = count;
  for (uint32_t i = 0; i < count; i++) {
    const char *name = np_bundle_string(bundle, np_take_u32(&cursor));
    const uint32_t t = np_take_u32(&cursor);
    const uint32_t order = np_take_u32(&cursor);
    NP_REQUIRE(name && t < bundle->n_tensors && order_is_valid(order, bundle->tensors[t].rank),
               NP_BAD_REQUEST, why, "%s: item %u has no name, tensor or dim order", tag, i);
    (*ends)[i] = (struct np_bundle_end){describe(&bundle->tensors[t], name, order), t};
  }
  return np_bundle_list_end(&cursor, tag, why);
}

enum np_status np_bundle_read_ends(const struct np_container *container, struct np_bundle *bundle,
                                   struct np_message *why) {
  NP_TRY(read_list(container, "INPT", bundle, &bundle->n_inputs, &bundle->inputs, why));
  return read_list(container, "OUTP", bundle, &bundle->n_outputs, &bundle->outputs, why);
}

/* Checks the flow of one plan; written[n_tensors] is working memory. */
static enum np_status check_plan(const struct np_bundle *bundle, const struct np_bundle_plan *plan,
                                 uint8_t *written, struct np_message *why) {
  memset(written, 0, bundle->n_tensors);
  for (uint32_t i = 0; i < bundle->n_inputs; i++) {
    written[bundle->inputs[i].tensor] = 1;
  }
  for (uint32_t s = 0; s < plan->n_segments; s++) {
    const struct np_bundle_segment *segment = &plan->segments[s];
    for (uint32_t i = 0; i < segment->n_inputs; i++) {
      NP_REQUIRE(written[segment->inputs[i].tensor], NP_BAD_REQUEST, why,
                 "plan %s: segment %u reads tensor %u before it is written", plan->name, s,
                 segment->inputs[i].tensor);
    }
    for (uint32_t i = 0; i < segment->n_outputs; i++) {
      NP_REQUIRE(!written[segment->outputs[i].tensor], NP_BAD_REQUEST, why,
                 "plan %s: segment %u writes tensor %u, which has its bytes already", plan->name, s,
                 segment->outputs[i].tensor);
      written[segment->outputs[i].tensor] = 1;
    }
  }
  for (uint32_t i = 0; i < bundle->n_outputs; i++) {
    NP_REQUIRE(written[bundle->outputs[i].tensor], NP_BAD_REQUEST, why,
               "plan %s: output %u is never written", plan->name, i);
  }
  return NP_OK;
}

enum np_status np_bundle_check_flow(const struct np_bundle *bundle, struct np_message *why) {
  uint8_t *written = calloc(bundle->n_tensors + (size_t)1, 1);
  NP_REQUIRE(written, NP_NO_MEMORY, why, "no memory for the bundle");
  enum np_status status = NP_OK;
  for (uint32_t i = 0; i < bundle->n_inputs && status == NP_OK; i++) {
    if (written[bundle->inputs[i].tensor]++ != 0) {
      status = np_error(NP_BAD_REQUEST, why, "INPT: item %u is a tensor that another one is", i);
    }
  }
  for (uint32_t i = 0; i < bundle->n_outputs && status == NP_OK; i++) {
    if (written[bundle->outputs[i].tensor]++ != 0) {
      status = np_error(NP_BAD_REQUEST, why,
                        "OUTP: item %u is a tensor that another one or an input is", i);
    }
  }
  for (uint32_t i = 0; i < bundle->n_plans && status == NP_OK; i++) {
    status = check_plan(bundle, &bundle->plans[i], written, why);
  }
  free(written);
  return status;
}
