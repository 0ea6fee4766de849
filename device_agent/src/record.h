/* The report of an action's process to its parent, in memory that both share, so that whatever was
 * recorded before a crash survives it. */
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

/* The purpose of a turn of the child: see perform.h. */
enum np_command { NP_COMMAND_ROUND, NP_COMMAND_COOL, NP_COMMAND_FINISH };

/* The outcome of one of many frames. */
enum np_frame_outcome {
  NP_FRAME_SAME,    /* its outputs are bit-identical to those of its plan alone */
  NP_FRAME_DIFFERS, /* they are not */
  NP_FRAME_FAILED
};

struct np_frame_record {
  uint32_t plan;
  uint32_t outcome;  /* enum np_frame_outcome */
  uint64_t begin_ns; /* when it was submitted, by the action's clock */
  uint64_t end_ns;   /* when its last segment was done or failed */
};

struct np_frame_span {
  uint64_t begin_ns;
  uint64_t end_ns; /* 0: the segment did not run for the frame */
};

#define NP_DURATION_RUNS 5u /* most runs for which drivers are asked for durations */

/* The child writes everything except the command and `shares`; the parent reads it and trusts no
 * number in it. */
struct np_record {
  struct np_turns turns;
  uint32_t command; /* enum np_command */
  uint32_t shares;  /* other actions of the group use its accelerators */
  uint64_t cool_ns; /* for NP_COMMAND_COOL: the limit of the wait, then its actual time */
  uint32_t done;    /* the action has ended; the next two fields are final */
  uint32_t verdict; /* enum np_verdict */
  struct np_fault fault;
  uint32_t stage;   /* enum np_stage, always up to date */
  uint32_t segment; /* the one being compiled or run */
  uint32_t n_runs;
  uint32_t started_runs;
  uint32_t n_kept;
  uint32_t n_durations; /* runs for which drivers were asked for durations, after the counted
                           ones */
  struct np_warmth warmth;
  struct np_message frame_failure; /* message of the first failed frame, "": none */
  uint64_t first_ns;
  struct np_pace_facts pace; /* facts of the last round */
  uint64_t fastest_ns;       /* mean time of a run in the fastest stretch at the start of a round,
                                or 0 */
  int64_t level_khz;         /* the highest clock that the process saw, 0: not judged */
  uint64_t now_ns;           /* its clock when it reached its last turn */
  uint64_t away_ns;          /* written by the parent: time for which others used the simulated
                                phone since */
  uint64_t cpu_mask;         /* CPUs of the process, 0: unknown */
  /* For a simulated phone: after set-up; before and after the last turn. */
  struct np_readings first_reading;
  struct np_readings readings[2];
};

/* The addresses of a record's parts, the same in both processes. */
struct np_record_view {
  struct np_record *record;
  size_t n_bytes;
  uint32_t room;                 /* maximum number of recorded runs */
  uint64_t *compile_ns;          /* [n_segments], 0 while not compiled, else 1 + the time */
  struct np_engine_facts *facts; /* [n_segments], of those that are compiled */
  uint64_t *total_ns;            /* [room] */
  uint64_t *copies_ns;           /* [room] */
  uint64_t *samples_ns;          /* [n_segments][room] */
  uint64_t *hardware_ns;         /* [n_segments][NP_DURATION_RUNS], NP_NO_DURATION where unknown */
  uint64_t *driver_ns;
  /* [n_segments][room] for segments side by side, else NULL. */
  uint64_t *alone_ns;
  uint64_t *cpu_ns;
  struct np_kept_output *kept; /* [n_kept] */
  /* For frames at once, [room] and [n_segments][room], else NULL; the times above are then
   * unused. */
  struct np_frame_record *frames;
  struct np_frame_span *spans;
};

/* Returns a round's share of an action's runs or budget. */
static inline uint64_t np_share(const struct np_action *action, uint64_t of) {
  return of / action->rounds + (of % action->rounds != 0);
}

/* Returns the maximum number of rounds of an action, repeated ones included. */
static inline uint32_t np_all_rounds(const struct np_action *action) {
  return action->cooldown_ms != 0 || action->spin_ns != 0 ? 2 * action->rounds : action->rounds;
}

/* Maps a record for an action, all zero except the readings, which are unknown. NP_NO_MEMORY. */
enum np_status np_record_make(const struct np_action *action, struct np_record_view *view);
void np_record_free(struct np_record_view *view);

/* Returns the record as the destination of samples. */
struct np_samples np_record_samples(const struct np_record_view *view);

/* The same for segments that run side by side. */
struct np_corun_samples np_record_corun(const struct np_record_view *view);

/* Makes a child's record safe to read: limits counts and indices to the action's, terminates
 * texts. */
void np_record_sanitize(const struct np_record_view *view, const struct np_action *action);

#endif
