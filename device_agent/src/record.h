/* What an action's process tells its parent: memory that both share, so that whatever was recorded
 * before a crash is still there after it. */
#ifndef NP_RECORD_H
#define NP_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include "child.h"
#include "corun.h"
#include "engine.h"
#include "pace.h"
#include "request.h"
#include "result.h"
#include "sysfs.h"
#include "timing.h"

/* What a turn of the child is for: see perform.h. */
enum np_command { NP_COMMAND_ROUND, NP_COMMAND_COOL, NP_COMMAND_FINISH };

/* What became of a frame, of many at once. */
enum np_frame_outcome {
  NP_FRAME_SAME,    /* its outputs are those of its plan alone, bit by bit */
  NP_FRAME_DIFFERS, /* they are not */
  NP_FRAME_FAILED
};

struct np_frame_record {
  uint32_t plan;
  uint32_t outcome;  /* enum np_frame_outcome */
  uint64_t begin_ns; /* it was handed in, by the action's clock */
  uint64_t end_ns;   /* its last segment was done, or failed */
};

struct np_frame_span {
  uint64_t begin_ns;
  uint64_t end_ns; /* 0: the segment did not run for the frame */
};

#define NP_DURATION_RUNS 5u /* for which drivers are asked how long they took, at the most */

/* The child writes all but the command and `shares`; the parent reads, and trusts no number in it.
 */
struct np_record {
  struct np_turns turns;
  uint32_t command; /* enum np_command */
  uint32_t shares;  /* other actions of the group use its accelerators */
  uint64_t cool_ns; /* of NP_COMMAND_COOL: the longest time to wait, and then how long it was */
  uint32_t done;    /* the action has ended; the next two fields are final */
  uint32_t verdict; /* enum np_verdict */
  struct np_fault fault;
  uint32_t stage;   /* enum np_stage, always up to date */
  uint32_t segment; /* the one that is compiled or run */
  uint32_t n_runs;
  uint32_t started_runs;
  uint32_t n_kept;
  uint32_t n_durations; /* runs for which the drivers were asked, after those that count */
  struct np_warmth warmth;
  struct np_message frame_failure; /* of the first frame that failed, "": none did */
  uint64_t first_ns;
  struct np_pace_facts pace; /* of the last round */
  uint64_t fastest_ns;       /* mean of a run in the fastest stretch that rounds began with, or 0 */
  int64_t level_khz;         /* the highest clock that the process saw, 0: it is not judged */
  uint64_t now_ns;           /* its clock, as it reached its last turn */
  uint64_t away_ns;          /* that others had the simulated phone since, told by the parent */
  uint64_t cpu_mask;         /* that the process keeps to, 0 unknown */
  /* Of a simulated phone: after set-up; before and after the last turn. */
  struct np_readings first_reading;
  struct np_readings readings[2];
};

/* Where the parts of a record stand; the same addresses in both processes. */
struct np_record_view {
  struct np_record *record;
  size_t n_bytes;
  uint32_t room;                 /* recorded runs at the most */
  uint64_t *compile_ns;          /* [n_segments], 0 while not compiled, else 1 + the time */
  struct np_engine_facts *facts; /* [n_segments], of those that are compiled */
  uint64_t *total_ns;            /* [room] */
  uint64_t *copies_ns;           /* [room] */
  uint64_t *samples_ns;          /* [n_segments][room] */
  uint64_t *hardware_ns;         /* [n_segments][NP_DURATION_RUNS], NP_NO_DURATION where unknown */
  uint64_t *driver_ns;
  /* [n_segments][room] of segments side by side, else NULL. */
  uint64_t *alone_ns;
  uint64_t *cpu_ns;
  struct np_kept_output *kept; /* [n_kept] */
  /* Of frames at once [room] and [n_segments][room], else NULL; the times above are unused. */
  struct np_frame_record *frames;
  struct np_frame_span *spans;
};

/* A round's share of an action's runs or budget. */
static inline uint64_t np_share(const struct np_action *action, uint64_t of) {
  return of / action->rounds + (of % action->rounds != 0);
}

/* How many rounds an action has at the most, repeated ones included. */
static inline uint32_t np_all_rounds(const struct np_action *action) {
  return action->cooldown_ms != 0 || action->spin_ns != 0 ? 2 * action->rounds : action->rounds;
}

/* Maps a record for an action, all zero but the readings, which are unknown. NP_NO_MEMORY. */
enum np_status np_record_make(const struct np_action *action, struct np_record_view *view);
void np_record_free(struct np_record_view *view);

/* The record as the place where runs put their samples. */
struct np_samples np_record_samples(const struct np_record_view *view);

/* The same of segments that run side by side. */
struct np_corun_samples np_record_corun(const struct np_record_view *view);

/* Makes a child's record safe to read: counts and indices within the action's, texts ended. */
void np_record_sanitize(const struct np_record_view *view, const struct np_action *action);

#endif
