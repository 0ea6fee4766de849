// Values on their way between ExecuTorch's tensors and a bundle's: other strides, other integers.
#pragma once

#include <executorch/runtime/core/exec_aten/exec_aten.h>

#include "nnapi_prof_runtime.h"

namespace nnapi_prof {

// Whether bytes of `tensor` are those of `end` as they lie, so that no copy is needed.
bool lies_alike(const executorch::aten::Tensor &tensor, const nnp_tensor &end);

// Whether a tensor of this shape and type can be `end`: as many elements, a type that holds them.
bool fits(const executorch::aten::Tensor &tensor, const nnp_tensor &end);

// Copies a tensor's values to the memory of `end`, which has its n_bytes. False where a 64-bit
// integer does not fit the 32 bits that NNAPI has.
bool lay_out(const executorch::aten::Tensor &tensor, const nnp_tensor &end, void *memory);

// The way back.
void take_in(const void *memory, const nnp_tensor &end, executorch::aten::Tensor &tensor);

} // namespace nnapi_prof
