#include "layout.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

namespace nnapi_prof {
namespace {

using executorch::aten::ScalarType;
using executorch::aten::Tensor;

constexpr size_t tile = 16; // elements of each of two axes that are copied together

// NNAPI's OperandCodes of values passed to a device.
enum Code : int32_t {
  float32 = 3,
  int32 = 4,
  quant8 = 5,
  float16 = 8,
  bool8 = 9,
  quant8_signed = 14
};

bool is_narrowed(const Tensor &tensor) { return tensor.scalar_type() == ScalarType::Long; }

bool holds(ScalarType type, int32_t code) {
  switch (code) {
  case float32:
    return type == ScalarType::Float;
  case int32:
    return type == ScalarType::Int || type == ScalarType::Long;
  case quant8:
    return type == ScalarType::Byte;
  case bool8:
    return type == ScalarType::Bool;
  case float16:
    return type == ScalarType::Half;
  case quant8_signed:
    return type == ScalarType::Char;
  default:
    return false;
  }
}

// Returns whether the tensor's axes are stored in their own order.
bool is_plain(const Tensor &tensor) {
  const auto order = tensor.dim_order();
  for (size_t i = 0; i < order.size(); i++) {
    if (order[i] != i) {
      return false;
    }
  }
  return true;
}

bool is_plain(const nnp_tensor &end) {
  for (uint32_t i = 0; i < end.rank; i++) {
    if (end.dim_order[i] != i) {
      return false;
    }
  }
  return true;
}

// Strides, in elements, of each axis in memory order, outermost first, for the tensor and for the
// bundle's memory, which is dense. A single axis if both are plain, whatever their ranks.
struct Walk {
  size_t rank;
  size_t sizes[NNP_MAX_RANK];
  size_t tensor_steps[NNP_MAX_RANK];
  size_t memory_steps[NNP_MAX_RANK];
};

Walk walk_of(const Tensor &tensor, const nnp_tensor &end) {
  Walk walk = {};
  if (is_plain(tensor) && is_plain(end)) {
    walk.rank = 1;
    walk.sizes[0] = static_cast<size_t>(tensor.numel());
    walk.tensor_steps[0] = walk.memory_steps[0] = 1;
    return walk;
  }
  walk.rank = end.rank;
  size_t step = 1;
  for (size_t i = end.rank; i-- > 0;) {
    walk.sizes[i] = end.dims[i];
    walk.memory_steps[i] = step;
    walk.tensor_steps[i] = static_cast<size_t>(tensor.strides()[end.dim_order[i]]);
    step *= end.dims[i];
  }
  return walk;
}

// Returns an axis with stride 1; the last axis if there is none.
size_t dense_axis(const Walk &walk, const size_t *steps) {
  for (size_t i = walk.rank; i-- > 0;) {
    if (steps[i] == 1 && walk.sizes[i] > 1) {
      return i;
    }
  }
  return walk.rank - 1;
}

// Calls copy(from, to) with the offset of each element in both. Proceeds in tiles of the two axes
// on which either side is dense, so that both use whole cache lines.
template <typename Copy> void for_each(const Walk &walk, Copy copy) {
  const size_t a = dense_axis(walk, walk.tensor_steps), b = dense_axis(walk, walk.memory_steps);
  const size_t n_a = a == b ? 1 : walk.sizes[a], n_b = walk.sizes[b];
  const size_t tensor_a = walk.tensor_steps[a], tensor_b = walk.tensor_steps[b];
  const size_t memory_a = walk.memory_steps[a], memory_b = walk.memory_steps[b];
  size_t outer = 1;
  for (size_t i = 0; i < walk.rank; i++) {
    outer *= i == a || i == b ? 1 : walk.sizes[i];
  }
  for (size_t n = 0; n < outer; n++) {
    size_t rest = n, tensor_at = 0, memory_at = 0;
    for (size_t i = walk.rank; i-- > 0;) {
      if (i != a && i != b) {
        tensor_at += rest % walk.sizes[i] * walk.tensor_steps[i];
        memory_at += rest % walk.sizes[i] * walk.memory_steps[i];
        rest /= walk.sizes[i];
      }
    }
    for (size_t i0 = 0; i0 < n_a; i0 += tile) {
      for (size_t j0 = 0; j0 < n_b; j0 += tile) {
        const size_t i1 = std::min(tile, n_a - i0), j1 = std::min(tile, n_b - j0);
        size_t from = tensor_at + i0 * tensor_a + j0 * tensor_b;
        size_t to = memory_at + i0 * memory_a + j0 * memory_b;
        for (size_t i = 0; i < i1; i++, from += tensor_a, to += memory_a) {
          for (size_t j = 0; j < j1; j++) {
            copy(from + j * tensor_b, to + j * memory_b);
          }
        }
      }
    }
  }
}

template <typename T> void lay_out_as(const Walk &walk, const Tensor &tensor, void *memory) {
  const T *from = static_cast<const T *>(tensor.const_data_ptr());
  T *to = static_cast<T *>(memory);
  for_each(walk, [=](size_t tensor_at, size_t memory_at) { to[memory_at] = from[tensor_at]; });
}

template <typename T> void take_in_as(const Walk &walk, const void *memory, Tensor &tensor) {
  const T *from = static_cast<const T *>(memory);
  T *to = static_cast<T *>(tensor.mutable_data_ptr());
  for_each(walk, [=](size_t tensor_at, size_t memory_at) { to[tensor_at] = from[memory_at]; });
}

} // namespace

bool lies_alike(const Tensor &tensor, const nnp_tensor &end) {
  if (is_narrowed(tensor)) {
    return false;
  }
  if (is_plain(tensor) && is_plain(end)) {
    return true;
  }
  const auto order = tensor.dim_order();
  return order.size() == end.rank &&
         std::equal(order.begin(), order.end(), static_cast<const uint32_t *>(end.dim_order));
}

bool fits(const Tensor &tensor, const nnp_tensor &end) {
  size_t n = 1;
  for (uint32_t i = 0; i < end.rank; i++) {
    n *= end.dims[i];
  }
  if (static_cast<size_t>(tensor.numel()) != n || !holds(tensor.scalar_type(), end.type)) {
    return false;
  }
  if (is_plain(tensor) && is_plain(end)) {
    return true;
  }
  if (static_cast<size_t>(tensor.dim()) != end.rank) {
    return false;
  }
  for (uint32_t i = 0; i < end.rank; i++) {
    if (end.dim_order[i] >= end.rank ||
        static_cast<size_t>(tensor.size(static_cast<ssize_t>(end.dim_order[i]))) != end.dims[i]) {
      return false;
    }
  }
  return true;
}

bool lay_out(const Tensor &tensor, const nnp_tensor &end, void *memory) {
  const Walk walk = walk_of(tensor, end);
  if (is_narrowed(tensor)) {
    const int64_t *from = tensor.const_data_ptr<int64_t>();
    int32_t *to = static_cast<int32_t *>(memory);
    bool all_fit = true;
    for_each(walk, [&](size_t tensor_at, size_t memory_at) {
      const int64_t value = from[tensor_at];
      all_fit &= value >= std::numeric_limits<int32_t>::min() &&
                 value <= std::numeric_limits<int32_t>::max();
      to[memory_at] = static_cast<int32_t>(value);
    });
    return all_fit;
  }
  switch (tensor.element_size()) {
  case 4:
    lay_out_as<uint32_t>(walk, tensor, memory);
    break;
  case 2:
    lay_out_as<uint16_t>(walk, tensor, memory);
    break;
  default:
    lay_out_as<uint8_t>(walk, tensor, memory);
  }
  return true;
}

void take_in(const void *memory, const nnp_tensor &end, Tensor &tensor) {
  const Walk walk = walk_of(tensor, end);
  if (is_narrowed(tensor)) {
    const int32_t *from = static_cast<const int32_t *>(memory);
    int64_t *to = tensor.mutable_data_ptr<int64_t>();
    for_each(walk, [=](size_t tensor_at, size_t memory_at) { to[tensor_at] = from[memory_at]; });
    return;
  }
  switch (tensor.element_size()) {
  case 4:
    take_in_as<uint32_t>(walk, memory, tensor);
    break;
  case 2:
    take_in_as<uint16_t>(walk, memory, tensor);
    break;
  default:
    take_in_as<uint8_t>(walk, memory, tensor);
  }
}

} // namespace nnapi_prof
