/* The waiting side of a trial. */
#define _GNU_SOURCE /* SOCK_CLOEXEC */

#include "trial.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shm.h"
#include "supervise.h"
#include "sysinfo.h"
#include "trial_block.h"

#define USUAL_LIMIT_NS UINT64_C(30000000000)
#define NS_PER_MS 1000000u

struct trial {
  const struct np_trial_job *job;
  struct np_trial_block *block;
  size_t n_bytes;       /* size of the block */
  struct np_shm shared; /* the block's memory, if a helper must map it */
  struct np_shm copy;   /* copy of a bundle that is not in a file, for a helper */
};

void np_trial_record_free(struct np_trial_record *record) {
  free(record->verdicts);
  *record = (struct np_trial_record){.n = 0};
}

int np_trial_wants(const struct np_trial_job *job, uint32_t segment) {
  return job->bundle->plans[job->plan].segments[segment].engine == NP_BUNDLE_NNAPI &&
         !(job->facts && job->facts[segment].is_borrowed);
}

/* ---- The process ---- */

/* Returns whether this system has binder, which a forked child must not use: only the parent has
 * its mapping, and libbinder ends a process that tries (Android 13 and later). */
static int has_binder(void) {
  static const char *const names[] = {"binder", "hwbinder"};
  const char *root = getenv("NNAPI_PROF_DEV");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[NP_TRIAL_PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s", root ? root : "/dev", names[i]);
    if (access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR)) {
      return 1;
    }
  }
  return 0;
}

static int try_in_child(void *ctx, struct np_link *link) {
  struct trial *trial = ctx;
  np_trial_try(trial->job->bundle, trial->job->options, trial->job->nnapi, trial->block, link);
  return 0;
}

/* Returns the used bytes of the section WGHT if its parts are stored elsewhere, else 0. */
static uint64_t weights_bytes(const struct np_bundle_file *file) {
  uint64_t end = 0;
  for (uint32_t i = 0; file->parts && i < file->n_parts; i++) {
    const nnp_weights *part = &file->parts[i];
    end = part->offset + part->n_bytes > end ? part->offset + part->n_bytes : end;
  }
  return end;
}

/* Returns a descriptor of the bundle's bytes, followed by its weights; makes a copy if there is
 * none. */
static int bundle_fd(struct trial *trial) {
  const struct np_bundle_file *file = &trial->job->bundle->file;
  const uint64_t begin = np_trial_weights_offset(file->n_bytes), n_bytes = weights_bytes(file);
  if (file->fd >= 0) {
    return file->fd;
  }
  if (!trial->copy.data) {
    if (n_bytes > SIZE_MAX / 2 - begin ||
        np_shm_make((size_t)(begin + n_bytes), -1, NP_SHM_UNKNOWN, &trial->copy) != 0) {
      return -1;
    }
    memcpy(trial->copy.data, file->bytes, file->n_bytes);
    for (uint32_t i = 0; i < file->n_parts; i++) {
      memcpy((uint8_t *)trial->copy.data + begin + file->parts[i].offset, file->parts[i].bytes,
             file->parts[i].n_bytes);
    }
  }
  return trial->copy.fd;
}

/* Returns whether another program or process does the trial, so that it must be given the job. */
static int is_handed(const nnp_options *options) {
  return options->trial_helper || options->trial_start;
}

static enum np_status start_elsewhere(struct trial *trial, int bundle, struct np_child *child,
                                      struct np_message *why) {
  const nnp_options *options = trial->job->options;
  int ends[2];
  NP_REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, NP_IO, why,
             "cannot make a pair of sockets: %s", strerror(errno));
  const int files[NP_TRIAL_FILES] = {ends[1], trial->shared.fd, bundle};
  const int is_refused = options->trial_start(options->trial_context, files);
  (void)close(ends[1]);
  if (is_refused) {
    (void)close(ends[0]);
    return np_error(NP_IO, why, "the process for a trial cannot be started");
  }
  np_child_adopt(ends[0], &trial->block->turns, child);
  return NP_OK;
}

/* Ends the process; without a process ID here it is another program's child. */
static enum np_status end(const struct trial *trial, struct np_child *child,
                          struct np_outcome *outcome, struct np_message *why) {
  const int32_t pid = trial->block->pid;
  if (child->pid == 0 && pid > 1 && pid != (int32_t)getpid()) {
    (void)kill(pid, SIGKILL);
  }
  return np_child_end(child, outcome, why);
}

static enum np_status start(struct trial *trial, struct np_child *child, struct np_message *why) {
  const char *helper = trial->job->options->trial_helper;
  if (!is_handed(trial->job->options)) {
    return np_child_start(try_in_child, trial, &trial->block->turns, child, why);
  }
  if (!helper) {
    const int bundle = bundle_fd(trial);
    if (bundle >= 0) {
      return start_elsewhere(trial, bundle, child, why);
    }
    return np_error(NP_NO_MEMORY, why, "no memory for a trial in a process of its own");
  }
  char *path = strdup(helper);
  char command[] = "trial";
  char *const arguments[] = {path, command, NULL};
  const int files[] = {trial->shared.fd, bundle_fd(trial)};
  enum np_status status = NP_NO_MEMORY;
  if (path && files[1] >= 0) {
    status = np_child_spawn(arguments, files, 2, &trial->block->turns, child, why);
  } else {
    np_message_set(why, "no memory for a trial in a process of its own");
  }
  free(path);
  return status;
}

/* Returns the limits of the options for a segment. */
static struct np_watch watch_of(const nnp_options *options) {
  const uint64_t compile_ns = options->compile_limit_ns;
  const uint64_t run_ns = options->run_limit_ns;
  const int has_both = compile_ns != 0 && run_ns != 0 && compile_ns <= UINT64_MAX - run_ns;
  const uint64_t limit_ms = (has_both ? compile_ns + run_ns : USUAL_LIMIT_NS) / NS_PER_MS + 1;
  return (struct np_watch){.timeout_ms = limit_ms > UINT32_MAX ? UINT32_MAX : (uint32_t)limit_ms,
                           .reader_fd = -1,
                           .memory_kb = np_memory_share_kb()};
}

/* ---- The verdicts ---- */

/* Sets the verdict for a process that ended without giving one. */
static void judge(const struct trial *trial, enum np_event event, const struct np_outcome *outcome,
                  uint32_t limit_ms, struct np_trial_verdict *verdict) {
  const char *helper = trial->job->options->trial_helper;
  struct np_message why = {""};
  char text[32];
  nnp_cause cause = NNP_CRASHED;
  enum np_status status = NP_RUN_FAILED;
  if (is_handed(trial->job->options) && !trial->block->is_served) {
    cause = NNP_NO_TRIAL;
    if (!helper) {
      np_message_set(&why, "the process for a trial did not begin");
    } else if (outcome->exit_code == NP_CHILD_NOT_EXECUTED && outcome->signal == 0) {
      np_message_set(&why, "the trial's helper %s cannot be started", helper);
    } else {
      np_message_set(&why,
                     "the trial's helper %s did not begin: it is to be an agent of version %s",
                     helper, NP_AGENT_VERSION);
    }
  } else if (event == NP_EVENT_LATE) {
    cause = NNP_TOO_LATE;
    status = NP_DEADLINE;
    np_message_set(&why, "a trial in a process of its own took longer than %u ms", limit_ms);
  } else if (event == NP_EVENT_TOO_BIG) {
    status = NP_NO_MEMORY;
    np_message_set(&why, "a trial in a process of its own wanted more memory than there is");
  } else if (is_handed(trial->job->options) && !helper) {
    np_message_set(&why, "a trial ended the process that it had");
  } else if (outcome->signal != 0) {
    np_message_set(&why, "a trial in a process of its own crashed: %s",
                   np_signal_name(outcome->signal, text, sizeof text));
  } else {
    np_message_set(&why, "a trial ended the process of its own with code %d", outcome->exit_code);
  }
  *verdict = (struct np_trial_verdict){cause, status, {.why = why}, 1};
}

/* Copies and checks a verdict that the other process wrote, and may still be writing. */
static struct np_trial_verdict take(const struct np_trial_verdict *written) {
  struct np_trial_verdict verdict = *written;
  verdict.fault.why.text[sizeof verdict.fault.why.text - 1] = 0;
  verdict.is_tried = 1;
  if ((unsigned)verdict.cause > NNP_NO_TRIAL || (unsigned)verdict.status > NP_STALLED ||
      (verdict.cause == NNP_NO_CAUSE) != (verdict.status == NP_OK)) {
    np_message_set(&verdict.fault.why, "a trial in a process of its own told no verdict");
    verdict.cause = NNP_CRASHED;
    verdict.status = NP_RUN_FAILED;
  }
  return verdict;
}

static uint32_t next_wanted(const struct trial *trial, uint32_t segment) {
  while (segment < trial->block->n && !trial->block->slots[segment].is_wanted) {
    segment++;
  }
  return segment;
}

/* Takes the verdicts in the order of turns until the process has ended, is late or too big. Returns
 * how many; *at is the segment that it was at. */
static uint32_t follow(struct trial *trial, struct np_child *child, const struct np_watch *watch,
                       struct np_trial_record *record, enum np_event *event, uint32_t *at) {
  *at = next_wanted(trial, trial->block->first);
  for (uint32_t told = 0;; told++) {
    if (told > 0 && (*at == record->n || record->opening.status != NP_OK)) {
      return told;
    }
    *event = np_child_wait(child, told + 1, watch);
    const uint32_t reached = __atomic_load_n(&trial->block->turns.reached, __ATOMIC_ACQUIRE);
    if (*event != NP_EVENT_REACHED && reached <= told) {
      return told;
    }
    if (told == 0) {
      record->opening = take(&trial->block->opening);
      memcpy(record->drivers, trial->block->drivers, sizeof record->drivers);
    } else {
      record->verdicts[*at] = take(&trial->block->slots[*at].verdict);
      *at = next_wanted(trial, *at + 1);
    }
  }
}

/* Tries the segments from `first` on in one process. Returns the segment to continue with, or n if
 * the trial is over. */
static uint32_t try_from(struct trial *trial, uint32_t first, const struct np_watch *watch,
                         struct np_trial_record *record) {
  struct np_trial_block *block = trial->block;
  struct np_child child;
  struct np_outcome outcome = {0};
  struct np_message why = {""};
  enum np_event event = NP_EVENT_REACHED;
  uint32_t told = 0, at = first;
  block->first = first;
  block->turns = (struct np_turns){0, 0};
  block->is_served = 0;
  block->pid = 0;
  enum np_status status = start(trial, &child, &why);
  if (status == NP_OK) {
    told = follow(trial, &child, watch, record, &event, &at);
    status = end(trial, &child, &outcome, &why);
  }
  if (told > 0 && (at == record->n || record->opening.status != NP_OK)) {
    return record->n;
  }
  struct np_trial_verdict verdict = {NNP_NO_TRIAL, status, {.why = why}, 1};
  if (status == NP_OK) {
    judge(trial, event, &outcome, watch->timeout_ms, &verdict);
  }
  if (told == 0 && first == 0) {
    record->opening = verdict;
    return record->n;
  }
  record->verdicts[at] = verdict;
  return at + 1;
}

/* Says in the record that there is no trial. */
static void refuse(struct np_trial_record *record, const char *why) {
  record->opening = (struct np_trial_verdict){.cause = NNP_NO_TRIAL, .status = NP_UNSUPPORTED};
  np_message_set(&record->opening.fault.why, "%s", why);
}

/* Makes the block with the job, in memory that the process can map; returns 0 if memory is
 * short. */
static int make_block(struct trial *trial) {
  const struct np_trial_job *job = trial->job;
  const nnp_options *options = job->options;
  const uint32_t n = job->bundle->plans[job->plan].n_segments;
  trial->n_bytes = sizeof *trial->block + n * sizeof *trial->block->slots;
  if (!is_handed(options)) {
    trial->block = np_shared_memory(trial->n_bytes);
  } else if (np_shm_make(trial->n_bytes, -1, NP_SHM_UNKNOWN, &trial->shared) == 0) {
    trial->block = trial->shared.data;
  }
  struct np_trial_block *block = trial->block;
  if (!block) {
    return 0;
  }
  *block = (struct np_trial_block){.version = NP_AGENT_VERSION,
                                   .n_bytes = trial->n_bytes,
                                   .bundle_offset = job->bundle->file.offset,
                                   .bundle_bytes = job->bundle->file.n_bytes,
                                   .weights_bytes = weights_bytes(&job->bundle->file),
                                   .plan = job->plan,
                                   .flags = options->flags,
                                   .threads = options->threads,
                                   .priority = options->priority,
                                   .n = n};
  (void)snprintf(block->library, sizeof block->library, "%s",
                 options->nnapi_library ? options->nnapi_library : "");
  (void)snprintf(block->cache_folder, sizeof block->cache_folder, "%s",
                 options->cache_folder ? options->cache_folder : "");
  for (uint32_t s = 0; s < n; s++) {
    block->slots[s].is_wanted = (uint32_t)np_trial_wants(job, s);
  }
  return 1;
}

static void try_all(const struct np_trial_job *job, struct np_trial_record *record) {
  const nnp_options *options = job->options;
  if (!is_handed(options) && has_binder()) {
    refuse(record, "a trial cannot fork here, as Android's binder does not survive that: name the "
                   "agent as trial_helper");
    return;
  }
  if (is_handed(options) && options->nnapi_library &&
      strlen(options->nnapi_library) >= NP_TRIAL_PATH_BYTES) {
    refuse(record, "the path of NNAPI's library is too long for a trial");
    return;
  }
  struct trial trial = {.job = job, .shared = {.fd = -1}, .copy = {.fd = -1}};
  if (!make_block(&trial)) {
    refuse(record, "no memory for a trial in a process of its own");
    return;
  }
  const struct np_watch watch = watch_of(options);
  uint32_t first = 0;
  do {
    first = next_wanted(&trial, try_from(&trial, first, &watch, record));
  } while (first < record->n);
  if (trial.shared.data) {
    np_shm_free(&trial.shared);
  } else {
    np_shared_free(trial.block, trial.n_bytes);
  }
  np_shm_free(&trial.copy);
}

enum np_status np_trial_judge(const struct np_trial_job *job, struct np_trial_record *record) {
  const uint32_t n = job->bundle->plans[job->plan].n_segments;
  *record = (struct np_trial_record){.n = n, .verdicts = calloc(n, sizeof *record->verdicts)};
  if (!record->verdicts) {
    return NP_NO_MEMORY;
  }
  record->is_recalled = np_trial_recall(job, record);
  if (record->is_recalled && job->nnapi) {
    record->is_recalled = np_trial_fits(record, job->nnapi);
  }
  if (!record->is_recalled) {
    memset(record->verdicts, 0, n * sizeof *record->verdicts);
    record->opening = (struct np_trial_verdict){.status = NP_OK};
    try_all(job, record);
    np_trial_keep(job, record);
  }
  for (uint32_t s = 0; s < n && job->nnapi && record->opening.status != NP_OK; s++) {
    record->verdicts[s] = record->opening; /* NNAPI is open here, so nothing else reports this */
  }
  return NP_OK;
}
