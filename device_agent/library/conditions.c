/* Applies the conditions, other than mode and threads, under which the plans were measured, as far
 * as this system allows. */
#include "conditions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bundle_sections.h"
#include "sysfs.h"
#include "sysinfo.h"

enum np_status np_bundle_read_conditions(const struct np_container *container,
                                         struct np_bundle *bundle, struct np_message *why) {
  struct np_cursor cursor;
  NP_TRY(np_bundle_section(container, "COND", &cursor, why));
  if (!cursor.words) {
    return NP_OK;
  }
  const uint32_t cores = np_take_u32(&cursor);
  bundle->cpu_mask = np_take_u64(&cursor);
  bundle->compile_limit_ns = np_take_u64(&cursor);
  bundle->run_limit_ns = np_take_u64(&cursor);
  const uint32_t memory = np_take_u32(&cursor);
  bundle->pointers = memory != 0;
  bundle->cores = (enum np_bundle_cores)cores;
  NP_REQUIRE(!cursor.bad && np_cursor_left(&cursor) == 0 && memory <= 1 &&
                 cores <= NP_BUNDLE_MASK && (cores == NP_BUNDLE_MASK) == (bundle->cpu_mask != 0),
             NP_BAD_REQUEST, why, "COND: %zu words, or cores %u with mask 0x%llx, or memory %u",
             cursor.n, cores, (unsigned long long)bundle->cpu_mask, memory);
  return NP_OK;
}

/* Returns the big ones among the CPUs that this process may use; 0 if all are. */
static uint64_t big_cores(uint32_t threads) {
  struct np_sysfs *sysfs = malloc(sizeof *sysfs);
  if (!sysfs) {
    return 0;
  }
  const uint64_t allowed = np_affinity();
  np_sysfs_open(getenv("NNAPI_PROF_SYSFS"), sysfs);
  const uint64_t mask = np_sysfs_big_cores(sysfs, allowed, threads);
  free(sysfs);
  return mask == allowed ? 0 : mask;
}

/* Logs an event about the whole plan. */
static void tell(const nnp_options *options, uint64_t mask, int cause) {
  if (!options->log) {
    return;
  }
  char message[256];
  (void)snprintf(message, sizeof message,
                 "the CPUs of mask 0x%llx, on which plan %u was measured, cannot be had: %s; it "
                 "runs on any",
                 (unsigned long long)mask, options->plan, strerror(cause));
  const nnp_event event = {.plan = options->plan, .segment = NNP_NO_SEGMENT, .message = message};
  options->log(options->log_context, &event);
}

void np_conditions_apply(const struct np_bundle *bundle, nnp_options *options) {
  if ((options->flags & NNP_AS_MEASURED) == 0) {
    return;
  }
  if (bundle->pointers) {
    options->flags |= NNP_POINTERS;
  }
  if (options->compile_limit_ns == NNP_COMPILE_LIMIT_NS && bundle->compile_limit_ns != 0) {
    options->compile_limit_ns = bundle->compile_limit_ns;
  }
  if (options->run_limit_ns == NNP_RUN_LIMIT_NS && bundle->run_limit_ns != 0) {
    options->run_limit_ns = bundle->run_limit_ns;
  }
  if (options->cpu_mask != 0 || bundle->cores == NP_BUNDLE_ANY) {
    return;
  }
  const uint64_t mask =
      bundle->cores == NP_BUNDLE_MASK ? bundle->cpu_mask : big_cores(options->threads);
  struct np_affinity affinity;
  const int cause = np_affinity_enter(mask, &affinity);
  np_affinity_leave(&affinity);
  if (cause == 0) {
    options->cpu_mask = mask;
  } else {
    tell(options, mask, cause);
  }
}
