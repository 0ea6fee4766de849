#define _POSIX_C_SOURCE 200809L

#include "run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "blobs.h"
#include "clean.h"
#include "patience.h"
#include "probe.h"
#include "request.h"
#include "schedule.h"
#include "settle.h"
#include "shm.h"
#include "watch.h"

#define UNUSED_DAYS 30    /* after which a blob goes */
#define BLOCK_BYTES 4096u /* disk blocks */

/* Everything that a request's run holds; zero at first. */
struct run {
  struct np_answers *answers;
  struct np_bytes file;
  struct np_request request;
  struct np_bytes *blobs; /* [n_blobs] */
  uint8_t *absent;        /* [n_blobs] */
  struct np_probe probe;
  struct np_sysfs sysfs;
  struct np_drivers drivers;
  int store_fd; /* -1 while closed */
  int work_fd;
};

static enum np_status read_request(struct run *run, const char *path, struct np_message *why) {
  enum np_status status = np_read_file(path, &run->file);
  NP_REQUIRE(status == NP_OK, NP_IO, why, "cannot read the request %s: %s", path, strerror(errno));
  struct np_message inner = {""};
  status = np_request_open(run->file.data, run->file.length, &run->request, &inner);
  if (status != NP_OK) {
    np_message_set(why, "request refused: %s", inner.text);
  }
  return status;
}

/* Reports the absent blobs. NP_MISSING if there are any. */
static enum np_status report_absent(struct run *run, struct np_message *why) {
  const uint32_t n_blobs = run->request.n_blobs;
  const uint8_t **sha256 = calloc(n_blobs + (size_t)1, sizeof *sha256);
  if (!sha256) {
    return NP_NO_MEMORY;
  }
  uint32_t n = 0;
  for (uint32_t i = 0; i < n_blobs; i++) {
    if (run->absent[i]) {
      sha256[n++] = run->request.blobs[i].sha256;
    }
  }
  enum np_status status = NP_OK;
  if (n != 0) {
    status = np_answer_missing(run->answers, sha256, n);
    NP_THEN(status, NP_MISSING);
    np_message_set(why, "%u blobs are missing", n);
  }
  free(sha256);
  return status;
}

static enum np_status open_blobs(struct run *run, struct np_message *why) {
  const uint32_t n = run->request.n_blobs;
  run->blobs = calloc(n + (size_t)1, sizeof *run->blobs);
  run->absent = calloc(n + (size_t)1, 1);
  NP_REQUIRE(run->blobs && run->absent, NP_NO_MEMORY, why, "no memory for %u blobs", n);
  const enum np_status status =
      np_blobs_open(run->store_fd, &run->request, run->blobs, run->absent, why);
  return status == NP_OK ? report_absent(run, why) : status;
}

static enum np_status run_actions(struct run *run, const char *library, struct np_message *why) {
  const uint32_t wait_ms = run->request.wait_ms;
  struct np_patience patience = {.wait_ns = wait_ms == NP_UNBOUNDED ? NP_FOREVER
                                                                    : (uint64_t)wait_ms * 1000000u};
  const char *made = run->probe.simulated ? getenv("NNAPI_EMULATOR_SYSFS") : NULL;
  const int has_sysfs = !run->probe.simulated || made;
  if (made) {
    np_sysfs_open(made, &run->sysfs);
  }
  np_sysfs_expect(&run->sysfs, run->request.seen_khz, run->request.n_seen);
  const struct np_session session = {.request = &run->request,
                                     .blobs = run->blobs,
                                     .library = library,
                                     .probe = &run->probe,
                                     .simulated = run->probe.simulated,
                                     .has_sysfs = has_sysfs,
                                     .work_fd = run->work_fd,
                                     .drivers = &run->drivers,
                                     .sysfs = &run->sysfs,
                                     .patience = &patience};
  const uint32_t n = run->request.n_actions;
  uint32_t all_ok = 0;
  uint32_t end;
  NP_REQUIRE(np_drivers_make(&run->request, &run->drivers) == NP_OK, NP_NO_MEMORY, why,
             "no memory for the drivers");
  np_shm_prepare();
  uint32_t n_gauges = 0;
  for (uint32_t i = 0; i < n; i++) {
    if ((run->request.actions[i].flags & NP_ACTION_GAUGE) != 0) {
      np_settle_known(&session, &run->request.actions[i]);
      n_gauges++;
    }
  }
  for (uint32_t first = 0; first < n; first = end) {
    end = np_request_group_end(&run->request, first);
    if ((run->request.actions[first].flags & NP_ACTION_GAUGE) != 0) {
      continue;
    }
    uint32_t n_ok = 0;
    NP_TRY(np_schedule_run(&session, &run->request.actions[first], end - first, run->answers, &n_ok,
                           why));
    all_ok += n_ok;
  }
  np_message_set(why, "cannot write an answer");
  const struct np_ending ending = {.actions = n - n_gauges,
                                   .ok = all_ok,
                                   .waited_ns = patience.waited_ns,
                                   .fruitless = patience.fruitless,
                                   .simulated_ns = run->probe.simulated ? patience.simulated_ns : 0,
                                   .n_seen = has_sysfs ? run->sysfs.n_cpus : 0,
                                   .allowed_khz = run->sysfs.allowed_khz,
                                   .drivers = &run->drivers};
  return np_answer_end(run->answers, &ending);
}

/* Returns the disk space of the actions' kept outputs, in whole blocks; saturates. */
static uint64_t kept_bytes(const struct np_request *request) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < request->n_actions; i++) {
    const struct np_action *action = &request->actions[i];
    for (uint32_t k = 0; k < action->n_kept; k++) {
      const uint64_t size = action->bundle.tensors[action->kept[k]].n_bytes;
      const uint64_t n_bytes = (size / BLOCK_BYTES + 1) * BLOCK_BYTES;
      total = n_bytes > UINT64_MAX - total ? UINT64_MAX : total + n_bytes;
    }
  }
  return total;
}

/* Makes room on the disk, and checks whether there is enough. */
static enum np_status check_disk(const struct run *run, struct np_message *why) {
  struct np_cleaned cleaned = {0, 0, 0};
  struct np_message ignored;
  /* A store that cannot be cleaned may still be read. */
  (void)np_clean_store(run->store_fd, (int64_t)UNUSED_DAYS * NP_DAY_S, -1, &cleaned, &ignored);
  const uint64_t needed = kept_bytes(&run->request);
  struct statvfs disk;
  if (needed == 0 || fstatvfs(run->work_fd, &disk) != 0) {
    return NP_OK;
  }
  const uint64_t block = disk.f_frsize != 0 ? disk.f_frsize : disk.f_bsize;
  const uint64_t blocks = disk.f_bavail;
  const uint64_t available =
      block != 0 && blocks > UINT64_MAX / block ? UINT64_MAX : blocks * block;
  if (available >= needed) {
    return NP_OK;
  }
  return np_error(
      NP_IO, why,
      "No space left on device: the outputs need %llu bytes, the disk of the work folder "
      "has %llu",
      (unsigned long long)needed, (unsigned long long)available);
}

/* Carries out a request that has been read. */
static enum np_status carry_out(struct run *run, const char *library, struct np_message *why) {
  NP_TRY(np_probe_library(library, &run->probe, why));
  if (run->probe.stalled) {
    const struct np_session session = {.request = &run->request, .library = library};
    np_tell_stall(&session, NULL, why);
    return NP_STALLED;
  }
  NP_REQUIRE(!run->probe.broken_phone, NP_BAD_REQUEST, why, "no phone can be simulated: %s",
             run->probe.error.text);
  np_message_set(why, "cannot write an answer");
  NP_TRY(np_answer_hello(run->answers, run->request.n_actions,
                         run->probe.simulated ? run->probe.phone : NULL, run->probe.n_accelerators,
                         run->probe.error.text[0] == 0 ? run->probe.accelerators : NULL));
  NP_TRY(open_blobs(run, why));
  struct np_message inner = {""};
  const enum np_status status = np_request_bind(&run->request, run->blobs, &inner);
  NP_REQUIRE(status == NP_OK, status, why, "request refused: %s", inner.text);
  NP_TRY(check_disk(run, why));
  return run_actions(run, library, why);
}

enum np_status np_run_command(const char *request_path, const char *store, const char *work,
                              const char *library, const char *sysfs, struct np_answers *answers,
                              struct np_message *why) {
  struct run *run = calloc(1, sizeof *run);
  NP_REQUIRE(run, NP_NO_MEMORY, why, "no memory for the request");
  run->answers = answers;
  np_sysfs_open(sysfs, &run->sysfs);
  run->store_fd = run->work_fd = -1;
  enum np_status status = np_open_folder("--store", store, &run->store_fd, why);
  NP_THEN(status, np_open_folder("--work", work, &run->work_fd, why));
  NP_THEN(status, read_request(run, request_path, why));
  NP_THEN(status, carry_out(run, library, why));

  if (run->blobs) {
    np_blobs_close(run->blobs, run->request.n_blobs);
  }
  free(run->blobs);
  free(run->absent);
  np_drivers_free(&run->drivers);
  np_request_free(&run->request);
  free((void *)(uintptr_t)run->file.data);
  (void)close(run->store_fd); /* -1: never opened */
  (void)close(run->work_fd);
  free(run);
  return status;
}
