#include "action_read.h"

#include <stdlib.h>

#include "corun.h"

static enum np_status check_runs(const struct np_action *action, struct np_message *why) {
  NP_REQUIRE(action->warmup_min <= action->warmup_max && action->warmup_max <= NP_MAX_RUNS,
             NP_BAD_REQUEST, why, "warmup_min %u and warmup_max %u, want min <= max <= %u",
             action->warmup_min, action->warmup_max, NP_MAX_RUNS);
  NP_REQUIRE(action->min_runs != 0 && action->min_runs <= action->max_runs &&
                 action->max_runs <= NP_MAX_RUNS,
             NP_BAD_REQUEST, why, "min_runs %u and max_runs %u, want 1 <= min <= max <= %u",
             action->min_runs, action->max_runs, NP_MAX_RUNS);
  NP_REQUIRE(action->rounds != 0 && action->rounds <= NP_MAX_ROUNDS, NP_BAD_REQUEST, why,
             "rounds %u, want 1 to %u", action->rounds, NP_MAX_ROUNDS);
  return NP_OK;
}

static enum np_status check_flags(const struct np_action *action, struct np_message *why) {
  const uint32_t flags = action->flags;
  const uint32_t ways = flags & (NP_ACTION_UNTIMED | NP_ACTION_CORUN | NP_ACTION_FRAMES);
  const int is_gauge = (flags & NP_ACTION_GAUGE) != 0;
  NP_REQUIRE((flags & ~(ways | NP_ACTION_COPIES | NP_ACTION_GAUGE)) == 0 &&
                 (ways & (ways - 1)) == 0 &&
                 (!is_gauge || (flags == NP_ACTION_GAUGE && action->group == 0)),
             NP_BAD_REQUEST, why,
             "flags 0x%x, known are bits 0 to 4, and one of bits 0 to 2 at most; with bit 4 "
             "no other and no group",
             flags);
  NP_REQUIRE((flags & NP_ACTION_UNTIMED) == 0 || (action->max_runs == 1 && action->rounds == 1),
             NP_BAD_REQUEST, why,
             "max_runs %u and rounds %u, want 1 and 1 without timing (flag bit 0)",
             action->max_runs, action->rounds);
  NP_REQUIRE((flags & NP_ACTION_CORUN) == 0 || action->min_runs == action->max_runs, NP_BAD_REQUEST,
             why, "min_runs %u and max_runs %u, want the same side by side (flag bit 1)",
             action->min_runs, action->max_runs);
  NP_REQUIRE((flags & NP_ACTION_FRAMES) == 0
                 ? action->in_flight == 0 && action->variants == 0
                 : action->in_flight != 0 && action->in_flight <= NP_MAX_IN_FLIGHT &&
                       action->variants != 0 && action->variants <= NP_MAX_VARIANTS,
             NP_BAD_REQUEST, why,
             "%u frames in flight and %u variants, want 1 to %u and 1 to %u, 0 elsewhere",
             action->in_flight, action->variants, NP_MAX_IN_FLIGHT, NP_MAX_VARIANTS);
  return NP_OK;
}

static enum np_status read_schedule(struct np_cursor *cursor, struct np_action *action,
                                    struct np_message *why) {
  action->id = np_take_u32(cursor);
  action->timeout_ms = np_take_u32(cursor);
  action->flags = np_take_u32(cursor);
  action->memory_kb = np_take_u32(cursor);
  action->group = np_take_u32(cursor);
  action->warmup_min = np_take_u32(cursor);
  action->warmup_max = np_take_u32(cursor);
  action->warmup_ns = np_take_u64(cursor);
  action->warm_ns = np_take_u64(cursor);
  action->spin_ns = np_take_u64(cursor);
  action->rounds = np_take_u32(cursor);
  action->min_runs = np_take_u32(cursor);
  action->max_runs = np_take_u32(cursor);
  action->budget_ns = np_take_u64(cursor);
  action->cooldown_ms = np_take_u32(cursor);
  action->in_flight = np_take_u32(cursor);
  action->variants = np_take_u32(cursor);
  NP_REQUIRE(!cursor->bad, NP_BAD_REQUEST, why, "it is cut off");
  NP_REQUIRE(action->timeout_ms != 0, NP_BAD_REQUEST, why, "timeout_ms 0, want more than 0");
  NP_TRY(check_runs(action, why));
  return check_flags(action, why);
}

/* Takes a count and that many items, in place. */
static const uint32_t *take_list(struct np_cursor *cursor, uint32_t words, uint32_t *n) {
  *n = np_take_u32(cursor);
  if (*n > np_cursor_left(cursor) / words) {
    cursor->bad = 1;
  }
  return np_take_words(cursor, (size_t)words * *n);
}

static enum np_status check_inputs(const struct np_request *request, const struct np_action *action,
                                   struct np_message *why) {
  for (uint32_t i = 0; i < action->n_weights; i++) {
    const uint32_t blob = action->weights[i * NP_WEIGHT_WORDS];
    NP_REQUIRE(blob < request->n_blobs, NP_BAD_REQUEST, why, "weights %u: blob %u of %u", i, blob,
               request->n_blobs);
  }
  for (uint32_t i = 0; i < action->n_inputs; i++) {
    const struct np_input *input = &action->inputs[i];
    NP_REQUIRE(input->source >= NP_FROM_BLOB && input->source <= NP_ZERO &&
                   (input->source != NP_FROM_BLOB || input->value < request->n_blobs) &&
                   (input->source != NP_ZERO || input->value == 0),
               NP_BAD_REQUEST, why, "input %u: source %u with value %u, %u blobs", i, input->source,
               input->value, request->n_blobs);
  }
  return NP_OK;
}

enum np_status np_action_read(struct np_cursor *cursor, const struct np_request *request,
                              struct np_section data, struct np_action *action,
                              struct np_message *why) {
  NP_TRY(read_schedule(cursor, action, why));
  const uint64_t offset = np_take_u64(cursor), length = np_take_u64(cursor);
  NP_REQUIRE(offset <= data.length && length <= data.length - offset && offset % 8 == 0,
             NP_BAD_REQUEST, why,
             "bundle: bytes %llu + %llu of DATA, which has %zu; want a multiple of 8",
             (unsigned long long)offset, (unsigned long long)length, data.length);
  action->bytes = (struct np_bytes){data.bytes ? data.bytes + offset : NULL, (size_t)length};
  action->weights = take_list(cursor, NP_WEIGHT_WORDS, &action->n_weights);
  action->inputs = (const struct np_input *)take_list(cursor, 2, &action->n_inputs);
  action->kept = take_list(cursor, 1, &action->n_kept);
  NP_REQUIRE(!cursor->bad, NP_BAD_REQUEST, why, "it is cut off");
  return check_inputs(request, action, why);
}

/* ---- With its bundle ---- */

uint32_t np_end_of(const struct np_bundle_end *ends, uint32_t n, uint32_t tensor) {
  uint32_t i = 0;
  while (i < n && ends[i].tensor != tensor) {
    i++;
  }
  return i;
}

/* Checks the rules of segments that run at the same time. */
static enum np_status check_corun(const struct np_bundle *bundle, struct np_message *why) {
  const uint32_t n = bundle->n_segments;
  NP_REQUIRE(n >= 2 && n <= NP_MAX_CORUN, NP_BAD_REQUEST, why,
             "%u segments, want 2 to %u side by side (flag bit 1)", n, NP_MAX_CORUN);
  for (uint32_t s = 0; s < n; s++) {
    const struct np_bundle_segment *segment = &bundle->segments[s];
    NP_REQUIRE(segment->engine != NP_BUNDLE_NNAPI || segment->accelerator, NP_BAD_REQUEST, why,
               "segment %u: NNAPI's own choice is not a processor to run side by side on", s);
    for (uint32_t o = 0; o < s; o++) {
      const struct np_bundle_segment *other = &bundle->segments[o];
      NP_REQUIRE(segment->engine != other->engine || (segment->engine != NP_BUNDLE_CPU &&
                                                      segment->accelerator != other->accelerator),
                 NP_BAD_REQUEST, why,
                 "segment %u: it runs side by side with segment %u, on its processor", s, o);
    }
    for (uint32_t i = 0; i < segment->n_inputs; i++) {
      NP_REQUIRE(np_end_of(bundle->inputs, bundle->n_inputs, segment->inputs[i].tensor) !=
                     bundle->n_inputs,
                 NP_BAD_REQUEST, why,
                 "segment %u: it reads tensor %u of a segment that runs side by side", s,
                 segment->inputs[i].tensor);
    }
  }
  return NP_OK;
}

static enum np_status check_bundle(const struct np_action *action, const struct np_bytes *blobs,
                                   struct np_message *why) {
  const struct np_bundle *bundle = &action->bundle;
  const int frames = (action->flags & NP_ACTION_FRAMES) != 0;
  NP_REQUIRE(frames ? bundle->n_shares == bundle->n_plans : bundle->n_plans == 1, NP_BAD_REQUEST,
             why, "%u plans and %u shares, want one plan, or of frames a share of each",
             bundle->n_plans, bundle->n_shares);
  NP_REQUIRE(action->n_inputs == bundle->n_inputs, NP_BAD_REQUEST, why,
             "%u inputs, its bundle has %u", action->n_inputs, bundle->n_inputs);
  for (uint32_t i = 0; i < action->n_inputs; i++) {
    const struct np_input *input = &action->inputs[i];
    const size_t n_bytes = bundle->inputs[i].known.n_bytes;
    NP_REQUIRE(input->source != NP_FROM_BLOB || blobs[input->value].length == n_bytes,
               NP_BAD_REQUEST, why, "input %u: blob %u has %zu bytes, type and shape want %zu", i,
               input->value, blobs[input->value].length, n_bytes);
  }
  for (uint32_t i = 0; i < action->n_kept; i++) {
    const uint32_t t = action->kept[i];
    const int is_output = np_end_of(bundle->outputs, bundle->n_outputs, t) < bundle->n_outputs;
    NP_REQUIRE(
        t < bundle->n_tensors && (i == 0 || t > action->kept[i - 1]) && (!frames || is_output),
        NP_BAD_REQUEST, why, "kept %u: tensor %u of %u, want ascending ones, outputs of frames", i,
        t, bundle->n_tensors);
  }
  NP_REQUIRE((action->flags & NP_ACTION_GAUGE) == 0 ||
                 (bundle->n_segments == 1 && bundle->segments[0].engine == NP_BUNDLE_NNAPI &&
                  bundle->segments[0].accelerator),
             NP_BAD_REQUEST, why,
             "%u segments, want one on an accelerator that is named (flag bit 4)",
             bundle->n_segments);
  return (action->flags & NP_ACTION_CORUN) != 0 ? check_corun(bundle, why) : NP_OK;
}

enum np_status np_action_bind(struct np_action *action, const struct np_bytes *blobs,
                              struct np_message *why) {
  nnp_weights *parts = calloc(action->n_weights + (size_t)1, sizeof *parts);
  if (!parts) {
    return NP_NO_MEMORY;
  }
  for (uint32_t i = 0; i < action->n_weights; i++) {
    const uint32_t *words = &action->weights[i * NP_WEIGHT_WORDS];
    parts[i] = (nnp_weights){.offset = (uint64_t)words[2] << 32 | words[1],
                             .bytes = blobs[words[0]].data,
                             .n_bytes = blobs[words[0]].length};
  }
  struct np_bundle *bundle = &action->bundle;
  const struct np_weights weights = {parts, action->n_weights};
  const enum np_status status =
      np_bundle_read(action->bytes.data, action->bytes.length, weights, bundle, why);
  free(parts);
  NP_TRY(status);
  action->threads = bundle->threads ? bundle->threads : 1;
  action->cpu_mask = bundle->cores == NP_BUNDLE_ANY   ? NP_ALL_CPUS
                     : bundle->cores == NP_BUNDLE_BIG ? 0
                                                      : bundle->cpu_mask;
  for (uint32_t s = 0; s < bundle->n_segments; s++) {
    const int on_nnapi = bundle->segments[s].engine == NP_BUNDLE_NNAPI;
    action->n_named += on_nnapi && bundle->segments[s].accelerator;
    action->n_chosen += on_nnapi && !bundle->segments[s].accelerator;
  }
  return check_bundle(action, blobs, why);
}

nnp_options np_action_options(const struct np_action *action) {
  const struct np_bundle *bundle = &action->bundle;
  return (nnp_options){.flags = (bundle->mode == NP_BUNDLE_BURST ? NNP_BURST : 0u) |
                                (bundle->mode == NP_BUNDLE_ASYNC ? NNP_ASYNC : 0u) |
                                (bundle->pointers ? NNP_POINTERS : 0u),
                       .threads = action->threads};
}
