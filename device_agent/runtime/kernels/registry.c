/* Every operation that this library knows, in one table: how it may be called, with which data, and
 * the functions that do it. The rules are those of NeuralNetworksTypes.h, as in the project's fact
 * table nnapi_ops.json. */
#include "kernels/np_families.h"

#define N(array) (uint32_t)(sizeof(array) / sizeof((array)[0]))
#define ANY_RANK NP_MAX_RANK

/* Feature level that allows a kind of data: float32, float16, quant8, signed quant8, int32. */
#define SINCE(f32, f16, q8, s8, i32)                                                               \
  {                                                                                                \
      [NP_KIND_FLOAT32] = (f32),      [NP_KIND_FLOAT16] = (f16), [NP_KIND_QUANT8] = (q8),          \
      [NP_KIND_QUANT8_SIGNED] = (s8), [NP_KIND_INT32] = (i32),                                     \
  }

#define FLOATS (1u << NP_KIND_FLOAT32)
#define FLOATS_INTS (1u << NP_KIND_FLOAT32 | 1u << NP_KIND_INT32)
/* Operations that only move values do not look at them. */
#define MOVES                                                                                      \
  (1u << NP_KIND_FLOAT32 | 1u << NP_KIND_FLOAT16 | 1u << NP_KIND_QUANT8 |                          \
   1u << NP_KIND_QUANT8_SIGNED | 1u << NP_KIND_INT32)
#define MOVES_FLOATS (1u << NP_KIND_FLOAT32 | 1u << NP_KIND_FLOAT16)

static const struct np_form CONV_FORMS[] = {
    {"xwciiiiiii", 1, NP_EXPLICIT},    {"xwciiiiiiib", 3, NP_EXPLICIT},
    {"xwciiiiiiibii", 3, NP_EXPLICIT}, {"xwciiii", 1, NP_IMPLICIT},
    {"xwciiiib", 3, NP_IMPLICIT},      {"xwciiiibii", 3, NP_IMPLICIT},
};
static const struct np_form DEPTHWISE_FORMS[] = {
    {"xwciiiiiiii", 1, NP_EXPLICIT},    {"xwciiiiiiiib", 3, NP_EXPLICIT},
    {"xwciiiiiiiibii", 3, NP_EXPLICIT}, {"xwciiiii", 1, NP_IMPLICIT},
    {"xwciiiiib", 3, NP_IMPLICIT},      {"xwciiiiibii", 3, NP_IMPLICIT},
};
static const struct np_form GROUPED_FORMS[] = {
    {"xwciiiiiiiib", 3, NP_EXPLICIT},
    {"xwciiiiib", 3, NP_IMPLICIT},
};
static const struct np_form POOL_FORMS[] = {
    {"xiiiiiiiii", 1, NP_EXPLICIT},
    {"xiiiiiiiiib", 3, NP_EXPLICIT},
    {"xiiiiii", 1, NP_IMPLICIT},
    {"xiiiiiib", 3, NP_IMPLICIT},
};
static const struct np_form LINEAR_FORMS[] = {{"xwci", 1, NP_DEFAULT}};
static const struct np_form FUSED_FORMS[] = {{"xxi", 1, NP_DEFAULT}};
static const struct np_form BINARY_FORMS[] = {{"xx", 1, NP_DEFAULT}};
static const struct np_form UNARY_FORMS[] = {{"x", 1, NP_DEFAULT}};
static const struct np_form ELU_FORMS[] = {{"xf", 4, NP_DEFAULT}};
static const struct np_form SOFTMAX_FORMS[] = {{"xf", 1, NP_DEFAULT}, {"xfi", 3, NP_DEFAULT}};
static const struct np_form LOG_SOFTMAX_FORMS[] = {{"xfi", 3, NP_DEFAULT}};
static const struct np_form LIST_FORMS[] = {{"xI", 1, NP_DEFAULT}};
static const struct np_form MAYBE_LIST_FORMS[] = {{"xI?", 1, NP_DEFAULT}};
static const struct np_form AXIS_FORMS[] = {{"xi", 1, NP_DEFAULT}};
static const struct np_form SLICE_FORMS[] = {{"xII", 3, NP_DEFAULT}};
static const struct np_form STRIDED_FORMS[] = {{"xIIIiii", 2, NP_DEFAULT}};
static const struct np_form CONCATENATION_FORMS[] = {{"x*i", 1, NP_DEFAULT}};
static const struct np_form SPLIT_FORMS[] = {{"xii", 3, NP_DEFAULT}};
static const struct np_form PAD_V2_FORMS[] = {{"xIv", 3, NP_DEFAULT}};
static const struct np_form MEAN_FORMS[] = {{"xIi", 2, NP_DEFAULT}};
static const struct np_form REDUCE_FORMS[] = {{"xIb", 3, NP_DEFAULT}};
static const struct np_form BILINEAR_FORMS[] = {
    {"xii", 1, NP_BY_SIZE},    {"xiib", 3, NP_BY_SIZE},    {"xiibb", 4, NP_BY_SIZE},
    {"xiibbb", 4, NP_BY_SIZE}, {"xff", 3, NP_BY_SCALE},    {"xffb", 3, NP_BY_SCALE},
    {"xffbb", 4, NP_BY_SCALE}, {"xffbbb", 4, NP_BY_SCALE},
};
static const struct np_form NEAREST_FORMS[] = {
    {"xiib", 3, NP_BY_SIZE},  {"xiibb", 4, NP_BY_SIZE},  {"xiibbb", 4, NP_BY_SIZE},
    {"xffb", 3, NP_BY_SCALE}, {"xffbb", 4, NP_BY_SCALE}, {"xffbbb", 4, NP_BY_SCALE},
};

#define KERNEL(form_list, levels, kinds, low, high, which, family)                                 \
  .forms = (form_list), .n_forms = N(form_list), .since = levels, .runs = (kinds),                 \
  .min_rank = (low), .max_rank = (high), .extra = (which), .infer = np_##family##_infer,           \
  .run = np_##family##_run

static const struct np_kernel KERNELS[] = {
    [ANEURALNETWORKS_CONV_2D] = {KERNEL(CONV_FORMS, SINCE(1, 3, 1, 4, 0), FLOATS, 4, 4,
                                        NP_CONV_PLAIN, conv),
                                 .prepare = np_conv_prepare, .scratch = np_conv_scratch},
    [ANEURALNETWORKS_GROUPED_CONV_2D] = {KERNEL(GROUPED_FORMS, SINCE(3, 3, 3, 4, 0), FLOATS, 4, 4,
                                                NP_CONV_GROUPED, conv),
                                         .prepare = np_conv_prepare, .scratch = np_conv_scratch},
    [ANEURALNETWORKS_DEPTHWISE_CONV_2D] = {KERNEL(DEPTHWISE_FORMS, SINCE(1, 3, 1, 4, 0), FLOATS, 4,
                                                  4, 0, depthwise),
                                           .scratch = np_depthwise_scratch},
    [ANEURALNETWORKS_FULLY_CONNECTED] = {KERNEL(LINEAR_FORMS, SINCE(1, 3, 1, 4, 0), FLOATS, 2, 4, 0,
                                                linear),
                                         .prepare = np_linear_prepare,
                                         .scratch = np_linear_scratch},
    [ANEURALNETWORKS_AVERAGE_POOL_2D] = {KERNEL(POOL_FORMS, SINCE(1, 3, 1, 4, 0), FLOATS, 4, 4,
                                                NP_POOL_AVERAGE, pool),
                                         .scratch = np_pool_scratch},
    [ANEURALNETWORKS_MAX_POOL_2D] = {KERNEL(POOL_FORMS, SINCE(1, 3, 1, 4, 0), FLOATS, 4, 4,
                                            NP_POOL_MAX, pool),
                                     .scratch = np_pool_scratch},
    [ANEURALNETWORKS_L2_POOL_2D] = {KERNEL(POOL_FORMS, SINCE(1, 3, 0, 0, 0), FLOATS, 4, 4,
                                           NP_POOL_L2, pool),
                                    .scratch = np_pool_scratch},

    [ANEURALNETWORKS_ADD] = {KERNEL(FUSED_FORMS, SINCE(1, 3, 1, 4, 4), FLOATS_INTS, 1, 4,
                                    NP_BINARY_ADD, binary)},
    [ANEURALNETWORKS_SUB] = {KERNEL(FUSED_FORMS, SINCE(2, 3, 3, 4, 4), FLOATS_INTS, 1, 4,
                                    NP_BINARY_SUB, binary)},
    [ANEURALNETWORKS_MUL] = {KERNEL(FUSED_FORMS, SINCE(1, 3, 1, 4, 4), FLOATS_INTS, 1, 4,
                                    NP_BINARY_MUL, binary)},
    [ANEURALNETWORKS_DIV] = {KERNEL(FUSED_FORMS, SINCE(2, 3, 0, 0, 4), FLOATS_INTS, 1, 4,
                                    NP_BINARY_DIV, binary)},
    [ANEURALNETWORKS_MAXIMUM] = {KERNEL(BINARY_FORMS, SINCE(3, 3, 3, 4, 3), FLOATS_INTS, 1,
                                        ANY_RANK, NP_BINARY_MAXIMUM, binary)},
    [ANEURALNETWORKS_MINIMUM] = {KERNEL(BINARY_FORMS, SINCE(3, 3, 3, 4, 3), FLOATS_INTS, 1,
                                        ANY_RANK, NP_BINARY_MINIMUM, binary)},
    [ANEURALNETWORKS_POW] = {KERNEL(BINARY_FORMS, SINCE(3, 3, 0, 0, 0), FLOATS, 1, ANY_RANK,
                                    NP_BINARY_POW, binary)},
    [ANEURALNETWORKS_PRELU] = {KERNEL(BINARY_FORMS, SINCE(3, 3, 3, 4, 0), FLOATS, 1, ANY_RANK,
                                      NP_BINARY_PRELU, binary)},

    [ANEURALNETWORKS_RELU] = {KERNEL(UNARY_FORMS, SINCE(1, 3, 1, 4, 0), FLOATS, 1, 4, NP_UNARY_RELU,
                                     unary)},
    [ANEURALNETWORKS_RELU1] = {KERNEL(UNARY_FORMS, SINCE(1, 3, 1, 4, 0), FLOATS, 1, 4,
                                      NP_UNARY_RELU1, unary)},
    [ANEURALNETWORKS_RELU6] = {KERNEL(UNARY_FORMS, SINCE(1, 3, 1, 4, 0), FLOATS, 1, 4,
                                      NP_UNARY_RELU6, unary)},
    [ANEURALNETWORKS_LOGISTIC] = {KERNEL(UNARY_FORMS, SINCE(1, 3, 1, 4, 0), FLOATS, 1, 4,
                                         NP_UNARY_LOGISTIC, unary)},
    [ANEURALNETWORKS_TANH] = {KERNEL(UNARY_FORMS, SINCE(1, 3, 3, 4, 0), FLOATS, 1, 4, NP_UNARY_TANH,
                                     unary)},
    [ANEURALNETWORKS_HARD_SWISH] = {KERNEL(UNARY_FORMS, SINCE(4, 4, 4, 4, 0), FLOATS, 1, ANY_RANK,
                                           NP_UNARY_HARD_SWISH, unary)},
    [ANEURALNETWORKS_ELU] = {KERNEL(ELU_FORMS, SINCE(4, 4, 0, 0, 0), FLOATS, 1, ANY_RANK,
                                    NP_UNARY_ELU, unary)},
    [ANEURALNETWORKS_FLOOR] = {KERNEL(UNARY_FORMS, SINCE(1, 3, 0, 0, 0), FLOATS, 1, 4,
                                      NP_UNARY_FLOOR, unary)},
    [ANEURALNETWORKS_ABS] = {KERNEL(UNARY_FORMS, SINCE(3, 3, 0, 0, 4), FLOATS_INTS, 1, ANY_RANK,
                                    NP_UNARY_ABS, unary)},
    [ANEURALNETWORKS_EXP] = {KERNEL(UNARY_FORMS, SINCE(3, 3, 0, 0, 0), FLOATS, 1, ANY_RANK,
                                    NP_UNARY_EXP, unary)},
    [ANEURALNETWORKS_NEG] = {KERNEL(UNARY_FORMS, SINCE(3, 3, 0, 0, 3), FLOATS_INTS, 1, ANY_RANK,
                                    NP_UNARY_NEG, unary)},
    [ANEURALNETWORKS_SQRT] = {KERNEL(UNARY_FORMS, SINCE(3, 3, 0, 0, 0), FLOATS, 1, ANY_RANK,
                                     NP_UNARY_SQRT, unary)},
    [ANEURALNETWORKS_RSQRT] = {KERNEL(UNARY_FORMS, SINCE(3, 3, 7, 7, 0), FLOATS, 1, ANY_RANK,
                                      NP_UNARY_RSQRT, unary)},
    [ANEURALNETWORKS_LOG] = {KERNEL(UNARY_FORMS, SINCE(3, 3, 0, 0, 0), FLOATS, 1, ANY_RANK,
                                    NP_UNARY_LOG, unary)},
    [ANEURALNETWORKS_SIN] = {KERNEL(UNARY_FORMS, SINCE(3, 3, 0, 0, 0), FLOATS, 1, ANY_RANK,
                                    NP_UNARY_SIN, unary)},
    [ANEURALNETWORKS_SOFTMAX] = {KERNEL(SOFTMAX_FORMS, SINCE(1, 3, 1, 4, 0), FLOATS, 1, 4,
                                        NP_SOFTMAX, softmax),
                                 .early_ranks = 1u << 2 | 1u << 4},
    [ANEURALNETWORKS_LOG_SOFTMAX] = {KERNEL(LOG_SOFTMAX_FORMS, SINCE(3, 3, 0, 0, 0), FLOATS, 1,
                                            ANY_RANK, NP_LOG_SOFTMAX, softmax)},

    [ANEURALNETWORKS_RESHAPE] = {KERNEL(LIST_FORMS, SINCE(1, 3, 1, 4, 6), MOVES, 1, 4, 0, reshape)},
    [ANEURALNETWORKS_SQUEEZE] = {KERNEL(MAYBE_LIST_FORMS, SINCE(2, 3, 2, 4, 0), MOVES, 1, 4, 0,
                                        squeeze)},
    [ANEURALNETWORKS_EXPAND_DIMS] = {KERNEL(AXIS_FORMS, SINCE(3, 3, 3, 4, 3), MOVES, 1, ANY_RANK, 0,
                                            expand_dims)},
    [ANEURALNETWORKS_TRANSPOSE] = {KERNEL(MAYBE_LIST_FORMS, SINCE(2, 3, 2, 4, 0), MOVES, 1, 4, 0,
                                          transpose)},
    [ANEURALNETWORKS_SLICE] = {KERNEL(SLICE_FORMS, SINCE(3, 3, 3, 4, 3), MOVES, 1, ANY_RANK, 0,
                                      slice)},
    [ANEURALNETWORKS_STRIDED_SLICE] = {KERNEL(STRIDED_FORMS, SINCE(2, 3, 2, 4, 0), MOVES, 1, 4, 0,
                                              strided_slice)},
    [ANEURALNETWORKS_CONCATENATION] = {KERNEL(CONCATENATION_FORMS, SINCE(1, 3, 1, 4, 0),
                                              MOVES_FLOATS, 1, 4, 0, concatenation)},
    [ANEURALNETWORKS_SPLIT] = {KERNEL(SPLIT_FORMS, SINCE(3, 3, 3, 4, 3), MOVES, 1, ANY_RANK, 0,
                                      split),
                               .any_outputs = 1},
    [ANEURALNETWORKS_PAD] = {KERNEL(LIST_FORMS, SINCE(2, 3, 2, 4, 0), FLOATS, 1, 4, 0, pad)},
    [ANEURALNETWORKS_PAD_V2] = {KERNEL(PAD_V2_FORMS, SINCE(3, 3, 3, 4, 0), FLOATS, 1, 4, 0, pad)},

    [ANEURALNETWORKS_MEAN] = {KERNEL(MEAN_FORMS, SINCE(2, 3, 2, 4, 0), FLOATS, 1, 4, NP_REDUCE_MEAN,
                                     reduce)},
    [ANEURALNETWORKS_REDUCE_SUM] = {KERNEL(REDUCE_FORMS, SINCE(3, 3, 0, 0, 0), FLOATS, 1, 4,
                                           NP_REDUCE_SUM, reduce)},
    [ANEURALNETWORKS_REDUCE_PROD] = {KERNEL(REDUCE_FORMS, SINCE(3, 3, 0, 0, 0), FLOATS, 1, 4,
                                            NP_REDUCE_PROD, reduce)},
    [ANEURALNETWORKS_REDUCE_MAX] = {KERNEL(REDUCE_FORMS, SINCE(3, 3, 3, 4, 0), FLOATS, 1, 4,
                                           NP_REDUCE_MAX, reduce)},
    [ANEURALNETWORKS_REDUCE_MIN] = {KERNEL(REDUCE_FORMS, SINCE(3, 3, 3, 4, 0), FLOATS, 1, 4,
                                           NP_REDUCE_MIN, reduce)},

    [ANEURALNETWORKS_RESIZE_BILINEAR] = {KERNEL(BILINEAR_FORMS, SINCE(1, 3, 3, 4, 0), FLOATS, 4, 4,
                                                NP_RESIZE_BILINEAR, resize),
                                         .scratch = np_resize_scratch},
    [ANEURALNETWORKS_RESIZE_NEAREST_NEIGHBOR] = {KERNEL(NEAREST_FORMS, SINCE(3, 3, 3, 4, 0), FLOATS,
                                                        4, 4, NP_RESIZE_NEAREST, resize),
                                                 .scratch = np_resize_scratch},
};

const struct np_kernel *np_kernel_of(int32_t code) {
  if (code < 0 || (uint32_t)code >= N(KERNELS) || KERNELS[code].run == NULL) {
    return NULL;
  }
  return &KERNELS[code];
}
