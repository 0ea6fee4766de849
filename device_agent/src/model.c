#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cursor.h"

#define MODEL_VERSION 1u
#define CHANNEL_VERSION 2u /* ends with a table of channel scales */
#define SOURCE_IMMEDIATE 0u
#define SOURCE_BUFFER 2u
#define BUFFER_VALUE_BYTES 12u

/* The parts of a serialized model, in place. */
struct parts {
  uint32_t version;
  uint32_t n_operands, n_values, n_operations, n_inputs, n_outputs;
  const uint32_t *operands;   /* [n_operands][4] */
  const uint32_t *values;     /* [n_values][3] */
  const uint32_t *operations; /* [n_operations][3] */
};

static enum np_status read_parts(struct np_cursor *cursor, struct parts *parts,
                                 struct np_message *why) {
  parts->version = np_take_u32(cursor);
  parts->n_operands = np_take_u32(cursor);
  parts->n_values = np_take_u32(cursor);
  parts->n_operations = np_take_u32(cursor);
  parts->n_inputs = np_take_u32(cursor);
  parts->n_outputs = np_take_u32(cursor);
  NP_REQUIRE(!cursor->bad, NP_BAD_REQUEST, why, "it is shorter than its header of 24 bytes");
  NP_REQUIRE(parts->version == MODEL_VERSION || parts->version == CHANNEL_VERSION, NP_BAD_REQUEST,
             why, "version %u, want %u or %u", parts->version, MODEL_VERSION, CHANNEL_VERSION);
  const uint64_t words = 4 * (uint64_t)parts->n_operands + 3 * (uint64_t)parts->n_values +
                         3 * (uint64_t)parts->n_operations + parts->n_inputs + parts->n_outputs;
  NP_REQUIRE(words <= np_cursor_left(cursor), NP_BAD_REQUEST, why,
             "%u operands, %u values, %u operations do not fit %zu bytes", parts->n_operands,
             parts->n_values, parts->n_operations, cursor->n * 4);
  NP_REQUIRE(parts->n_operations != 0 && parts->n_outputs != 0, NP_BAD_REQUEST, why,
             "a model needs at least one operation and one output");
  parts->operands = np_take_words(cursor, 4 * (size_t)parts->n_operands);
  parts->values = np_take_words(cursor, 3 * (size_t)parts->n_values);
  parts->operations = np_take_words(cursor, 3 * (size_t)parts->n_operations);
  return NP_OK;
}

static enum np_status allocate(struct np_model *model, const struct parts *parts,
                               struct np_message *why) {
  struct np_graph *graph = &model->graph;
  graph->operands = calloc(parts->n_operands + (size_t)1, sizeof *graph->operands);
  graph->operations = calloc(parts->n_operations, sizeof *graph->operations);
  model->uses = calloc(parts->n_values + (size_t)1, sizeof *model->uses);
  NP_REQUIRE(graph->operands && graph->operations && model->uses, NP_NO_MEMORY, why,
             "no memory for %u operands", parts->n_operands);
  graph->n_operands = parts->n_operands;
  graph->n_operations = parts->n_operations;
  graph->n_inputs = parts->n_inputs;
  graph->n_outputs = parts->n_outputs;
  return NP_OK;
}

static enum np_status read_operands(struct np_model *model, struct np_cursor *cursor,
                                    const struct parts *parts, struct np_message *why) {
  for (uint32_t i = 0; i < parts->n_operands; i++) {
    struct np_operand *operand = &model->graph.operands[i];
    const uint32_t *words = parts->operands + 4 * (size_t)i;
    memcpy(&operand->type, words, 4);
    operand->rank = words[1];
    memcpy(&operand->scale, words + 2, 4);
    memcpy(&operand->zero_point, words + 3, 4);
    operand->lifetime = NP_NO_VALUE;
    NP_REQUIRE(np_type_bytes(operand->type) != 0, NP_BAD_REQUEST, why,
               "operand %u: unknown type %d", i, operand->type);
    const uint32_t most = np_type_is_tensor(operand->type) ? NP_MAX_RANK : 0;
    NP_REQUIRE(operand->rank <= most, NP_BAD_REQUEST, why,
               "operand %u: rank %u, at most %u for type %d", i, operand->rank, most,
               operand->type);
    const uint32_t *dims = np_take_words(cursor, operand->rank);
    NP_REQUIRE(dims, NP_BAD_REQUEST, why, "the dimensions of its operands are cut off");
    memcpy(operand->dims, dims, operand->rank * sizeof *dims);
    NP_REQUIRE(np_operand_bytes(operand) != SIZE_MAX, NP_BAD_REQUEST, why,
               "operand %u: its size overflows", i);
  }
  return NP_OK;
}

/* Reads one value's bytes from the cursor into its operand, or into the list of buffer uses. */
static enum np_status read_value(struct np_model *model, struct np_cursor *cursor,
                                 const uint32_t *value, struct np_message *why) {
  const uint32_t index = value[0];
  const uint32_t source = value[1];
  const uint32_t length = value[2];
  NP_REQUIRE(index < model->graph.n_operands, NP_BAD_REQUEST, why, "operand %u of %u", index,
             model->graph.n_operands);
  struct np_operand *operand = &model->graph.operands[index];
  NP_REQUIRE(operand->lifetime == NP_NO_VALUE, NP_BAD_REQUEST, why, "operand %u has a second value",
             index);
  const uint32_t *bytes = np_take_words(cursor, length / 4 + (length % 4 != 0));
  NP_REQUIRE(bytes, NP_BAD_REQUEST, why, "its bytes are cut off");

  size_t n_bytes = length;
  if (source == SOURCE_BUFFER && length == BUFFER_VALUE_BYTES) {
    n_bytes = bytes[2];
  } else if (source != SOURCE_IMMEDIATE) {
    return np_error(NP_BAD_REQUEST, why,
                    "source %u with %u bytes, want source 0, or 2 with 12 bytes", source, length);
  }
  if (source == SOURCE_IMMEDIATE && length == 0) {
    return NP_OK; /* an operand left out */
  }
  NP_REQUIRE(n_bytes != 0 && n_bytes == np_operand_bytes(operand), NP_BAD_REQUEST, why,
             "operand %u has a value of %zu bytes, its type and shape want %zu", index, n_bytes,
             np_operand_bytes(operand));
  operand->lifetime = NP_CONSTANT;
  operand->length = n_bytes;
  if (source == SOURCE_IMMEDIATE) {
    operand->value = bytes;
    return NP_OK;
  }
  NP_REQUIRE(bytes[1] % np_type_bytes(operand->type) == 0, NP_BAD_REQUEST, why,
             "offset %u in buffer %u is no multiple of %zu, the element's size", bytes[1], bytes[0],
             np_type_bytes(operand->type));
  NP_REQUIRE(bytes[0] != UINT32_MAX, NP_BAD_REQUEST, why, "buffer 4294967295 cannot exist");
  model->uses[model->n_uses++] = (struct np_buffer_use){
      .operand = index, .buffer = bytes[0], .offset = bytes[1], .length = bytes[2]};
  if (bytes[0] >= model->n_buffers) {
    model->n_buffers = bytes[0] + 1;
  }
  return NP_OK;
}

/* Reads one operand's channel scales, in place. */
static enum np_status read_channels(struct np_graph *graph, struct np_cursor *cursor,
                                    struct np_message *why) {
  const uint32_t index = np_take_u32(cursor);
  const uint32_t dim = np_take_u32(cursor);
  const uint32_t n = np_take_u32(cursor);
  const uint32_t *words = np_take_words(cursor, n);
  NP_REQUIRE(words, NP_BAD_REQUEST, why, "they are cut off");
  NP_REQUIRE(index < graph->n_operands, NP_BAD_REQUEST, why, "operand %u of %u", index,
             graph->n_operands);
  struct np_operand *operand = &graph->operands[index];
  NP_REQUIRE(operand->type == NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL && !operand->channel_scales,
             NP_BAD_REQUEST, why, "operand %u has %s", index,
             operand->channel_scales ? "some already" : "a type without channel scales");
  NP_REQUIRE(n != 0 && dim < operand->rank && operand->dims[dim] == n, NP_BAD_REQUEST, why,
             "operand %u: %u scales along dimension %u of %u, which has %u", index, n, dim,
             operand->rank, dim < operand->rank ? operand->dims[dim] : 0);
  for (uint32_t i = 0; i < n; i++) {
    float scale;
    memcpy(&scale, words + i, sizeof scale);
    NP_REQUIRE(scale > 0 && isfinite(scale), NP_BAD_REQUEST, why,
               "operand %u: scale %u is %g, want one above 0", index, i, (double)scale);
  }
  operand->channel_scales = (const float *)(const void *)words;
  operand->channel_dim = dim;
  return NP_OK;
}

static enum np_status read_channel_table(struct np_graph *graph, struct np_cursor *cursor,
                                         struct np_message *why) {
  const uint32_t n = np_take_u32(cursor);
  NP_REQUIRE(!cursor->bad, NP_BAD_REQUEST, why, "its table of channel scales is cut off");
  for (uint32_t i = 0; i < n; i++) {
    struct np_message inner = {""};
    const enum np_status status = read_channels(graph, cursor, &inner);
    NP_REQUIRE(status == NP_OK, status, why, "channel scales %u: %s", i, inner.text);
  }
  return NP_OK;
}

/* Marks the inputs; operations and outputs come after them. */
static enum np_status mark_inputs(struct np_graph *graph, struct np_message *why) {
  for (uint32_t i = 0; i < graph->n_inputs; i++) {
    const uint32_t index = graph->inputs[i];
    NP_REQUIRE(index < graph->n_operands, NP_BAD_REQUEST, why, "input %u: operand %u of %u", i,
               index, graph->n_operands);
    NP_REQUIRE(graph->operands[index].lifetime == NP_NO_VALUE, NP_BAD_REQUEST, why,
               "input %u: operand %u is %s already", i, index,
               graph->operands[index].lifetime == NP_INPUT ? "an input" : "a constant");
    graph->operands[index].lifetime = NP_INPUT;
  }
  return NP_OK;
}

static enum np_status read_operations(struct np_graph *graph, struct np_cursor *cursor,
                                      const struct parts *parts, struct np_message *why) {
  for (uint32_t i = 0; i < parts->n_operations; i++) {
    const uint32_t *words = parts->operations + 3 * (size_t)i;
    struct np_operation *operation = &graph->operations[i];
    memcpy(&operation->code, words, 4);
    operation->n_inputs = words[1];
    operation->n_outputs = words[2];
    operation->inputs = np_take_words(cursor, words[1]);
    operation->outputs = np_take_words(cursor, words[2]);
    NP_REQUIRE(!cursor->bad, NP_BAD_REQUEST, why, "the operands of its operations are cut off");
    for (uint32_t j = 0; j < words[1]; j++) {
      NP_REQUIRE(operation->inputs[j] < graph->n_operands, NP_BAD_REQUEST, why,
                 "operation %u: input %u: operand %u of %u", i, j, operation->inputs[j],
                 graph->n_operands);
    }
  }
  return NP_OK;
}

/* Marks what operations write; the model's inputs are marked already. */
static enum np_status mark_written(struct np_graph *graph, struct np_message *why) {
  for (uint32_t i = 0; i < graph->n_operations; i++) {
    for (uint32_t j = 0; j < graph->operations[i].n_outputs; j++) {
      const uint32_t index = graph->operations[i].outputs[j];
      NP_REQUIRE(index < graph->n_operands, NP_BAD_REQUEST, why,
                 "operation %u: output %u: operand %u of %u", i, j, index, graph->n_operands);
      NP_REQUIRE(graph->operands[index].lifetime == NP_NO_VALUE, NP_BAD_REQUEST, why,
                 "operation %u: output %u: operand %u has a value already", i, j, index);
      graph->operands[index].lifetime = NP_TEMPORARY;
    }
  }
  return NP_OK;
}

static enum np_status mark_outputs(struct np_graph *graph, struct np_message *why) {
  for (uint32_t i = 0; i < graph->n_outputs; i++) {
    const uint32_t index = graph->outputs[i];
    NP_REQUIRE(index < graph->n_operands && graph->operands[index].lifetime == NP_TEMPORARY,
               NP_BAD_REQUEST, why, "output %u: operand %u is %s", i, index,
               index >= graph->n_operands                     ? "none of the model's"
               : graph->operands[index].lifetime == NP_OUTPUT ? "an output already"
                                                              : "written by no operation");
    graph->operands[index].lifetime = NP_OUTPUT;
  }
  return NP_OK;
}

enum np_status np_model_open(const void *bytes, size_t length, struct np_model *model,
                             struct np_message *why) {
  memset(model, 0, sizeof *model);
  model->bytes = (struct np_bytes){bytes, length};
  NP_REQUIRE((uintptr_t)bytes % 4 == 0, NP_BAD_ARGUMENT, why,
             "a model must stand at an address that is a multiple of 4");
  NP_REQUIRE(length % 4 == 0, NP_BAD_REQUEST, why, "%zu bytes are no whole number of 32-bit words",
             length);
  struct np_cursor cursor = np_cursor_over(bytes, length);
  struct parts parts = {.version = 0};
  NP_TRY(read_parts(&cursor, &parts, why));
  NP_TRY(allocate(model, &parts, why));
  NP_TRY(read_operands(model, &cursor, &parts, why));
  for (uint32_t i = 0; i < parts.n_values; i++) {
    struct np_message inner = {""};
    const enum np_status status = read_value(model, &cursor, parts.values + 3 * (size_t)i, &inner);
    NP_REQUIRE(status == NP_OK, status, why, "value %u: %s", i, inner.text);
  }

  struct np_graph *graph = &model->graph;
  NP_TRY(read_operations(graph, &cursor, &parts, why));
  graph->inputs = np_take_words(&cursor, parts.n_inputs);
  graph->outputs = np_take_words(&cursor, parts.n_outputs);
  NP_REQUIRE(!cursor.bad, NP_BAD_REQUEST, why, "its lists of inputs and outputs are cut off");
  if (parts.version == CHANNEL_VERSION) {
    NP_TRY(read_channel_table(graph, &cursor, why));
  }
  NP_REQUIRE(np_cursor_left(&cursor) == 0, NP_BAD_REQUEST, why, "%zu bytes stand after its end",
             np_cursor_left(&cursor) * 4);
  NP_TRY(mark_inputs(graph, why));
  NP_TRY(mark_written(graph, why));
  return mark_outputs(graph, why);
}

enum np_status np_model_bind(struct np_model *model, const struct np_bytes *buffers,
                             uint32_t n_buffers, struct np_message *why) {
  for (uint32_t i = 0; i < model->n_uses; i++) {
    const struct np_buffer_use *use = &model->uses[i];
    NP_REQUIRE(use->buffer < n_buffers, NP_BAD_REQUEST, why, "operand %u: buffer %u of %u",
               use->operand, use->buffer, n_buffers);
    const struct np_bytes buffer = buffers[use->buffer];
    NP_REQUIRE(use->offset <= buffer.length && use->length <= buffer.length - use->offset,
               NP_BAD_REQUEST, why, "operand %u: bytes %u + %u of buffer %u, which has %zu",
               use->operand, use->offset, use->length, use->buffer, buffer.length);
    model->graph.operands[use->operand].value = buffer.data + use->offset;
  }
  return NP_OK;
}

void np_model_free(struct np_model *model) {
  free(model->graph.operands);
  free(model->graph.operations);
  free(model->uses);
  memset(model, 0, sizeof *model);
}

int np_port_fits(int32_t type, uint32_t rank, const uint32_t *dims,
                 const struct np_operand *operand) {
  if (type != operand->type) {
    return 0;
  }
  if (operand->rank == 0 && np_type_is_tensor(operand->type)) {
    return 1;
  }
  if (rank != operand->rank) {
    return 0;
  }
  for (uint32_t i = 0; i < rank; i++) {
    if (operand->dims[i] != 0 && operand->dims[i] != dims[i]) {
      return 0;
    }
  }
  return 1;
}
