/* Tens of thousands of broken requests and models through the parsers: none may crash, read out of
 * bounds or leak (run under the sanitizers; the fuzz targets do the same with clang's libFuzzer).
 * Deterministic: the same mutations at every run. */
#include "build_request.h"
#include "model.h"
#include "np_executor.h"
#include "np_test.h"
#include "request.h"

#define N_REQUESTS 40000
#define N_MODELS 40000

/* Words that are likely to cause errors. */
static const uint32_t nasty[] = {0,          1,          2,          7,          8,
                                 9,          0x7fffffff, 0x80000000, 0xffffffff, 0xfffffffc,
                                 0x3fffffff, 0x40000000, 0x10000,    64,         65};

/* Changes bytes[n] in one to four places and may truncate them; the rest of the room is
 * unchanged. */
static size_t mutate(uint8_t *bytes, size_t n, uint64_t *state) {
  const uint64_t changes = 1 + np_test_random(state) % 4;
  for (uint64_t i = 0; i < changes; i++) {
    const size_t at = (size_t)(np_test_random(state) % n);
    const uint64_t how = np_test_random(state);
    if (how % 4 == 0) {
      bytes[at] = (uint8_t)(how >> 8);
    } else if (how % 4 == 1) {
      bytes[at] ^= (uint8_t)(1u << (how >> 8 & 7));
    } else if (at / 4 * 4 + 4 <= n) {
      const uint32_t word = nasty[(how >> 8) % (sizeof nasty / sizeof *nasty)];
      memcpy(bytes + at / 4 * 4, &word, 4);
    }
  }
  return np_test_random(state) % 16 == 0 ? (size_t)(np_test_random(state) % n) : n;
}

/* Returns a copy of exactly n bytes, so that the sanitizer detects a read of one byte more. */
static uint8_t *copy_of(const uint8_t *bytes, size_t n) {
  uint8_t *copy = malloc(n + (n == 0));
  if (copy && n != 0) {
    memcpy(copy, bytes, n);
  }
  return copy;
}

/* Returns the offset of the bundle in np_build_container's request, from its table of sections. */
static size_t bundle_at(const struct np_build *container) {
  uint64_t offset;
  memcpy(&offset, container->bytes + 16 + 24 * 3 + 8, sizeof offset);
  return (size_t)offset;
}

static uint32_t mutate_requests(void) {
  struct np_build_request sections;
  struct np_build container;
  np_build_sections(&sections);
  np_build_container(&sections, &container);
  const size_t at = bundle_at(&container);
  uint64_t state = 1;
  uint32_t n_valid = 0;
  for (int i = 0; i < N_REQUESTS; i++) {
    struct np_build broken = container;
    const size_t n = mutate(broken.bytes, broken.n, &state);
    if (i % 16 != 0) {
      np_build_seal(broken.bytes + at, n < at ? 0 : n - at);
      np_build_seal(broken.bytes, n);
    }
    uint8_t *copy = copy_of(broken.bytes, n);
    struct np_request request;
    struct np_message why = {""};
    const struct np_bytes blob = {(const uint8_t *)np_build_blob, sizeof np_build_blob};
    enum np_status status = np_request_open(copy, n, &request, &why);
    if (status == NP_OK && request.n_blobs == 1 && request.blobs[0].length == blob.length) {
      status = np_request_bind(&request, &blob, &why);
    }
    n_valid += status == NP_OK;
    CHECK(status == NP_OK || why.text[0] != 0); /* every refusal has its sentence */
    np_request_free(&request);
    free(copy);
  }
  return n_valid;
}

static uint32_t mutate_models(void) {
  uint64_t state = 2;
  uint32_t n_valid = 0;
  for (int i = 0; i < N_MODELS; i++) {
    struct np_build broken;
    if (i % 3 == 2) {
      np_build_channel_model(&broken);
    } else {
      np_build_model(&broken, i % 3);
    }
    const size_t n = mutate(broken.bytes, broken.n, &state);
    uint8_t *copy = copy_of(broken.bytes, n);
    struct np_model model;
    struct np_message why = {""};
    const struct np_bytes buffer = {(const uint8_t *)np_build_blob, sizeof np_build_blob};
    if (np_model_open(copy, n, &model, &why) == NP_OK &&
        np_model_bind(&model, &buffer, 1, &why) == NP_OK) {
      n_valid++;
      struct np_executor *executor = NULL;
      if (np_graph_check(&model.graph, ANEURALNETWORKS_FEATURE_LEVEL_8, &why) == NP_OK &&
          np_executor_create(&model.graph, NULL, &executor, &why) == NP_OK) {
        np_executor_free(executor);
      }
    }
    np_model_free(&model);
    free(copy);
  }
  return n_valid;
}

int main(void) {
  const uint32_t n_requests = mutate_requests();
  const uint32_t n_models = mutate_models();
  /* Some mutations are harmless; if none or most were, the test would be useless. */
  CHECK(n_requests > N_REQUESTS / 100 && n_requests < N_REQUESTS / 2);
  CHECK(n_models > N_MODELS / 100 && n_models < N_MODELS / 2);
  return np_test_exit();
}
