/* Operations of object detection on sane and on hostile values: NaN, infinities, batches that there
 * are not, boxes inside out, absurd limits. Each run ends, stays within its memory (which the
 * sanitizers watch), gives a sentence where it fails, and the same bytes when it is repeated. */
#include "np_test_model.h"

enum { ROOM = 1 << 16, MOST_INPUTS = 4 };

/* One model of one operation, with values for its inputs. */
struct trial {
  struct model *model;
  uint64_t *seed;
  int hostile;
  int32_t type; /* of the data */
  void *values[MOST_INPUTS];
  uint32_t n_tensors;
  uint32_t arguments[MODEL_ARGUMENTS];
  int n_arguments;
};

static int chance(const struct trial *trial) {
  return trial->hostile && np_test_between(trial->seed, 0, 7) == 0;
}

static float hostile_float(uint64_t *seed) {
  static const float POOL[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-40f, -1.0f, 0.0f, 1e9f};
  return POOL[np_test_between(seed, 0, sizeof POOL / sizeof POOL[0] - 1)];
}

static int32_t hostile_int(uint64_t *seed) {
  static const int32_t POOL[] = {INT32_MIN, -1, 0, 1, 2, 3, 100000, INT32_MAX};
  return POOL[np_test_between(seed, 0, sizeof POOL / sizeof POOL[0] - 1)];
}

static void argue(struct trial *trial, uint32_t operand) {
  trial->arguments[trial->n_arguments++] = operand;
}

static void real(struct trial *trial, float value) {
  argue(trial, model_f32(trial->model, chance(trial) ? hostile_float(trial->seed) : value));
}

static void whole(struct trial *trial, int32_t value) {
  argue(trial, model_i32(trial->model, chance(trial) ? hostile_int(trial->seed) : value));
}

/* An input tensor of `type`, all of whose bytes are set by the caller. */
static void *tensor(struct trial *trial, int32_t type, uint32_t rank, const uint32_t *dims) {
  const uint32_t operand = model_operand(trial->model, type, NP_INPUT, rank, dims);
  struct np_operand *one = &trial->model->operands[operand];
  const int wide = type == NP_TYPE_TENSOR_QUANT16_ASYMM || type == NP_TYPE_TENSOR_QUANT16_SYMM;
  const int quantised = type != NP_TYPE_TENSOR_FLOAT32 && type != NP_TYPE_TENSOR_INT32;
  one->scale = wide ? 0.125f : quantised ? 1.0f / 64 : 0.0f;
  void *values = malloc(np_operand_bytes(one) + 1);
  if (values == NULL) {
    abort();
  }
  trial->values[trial->n_tensors++] = values;
  argue(trial, operand);
  return values;
}

/* Data, deltas and scores: any bytes where they are quantised. */
static void data(struct trial *trial, uint32_t rank, const uint32_t *dims) {
  void *values = tensor(trial, trial->type, rank, dims);
  const size_t n = np_operand_elements(&trial->model->operands[trial->model->graph.n_operands - 1]);
  for (size_t i = 0; i < n; i++) {
    if (trial->type == NP_TYPE_TENSOR_FLOAT32) {
      ((float *)values)[i] =
          chance(trial) ? hostile_float(trial->seed) : np_test_float(trial->seed);
    } else {
      ((unsigned char *)values)[i] = (unsigned char)np_test_between(trial->seed, 0, 255);
    }
  }
}

/* Rows of boxes in an image of 8 x 8, or of sizes of images (of `width` 2). */
static void boxes(struct trial *trial, int32_t quantised, uint32_t rows, uint32_t width) {
  const int32_t type = trial->type == NP_TYPE_TENSOR_FLOAT32 ? trial->type : quantised;
  void *values = tensor(trial, type, 2, (const uint32_t[]){rows, width});
  for (uint32_t i = 0; i < rows * width; i++) {
    const uint32_t low = width == 2 || i % 4 >= 2 ? 32 : 0; /* of 8 a pixel */
    const uint32_t place = chance(trial) ? np_test_between(trial->seed, 0, 65535)
                                         : low + np_test_between(trial->seed, 0, 32);
    if (type == NP_TYPE_TENSOR_FLOAT32) {
      ((float *)values)[i] = chance(trial) ? hostile_float(trial->seed) : (float)place / 8.0f;
    } else {
      ((uint16_t *)values)[i] = (uint16_t)place;
    }
  }
}

/* A batch index for each box, in order. */
static void batches(struct trial *trial, uint32_t rows) {
  int32_t *values = tensor(trial, NP_TYPE_TENSOR_INT32, 1, &rows);
  for (uint32_t i = 0; i < rows; i++) {
    values[i] = chance(trial) ? hostile_int(trial->seed) : i >= rows / 2;
  }
}

static uint32_t some(const struct trial *trial, uint32_t low, uint32_t high) {
  return np_test_between(trial->seed, low, high);
}

static void regions(struct trial *trial, int aligned) {
  const uint32_t n = some(trial, 1, 5);
  data(trial, 4, (const uint32_t[]){2, 8, 8, some(trial, 1, 3)});
  boxes(trial, NP_TYPE_TENSOR_QUANT16_ASYMM, n, 4);
  batches(trial, n);
  for (uint32_t i = 0; i < 2; i++) {
    argue(trial, model_i32(trial->model, (int32_t)some(trial, 1, 4)));
  }
  real(trial, 1.0f);
  real(trial, 2.0f);
  for (uint32_t i = 0; aligned && i < 2; i++) {
    argue(trial, model_i32(trial->model, (int32_t)some(trial, 0, 3)));
  }
  argue(trial, model_bool(trial->model, 0));
}

static void align(struct trial *trial) { regions(trial, 1); }

static void pooling(struct trial *trial) { regions(trial, 0); }

static void transform(struct trial *trial) {
  const uint32_t n = some(trial, 1, 5);
  boxes(trial, NP_TYPE_TENSOR_QUANT16_ASYMM, n, 4);
  data(trial, 2, (const uint32_t[]){n, 4 * some(trial, 1, 3)});
  batches(trial, n);
  boxes(trial, NP_TYPE_TENSOR_QUANT16_ASYMM, 2, 2);
}

static void limit(struct trial *trial) {
  const uint32_t n = some(trial, 1, 12);
  const uint32_t classes = some(trial, 2, 4);
  data(trial, 2, (const uint32_t[]){n, classes});
  boxes(trial, NP_TYPE_TENSOR_QUANT16_ASYMM, n, 4 * classes);
  batches(trial, n);
  real(trial, 0.1f);
  whole(trial, (int32_t)some(trial, 0, 6) - 1);
  whole(trial, (int32_t)some(trial, 0, 2));
  real(trial, 0.3f);
  real(trial, 0.5f);
  real(trial, 0.05f);
}

static void proposals(struct trial *trial) {
  const uint32_t h = some(trial, 1, 4);
  const uint32_t w = some(trial, 1, 4);
  const uint32_t anchors = some(trial, 1, 3);
  data(trial, 4, (const uint32_t[]){2, h, w, anchors});
  data(trial, 4, (const uint32_t[]){2, h, w, 4 * anchors});
  boxes(trial, NP_TYPE_TENSOR_QUANT16_SYMM, anchors, 4);
  boxes(trial, NP_TYPE_TENSOR_QUANT16_ASYMM, 2, 2);
  real(trial, 2.0f);
  real(trial, 1.0f);
  whole(trial, (int32_t)some(trial, 0, 20) - 1);
  whole(trial, (int32_t)some(trial, 0, 9) - 1);
  real(trial, 0.4f);
  real(trial, 1.0f);
  argue(trial, model_bool(trial->model, 0));
}

static void detection(struct trial *trial) {
  const uint32_t anchors = some(trial, 1, 12);
  trial->type = NP_TYPE_TENSOR_FLOAT32; /* there is no other */
  data(trial, 3, (const uint32_t[]){2, anchors, some(trial, 2, 5)});
  data(trial, 3, (const uint32_t[]){2, anchors, some(trial, 4, 6)});
  boxes(trial, 0, anchors, 4);
  for (uint32_t i = 0; i < 4; i++) {
    real(trial, 1.0f);
  }
  argue(trial, model_bool(trial->model, some(trial, 0, 1) != 0));
  for (uint32_t i = 0; i < 3; i++) {
    argue(trial, model_i32(trial->model, (int32_t)some(trial, chance(trial) ? 0 : 1, 9)));
  }
  real(trial, 0.1f);
  real(trial, 0.4f);
  argue(trial, model_bool(trial->model, some(trial, 0, 1) != 0));
}

static void heatmap(struct trial *trial) {
  const uint32_t n = some(trial, 1, 4);
  const uint32_t side = some(trial, 2, 5);
  data(trial, 4, (const uint32_t[]){n, side, side, some(trial, 1, 3)});
  boxes(trial, NP_TYPE_TENSOR_QUANT16_ASYMM, n, 4);
  argue(trial, model_bool(trial->model, 0));
}

/* What an operation puts out: data, boxes, or numbers. */
static const struct family {
  int32_t code;
  void (*build)(struct trial *trial);
  const char *outputs;
} FAMILIES[] = {
    {ANEURALNETWORKS_ROI_ALIGN, align, "d"},
    {ANEURALNETWORKS_ROI_POOLING, pooling, "d"},
    {ANEURALNETWORKS_AXIS_ALIGNED_BBOX_TRANSFORM, transform, "b"},
    {ANEURALNETWORKS_BOX_WITH_NMS_LIMIT, limit, "dbnn"},
    {ANEURALNETWORKS_GENERATE_PROPOSALS, proposals, "dbn"},
    {ANEURALNETWORKS_DETECTION_POSTPROCESSING, detection, "dbnn"},
    {ANEURALNETWORKS_HEATMAP_MAX_KEYPOINT, heatmap, "db"},
};

static void build(struct trial *trial, const struct family *family) {
  struct model *model = trial->model;
  family->build(trial);
  struct np_operation *operation = &model->operations[model->graph.n_operations++];
  memcpy(model->arguments[0][0], trial->arguments, sizeof trial->arguments);
  *operation = (struct np_operation){.code = family->code,
                                     .n_inputs = (uint32_t)trial->n_arguments,
                                     .inputs = model->arguments[0][0],
                                     .outputs = model->arguments[0][1]};
  for (const char *kind = family->outputs; *kind != '\0'; kind++) {
    const int32_t quantised = trial->type != NP_TYPE_TENSOR_FLOAT32;
    const int32_t type = *kind == 'n'                ? NP_TYPE_TENSOR_INT32
                         : *kind == 'b' && quantised ? NP_TYPE_TENSOR_QUANT16_ASYMM
                                                     : trial->type;
    const uint32_t operand = model_operand(model, type, NP_OUTPUT, 0, NULL);
    model->operands[operand].scale = *kind == 'n' || !quantised ? 0.0f
                                     : *kind == 'b'             ? 0.125f
                                                                : 1.0f / 64;
    model->arguments[0][1][operation->n_outputs++] = operand;
  }
}

/* Runs with outputs of `length` bytes each; 0 leaves them out. */
static enum np_status run(struct np_executor *executor, const struct trial *trial,
                          struct np_buffer outputs[MODEL_ENDS], size_t length) {
  struct np_message why = {""};
  struct np_buffer inputs[MODEL_ENDS] = {{0}};
  uint32_t too_small;
  for (uint32_t i = 0; i < trial->n_tensors; i++) {
    inputs[i].data = trial->values[i];
    inputs[i].length = np_operand_bytes(&trial->model->operands[trial->model->inputs[i]]);
  }
  for (uint32_t i = 0; i < trial->model->graph.n_outputs; i++) {
    outputs[i].length = length;
    outputs[i].omitted = length == 0;
    if (length > 0) {
      memset(outputs[i].data, 0xA5, length);
    }
  }
  const enum np_status status = np_executor_run(executor, inputs, outputs, NULL, &too_small, &why);
  CHECK(status == NP_OK || why.text[0] != '\0');
  return status;
}

/* 1 for a run that succeeds, 0 for one that is refused, as it must then be every time. */
static int try_it(const struct trial *trial) {
  struct np_message why = {""};
  struct np_executor *executor = NULL;
  static unsigned char room[2][MODEL_ENDS][ROOM];
  const uint32_t n = trial->model->graph.n_outputs;
  if (model_check(trial->model, &why) != NP_OK ||
      np_executor_create(&trial->model->graph, NULL, &executor, &why) != NP_OK) {
    CHECK_TEXT(trial->hostile ? "hostile" : why.text, "hostile"); /* shows why it was refused */
    return 0;
  }
  struct np_buffer outputs[MODEL_ENDS] = {{0}};
  enum np_status status[3];
  status[0] = run(executor, trial, outputs, 0); /* in the executor's own rooms */
  for (uint32_t k = 0; k < 2; k++) {
    for (uint32_t i = 0; i < n; i++) {
      outputs[i].data = room[k][i];
    }
    status[1 + k] = run(executor, trial, outputs, ROOM);
  }
  CHECK(status[0] == status[1] && status[1] == status[2]);
  CHECK(status[1] == NP_OK || trial->hostile);
  CHECK(memcmp(room[0], room[1], n * sizeof room[0][0]) == 0 || status[1] != NP_OK);
  np_executor_free(executor);
  return status[1] == NP_OK;
}

int main(void) {
  static const int32_t TYPES[] = {NP_TYPE_TENSOR_FLOAT32, NP_TYPE_TENSOR_QUANT8_ASYMM,
                                  NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED};
  uint64_t seed = 41;
  for (size_t f = 0; f < sizeof FAMILIES / sizeof FAMILIES[0]; f++) {
    uint32_t good = 0;
    const uint32_t total = 300;
    for (uint32_t i = 0; i < total; i++) {
      struct trial trial = {
          .model = model_new(), .seed = &seed, .hostile = i % 2 != 0, .type = TYPES[i % 3]};
      build(&trial, &FAMILIES[f]);
      good += (uint32_t)try_it(&trial);
      for (uint32_t k = 0; k < trial.n_tensors; k++) {
        free(trial.values[k]);
      }
      free(trial.model);
    }
    CHECK(good >= total / 2);
    CHECK(good < total); /* hostile values were met */
  }
  return np_test_exit();
}
