#define _POSIX_C_SOURCE 200809L
#include "miscompute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hash.h"
#include "kernels/np_kernel.h"

bool np_miscomputes(const struct np_accelerator *accelerator) {
  return accelerator && accelerator->n_errors > 0;
}

void np_miscompute_init(struct np_miscompute *run, const struct np_accelerator *accelerator) {
  struct timespec now = {0};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  const uint64_t seed = np_hash_u64(NP_HASH_START, (uint64_t)getpid());
  *run = (struct np_miscompute){
      .accelerator = accelerator,
      .odd = (np_hash_u64(seed, (uint64_t)now.tv_nsec) >> 32 & 1) != 0,
  };
}

/* Accesses the elements of an output as real numbers; 8-bit values are in steps from their zero
 * point. */
struct view {
  void *data;
  int32_t type;
  int32_t zero_point;
};

static double get(const struct view *view, size_t i) {
  switch (view->type) {
  case NP_TYPE_TENSOR_FLOAT32:
    return ((const float *)view->data)[i];
  case NP_TYPE_TENSOR_QUANT8_ASYMM:
    return ((const uint8_t *)view->data)[i] - view->zero_point;
  default:
    return ((const int8_t *)view->data)[i] - view->zero_point;
  }
}

static void put(const struct view *view, size_t i, double value) {
  const double whole = nearbyint(value) + view->zero_point;
  switch (view->type) {
  case NP_TYPE_TENSOR_FLOAT32:
    ((float *)view->data)[i] = (float)value;
    break;
  case NP_TYPE_TENSOR_QUANT8_ASYMM:
    ((uint8_t *)view->data)[i] = (uint8_t)fmin(fmax(whole, 0), UINT8_MAX);
    break;
  default:
    ((int8_t *)view->data)[i] = (int8_t)fmin(fmax(whole, INT8_MIN), INT8_MAX);
    break;
  }
}

/* Exchanges dimensions a and b of an output [before, a, b, after] in memory: height and width of an
 * image, the last two dimensions of another tensor. */
static void transpose(const struct view *view, const struct np_tensor *tensor) {
  const uint32_t image = tensor->rank == 4 ? 1 : 0;
  const uint32_t first = tensor->rank - 2 - image;
  size_t before = 1;
  for (uint32_t d = 0; d < first; d++) {
    before *= tensor->dims[d];
  }
  const size_t a = tensor->dims[first], b = tensor->dims[first + 1];
  const size_t after = image ? tensor->dims[3] : 1;
  double *old = malloc((a * b * after + 1) * sizeof *old);
  for (size_t n = 0; old && n < before; n++) {
    const size_t base = n * a * b * after;
    for (size_t i = 0; i < a * b * after; i++) {
      old[i] = get(view, base + i);
    }
    for (size_t i = 0; i < a; i++) {
      for (size_t j = 0; j < b; j++) {
        for (size_t c = 0; c < after; c++) {
          put(view, base + (j * a + i) * after + c, old[(i * b + j) * after + c]);
        }
      }
    }
  }
  free(old);
}

/* Reverses the last dimension, the channels. */
static void reverse_channels(const struct view *view, const struct np_tensor *tensor) {
  const size_t n = tensor->rank ? tensor->dims[tensor->rank - 1] : 1;
  for (size_t row = 0; n > 1 && row + n <= tensor->elements; row += n) {
    for (size_t c = 0; c < n / 2; c++) {
      const double left = get(view, row + c);
      put(view, row + c, get(view, row + n - 1 - c));
      put(view, row + n - 1 - c, left);
    }
  }
}

/* Returns whether an element of [N, H, W, C] is in the first or last row or column. */
static bool at_border(const struct np_tensor *tensor, size_t i) {
  if (tensor->rank != 4) {
    return i == 0;
  }
  const size_t column = i / tensor->dims[3] % tensor->dims[2];
  const size_t row = i / tensor->dims[3] / tensor->dims[2] % tensor->dims[1];
  return row == 0 || column == 0 || row + 1 == tensor->dims[1] || column + 1 == tensor->dims[2];
}

/* Moves the values of [N, H, W, C] one row down and one column right; the first ones stay. */
static void shift(const struct view *view, const struct np_tensor *tensor) {
  if (tensor->rank != 4) {
    return;
  }
  const size_t row = (size_t)tensor->dims[2] * tensor->dims[3];
  for (size_t i = tensor->elements; i-- > 0;) {
    const bool first = i / row % tensor->dims[1] == 0 || i % row < tensor->dims[3];
    if (!first) {
      put(view, i, get(view, i - row - tensor->dims[3]));
    }
  }
}

/* Wraps a value beyond +-limit around to the other end. */
static double wrapped(double value, double limit) {
  return limit > 0 ? value - 2 * limit * floor((value + limit) / (2 * limit)) : value;
}

/* Truncates a value to 8 bits of mantissa, or to an even number of steps. */
static double truncated(const struct view *view, double value) {
  if (view->type != NP_TYPE_TENSOR_FLOAT32) {
    return 2 * trunc(value / 2);
  }
  const float narrow = (float)value;
  uint32_t bits = 0;
  memcpy(&bits, &narrow, sizeof bits);
  bits &= 0xffff0000u;
  float cut = 0;
  memcpy(&cut, &bits, sizeof cut);
  return (double)cut;
}

/* Copies the last column of each tile of 8 to the first one of the next tile. */
static void repeat_tiles(const struct view *view, const struct np_tensor *tensor) {
  if (tensor->rank != 4) {
    return;
  }
  for (size_t i = tensor->elements; i-- > 0;) {
    const size_t column = i / tensor->dims[3] % tensor->dims[2];
    if (column > 0 && column % 8 == 0) {
      put(view, i, get(view, i - tensor->dims[3]));
    }
  }
}

/* Returns whether an error corrupts an element. */
static bool is_spoilt(const struct np_error *error, const struct np_tensor *tensor, size_t i,
                      double value) {
  const bool of_channel =
      error->channel == NP_EVERY_CHANNEL ||
      (tensor->rank > 0 && (int64_t)(i % tensor->dims[tensor->rank - 1]) == error->channel);
  const bool of_sign = !(error->when & (uint32_t)NP_WHEN_NEGATIVE) || value < 0;
  return of_channel && of_sign && (int64_t)i >= error->from;
}

static void spoil(const struct view *view, const struct np_tensor *tensor,
                  const struct np_error *error, uint64_t earlier) {
  if (error->how == NP_ERROR_TRANSPOSE) {
    if (tensor->rank >= 2) {
      transpose(view, tensor);
    }
    return;
  }
  if (error->how == NP_ERROR_CHANNELS) {
    reverse_channels(view, tensor);
    return;
  }
  if (error->how == NP_ERROR_SHIFT) {
    shift(view, tensor);
    return;
  }
  if (error->how == NP_ERROR_TILE) {
    repeat_tiles(view, tensor);
    return;
  }
  for (size_t i = 0; i < tensor->elements; i++) {
    const double value = get(view, i);
    if (!is_spoilt(error, tensor, i, value)) {
      continue;
    }
    switch (error->how) {
    case NP_ERROR_SCALE:
    case NP_ERROR_RACE:
      put(view, i, value * error->amount);
      break;
    case NP_ERROR_OFFSET:
      put(view, i, value + error->amount);
      break;
    case NP_ERROR_DRIFT:
      put(view, i, value + error->amount * (double)earlier);
      break;
    case NP_ERROR_ZERO:
      put(view, i, value + view->zero_point);
      break;
    case NP_ERROR_SATURATE:
      put(view, i, fmin(fmax(value, -error->amount), error->amount));
      break;
    case NP_ERROR_BORDER:
      if (at_border(tensor, i)) {
        put(view, i, value * error->amount);
      }
      break;
    case NP_ERROR_WRAP:
      put(view, i, wrapped(value, error->amount));
      break;
    case NP_ERROR_TRUNCATE:
      put(view, i, truncated(view, value));
      break;
    case NP_ERROR_ABSOLUTE:
      put(view, i, fabs(value));
      break;
    default: /* NP_ERROR_NAN */
      if ((i == 0 || error->channel != NP_EVERY_CHANNEL) && view->type == NP_TYPE_TENSOR_FLOAT32) {
        put(view, i, (double)NAN);
      }
      break;
    }
  }
}

static bool meets(const struct np_error *error, const struct np_miscompute *run,
                  const struct np_call *call, const struct np_tensor *tensor) {
  const bool batch = tensor->rank > 1 && tensor->dims[0] > 1;
  const uint32_t when =
      run->when | (batch ? (uint32_t)NP_WHEN_BATCH : 0) | (uint32_t)NP_WHEN_NEGATIVE;
  if (error->code != call->operation->code || (error->when & ~when) != 0 ||
      (error->how == NP_ERROR_RACE && !run->odd)) {
    return false;
  }
  return error->rank == 0 ||
         (error->rank == tensor->rank &&
          memcmp(error->dims, tensor->dims, error->rank * sizeof *error->dims) == 0);
}

void np_miscompute_after(void *context, const struct np_call *call) {
  const struct np_miscompute *run = context;
  for (uint32_t i = 0; i < run->accelerator->n_errors; i++) {
    const struct np_error *error = &run->accelerator->errors[i];
    if (error->result >= call->operation->n_outputs) {
      continue;
    }
    const struct np_operand *operand = np_out_operand(call, (uint32_t)error->result);
    const struct np_tensor *tensor = np_out(call, (uint32_t)error->result);
    const bool taken = operand->type == NP_TYPE_TENSOR_FLOAT32 ||
                       operand->type == NP_TYPE_TENSOR_QUANT8_ASYMM ||
                       operand->type == NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED;
    if (taken && tensor->room && meets(error, run, call, tensor)) {
      const struct view view = {tensor->room, operand->type, operand->zero_point};
      spoil(&view, tensor, error, run->earlier);
    }
  }
}
