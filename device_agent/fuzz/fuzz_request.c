/* libFuzzer over np_request_open. The bytes are tried as they are, and with their CRCs set right:
 * a fuzzer does not guess checksums. */
#include <stdlib.h>

#include "../tests/build_request.h"
#include "request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void open_and_free(const uint8_t *bytes, size_t size) {
  struct np_request request;
  struct np_message why = {""};
  const enum np_status status = np_request_open(bytes, size, &request, &why);
  if (status != NP_OK && why.text[0] == 0) {
    abort(); /* a refusal without its sentence */
  }
  uint32_t end = 0; /* of the groups, which an agent walks along */
  while (status == NP_OK && end < request.n_actions) {
    const uint32_t first = end;
    end = np_request_group_end(&request, first);
    if (end <= first || end > request.n_actions || end - first > NP_MAX_GROUP) {
      abort();
    }
  }
  np_request_free(&request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint8_t *copy = calloc(size + (size == 0), 1); /* aligned, as the agent's own is */
  if (!copy) {
    return 0;
  }
  if (size != 0) {
    memcpy(copy, data, size);
  }
  open_and_free(copy, size);
  np_build_seal(copy, size);
  open_and_free(copy, size);
  free(copy);
  return 0;
}
