/* The library's bundles, texts and failures. */
#define _GNU_SOURCE /* getpagesize */

#include "runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mixture.h"
#include "phones.h"

const char *nnp_version(void) { return NP_AGENT_VERSION; }

const char *nnp_status_text(nnp_status status) {
  static const char *const texts[] = {"no error",
                                      "the call breaks a rule of the library",
                                      "no bundle that this library reads",
                                      "this phone cannot run it",
                                      "no memory",
                                      "the file cannot be read",
                                      "no such library or accelerator",
                                      "NNAPI or its driver failed",
                                      "not within the time that was given",
                                      "NNAPI took too long"};
  const size_t index = (size_t)status;
  return index < sizeof texts / sizeof *texts ? texts[index] : "an unknown status";
}

const char *nnp_cause_text(nnp_cause cause) {
  static const char *const texts[] = {"it did not fall back",
                                      "there is no NNAPI library",
                                      "there is no such accelerator",
                                      "NNAPI refused it",
                                      "NNAPI failed to compile it",
                                      "NNAPI failed to run it",
                                      "a trial crashed",
                                      "NNAPI took too long",
                                      "an output had another shape",
                                      "there was no process for a trial"};
  const size_t index = (size_t)cause;
  return index < sizeof texts / sizeof *texts ? texts[index] : "an unknown cause";
}

nnp_status np_runtime_status(enum np_status status) {
  switch (status) {
  case NP_OK:
    return NNP_OK;
  case NP_BAD_ARGUMENT:
    return NNP_BAD_ARGUMENT;
  case NP_BAD_REQUEST:
  case NP_BAD_MODEL:
    return NNP_BAD_BUNDLE;
  case NP_UNSUPPORTED:
    return NNP_UNSUPPORTED;
  case NP_NO_MEMORY:
    return NNP_NO_MEMORY;
  case NP_IO:
    return NNP_IO;
  case NP_MISSING:
    return NNP_MISSING;
  case NP_DEADLINE:
    return NNP_LATE;
  case NP_RUN_FAILED:
  case NP_STALLED:
    break;
  }
  return NNP_FAILED;
}

nnp_status np_runtime_fail(nnp_error *error, nnp_status status, int32_t segment, int32_t nnapi_code,
                           const char *format, ...) {
  if (!error) {
    return status;
  }
  *error = (nnp_error){.status = status, .segment = segment, .nnapi_code = nnapi_code};
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  if (error->message[0] == 0) {
    (void)snprintf(error->message, sizeof error->message, "%s", nnp_status_text(status));
  }
  return status;
}

void np_runtime_clear(nnp_error *error) {
  if (error) {
    *error = (nnp_error){.status = NNP_OK, .segment = -1};
  }
}

/* Opens the bytes; on success the bundle owns their file and mapping. */
static nnp_status open_file(struct np_bundle_file file, struct np_weights weights,
                            nnp_bundle **bundle, nnp_error *error) {
  struct nnp_bundle *opened = calloc(1, sizeof *opened);
  NNP_REQUIRE(opened, error, NNP_NO_MEMORY, "no memory for the bundle");
  struct np_message why = {""};
  const enum np_status status =
      np_bundle_read(file.bytes, file.n_bytes, weights, &opened->bundle, &why);
  if (status != NP_OK) {
    np_bundle_free(&opened->bundle);
    free(opened);
    return np_runtime_fail(error, np_runtime_status(status), -1, 0, "%s", why.text);
  }
  if (weights.parts) {
    file.parts = calloc(weights.n + (size_t)1, sizeof *file.parts);
    if (!file.parts) {
      np_bundle_free(&opened->bundle);
      free(opened);
      return np_runtime_fail(error, NNP_NO_MEMORY, -1, 0, "no memory for the bundle");
    }
    memcpy(file.parts, weights.parts, weights.n * sizeof *file.parts);
    file.n_parts = weights.n;
  }
  atomic_init(&opened->n_left, 0);
  opened->bundle.n_left = &opened->n_left;
  opened->bundle.file = file;
  *bundle = opened;
  return NNP_OK;
}

static nnp_status open_parts(const void *bytes, size_t n_bytes, struct np_weights weights,
                             nnp_bundle **bundle, nnp_error *error) {
  np_runtime_clear(error);
  NNP_REQUIRE(bundle && bytes, error, NNP_BAD_ARGUMENT, "bytes or bundle is NULL");
  *bundle = NULL;
  return open_file((struct np_bundle_file){.bytes = bytes, .n_bytes = n_bytes, .fd = -1}, weights,
                   bundle, error);
}

nnp_status nnp_bundle_open_memory(const void *bytes, size_t n_bytes, nnp_bundle **bundle,
                                  nnp_error *error) {
  return open_parts(bytes, n_bytes, (struct np_weights){NULL, 0}, bundle, error);
}

nnp_status nnp_bundle_open_parts(const void *bytes, size_t n_bytes, const nnp_weights *weights,
                                 uint32_t n_weights, nnp_bundle **bundle, nnp_error *error) {
  for (uint32_t i = 0; weights && i < n_weights; i++) {
    NNP_REQUIRE(weights[i].bytes && (uintptr_t)weights[i].bytes % 8 == 0, error, NNP_BAD_ARGUMENT,
                "weights %u are NULL or not aligned to 8 bytes", i);
  }
  return open_parts(bytes, n_bytes, (struct np_weights){weights, n_weights}, bundle, error);
}

/* Maps a part of a file; on success the bundle owns the descriptor. */
static nnp_status open_part(int fd, uint64_t offset, uint64_t n_bytes, nnp_bundle **bundle,
                            nnp_error *error) {
  const size_t page = (size_t)getpagesize(); /* not sysconf: its numbers differ on Android */
  const size_t skipped = (size_t)(offset % page);
  NNP_REQUIRE(n_bytes != 0 && n_bytes <= SIZE_MAX / 2 && offset <= INT64_MAX / 2 && offset % 4 == 0,
              error, NNP_BAD_ARGUMENT,
              "a bundle of %llu bytes at byte %llu: it is to begin at a multiple of 4, "
              "as zipalign lets uncompressed assets",
              (unsigned long long)n_bytes, (unsigned long long)offset);
  const size_t n_mapped = (size_t)n_bytes + skipped;
  void *mapped =
      mmap(NULL, n_mapped, PROT_READ, MAP_PRIVATE, fd, (off_t)(offset - (uint64_t)skipped));
  NNP_REQUIRE(mapped != MAP_FAILED, error, NNP_IO, "the bundle cannot be mapped: %s",
              strerror(errno));
  const struct np_bundle_file file = {.bytes = (const uint8_t *)mapped + skipped,
                                      .n_bytes = (size_t)n_bytes,
                                      .fd = fd,
                                      .offset = offset};
  const nnp_status status = open_file(file, (struct np_weights){NULL, 0}, bundle, error);
  if (status != NNP_OK) {
    (void)munmap(mapped, n_mapped);
    return status;
  }
  (*bundle)->mapped = mapped;
  (*bundle)->n_mapped = n_mapped;
  return NNP_OK;
}

nnp_status nnp_bundle_open_fd(int fd, uint64_t offset, uint64_t n_bytes, nnp_bundle **bundle,
                              nnp_error *error) {
  np_runtime_clear(error);
  struct stat facts;
  NNP_REQUIRE(bundle, error, NNP_BAD_ARGUMENT, "bundle is NULL");
  *bundle = NULL;
  NNP_REQUIRE(fstat(fd, &facts) == 0, error, NNP_IO, "descriptor %d: %s", fd, strerror(errno));
  /* Not for shared memory, which st_size does not describe and which is never truncated. */
  NNP_REQUIRE(!S_ISREG(facts.st_mode) || (offset <= (uint64_t)facts.st_size &&
                                          n_bytes <= (uint64_t)facts.st_size - offset),
              error, NNP_BAD_BUNDLE,
              "the file has %lld bytes, and the bundle %llu from byte %llu on",
              (long long)facts.st_size, (unsigned long long)n_bytes, (unsigned long long)offset);
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  NNP_REQUIRE(own >= 0, error, NNP_IO, "descriptor %d: %s", fd, strerror(errno));
  const nnp_status status = open_part(own, offset, n_bytes, bundle, error);
  if (status != NNP_OK) {
    (void)close(own);
  }
  return status;
}

nnp_status nnp_bundle_open(const char *path, nnp_bundle **bundle, nnp_error *error) {
  np_runtime_clear(error);
  NNP_REQUIRE(bundle && path, error, NNP_BAD_ARGUMENT, "path or bundle is NULL");
  *bundle = NULL;
  const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct stat facts;
  int cause = fd < 0 || fstat(fd, &facts) != 0 ? errno : 0;
  if (cause == 0 && (!S_ISREG(facts.st_mode) || facts.st_size <= 0)) {
    cause = EINVAL;
  }
  nnp_status status = NNP_IO;
  if (cause == 0) {
    status = open_part(fd, 0, (uint64_t)facts.st_size, bundle, error);
  } else {
    (void)np_runtime_fail(error, NNP_IO, -1, 0, "%s cannot be opened: %s", path, strerror(cause));
  }
  if (status != NNP_OK && fd >= 0) {
    (void)close(fd);
  }
  return status;
}

nnp_status nnp_bundle_check(const nnp_bundle *bundle, nnp_error *error) {
  np_runtime_clear(error);
  NNP_REQUIRE(bundle, error, NNP_BAD_ARGUMENT, "bundle is NULL");
  struct np_message why = {""};
  const enum np_status status = np_bundle_check_weights(&bundle->bundle, &why);
  return status == NP_OK ? NNP_OK
                         : np_runtime_fail(error, np_runtime_status(status), -1, 0, "%s", why.text);
}

void nnp_bundle_close(nnp_bundle *bundle) {
  if (!bundle || atomic_load(&bundle->n_left) != 0) { /* a driver may still use it */
    return;
  }
  (void)close(bundle->bundle.file.fd); /* -1: none */
  np_bundle_free(&bundle->bundle);
  if (bundle->mapped) {
    (void)munmap(bundle->mapped, bundle->n_mapped);
  }
  free(bundle);
}

uint32_t nnp_bundle_n_inputs(const nnp_bundle *bundle) { return bundle->bundle.n_inputs; }

uint32_t nnp_bundle_n_outputs(const nnp_bundle *bundle) { return bundle->bundle.n_outputs; }

uint32_t nnp_bundle_n_plans(const nnp_bundle *bundle) { return bundle->bundle.n_plans; }

const nnp_tensor *nnp_bundle_input(const nnp_bundle *bundle, uint32_t index) {
  return index < bundle->bundle.n_inputs ? &bundle->bundle.inputs[index].known : NULL;
}

const nnp_tensor *nnp_bundle_output(const nnp_bundle *bundle, uint32_t index) {
  return index < bundle->bundle.n_outputs ? &bundle->bundle.outputs[index].known : NULL;
}

const char *nnp_bundle_plan(const nnp_bundle *bundle, uint32_t index) {
  return index < bundle->bundle.n_plans ? bundle->bundle.plans[index].name : NULL;
}

double nnp_bundle_share(const nnp_bundle *bundle, uint32_t plan) {
  for (uint32_t i = 0; i < bundle->bundle.n_shares; i++) {
    if (bundle->bundle.shares[i].plan == plan) {
      return bundle->bundle.shares[i].share;
    }
  }
  return 0;
}

nnp_status nnp_bundle_plan_of_phone(const nnp_bundle *bundle, const nnp_phone *phone,
                                    const char *nnapi_library, uint32_t *plan, nnp_error *error) {
  np_runtime_clear(error);
  NNP_REQUIRE(bundle && plan, error, NNP_BAD_ARGUMENT, "bundle or plan is NULL");
  const struct np_bundle *self = &bundle->bundle;
  *plan = self->is_for_phones ? np_phones_select(self, phone, nnapi_library, NULL) : 0;
  return NNP_OK;
}

uint32_t nnp_bundle_select(const nnp_bundle *bundle, uint64_t frame) {
  const struct np_bundle *self = &bundle->bundle;
  return self->n_shares == 0
             ? 0
             : self->shares[np_mixture_select(self->shares, self->n_shares, frame)].plan;
}
