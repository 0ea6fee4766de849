/* libFuzzer over the runtime library's reader of bundles. Tries the bytes unchanged, and with
 * correct CRCs, since a fuzzer does not guess checksums. */
#include <stdlib.h>

#include "../tests/build_bundle.h"
#include "nnapi_prof_runtime.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void open_and_close(const uint8_t *bytes, size_t size) {
  nnp_bundle *bundle = NULL;
  nnp_error error;
  const nnp_status status = nnp_bundle_open_memory(bytes, size, &bundle, &error);
  if (status != NNP_OK && error.message[0] == 0) {
    abort(); /* a refusal without a sentence */
  }
  nnp_bundle_close(bundle);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint8_t *copy = calloc(size + (size == 0), 1); /* aligned, as a mapped file is */
  if (!copy) {
    return 0;
  }
  if (size != 0) {
    memcpy(copy, data, size);
  }
  open_and_close(copy, size);
  np_build_seal(copy, size);
  open_and_close(copy, size);
  free(copy);
  return 0;
}
