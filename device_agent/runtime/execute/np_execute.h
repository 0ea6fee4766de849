/* Internals of the executor. */
#ifndef NP_EXECUTE_H
#define NP_EXECUTE_H

#include "lower/np_lower.h"
#include "np_executor.h"
#include "plan/np_plan.h"

/* A block of memory that can grow, aligned to NP_ALIGNMENT; growing loses its contents. */
struct np_block {
  void *raw;
  unsigned char *start;
  size_t bytes;
};

enum np_status np_block_grow(struct np_block *block, size_t bytes, struct np_message *why);
void np_block_free(struct np_block *block);

struct np_executor {
  struct np_executor_options options;
  struct np_lowered *lowered;
  const struct np_graph *graph; /* the lowered one */
  struct np_tensor *tensors;    /* [n_operands] */
  struct np_call *calls;        /* [n_operations] */
  struct np_plan plan;
  void *shared;            /* state that the back end's regions share */
  void **copies;           /* [n_operands] constants that were not aligned to their type */
  unsigned char *placed;   /* [n_operands] whether it is in `arena` */
  size_t *offsets;         /* [n_operands] offset in `arena` */
  struct np_block *rooms;  /* [n_operands] of temporaries, and outputs without a buffer, in runs
                              whose shapes are found on the way */
  int is_static;           /* all shapes are known before a run */
  int settled;             /* `tensors` hold the static shapes; a dynamic run changes that */
  struct np_block arena;   /* temporaries of static shapes */
  struct np_block scratch; /* working memory of one operation at a time */
  struct np_block bounce;  /* replaces buffers of the caller that cannot be used */
};

/* bind.c: binds the caller's buffers to the model's tensors. */

/* Sets every operand to the model's declaration; constants get their values. */
enum np_status np_reset_tensors(struct np_executor *executor, struct np_message *why);

/* Takes shape and values of each model input from the caller's buffer. */
enum np_status np_bind_inputs(struct np_executor *executor, const struct np_buffer *inputs,
                              struct np_message *why);

/* Takes the caller's buffer for output `i`, whose shape is known; returns 0 if it is too small. */
int np_bind_output(struct np_executor *executor, uint32_t i, struct np_buffer *buffer,
                   struct np_message *why);

/* Copies inputs that are not aligned to their type; with_outputs: also provides memory for outputs
 * that are not aligned or that the caller does not want. */
enum np_status np_lend(struct np_executor *executor, int with_outputs, struct np_message *why);

/* Copies outputs that were computed elsewhere to the caller's buffers. */
void np_give_back(const struct np_executor *executor, const struct np_buffer *outputs);

/* Returns the bytes of a tensor whose shape is known. */
size_t np_tensor_bytes(const struct np_tensor *tensor);

/* run.c: does what np_executor_run does, but the outputs stay in the executor's memory:
 * outputs[i].data points there until the next run. */
enum np_status np_executor_run_lent(struct np_executor *executor, const struct np_buffer *inputs,
                                    struct np_buffer *outputs, const struct np_limits *limits,
                                    struct np_message *why);

/* dynamic.c: runs operation by operation and infers shapes on the way. With `lent`, outputs stay in
 * the executor's memory: outputs[i].data points there until the next run. */
enum np_status np_run_dynamic(struct np_executor *executor, const struct np_buffer *inputs,
                              struct np_buffer *outputs, int lent, const struct np_limits *limits,
                              uint32_t *too_small, struct np_message *why);

/* Returns NP_DEADLINE if the limits' deadline has passed. */
enum np_status np_check_deadline(const struct np_limits *limits, struct np_message *why);

#endif
