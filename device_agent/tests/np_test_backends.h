/* One operation at a time on both back ends: models of random data, run on `reference` and on
 * `fast`, whose results must agree. */
#ifndef NP_TEST_BACKENDS_H
#define NP_TEST_BACKENDS_H

#include <sys/mman.h>
#include <unistd.h>

#include "kernels/np_half.h"
#include "np_test_model.h"

/* The tolerance of Android's own tests in float32: |a - b| <= FLOAT_ERROR + FLOAT_SHARE * |b|. */
#define FLOAT_ERROR 1e-5f
#define FLOAT_SHARE (5.0f * 0x1.0p-23f)
#define HALF_SHARE (5.0f * 0x1.0p-10f)
#define QUANT_ERROR 1 /* steps: XNNPACK rounds products in float, NNAPI in fixed point */

/* Kinds of tested data: floats, unsigned numbers with weights of any zero point or around 128,
 * signed numbers, and both with a scale for each channel of the weights. float16 is separate. */
enum kind { OF_FLOAT, OF_U8, OF_U8_CENTRED, OF_S8, OF_CHANNELS, OF_U8_CHANNELS, KINDS, OF_HALF };

static inline int kind_is_float(enum kind kind) { return kind == OF_FLOAT || kind == OF_HALF; }

static inline int kind_is_unsigned(enum kind kind) {
  return kind == OF_U8 || kind == OF_U8_CENTRED || kind == OF_U8_CHANNELS;
}

static inline int kind_has_channels(enum kind kind) {
  return kind == OF_CHANNELS || kind == OF_U8_CHANNELS;
}

struct bench {
  struct model *model;
  uint64_t *seed;
  enum kind kind;
  void *owned[64];
  size_t n_owned;
};

static inline struct bench bench_new(uint64_t *seed, enum kind kind) {
  return (struct bench){.model = model_new(), .seed = seed, .kind = kind};
}

static inline void *bench_own(struct bench *bench, size_t bytes) {
  void *room = calloc(1, bytes + 1);
  if (room == NULL || bench->n_owned == sizeof bench->owned / sizeof *bench->owned) {
    abort();
  }
  bench->owned[bench->n_owned++] = room;
  return room;
}

static inline void bench_free(struct bench *bench) {
  while (bench->n_owned > 0) {
    free(bench->owned[--bench->n_owned]);
  }
  free(bench->model);
}

static inline int32_t bench_type(const struct bench *bench) {
  return bench->kind == OF_FLOAT         ? NP_TYPE_TENSOR_FLOAT32
         : bench->kind == OF_HALF        ? NP_TYPE_TENSOR_FLOAT16
         : kind_is_unsigned(bench->kind) ? NP_TYPE_TENSOR_QUANT8_ASYMM
                                         : NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED;
}

/* A tensor of the kind's type; a quantised one spans about [-1, 1] * range. */
static inline uint32_t bench_tensor(struct bench *bench, enum np_lifetime lifetime, float range,
                                    uint32_t rank, const uint32_t *dims) {
  const uint32_t index = model_operand(bench->model, bench_type(bench), lifetime, rank, dims);
  if (!kind_is_float(bench->kind)) {
    const int32_t shift = (int32_t)np_test_between(bench->seed, 0, 20) - 10;
    bench->model->operands[index].scale = range / 127.0f;
    bench->model->operands[index].zero_point = (kind_is_unsigned(bench->kind) ? 128 : 0) + shift;
  }
  return index;
}

/* n random values of an operand type; floats in [-range, range). */
static inline void bench_fill(uint64_t *seed, int32_t type, float range, void *values, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (type == NP_TYPE_TENSOR_FLOAT32) {
      ((float *)values)[i] = range * np_test_float(seed);
    } else if (type == NP_TYPE_TENSOR_FLOAT16) {
      ((uint16_t *)values)[i] = np_half_from_float(range * np_test_float(seed));
    } else {
      ((unsigned char *)values)[i] = (unsigned char)(np_test_random(seed) >> 30);
    }
  }
}

static inline uint32_t bench_constant(struct bench *bench, float range, uint32_t rank,
                                      const uint32_t *dims) {
  const uint32_t index = bench_tensor(bench, NP_CONSTANT, range, rank, dims);
  const struct np_operand *operand = &bench->model->operands[index];
  void *values = bench_own(bench, np_operand_bytes(operand));
  bench_fill(bench->seed, operand->type, range, values, np_operand_elements(operand));
  model_value(bench->model, index, values);
  return index;
}

/* Weights whose output channels are dimension `channels`, and the bias to products with `data`. */
static inline uint32_t bench_weights(struct bench *bench, uint32_t data, uint32_t channels,
                                     uint32_t rank, const uint32_t *dims, uint32_t *bias) {
  const uint32_t n = dims[channels];
  const uint32_t index = bench_constant(bench, 0.5f, rank, dims);
  struct np_operand *weights = &bench->model->operands[index];
  if (bench->kind == OF_FLOAT) {
    *bias = bench_constant(bench, 1.0f, 1, &n);
    return index;
  }
  *bias = model_operand(bench->model, NP_TYPE_TENSOR_INT32, NP_CONSTANT, 1, &n);
  struct np_operand *added = &bench->model->operands[*bias];
  added->scale = bench->model->operands[data].scale * weights->scale;
  if (bench->kind != OF_U8) {
    weights->zero_point = bench->kind == OF_U8_CENTRED ? 128 : 0;
  }
  if (kind_has_channels(bench->kind)) {
    float *scales = bench_own(bench, n * sizeof *scales);
    for (uint32_t c = 0; c < n; c++) {
      scales[c] = 0.004f * (1.5f + np_test_float(bench->seed));
    }
    weights->type = NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL;
    weights->channel_scales = scales;
    weights->channel_dim = channels;
    weights->scale = 0.0f;
    added->scale = 0.0f;
  }
  int32_t *values = bench_own(bench, n * sizeof *values);
  for (uint32_t c = 0; c < n; c++) {
    values[c] = (int32_t)np_test_between(bench->seed, 0, 4000) - 2000;
  }
  model_value(bench->model, *bias, values);
  return index;
}

/* An operation over the arguments, with one output. */
static inline void bench_operation(struct bench *bench, int32_t code, uint32_t output, uint32_t n,
                                   const uint32_t *arguments) {
  model_operation(bench->model, code, output, 0);
  const uint32_t index = bench->model->graph.n_operations - 1;
  bench->model->operations[index].n_inputs = n;
  memcpy(bench->model->arguments[index][0], arguments, n * sizeof *arguments);
}

/* Memory that ends at the end of a page, followed by one that must not be touched. */
struct walled {
  unsigned char *map;
  size_t mapped;
  void *data;
};

static inline struct walled walled_new(size_t bytes) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  struct walled walled = {.mapped = (bytes + page - 1) / page * page + page};
  walled.map =
      mmap(NULL, walled.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (walled.map == MAP_FAILED ||
      mprotect(walled.map + walled.mapped - page, page, PROT_NONE) != 0) {
    abort();
  }
  walled.data = walled.map + walled.mapped - page - bytes;
  return walled;
}

/* Runs the model on a back end with walled buffers; leaves the outputs in `outputs`. Returns how
 * many steps of the plan are the back end's, -1 on failure. */
static inline int bench_run(struct bench *bench, const char *backend, float range, uint64_t seed,
                            struct walled *outputs, struct np_message *why) {
  const struct np_graph *graph = &bench->model->graph;
  const struct np_executor_options options = {.backend = np_backend_named(backend),
                                              .threads = 1 + (uint32_t)(seed % 4 == 0)};
  struct np_executor *executor = NULL;
  struct walled ins[MODEL_ENDS];
  struct np_buffer buffers[2][MODEL_ENDS] = {{{0}}};
  uint32_t too_small;
  if (np_executor_create(graph, &options, &executor, why) != NP_OK) {
    return -1;
  }
  for (uint32_t i = 0; i < graph->n_inputs; i++) {
    const struct np_operand *operand = &graph->operands[graph->inputs[i]];
    ins[i] = walled_new(np_operand_bytes(operand));
    bench_fill(&seed, operand->type, range, ins[i].data, np_operand_elements(operand));
    buffers[0][i] = (struct np_buffer){.data = ins[i].data, .length = np_operand_bytes(operand)};
  }
  for (uint32_t i = 0; i < graph->n_outputs; i++) {
    const size_t bytes = np_operand_bytes(&graph->operands[graph->outputs[i]]);
    outputs[i] = walled_new(bytes);
    buffers[1][i] = (struct np_buffer){.data = outputs[i].data, .length = bytes};
  }
  int steps = 0;
  for (int repeat = 0; repeat < 2 && steps >= 0; repeat++) {
    const enum np_status status =
        np_executor_run(executor, buffers[0], buffers[1], NULL, &too_small, why);
    steps = status == NP_OK ? 0 : -1;
  }
  char *text = NULL;
  size_t length = 0;
  FILE *file = open_memstream(&text, &length);
  np_executor_dump(executor, file);
  (void)fclose(file);
  char wanted[32];
  (void)snprintf(wanted, sizeof wanted, ": %s, ", backend);
  for (const char *at = text; steps >= 0 && (at = strstr(at, wanted)) != NULL; at++) {
    steps++;
  }
  free(text);
  for (uint32_t i = 0; i < graph->n_inputs; i++) {
    (void)munmap(ins[i].map, ins[i].mapped);
  }
  np_executor_free(executor);
  return steps;
}

/* Returns whether two results of an output agree. */
static inline int bench_agrees(const struct np_operand *operand, const void *a, const void *b) {
  const size_t n = np_operand_elements(operand);
  for (size_t i = 0; operand->type == NP_TYPE_TENSOR_FLOAT32 && i < n; i++) {
    const float x = ((const float *)a)[i];
    const float y = ((const float *)b)[i];
    if (!(fabsf(x - y) <= FLOAT_ERROR + FLOAT_SHARE * fabsf(y))) {
      return 0;
    }
  }
  if (operand->type == NP_TYPE_TENSOR_FLOAT32) {
    return 1;
  }
  for (size_t i = 0; operand->type == NP_TYPE_TENSOR_FLOAT16 && i < n; i++) {
    const float x = np_half_to_float(((const uint16_t *)a)[i]);
    const float y = np_half_to_float(((const uint16_t *)b)[i]);
    if (!(fabsf(x - y) <= HALF_SHARE * (1.0f + fabsf(y)))) {
      return 0;
    }
  }
  if (operand->type == NP_TYPE_TENSOR_FLOAT16) {
    return 1;
  }
  const int is_signed = operand->type == NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED;
  for (size_t i = 0; i < n; i++) {
    const int x = is_signed ? ((const signed char *)a)[i] : ((const unsigned char *)a)[i];
    const int y = is_signed ? ((const signed char *)b)[i] : ((const unsigned char *)b)[i];
    if (abs(x - y) > QUANT_ERROR) {
      return 0;
    }
  }
  return 1;
}

/* Checks the model, runs it on both back ends and compares; frees the bench. `taken`: `fast` must
 * take all of it, as one region. */
static inline void bench_compare(struct bench *bench, float range, int taken, const char *what) {
  const struct np_graph *graph = &bench->model->graph;
  struct np_message why = {""};
  struct walled wanted[MODEL_ENDS];
  struct walled found[MODEL_ENDS];
  const uint64_t seed = np_test_random(bench->seed);
  int ok =
      CHECK(np_graph_check(&bench->model->graph, ANEURALNETWORKS_FEATURE_LEVEL_8, &why) == NP_OK);
  if (ok && CHECK(bench_run(bench, "reference", range, seed, wanted, &why) > 0)) {
    const int steps = bench_run(bench, "fast", range, seed, found, &why);
    ok = CHECK(steps == (taken ? 1 : 0));
    for (uint32_t i = 0; i < graph->n_outputs; i++) {
      if (steps >= 0) {
        ok &=
            CHECK(bench_agrees(&graph->operands[graph->outputs[i]], found[i].data, wanted[i].data));
        (void)munmap(found[i].map, found[i].mapped);
      }
      (void)munmap(wanted[i].map, wanted[i].mapped);
    }
  } else {
    ok = 0;
  }
  if (!ok) {
    (void)fprintf(stderr, "  in %s of kind %d: %s\n", what, (int)bench->kind, why.text);
  }
  bench_free(bench);
}

#endif
