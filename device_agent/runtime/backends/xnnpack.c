/* The back ends `fast` and `half`: regions of a lowered graph as XNNPACK runtimes.
 *
 * XNNPACK may read XNN_EXTRA_BYTES beyond the end of its inputs. Its own memory has that room, and
 * so have values between two steps. A caller's buffer may not: if those bytes would be on another
 * page, or the buffer is not aligned, the region uses a copy, allocated when the region is
 * compiled.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <pthreadpool.h>

#include "backends/xnnpack_rules.h"
#include "plan/np_plan.h"

_Static_assert(XNN_EXTRA_BYTES <= NP_TAIL, "temporaries have room behind them");

/* State that the regions of an executor share. */
struct workers {
  uint32_t n;
  int half;           /* FLOAT32 is computed in float16 where XNNPACK can */
  pthreadpool_t pool; /* NULL before there is a region, and if only the calling thread is used */
};

/* A tensor that crosses the region's border. */
struct border {
  uint32_t operand;
  int is_input;
  size_t bytes, element;
  int flipped;   /* its staging holds signed numbers */
  void *staging; /* [bytes]; NULL if it is never copied */
  void *outside; /* its address in this run */
};

struct state {
  xnn_runtime_t runtime;
  struct np_xnn_block *blocks;
  struct border *borders;            /* [n] inputs, then outputs */
  struct xnn_external_value *values; /* [n] for XNNPACK */
  uint32_t n;
  int is_set_up;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int is_initialised;

static void initialise(void) { is_initialised = xnn_initialize(NULL) == xnn_status_success; }

static int is_ready(void) { return pthread_once(&once, initialise) == 0 && is_initialised; }

enum np_half np_half_arithmetic(void) { return is_ready() ? np_xnn_half() : NP_HALF_NONE; }

const struct np_xnn_rule *np_xnn_rule_of(const struct np_call *call) {
  static const struct np_xnn_rule *const FAMILIES[] = {
      np_xnn_conv_rules,  np_xnn_pool_rules, np_xnn_elementwise_rules,
      np_xnn_shape_rules, np_xnn_join_rules, np_xnn_image_rules,
  };
  const int32_t type = call->operation->n_inputs > 0 ? np_in_operand(call, 0)->type : -1;
  for (size_t f = 0; f < sizeof FAMILIES / sizeof *FAMILIES; f++) {
    for (const struct np_xnn_rule *rule = FAMILIES[f]; rule->define != NULL; rule++) {
      if (rule->code == call->operation->code) {
        return type >= 0 && type < 32 && (rule->types & NP_BIT(type)) != 0 ? rule : NULL;
      }
    }
  }
  return NULL;
}

/* Returns whether XNNPACK computes the call in this way. */
static int defines(const struct np_xnn_rule *rule, const struct np_call *call,
                   enum np_xnn_way way) {
  struct np_xnn_graph scratch = {.way = way};
  if (xnn_create_subgraph(0, 0, &scratch.subgraph) != xnn_status_success) {
    return 0;
  }
  const enum xnn_status status = rule->define(&scratch, call, rule);
  xnn_delete_subgraph(scratch.subgraph);
  np_xnn_free_blocks(scratch.blocks);
  return status == xnn_status_success;
}

/* Returns whether the unsigned and the signed way differ for the call. */
static int is_unsigned(const struct np_call *call) {
  const struct np_operation *operation = call->operation;
  for (uint32_t i = 0; i < operation->n_inputs + operation->n_outputs; i++) {
    const uint32_t operand = i < operation->n_inputs ? operation->inputs[i]
                                                     : operation->outputs[i - operation->n_inputs];
    if (call->graph->operands[operand].type == NP_TYPE_TENSOR_QUANT8_ASYMM) {
      return 1;
    }
  }
  return 0;
}

static unsigned takes(const struct np_call *call) {
  static const unsigned UNSIGNED = 1u << NP_XNN_UNSIGNED;
  static const unsigned SIGNED = 1u << NP_XNN_SIGNED;
  const struct np_xnn_rule *rule = np_xnn_rule_of(call);
  if (rule == NULL || !is_ready()) {
    return 0;
  }
  if (!is_unsigned(call)) {
    return defines(rule, call, NP_XNN_UNSIGNED) ? UNSIGNED | SIGNED : 0;
  }
  return (defines(rule, call, NP_XNN_UNSIGNED) ? UNSIGNED : 0) |
         (defines(rule, call, NP_XNN_SIGNED) ? SIGNED : 0);
}

/* Operations in float16 are separate regions, since a subgraph of XNNPACK is in float16 as a whole
 * or not at all. */
static unsigned takes_half(const struct np_call *call) {
  static const unsigned HALF = 1u << NP_XNN_HALF;
  const unsigned ways = takes(call);
  return ways != 0 && np_half_arithmetic() != NP_HALF_NONE &&
                 np_xnn_half_of(call) != NP_XNN_HALF_NEVER
             ? HALF
             : ways;
}

/* Defines the border's values, which XNNPACK numbers from 0. */
static enum xnn_status define_borders(const struct np_region *region, struct np_xnn_graph *graph,
                                      struct state *state) {
  for (uint32_t b = 0; b < state->n; b++) {
    struct border *border = &state->borders[b];
    border->is_input = b < region->n_inputs;
    border->operand = border->is_input ? region->inputs[b] : region->outputs[b - region->n_inputs];
    const struct np_operand *operand = &region->graph->operands[border->operand];
    const struct np_tensor *tensor = &region->tensors[border->operand];
    NP_XNN_TRY(np_xnn_external(graph, operand, tensor, b,
                               border->is_input ? XNN_VALUE_FLAG_EXTERNAL_INPUT
                                                : XNN_VALUE_FLAG_EXTERNAL_OUTPUT));
    graph->values[border->operand] = b;
    state->values[b].id = b;
    border->element = np_type_bytes(operand->type);
    border->bytes = tensor->elements * border->element;
    border->flipped = np_xnn_flips(graph, operand->type);
    if (operand->lifetime == NP_TEMPORARY && !border->flipped) {
      continue; /* it has enough room behind it */
    }
    border->staging = np_xnn_room(graph, border->bytes);
    if (border->staging == NULL) {
      return xnn_status_out_of_memory;
    }
  }
  return xnn_status_success;
}

static enum xnn_status define_all(const struct np_region *region, struct np_xnn_graph *graph,
                                  struct state *state) {
  NP_XNN_TRY(define_borders(region, graph, state));
  for (uint32_t i = 0; i < region->n_operations; i++) {
    const struct np_call *call = &region->calls[region->operations[i]];
    const struct np_xnn_rule *rule = np_xnn_rule_of(call);
    NP_XNN_NEED(rule != NULL);
    NP_XNN_TRY(rule->define(graph, call, rule));
  }
  return xnn_status_success;
}

/* Checks that XNNPACK will write outputs of the expected shapes. */
static enum xnn_status check_shapes(const struct np_region *region, const struct state *state) {
  for (uint32_t b = region->n_inputs; b < state->n; b++) {
    const struct np_tensor *tensor = &region->tensors[state->borders[b].operand];
    size_t rank = 0;
    size_t dims[XNN_MAX_TENSOR_DIMS];
    NP_XNN_TRY(xnn_get_external_value_shape(state->runtime, b, &rank, dims));
    NP_XNN_NEED(rank == tensor->rank);
    for (uint32_t d = 0; d < tensor->rank; d++) {
      NP_XNN_NEED(dims[d] == tensor->dims[d]);
    }
  }
  return xnn_status_success;
}

/* Creates a runtime with a workspace of ours, since XNNPACK leaks its own on failure. */
static enum xnn_status create_runtime(const struct np_xnn_graph *graph, pthreadpool_t pool,
                                      struct state *state) {
  /* Workers sleep after a region, since the reference, or nothing for a long time, may follow. */
  const uint32_t flags = (pool != NULL ? XNN_FLAG_YIELD_WORKERS : 0) |
                         (graph->way == NP_XNN_HALF ? XNN_FLAG_FORCE_FP16_INFERENCE : 0);
  xnn_workspace_t workspace;
  NP_XNN_TRY(xnn_create_workspace(&workspace));
  const enum xnn_status status =
      xnn_create_runtime_v4(graph->subgraph, NULL, workspace, pool, flags, &state->runtime);
  (void)xnn_release_workspace(workspace); /* the runtime keeps it from here on */
  return status;
}

static enum xnn_status build(const struct np_region *region, struct np_xnn_graph *graph,
                             struct state *state) {
  NP_XNN_TRY(xnn_create_subgraph(state->n, 0, &graph->subgraph));
  NP_XNN_TRY(define_all(region, graph, state));
  struct workers *workers = region->shared;
  if (workers->n > 1 && workers->pool == NULL) {
    workers->pool = pthreadpool_create(workers->n);
    NP_XNN_NEED(workers->pool != NULL);
  }
  NP_XNN_TRY(create_runtime(graph, workers->pool, state));
  NP_XNN_TRY(xnn_reshape_runtime(state->runtime));
  return check_shapes(region, state);
}

static void release(void *opaque) {
  struct state *state = opaque;
  if (state == NULL) {
    return;
  }
  if (state->runtime != NULL) {
    (void)xnn_delete_runtime(state->runtime);
  }
  np_xnn_free_blocks(state->blocks);
  free(state->borders);
  free(state->values);
  free(state);
}

/* Makes the region's state in one way; after a failure *state keeps what was made. */
static enum xnn_status compile_way(const struct np_region *region, enum np_xnn_way way,
                                   struct state *state) {
  const uint32_t n_operands = region->graph->n_operands;
  struct np_xnn_graph graph = {.way = way};
  graph.values = malloc(np_mul_saturated(n_operands, sizeof *graph.values));
  state->n = region->n_inputs + region->n_outputs;
  state->borders = calloc(state->n, sizeof *state->borders);
  state->values = calloc(state->n, sizeof *state->values);
  enum xnn_status status = xnn_status_out_of_memory;
  if (graph.values != NULL && state->borders != NULL && state->values != NULL) {
    for (uint32_t i = 0; i < n_operands; i++) {
      graph.values[i] = XNN_INVALID_VALUE_ID;
    }
    status = is_ready() ? build(region, &graph, state) : xnn_status_unsupported_hardware;
  }
  state->blocks = graph.blocks;
  np_xnn_free_blocks(graph.passing);
  if (graph.subgraph != NULL) {
    (void)xnn_delete_subgraph(graph.subgraph);
  }
  free(graph.values);
  return status;
}

/* Lists the ways to try, the best last. Returns how many. */
static uint32_t list_ways(const struct np_region *region, enum np_xnn_way ways[2]) {
  const struct workers *workers = region->shared;
  uint32_t n = 1;
  ways[0] = NP_XNN_UNSIGNED;
  for (uint32_t i = 0; i < region->n_operations; i++) {
    const struct np_call *call = &region->calls[region->operations[i]];
    if (is_unsigned(call)) {
      ways[1] = NP_XNN_SIGNED;
      return 2;
    }
    if (workers->half && np_xnn_half_of(call) == NP_XNN_HALF_COMPUTES) {
      ways[1] = NP_XNN_HALF;
      n = 2;
    }
  }
  return n;
}

static enum np_status compile(const struct np_region *region, void **compiled,
                              struct np_message *why) {
  enum np_xnn_way ways[2];
  enum xnn_status status = xnn_status_unsupported_parameter;
  for (uint32_t w = list_ways(region, ways);
       w > 0 && status != xnn_status_success && status != xnn_status_out_of_memory; w--) {
    struct state *state = calloc(1, sizeof *state);
    status = state == NULL ? xnn_status_out_of_memory : compile_way(region, ways[w - 1], state);
    if (status == xnn_status_success) {
      *compiled = state;
      return NP_OK;
    }
    release(state);
  }
  np_message_set(
      why, "XNNPACK refuses the region of %u operations from operation %u (%s): status %d",
      region->n_operations, region->operations[0],
      np_operation_name(region->graph->operations[region->operations[0]].code), (int)status);
  return status == xnn_status_out_of_memory ? NP_NO_MEMORY : NP_UNSUPPORTED;
}

/* Finds the address of each border in this run. Returns whether XNNPACK must be set up again. */
static int find_borders(const struct np_region *region, struct state *state) {
  int moved = !state->is_set_up;
  for (uint32_t b = 0; b < state->n; b++) {
    struct border *border = &state->borders[b];
    const struct np_tensor *tensor = &region->tensors[border->operand];
    const void *data = border->is_input ? tensor->data : tensor->room;
    border->outside = (void *)(uintptr_t)data;
    const int copied = border->flipped || (border->staging != NULL &&
                                           np_xnn_must_copy(data, border->bytes, border->element));
    void *place = copied ? border->staging : border->outside;
    moved |= place != state->values[b].data;
    state->values[b].data = place;
  }
  return moved;
}

/* Copies between the caller's memory and a border's staging, in either direction. */
static void copy(const struct border *border, void *to, const void *from) {
  if (border->flipped) {
    np_xnn_copy_flipped(to, from, border->bytes);
  } else {
    memcpy(to, from, border->bytes);
  }
}

static enum np_status run(const struct np_region *region, void *opaque, struct np_message *why) {
  struct state *state = opaque;
  enum xnn_status status = xnn_status_success;
  if (find_borders(region, state)) {
    state->is_set_up = 0;
    status = xnn_setup_runtime_v2(state->runtime, state->n, state->values);
    state->is_set_up = status == xnn_status_success;
  }
  for (uint32_t b = 0; b < region->n_inputs; b++) {
    const struct border *border = &state->borders[b];
    if (state->values[b].data != border->outside) {
      copy(border, state->values[b].data, border->outside);
    }
  }
  if (status == xnn_status_success) {
    status = xnn_invoke_runtime(state->runtime);
  }
  if (status != xnn_status_success) {
    np_message_set(why, "XNNPACK failed with status %d", (int)status);
    return status == xnn_status_out_of_memory ? NP_NO_MEMORY : NP_RUN_FAILED;
  }
  for (uint32_t b = region->n_inputs; b < state->n; b++) {
    const struct border *border = &state->borders[b];
    if (state->values[b].data != border->outside) {
      copy(border, border->outside, state->values[b].data);
    }
  }
  return NP_OK;
}

/* More threads are of no use, and if the system cannot make all, pthreadpool waits for the rest for
 * ever. */
#define MOST_THREADS 64u

static enum np_status open_for(uint32_t threads, int half, void **shared, struct np_message *why) {
  struct workers *workers = calloc(1, sizeof *workers);
  if (workers == NULL) {
    np_message_set(why, "no memory for threads");
    return NP_NO_MEMORY;
  }
  workers->n = threads < MOST_THREADS ? threads : MOST_THREADS;
  workers->half = half;
  *shared = workers;
  return NP_OK;
}

static enum np_status open_workers(uint32_t threads, void **shared, struct np_message *why) {
  return open_for(threads, 0, shared, why);
}

static enum np_status open_half(uint32_t threads, void **shared, struct np_message *why) {
  return open_for(threads, 1, shared, why);
}

static void close_workers(void *shared) {
  struct workers *workers = shared;
  if (workers->pool != NULL) {
    pthreadpool_destroy(workers->pool);
  }
  free(workers);
}

const struct np_backend np_xnnpack_backend = {
    .name = "fast",
    .joins = 1,
    .open = open_workers,
    .close = close_workers,
    .takes = takes,
    .compile = compile,
    .run = run,
    .free = release,
};

const struct np_backend np_xnnpack_half_backend = {
    .name = "half",
    .joins = 1,
    .open = open_half,
    .close = close_workers,
    .takes = takes_half,
    .compile = compile,
    .run = run,
    .free = release,
};
