/* Placement of operations on accelerators, as Android's runtime does it.
 *
 * The rule is that of ExecutionPlan in Android's NNAPI runtime (see PHONES.md): a static
 * performance number per device decides; costs of transfer and invocation are ignored. */
#include "partition.h"

#include <stdlib.h>

#define NOBODY UINT32_MAX

static int is_cpu(const struct np_accelerator *a) { return a->type == ANEURALNETWORKS_DEVICE_CPU; }

/* Returns the driver's number for a kind of data, which Android's runtime compares. */
static double rating(const struct np_choices *choices, const struct np_accelerator *a,
                     enum np_data data) {
  const bool low_power = choices->preference == ANEURALNETWORKS_PREFER_LOW_POWER;
  return (low_power ? &a->power : &a->performance)->value[data];
}

enum np_status np_assign(const struct np_graph *graph, const struct np_choices *choices,
                         uint32_t *assignment, uint32_t *operation) {
  for (uint32_t k = 0; k < graph->n_operations; k++) {
    const enum np_data data = np_data_of(np_operation_work(graph, k).type, choices->relaxed);
    uint32_t best = NOBODY;
    for (uint32_t i = 0; i < choices->n_accelerators; i++) {
      if (!choices->supported[(size_t)i * graph->n_operations + k]) {
        continue;
      }
      const struct np_accelerator *a = choices->accelerators[i];
      const struct np_accelerator *b = best == NOBODY ? NULL : choices->accelerators[best];
      const double mine = rating(choices, a, data);
      const double its = b ? rating(choices, b, data) : 0;
      if (!b || mine < its || (mine <= its && is_cpu(a) && !is_cpu(b))) {
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
  uint32_t *reader;  /* [n_operands] the only operation that reads the operand, or NOBODY */
  bool *timed;       /* [n_operations] whether a step's time includes the operation's */
};

static int ready(const struct cutter *c, uint32_t operation) {
  if (c->step_of[operation] != NOBODY) {
    return 0;
  }
  const struct np_operation *o = &c->graph->operations[operation];
  for (uint32_t i = 0; i < o->n_inputs; i++) {
    const uint32_t writer = c->writer[o->inputs[i]];
    if (writer != NOBODY && c->step_of[writer] == NOBODY) {
      return 0;
    }
  }
  return 1;
}

/* The accelerator of the next step, NOBODY when all operations are placed. */
static uint32_t next_accelerator(const struct cutter *c) {
  uint32_t first = NOBODY;
  for (uint32_t k = 0; k < c->graph->n_operations; k++) {
    if (!ready(c, k)) {
      continue;
    }
    if (is_cpu(c->choices->accelerators[c->assignment[k]])) {
      return c->assignment[k];
    }
    if (first == NOBODY) {
      first = c->assignment[k];
    }
  }
  return first;
}

/* Adds operation k to step s: its constants, and the bytes it reads from outside. */
static void add_operation(struct cutter *c, struct np_step *step, uint32_t s, uint32_t k) {
  const struct np_operation *o = &c->graph->operations[k];
  const struct np_work work = np_operation_work(c->graph, k);
  c->step_of[k] = s;
  step->n_operations++;
  step->constant_bytes += work.constant_bytes;
  for (uint32_t i = 0; i < o->n_inputs; i++) {
    const uint32_t operand = o->inputs[i];
    const uint32_t writer = c->writer[operand];
    const int from_outside = writer == NOBODY ? c->graph->operands[operand].lifetime == NP_INPUT
                                              : c->step_of[writer] != s;
    if (!from_outside || c->seen_by[operand] == s) {
      continue;
    }
    c->seen_by[operand] = s;
    step->boundary_bytes += np_operand_bytes(&c->graph->operands[operand]);
  }
}

/* Adds the bytes that leave each step: operands that another step reads, or that the model
 * returns. */
static void add_outputs(struct cutter *c, struct np_step *steps) {
  const struct np_graph *graph = c->graph;
  for (uint32_t i = 0; i < graph->n_operands; i++) {
    c->seen_by[i] = NOBODY;
  }
  for (uint32_t k = 0; k < graph->n_operations; k++) {
    const struct np_operation *o = &graph->operations[k];
    for (uint32_t i = 0; i < o->n_inputs; i++) {
      const uint32_t writer = c->writer[o->inputs[i]];
      if (writer != NOBODY && c->step_of[writer] != c->step_of[k]) {
        c->seen_by[o->inputs[i]] = 0;
      }
    }
  }
  for (uint32_t i = 0; i < graph->n_operands; i++) {
    const struct np_operand *operand = &graph->operands[i];
    if (c->writer[i] == NOBODY) {
      continue;
    }
    if (operand->lifetime != NP_OUTPUT && c->seen_by[i] == NOBODY) {
      continue;
    }
    steps[c->step_of[c->writer[i]]].boundary_bytes += np_operand_bytes(operand);
  }
}

/* Returns the operation that is the only reader of operation k's output, in the same step and not
 * timed yet, and the operand between them; NOBODY if there is none. */
static uint32_t follower(const struct cutter *c, uint32_t k, uint32_t *between) {
  const struct np_operation *o = &c->graph->operations[k];
  if (o->n_outputs != 1) {
    return NOBODY;
  }
  *between = o->outputs[0];
  const uint32_t next = c->reader[*between];
  if (next == NOBODY || c->graph->operands[*between].lifetime != NP_TEMPORARY ||
      c->step_of[next] != c->step_of[k] || c->timed[next]) {
    return NOBODY;
  }
  return next;
}

static bool place_takes(const struct np_fusion *fusion, uint32_t place, int32_t code) {
  return code >= 0 && code < NP_OPERATION_CODES && fusion->takes[place][code];
}

/* Returns how many operations from k on a rule fuses, 0 if it does not apply; chain[] receives
 * them, and *saved the bytes that need no longer be written and read. */
static uint32_t match(const struct cutter *c, const struct np_fusion *fusion, uint32_t k,
                      uint32_t *chain, double *saved) {
  *saved = 0;
  for (uint32_t place = 0;; place++) {
    if (!place_takes(fusion, place, c->graph->operations[k].code)) {
      return 0;
    }
    chain[place] = k;
    if (place + 1 == fusion->n) {
      return fusion->n;
    }
    uint32_t between = 0;
    k = follower(c, k, &between);
    if (k == NOBODY) {
      return 0;
    }
    *saved += 2 * (double)np_operand_bytes(&c->graph->operands[between]);
  }
}

/* Adds the time of operation k and of those that its accelerator fuses with it. The arithmetic of
 * the smaller ones overlaps with the largest; values between them are not moved. */
static void add_time(struct cutter *c, struct np_step *step, uint32_t k) {
  const struct np_accelerator *a = step->accelerator;
  uint32_t chain[NP_MAX_FUSED] = {k}, n = 0;
  double saved = 0;
  for (uint32_t i = 0; i < a->n_fusions && n == 0; i++) {
    n = match(c, &a->fusions[i], k, chain, &saved);
  }
  struct np_cost fused = {0, n == 0 ? 0 : -saved};
  for (uint32_t i = 0; i < (n == 0 ? 1 : n); i++) {
    const uint32_t one = i == 0 ? k : chain[i];
    const struct np_work work = np_operation_work(c->graph, one);
    const struct np_cost cost =
        np_cost_of(&a->unit, c->graph->operations[one].code, &work, c->choices->relaxed, 1);
    fused.compute = cost.compute > fused.compute ? cost.compute : fused.compute;
    fused.bytes += cost.bytes;
    c->timed[one] = true;
  }
  step->operations_ns += np_cost_ns(&a->unit, &fused);
  step->memory_ns += np_cost_memory_ns(&a->unit, &fused);
  step->bytes += fused.bytes;
}

static uint32_t cut(struct cutter *c, struct np_step *steps) {
  uint32_t n = 0;
  for (uint32_t a = next_accelerator(c); a != NOBODY; a = next_accelerator(c), n++) {
    steps[n] = (struct np_step){.accelerator = c->choices->accelerators[a]};
    /* The graph is sorted, so one pass finds all operations that become ready within the step. */
    for (uint32_t k = 0; k < c->graph->n_operations; k++) {
      if (c->assignment[k] == a && ready(c, k)) {
        add_operation(c, &steps[n], n, k);
      }
    }
  }
  for (uint32_t k = 0; k < c->graph->n_operations; k++) {
    if (!c->timed[k]) {
      add_time(c, &steps[c->step_of[k]], k);
    }
  }
  add_outputs(c, steps);
  return n;
}

/* Finds the writer and the only reader of each operand. */
static void find_ends(struct cutter *c) {
  const struct np_graph *graph = c->graph;
  for (uint32_t i = 0; i < graph->n_operands; i++) {
    c->writer[i] = c->seen_by[i] = c->reader[i] = NOBODY;
  }
  for (uint32_t k = 0; k < graph->n_operations; k++) {
    const struct np_operation *o = &graph->operations[k];
    c->step_of[k] = NOBODY;
    for (uint32_t i = 0; i < o->n_outputs; i++) {
      c->writer[o->outputs[i]] = k;
    }
    for (uint32_t i = 0; i < o->n_inputs; i++) {
      const uint32_t operand = o->inputs[i];
      c->reader[operand] = c->seen_by[operand] == NOBODY ? k : NOBODY;
      c->seen_by[operand] = k; /* borrowed: whether the operand has a reader */
    }
  }
  for (uint32_t i = 0; i < graph->n_operands; i++) {
    c->seen_by[i] = NOBODY;
  }
}

static bool make_room(struct cutter *c) {
  const size_t n_operands = c->graph->n_operands ? c->graph->n_operands : 1;
  const size_t n_operations = c->graph->n_operations ? c->graph->n_operations : 1;
  c->writer = malloc(n_operands * sizeof *c->writer);
  c->seen_by = malloc(n_operands * sizeof *c->seen_by);
  c->reader = malloc(n_operands * sizeof *c->reader);
  c->step_of = malloc(n_operations * sizeof *c->step_of);
  c->timed = calloc(n_operations, sizeof *c->timed);
  return c->writer && c->seen_by && c->reader && c->step_of && c->timed;
}

enum np_status np_make_steps(const struct np_graph *graph, const struct np_choices *choices,
                             const uint32_t *assignment, struct np_step **steps,
                             uint32_t *n_steps) {
  struct cutter c = {.graph = graph, .choices = choices, .assignment = assignment};
  *steps = calloc(graph->n_operations ? graph->n_operations : 1, sizeof **steps);
  *n_steps = 0;
  enum np_status status = NP_NO_MEMORY;
  if (make_room(&c) && *steps) {
    find_ends(&c);
    *n_steps = cut(&c, *steps);
    status = NP_OK;
  } else {
    free(*steps);
    *steps = NULL;
  }
  free(c.writer);
  free(c.seen_by);
  free(c.reader);
  free(c.step_of);
  free(c.timed);
  return status;
}
