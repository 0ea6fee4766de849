/* Writes a fuzzer's first inputs: make_seeds request|model|api|bundle FOLDER. They are small and
 * valid, so that mutations pass the parsers' first checks. */
#include <stdio.h>

#include "../tests/build_request.h"
#include "../tests/np_test_families.h"

static void write_seed(const char *folder, unsigned number, const struct np_build *seed) {
  char path[4096];
  const int n = snprintf(path, sizeof path, "%s/seed-%02u", folder, number);
  FILE *file = n > 0 && (size_t)n < sizeof path ? fopen(path, "wb") : NULL;
  if (!file || fwrite(seed->bytes, 1, seed->n, file) != seed->n || fclose(file) != 0) {
    perror(path);
    exit(1);
  }
}

/* Serializes a graph by PROTOCOL.md, section 4; constants are immediate. */
static void put_graph(struct np_build *to, const struct np_graph *graph) {
  uint32_t n_values = 0;
  for (uint32_t i = 0; i < graph->n_operands; i++) {
    n_values += graph->operands[i].lifetime == NP_CONSTANT;
  }
  to->n = 0;
  np_put_words(to, 6,
               (const uint32_t[]){1, graph->n_operands, n_values, graph->n_operations,
                                  graph->n_inputs, graph->n_outputs});
  for (uint32_t i = 0; i < graph->n_operands; i++) {
    const struct np_operand *operand = &graph->operands[i];
    np_put_words(to, 4, (const uint32_t[]){(uint32_t)operand->type, operand->rank, 0, 0});
  }
  for (uint32_t i = 0; i < graph->n_operands; i++) {
    if (graph->operands[i].lifetime == NP_CONSTANT) {
      np_put_words(to, 3, (const uint32_t[]){i, 0, (uint32_t)graph->operands[i].length});
    }
  }
  for (uint32_t i = 0; i < graph->n_operations; i++) {
    const struct np_operation *operation = &graph->operations[i];
    np_put_words(
        to, 3,
        (const uint32_t[]){(uint32_t)operation->code, operation->n_inputs, operation->n_outputs});
  }
  for (uint32_t i = 0; i < graph->n_operands; i++) {
    np_put_words(to, graph->operands[i].rank, graph->operands[i].dims);
  }
  for (uint32_t i = 0; i < graph->n_operands; i++) {
    const struct np_operand *operand = &graph->operands[i];
    if (operand->lifetime != NP_CONSTANT) {
      continue;
    }
    static const uint8_t zeros[4] = {0};
    np_put(to, operand->value, operand->length);
    np_put(to, zeros, (4 - operand->length % 4) % 4);
  }
  for (uint32_t i = 0; i < graph->n_operations; i++) {
    np_put_words(to, graph->operations[i].n_inputs, graph->operations[i].inputs);
    np_put_words(to, graph->operations[i].n_outputs, graph->operations[i].outputs);
  }
  np_put_words(to, graph->n_inputs, graph->inputs);
  np_put_words(to, graph->n_outputs, graph->outputs);
}

static void write_models(const char *folder) {
  struct np_build seed;
  for (unsigned in_buffer = 0; in_buffer < 2; in_buffer++) {
    np_build_model(&seed, (int)in_buffer);
    write_seed(folder, in_buffer, &seed);
  }
  np_build_channel_model(&seed);
  write_seed(folder, 2, &seed);
  for (uint32_t which = 0;; which++) {
    struct model *model = model_new();
    const int exists = family_model(model, which);
    if (exists) {
      put_graph(&seed, &model->graph);
      write_seed(folder, 3 + which, &seed);
    }
    free(model);
    if (!exists) {
      return;
    }
  }
}

/* Writes, for each operation, a model of it alone on each device, with bytes that give new
 * operands, many constants and small values; see api_models.h. */
static void write_calls(const char *folder) {
  enum { N_CODES = 106, N_BYTES = 160 };
  for (unsigned number = 0; number < 4 * N_CODES; number++) {
    struct np_build seed = {.n = 0};
    uint8_t bytes[N_BYTES];
    uint64_t state = number;
    for (int i = 0; i < N_BYTES; i++) {
      bytes[i] = (uint8_t)(np_test_between(&state, 0, 59) * 4 + (unsigned)(i % 3));
    }
    bytes[0] = 0;                           /* one model, */
    bytes[1] = (uint8_t)(number * 5);       /* any sizes, */
    bytes[2] = 0;                           /* one operation, */
    bytes[3] = (uint8_t)(number % N_CODES); /* this one */
    np_put(&seed, bytes, sizeof bytes);
    write_seed(folder, number, &seed);
  }
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "model") == 0) {
    write_models(argv[2]);
    return 0;
  }
  if (argc == 3 && strcmp(argv[1], "api") == 0) {
    write_calls(argv[2]);
    return 0;
  }
  if (argc == 3 && strcmp(argv[1], "request") == 0) {
    struct np_build_request sections;
    struct np_build container;
    np_build_sections(&sections);
    np_build_container(&sections, &container);
    write_seed(argv[2], 0, &container);
    np_build_multiply(&sections, 3); /* a group */
    np_build_container(&sections, &container);
    write_seed(argv[2], 1, &container);
    return 0;
  }
  if (argc == 3 && strcmp(argv[1], "bundle") == 0) {
    struct np_build_bundle sections;
    struct np_build container;
    np_build_bundle_sections(&sections);
    np_build_bundle_container(&sections, &container);
    write_seed(argv[2], 0, &container);
    np_build_mixture_sections(&sections);
    np_put_conditions(&sections.cond, 2, 1, 1);
    np_put_units(&sections.unit, 9, 5);
    np_build_bundle_container(&sections, &container);
    write_seed(argv[2], 1, &container);
    return 0;
  }
  (void)fprintf(stderr, "usage: make_seeds request|model|api|bundle FOLDER\n");
  return 2;
}
