/* Builds valid requests, by PROTOCOL.md, for the C tests and the fuzz targets. */
#ifndef NP_BUILD_REQUEST_H
#define NP_BUILD_REQUEST_H

#include "build_bundle.h"
#include "sha256.h"

/* The sections of a request, before they are put into a container. */
struct np_build_request {
  struct np_build head, blob, strs, drvs, data, actn;
};

/* Puts the sections into a container of kind 1, with checksums. */
static inline void np_build_container(const struct np_build_request *request,
                                      struct np_build *container) {
  const struct np_build *sections[6] = {&request->head, &request->blob, &request->strs,
                                        &request->data, &request->actn, &request->drvs};
  static const char tags[6][5] = {"HEAD", "BLOB", "STRS", "DATA", "ACTN", "DRVS"};
  container->n = 0;
  np_put(container, "NNPF\1\0\1\0", 8);
  np_put_u32(container, 6);
  np_put_u32(container, 0);
  uint64_t offset = 16 + 24 * 6;
  for (size_t i = 0; i < 6; i++) {
    np_put(container, tags[i], 4);
    np_put_u32(container, 0);
    np_put_u64(container, offset);
    np_put_u64(container, sections[i]->n);
    offset += (sections[i]->n + 7) / 8 * 8;
  }
  for (size_t i = 0; i < 6; i++) {
    static const uint8_t zeros[8] = {0};
    np_put(container, sections[i]->bytes, sections[i]->n);
    np_put(container, zeros, (8 - sections[i]->n % 8) % 8);
  }
  np_build_seal(container->bytes, container->n);
}

/* The bundle of an action: a model on the CPU, then on the accelerator "sim-npu", with the one blob
 * as weights, two threads and the cores of a mask. */
static inline void np_build_action_bundle(struct np_build *container) {
  struct np_build_bundle bundle;
  np_build_bundle_sections(&bundle);
  bundle.head.n = bundle.plan.n = bundle.wght.n = 0;
  np_put_words(&bundle.head, 3, (const uint32_t[]){1, 0, 2});
  np_put_words(&bundle.plan, 3, (const uint32_t[]){1, 0, 2});
  np_put_segment(&bundle.plan, 0, UINT32_MAX, 0);
  np_put_words(&bundle.plan, 5, (const uint32_t[]){1, 1, 1, 1, 0});
  np_put_words(&bundle.plan, 6, (const uint32_t[]){1, 1, 0, 1, 2, 0});
  np_put_conditions(&bundle.cond, 2, 0x30, 0);
  np_build_bundle_container(&bundle, container);
}

/* One blob, a driver, and one action: its input is pseudo-random, its output kept. */
static inline void np_build_sections(struct np_build_request *request) {
  memset(request, 0, sizeof *request);
  np_put_words(&request->head, 4, (const uint32_t[]){5, 0, UINT32_MAX, 0});

  uint8_t digest[NP_SHA256_BYTES];
  np_sha256(np_build_blob, sizeof np_build_blob, digest);
  np_put_u32(&request->blob, 1);
  np_put_u64(&request->blob, sizeof np_build_blob);
  np_put(&request->blob, digest, sizeof digest);

  np_put_words(&request->strs, 2, (const uint32_t[]){1, 7});
  np_put(&request->strs, "sim-npu\0", 8);
  np_put_words(&request->drvs, 4, (const uint32_t[]){1, 0, 2, 3}); /* it holds two, in memfd */
  np_build_action_bundle(&request->data);

  struct np_build *actn = &request->actn;
  np_put_u32(actn, 1);
  np_put_words(actn, 3, (const uint32_t[]){7, 10000, 0});   /* id, timeout, flags */
  np_put_words(actn, 4, (const uint32_t[]){4096, 5, 1, 9}); /* memory, group, warm-up min, max */
  np_put_u64(actn, 1000);                                   /* warm-up ns */
  np_put_u64(actn, 20);                                     /* ... and of busy time, */
  np_put_u64(actn, 30);                                     /* also of each round */
  np_put_words(actn, 3, (const uint32_t[]){2, 2, 3});       /* rounds, runs */
  np_put_u64(actn, 1u << 20);                               /* budget */
  np_put_words(actn, 3, (const uint32_t[]){250, 0, 0});     /* cool-down, no frames */
  np_put_u64(actn, 0);
  np_put_u64(actn, request->data.n);
  np_put_words(actn, 4, (const uint32_t[]){1, 0, 0, 0}); /* weights: blob 0 at 0 */
  np_put_words(actn, 3, (const uint32_t[]){1, 2, 99});   /* inputs: source, seed */
  np_put_words(actn, 2, (const uint32_t[]){1, 2});       /* kept */
}

/* Copies the action to n actions of one group, with different ids. */
static inline void np_build_multiply(struct np_build_request *request, uint32_t n) {
  struct np_build *actn = &request->actn;
  const size_t size = actn->n - 4;
  memcpy(actn->bytes, &n, 4);
  for (uint32_t i = 1; i < n; i++) {
    const uint32_t id = 100 + i;
    memcpy(actn->bytes + actn->n, actn->bytes + 4, size);
    memcpy(actn->bytes + actn->n, &id, 4);
    actn->n += size;
  }
}

#endif
