/* The kernel of every operation, by its code. */
#include "kernels/np_kernel.h"

const struct np_kernel *np_kernel_of(int32_t code) {
  switch (code) {
#define CASE(name, number, level)                                                                  \
  case number:                                                                                     \
    return &np_kernel_##name;
    NP_OPERATIONS(CASE)
#undef CASE
  default:
    return NULL;
  }
}
