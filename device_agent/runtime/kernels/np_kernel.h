/* Shared by the kernels: the tensors of a run, a call of a kernel, and the registry's entries.
 * Private to the library np_kernels. */
#ifndef NP_KERNEL_H
#define NP_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "np_graph.h"
#include "np_ops.h"
#include "np_status.h"

/* One operand while shapes are inferred and operations run. */
struct np_tensor {
  int32_t type;
  uint32_t rank; /* 0 for a scalar */
  uint32_t dims[NP_MAX_RANK];
  int known;        /* the shape is final: from here on a dimension of 0 is an empty tensor */
  int omitted;      /* an optional operand without a value */
  size_t elements;  /* if known */
  const void *data; /* values; NULL if not known yet */
  void *room;       /* memory that its operation writes to; NULL for inputs and constants */
};

struct np_kernel;
struct np_executor_options;
struct np_limits;

/* One operation of a graph, being inferred, prepared or run. */
struct np_call {
  const struct np_graph *graph;
  uint32_t index; /* index of the operation */
  const struct np_operation *operation;
  const struct np_kernel *kernel;
  const struct np_op_form *form;
  struct np_tensor *tensors;                 /* [graph->n_operands] */
  void *state;                               /* made by prepare, or NULL */
  void *scratch;                             /* at least scratch(call) bytes, aligned to 64 */
  const struct np_executor_options *options; /* the executor's, for kernels that make their own */
  const struct np_limits *limits;            /* the run's, or NULL */
  struct np_message *why;
};

/* Sets of data types that many kernels support. */
#define NP_FLOATS NP_BIT(NP_TYPE_TENSOR_FLOAT32)
#define NP_INTS NP_BIT(NP_TYPE_TENSOR_INT32)
#define NP_QUANT8 (NP_BIT(NP_TYPE_TENSOR_QUANT8_ASYMM) | NP_BIT(NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED))
/* The data types of kernels that only move values. */
#define NP_MOVES (NP_FLOATS | NP_BIT(NP_TYPE_TENSOR_FLOAT16) | NP_INTS | NP_QUANT8)

/* A kernel: one operation, computed by plain loops over data in NHWC. A function that fails leaves
 * a sentence in call->why.
 *   infer    sets the shape of each output from shapes and values of the inputs. NP_MISSING if one
 *            that it needs is not known yet; NP_BAD_MODEL if they do not fit.
 *   prepare  optional: makes call->state from inputs whose values are constant. Shapes of other
 *            operands need not be known.
 *   release  optional: frees the state; NULL: free().
 *   scratch  optional: bytes of working memory that run needs; SIZE_MAX on overflow.
 *   run      computes the outputs; every shape and value is known.
 *
 * Kernels see a lowered graph: a layout flag is false (kernels do not read it), and FLOAT16 data,
 * unless in `types`, have become FLOAT32 (scalars, too). An output that the caller does not want
 * still has room. */
struct np_kernel {
  uint32_t types;        /* set of the data's types that the kernel computes */
  uint8_t extra;         /* tells operations apart whose kernels share functions */
  uint8_t shapes_at_run; /* infer sets upper bounds with np_set_bound, run sets the shapes */
  enum np_status (*infer)(const struct np_call *call);
  enum np_status (*prepare)(const struct np_call *call, void **state);
  void (*release)(void *state);
  size_t (*scratch)(const struct np_call *call);
  enum np_status (*run)(const struct np_call *call);
};

/* Every operation has a kernel with its name: np_kernel_ADD, ... */
#define NP_DECLARE_KERNEL(name, code, level) extern const struct np_kernel np_kernel_##name;
NP_OPERATIONS(NP_DECLARE_KERNEL)
#undef NP_DECLARE_KERNEL

/* Returns the kernel of an operation code, NULL if there is none. */
const struct np_kernel *np_kernel_of(int32_t code);

/* Returns an operand type's name in NNAPI's header, without its prefix. */
const char *np_type_name(int32_t type);

/* Returns the number (1, 2, ...) of a feature level as a device reports it (27, 28, ...). */
int np_level_number(int32_t feature_level);

/* Returns the form that matches an operation's inputs, NULL (with a sentence in *why) for none. */
const struct np_op_form *np_form_match(const struct np_graph *graph, uint32_t index,
                                       struct np_message *why);

/* Returns the form of an operation of a lowered graph, whose casts may also be of scalars. */
const struct np_op_form *np_form_of(const struct np_graph *graph, uint32_t index,
                                    struct np_message *why);

/* Returns a form's rule for an input of an operation with n_inputs inputs. */
const struct np_op_input *np_form_input(const struct np_op_form *form, uint32_t n_inputs,
                                        uint32_t input);

/* Writes "operation 3 (CONV_2D): " and the formatted text to call->why; returns the status. */
enum np_status np_fail(const struct np_call *call, enum np_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Return input and output tensors; np_has returns 0 for an input that is missing or omitted. */
struct np_tensor *np_in(const struct np_call *call, uint32_t input);
struct np_tensor *np_out(const struct np_call *call, uint32_t output);
int np_has(const struct np_call *call, uint32_t input);

/* Return the operands that the model declares for them: types, scales and zero points. */
const struct np_operand *np_in_operand(const struct np_call *call, uint32_t input);
const struct np_operand *np_out_operand(const struct np_call *call, uint32_t output);

/* Read a scalar. NP_MISSING if its value is not known yet. */
enum np_status np_read_i32(const struct np_call *call, uint32_t input, int32_t *value);
enum np_status np_read_f32(const struct np_call *call, uint32_t input, float *value);
enum np_status np_read_bool(const struct np_call *call, uint32_t input, int *value);

/* Reads the values of a TENSOR_INT32 input. NP_MISSING if they are not known yet. */
enum np_status np_read_list(const struct np_call *call, uint32_t input, const int32_t **values,
                            size_t *n);

/* Sets the shape of an output; NP_BAD_MODEL if it contradicts the declared one or is too large for
 * this machine. */
enum np_status np_set_shape(const struct np_call *call, uint32_t output, uint32_t rank,
                            const uint32_t *dims);

/* Sets an upper bound for an output's shape, for kernels with shapes_at_run. */
enum np_status np_set_bound(const struct np_call *call, uint32_t output, uint32_t rank,
                            const uint32_t *dims);

/* Gets the limits to which a fuse code clamps. For no activation they are infinities, or the
 * largest finite numbers if the executor's options ask for finite results. NP_BAD_MODEL for an
 * unknown code. */
enum np_status np_fuse_limits(const struct np_call *call, int32_t fuse, float *low, float *high);

/* Clamps n values in place; does nothing between infinities. */
void np_clamp(float *values, size_t n, float low, float high);

/* Converts an axis that may be negative to 0 <= *axis < rank; NP_BAD_MODEL if it is out of
 * range. */
enum np_status np_axis(const struct np_call *call, int32_t value, uint32_t rank, uint32_t *axis);

/* Returns the product, SIZE_MAX on overflow. */
size_t np_mul_saturated(size_t a, size_t b);
/* Returns the sum, SIZE_MAX on overflow. */
size_t np_add_saturated(size_t a, size_t b);

#endif
