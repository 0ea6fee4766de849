/* What an action's process tells its parent: memory that both share, so that whatever was recorded
 * before a crash is still there after it. */
#ifndef NP_RECORD_H
#define NP_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include "engine.h"
#include "request.h"
#include "result.h"
#include "timing.h"

/* The child writes, the parent reads after the child's end and trusts no number in it. */
struct np_record {
  uint32_t done; /* the fields up to `message` are final */
  uint32_t verdict;
  struct np_fault fault;
  uint32_t stage;   /* enum np_stage, always up to date */
  uint32_t segment; /* the one that is compiled or run */
  uint32_t n_runs;
  uint32_t started_runs;
  uint32_t n_kept;
  uint64_t first_ns;
  int64_t cpu_khz[2]; /* of a simulated phone, before and after; 0 while not read, -1 unknown */
  int64_t thermal_mc[2];
};

/* Where the parts of a record stand; the same addresses in both processes. */
struct np_record_view {
  struct np_record *record;
  size_t n_bytes;
  uint64_t *compile_ns; /* [n_segments], 0 while not compiled, else 1 + the time */
  uint64_t *total_ns;   /* [max_runs] */
  uint64_t *samples_ns; /* [n_segments][max_runs] */
  uint64_t *hardware_ns;
  uint64_t *driver_ns;
  struct np_kept *kept; /* [n_tensors] */
};

/* Maps a zeroed record for an action. NP_NO_MEMORY. */
enum np_status np_record_make(const struct np_action *action, struct np_record_view *view);
void np_record_free(struct np_record_view *view);

/* The record as the place where np_time_steps puts its samples. */
struct np_samples np_record_samples(const struct np_record_view *view);

/* Makes a child's record safe to read: counts and indices within the action's, texts ended. */
void np_record_sanitize(const struct np_record_view *view, const struct np_action *action);

#endif
