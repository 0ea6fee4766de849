/* The plan of a lowered graph: an order of steps, each a back end's, and where each temporary lies
 * in one block of memory. */
#ifndef NP_PLAN_H
#define NP_PLAN_H

#include "backends/np_backend.h"

#define NP_ALIGNMENT 64u

/* Bytes behind each temporary that a back end may read: XNNPACK's vector loads do. */
#define NP_TAIL 16u

struct np_step {
  const struct np_backend *backend;
  struct np_region region;
  void *state; /* what the back end made of the region */
};

struct np_plan {
  struct np_step *steps; /* [n_steps] in order of execution */
  uint32_t n_steps;
  uint32_t *operations; /* [n_operations] all of the graph's, a run of them for each step */
  uint32_t *operands;   /* the lists of what crosses the steps' borders */
};

/* Bytes rounded up to NP_ALIGNMENT, SIZE_MAX on overflow. */
size_t np_align(size_t bytes);

/* Reorders the operations of a lowered graph so that what `backend` takes stands together, as far
 * as their order of execution allows; calls [n_operations] move with them. */
enum np_status np_linearise(struct np_graph *graph, struct np_call *calls,
                            const struct np_backend *backend);

/* Cuts the operations into steps: runs that `backend` takes, and single ones for the reference.
 * `shared` is what the back end's `open` made.
 * Nothing is compiled yet. */
enum np_status np_plan_steps(const struct np_graph *graph, struct np_call *calls,
                             const struct np_backend *backend, void *shared, struct np_plan *plan);

/* Gives a step to the reference, an operation at a time: its back end refused to compile it. */
enum np_status np_plan_split(struct np_plan *plan, uint32_t step);

/* Frees the plan's lists and what back ends made. */
void np_plan_clear(struct np_plan *plan);

/* Marks in placed [n_operands] the temporaries that cross a border between steps. */
void np_plan_borders(const struct np_plan *plan, const struct np_graph *graph,
                     unsigned char *placed);

/* Assigns offsets [n_operands] to the operands that `placed` marks: operands whose lives overlap
 * (from the step that writes one to the last one that reads it) do not share bytes, others may.
 * Shapes are known. *total is the size of the block, a multiple of NP_ALIGNMENT. NP_NO_MEMORY where
 * there is none for the bookkeeping or *total does not fit size_t. */
enum np_status np_plan_memory(const struct np_graph *graph, const struct np_plan *plan,
                              const struct np_tensor *tensors, const unsigned char *placed,
                              size_t *offsets, size_t *total);

#endif
