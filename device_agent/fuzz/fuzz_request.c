/* libFuzzer over np_request_open, and over the library's reader of the bundles in a request. Tries
 * the bytes unchanged, and with correct CRCs, since a fuzzer does not guess checksums. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <stdlib.h>
#include <sys/mman.h>

#include "../tests/build_request.h"
#include "request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ROOM (UINT64_C(1) << 40) /* for a blob: unreadable addresses */

/* Reads the actions' bundles, with blobs that have the request's lengths but no bytes. */
static enum np_status bind(struct np_request *request, struct np_message *why) {
  static const uint8_t *room;
  if (!room) {
    room = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  struct np_bytes *blobs = calloc(request->n_blobs + (size_t)1, sizeof *blobs);
  enum np_status status = blobs && room != MAP_FAILED ? NP_OK : NP_NO_MEMORY;
  for (uint32_t i = 0; i < request->n_blobs && status == NP_OK; i++) {
    blobs[i] = (struct np_bytes){room, (size_t)request->blobs[i].length};
    status = request->blobs[i].length < ROOM ? NP_OK : NP_NO_MEMORY;
  }
  if (status == NP_OK) {
    status = np_request_bind(request, blobs, why);
  }
  free(blobs);
  return status;
}

static void open_and_free(const uint8_t *bytes, size_t size) {
  struct np_request request;
  struct np_message why = {""};
  enum np_status status = np_request_open(bytes, size, &request, &why);
  if (status != NP_OK && why.text[0] == 0) {
    abort(); /* a refusal without a sentence */
  }
  uint32_t end = 0; /* end of the present group */
  while (status == NP_OK && end < request.n_actions) {
    const uint32_t first = end;
    end = np_request_group_end(&request, first);
    if (end <= first || end > request.n_actions || end - first > NP_MAX_GROUP) {
      abort();
    }
  }
  if (status == NP_OK && bind(&request, &why) == NP_BAD_REQUEST && why.text[0] == 0) {
    abort();
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
