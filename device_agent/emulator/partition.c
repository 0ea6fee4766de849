/* Placement of operations on accelerators, as Android's runtime does it.
 *
 * The rule is that of ExecutionPlan in Android's NNAPI runtime, told in PHONES.md: a static
 * performance number per device decides; neither hand-over nor invocation cost is looked at. */
#include "partition.h"

#include <stdlib.h>

#define NOBODY UINT32_MAX

static int is_cpu(const struct np_accelerator *a) { return a->type == ANEURALNETWORKS_DEVICE_CPU; }

enum np_status np_assign(const struct np_graph *graph, const struct np_choices *choices,
                         uint32_t *assignment, uint32_t *operation) {
  for (uint32_t k = 0; k < graph->n_operations; k++) {
    uint32_t best = NOBODY;
    for (uint32_t i = 0; i < choices->n_accelerators; i++) {
      if (!choices->supported[(size_t)i * graph->n_operations + k])
        continue;
      const struct np_accelerator *a = choices->accelerators[i];
      const struct np_accelerator *b = best == NOBODY ? NULL : choices->accelerators[best];
      if (!b || a->performance < b->performance ||
          (a->performance <= b->performance && is_cpu(a) && !is_cpu(b))) {
        best = i;
      }
    }
    if (best == NOBODY) {
      *operation = k;
      return NP_UNSUPPORTED;
    }
    assignment[k] = best;
  }
  return NP_OK;
}

/* Work space of np_make_steps; arrays of one allocation each. */
struct cutter {
  const struct np_graph *graph;
  const struct np_choices *choices;
  const uint32_t *assignment;
  uint32_t *writer;  /* [n_operands] operation that writes the operand, or NOBODY */
  uint32_t *step_of; /* [n_operations] step of an operation, or NOBODY */
  uint32_t *seen_by; /* [n_operands] last step that counted the operand as its input */
};

static int ready(const struct cutter *c, uint32_t operation) {
  if (c->step_of[operation] != NOBODY)
    return 0;
  const struct np_operation *o = &c->graph->operations[operation];
  for (uint32_t i = 0; i < o->n_inputs; i++) {
    const uint32_t writer = c->writer[o->inputs[i]];
    if (writer != NOBODY && c->step_of[writer] == NOBODY)
      return 0;
  }
  return 1;
}

/* The accelerator of the next step, NOBODY when all operations are placed. */
static uint32_t next_accelerator(const struct cutter *c) {
  uint32_t first = NOBODY;
  for (uint32_t k = 0; k < c->graph->n_operations; k++) {
    if (!ready(c, k))
      continue;
    if (is_cpu(c->choices->accelerators[c->assignment[k]]))
      return c->assignment[k];
    if (first == NOBODY)
      first = c->assignment[k];
  }
  return first;
}

/* Adds operation k to step s: its time, its constants, and what it reads from outside. */
static void add_operation(struct cutter *c, struct np_step *step, uint32_t s, uint32_t k,
                          bool relaxed) {
  const struct np_operation *o = &c->graph->operations[k];
  const struct np_work work = np_operation_work(c->graph, k);
  c->step_of[k] = s;
  step->n_operations++;
  step->operations_ns += np_operation_ns(&step->accelerator->unit, o->code, &work, relaxed, 1);
  step->constant_bytes += work.constant_bytes;
  for (uint32_t i = 0; i < o->n_inputs; i++) {
    const uint32_t operand = o->inputs[i];
    const uint32_t writer = c->writer[operand];
    const int from_outside = writer == NOBODY ? c->graph->operands[operand].lifetime == NP_INPUT
                                              : c->step_of[writer] != s;
    if (!from_outside || c->seen_by[operand] == s)
      continue;
    c->seen_by[operand] = s;
    step->boundary_bytes += np_operand_bytes(&c->graph->operands[operand]);
  }
}

/* Adds what leaves each step: operands that another step reads, or that the model returns. */
static void add_outputs(struct cutter *c, struct np_step *steps) {
  const struct np_graph *graph = c->graph;
  for (uint32_t i = 0; i < graph->n_operands; i++)
    c->seen_by[i] = NOBODY;
  for (uint32_t k = 0; k < graph->n_operations; k++) {
    const struct np_operation *o = &graph->operations[k];
    for (uint32_t i = 0; i < o->n_inputs; i++) {
      const uint32_t writer = c->writer[o->inputs[i]];
      if (writer != NOBODY && c->step_of[writer] != c->step_of[k])
        c->seen_by[o->inputs[i]] = 0;
    }
  }
  for (uint32_t i = 0; i < graph->n_operands; i++) {
    const struct np_operand *operand = &graph->operands[i];
    if (c->writer[i] == NOBODY)
      continue;
    if (operand->lifetime != NP_OUTPUT && c->seen_by[i] == NOBODY)
      continue;
    steps[c->step_of[c->writer[i]]].boundary_bytes += np_operand_bytes(operand);
  }
}

static uint32_t cut(struct cutter *c, struct np_step *steps, bool relaxed) {
  uint32_t n = 0;
  for (uint32_t a = next_accelerator(c); a != NOBODY; a = next_accelerator(c), n++) {
    steps[n] = (struct np_step){.accelerator = c->choices->accelerators[a]};
    /* The graph is sorted, so one pass finds all that become ready within the step. */
    for (uint32_t k = 0; k < c->graph->n_operations; k++) {
      if (c->assignment[k] == a && ready(c, k))
        add_operation(c, &steps[n], n, k, relaxed);
    }
  }
  add_outputs(c, steps);
  return n;
}

enum np_status np_make_steps(const struct np_graph *graph, const struct np_choices *choices,
                             const uint32_t *assignment, bool relaxed, struct np_step **steps,
                             uint32_t *n_steps) {
  struct cutter c = {graph, choices, assignment, NULL, NULL, NULL};
  const size_t n_operands = graph->n_operands ? graph->n_operands : 1;
  const size_t n_operations = graph->n_operations ? graph->n_operations : 1;
  c.writer = malloc(n_operands * sizeof *c.writer);
  c.seen_by = malloc(n_operands * sizeof *c.seen_by);
  c.step_of = malloc(n_operations * sizeof *c.step_of);
  *steps = calloc(n_operations, sizeof **steps);
  *n_steps = 0;
  enum np_status status = NP_NO_MEMORY;
  if (c.writer && c.seen_by && c.step_of && *steps) {
    for (uint32_t i = 0; i < graph->n_operands; i++)
      c.writer[i] = c.seen_by[i] = NOBODY;
    for (uint32_t k = 0; k < graph->n_operations; k++) {
      const struct np_operation *o = &graph->operations[k];
      c.step_of[k] = NOBODY;
      for (uint32_t i = 0; i < o->n_outputs; i++)
        c.writer[o->outputs[i]] = k;
    }
    *n_steps = cut(&c, *steps, relaxed);
    status = NP_OK;
  } else {
    free(*steps);
    *steps = NULL;
  }
  free(c.writer);
  free(c.seen_by);
  free(c.step_of);
  return status;
}
