/* Back ends: what computes the operations of a lowered graph.
 *
 * The planner gives each operation to the executor's back end where that takes it, else to the
 * reference; neighbours in the order of execution that one back end takes become one region, as
 * long as it is `joins`. A region is compiled once and run many times. */
#ifndef NP_BACKEND_H
#define NP_BACKEND_H

#include "kernels/np_kernel.h"

/* Operations of a lowered graph that a back end computes together, and what crosses their border.
 * The arrays belong to the planner and outlive the region. */
struct np_region {
  const struct np_graph *graph;    /* lowered, sorted */
  const struct np_tensor *tensors; /* [graph->n_operands]; shapes are final where `joins` */
  struct np_call *calls;           /* [graph->n_operations] the kernel's view of each operation */
  const uint32_t *operations;      /* [n_operations] indices, ascending */
  uint32_t n_operations;
  const uint32_t *inputs; /* [n_inputs] operands read that no operation here writes, but
                             for constants */
  uint32_t n_inputs;
  const uint32_t *outputs; /* [n_outputs] operands written here and needed outside */
  uint32_t n_outputs;
  void *shared; /* what the back end's `open` made for the executor */
};

struct np_backend {
  const char *name;
  int joins; /* takes whole regions of known shapes; else one operation at a time, of any shape */

  /* Makes *shared, which all regions of one executor have: its threads. Optional, with `close`. */
  enum np_status (*open)(uint32_t threads, void **shared, struct np_message *why);
  void (*close)(void *shared);

  /* The ways, as a set of bits, in which the back end can compute the operation of `call`, whose
   * shapes are known; 0 for none. The operations of a region have one in common. NULL: one way for
   * every operation. */
  unsigned (*takes)(const struct np_call *call);

  /* Makes *state of a region, all of whose operations it takes. NP_UNSUPPORTED where it cannot
   * after all: the planner gives the operations to the reference then. */
  enum np_status (*compile)(const struct np_region *region, void **state, struct np_message *why);

  /* Computes. tensors[i].data of the inputs and tensors[i].room of the outputs are set; an output
   * written with a shape other than the planned one is the reference's privilege. */
  enum np_status (*run)(const struct np_region *region, void *state, struct np_message *why);

  void (*free)(void *state);
};

extern const struct np_backend np_reference_backend;
#ifdef NP_WITH_XNNPACK
extern const struct np_backend np_xnnpack_backend;
extern const struct np_backend np_xnnpack_half_backend;
#endif

#endif
