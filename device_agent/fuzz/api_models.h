/* Builds models through the C API from a fuzzer's bytes. Most bytes choose among what the table of
 * operations allows, so that most models are valid; some choose anything. A model that starts with
 * LITERAL is spelled out byte by byte: its seeds are models of tests. */
#ifndef NP_FUZZ_API_MODELS_H
#define NP_FUZZ_API_MODELS_H

#include <stdlib.h>
#include <string.h>

#include "np_graph.h"
#include "np_ops.h"

#define NP_DECLARE(type, name, parameters, level) type name parameters;
NP_NNAPI_FUNCTIONS(NP_DECLARE)
#undef NP_DECLARE

enum {
  MOST_OPERANDS = 96,
  MOST_PARTS = 12, /* inputs or outputs of one operation */
  MOST_MODELS = 3,
  MOST_DIM = 4,
  MOST_BYTES = 8 << 12, /* per operand */
  N_CODES = 106,
  LITERAL = 255,
};

/* The rest of the input; zeros after its end. */
struct bytes {
  const uint8_t *at, *end;
};

static inline uint32_t take(struct bytes *bytes) {
  return bytes->at < bytes->end ? *bytes->at++ : 0;
}

/* Returns a number below n, or 0 if n is 0. */
static inline uint32_t pick(struct bytes *bytes, uint32_t n) { return n ? take(bytes) % n : 0; }

/* Returns true for one byte in n. */
static inline int one_in(struct bytes *bytes, uint32_t n) { return pick(bytes, n) == n - 1; }

struct operand {
  int32_t type;
  uint32_t rank;
  uint32_t dims[NP_MAX_RANK];
  float scale;
  int32_t zero_point;
  enum { FREE, INPUT, VALUED, WRITTEN } state;
  int read;
};

struct fuzzed {
  ANeuralNetworksModel *model;
  struct operand operands[MOST_OPERANDS];
  uint32_t n_operands;
  uint32_t inputs[MOST_OPERANDS], n_inputs;
  uint32_t outputs[MOST_OPERANDS], n_outputs;
  uint32_t n_operations;
  uint32_t sizes[2]; /* dimensions of most operands, so that they fit each other */
  uint32_t scale;    /* the scale of most operands */
  int finished;
};

/* Returns the bytes of an operand with these dimensions; 0 if unknown or large. */
static inline size_t bytes_of(const struct operand *operand, uint32_t rank, const uint32_t *dims) {
  size_t n = np_type_bytes(operand->type);
  if (np_type_is_tensor(operand->type) && rank == 0) {
    return 0;
  }
  for (uint32_t i = 0; i < rank; i++) {
    if (dims[i] > MOST_BYTES) {
      return 0;
    }
    n *= dims[i];
    if (n > MOST_BYTES) {
      return 0;
    }
  }
  return n;
}

/* Fills n bytes with mostly small values. */
static inline void fill(struct bytes *bytes, int32_t type, void *data, size_t n) {
  static const float FLOATS[] = {0, 1, -1, 0.5f, 2, 3.25f, -7, 1e-8f, 100, -1e30f, 1e38f};
  static const int32_t INTS[] = {INT32_MAX, INT32_MIN, 1 << 20, -100, 65536};
  const uint32_t seed = take(bytes), kind = take(bytes);
  for (size_t i = 0; i < n; i++) {
    ((uint8_t *)data)[i] = (uint8_t)((seed + i * 37) % (kind % 3 == 0 ? 3 : 256));
  }
  const int floats = type == NP_TYPE_TENSOR_FLOAT32 || type == NP_TYPE_FLOAT32;
  const int ints = type == NP_TYPE_TENSOR_INT32 || type == NP_TYPE_INT32;
  for (size_t i = 0; (floats || ints) && i + 4 <= n; i += 4) {
    const uint32_t byte = i < 64 ? take(bytes) : (uint32_t)(seed + i) % 256;
    const float f = FLOATS[byte % (sizeof FLOATS / sizeof FLOATS[0])];
    const int32_t v = byte > 250   ? INTS[byte - 251]
                      : byte > 240 ? -(int32_t)(byte - 240)
                                   : (int32_t)(byte % 12);
    if (floats) {
      memcpy((uint8_t *)data + i, &f, 4);
    } else {
      memcpy((uint8_t *)data + i, &v, 4);
    }
  }
}

/* Returns a dimension: mostly one of the model's two sizes or 1, sometimes another, or unknown. */
static inline uint32_t pick_size(const struct fuzzed *f, struct bytes *bytes) {
  const uint32_t how = take(bytes);
  if (how >= 240) {
    return 0;
  }
  return how >= 200 ? 1 + how % MOST_DIM : how % 5 == 4 ? 1 : f->sizes[how % 5 / 2];
}

/* Sets an operand of per-channel type's scales along one of its dimensions. */
static inline void set_channels(struct fuzzed *f, struct bytes *bytes, uint32_t index) {
  static const float SCALES[16] = {0.5f, 0.25f, 1, 0.125f, 2, 0.5f, 0.5f, 1};
  const struct operand *o = &f->operands[index];
  const uint32_t dim = pick(bytes, o->rank);
  if (o->rank == 0 || o->dims[dim] > sizeof SCALES / sizeof SCALES[0]) {
    return;
  }
  const ANeuralNetworksSymmPerChannelQuantParams channels = {dim, o->dims[dim], SCALES};
  (void)ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(f->model, (int32_t)index,
                                                                 &channels);
}

/* Adds an operand of a type; returns its index, or MOST_OPERANDS if it is refused. */
static inline uint32_t add_operand(struct fuzzed *f, struct bytes *bytes, int32_t type,
                                   uint32_t rank) {
  enum { N_SCALES = 6 };
  static const float SCALES[N_SCALES] = {0.5f, 0.25f, 1.0f / 256, 1.0f / 128, 1.0f / 32768, 2};
  if (f->n_operands >= MOST_OPERANDS) {
    return MOST_OPERANDS;
  }
  struct operand *o = &f->operands[f->n_operands];
  *o = (struct operand){.type = type, .rank = np_type_is_tensor(type) ? rank : 0};
  for (uint32_t i = 0; i < o->rank; i++) {
    o->dims[i] = pick_size(f, bytes);
  }
  const int quantised = type == NP_TYPE_TENSOR_QUANT8_ASYMM || type == NP_TYPE_TENSOR_QUANT8_SYMM ||
                        type == NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED ||
                        type == NP_TYPE_TENSOR_QUANT16_SYMM || type == NP_TYPE_TENSOR_QUANT16_ASYMM;
  if (quantised || (type == NP_TYPE_TENSOR_INT32 && one_in(bytes, 2))) {
    o->scale = SCALES[one_in(bytes, 8) ? pick(bytes, N_SCALES) : f->scale % N_SCALES];
  }
  if (type == NP_TYPE_TENSOR_QUANT8_ASYMM) {
    o->zero_point = one_in(bytes, 8) ? (int32_t)take(bytes) : 128;
  }
  if (type == NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED && one_in(bytes, 8)) {
    o->zero_point = (int8_t)take(bytes);
  }
  if (one_in(bytes, 64)) {
    o->zero_point = (int8_t)take(bytes);
  }
  const ANeuralNetworksOperandType made = {o->type, o->rank, o->rank ? o->dims : NULL, o->scale,
                                           o->zero_point};
  if (ANeuralNetworksModel_addOperand(f->model, &made) != ANEURALNETWORKS_NO_ERROR) {
    return MOST_OPERANDS;
  }
  const uint32_t index = f->n_operands++;
  if (type == NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL) {
    set_channels(f, bytes, index);
  }
  return index;
}

/* Gives an operand a value, makes it a model input, or leaves it. It may refer to one of models
 * [n_models]. Values too long for the API to copy must outlive the model: they come from `pool`. */
static inline void give_value(struct fuzzed *f, struct bytes *bytes, uint32_t index,
                              const struct fuzzed *models, uint32_t n_models,
                              uint8_t pool[MOST_BYTES]) {
  struct operand *o = &f->operands[index];
  const uint32_t how = take(bytes);
  if (o->type == NP_TYPE_MODEL) {
    if (n_models && ANeuralNetworksModel_setOperandValueFromModel(
                        f->model, (int32_t)index, models[how % n_models].model) == 0) {
      o->state = VALUED;
    }
    return;
  }
  const size_t n = bytes_of(o, o->rank, o->dims);
  if (how % 32 == 31) {
    if (ANeuralNetworksModel_setOperandValue(f->model, (int32_t)index, NULL, 0) == 0) {
      o->state = VALUED;
    }
  } else if (n != 0 && (how % 4 != 0 || !np_type_is_tensor(o->type)) && how % 16 != 15) {
    uint8_t small[ANEURALNETWORKS_MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES];
    uint8_t *room = n <= sizeof small ? small : pool;
    if (n <= sizeof small || how % 2) {
      fill(bytes, o->type, room, n);
    }
    if (ANeuralNetworksModel_setOperandValue(f->model, (int32_t)index, room, n) == 0) {
      o->state = VALUED;
    }
  } else {
    o->state = INPUT;
    f->inputs[f->n_inputs++] = index;
  }
}

/* Returns one of the types of a set. */
static inline int32_t pick_type(struct bytes *bytes, uint32_t set) {
  int32_t types[16];
  uint32_t n = 0;
  for (int32_t t = 0; t < 16; t++) {
    if (set & NP_BIT(t)) {
      types[n++] = t;
    }
  }
  return n && !one_in(bytes, 32) ? types[pick(bytes, n)] : (int32_t)pick(bytes, 17);
}

static inline int32_t scalar_type(int kind, int32_t data) {
  const int half = data == NP_TYPE_TENSOR_FLOAT16;
  const int single = data == NP_TYPE_TENSOR_FLOAT32;
  switch (kind) {
  case NP_INPUT_BOOL:
    return NP_TYPE_BOOL;
  case NP_INPUT_FLOAT32:
    return NP_TYPE_FLOAT32;
  case NP_INPUT_FLOAT:
    return half ? NP_TYPE_FLOAT16 : NP_TYPE_FLOAT32;
  case NP_INPUT_VALUE:
    return half ? NP_TYPE_FLOAT16 : single ? NP_TYPE_FLOAT32 : NP_TYPE_INT32;
  case NP_INPUT_MODEL:
    return NP_TYPE_MODEL;
  default:
    return NP_TYPE_INT32;
  }
}

/* Adds an operation of the table and the operands that it needs. */
static inline void add_operation(struct fuzzed *f, struct bytes *bytes, const struct fuzzed *models,
                                 uint32_t n_models, uint8_t pool[MOST_BYTES]) {
  const int32_t code = (int32_t)pick(bytes, N_CODES);
  const struct np_op_info *info = np_op_info(code);
  if (!info || info->n_forms == 0) {
    return;
  }
  const struct np_op_form *form = &info->forms[pick(bytes, info->n_forms)];
  const uint32_t row = pick(bytes, info->n_data);
  const uint32_t rank = info->max_rank
                            ? info->min_rank + pick(bytes, info->max_rank - info->min_rank + 1u)
                            : 1 + pick(bytes, 4);
  uint32_t inputs[2 * MOST_PARTS + NP_MAX_RANK], outputs[MOST_PARTS];
  uint32_t n_inputs = form->n_inputs - (one_in(bytes, 8) ? pick(bytes, 3) : 0u);
  if (n_inputs > form->n_inputs || n_inputs > sizeof inputs / sizeof inputs[0]) {
    return;
  }
  const int32_t data = info->n_data ? info->data_types[row].type : NP_TYPE_TENSOR_FLOAT32;
  for (uint32_t i = 0; i < n_inputs; i++) {
    const int tensor = form->inputs[i].kind == NP_INPUT_TENSOR;
    const uint32_t how = take(bytes);
    if (tensor && f->n_operands && how % 4 == 3) { /* an existing one */
      inputs[i] = pick(bytes, f->n_operands);
    } else {
      const uint32_t set = tensor && form->types ? form->types[row * form->n_inputs + i] : 0;
      const int32_t type = !tensor ? scalar_type(form->inputs[i].kind, data)
                           : set   ? pick_type(bytes, set)
                                   : (int32_t)(3 + pick(bytes, 3) * 3 % 7);
      const uint32_t own = i == info->data || how % 2 ? rank : 1 + how / 2 % 4;
      inputs[i] = add_operand(f, bytes, type, own);
      if (inputs[i] == MOST_OPERANDS) {
        return;
      }
      give_value(f, bytes, inputs[i], models, n_models, pool);
    }
    f->operands[inputs[i]].read = 1;
  }
  uint32_t n_outputs = info->max_outputs == UINT8_MAX ? 1 + pick(bytes, 3) : info->max_outputs;
  if (n_outputs > info->min_outputs && one_in(bytes, 2)) {
    n_outputs = info->min_outputs;
  }
  for (uint32_t i = 0; i < n_outputs && i < MOST_PARTS; i++) {
    const uint32_t column = info->max_outputs == UINT8_MAX ? row : row * info->max_outputs + i;
    const uint32_t set = info->outputs ? info->outputs[column] : NP_BIT(NP_TYPE_TENSOR_FLOAT32);
    const uint32_t known = take(bytes);
    const uint32_t first = f->n_operands;
    outputs[i] = add_operand(f, bytes, pick_type(bytes, set), known % 4 == 0 ? rank : 0);
    if (outputs[i] == MOST_OPERANDS || first == MOST_OPERANDS) {
      return;
    }
    f->operands[outputs[i]].state = WRITTEN;
  }
  if (ANeuralNetworksModel_addOperation(f->model, code, n_inputs, inputs, n_outputs, outputs) ==
      0) {
    f->n_operations++;
  }
}

/* Adds an operand that is spelled out: type, rank, dimensions, scale, zero point, kind, and the
 * bytes of a value. */
static inline void spell_operand(struct fuzzed *f, struct bytes *bytes, uint8_t pool[MOST_BYTES],
                                 size_t *used) {
  enum { IS_INPUT = 1, IS_OUTPUT, HAS_VALUE, HAS_NONE };
  struct operand *o = &f->operands[f->n_operands];
  *o = (struct operand){.type = (int32_t)take(bytes), .rank = pick(bytes, NP_MAX_RANK + 2)};
  for (uint32_t i = 0; i < o->rank && i < NP_MAX_RANK; i++) {
    o->dims[i] = take(bytes);
  }
  uint8_t scale[4];
  for (int i = 0; i < 4; i++) {
    scale[i] = (uint8_t)take(bytes);
  }
  memcpy(&o->scale, scale, 4);
  o->zero_point = (int16_t)(take(bytes) | take(bytes) << 8);
  const uint32_t what = take(bytes);
  const ANeuralNetworksOperandType type = {o->type, o->rank, o->rank ? o->dims : NULL, o->scale,
                                           o->zero_point};
  if (o->rank > NP_MAX_RANK || ANeuralNetworksModel_addOperand(f->model, &type) != 0) {
    return;
  }
  const int32_t index = (int32_t)f->n_operands++;
  if (what == IS_INPUT) {
    f->inputs[f->n_inputs++] = (uint32_t)index;
  }
  if (what == IS_OUTPUT) {
    f->outputs[f->n_outputs++] = (uint32_t)index;
  }
  if (what == HAS_NONE) {
    (void)ANeuralNetworksModel_setOperandValue(f->model, index, NULL, 0);
  }
  if (what == HAS_VALUE) {
    const size_t n = bytes_of(o, o->rank, o->dims);
    uint8_t *value = pool + *used;
    if (n == 0 || n > MOST_BYTES - *used) {
      return;
    }
    for (size_t i = 0; i < n; i++) {
      value[i] = (uint8_t)take(bytes);
    }
    *used += (n + 7) / 8 * 8;
    *used = *used > MOST_BYTES ? MOST_BYTES : *used;
    (void)ANeuralNetworksModel_setOperandValue(f->model, index, value, n);
  }
  if (o->type == NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL) {
    set_channels(f, bytes, (uint32_t)index);
  }
}

static inline void spell(struct fuzzed *f, struct bytes *bytes, uint8_t pool[MOST_BYTES]) {
  uint32_t lists[2][2 * MOST_PARTS];
  size_t used = 0;
  for (uint32_t n = pick(bytes, MOST_OPERANDS); n > 0; n--) {
    spell_operand(f, bytes, pool, &used);
  }
  for (uint32_t o = pick(bytes, 8); o > 0; o--) {
    const int32_t code = (int32_t)take(bytes);
    uint32_t n[2];
    for (int l = 0; l < 2; l++) {
      n[l] = pick(bytes, 2 * MOST_PARTS);
      for (uint32_t i = 0; i < n[l]; i++) {
        lists[l][i] = take(bytes);
      }
    }
    (void)ANeuralNetworksModel_addOperation(f->model, code, n[0], lists[0], n[1], lists[1]);
  }
}

/* Builds and finishes one model. */
static inline void build(struct fuzzed *f, struct bytes *bytes, const struct fuzzed *models,
                         uint32_t n_models, uint8_t pool[MOST_BYTES]) {
  memset(f, 0, sizeof *f);
  if (ANeuralNetworksModel_create(&f->model) != ANEURALNETWORKS_NO_ERROR) {
    return;
  }
  const uint32_t sizes = take(bytes);
  const int literal = sizes == LITERAL;
  if (literal) {
    spell(f, bytes, pool);
  }
  f->sizes[0] = 1 + sizes % MOST_DIM;
  f->sizes[1] = 1 + sizes / MOST_DIM % MOST_DIM;
  f->scale = sizes / MOST_DIM / MOST_DIM;
  for (uint32_t n = literal ? 0 : 1 + pick(bytes, 4); n > 0; n--) {
    add_operation(f, bytes, models, n_models, pool);
  }
  for (uint32_t i = 0; i < f->n_operands && !literal; i++) {
    if (f->operands[i].state == WRITTEN && (!f->operands[i].read || one_in(bytes, 4))) {
      f->outputs[f->n_outputs++] = i;
    }
  }
  if (one_in(bytes, 2)) {
    (void)ANeuralNetworksModel_relaxComputationFloat32toFloat16(f->model, true);
  }
  (void)ANeuralNetworksModel_identifyInputsAndOutputs(f->model, f->n_inputs, f->inputs,
                                                      f->n_outputs, f->outputs);
  f->finished = ANeuralNetworksModel_finish(f->model) == ANEURALNETWORKS_NO_ERROR;
}

#endif
