/* What NNAPI's documentation says of each operation, as a table that is generated from the facts:
 * ops_table.c. The check of models and the matching of forms read it; kernels are told which form
 * an operation has. */
#ifndef NP_OPS_H
#define NP_OPS_H

#include <stdint.h>

#include "np_nnapi.h"

/* A set of operand types, a bit each. */
#define NP_BIT(type) (1u << (type))

enum np_input_kind {
  NP_INPUT_TENSOR = 0,
  NP_INPUT_INT32,
  NP_INPUT_BOOL,
  NP_INPUT_FLOAT32,
  NP_INPUT_FLOAT, /* FLOAT16 with FLOAT16 data, else FLOAT32 */
  NP_INPUT_VALUE, /* one value of the data: FLOAT16, FLOAT32, or INT32 for what is quantised */
  NP_INPUT_MODEL,
};

/* Which of an operation's forms this is. */
enum np_variant {
  NP_DEFAULT = 0,
  NP_EXPLICIT, /* paddings as four numbers */
  NP_IMPLICIT, /* a padding code */
  NP_BY_SIZE,
  NP_BY_SCALE,
};

struct np_op_input {
  const char *name;
  uint8_t kind;     /* enum np_input_kind */
  uint8_t optional; /* a tensor that may have no value, or a last scalar that may be left away */
  uint8_t level;    /* feature level from which the input may be given */
};

struct np_op_form {
  uint8_t variant; /* enum np_variant */
  uint8_t level;
  uint8_t n_inputs;
  uint8_t repeated; /* input that stands for any number of tensors, UINT8_MAX for none */
  uint8_t layout;   /* input that says whether the data are NCHW, UINT8_MAX for none */
  uint64_t counts;  /* bit set of the numbers of inputs; without meaning where one is repeated */
  const struct np_op_input *inputs; /* [n_inputs] */
  const uint16_t *types; /* [n_data][n_inputs] types of each tensor input, by type of the data */
};

struct np_op_data {
  uint8_t type; /* of the data: of input `data` */
  uint8_t level;
};

struct np_op_info {
  const char *name;
  uint8_t level;
  uint8_t data;               /* index of the input that is the operation's data */
  uint8_t min_rank, max_rank; /* of the data; max_rank 0 is no limit */
  uint8_t early_ranks;     /* bit set of the ranks allowed below feature level 3, 0 for no limit */
  uint8_t n_data, n_forms; /* n_data 0: inputs and outputs of any type */
  uint8_t min_outputs, max_outputs;    /* max_outputs UINT8_MAX: any number, all of one kind */
  const struct np_op_data *data_types; /* [n_data] */
  const struct np_op_form *forms;      /* [n_forms] */
  const uint16_t
      *outputs; /* [n_data][max_outputs] types of each output; [n_data] where any number */
};

/* What is known of an operation code, NULL for none of NNAPI's. */
const struct np_op_info *np_op_info(int32_t code);

#endif
