/* Linearisation: orders the operations of a lowered graph and cuts them into steps. */
#include <stdlib.h>
#include <string.h>

#include "plan/np_plan.h"

/* Returns the ways in which the back end computes a call as part of a region. */
static unsigned takes(const struct np_backend *backend, const struct np_call *call) {
  return !backend->joins ? 0u : backend->takes == NULL ? 1u : backend->takes(call);
}

/* Work space of np_linearise. */
struct order {
  const struct np_graph *graph;
  uint32_t *writer;     /* [n_operands] operation that writes the operand, n_operations for none */
  unsigned char *done;  /* [n_operations] */
  unsigned char *taken; /* [n_operations] by the joining back end */
};

static int ready(const struct order *order, uint32_t o) {
  const struct np_operation *operation = &order->graph->operations[o];
  for (uint32_t i = 0; i < operation->n_inputs; i++) {
    const uint32_t writer = order->writer[operation->inputs[i]];
    if (writer < order->graph->n_operations && !order->done[writer]) {
      return 0;
    }
  }
  return !order->done[o];
}

/* Fills sequence [n_operations] in passes over the sorted graph that pick ready operations of one
 * kind, then of the other, until all are placed. */
static void arrange(struct order *order, uint32_t *sequence) {
  const uint32_t n = order->graph->n_operations;
  uint32_t placed = 0;
  for (unsigned char kind = 0; placed < n; kind = !kind) {
    for (uint32_t o = 0; o < n; o++) {
      if (order->taken[o] == kind && ready(order, o)) {
        order->done[o] = 1;
        sequence[placed++] = o;
      }
    }
  }
}

/* Puts operations and calls into the sequence's order. */
static enum np_status permute(struct np_graph *graph, struct np_call *calls,
                              const uint32_t *sequence) {
  const size_t n = graph->n_operations;
  struct np_operation *operations = malloc((n + 1) * sizeof *operations);
  struct np_call *moved = malloc((n + 1) * sizeof *moved);
  const int enough = operations != NULL && moved != NULL;
  for (uint32_t i = 0; enough && i < n; i++) {
    operations[i] = graph->operations[sequence[i]];
    moved[i] = calls[sequence[i]];
    moved[i].index = i;
    moved[i].operation = &graph->operations[i];
  }
  if (enough) {
    memcpy(graph->operations, operations, n * sizeof *operations);
    memcpy(calls, moved, n * sizeof *moved);
  }
  free(operations);
  free(moved);
  return enough ? NP_OK : NP_NO_MEMORY;
}

enum np_status np_linearise(struct np_graph *graph, struct np_call *calls,
                            const struct np_backend *backend) {
  if (!backend->joins) {
    return NP_OK; /* keep the order of the given graph */
  }
  const size_t n = (size_t)graph->n_operations + 1;
  struct order order = {.graph = graph,
                        .writer = malloc(((size_t)graph->n_operands + 1) * sizeof *order.writer),
                        .done = calloc(n, 1),
                        .taken = calloc(n, 1)};
  uint32_t *sequence = malloc(n * sizeof *sequence);
  enum np_status status = NP_NO_MEMORY;
  if (order.writer != NULL && order.done != NULL && order.taken != NULL && sequence != NULL) {
    for (uint32_t i = 0; i < graph->n_operands; i++) {
      order.writer[i] = graph->n_operations;
    }
    for (uint32_t o = 0; o < graph->n_operations; o++) {
      order.taken[o] = takes(backend, &calls[o]) != 0;
      for (uint32_t i = 0; i < graph->operations[o].n_outputs; i++) {
        order.writer[graph->operations[o].outputs[i]] = o;
      }
    }
    arrange(&order, sequence);
    status = permute(graph, calls, sequence);
  }
  free(order.writer);
  free(order.done);
  free(order.taken);
  free(sequence);
  return status;
}

/* Fills region->inputs and outputs, which have room for all operands of its operations. */
static void find_border(struct np_region *region, const uint32_t *step_of_writer,
                        const unsigned char *leaves, uint32_t step, uint32_t *inputs,
                        uint32_t *outputs, unsigned char *seen) {
  const struct np_graph *graph = region->graph;
  region->inputs = inputs;
  region->outputs = outputs;
  for (uint32_t k = 0; k < region->n_operations; k++) {
    const struct np_operation *operation = &graph->operations[region->operations[k]];
    for (uint32_t i = 0; i < operation->n_inputs; i++) {
      const uint32_t operand = operation->inputs[i];
      const enum np_lifetime lifetime = graph->operands[operand].lifetime;
      if (lifetime == NP_CONSTANT || lifetime == NP_NO_VALUE || seen[operand] ||
          step_of_writer[operand] == step) {
        continue;
      }
      seen[operand] = 1;
      inputs[region->n_inputs++] = operand;
    }
    for (uint32_t i = 0; i < operation->n_outputs; i++) {
      if (leaves[operation->outputs[i]] || region->n_operations == 1) {
        outputs[region->n_outputs++] = operation->outputs[i];
      }
    }
  }
  for (uint32_t i = 0; i < region->n_inputs; i++) {
    seen[inputs[i]] = 0;
  }
}

/* Work space of np_plan_steps. */
struct borders {
  uint32_t *step_of;     /* [n_operands] step that writes the operand, UINT32_MAX for none */
  unsigned char *leaves; /* [n_operands] is read by another step, or by the caller */
  unsigned char *seen;   /* [n_operands] */
};

/* Fills step_of and leaves from the steps' operations. */
static void find_leaving(const struct np_graph *graph, const struct np_plan *plan,
                         struct borders *b) {
  for (uint32_t i = 0; i < graph->n_operands; i++) {
    b->step_of[i] = UINT32_MAX;
    b->leaves[i] = graph->operands[i].lifetime == NP_OUTPUT;
  }
  for (int pass = 0; pass < 2; pass++) {
    for (uint32_t s = 0; s < plan->n_steps; s++) {
      const struct np_region *region = &plan->steps[s].region;
      for (uint32_t k = 0; k < region->n_operations; k++) {
        const struct np_operation *operation = &graph->operations[region->operations[k]];
        for (uint32_t i = 0; pass == 0 && i < operation->n_outputs; i++) {
          b->step_of[operation->outputs[i]] = s;
        }
        for (uint32_t i = 0; pass == 1 && i < operation->n_inputs; i++) {
          b->leaves[operation->inputs[i]] |= b->step_of[operation->inputs[i]] != s;
        }
      }
    }
  }
}

/* Gives every step its lists of inputs and outputs, cut from plan->operands. */
static enum np_status draw_borders(const struct np_graph *graph, struct np_plan *plan) {
  size_t room = 1;
  for (uint32_t o = 0; o < graph->n_operations; o++) {
    room += (size_t)graph->operations[o].n_inputs + graph->operations[o].n_outputs;
  }
  const size_t n = (size_t)graph->n_operands + 1;
  struct borders b = {
      .step_of = malloc(n * sizeof *b.step_of), .leaves = calloc(n, 1), .seen = calloc(n, 1)};
  free(plan->operands);
  plan->operands = malloc(room * sizeof *plan->operands);
  const int enough =
      b.step_of != NULL && b.leaves != NULL && b.seen != NULL && plan->operands != NULL;
  if (enough) {
    find_leaving(graph, plan, &b);
    uint32_t *next = plan->operands;
    for (uint32_t s = 0; s < plan->n_steps; s++) {
      struct np_region *region = &plan->steps[s].region;
      uint32_t *inputs = next;
      for (uint32_t k = 0; k < region->n_operations; k++) {
        next += graph->operations[region->operations[k]].n_inputs;
      }
      region->n_inputs = region->n_outputs = 0;
      find_border(region, b.step_of, b.leaves, s, inputs, next, b.seen);
      next += region->n_outputs;
    }
  }
  free(b.step_of);
  free(b.leaves);
  free(b.seen);
  return enough ? NP_OK : NP_NO_MEMORY;
}

enum np_status np_plan_steps(const struct np_graph *graph, struct np_call *calls,
                             const struct np_backend *backend, void *shared, struct np_plan *plan) {
  const size_t n = (size_t)graph->n_operations + 1;
  plan->steps = calloc(n, sizeof *plan->steps);
  plan->operations = malloc(n * sizeof *plan->operations);
  if (plan->steps == NULL || plan->operations == NULL) {
    return NP_NO_MEMORY;
  }
  unsigned ways = 0; /* the last step's, a region that can grow if this is not 0 */
  for (uint32_t o = 0; o < graph->n_operations; o++) {
    const unsigned taken = takes(backend, &calls[o]);
    plan->operations[o] = o;
    if ((ways & taken) != 0) {
      plan->steps[plan->n_steps - 1].region.n_operations++;
      ways &= taken;
      continue;
    }
    plan->steps[plan->n_steps++] =
        (struct np_step){.backend = taken != 0 ? backend : &np_reference_backend,
                         .region = {.graph = graph,
                                    .tensors = calls[o].tensors,
                                    .calls = calls,
                                    .operations = &plan->operations[o],
                                    .n_operations = 1,
                                    .shared = shared}};
    ways = taken;
  }
  return draw_borders(graph, plan);
}

enum np_status np_plan_split(struct np_plan *plan, uint32_t step) {
  const struct np_region region = plan->steps[step].region;
  memmove(&plan->steps[step + region.n_operations], &plan->steps[step + 1],
          (plan->n_steps - step - 1) * sizeof *plan->steps);
  for (uint32_t k = 0; k < region.n_operations; k++) {
    struct np_step *one = &plan->steps[step + k];
    *one = (struct np_step){.backend = &np_reference_backend, .region = region};
    one->region.operations = &region.operations[k];
    one->region.n_operations = 1;
  }
  plan->n_steps += region.n_operations - 1;
  return draw_borders(region.graph, plan);
}

void np_plan_borders(const struct np_plan *plan, const struct np_graph *graph,
                     unsigned char *placed) {
  memset(placed, 0, graph->n_operands);
  for (uint32_t s = 0; s < plan->n_steps; s++) {
    const struct np_region *region = &plan->steps[s].region;
    for (uint32_t i = 0; i < region->n_outputs; i++) {
      placed[region->outputs[i]] = graph->operands[region->outputs[i]].lifetime == NP_TEMPORARY;
    }
  }
}

void np_plan_clear(struct np_plan *plan) {
  for (uint32_t s = 0; s < plan->n_steps; s++) {
    if (plan->steps[s].state != NULL) {
      plan->steps[s].backend->free(plan->steps[s].state);
    }
  }
  free(plan->steps);
  free(plan->operations);
  free(plan->operands);
  *plan = (struct np_plan){0};
}
