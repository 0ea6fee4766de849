/* A small inference runtime with NNAPI's semantics: the emulator and the agent's CPU engine run
 * models through it. One folder of runtime/ for each stage:
 *
 *   graph/     model (np_graph) -> checked against the table of operations, sorted
 *   lower/     -> rewritten: float16 as float32 with roundings, NCHW as NHWC, constants folded,
 *                 activations fused
 *   plan/      -> linearised: steps, each a back end's, and where each temporary lies
 *   execute/   -> run
 *   kernels/   plain loops, an operation each: the reference back end
 *   backends/  back ends behind one interface: `reference`, and `fast`, which gives XNNPACK what it
 *              takes
 */
#ifndef NP_EXECUTOR_H
#define NP_EXECUTOR_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "np_graph.h"
#include "np_status.h"

struct np_backend;
struct np_executor;

/* The back ends by name: "reference", "fast", and "half", which computes FLOAT32 in float16 where
 * XNNPACK can and otherwise as "fast". NULL for others, and for the last two in a build without
 * XNNPACK. */
const struct np_backend *np_backend_named(const char *name);

/* How "half" computes in float16 on this processor: not at all, by kernels that convert and compute
 * in float32 (x86 with F16C), which are slower than those of float32, or by its own arithmetic. */
enum np_half { NP_HALF_NONE, NP_HALF_EMULATED, NP_HALF_NATIVE };
enum np_half np_half_arithmetic(void);

/* Checks a whole graph as NNAPI's validation does: operand types and counts of every operation,
 * constness, ranks, that every operand is written once and before it is read (after sorting), that
 * there is no cycle, and that the operation exists at `feature_level` (27, 28, ..., as a device
 * reports it).
 *
 * Sorts graph->operations in place into an order of execution, stable with respect to the given
 * one. Returns NP_OK; NP_BAD_MODEL with the rule that was broken in *why (operation index and
 * name, operand index, found, wanted); NP_UNSUPPORTED where the model is valid NNAPI but this
 * library has no kernel for an operation or type yet. */
enum np_status np_graph_check(struct np_graph *graph, int32_t feature_level,
                              struct np_message *why);

/* The same for one operation alone, as far as it can be judged without its neighbours: used by
 * ANeuralNetworksModel_addOperation and getSupportedOperationsForDevices. */
enum np_status np_operation_check(const struct np_graph *graph, uint32_t operation,
                                  int32_t feature_level, struct np_message *why);

struct np_call;

struct np_executor_options {
  const struct np_backend *backend; /* NULL is "reference" */
  uint32_t threads;                 /* of "fast"; 0 and 1 are the caller's alone */
  int finite; /* operations with a fuse code give +-FLT_MAX for infinities, as Android's own do, and
               * so do REDUCE_MAX and REDUCE_MIN of nothing else */
  /* Called behind each operation of the reference back end; NULL is never. It may change outputs.
   */
  void (*after)(void *context, const struct np_call *call);
  void *context; /* of `after`; must outlive the executor */
};

/* Makes an executor of a graph that np_graph_check accepted. The graph's arrays and constants must
 * outlive it and are not written; several executors may share a graph. Weights are packed here,
 * once. Where shapes do not follow from the model alone, they are inferred at each run. options may
 * be NULL. NP_NO_MEMORY, NP_BAD_MODEL or NP_UNSUPPORTED otherwise. */
enum np_status np_executor_create(const struct np_graph *graph,
                                  const struct np_executor_options *options,
                                  struct np_executor **executor, struct np_message *why);

/* Writes the lowered graph and the plan as text, one operation or step a line, for people. */
void np_executor_dump(const struct np_executor *executor, FILE *file);

/* How many operations of the lowered graph each back end computes; all are the reference's where
 * that is the executor's back end, and where shapes are found at run time. */
struct np_shares {
  uint32_t backend; /* the back end asked for, where it is another than the reference */
  uint32_t reference;
};

struct np_shares np_executor_shares(const struct np_executor *executor);

void np_executor_free(struct np_executor *executor);

/* One buffer of an execution. rank and dims are the caller's for an input whose model dimensions
 * are unknown (rank 0: take the model's); for an output they are set by the run. */
struct np_buffer {
  void *data;
  size_t length; /* bytes at data */
  uint32_t rank;
  uint32_t dims[NP_MAX_RANK];
  int omitted; /* an optional input left out for this execution */
};

/* When a run gives up; times of CLOCK_MONOTONIC in ns, 0 is never. */
struct np_limits {
  uint64_t deadline_ns;     /* checked between steps */
  uint64_t loop_timeout_ns; /* that each WHILE may take; 0 is the API's default */
};

/* Runs once; an executor does one run at a time. inputs is [n_inputs], outputs [n_outputs], in the
 * order of the graph's. Inputs are not written. limits may be NULL. Once an executor has run with
 * the same shapes, a run allocates nothing and takes no lock. Returns NP_BAD_ARGUMENT where a
 * length does not fit or an input that is needed is left out, NP_RUN_FAILED where an operation
 * failed on its values or shapes, NP_DEADLINE, NP_NO_MEMORY; the outputs' rank and dims are set as
 * soon as they are known, also when an output's buffer is too small: that is NP_BAD_ARGUMENT with
 * *output_too_small set to the output's index (it is UINT32_MAX after every other run). */
enum np_status np_executor_run(struct np_executor *executor, const struct np_buffer *inputs,
                               struct np_buffer *outputs, const struct np_limits *limits,
                               uint32_t *output_too_small, struct np_message *why);

/* What one operation does, for cost models: the simulated phones and nothing else use it. */
struct np_work {
  uint64_t macs;           /* multiply-accumulates; for others one per output element */
  uint64_t input_bytes;    /* of activations read */
  uint64_t output_bytes;   /* of activations written */
  uint64_t constant_bytes; /* of weights read */
  int32_t type;            /* NP_TYPE_* of the first tensor read, else written; 0 without any */
};

/* Work of operation `operation` of a checked graph; zeros where shapes are unknown. */
struct np_work np_operation_work(const struct np_graph *graph, uint32_t operation);

#endif
