/* Facts about operand types and operations, and overflow-safe sizes. */
#include "np_graph.h"

#include <string.h>

size_t np_type_bytes(int32_t type) {
  switch (type) {
  case NP_TYPE_FLOAT32:
  case NP_TYPE_INT32:
  case NP_TYPE_UINT32:
  case NP_TYPE_TENSOR_FLOAT32:
  case NP_TYPE_TENSOR_INT32:
    return 4;
  case NP_TYPE_FLOAT16:
  case NP_TYPE_TENSOR_FLOAT16:
  case NP_TYPE_TENSOR_QUANT16_SYMM:
  case NP_TYPE_TENSOR_QUANT16_ASYMM:
    return 2;
  case NP_TYPE_BOOL:
  case NP_TYPE_TENSOR_BOOL8:
  case NP_TYPE_TENSOR_QUANT8_ASYMM:
  case NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL:
  case NP_TYPE_TENSOR_QUANT8_SYMM:
  case NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED:
    return 1;
  default:
    return 0;
  }
}

int np_type_is_tensor(int32_t type) {
  switch (type) {
  case NP_TYPE_TENSOR_FLOAT32:
  case NP_TYPE_TENSOR_INT32:
  case NP_TYPE_TENSOR_QUANT8_ASYMM:
  case NP_TYPE_TENSOR_QUANT16_SYMM:
  case NP_TYPE_TENSOR_FLOAT16:
  case NP_TYPE_TENSOR_BOOL8:
  case NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL:
  case NP_TYPE_TENSOR_QUANT16_ASYMM:
  case NP_TYPE_TENSOR_QUANT8_SYMM:
  case NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED:
    return 1;
  default:
    return 0;
  }
}

size_t np_operand_elements(const struct np_operand *operand) {
  if (!np_type_is_tensor(operand->type)) {
    return 1;
  }
  if (operand->rank == 0 || operand->rank > NP_MAX_RANK) {
    return 0;
  }
  size_t elements = 1;
  for (uint32_t i = 0; i < operand->rank; i++) {
    if (operand->dims[i] == 0) {
      return 0;
    }
  }
  for (uint32_t i = 0; i < operand->rank; i++) {
    if (elements > SIZE_MAX / operand->dims[i]) {
      return SIZE_MAX;
    }
    elements *= operand->dims[i];
  }
  return elements;
}

size_t np_operand_bytes(const struct np_operand *operand) {
  const size_t elements = np_operand_elements(operand);
  const size_t each = np_type_bytes(operand->type);
  if (elements == SIZE_MAX || (each != 0 && elements > SIZE_MAX / each)) {
    return SIZE_MAX;
  }
  return elements * each;
}

struct fact {
  const char *name;
  int32_t code;
  int level;
};

#define FACT(name, code, level) {#name, code, level},
static const struct fact FACTS[] = {NP_OPERATIONS(FACT)};
#undef FACT

/* Returns the fact of a code, NULL for none. The table is dense and ordered by code, as
 * test_graph.c checks. */
static const struct fact *fact_of(int32_t code) {
  if (code < 0 || (size_t)code >= sizeof FACTS / sizeof FACTS[0]) {
    return NULL;
  }
  return FACTS[code].code == code ? &FACTS[code] : NULL;
}

const char *np_operation_name(int32_t code) {
  const struct fact *fact = fact_of(code);
  return fact == NULL ? "UNKNOWN" : fact->name;
}

int32_t np_operation_code(const char *name) {
  for (size_t i = 0; i < sizeof FACTS / sizeof FACTS[0]; i++) {
    if (strcmp(FACTS[i].name, name) == 0) {
      return FACTS[i].code;
    }
  }
  return -1;
}

int np_operation_level(int32_t code) {
  const struct fact *fact = fact_of(code);
  return fact == NULL ? 0 : fact->level;
}
