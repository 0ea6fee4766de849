/* Stores verdicts of trials beside the compile cache, so that a trial is needed only once: one file
 * for each bundle, plan and set of options, named by a hash of these and of the system. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "container.h"
#include "phones.h"
#include "trial.h"

#define MOST_ACCELERATORS 32u
#define MOST_PATH (NP_FOLDER_BYTES + 96)

/* The header of a file, followed by the verdicts. Only a library of this version on this ABI finds
 * the file. */
struct head {
  uint8_t digest[NP_SHA256_BYTES]; /* hash of everything that follows */
  uint8_t drivers[NP_SHA256_BYTES];
  uint32_t n;
  struct np_trial_verdict opening;
};

static void add_text(struct np_sha256 *hash, const char *text) {
  np_sha256_add(hash, text, strlen(text) + 1);
}

void np_trial_drivers(const struct np_nnapi *nnapi, uint8_t digest[NP_SHA256_BYTES]) {
  struct np_accelerator accelerators[MOST_ACCELERATORS];
  struct np_message why = {""};
  uint32_t n = 0;
  if (np_nnapi_accelerators(nnapi, accelerators, MOST_ACCELERATORS, &n, &why) != NP_OK) {
    n = 0;
  }
  struct np_sha256 hash;
  np_sha256_begin(&hash);
  for (uint32_t i = 0; i < n && i < MOST_ACCELERATORS; i++) {
    add_text(&hash, accelerators[i].name);
    add_text(&hash, accelerators[i].version);
    np_sha256_add(&hash, &accelerators[i].feature_level, sizeof accelerators[i].feature_level);
  }
  np_sha256_end(&hash, digest);
}

int np_trial_fits(const struct np_trial_record *record, const struct np_nnapi *nnapi) {
  uint8_t drivers[NP_SHA256_BYTES];
  np_trial_drivers(nnapi, drivers);
  return memcmp(drivers, record->drivers, sizeof drivers) == 0;
}

/* Computes the file's name from everything known without NNAPI that a verdict depends on. */
static void identify(const struct np_trial_job *job, char name[2 * NP_SHA256_BYTES + 1]) {
  const nnp_options *options = job->options;
  const struct np_bundle_file *file = &job->bundle->file;
  const struct {
    uint64_t compile_limit_ns, run_limit_ns;
    uint32_t plan, flags, threads, n_segments;
    int32_t priority;
    uint32_t n_verdict_bytes;
  } numbers = {options->compile_limit_ns,
               options->run_limit_ns,
               job->plan,
               options->flags,
               options->threads,
               job->bundle->plans[job->plan].n_segments,
               options->priority,
               sizeof(struct np_trial_verdict)};
  struct np_sha256 hash;
  uint8_t digest[NP_SHA256_BYTES];
  char build[NP_PROPERTY_BYTES];
  struct stat facts;
  np_sha256_begin(&hash);
  add_text(&hash, NP_AGENT_VERSION);
  np_phones_read_build(build);
  add_text(&hash, build);
  add_text(&hash, options->nnapi_library ? options->nnapi_library : "");
  if (options->nnapi_library && stat(options->nnapi_library, &facts) == 0) {
    const int64_t which[3] = {(int64_t)facts.st_size, (int64_t)facts.st_mtime,
                              (int64_t)facts.st_ino};
    np_sha256_add(&hash, which, sizeof which);
  }
  np_sha256_add(&hash, &numbers, sizeof numbers);
  /* The table has each section's checksum, so the weights need not be read. */
  np_sha256_add(&hash, file->bytes, np_container_table_bytes(file->bytes));
  for (uint32_t i = 0; i < file->n_parts; i++) { /* except for weights without a checksum */
    np_sha256_add(&hash, &file->parts[i].offset, sizeof file->parts[i].offset);
    np_sha256_add(&hash, file->parts[i].bytes, file->parts[i].n_bytes);
  }
  np_sha256_end(&hash, digest);
  np_sha256_hex(digest, name);
}

/* Makes the file's path; returns 0 if there is none. */
static int path_of(const struct np_trial_job *job, char path[MOST_PATH]) {
  char name[2 * NP_SHA256_BYTES + 1];
  if (!job->options->cache_folder) {
    return 0;
  }
  identify(job, name);
  const int n = snprintf(path, MOST_PATH, "%s/trial-%s", job->options->cache_folder, name);
  return n > 0 && n < MOST_PATH;
}

static void digest_of(const struct head *head, const struct np_trial_verdict *verdicts,
                      uint8_t digest[NP_SHA256_BYTES]) {
  struct np_sha256 hash;
  np_sha256_begin(&hash);
  np_sha256_add(&hash, head->drivers, sizeof *head - sizeof head->digest);
  np_sha256_add(&hash, verdicts, head->n * sizeof *verdicts);
  np_sha256_end(&hash, digest);
}

static int read_all(int fd, void *bytes, size_t n_bytes) {
  return read(fd, bytes, n_bytes) == (ssize_t)n_bytes;
}

/* Reads a record; returns 0 unless it is complete. */
static int read_record(int fd, struct np_trial_record *record) {
  struct head head;
  uint8_t digest[NP_SHA256_BYTES];
  if (!read_all(fd, &head, sizeof head) || head.n != record->n ||
      !read_all(fd, record->verdicts, record->n * sizeof *record->verdicts)) {
    return 0;
  }
  digest_of(&head, record->verdicts, digest);
  memcpy(record->drivers, head.drivers, sizeof record->drivers);
  record->opening = head.opening;
  return memcmp(digest, head.digest, sizeof digest) == 0;
}

int np_trial_recall(const struct np_trial_job *job, struct np_trial_record *record) {
  char path[MOST_PATH];
  const int fd = path_of(job, path) ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
  if (fd < 0) {
    return 0;
  }
  int is_complete = read_record(fd, record);
  (void)close(fd);
  for (uint32_t s = 0; s < record->n && is_complete && record->opening.status == NP_OK; s++) {
    is_complete = !np_trial_wants(job, s) || record->verdicts[s].is_tried;
  }
  return is_complete;
}

/* Returns whether a verdict is due to the driver, not to a temporary condition. */
static int is_lasting(const struct np_trial_verdict *verdict) {
  return verdict->cause != NNP_NO_TRIAL && verdict->status != NP_NO_MEMORY;
}

static int write_record(int fd, const struct np_trial_record *record) {
  struct head head;
  memset(&head, 0, sizeof head); /* padding is hashed, too */
  memcpy(head.drivers, record->drivers, sizeof head.drivers);
  head.n = record->n;
  head.opening = record->opening;
  digest_of(&head, record->verdicts, head.digest);
  const size_t n_bytes = record->n * sizeof *record->verdicts;
  return write(fd, &head, sizeof head) == (ssize_t)sizeof head &&
         write(fd, record->verdicts, n_bytes) == (ssize_t)n_bytes;
}

void np_trial_keep(const struct np_trial_job *job, const struct np_trial_record *record) {
  char path[MOST_PATH], draft[MOST_PATH + 32];
  int is_worth_it = is_lasting(&record->opening);
  for (uint32_t s = 0; s < record->n; s++) {
    is_worth_it &= is_lasting(&record->verdicts[s]);
  }
  if (!is_worth_it || !path_of(job, path)) {
    return;
  }
  (void)snprintf(draft, sizeof draft, "%s.%ld", path, (long)getpid());
  const int fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) {
    return; /* the next start tries again */
  }
  const int is_written = write_record(fd, record);
  if (close(fd) != 0 || !is_written || rename(draft, path) != 0) {
    (void)unlink(draft);
  }
}
