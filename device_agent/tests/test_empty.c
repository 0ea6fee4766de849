/* Every kernel family with an empty dimension, which only a run's shapes can have: it is refused
 * with a sentence, or its outputs contain numbers and no kernel leaves its memory. */
#include "np_test_families.h"

/* Runs family `which` with dimension d of its input empty. */
static void run_empty(uint32_t which, uint32_t d) {
  struct model *model = model_new();
  struct np_message why = {""};
  struct np_executor *executor = NULL;
  (void)family_model(model, which);
  model->operands[0].dims[d] = 0; /* unknown to the model */
  CHECK(model_check(model, &why) == NP_OK);
  if (!CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_OK)) {
    free(model);
    return;
  }
  uint32_t too_small;
  struct np_buffer in = {.data = NULL, .rank = 4, .dims = {1, 4, 5, 6}};
  struct np_buffer out = {.data = NULL};
  in.dims[d] = 0;
  enum np_status status = np_executor_run(executor, &in, &out, NULL, &too_small, &why);
  if (too_small != UINT32_MAX) { /* an output that is not empty: padding, a bias, a mean */
    size_t n = 1;
    for (uint32_t i = 0; i < out.rank; i++) {
      n *= out.dims[i];
    }
    float *values = calloc(n, sizeof *values);
    out.data = values;
    out.length = n * sizeof *values;
    status = np_executor_run(executor, &in, &out, NULL, &too_small, &why);
    for (size_t i = 0; status == NP_OK && i < n; i++) {
      if (!CHECK(isfinite(values[i]))) {
        (void)fprintf(stderr, "%s, dimension %u\n", np_operation_name(model->operations[1].code),
                      d);
        break;
      }
    }
    free(values);
  }
  CHECK(status == NP_OK || why.text[0] != '\0');
  if (model->operations[1].code == ANEURALNETWORKS_RESIZE_BILINEAR && (d == 1 || d == 2)) {
    CHECK_TEXT(why.text, "input 0 has no pixels");
  }
  np_executor_free(executor);
  free(model);
}

int main(void) {
  for (uint32_t which = 0;; which++) {
    struct model *model = model_new();
    const int exists = family_model(model, which);
    free(model);
    for (uint32_t d = 0; exists && d < 4; d++) {
      run_empty(which, d);
    }
    if (!exists) {
      return np_test_exit();
    }
  }
}
