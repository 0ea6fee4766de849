/* A small inference runtime with NNAPI's semantics: the emulator and the agent's CPU engine run
 * models through it. One folder of runtime/ for each stage:
 *
 *   graph/     model (np_graph) -> checked against the table of operations, sorted
 *   lower/     -> rewritten: float16 as float32 with roundings, NCHW as NHWC, constants folded,
 *                 activations fused
 *   plan/      -> linearised: steps, each for one back end, and an offset for each temporary
 *   execute/   -> run
 *   kernels/   plain loops, one for each operation: the reference back end
 *   backends/  back ends behind one interface: `reference`, and `fast`, which uses XNNPACK for the
 *              operations that it supports
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

/* Returns a back end by name: "reference", "fast", or "half", which computes FLOAT32 in float16
 * where XNNPACK can and otherwise like "fast". NULL for other names, and for the last two in a
 * build without XNNPACK. */
const struct np_backend *np_backend_named(const char *name);

/* How "half" computes in float16 on this processor: not at all; with kernels that convert to
 * float32 and compute there (x86 with F16C), slower than the float32 kernels; or with native
 * float16 arithmetic. */
enum np_half { NP_HALF_NONE, NP_HALF_EMULATED, NP_HALF_NATIVE };
enum np_half np_half_arithmetic(void);

/* Checks a whole graph as NNAPI's validation does: operand types and counts of every operation,
 * constness, ranks, that every operand is written once and before it is read (after sorting), that
 * there is no cycle, and that each operation exists at `feature_level` (27, 28, ..., as a device
 * reports it).
 *
 * Sorts graph->operations in place into an order of execution; the sort is stable. Returns NP_OK;
 * NP_BAD_MODEL with the broken rule in *why (operation index and name, operand index, found,
 * wanted); NP_UNSUPPORTED if the model is valid NNAPI but this library has no kernel for an
 * operation or type yet. */
enum np_status np_graph_check(struct np_graph *graph, int32_t feature_level,
                              struct np_message *why);

/* Checks a single operation, as far as that is possible without its neighbours: for
 * ANeuralNetworksModel_addOperation and getSupportedOperationsForDevices. */
enum np_status np_operation_check(const struct np_graph *graph, uint32_t operation,
                                  int32_t feature_level, struct np_message *why);

struct np_call;

struct np_executor_options {
  const struct np_backend *backend; /* NULL is "reference" */
  uint32_t threads;                 /* for "fast"; 0 and 1: the calling thread only */
  int finite; /* operations with a fuse code return +-FLT_MAX instead of infinities, as Android's
                 do; so do REDUCE_MAX and REDUCE_MIN of infinities only */
  /* Called after each operation of the reference back end; may change its outputs. NULL: none. */
  void (*after)(void *context, const struct np_call *call);
  void *context; /* passed to `after`; must outlive the executor */
};

/* Makes an executor for a graph that np_graph_check accepted, and packs its weights. The graph's
 * arrays and constants must outlive the executor and are not written; several executors may share a
 * graph. Shapes that do not follow from the model alone are inferred at each run. `options` may be
 * NULL. Fails with NP_NO_MEMORY, NP_BAD_MODEL or NP_UNSUPPORTED. */
enum np_status np_executor_create(const struct np_graph *graph,
                                  const struct np_executor_options *options,
                                  struct np_executor **executor, struct np_message *why);

/* Writes the lowered graph and the plan as readable text, one operation or step a line. */
void np_executor_dump(const struct np_executor *executor, FILE *file);

/* How many operations of the lowered graph each back end computes. All count as the reference's if
 * that is the executor's back end, or if shapes are only known at run time. */
struct np_shares {
  uint32_t backend; /* the requested back end, unless it is the reference */
  uint32_t reference;
};

struct np_shares np_executor_shares(const struct np_executor *executor);

void np_executor_free(struct np_executor *executor);

/* One buffer of an execution. The caller sets rank and dims for an input whose dimensions are
 * unknown in the model (rank 0: take the model's); the run sets them for an output. */
struct np_buffer {
  void *data;
  size_t length; /* bytes at data */
  uint32_t rank;
  uint32_t dims[NP_MAX_RANK];
  int omitted; /* an optional input left out for this execution */
};

/* Time limits of a run, in ns; 0: none. */
struct np_limits {
  uint64_t deadline_ns;     /* by CLOCK_MONOTONIC; checked between steps */
  uint64_t loop_timeout_ns; /* for each WHILE; 0: the API's default */
};

/* Runs once; an executor does one run at a time. `inputs` is [n_inputs] and `outputs` [n_outputs],
 * in the graph's order. Inputs are not written. `limits` may be NULL. Once an executor has run with
 * the same shapes, a run allocates nothing and takes no lock. Returns NP_BAD_ARGUMENT if a length
 * does not fit or a required input is omitted, NP_RUN_FAILED if an operation failed on its values
 * or shapes, NP_DEADLINE, or NP_NO_MEMORY. If an output's buffer is too small, returns
 * NP_BAD_ARGUMENT and sets *output_too_small to the output's index (UINT32_MAX after every other
 * run). The rank and dims of outputs are set as soon as they are known, also in this case. */
enum np_status np_executor_run(struct np_executor *executor, const struct np_buffer *inputs,
                               struct np_buffer *outputs, const struct np_limits *limits,
                               uint32_t *output_too_small, struct np_message *why);

/* The work of one operation, for the cost model of simulated phones. */
struct np_work {
  uint64_t macs;           /* multiply-accumulates; for operations without any, one per output
                              element */
  uint64_t input_bytes;    /* activations read */
  uint64_t output_bytes;   /* activations written */
  uint64_t constant_bytes; /* weights read */
  int32_t type;            /* NP_TYPE_* of the first tensor read, else of the first written; 0: no
                              tensor */
};

/* Returns the work of an operation of a checked graph; zeros if shapes are unknown. */
struct np_work np_operation_work(const struct np_graph *graph, uint32_t operation);

#endif
