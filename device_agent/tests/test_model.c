/* The serialized model: reads a valid one as a graph, and breaks every rule. */
#include "build.h"
#include "model.h"
#include "np_test.h"

enum { HEADER = 0, OPERANDS = 24, VALUES = 88, OPERATIONS = 112, DIMS = 124, DATA = 148 };

static void check_valid(int in_buffer) {
  struct np_build bytes;
  np_build_model(&bytes, in_buffer);
  struct np_model model;
  struct np_message why = {""};
  if (CHECK(np_model_open(bytes.bytes, bytes.n, &model, &why) == NP_OK)) {
    const struct np_graph *graph = &model.graph;
    CHECK(graph->n_operands == 4 && graph->n_operations == 1);
    CHECK(graph->operands[0].lifetime == NP_INPUT && graph->operands[3].lifetime == NP_OUTPUT);
    CHECK(graph->operands[1].lifetime == NP_CONSTANT && graph->operands[1].length == 16);
    CHECK(graph->operands[0].rank == 2 && graph->operands[0].dims[1] == 4);
    CHECK(graph->operations[0].code == ANEURALNETWORKS_ADD);
    CHECK(graph->operations[0].inputs[2] == 2 && graph->operations[0].outputs[0] == 3);
    CHECK(model.n_uses == (uint32_t)in_buffer && model.n_buffers == (uint32_t)in_buffer);
    const struct np_bytes buffer = {(const uint8_t *)np_build_blob, sizeof np_build_blob};
    CHECK(np_model_bind(&model, &buffer, 1, &why) == NP_OK);
    CHECK(memcmp(graph->operands[1].value, np_build_blob, 16) == 0);
    if (in_buffer) {
      const struct np_bytes small = {(const uint8_t *)np_build_blob, 12};
      CHECK(np_model_bind(&model, &small, 1, &why) == NP_BAD_REQUEST);
      CHECK_TEXT(why.text, "operand 1: bytes 0 + 16 of buffer 0, which has 12");
      CHECK(np_model_bind(&model, &small, 0, &why) == NP_BAD_REQUEST);
      CHECK_TEXT(why.text, "buffer 0 of 0");
    }
  }
  np_model_free(&model);
}

static void check_refused(int in_buffer, size_t at, uint32_t word, const char *wanted) {
  struct np_build bytes;
  np_build_model(&bytes, in_buffer);
  memcpy(bytes.bytes + at, &word, 4);
  struct np_model model;
  struct np_message why = {""};
  CHECK(np_model_open(bytes.bytes, bytes.n, &model, &why) == NP_BAD_REQUEST);
  CHECK_TEXT(why.text, wanted);
  np_model_free(&model);
}

/* The table of channel scales: five words, four of them before the scales, at the end. */
static void check_channels(size_t from_end, uint32_t word, const char *wanted) {
  struct np_build bytes;
  np_build_channel_model(&bytes);
  if (from_end != 0) {
    memcpy(bytes.bytes + bytes.n - from_end, &word, 4);
  }
  struct np_model model;
  struct np_message why = {""};
  const enum np_status status = np_model_open(bytes.bytes, bytes.n, &model, &why);
  if (wanted) {
    CHECK(status == NP_BAD_REQUEST);
    CHECK_TEXT(why.text, wanted);
  } else if (CHECK(status == NP_OK)) {
    const struct np_operand *filter = &model.graph.operands[1];
    CHECK(filter->channel_dim == 0 && filter->channel_scales != NULL);
    CHECK(filter->channel_scales[0] == 0.5f && filter->channel_scales[1] == 0.25f);
    CHECK(model.graph.operands[0].channel_scales == NULL);
  }
  np_model_free(&model);
}

static void check_channel_table(void) {
  struct np_build bytes;
  struct np_model model;
  struct np_message why = {""};
  check_channels(0, 0, NULL);
  check_channels(24, 0, "stand after its end");
  check_channels(24, 2, "channel scales 1: they are cut off");
  check_channels(24, 0xffffffff, "channel scales 1: they are cut off");
  check_channels(20, 6, "channel scales 0: operand 6 of 6");
  check_channels(20, 0, "channel scales 0: operand 0 has a type without channel scales");
  check_channels(16, 4, "operand 1: 2 scales along dimension 4 of 4, which has 0");
  check_channels(16, 1, "operand 1: 2 scales along dimension 1 of 4, which has 1");
  check_channels(12, 1, "operand 1: 1 scales along dimension 0 of 4, which has 2");
  check_channels(12, 0xffffffff, "channel scales 0: they are cut off");
  check_channels(8, 0, "operand 1: scale 0 is 0, want one above 0");
  check_channels(4, 0xbf800000, "operand 1: scale 1 is -1, want one above 0");
  check_channels(4, 0x7f800000, "operand 1: scale 1 is inf, want one above 0");
  check_channels(4, 0x7fc00000, "operand 1: scale 1 is nan, want one above 0");
  np_build_channel_model(&bytes);
  for (size_t n = 0; n < bytes.n; n++) {
    CHECK(np_model_open(bytes.bytes, n, &model, &why) == NP_BAD_REQUEST);
    np_model_free(&model);
  }
  const uint32_t again[5] = {1, 0, 2, 0x3f800000, 0x3f800000};
  const uint32_t two = 2;
  memcpy(bytes.bytes + bytes.n - 24, &two, 4);
  np_put_words(&bytes, 5, again);
  CHECK(np_model_open(bytes.bytes, bytes.n, &model, &why) == NP_BAD_REQUEST);
  CHECK_TEXT(why.text, "channel scales 1: operand 1 has some already");
  np_model_free(&model);
}

int main(void) {
  check_valid(0);
  check_valid(1);
  check_channel_table();
  check_refused(0, HEADER, 3, "version 3, want 1 or 2");
  check_refused(0, HEADER, 2, "its table of channel scales is cut off");
  check_refused(0, HEADER + 4, 0x40000000, "do not fit");
  check_refused(0, HEADER + 12, 0, "at least one operation");
  check_refused(0, HEADER + 16, 0, "stand after its end");
  check_refused(0, OPERANDS, 99, "operand 0: unknown type 99");
  check_refused(0, OPERANDS + 4, 9, "operand 0: rank 9, at most 8");
  check_refused(0, OPERANDS + 32 + 4, 1, "operand 2: rank 1, at most 0");
  check_refused(0, DIMS + 12, 0xffffffff, "value 0: operand 1 has a value of 16 bytes");
  check_refused(0, DIMS + 12, 0,
                "value 0: operand 1 has a value of 16 bytes, its type and shape want 0");
  check_refused(0, DIMS + 8, 0xffffffff, "value 0: operand 1 has a value");
  check_refused(0, VALUES, 4, "value 0: operand 4 of 4");
  check_refused(0, VALUES + 12, 1, "value 1: operand 1 has a second value");
  check_refused(0, VALUES + 4, 1, "value 0: source 1");
  check_refused(0, VALUES + 8, 0xffffffff, "value 0: its bytes are cut off");
  check_refused(0, VALUES + 8, 20, "value 0: operand 1 has a value of 20 bytes");
  check_refused(1, DATA + 4, 2, "offset 2 in buffer 0 is no multiple of 4");
  check_refused(1, DATA, 0xffffffff, "buffer 4294967295 cannot exist");
  check_refused(0, OPERATIONS + 4, 99, "cut off");
  check_refused(0, DATA + 20, 9, "operation 0: input 0: operand 9 of 4");
  check_refused(0, DATA + 32, 4, "operation 0: output 0: operand 4 of 4");
  check_refused(0, DATA + 32, 1, "operand 1 has a value already");
  check_refused(0, DATA + 32, 0, "operand 0 has a value already");
  check_refused(0, DATA + 36, 1, "input 0: operand 1 is a constant already");
  check_refused(0, DATA + 36, 9, "input 0: operand 9 of 4");
  check_refused(0, DATA + 40, 0, "output 0: operand 0 is written by no operation");
  check_refused(0, DATA + 40, 4, "output 0: operand 4 is none of the model's");

  struct np_build bytes;
  struct np_model model;
  struct np_message why = {""};
  np_build_model(&bytes, 0);
  for (size_t n = 0; n < bytes.n; n++) { /* every truncation */
    CHECK(np_model_open(bytes.bytes, n, &model, &why) == NP_BAD_REQUEST);
    np_model_free(&model);
  }
  CHECK(np_model_open(bytes.bytes + 2, bytes.n - 4, &model, &why) == NP_BAD_ARGUMENT);
  return np_test_exit();
}
