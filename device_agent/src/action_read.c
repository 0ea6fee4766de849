#include "action_read.h"

#include <stdlib.h>
#include <string.h>

#include "action_check.h"

#define LEAST_TENSOR_WORDS 5u /* type, rank, source, value, keep */
#define LEAST_SEGMENT_WORDS 7u
#define PLAN_WORDS 4u /* segments, flags, share */

static enum np_status bad(struct np_message *why, const char *what) {
  np_message_set(why, "%s", what);
  return NP_BAD_REQUEST;
}

static enum np_status check_runs(const struct np_action *action, struct np_message *why) {
  if (action->warmup_min > action->warmup_max || action->warmup_max > NP_MAX_RUNS) {
    np_message_set(why, "warmup_min %u and warmup_max %u, want min <= max <= %u",
                   action->warmup_min, action->warmup_max, NP_MAX_RUNS);
    return NP_BAD_REQUEST;
  }
  if (action->min_runs == 0 || action->min_runs > action->max_runs ||
      action->max_runs > NP_MAX_RUNS) {
    np_message_set(why, "min_runs %u and max_runs %u, want 1 <= min <= max <= %u", action->min_runs,
                   action->max_runs, NP_MAX_RUNS);
    return NP_BAD_REQUEST;
  }
  if (action->rounds == 0 || action->rounds > NP_MAX_ROUNDS) {
    np_message_set(why, "rounds %u, want 1 to %u", action->rounds, NP_MAX_ROUNDS);
    return NP_BAD_REQUEST;
  }
  return NP_OK;
}

static enum np_status check_flags(const struct np_action *action, struct np_message *why) {
  const uint32_t known = NP_ACTION_BURST | NP_ACTION_UNTIMED | NP_ACTION_ASYNC |
                         NP_ACTION_POINTERS | NP_ACTION_BESIDE | NP_ACTION_FRAMES;
  if ((action->flags & ~known) != 0) {
    np_message_set(why, "flags 0x%x, known are bits 0 to 5", action->flags);
    return NP_BAD_REQUEST;
  }
  if ((action->flags & NP_ACTION_BURST) != 0 && (action->flags & NP_ACTION_ASYNC) != 0) {
    return bad(why, "flags: burst (bit 0) and async (bit 2) exclude each other");
  }
  if ((action->flags & NP_ACTION_UNTIMED) != 0 && (action->max_runs != 1 || action->rounds != 1)) {
    np_message_set(why, "max_runs %u and rounds %u, want 1 and 1 without timing (flag bit 1)",
                   action->max_runs, action->rounds);
    return NP_BAD_REQUEST;
  }
  if ((action->flags & NP_ACTION_BESIDE) != 0 &&
      ((action->flags & NP_ACTION_UNTIMED) != 0 || action->min_runs != action->max_runs)) {
    np_message_set(why,
                   "min_runs %u and max_runs %u, want the same, and timing, side by side (flag "
                   "bit 4)",
                   action->min_runs, action->max_runs);
    return NP_BAD_REQUEST;
  }
  if ((action->flags & NP_ACTION_FRAMES) != 0 &&
      (action->flags & (NP_ACTION_UNTIMED | NP_ACTION_BESIDE)) != 0) {
    return bad(why, "flags: frames at once (bit 5) excludes bits 1 and 4");
  }
  return NP_OK;
}

static enum np_status read_head(struct np_cursor *cursor, const struct np_request *request,
                                struct np_action *action, struct np_message *why) {
  action->id = np_take_u32(cursor);
  action->timeout_ms = np_take_u32(cursor);
  action->flags = np_take_u32(cursor);
  action->threads = np_take_u32(cursor);
  action->cpu_mask = np_take_u64(cursor);
  action->memory_kb = np_take_u32(cursor);
  action->group = np_take_u32(cursor);
  action->warmup_min = np_take_u32(cursor);
  action->warmup_max = np_take_u32(cursor);
  action->warmup_ns = np_take_u64(cursor);
  if (request->version >= NP_PROTOCOL_PACED) {
    action->warm_ns = np_take_u64(cursor);
    action->spin_ns = np_take_u64(cursor);
  }
  action->rounds = np_take_u32(cursor);
  action->min_runs = np_take_u32(cursor);
  action->max_runs = np_take_u32(cursor);
  action->budget_ns = np_take_u64(cursor);
  action->cooldown_ms = np_take_u32(cursor);
  if (cursor->bad) {
    return bad(why, "it is cut off");
  }
  if (action->threads == 0) {
    action->threads = 1;
  }

  if (action->timeout_ms == 0) {
    return bad(why, "timeout_ms 0, want more than 0");
  }
  const enum np_status status = check_runs(action, why);
  return status == NP_OK ? check_flags(action, why) : status;
}

/* Sets n_elements and n_bytes from type and dims. */
static enum np_status measure(struct np_tensor *tensor, struct np_message *why) {
  if (np_type_bytes(tensor->type) == 0) {
    np_message_set(why, "unknown type %d", tensor->type);
    return NP_BAD_REQUEST;
  }
  const int is_tensor = np_type_is_tensor(tensor->type);
  if (is_tensor ? tensor->rank == 0 || tensor->rank > NP_MAX_RANK : tensor->rank != 0) {
    np_message_set(why, "rank %u, want %s for type %d", tensor->rank, is_tensor ? "1 to 8" : "0",
                   tensor->type);
    return NP_BAD_REQUEST;
  }
  size_t n = 1;
  for (uint32_t i = 0; i < tensor->rank; i++) {
    if (tensor->dims[i] == 0) {
      np_message_set(why, "dimension %u is 0, want a known size", i);
      return NP_BAD_REQUEST;
    }
    if (tensor->dims[i] > SIZE_MAX / n) {
      return bad(why, "its size overflows");
    }
    n *= tensor->dims[i];
  }
  /* Half of the address space, so that sizes may be added without care later on. */
  if (n > SIZE_MAX / 2 / np_type_bytes(tensor->type)) {
    return bad(why, "its size overflows");
  }
  tensor->n_elements = n;
  tensor->n_bytes = n * np_type_bytes(tensor->type);
  return NP_OK;
}

static enum np_status read_tensor(struct np_cursor *cursor, const struct np_request *request,
                                  struct np_tensor *tensor, struct np_message *why) {
  const uint32_t type = np_take_u32(cursor);
  memcpy(&tensor->type, &type, sizeof type);
  tensor->rank = np_take_u32(cursor);
  tensor->dims = np_take_words(cursor, tensor->rank);
  const uint32_t source = np_take_u32(cursor);
  tensor->value = np_take_u32(cursor);
  const uint32_t keep = np_take_u32(cursor);
  if (cursor->bad) {
    return bad(why, "it is cut off");
  }
  const enum np_status status = measure(tensor, why);
  if (status != NP_OK) {
    return status;
  }

  if (source > NP_ZERO) {
    np_message_set(why, "source %u, want 0 to 3", source);
    return NP_BAD_REQUEST;
  }
  tensor->source = (enum np_source)source;
  if (keep > 1) {
    np_message_set(why, "keep %u, want 0 or 1", keep);
    return NP_BAD_REQUEST;
  }
  tensor->keep = (int)keep;
  if (tensor->source == NP_FROM_BLOB) {
    if (tensor->value >= request->n_blobs) {
      np_message_set(why, "blob %u of %u", tensor->value, request->n_blobs);
      return NP_BAD_REQUEST;
    }
    if (request->blobs[tensor->value].length != tensor->n_bytes) {
      np_message_set(why, "blob %u has %llu bytes, type and shape want %zu", tensor->value,
                     (unsigned long long)request->blobs[tensor->value].length, tensor->n_bytes);
      return NP_BAD_REQUEST;
    }
  } else if (tensor->source != NP_PSEUDO_RANDOM && tensor->value != 0) {
    np_message_set(why, "value %u, want 0 for source %u", tensor->value, source);
    return NP_BAD_REQUEST;
  }
  return NP_OK;
}

/* A count and that many ports, in place. */
static const struct np_port *take_ports(struct np_cursor *cursor, uint32_t *n) {
  *n = np_take_u32(cursor);
  if (*n > np_cursor_left(cursor) / 2) {
    cursor->bad = 1;
  }
  return (const struct np_port *)np_take_words(cursor, 2 * (size_t)*n);
}

static enum np_status read_segment(struct np_cursor *cursor, const struct np_request *request,
                                   struct np_segment *segment, struct np_message *why) {
  const uint32_t engine = np_take_u32(cursor);
  segment->accelerator = np_take_u32(cursor);
  const uint32_t preference = np_take_u32(cursor);
  segment->flags = np_take_u32(cursor);
  segment->model = np_take_u32(cursor);
  segment->inputs = take_ports(cursor, &segment->n_inputs);
  segment->outputs = take_ports(cursor, &segment->n_outputs);
  if (cursor->bad) {
    return bad(why, "it is cut off");
  }

  if (engine > NP_ENGINE_NNAPI) {
    np_message_set(why, "engine %u, want 0 (cpu) or 1 (nnapi)", engine);
    return NP_BAD_REQUEST;
  }
  segment->engine = (enum np_engine_kind)engine;
  if (segment->accelerator != NP_NONE && segment->accelerator >= request->n_strings) {
    np_message_set(why, "accelerator: string %u of %u", segment->accelerator, request->n_strings);
    return NP_BAD_REQUEST;
  }
  if (preference > ANEURALNETWORKS_PREFER_SUSTAINED_SPEED && preference != NP_NONE) {
    np_message_set(why, "preference %u, want 0, 1, 2 or 0xffffffff", preference);
    return NP_BAD_REQUEST;
  }
  segment->preference = preference == NP_NONE ? -1 : (int32_t)preference;
  if ((segment->flags & ~(uint32_t)NP_SEGMENT_RELAXED) != 0) {
    np_message_set(why, "flags 0x%x, known is bit 0", segment->flags);
    return NP_BAD_REQUEST;
  }
  if (segment->model >= request->n_models) {
    np_message_set(why, "model %u of %u", segment->model, request->n_models);
    return NP_BAD_REQUEST;
  }
  const struct np_graph *graph = &request->models[segment->model].model.graph;
  if (segment->n_inputs != graph->n_inputs || segment->n_outputs != graph->n_outputs) {
    np_message_set(why, "%u inputs and %u outputs, model %u has %u and %u", segment->n_inputs,
                   segment->n_outputs, segment->model, graph->n_inputs, graph->n_outputs);
    return NP_BAD_REQUEST;
  }
  return NP_OK;
}

/* What stands behind the segments of an action that runs many frames at once. */
static enum np_status read_plans(struct np_cursor *cursor, struct np_action *action,
                                 struct np_message *why) {
  action->in_flight = np_take_u32(cursor);
  action->variants = np_take_u32(cursor);
  const uint32_t n = np_take_u32(cursor);
  if (cursor->bad || n == 0 || n > np_cursor_left(cursor) / PLAN_WORDS) {
    np_message_set(why, "%u plans, want at least 1 and no more than fit the section", n);
    return NP_BAD_REQUEST;
  }
  if (action->in_flight == 0 || action->in_flight > NP_MAX_IN_FLIGHT || action->variants == 0 ||
      action->variants > NP_MAX_VARIANTS) {
    np_message_set(why, "%u frames in flight and %u variants, want 1 to %u and 1 to %u",
                   action->in_flight, action->variants, NP_MAX_IN_FLIGHT, NP_MAX_VARIANTS);
    return NP_BAD_REQUEST;
  }
  action->plans = calloc(n, sizeof *action->plans);
  if (!action->plans) {
    return NP_NO_MEMORY;
  }
  action->n_plans = n;
  for (uint32_t p = 0; p < n; p++) {
    action->plans[p].n_segments = np_take_u32(cursor);
    const uint32_t flags = np_take_u32(cursor);
    if (flags > 1) {
      np_message_set(why, "plan %u: flags 0x%x, known is bit 0", p, flags);
      return NP_BAD_REQUEST;
    }
    action->plans[p].overlaps = (int)flags;
    const uint64_t bits = np_take_u64(cursor);
    memcpy(&action->plans[p].share, &bits, sizeof bits);
  }
  return NP_OK;
}

enum np_status np_action_read(struct np_cursor *cursor, const struct np_request *request,
                              struct np_action *action, struct np_message *why) {
  enum np_status status = read_head(cursor, request, action, why);
  if (status != NP_OK) {
    return status;
  }

  const uint32_t n_tensors = np_take_u32(cursor);
  if (cursor->bad || n_tensors > np_cursor_left(cursor) / LEAST_TENSOR_WORDS) {
    np_message_set(why, "%u tensors do not fit the section", n_tensors);
    return NP_BAD_REQUEST;
  }
  action->tensors = calloc(n_tensors + (size_t)1, sizeof *action->tensors);
  if (!action->tensors) {
    return NP_NO_MEMORY;
  }
  action->n_tensors = n_tensors;
  for (uint32_t t = 0; t < n_tensors; t++) {
    struct np_message inner = {""};
    status = read_tensor(cursor, request, &action->tensors[t], &inner);
    if (status != NP_OK) {
      np_message_set(why, "tensor %u: %s", t, inner.text);
      return status;
    }
  }

  const uint32_t n_segments = np_take_u32(cursor);
  if (cursor->bad || n_segments == 0 || n_segments > np_cursor_left(cursor) / LEAST_SEGMENT_WORDS) {
    np_message_set(why, "%u segments, want at least 1 and no more than fit the section",
                   n_segments);
    return NP_BAD_REQUEST;
  }
  action->segments = calloc(n_segments, sizeof *action->segments);
  if (!action->segments) {
    return NP_NO_MEMORY;
  }
  action->n_segments = n_segments;
  for (uint32_t s = 0; s < n_segments; s++) {
    struct np_message inner = {""};
    status = read_segment(cursor, request, &action->segments[s], &inner);
    if (status != NP_OK) {
      np_message_set(why, "segment %u: %s", s, inner.text);
      return status;
    }
  }
  if ((action->flags & NP_ACTION_FRAMES) != 0) {
    status = read_plans(cursor, action, why);
  }
  return status == NP_OK ? np_action_check(request, action, why) : status;
}
