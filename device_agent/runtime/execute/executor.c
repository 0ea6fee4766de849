/* Creates executors: lowers, infers, linearises, compiles with the back ends, and plans memory. */
#define _POSIX_C_SOURCE 200809L
#include "np_executor.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "execute/np_clock.h"
#include "execute/np_execute.h"

enum np_status np_block_grow(struct np_block *block, size_t bytes, struct np_message *why) {
  if (bytes <= block->bytes && block->raw != NULL) {
    return NP_OK;
  }
  free(block->raw);
  *block = (struct np_block){0};
  block->raw = bytes > SIZE_MAX - 2 * NP_ALIGNMENT ? NULL : malloc(bytes + 2 * NP_ALIGNMENT);
  if (block->raw == NULL) {
    np_message_set(why, "no memory for %zu bytes", bytes);
    return NP_NO_MEMORY;
  }
  block->start = (unsigned char *)block->raw +
                 (NP_ALIGNMENT - (uintptr_t)block->raw % NP_ALIGNMENT) % NP_ALIGNMENT;
  block->bytes = bytes;
  return NP_OK;
}

void np_block_free(struct np_block *block) {
  free(block->raw);
  *block = (struct np_block){0};
}

uint64_t np_monotonic_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

enum np_status np_check_deadline(const struct np_limits *limits, struct np_message *why) {
  if (limits == NULL || limits->deadline_ns == 0 || np_monotonic_ns() < limits->deadline_ns) {
    return NP_OK;
  }
  np_message_set(why, "the deadline has passed");
  return NP_DEADLINE;
}

enum np_status np_check_inputs(const struct np_call *call) {
  const uint32_t n = call->operation->n_inputs;
  for (uint32_t i = 0; i < n; i++) {
    if (np_in(call, i)->data == NULL && np_in_operand(call, i)->type != NP_TYPE_MODEL &&
        !np_form_input(call->form, n, i)->optional) {
      return np_fail(call, NP_BAD_ARGUMENT, "input %u (operand %u) is left out of this run", i,
                     call->operation->inputs[i]);
    }
  }
  return NP_OK;
}

/* Fills the calls; NP_UNSUPPORTED or NP_BAD_MODEL for an operation that np_graph_check refuses. */
static enum np_status bind_calls(struct np_executor *executor, struct np_message *why) {
  const struct np_graph *graph = executor->graph;
  for (uint32_t o = 0; o < graph->n_operations; o++) {
    struct np_call *call = &executor->calls[o];
    const struct np_operation *operation = &graph->operations[o];
    *call = (struct np_call){.graph = graph,
                             .index = o,
                             .operation = operation,
                             .kernel = np_kernel_of(operation->code),
                             .tensors = executor->tensors,
                             .options = &executor->options,
                             .why = why};
    if (call->kernel == NULL) {
      return np_fail(call, NP_UNSUPPORTED, "this engine has no kernel for the operation");
    }
    call->form = np_form_of(graph, o, why);
    if (call->form == NULL) {
      return NP_BAD_MODEL;
    }
  }
  return NP_OK;
}

/* Infers the shapes of all operations in order. NP_MISSING if one cannot be known yet. */
static enum np_status infer_all(struct np_executor *executor, struct np_message *why) {
  for (uint32_t o = 0; o < executor->graph->n_operations; o++) {
    struct np_call *call = &executor->calls[o];
    call->why = why;
    if (call->kernel->shapes_at_run) {
      return NP_MISSING;
    }
    NP_TRY(call->kernel->infer(call));
  }
  return NP_OK;
}

/* Compiles every step. If a back end refuses a step after all, gives it to the reference and
 * compiles the others again, since their lists have moved. */
static enum np_status compile_steps(struct np_executor *executor, struct np_message *why) {
  struct np_plan *plan = &executor->plan;
  for (uint32_t s = 0; s < plan->n_steps; s++) {
    struct np_step *step = &plan->steps[s];
    const enum np_status status = step->backend->compile(&step->region, &step->state, why);
    if (status != NP_UNSUPPORTED || !step->backend->joins) {
      NP_TRY(status);
      continue;
    }
    for (uint32_t i = 0; i < s; i++) {
      if (plan->steps[i].state != NULL) {
        plan->steps[i].backend->free(plan->steps[i].state);
        plan->steps[i].state = NULL;
      }
    }
    NP_TRY(np_plan_split(plan, s));
    s = UINT32_MAX; /* begin again */
  }
  return NP_OK;
}

/* Makes working memory for the operation that needs most. Shapes must be known. */
static enum np_status grow_scratch(struct np_executor *executor, struct np_message *why) {
  size_t scratch = 0;
  for (uint32_t s = 0; s < executor->plan.n_steps; s++) {
    const struct np_step *step = &executor->plan.steps[s];
    const struct np_call *call = &executor->calls[step->region.operations[0]];
    if (!step->backend->joins && call->kernel->scratch != NULL) {
      const size_t one = call->kernel->scratch(call);
      scratch = one > scratch ? one : scratch;
    }
  }
  NP_TRY(np_block_grow(&executor->scratch, scratch, why));
  for (uint32_t o = 0; o < executor->graph->n_operations; o++) {
    executor->calls[o].scratch = executor->scratch.start;
  }
  return NP_OK;
}

/* Places temporaries and makes room for them. Shapes must be known. */
static enum np_status plan_memory(struct np_executor *executor, struct np_message *why) {
  const struct np_graph *graph = executor->graph;
  size_t total = 0;
  np_plan_borders(&executor->plan, graph, executor->placed);
  if (np_plan_memory(graph, &executor->plan, executor->tensors, executor->placed, executor->offsets,
                     &total) != NP_OK) {
    np_message_set(why, "no memory to plan %u operands", graph->n_operands);
    return NP_NO_MEMORY;
  }
  NP_TRY(np_block_grow(&executor->arena, total, why));
  for (uint32_t i = 0; i < graph->n_operands; i++) {
    if (executor->placed[i]) {
      executor->tensors[i].room = executor->arena.start + executor->offsets[i];
    }
  }
  return grow_scratch(executor, why);
}

static enum np_status plan_steps(struct np_executor *executor, const struct np_backend *backend,
                                 struct np_message *why) {
  struct np_graph *graph = &executor->lowered->graph;
  if (backend->open != NULL) {
    NP_TRY(backend->open(executor->options.threads, &executor->shared, why));
  }
  enum np_status status = np_linearise(graph, executor->calls, backend);
  if (status == NP_OK) {
    status = np_plan_steps(graph, executor->calls, backend, executor->shared, &executor->plan);
  }
  if (status != NP_OK) {
    np_message_set(why, "no memory to plan %u operations", graph->n_operations);
    return status;
  }
  return compile_steps(executor, why);
}

static enum np_status allocate(struct np_executor *executor, struct np_message *why) {
  const size_t n = (size_t)executor->graph->n_operands + 1;
  executor->tensors = calloc(n, sizeof *executor->tensors);
  executor->offsets = calloc(n, sizeof *executor->offsets);
  executor->placed = calloc(n, sizeof *executor->placed);
  executor->copies = calloc(n, sizeof *executor->copies);
  executor->rooms = calloc(n, sizeof *executor->rooms);
  executor->calls = calloc((size_t)executor->graph->n_operations + 1, sizeof *executor->calls);
  if (executor->tensors == NULL || executor->offsets == NULL || executor->placed == NULL ||
      executor->copies == NULL || executor->rooms == NULL || executor->calls == NULL) {
    np_message_set(why, "no memory for an executor of %zu operands", n - 1);
    return NP_NO_MEMORY;
  }
  return NP_OK;
}

static enum np_status build(struct np_executor *executor, const struct np_graph *graph,
                            struct np_message *why) {
  NP_TRY(np_lower(graph, &executor->options, &executor->lowered, why));
  executor->graph = &executor->lowered->graph;
  NP_TRY(allocate(executor, why));
  NP_TRY(bind_calls(executor, why));
  NP_TRY(np_reset_tensors(executor, why));
  const enum np_status inferred = infer_all(executor, why);
  if (inferred != NP_OK && inferred != NP_MISSING) {
    return inferred;
  }
  executor->is_static = executor->settled = inferred == NP_OK;
  NP_TRY(plan_steps(executor,
                    executor->is_static ? executor->options.backend : &np_reference_backend, why));
  return executor->is_static ? plan_memory(executor, why) : NP_OK;
}

enum np_status np_executor_create(const struct np_graph *graph,
                                  const struct np_executor_options *options,
                                  struct np_executor **executor, struct np_message *why) {
  *executor = NULL;
  struct np_executor *made = calloc(1, sizeof *made);
  if (made == NULL) {
    np_message_set(why, "no memory for an executor");
    return NP_NO_MEMORY;
  }
  if (options != NULL) {
    made->options = *options;
  }
  if (made->options.backend == NULL) {
    made->options.backend = &np_reference_backend;
  }
  const enum np_status status = build(made, graph, why);
  if (status != NP_OK) {
    np_executor_free(made);
    return status;
  }
  np_message_set(why, "%s", "");
  *executor = made;
  return NP_OK;
}

struct np_shares np_executor_shares(const struct np_executor *executor) {
  struct np_shares shares = {0, 0};
  for (uint32_t s = 0; s < executor->plan.n_steps; s++) {
    const struct np_step *step = &executor->plan.steps[s];
    if (step->backend == &np_reference_backend) {
      shares.reference += step->region.n_operations;
    } else {
      shares.backend += step->region.n_operations;
    }
  }
  return shares;
}

void np_executor_free(struct np_executor *executor) {
  if (executor == NULL) {
    return;
  }
  np_plan_clear(&executor->plan);
  if (executor->shared != NULL) {
    executor->options.backend->close(executor->shared);
  }
  for (uint32_t o = 0; executor->calls != NULL && o < executor->graph->n_operations; o++) {
    const struct np_call *call = &executor->calls[o];
    if (call->kernel != NULL && call->kernel->release != NULL && call->state != NULL) {
      call->kernel->release(call->state);
    } else {
      free(call->state);
    }
  }
  for (uint32_t i = 0; executor->graph != NULL && i < executor->graph->n_operands; i++) {
    if (executor->copies != NULL) {
      free(executor->copies[i]);
    }
    if (executor->rooms != NULL) {
      np_block_free(&executor->rooms[i]);
    }
  }
  np_block_free(&executor->arena);
  np_block_free(&executor->scratch);
  np_block_free(&executor->bounce);
  free(executor->tensors);
  free(executor->calls);
  free(executor->offsets);
  free(executor->placed);
  free(executor->copies);
  free(executor->rooms);
  np_lowered_free(executor->lowered);
  free(executor);
}
