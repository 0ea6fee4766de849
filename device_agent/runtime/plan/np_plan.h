/* The plan of a lowered graph: an order of steps, each for one back end, and the offset of each
 * temporary in one block of memory. */
#ifndef NP_PLAN_H
#define NP_PLAN_H

#include "backends/np_backend.h"

#define NP_ALIGNMENT 64u

/* Bytes behind each temporary that a back end may read, as XNNPACK's vector loads do. */
#define NP_TAIL 16u

struct np_step {
  const struct np_backend *backend;
  struct np_region region;
  void *state; /* made by the back end for the region */
};

struct np_plan {
  struct np_step *steps; /* [n_steps] in order of execution */
  uint32_t n_steps;
  uint32_t *operations; /* [n_operations] all operations of the graph, grouped by step */
  uint32_t *operands;   /* the lists of operands that cross the steps' borders */
};

/* Returns bytes rounded up to NP_ALIGNMENT, SIZE_MAX on overflow. */
size_t np_align(size_t bytes);

/* Reorders the operations of a lowered graph so that those that `backend` takes are adjacent, as
 * far as their order of execution allows; calls [n_operations] move with them. */
enum np_status np_linearise(struct np_graph *graph, struct np_call *calls,
                            const struct np_backend *backend);

/* Cuts the operations into steps: sequences that `backend` takes, and single operations for the
 * reference. `shared` was made by the back end's `open`. Does not compile anything. */
enum np_status np_plan_steps(const struct np_graph *graph, struct np_call *calls,
                             const struct np_backend *backend, void *shared, struct np_plan *plan);

/* Gives a step whose back end refused to compile it to the reference, one operation at a time. */
enum np_status np_plan_split(struct np_plan *plan, uint32_t step);

/* Frees the plan's lists and the back ends' states. */
void np_plan_clear(struct np_plan *plan);

/* Marks in placed [n_operands] the temporaries that cross a border between steps. */
void np_plan_borders(const struct np_plan *plan, const struct np_graph *graph,
                     unsigned char *placed);

/* Assigns offsets [n_operands] to the operands that `placed` marks. Operands whose lifetimes
 * overlap (from the step that writes one to the last one that reads it) do not share bytes; others
 * may. Shapes must be known. *total is the size of the block, a multiple of NP_ALIGNMENT.
 * NP_NO_MEMORY if memory is short or *total does not fit size_t. */
enum np_status np_plan_memory(const struct np_graph *graph, const struct np_plan *plan,
                              const struct np_tensor *tensors, const unsigned char *placed,
                              size_t *offsets, size_t *total);

#endif
