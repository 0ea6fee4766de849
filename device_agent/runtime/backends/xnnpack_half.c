/* FLOAT32 computed in float16: the operations for which XNNPACK supports this, and whether this
 * processor does. */
#include <pthread.h>
#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

#include "backends/xnnpack_rules.h"
#include "np_executor.h"

enum np_xnn_half np_xnn_half_of(const struct np_call *call) {
  if (call->operation->n_inputs == 0 || np_in_operand(call, 0)->type != NP_TYPE_TENSOR_FLOAT32 ||
      np_out_operand(call, 0)->type != NP_TYPE_TENSOR_FLOAT32) {
    return NP_XNN_HALF_NEVER;
  }
  switch (call->operation->code) {
  case ANEURALNETWORKS_CAST:
  case ANEURALNETWORKS_EXP:
  case ANEURALNETWORKS_RSQRT:
  case ANEURALNETWORKS_SQRT:
  /* XNNPACK's are off by several steps: sums in float16, polynomials. */
  case ANEURALNETWORKS_AVERAGE_POOL_2D:
  case ANEURALNETWORKS_SOFTMAX:
  case ANEURALNETWORKS_TANH:
    return NP_XNN_HALF_NEVER;
  /* Converting kernels round at each step of these sums, and are no faster than float32. */
  case ANEURALNETWORKS_DEPTHWISE_CONV_2D:
    return np_xnn_half() == NP_HALF_NATIVE ? NP_XNN_HALF_COMPUTES : NP_XNN_HALF_NEVER;
  case ANEURALNETWORKS_CONCATENATION:
  case ANEURALNETWORKS_DEPTH_TO_SPACE:
  case ANEURALNETWORKS_EXPAND_DIMS:
  case ANEURALNETWORKS_PAD:
  case ANEURALNETWORKS_PAD_V2:
  case ANEURALNETWORKS_RESHAPE:
  case ANEURALNETWORKS_SLICE:
  case ANEURALNETWORKS_SPACE_TO_DEPTH:
  case ANEURALNETWORKS_SPLIT:
  case ANEURALNETWORKS_SQUEEZE:
  case ANEURALNETWORKS_STRIDED_SLICE:
  case ANEURALNETWORKS_TRANSPOSE:
    return NP_XNN_HALF_MOVES;
  default:
    return NP_XNN_HALF_COMPUTES;
  }
}

/* Tests |x| of 1 + 2^-20, which float16 rounds to 1. */
static enum xnn_status rounds(xnn_subgraph_t subgraph, int *rounded) {
  static const size_t SIZE = 8;
  static const float LITTLE_MORE = 1.0f + 0x1.0p-20f;
  float x[8 + XNN_EXTRA_BYTES / sizeof(float)];
  float y[8 + XNN_EXTRA_BYTES / sizeof(float)];
  const struct xnn_external_value values[] = {{0, x}, {1, y}};
  for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
    x[i] = LITTLE_MORE;
  }
  for (uint32_t v = 0; v < 2; v++) {
    uint32_t id;
    NP_XNN_TRY(xnn_define_tensor_value(
        subgraph, xnn_datatype_fp32, 1, &SIZE, NULL, v,
        v == 0 ? XNN_VALUE_FLAG_EXTERNAL_INPUT : XNN_VALUE_FLAG_EXTERNAL_OUTPUT, &id));
  }
  NP_XNN_TRY(xnn_define_unary(subgraph, xnn_unary_abs, NULL, 0, 1, 0));
  xnn_runtime_t runtime = NULL;
  NP_XNN_TRY(xnn_create_runtime_v2(subgraph, NULL, XNN_FLAG_FORCE_FP16_INFERENCE, &runtime));
  enum xnn_status status = xnn_setup_runtime(runtime, 2, values);
  if (status == xnn_status_success) {
    status = xnn_invoke_runtime(runtime);
  }
  *rounded = status == xnn_status_success && y[0] == 1.0f;
  (void)xnn_delete_runtime(runtime);
  return status;
}

/* On x86 XNNPACK also has kernels for processors without it, which convert and compute in
 * float32. */
static int has_arithmetic(void) {
#if defined(__x86_64__) || defined(__i386__)
  static const unsigned AVX512_FP16 = 1u << 23;
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AVX512_FP16) != 0;
#else
  return 1;
#endif
}

static enum np_half half = NP_HALF_NONE;

static void find_half(void) {
  xnn_subgraph_t subgraph;
  int rounded = 0;
  if (xnn_create_subgraph(2, 0, &subgraph) == xnn_status_success) {
    (void)rounds(subgraph, &rounded);
    (void)xnn_delete_subgraph(subgraph);
  }
  half = !rounded ? NP_HALF_NONE : has_arithmetic() ? NP_HALF_NATIVE : NP_HALF_EMULATED;
}

enum np_half np_xnn_half(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  return pthread_once(&once, find_half) == 0 ? half : NP_HALF_NONE;
}
