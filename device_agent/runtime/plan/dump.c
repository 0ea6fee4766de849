/* Writes the lowered graph and the plan as readable text. */
#include "execute/np_execute.h"

static void print_operand(const struct np_executor *executor, uint32_t i, FILE *file) {
  static const char *const LIFETIMES[] = {"", " input", " output", " constant", " none"};
  const struct np_operand *operand = &executor->graph->operands[i];
  const struct np_tensor *tensor = &executor->tensors[i];
  const int is_known = executor->is_static && tensor->known;
  const uint32_t rank = is_known ? tensor->rank : operand->rank;
  const uint32_t *dims = is_known ? tensor->dims : operand->dims;
  (void)fprintf(file, "%%%u:%s[", i, np_type_name(operand->type));
  for (uint32_t d = 0; d < rank; d++) {
    (void)fprintf(file, dims[d] == 0 && !is_known ? "%s?" : "%s%u", d == 0 ? "" : ",", dims[d]);
  }
  (void)fprintf(file, "]%s", LIFETIMES[operand->lifetime]);
}

static void print_operation(const struct np_executor *executor, uint32_t o, FILE *file) {
  const struct np_operation *operation = &executor->graph->operations[o];
  (void)fprintf(file, "    ");
  for (uint32_t i = 0; i < operation->n_outputs; i++) {
    (void)fprintf(file, i == 0 ? "" : ", ");
    print_operand(executor, operation->outputs[i], file);
  }
  (void)fprintf(file, " = %s(", np_operation_name(operation->code));
  for (uint32_t i = 0; i < operation->n_inputs; i++) {
    (void)fprintf(file, "%s%%%u", i == 0 ? "" : ", ", operation->inputs[i]);
  }
  (void)fprintf(file, ")\n");
}

void np_executor_dump(const struct np_executor *executor, FILE *file) {
  const struct np_graph *graph = executor->graph;
  (void)fprintf(file, "graph: %u operands, %u operations, %u steps, %s, back end %s\n",
                graph->n_operands, graph->n_operations, executor->plan.n_steps,
                executor->is_static ? "shapes known" : "shapes found on the way",
                executor->options.backend->name);
  for (uint32_t i = 0; i < graph->n_inputs; i++) {
    (void)fprintf(file, "  input ");
    print_operand(executor, graph->inputs[i], file);
    (void)fprintf(file, "\n");
  }
  for (uint32_t s = 0; s < executor->plan.n_steps; s++) {
    const struct np_step *step = &executor->plan.steps[s];
    (void)fprintf(file, "  step %u: %s, %u operation%s\n", s, step->backend->name,
                  step->region.n_operations, step->region.n_operations == 1 ? "" : "s");
    for (uint32_t k = 0; k < step->region.n_operations; k++) {
      print_operation(executor, step->region.operations[k], file);
    }
  }
  for (uint32_t i = 0; i < graph->n_outputs; i++) {
    (void)fprintf(file, "  output %%%u\n", graph->outputs[i]);
  }
  if (executor->is_static) {
    (void)fprintf(file, "memory: %zu bytes for temporaries, %zu for work\n", executor->arena.bytes,
                  executor->scratch.bytes);
    for (uint32_t i = 0; i < graph->n_operands; i++) {
      if (executor->placed[i]) {
        (void)fprintf(file, "  %%%u at %zu, %zu bytes\n", i, executor->offsets[i],
                      np_tensor_bytes(&executor->tensors[i]));
      }
    }
  }
}
