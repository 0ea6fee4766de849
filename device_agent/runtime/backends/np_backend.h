/* The interface of back ends, which compute the operations of a lowered graph.
 *
 * The planner gives each operation to the executor's back end if that takes it, else to the
 * reference. Operations that follow each other in the order of execution and that a back end with
 * `joins` takes become one region. A region is compiled once and run many times. */
#ifndef NP_BACKEND_H
#define NP_BACKEND_H

#include "kernels/np_kernel.h"

/* Operations of a lowered graph that a back end computes together, and the operands that cross
 * their border. The arrays belong to the planner and outlive the region. */
struct np_region {
  const struct np_graph *graph;    /* lowered, sorted */
  const struct np_tensor *tensors; /* [graph->n_operands]; shapes are final where `joins` */
  struct np_call *calls;           /* [graph->n_operations] the kernel's view of each operation */
  const uint32_t *operations;      /* [n_operations] indices, ascending */
  uint32_t n_operations;
  const uint32_t *inputs; /* [n_inputs] operands read here but not written here, except for
                             constants */
  uint32_t n_inputs;
  const uint32_t *outputs; /* [n_outputs] operands written here and needed outside */
  uint32_t n_outputs;
  void *shared; /* made by the back end's `open` for the executor */
};

struct np_backend {
  const char *name;
  int joins; /* takes whole regions, of known shapes; else one operation at a time, of any shape */

  /* Makes *shared, the threads that all regions of an executor share. Optional, like `close`. */
  enum np_status (*open)(uint32_t threads, void **shared, struct np_message *why);
  void (*close)(void *shared);

  /* Returns the ways, as a set of bits, in which the back end can compute the operation of `call`,
   * whose shapes are known; 0: none. The operations of a region have one way in common. NULL: one
   * way for every operation. */
  unsigned (*takes)(const struct np_call *call);

  /* Makes *state for a region, all of whose operations the back end takes. NP_UNSUPPORTED if it
   * cannot after all: the planner then gives the operations to the reference. */
  enum np_status (*compile)(const struct np_region *region, void **state, struct np_message *why);

  /* Computes a region. tensors[i].data of the inputs and tensors[i].room of the outputs are set.
   * Only the reference may write an output with a shape other than the planned one. */
  enum np_status (*run)(const struct np_region *region, void *state, struct np_message *why);

  void (*free)(void *state);
};

extern const struct np_backend np_reference_backend;
#ifdef NP_WITH_XNNPACK
extern const struct np_backend np_xnnpack_backend;
extern const struct np_backend np_xnnpack_half_backend;
#endif

#endif
