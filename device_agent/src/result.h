/* The agent's answers (PROTOCOL.md, section 5): JSON Lines, formatted by result*.c. */
#ifndef NP_RESULT_H
#define NP_RESULT_H

#include <stddef.h>
#include <stdint.h>

#include "engine.h"
#include "np_status.h"
#include "pace.h"
#include "sha256.h"
#include "sysfs.h"
#include "timing.h"

/* The destination of answers. A line is completed in memory and then written at once, so that an
 * agent that is killed leaves only whole lines, except for one it was writing. */
struct np_answers {
  int fd;
  char *line; /* owned; grows */
  size_t n_bytes;
  size_t capacity;
  int no_memory; /* the line being made did not fit into memory */
};

struct np_answers np_answers_to(int fd);
void np_answers_free(struct np_answers *answers);

/* How an action ended. */
struct np_accelerator;

enum np_verdict { NP_VERDICT_OK, NP_REFUSED, NP_FAILED, NP_CRASHED, NP_TIMED_OUT };

/* The stage of an action when it ended. */
enum np_stage { NP_STAGE_SETUP, NP_STAGE_COMPILE, NP_STAGE_EXECUTE };

struct np_segment_result {
  int compiled;
  uint64_t compile_ns;         /* if compiled */
  const uint64_t *samples_ns;  /* [n_runs] */
  const uint64_t *hardware_ns; /* [n_durations]; any NP_NO_DURATION makes the list empty */
  const uint64_t *driver_ns;
  const uint64_t *alone_ns; /* [n_runs] for segments side by side, else NULL; likewise cpu_ns */
  const uint64_t *cpu_ns;
  const struct np_engine_facts *facts; /* if compiled */
};

/* One turn of recorded runs. */
struct np_round {
  uint32_t runs;
  struct np_readings before;
  struct np_readings after;
  int throttled; /* 1, 0, or -1: unknown */
  int moved;     /* the clock or the core changed: 1, 0, or -1: not checked */
  struct np_pace_facts pace;
  uint32_t repeats; /* index of the repeated round, NP_NONE: none */
};

struct np_kept_output {
  uint32_t tensor;
  uint64_t n_bytes;
  uint8_t sha256[NP_SHA256_BYTES];
};

struct np_frame_record;
struct np_frame_span;

/* Frames at once. */
struct np_frames_result {
  uint32_t n_frames;
  const struct np_frame_record *frames; /* [n_frames], in order; NULL: not an action of frames */
  uint32_t room;
  const struct np_frame_span *spans; /* [n_segments][room] */
  const char *failure;               /* message of the first failed frame, NULL: none */
};

struct np_result {
  uint32_t action;
  uint32_t attempts;  /* number of tries while its driver was well */
  const char *driver; /* "sick", "back", NULL: no known problem */
  enum np_verdict verdict;
  enum np_stage stage; /* set, like `message`, if not ok */
  const char *message;
  const char *words; /* last output of its process if not ok, NULL: none */
  int has_code;
  int code;
  const char *signal; /* NULL: null */
  int simulated;
  uint32_t n_segments;
  const struct np_segment_result *segments;
  struct np_frames_result frames;
  uint32_t n_runs;
  uint32_t n_durations;
  const uint64_t *total_ns;  /* [n_runs] */
  const uint64_t *copies_ns; /* [n_runs] copies from and to the caller's buffers, NULL: not
                                copied */
  uint64_t first_ns;         /* 0: no run was completed */
  struct np_warmth warmth;
  uint32_t n_rounds;
  const struct np_round *rounds;
  uint64_t cpu_mask; /* 0: null */
  int64_t rss_peak_kb;
  struct np_readings before;
  struct np_readings after;
  uint32_t n_kept;
  const struct np_kept_output *kept;
};

/* The summary of a request. */
struct np_drivers;

struct np_ending {
  uint32_t actions;
  uint32_t ok;
  uint64_t waited_ns;               /* waiting for a hot device */
  int fruitless;                    /* the device stayed hot */
  uint64_t simulated_ns;            /* time by a simulated phone's clock */
  uint32_t n_seen;                  /* CPUs */
  const int64_t *allowed_khz;       /* [n_seen] highest scaling_max_freq seen for each, -1: none */
  const struct np_drivers *drivers; /* present knowledge about the drivers */
};

/* Each writes one line. NP_IO if the reader is gone or the disk is full (errno), NP_NO_MEMORY. The
 * `accelerators` of a hello may be NULL: unknown. */
enum np_status np_answer_hello(struct np_answers *answers, uint32_t n_actions, const char *phone,
                               uint32_t n, const struct np_accelerator *accelerators);
enum np_status np_answer_missing(struct np_answers *answers, const uint8_t *const *sha256,
                                 uint32_t n);
enum np_status np_answer_start(struct np_answers *answers, uint32_t action);
enum np_status np_answer_wait(struct np_answers *answers, uint32_t action, uint64_t ms);
enum np_status np_answer_result(struct np_answers *answers, const struct np_result *result);
enum np_status np_answer_end(struct np_answers *answers, const struct np_ending *ending);
enum np_status np_answer_error(struct np_answers *answers, const char *message);
enum np_status np_answer_cleaned(struct np_answers *answers, uint64_t files, uint64_t bytes,
                                 uint64_t kept_bytes);

/* Writes the name of a kept tensor's file in the work folder to `name`. */
void np_kept_name(uint32_t action, uint32_t tensor, char name[32]);

#endif
