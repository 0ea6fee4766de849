/* PACK, MIRROR_PAD and REVERSE, which the library's level lacks; moves of types that only lowering
 * moves; and the fingerprint of LSH_PROJECTION. */
#include "kernels/host_only/np_fingerprint.h"
#include "kernels/np_kernel.h"
#include "np_test_model.h"

static const int32_t TYPES[] = {NP_TYPE_TENSOR_FLOAT32, NP_TYPE_TENSOR_FLOAT16,
                                NP_TYPE_TENSOR_INT32, NP_TYPE_TENSOR_QUANT8_ASYMM,
                                NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED};

enum { MOST_BYTES = 1 << 16 };

/* A random shape of rank 1 to 4. */
static uint32_t random_shape(uint64_t *seed, uint32_t *dims) {
  const uint32_t rank = np_test_between(seed, 1, 4);
  for (uint32_t d = 0; d < 4; d++) {
    dims[d] = d < rank ? np_test_between(seed, 1, 6) : 1;
  }
  return rank;
}

static size_t product(uint32_t rank, const uint32_t *dims) {
  size_t n = 1;
  for (uint32_t d = 0; d < rank; d++) {
    n *= dims[d];
  }
  return n;
}

/* Coordinates of flat index i. */
static void unravel(size_t i, uint32_t rank, const uint32_t *dims, uint32_t *coordinates) {
  for (uint32_t d = rank; d-- > 0;) {
    coordinates[d] = (uint32_t)(i % dims[d]);
    i /= dims[d];
  }
}

/* A tensor of random bytes, or room for as many, and its operand. */
struct bytes {
  uint32_t operand;
  size_t n;
  unsigned char *data;
};

static struct bytes bytes_of(struct model *model, uint64_t *seed, int32_t type,
                             enum np_lifetime lifetime, uint32_t rank, const uint32_t *dims) {
  struct bytes one = {.operand = model_operand(model, type, lifetime, rank, dims)};
  if (np_type_bytes(type) == 1) {
    model->operands[one.operand].scale = 0.5f;
    model->operands[one.operand].zero_point = 3;
  }
  one.n = product(rank, dims) * np_type_bytes(type);
  one.data = malloc(one.n + 1);
  if (one.data == NULL || one.n > MOST_BYTES) {
    abort();
  }
  for (size_t i = 0; i < one.n; i++) {
    one.data[i] = (unsigned char)np_test_random(seed);
  }
  return one;
}

/* Checks at level 7 and runs a model of these inputs; its output is compared with `wanted`, NULL
 * for a model or a run that must fail. Frees all. */
static void expect_bytes(struct model *model, struct bytes *inputs, uint32_t n_inputs,
                         struct bytes output, unsigned char *wanted) {
  struct np_message why = {""};
  struct np_executor *executor = NULL;
  struct np_buffer ins[MODEL_ENDS] = {{0}};
  struct np_buffer out = {.data = output.data, .length = output.n};
  uint32_t too_small;
  for (uint32_t i = 0; i < n_inputs; i++) {
    ins[i] = (struct np_buffer){.data = inputs[i].data, .length = inputs[i].n};
  }
  CHECK(np_graph_check(&model->graph, ANEURALNETWORKS_FEATURE_LEVEL_7, &why) == NP_OK);
  enum np_status status = np_executor_create(&model->graph, NULL, &executor, &why);
  if (status == NP_OK) {
    status = np_executor_run(executor, ins, &out, NULL, &too_small, &why);
  }
  CHECK((status == NP_OK) == (wanted != NULL));
  CHECK(wanted == NULL || memcmp(wanted, output.data, output.n) == 0);
  np_executor_free(executor);
  for (uint32_t i = 0; i < n_inputs; i++) {
    free(inputs[i].data);
  }
  free(output.data);
  free(wanted);
  free(model);
}

static unsigned char *room(size_t n) {
  unsigned char *bytes = calloc(n + 1, 1);
  if (bytes == NULL) {
    abort();
  }
  return bytes;
}

static void test_pack(uint64_t *seed, int32_t type) {
  uint32_t dims[4];
  uint32_t out_dims[5];
  struct bytes inputs[3];
  const uint32_t rank = random_shape(seed, dims);
  const uint32_t axis = np_test_between(seed, 0, rank);
  for (uint32_t d = 0; d <= rank; d++) {
    out_dims[d] = d == axis ? 3 : dims[d - (d > axis)];
  }
  struct model *model = model_new();
  for (uint32_t i = 0; i < 3; i++) {
    inputs[i] = bytes_of(model, seed, type, NP_INPUT, rank, dims);
  }
  struct bytes out = bytes_of(model, seed, type, NP_OUTPUT, rank + 1, out_dims);
  model_operation(model, ANEURALNETWORKS_PACK, out.operand, 4, model_i32(model, (int32_t)axis),
                  inputs[0].operand, inputs[1].operand, inputs[2].operand);
  const size_t size = np_type_bytes(type);
  unsigned char *wanted = room(out.n);
  for (size_t i = 0; i < out.n / size; i++) {
    uint32_t at[5];
    size_t from = 0;
    unravel(i, rank + 1, out_dims, at);
    for (uint32_t d = 0; d <= rank; d++) {
      from = d == axis ? from : from * out_dims[d] + at[d];
    }
    memcpy(wanted + i * size, inputs[at[axis]].data + from * size, size);
  }
  expect_bytes(model, inputs, 3, out, wanted);
}

/* Returns the source of position i of a padded dimension. */
static uint32_t mirrored(int64_t i, int64_t n, int mode) {
  const int64_t skipped = mode == 0;
  return (uint32_t)(i < 0 ? skipped - 1 - i : i >= n ? 2 * n - 1 - skipped - i : i);
}

static void test_mirror_pad(uint64_t *seed, int32_t type) {
  uint32_t dims[4];
  uint32_t out_dims[4];
  int32_t paddings[8];
  const uint32_t rank = random_shape(seed, dims);
  const int mode = (int)np_test_between(seed, 0, 1); /* 0 skips the edge */
  for (uint32_t d = 0; d < rank; d++) {
    const uint32_t most = dims[d] - (mode == 0);
    paddings[2 * d] = (int32_t)np_test_between(seed, 0, most);
    paddings[2 * d + 1] = (int32_t)np_test_between(seed, 0, most);
    out_dims[d] = dims[d] + (uint32_t)(paddings[2 * d] + paddings[2 * d + 1]);
  }
  const int breaks = np_test_between(seed, 0, 7) == 0;
  if (breaks) { /* one more than can be mirrored */
    out_dims[0] += dims[0] + (mode == 1) - (uint32_t)paddings[0];
    paddings[0] += (int32_t)out_dims[0] - paddings[0] - paddings[1] - (int32_t)dims[0];
  }
  struct model *model = model_new();
  struct bytes in = bytes_of(model, seed, type, NP_INPUT, rank, dims);
  struct bytes out = bytes_of(model, seed, type, NP_OUTPUT, rank, out_dims);
  model_operation(model, ANEURALNETWORKS_MIRROR_PAD, out.operand, 3, in.operand,
                  model_list(model, 2 * rank, paddings, 1), model_i32(model, mode));
  const size_t size = np_type_bytes(type);
  unsigned char *wanted = breaks ? NULL : room(out.n);
  for (size_t i = 0; wanted != NULL && i < out.n / size; i++) {
    uint32_t at[4];
    size_t from = 0;
    unravel(i, rank, out_dims, at);
    for (uint32_t d = 0; d < rank; d++) {
      from = from * dims[d] + mirrored((int64_t)at[d] - paddings[2 * d], dims[d], mode);
    }
    memcpy(wanted + i * size, in.data + from * size, size);
  }
  expect_bytes(model, &in, 1, out, wanted);
}

static void test_reverse(uint64_t *seed, int32_t type) {
  uint32_t dims[8];
  const uint32_t rank = np_test_between(seed, 1, 8);
  for (uint32_t d = 0; d < rank; d++) {
    dims[d] = np_test_between(seed, 1, 3);
  }
  const int32_t axis = (int32_t)np_test_between(seed, 0, rank); /* one is too large */
  struct model *model = model_new();
  struct bytes in = bytes_of(model, seed, type, NP_INPUT, rank, dims);
  struct bytes out = bytes_of(model, seed, type, NP_OUTPUT, rank, dims);
  model_operation(model, ANEURALNETWORKS_REVERSE, out.operand, 2, in.operand,
                  model_list(model, 1, &axis, 0));
  const size_t size = np_type_bytes(type);
  unsigned char *wanted = (uint32_t)axis < rank ? room(out.n) : NULL;
  for (size_t i = 0; wanted != NULL && i < out.n / size; i++) {
    uint32_t at[8];
    size_t from = 0;
    unravel(i, rank, dims, at);
    at[axis] = dims[axis] - 1 - at[axis];
    for (uint32_t d = 0; d < rank; d++) {
      from = from * dims[d] + at[d];
    }
    memcpy(wanted + i * size, in.data + from * size, size);
  }
  expect_bytes(model, &in, 1, out, wanted);
}

/* TRANSPOSE and GATHER of types that models must not use, but lowering does. */
static void test_internal_types(void) {
  static const int32_t INTERNAL[] = {NP_TYPE_TENSOR_BOOL8, NP_TYPE_TENSOR_QUANT16_SYMM,
                                     NP_TYPE_TENSOR_QUANT16_ASYMM, NP_TYPE_TENSOR_INT32,
                                     NP_TYPE_TENSOR_QUANT8_SYMM};
  const int32_t order[2] = {1, 0};
  const int32_t zero = 0;
  for (size_t t = 0; t < sizeof INTERNAL / sizeof *INTERNAL; t++) {
    for (int gathers = 0; gathers < 2; gathers++) {
      const size_t size = np_type_bytes(INTERNAL[t]);
      unsigned char in[24];
      unsigned char out[24] = {0};
      unsigned char wanted[24];
      for (size_t i = 0; i < 6 * size; i++) { /* [2, 3] */
        const size_t e = i / size;
        const size_t to = gathers ? (1 - e / 3) * 3 + e % 3 : e % 3 * 2 + e / 3;
        in[i] = (unsigned char)(i * 37 + 1);
        wanted[to * size + i % size] = in[i];
      }
      struct np_operand operands[4] = {{.type = INTERNAL[t]}, {.type = INTERNAL[t]}};
      struct np_tensor tensors[4] = {
          {.type = INTERNAL[t], .rank = 2, .dims = {2, 3}, .known = 1, .elements = 6, .data = in},
          {.type = INTERNAL[t], .room = out},
          {.type = NP_TYPE_TENSOR_INT32,
           .rank = 1,
           .dims = {2},
           .known = 1,
           .elements = 2,
           .data = order},
          {.type = NP_TYPE_INT32, .known = 1, .elements = 1, .data = &zero}};
      const uint32_t inputs[2][3] = {{0, 2, 0}, {0, 3, 2}};
      const uint32_t output = 1;
      const struct np_operation operation = {.code = gathers ? ANEURALNETWORKS_GATHER
                                                             : ANEURALNETWORKS_TRANSPOSE,
                                             .n_inputs = gathers ? 3 : 2,
                                             .n_outputs = 1,
                                             .inputs = inputs[gathers],
                                             .outputs = &output};
      const struct np_graph graph = {.operands = operands, .n_operands = 4};
      const struct np_kernel *kernel = np_kernel_of(operation.code);
      const struct np_call call = {
          .graph = &graph, .operation = &operation, .kernel = kernel, .tensors = tensors};
      CHECK((kernel->types & NP_BIT(INTERNAL[t])) != 0);
      CHECK(kernel->infer(&call) == NP_OK && tensors[1].elements == 6);
      CHECK(kernel->run(&call) == NP_OK);
      CHECK(memcmp(out, wanted, 6 * size) == 0);
    }
  }
}

/* Values of FarmHash's own library, for lengths around each of its cases. */
static void test_fingerprint(void) {
  static const struct {
    size_t n;
    uint64_t wanted;
  } KNOWN[] = {
      {0, 0x9ae16a3b2f90404f},    {1, 0xbec09cc447469d8b},   {3, 0xa4d6cf79ba5542bd},
      {4, 0xfe5f528af12efccb},    {7, 0xddd7d25ecfef85dd},   {8, 0x2e175fe26ad7959d},
      {12, 0x462fe7980959c84c},   {16, 0xd50c1d1f2fbe03e5},  {17, 0xfbec59225af3dff5},
      {24, 0x8c8b51c3eb687e41},   {32, 0xe8a25775b4718b47},  {33, 0x55086716197ee7af},
      {50, 0x0ce1bb44f292f647},   {64, 0x4b08dd90d2bfabb5},  {65, 0xe2270b09af9beb6c},
      {100, 0x38b939fb63ddbfbb},  {127, 0x374cbb4ebadcb434}, {128, 0x787fb0b0e79d72fd},
      {129, 0x6d934b9e8f7a1328},  {192, 0x53e6bff4b27712cb}, {200, 0x973274cccfe13063},
      {1000, 0x74d15e034694d9d6},
  };
  unsigned char bytes[1000];
  for (size_t i = 0; i < sizeof bytes; i++) {
    bytes[i] = (unsigned char)(i * i * 7 + i * 31 + 3);
  }
  for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
    unsigned char *exact = malloc(KNOWN[i].n + 1); /* so that a sanitizer sees its end */
    if (exact == NULL) {
      abort();
    }
    memcpy(exact, bytes, KNOWN[i].n);
    CHECK(np_fingerprint(exact, KNOWN[i].n) == KNOWN[i].wanted);
    free(exact);
  }
}

int main(void) {
  uint64_t seed = 23;
  for (size_t i = 0; i < 300; i++) {
    const int32_t type = TYPES[i % (sizeof TYPES / sizeof *TYPES)];
    test_pack(&seed, type);
    test_mirror_pad(&seed, type);
    test_reverse(&seed, type);
  }
  test_internal_types();
  test_fingerprint();
  return np_test_exit();
}
