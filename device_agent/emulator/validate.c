/* The rules for operand types: scalar and tensor, scale and zero point, known and unknown
 * dimensions. They follow NNAPI's documentation and the checks of Android 11's runtime. */
#include <math.h>
#include <string.h>

#include "emulator.h"

/* Zero points that a type allows, and whether its scale must be positive. */
struct quantisation_rule {
  int32_t low, high;
  enum { SCALE_ZERO, SCALE_POSITIVE, SCALE_NOT_NEGATIVE } scale;
};

static struct quantisation_rule quantisation_of(int32_t type) {
  switch (type) {
  case NP_TYPE_TENSOR_QUANT8_ASYMM:
    return (struct quantisation_rule){0, 255, SCALE_POSITIVE};
  case NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED:
    return (struct quantisation_rule){-128, 127, SCALE_POSITIVE};
  case NP_TYPE_TENSOR_QUANT16_ASYMM:
    return (struct quantisation_rule){0, 65535, SCALE_POSITIVE};
  case NP_TYPE_TENSOR_QUANT8_SYMM:
  case NP_TYPE_TENSOR_QUANT16_SYMM:
    return (struct quantisation_rule){0, 0, SCALE_POSITIVE};
  case NP_TYPE_TENSOR_INT32: /* a bias carries the product of its layer's scales */
    return (struct quantisation_rule){0, 0, SCALE_NOT_NEGATIVE};
  default:
    return (struct quantisation_rule){0, 0, SCALE_ZERO};
  }
}

static int check_quantisation(const ANeuralNetworksOperandType *type) {
  const struct quantisation_rule rule = quantisation_of(type->type);
  if (type->zeroPoint < rule.low || type->zeroPoint > rule.high) {
    return NP_REFUSE(BAD_DATA, "type %d: zero point %d is outside [%d, %d]", type->type,
                     type->zeroPoint, rule.low, rule.high);
  }
  const float scale = type->scale;
  const bool fits = isfinite(scale) && (rule.scale == SCALE_POSITIVE       ? scale > 0
                                        : rule.scale == SCALE_NOT_NEGATIVE ? scale >= 0
                                                                           : fabsf(scale) <= 0);
  if (fits) {
    return ANEURALNETWORKS_NO_ERROR;
  }
  return NP_REFUSE(BAD_DATA, "type %d: scale %g is none it may have", type->type, (double)scale);
}

static int check_dims(const ANeuralNetworksOperandType *type, bool allow_partial) {
  if (type->dimensionCount > NP_MAX_RANK) {
    return NP_REFUSE(BAD_DATA, "rank %u, at most %u", type->dimensionCount, NP_MAX_RANK);
  }
  if (!allow_partial && type->dimensionCount == 0) {
    return NP_REFUSE(BAD_DATA, "unknown rank");
  }
  uint64_t size = np_type_bytes(type->type);
  for (uint32_t i = 0; i < type->dimensionCount; i++) {
    const uint32_t dim = type->dimensions[i];
    if (dim == 0 && !allow_partial) {
      return NP_REFUSE(BAD_DATA, "dimension %u is unknown", i);
    }
    if (dim == 0) {
      continue;
    }
    if ((size *= dim) > UINT32_MAX) {
      return NP_REFUSE(BAD_DATA, "a tensor of 4 GiB or more");
    }
  }
  return ANEURALNETWORKS_NO_ERROR;
}

/* Checks an operand type, for addOperand (allow_partial: rank and dimensions may be unknown) and
 * the setters of an execution. NO_ERROR or BAD_DATA. */
int np_check_operand_type(const ANeuralNetworksOperandType *type, bool allow_partial) {
  if (type->type < 0 || type->type > NP_TYPE_MODEL) {
    return NP_REFUSE(BAD_DATA, "%d is no operand type", type->type);
  }
  if ((type->dimensionCount == 0) != (type->dimensions == NULL)) {
    return NP_REFUSE(BAD_DATA, "%u dimensions at %p", type->dimensionCount,
                     (const void *)type->dimensions);
  }
  if (np_type_is_tensor(type->type)) {
    const int code = check_dims(type, allow_partial);
    if (code != ANEURALNETWORKS_NO_ERROR) {
      return code;
    }
  } else if (type->dimensionCount != 0) {
    return NP_REFUSE(BAD_DATA, "a scalar with %u dimensions", type->dimensionCount);
  }
  return check_quantisation(type);
}

bool np_dims_agree(uint32_t a_rank, const uint32_t *a, uint32_t b_rank, const uint32_t *b) {
  if (a_rank == 0 || b_rank == 0) {
    return true;
  }
  if (a_rank != b_rank) {
    return false;
  }
  for (uint32_t i = 0; i < a_rank; i++) {
    if (a[i] != 0 && b[i] != 0 && a[i] != b[i]) {
      return false;
    }
  }
  return true;
}

bool np_has_unknown_dims(const struct np_operand *operand) {
  if (!np_type_is_tensor(operand->type)) {
    return false;
  }
  if (operand->rank == 0) {
    return true;
  }
  for (uint32_t i = 0; i < operand->rank; i++) {
    if (operand->dims[i] == 0) {
      return true;
    }
  }
  return false;
}

int np_combine_dims(const struct np_operand *operand, const ANeuralNetworksOperandType *type,
                    bool allow_unknown, uint32_t *rank, uint32_t *dims) {
  *rank = operand->rank;
  memcpy(dims, operand->dims, sizeof operand->dims);
  if (!type) {
    if (allow_unknown || !np_has_unknown_dims(operand)) {
      return ANEURALNETWORKS_NO_ERROR;
    }
    return NP_REFUSE(BAD_DATA, "the model leaves dimensions open and no type gives them");
  }
  const int code = np_check_operand_type(type, allow_unknown);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return code;
  }
  if (np_type_is_tensor(type->type) != np_type_is_tensor(operand->type)) {
    return NP_REFUSE(BAD_DATA, "type %d for an operand of type %d: one is a tensor, one is not",
                     type->type, operand->type);
  }
  if (operand->rank == 0) {
    *rank = type->dimensionCount;
  } else if (type->dimensionCount != operand->rank) {
    return NP_REFUSE(BAD_DATA, "rank %u, the model has %u", type->dimensionCount, operand->rank);
  }
  for (uint32_t i = 0; i < type->dimensionCount; i++) {
    const uint32_t known = operand->rank ? operand->dims[i] : 0;
    if (known != 0 && type->dimensions[i] != known) {
      return NP_REFUSE(BAD_DATA, "dimension %u is %u, the model has %u", i, type->dimensions[i],
                       known);
    }
    dims[i] = type->dimensions[i];
  }
  return ANEURALNETWORKS_NO_ERROR;
}
