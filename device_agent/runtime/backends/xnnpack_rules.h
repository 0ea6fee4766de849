/* What the parts of the XNNPACK back end share: a subgraph being made, and one rule for each
 * operation that XNNPACK computes. Private to xnnpack*.c.
 *
 * A rule's define function is the only judge of its operation: it reads the operation's inputs,
 * refuses what XNNPACK would compute otherwise than NNAPI says, and defines the nodes. The
 * planner's question whether an operation is taken runs it on a scratch subgraph. */
#ifndef NP_XNNPACK_RULES_H
#define NP_XNNPACK_RULES_H

#include <xnnpack.h>

#include "backends/np_backend.h"
#include "np_executor.h"

struct np_xnn_block; /* memory that lives as long as the region */

/* How TENSOR_QUANT8_ASYMM is computed: as it is, or as signed numbers, each 128 less (its highest
 * bit flipped) with a zero point 128 less. XNNPACK's kernels for signed numbers are the faster
 * ones, and the only ones with a scale for each channel; they want weights whose zero point is 0.
 * HALF is of FLOAT32 alone: XNNPACK rounds what it reads and all constants to float16, and computes
 * in that (xnnpack_half.c). */
enum np_xnn_way { NP_XNN_UNSIGNED, NP_XNN_SIGNED, NP_XNN_HALF };

/* A subgraph being made of a region, or a scratch one. */
struct np_xnn_graph {
  xnn_subgraph_t subgraph;
  uint32_t *values; /* [n_operands] value of each operand or XNN_INVALID_VALUE_ID; NULL: scratch */
  struct np_xnn_block *blocks;
  struct np_xnn_block *passing; /* those that only packing reads */
  enum np_xnn_way way;
};

struct np_xnn_rule {
  int32_t code;   /* ANEURALNETWORKS_* */
  uint32_t types; /* set of the types that input 0 may have */
  int extra;      /* what rules that share a function tell operations apart by */
  /* Defines the operation's nodes. xnn_status_unsupported_parameter where the reference must
   * compute it; xnn_status_out_of_memory. */
  enum xnn_status (*define)(struct np_xnn_graph *graph, const struct np_call *call,
                            const struct np_xnn_rule *rule);
};

/* What XNNPACK has in float16 (xnnpack_half.c). A region of nothing but moves is not worth the
 * conversions at its border. */
enum np_xnn_half { NP_XNN_HALF_NEVER, NP_XNN_HALF_MOVES, NP_XNN_HALF_COMPUTES };
enum np_xnn_half np_xnn_half_of(const struct np_call *call);

/* What this processor does in float16 through XNNPACK, which is initialised. */
enum np_half np_xnn_half(void);

/* The families; each table ends with a row without `define`. */
extern const struct np_xnn_rule np_xnn_conv_rules[];
extern const struct np_xnn_rule np_xnn_pool_rules[];
extern const struct np_xnn_rule np_xnn_elementwise_rules[];
extern const struct np_xnn_rule np_xnn_shape_rules[];
extern const struct np_xnn_rule np_xnn_join_rules[];
extern const struct np_xnn_rule np_xnn_image_rules[];

/* The rule of the call's operation and type of data, NULL for none. */
const struct np_xnn_rule *np_xnn_rule_of(const struct np_call *call);

/* Values (xnnpack_values.c). *id is the value that stands for an operand; it is defined at its
 * first use. xnn_status_unsupported_parameter for types, ranks and empty tensors that XNNPACK does
 * not have. */
enum xnn_status np_xnn_in(struct np_xnn_graph *graph, const struct np_call *call, uint32_t input,
                          uint32_t *id);
enum xnn_status np_xnn_out(struct np_xnn_graph *graph, const struct np_call *call, uint32_t output,
                           uint32_t *id);

/* Defines a value of the operand's type, scale and zero point that is no operand of the model. */
enum xnn_status np_xnn_inner(struct np_xnn_graph *graph, const struct np_operand *like,
                             uint32_t rank, const size_t *dims, uint32_t *id);

/* Defines an operand of this shape whose pointer the caller of the region gives. */
enum xnn_status np_xnn_external(struct np_xnn_graph *graph, const struct np_operand *operand,
                                const struct np_tensor *tensor, uint32_t external, uint32_t flags);

/* The constant weights in input `input`, and the constant bias in `input` + 1 that is added to
 * their products with input 0. */
enum xnn_status np_xnn_weights(struct np_xnn_graph *graph, const struct np_call *call,
                               uint32_t input, uint32_t *weights, uint32_t *bias);

/* Room for `bytes` and what XNNPACK reads beyond, zeroed; it lives as long as the region. NULL
 * without memory. */
void *np_xnn_room(struct np_xnn_graph *graph, size_t bytes);

/* Whether values of this type have their highest bits flipped, and copying them so. */
int np_xnn_flips(const struct np_xnn_graph *graph, int32_t type);
void np_xnn_copy_flipped(void *to, const void *from, size_t bytes);

void np_xnn_free_blocks(struct np_xnn_block *blocks);

/* Whether XNNPACK may not read these bytes where they are: reading XNN_EXTRA_BYTES beyond their end
 * could meet memory that is not there, or they are not aligned to their elements. */
int np_xnn_must_copy(const void *data, size_t bytes, size_t element);

/* Arguments (xnnpack_values.c): constants of the model. 0 where one is not. */
int np_xnn_i32(const struct np_call *call, uint32_t input, int32_t *value);
int np_xnn_bool(const struct np_call *call, uint32_t input, int *value); /* 0 if left away */
int np_xnn_f32(const struct np_call *call, uint32_t input, float *value);
int np_xnn_list(const struct np_call *call, uint32_t input, const int32_t **values, size_t *n);

/* The limits of a fuse code for output 0, and of the code in input `input`. 0 where there are none
 * that XNNPACK can do. */
int np_xnn_limits(const struct np_call *call, int32_t fuse, float *low, float *high);
int np_xnn_fuse(const struct np_call *call, uint32_t input, float *low, float *high);

/* Whether input and output 0 are of one type, scale and zero point: what only moves values needs
 * that. */
int np_xnn_same_values(const struct np_call *call, uint32_t input, uint32_t output);

/* Data that XNNPACK moves. */
#define NP_XNN_MOVES (NP_FLOATS | NP_BIT(NP_TYPE_TENSOR_FLOAT16) | NP_QUANT8)

/* Paddings and strides of a window that slides over input 0 (NHWC), as XNNPACK wants them. */
struct np_xnn_window {
  uint32_t top, right, bottom, left;
  uint32_t stride_h, stride_w;
  uint32_t next; /* the input after them */
};

/* Reads them from input `at` on, for a filter of this size. 0 where they are not constant or do not
 * give the output's shape. */
int np_xnn_read_window(const struct np_call *call, uint32_t at, const uint32_t filter[2],
                       const uint32_t dilation[2], struct np_xnn_window *window);

/* Whether XNNPACK's tables of pointers, for a filter of this size and output 0 [N, H, W, C], have a
 * bearable size. */
int np_xnn_pointers_fit(const struct np_call *call, const uint32_t filter[2]);

/* Returns from the calling function where a status is not success. */
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
