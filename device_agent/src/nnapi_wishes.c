/* Optional settings of a compilation: its priority and its cache. */
#include <string.h>

#include "nnapi_compiled.h"
#include "sha256.h"

_Static_assert(NP_SHA256_BYTES == ANEURALNETWORKS_BYTE_SIZE_OF_CACHE_TOKEN, "a token is a hash");

static void add_text(struct np_sha256 *hash, const char *text) {
  np_sha256_add(hash, text, strlen(text) + 1);
}

/* Makes a token from everything that the result depends on; NNAPI adds the driver and its
 * version. */
static void make_token(const struct np_compiled *self, const struct np_options *options,
                       uint8_t token[NP_SHA256_BYTES]) {
  const struct np_model *model = self->source;
  const int32_t numbers[] = {options->preference, options->priority, options->relaxed};
  struct np_sha256 hash;
  np_sha256_begin(&hash);
  np_sha256_add(&hash, numbers, sizeof numbers);
  add_text(&hash, options->accelerator ? options->accelerator : "");
  np_sha256_add(&hash, model->bytes.data, model->bytes.length);
  for (uint32_t i = 0; i < model->n_uses; i++) {
    const struct np_buffer_use *use = &model->uses[i];
    np_sha256_add(&hash, model->graph.operands[use->operand].value, use->length);
  }
  np_sha256_end(&hash, token);
}

void np_nnapi_set_wishes(const struct np_compiled *self, const struct np_options *options) {
  const struct np_nnapi_table *table = self->table;
  if (options->priority != 0 && table->ANeuralNetworksCompilation_setPriority) {
    (void)table->ANeuralNetworksCompilation_setPriority(self->compilation, options->priority);
  }
  if (options->cache_folder[0] != 0 && table->ANeuralNetworksCompilation_setCaching) {
    uint8_t token[NP_SHA256_BYTES];
    make_token(self, options, token);
    (void)table->ANeuralNetworksCompilation_setCaching(self->compilation, options->cache_folder,
                                                       token);
  }
}
