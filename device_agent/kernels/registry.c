#include "np_kernel.h"

const struct np_kernel *np_kernel_of(int32_t code) {
  (void)code;
  return NULL;
}
