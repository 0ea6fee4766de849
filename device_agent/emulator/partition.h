/* Assigns operations to accelerators and cuts them into steps, as Android's runtime does with a
 * model when no single device is named. */
#ifndef NP_PARTITION_H
#define NP_PARTITION_H

#include "latency.h"
#include "np_graph.h"

/* Accelerators for operations: supported[i * n_operations + k] is whether accelerator i can run
 * operation k of the sorted graph. */
struct np_choices {
  const struct np_accelerator *const *accelerators;
  uint32_t n_accelerators;
  const bool *supported;
  bool relaxed;
  int32_t preference; /* ANEURALNETWORKS_PREFER_* */
};

/* Gives every operation to the accelerator of the smallest `performance` for its data among those
 * that support it, or the smallest `power` under PREFER_LOW_POWER; a tie goes to a CPU, then to the
 * first. assignment is [graph->n_operations] and receives indices into choices->accelerators.
 * NP_UNSUPPORTED with *operation set to one that no accelerator can run. */
enum np_status np_assign(const struct np_graph *graph, const struct np_choices *choices,
                         uint32_t *assignment, uint32_t *operation);

/* Cuts an assigned graph into steps: starting with the first accelerator that has an operation
 * ready, CPUs before the others, a step takes every operation of its accelerator that is or becomes
 * ready; then the next step begins. Steps do not depend on how neighbours were interleaved in the
 * order of execution. Chains within a step that its accelerator fuses count as one operation. The
 * caller frees *steps, [*n_steps]. NP_NO_MEMORY. */
enum np_status np_make_steps(const struct np_graph *graph, const struct np_choices *choices,
                             const uint32_t *assignment, struct np_step **steps, uint32_t *n_steps);

#endif
