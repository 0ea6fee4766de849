/* Models of every kernel family with one to three random changes: each is refused with a sentence
 * or runs within its memory, which the sanitizers check. */
#include "np_test_families.h"

static void mutate(struct model *m, uint64_t *seed) {
  static const int32_t VALUES[] = {-5, -1, 0, 1, 2, 3, 4, 7, 1000, INT32_MIN};
  struct np_operation *operation = &m->operations[np_test_between(seed, 0, 1)];
  struct np_operand *operand = &m->operands[np_test_between(seed, 0, m->graph.n_operands - 1)];
  const uint32_t row = (uint32_t)(operation - m->operations);
  switch (np_test_between(seed, 0, 7)) {
  case 0:
  case 1:
  case 2: /* a small constant's value */
    m->scalars[operand - m->operands][np_test_between(seed, 0, 3)] =
        VALUES[np_test_between(seed, 0, sizeof VALUES / sizeof VALUES[0] - 1)];
    break;
  case 3: /* a dimension, and a constant's length */
    operand->dims[np_test_between(seed, 0, 3)] = np_test_between(seed, 0, 6);
    if (operand->lifetime == NP_CONSTANT && operand->value == FAMILY_WEIGHTS &&
        np_operand_bytes(operand) <= sizeof FAMILY_WEIGHTS) {
      operand->length = np_operand_bytes(operand);
    }
    break;
  case 4: /* an argument */
    m->arguments[row][np_test_between(seed, 0, 1)][np_test_between(seed, 0, 4)] =
        np_test_between(seed, 0, m->graph.n_operands);
    break;
  case 5:
    operation->n_inputs = np_test_between(seed, 0, 13);
    break;
  case 6:
    operand->type = (int32_t)np_test_between(seed, 0, 15);
    break;
  default:
    operand->rank = np_test_between(seed, 0, 5);
    break;
  }
}

/* Runs an accepted model, with buffers of exactly the size that the executor requires. */
static void run(struct np_executor *executor, const struct model *m) {
  struct np_message why = {""};
  static float input[4096];
  struct np_buffer in = {.data = input, .length = sizeof input};
  struct np_buffer out[MODEL_ENDS] = {{0}};
  uint32_t too_small;
  const struct np_operand *operand = &m->operands[m->inputs[0]];
  if (np_operand_elements(operand) == 0) { /* unknown dimensions: something small */
    in.rank = operand->rank == 0 ? 2 : operand->rank;
    for (uint32_t d = 0; d < in.rank; d++) {
      in.dims[d] = operand->rank == 0 || operand->dims[d] == 0 ? 2 : operand->dims[d];
    }
  }
  enum np_status status = np_executor_run(executor, &in, out, NULL, &too_small, &why);
  size_t n = 1;
  for (uint32_t d = 0; d < out[0].rank; d++) {
    n *= out[0].dims[d];
  }
  if (too_small != UINT32_MAX && n <= 100000) {
    out[0].length = n * np_type_bytes(m->operands[m->outputs[0]].type);
    out[0].data = malloc(out[0].length);
    status = np_executor_run(executor, &in, out, NULL, &too_small, &why);
    CHECK(too_small == UINT32_MAX);
    free(out[0].data);
  }
  CHECK(status == NP_OK || why.text[0] != '\0');
}

int main(void) {
  uint64_t seed = 23;
  uint32_t accepted = 0;
  uint32_t total = 0;
  for (uint32_t which = 0;; which++) {
    struct model *probe = model_new();
    const int exists = family_model(probe, which);
    free(probe);
    if (!exists) {
      break;
    }
    for (uint32_t i = 0; i < 1500; i++) {
      struct model *m = model_new();
      struct np_message why = {""};
      struct np_executor *executor = NULL;
      (void)family_model(m, which);
      for (uint32_t k = np_test_between(&seed, 0, 2); i > 0 && k < 3; k++) {
        mutate(m, &seed);
      }
      enum np_status status = model_check(m, &why);
      if (status == NP_OK) { /* alternately on the reference and on `fast`, if built in */
        const struct np_executor_options options = {
            .backend = i % 2 == 0 ? NULL : np_backend_named("fast")};
        status = np_executor_create(&m->graph, &options, &executor, &why);
      }
      if (!CHECK(i > 0 || status == NP_OK)) {
        (void)fprintf(stderr, "%s\n", why.text);
      }
      if (status == NP_OK) {
        run(executor, m);
        accepted++;
      } else {
        CHECK(executor == NULL && why.text[0] != '\0');
      }
      total++;
      np_executor_free(executor);
      free(m);
    }
  }
  CHECK(accepted > total / 10 && accepted < total);
  return np_test_exit();
}
