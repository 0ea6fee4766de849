/* Shared parts of the XNNPACK back end: a subgraph being made, and a rule for each operation that
 * XNNPACK computes. Private to xnnpack*.c.
 *
 * Only a rule's define function decides about its operation: it reads the operation's inputs,
 * refuses cases that XNNPACK computes differently from NNAPI, and defines the nodes. To ask whether
 * an operation is taken, the planner runs it on a scratch subgraph. */
#ifndef NP_XNNPACK_RULES_H
#define NP_XNNPACK_RULES_H

#include <xnnpack.h>

#include "backends/np_backend.h"
#include "np_executor.h"

struct np_xnn_block; /* memory that lives as long as the region */

/* How TENSOR_QUANT8_ASYMM is computed: as unsigned numbers, or as signed numbers, with values and
 * zero point 128 less (the highest bit flipped). XNNPACK's kernels for signed numbers are faster,
 * and the only ones with a scale for each channel; they require weights whose zero point is 0. HALF
 * is for FLOAT32 only: XNNPACK rounds its inputs and all constants to float16 and computes in
 * float16 (xnnpack_half.c). */
enum np_xnn_way { NP_XNN_UNSIGNED, NP_XNN_SIGNED, NP_XNN_HALF };

/* A subgraph being made of a region, or a scratch one. */
struct np_xnn_graph {
  xnn_subgraph_t subgraph;
  uint32_t *values; /* [n_operands] value of each operand or XNN_INVALID_VALUE_ID; NULL: scratch */
  struct np_xnn_block *blocks;
  struct np_xnn_block *passing; /* blocks that only packing reads */
  enum np_xnn_way way;
};

struct np_xnn_rule {
  int32_t code;   /* ANEURALNETWORKS_* */
  uint32_t types; /* set of the types that input 0 may have */
  int extra;      /* tells operations apart whose rules share a function */
  /* Defines the operation's nodes. xnn_status_unsupported_parameter if the reference must compute
   * it; xnn_status_out_of_memory. */
  enum xnn_status (*define)(struct np_xnn_graph *graph, const struct np_call *call,
                            const struct np_xnn_rule *rule);
};

/* How XNNPACK supports an operation in float16 (xnnpack_half.c). A region that only moves values is
 * not worth the conversions at its border. */
enum np_xnn_half { NP_XNN_HALF_NEVER, NP_XNN_HALF_MOVES, NP_XNN_HALF_COMPUTES };
enum np_xnn_half np_xnn_half_of(const struct np_call *call);

/* Returns this processor's float16 arithmetic through XNNPACK, which must be initialised. */
enum np_half np_xnn_half(void);

/* The rules by family; each table ends with a row without `define`. */
extern const struct np_xnn_rule np_xnn_conv_rules[];
extern const struct np_xnn_rule np_xnn_pool_rules[];
extern const struct np_xnn_rule np_xnn_elementwise_rules[];
extern const struct np_xnn_rule np_xnn_shape_rules[];
extern const struct np_xnn_rule np_xnn_join_rules[];
extern const struct np_xnn_rule np_xnn_image_rules[];

/* Returns the rule for the call's operation and data type, NULL for none. */
const struct np_xnn_rule *np_xnn_rule_of(const struct np_call *call);

/* Return in *id the value of an operand, defined at its first use (xnnpack_values.c).
 * xnn_status_unsupported_parameter for types, ranks and empty tensors that XNNPACK does not
 * support. */
enum xnn_status np_xnn_in(struct np_xnn_graph *graph, const struct np_call *call, uint32_t input,
                          uint32_t *id);
enum xnn_status np_xnn_out(struct np_xnn_graph *graph, const struct np_call *call, uint32_t output,
                           uint32_t *id);

/* Defines a value that is not an operand of the model, with the type, scale and zero point of
 * `like`. */
enum xnn_status np_xnn_inner(struct np_xnn_graph *graph, const struct np_operand *like,
                             uint32_t rank, const size_t *dims, uint32_t *id);

/* Defines an operand whose pointer the caller of the region provides. */
enum xnn_status np_xnn_external(struct np_xnn_graph *graph, const struct np_operand *operand,
                                const struct np_tensor *tensor, uint32_t external, uint32_t flags);

/* Defines the constant weights in input `input`, and the constant bias in `input` + 1 that is added
 * to their products with input 0. */
enum xnn_status np_xnn_weights(struct np_xnn_graph *graph, const struct np_call *call,
                               uint32_t input, uint32_t *weights, uint32_t *bias);

/* Allocates zeroed room for `bytes` and the bytes that XNNPACK reads beyond them; it lives as long
 * as the region. NULL if memory is short. */
void *np_xnn_room(struct np_xnn_graph *graph, size_t bytes);

/* Return whether values of a type have their highest bits flipped; copy values with these
 * flipped. */
int np_xnn_flips(const struct np_xnn_graph *graph, int32_t type);
void np_xnn_copy_flipped(void *to, const void *from, size_t bytes);

void np_xnn_free_blocks(struct np_xnn_block *blocks);

/* Returns whether XNNPACK must not read these bytes in place: reading XNN_EXTRA_BYTES beyond their
 * end could touch unmapped memory, or they are not aligned to their elements. */
int np_xnn_must_copy(const void *data, size_t bytes, size_t element);

/* Read arguments that are constants of the model (xnnpack_values.c); return 0 if one is not. */
int np_xnn_i32(const struct np_call *call, uint32_t input, int32_t *value);
int np_xnn_bool(const struct np_call *call, uint32_t input, int *value); /* 0 if omitted */
int np_xnn_f32(const struct np_call *call, uint32_t input, float *value);
int np_xnn_list(const struct np_call *call, uint32_t input, const int32_t **values, size_t *n);

/* Get the limits of a fuse code for output 0, or of the code in input `input`; return 0 if XNNPACK
 * does not support them. */
int np_xnn_limits(const struct np_call *call, int32_t fuse, float *low, float *high);
int np_xnn_fuse(const struct np_call *call, uint32_t input, float *low, float *high);

/* Returns whether an input and an output have the same type, scale and zero point, as operations
 * that only move values require. */
int np_xnn_same_values(const struct np_call *call, uint32_t input, uint32_t output);

/* Data types that XNNPACK moves. */
#define NP_XNN_MOVES (NP_FLOATS | NP_BIT(NP_TYPE_TENSOR_FLOAT16) | NP_QUANT8)

/* Paddings and strides of a window that slides over input 0 (NHWC), in XNNPACK's form. */
struct np_xnn_window {
  uint32_t top, right, bottom, left;
  uint32_t stride_h, stride_w;
  uint32_t next; /* the input after them */
};

/* Reads a window from input `at` on, for a filter of this size. Returns 0 if it is not constant or
 * does not give the output's shape. */
int np_xnn_read_window(const struct np_call *call, uint32_t at, const uint32_t filter[2],
                       const uint32_t dilation[2], struct np_xnn_window *window);

/* Returns whether XNNPACK's tables of pointers, for a filter of this size and output 0 [N, H, W,
 * C], have an acceptable size. */
int np_xnn_pointers_fit(const struct np_call *call, const uint32_t filter[2]);

/* Returns from the calling function if a status is not success. */
#define NP_XNN_TRY(expression)                                                                     \
  do {                                                                                             \
    const enum xnn_status np_xnn_status = (expression);                                            \
    if (np_xnn_status != xnn_status_success) {                                                     \
      return np_xnn_status;                                                                        \
    }                                                                                              \
  } while (0)

/* Leaves the operation to the reference unless a condition holds. */
#define NP_XNN_NEED(condition)                                                                     \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      return xnn_status_unsupported_parameter;                                                     \
    }                                                                                              \
  } while (0)

#endif
