/* The recurrent operations on models that others do not make: no rows, no steps, and everything
 * changed at random, with inputs left out at the last moment, while the sanitizers watch. */
#include "np_test_recurrent.h"

/* ---- Running -------------------------------------------------------------------------------- */

/* Memory of exactly these bytes, so that reading beyond them is seen; small numbers. */
static void *some_bytes(size_t n, int32_t type, uint64_t *seed) {
  unsigned char *bytes = malloc(n == 0 ? 1 : n);
  if (bytes == NULL) {
    abort();
  }
  for (size_t i = 0; i < n; i++) {
    bytes[i] = (unsigned char)np_test_between(seed, 0, 255);
  }
  for (size_t i = 0; type == FLOATS && i + sizeof(float) <= n; i += sizeof(float)) {
    const float value = np_test_float(seed);
    memcpy(bytes + i, &value, sizeof value);
  }
  return bytes;
}

/* Fills in values and the list of inputs. Empty tensors become inputs. */
static void set_values(struct one *m, uint64_t *seed) {
  for (uint32_t i = 0; i < m->operation.n_inputs; i++) {
    struct np_operand *operand = &m->operands[m->arguments[i]];
    const size_t bytes = np_operand_bytes(operand);
    if (operand->lifetime == NP_CONSTANT && np_type_is_tensor(operand->type) && bytes == 0) {
      operand->lifetime = NP_INPUT;
    }
    if (operand->lifetime == NP_CONSTANT && operand->value == NULL) {
      operand->value = some_bytes(bytes, operand->type, seed);
      operand->length = bytes;
    }
    if (operand->lifetime == NP_INPUT) {
      m->inputs[m->graph.n_inputs++] = m->arguments[i];
    }
  }
}

static void free_one(struct one *m) {
  for (uint32_t i = 0; i < m->graph.n_operands; i++) {
    if (m->operands[i].value != &m->scalars[i]) {
      free((void *)(uintptr_t)m->operands[i].value);
    }
  }
  free(m);
}

/* Runs with buffers of exactly the sizes that the executor asks for; `leave_out` is an input that
 * the run does not give, UINT32_MAX for none. The outputs' memory is the caller's to free. */
static enum np_status run(struct np_executor *executor, const struct one *m, uint32_t leave_out,
                          uint64_t *seed, struct np_buffer *outputs, struct np_message *why) {
  struct np_buffer inputs[OPERANDS] = {{0}};
  for (uint32_t i = 0; i < m->graph.n_inputs; i++) {
    const struct np_operand *operand = &m->operands[m->inputs[i]];
    inputs[i].rank = operand->rank;
    memcpy(inputs[i].dims, operand->dims, sizeof inputs[i].dims);
    inputs[i].length = np_operand_bytes(operand);
    inputs[i].data = some_bytes(inputs[i].length, operand->type, seed);
    inputs[i].omitted = i == leave_out;
  }
  enum np_status status = NP_OK;
  uint32_t too_small = UINT32_MAX;
  for (int attempt = 0; attempt <= OUTPUTS; attempt++) {
    status = np_executor_run(executor, inputs, outputs, NULL, &too_small, why);
    if (too_small == UINT32_MAX) {
      break;
    }
    size_t bytes = np_type_bytes(m->operands[m->results[too_small]].type);
    for (uint32_t d = 0; d < outputs[too_small].rank; d++) {
      bytes *= outputs[too_small].dims[d];
    }
    CHECK(bytes < 1 << 20);
    free(outputs[too_small].data);
    outputs[too_small].data = malloc(bytes + 1);
    outputs[too_small].length = bytes;
  }
  for (uint32_t i = 0; i < m->graph.n_inputs; i++) {
    free(inputs[i].data);
  }
  return status;
}

/* Checks, makes an executor, runs. */
static enum np_status check_and_run(struct one *m, uint32_t leave_out, uint64_t *seed,
                                    struct np_buffer *outputs, struct np_message *why) {
  struct np_executor *executor = NULL;
  enum np_status status = np_graph_check(&m->graph, ANEURALNETWORKS_FEATURE_LEVEL_4, why);
  if (status == NP_OK) {
    status = np_executor_create(&m->graph, NULL, &executor, why);
  }
  if (status == NP_OK) {
    status = run(executor, m, leave_out, seed, outputs, why);
  }
  np_executor_free(executor);
  return status;
}

static void free_outputs(struct np_buffer *outputs) {
  for (uint32_t o = 0; o < OUTPUTS; o++) {
    free(outputs[o].data);
  }
}

/* ---- Tests ---------------------------------------------------------------------------------- */

/* Rows or steps of 0 give outputs of 0 rows or steps. */
static void test_empty(uint32_t steps, uint32_t batch) {
  for (size_t which = 0; which < N_OPERATIONS; which++) {
    uint64_t seed = which + 1;
    struct np_message why = {""};
    struct np_buffer outputs[OUTPUTS] = {{0}};
    struct one *m = make(which, steps, batch);
    set_values(m, &seed);
    const enum np_status status = check_and_run(m, UINT32_MAX, &seed, outputs, &why);
    if (!CHECK(status == NP_OK)) {
      (void)fprintf(stderr, "%s\n", why.text);
    }
    for (uint32_t o = 0; o < m->graph.n_outputs; o++) {
      const int is_matrix = outputs[o].rank == 2;
      CHECK(outputs[o].dims[is_matrix ? 0 : 1] == batch);
      CHECK(is_matrix || outputs[o].dims[0] == steps);
    }
    free_outputs(outputs);
    free_one(m);
  }
}

static void mutate(struct one *m, uint64_t *seed) {
  static const int32_t VALUES[] = {-5, -1, 0, 1, 2, 4, 6, 1000, INT32_MIN, 0x7fc00000};
  const uint32_t argument = np_test_between(seed, 0, m->operation.n_inputs - 1);
  const uint32_t index = m->arguments[argument];
  struct np_operand *operand = &m->operands[index];
  const int is_tensor = np_type_is_tensor(operand->type);
  switch (np_test_between(seed, 0, 7)) {
  case 0:
    operand->dims[np_test_between(seed, 0, 2)] = np_test_between(seed, 0, 6);
    break;
  case 1:
    operand->rank = is_tensor ? np_test_between(seed, 0, 4) : 0;
    break;
  case 2:
    operand->lifetime = is_tensor ? NP_NO_VALUE : operand->lifetime;
    break;
  case 3:
    m->scalars[index] = (uint32_t)VALUES[np_test_between(seed, 0, 9)];
    break;
  case 4:
    m->operation.n_inputs -= np_test_between(seed, 0, 2);
    break;
  case 5:
    m->operation.n_outputs = np_test_between(seed, 1, m->operation.n_outputs);
    m->graph.n_outputs = m->operation.n_outputs;
    break;
  case 6:
    operand->scale *= np_test_between(seed, 0, 1) ? 1e20f : 0.5f;
    break;
  default:
    operand->lifetime =
        is_tensor && operand->lifetime == NP_CONSTANT ? NP_INPUT : operand->lifetime;
    break;
  }
}

static void test_mutated(void) {
  enum { ROUNDS = 600 };
  uint64_t seed = 7;
  unsigned ran = 0, refused = 0;
  for (size_t which = 0; which < N_OPERATIONS; which++) {
    for (int round = 0; round < ROUNDS; round++) {
      struct np_message why = {""};
      struct np_buffer outputs[OUTPUTS] = {{0}};
      struct one *m = make(which, 3, 2);
      for (uint32_t n = np_test_between(&seed, 1, 3); n > 0; n--) {
        mutate(m, &seed);
      }
      set_values(m, &seed);
      const uint32_t leave_out =
          np_test_between(&seed, 0, 3) == 0 ? np_test_between(&seed, 0, 4) : UINT32_MAX;
      const enum np_status status = check_and_run(m, leave_out, &seed, outputs, &why);
      CHECK(status == NP_OK || why.text[0] != '\0');
      ran += status == NP_OK;
      refused += status != NP_OK;
      free_outputs(outputs);
      free_one(m);
    }
  }
  CHECK(ran > ROUNDS && refused > ROUNDS);
}

int main(void) {
  test_empty(3, 2);
  test_empty(3, 0);
  test_empty(0, 2);
  test_mutated();
  return np_test_exit();
}
