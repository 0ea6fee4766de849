#include "port.h"

int np_port_fits(int32_t type, uint32_t rank, const uint32_t *dims,
                 const struct np_operand *operand) {
  if (type != operand->type) {
    return 0;
  }
  if (operand->rank == 0 && np_type_is_tensor(operand->type)) {
    return 1;
  }
  if (rank != operand->rank) {
    return 0;
  }
  for (uint32_t i = 0; i < rank; i++) {
    if (operand->dims[i] != 0 && operand->dims[i] != dims[i]) {
      return 0;
    }
  }
  return 1;
}
