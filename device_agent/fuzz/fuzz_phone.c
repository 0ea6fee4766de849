/* libFuzzer over the emulator's descriptions of phones: JSON parser, fields, rules, the faults of
 * the environment, and a model on the described phone: support, placement, fusion, times. The bytes
 * up to the first zero are the description; those after it are the value of
 * NNAPI_EMULATOR_FAULTS. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../emulator/partition.h"
#include "../emulator/phone.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CHAIN = 6 };

/* Places PAD, CONV_2D, ADD, RELU, TANH and RELU in a row, over trivial shapes, since placement and
 * times do not depend on the values. */
static void place(const struct np_phone *phone) {
  static const int32_t codes[CHAIN] = {ANEURALNETWORKS_PAD,  ANEURALNETWORKS_CONV_2D,
                                       ANEURALNETWORKS_ADD,  ANEURALNETWORKS_RELU,
                                       ANEURALNETWORKS_TANH, ANEURALNETWORKS_RELU};
  struct np_operand operands[CHAIN + 1];
  struct np_operation operations[CHAIN];
  uint32_t ends[CHAIN + 1];
  for (uint32_t i = 0; i <= CHAIN; i++) {
    ends[i] = i;
    operands[i] = (struct np_operand){
        .type = NP_TYPE_TENSOR_FLOAT32, .rank = 4, .dims = {1, 9, 9, 4}, .lifetime = NP_TEMPORARY};
  }
  operands[0].lifetime = NP_INPUT;
  operands[CHAIN].lifetime = NP_OUTPUT;
  for (uint32_t k = 0; k < CHAIN; k++) {
    operations[k] = (struct np_operation){codes[k], 1, 1, &ends[k], &ends[k + 1]};
  }
  const struct np_graph graph = {operands, CHAIN + 1, operations, CHAIN, ends, 1, &ends[CHAIN], 1};

  struct np_accelerator cpu;
  const struct np_accelerator *accelerators[NP_MAX_ACCELERATORS + 1];
  bool supported[(NP_MAX_ACCELERATORS + 1) * CHAIN];
  np_phone_host_cpu(phone, &cpu);
  for (uint32_t i = 0; i <= phone->n_accelerators; i++) {
    accelerators[i] = i < phone->n_accelerators ? &phone->accelerators[i] : &cpu;
    for (uint32_t k = 0; k < CHAIN; k++) {
      supported[i * CHAIN + k] =
          i == phone->n_accelerators || np_phone_takes(phone, accelerators[i], &graph, k, false);
    }
  }
  const struct np_choices choices = {.accelerators = accelerators,
                                     .n_accelerators = phone->n_accelerators + 1,
                                     .supported = supported};
  uint32_t assignment[CHAIN], refused = 0, n_steps = 0;
  struct np_step *steps = NULL;
  if (np_assign(&graph, &choices, assignment, &refused) != NP_OK) {
    abort(); /* the CPU supports everything */
  }
  if (np_make_steps(&graph, &choices, assignment, &steps, &n_steps) == NP_OK) {
    const struct np_latency latency = np_steps_latency(steps, n_steps, 1, false, 1);
    if (!(latency.wall >= latency.driver && latency.driver >= latency.hardware) ||
        !isfinite(latency.wall) || !isfinite(np_steps_compile_ns(steps, n_steps, true))) {
      abort();
    }
  }
  free(steps);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct np_phone *phone = NULL;
  struct np_message why = {""};
  const uint8_t *zero = size > 0 ? memchr(data, 0, size) : NULL;
  const size_t length = zero ? (size_t)(zero - data) : size;
  const enum np_status status = np_phone_parse((const char *)data, length, &phone, &why);
  if ((status == NP_OK) != (phone != NULL) || (status != NP_OK && why.text[0] == 0)) {
    abort(); /* a refusal without a sentence */
  }
  if (phone && zero) {
    const size_t rest = size - length - 1;
    char *faults = calloc(rest + 1, 1);
    if (faults && rest > 0) {
      memcpy(faults, zero + 1, rest);
    }
    why.text[0] = 0;
    if (faults && np_phone_inject(phone, faults, &why) != NP_OK && why.text[0] == 0) {
      abort();
    }
    free(faults);
  }
  if (phone) {
    place(phone);
    np_phone_spend(phone, UINT64_C(1000000000000), 50);
    if (!(np_phone_throttle(phone) > 0) || !isfinite(np_phone_temperature(phone))) {
      abort();
    }
  }
  np_phone_free(phone);
  return 0;
}
