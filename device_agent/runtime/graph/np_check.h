/* Shared by the files that check a model. */
#ifndef NP_CHECK_H
#define NP_CHECK_H

#include "kernels/np_kernel.h"
#include "np_executor.h"

/* Checks the rules of IF and WHILE; their forms must have been matched. */
enum np_status np_check_control(const struct np_call *call, int32_t feature_level);

#endif
