// Copies values between ExecuTorch's tensors and a bundle's, which differ in strides and integer
// types.
#pragma once

#include <executorch/runtime/core/exec_aten/exec_aten.h>

#include "nnapi_prof_runtime.h"

namespace nnapi_prof {

// Returns whether the bytes of `tensor` have the layout of `end`, so that no copy is needed.
bool lies_alike(const executorch::aten::Tensor &tensor, const nnp_tensor &end);

// Returns whether a tensor can stand for `end`: the same number of elements, of a type that holds
// them.
bool fits(const executorch::aten::Tensor &tensor, const nnp_tensor &end);

// Copies a tensor's values to `memory`, of end.n_bytes bytes. Returns false if a 64-bit integer
// does not fit into NNAPI's 32 bits.
bool lay_out(const executorch::aten::Tensor &tensor, const nnp_tensor &end, void *memory);

// Copies the other way, from `memory` to a tensor.
void take_in(const void *memory, const nnp_tensor &end, executorch::aten::Tensor &tensor);

} // namespace nnapi_prof
