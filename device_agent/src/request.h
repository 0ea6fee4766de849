/* A request (PROTOCOL.md, section 3): what to run, as data. No I/O. */
#ifndef NP_REQUEST_H
#define NP_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#include "model.h"
#include "np_status.h"
#include "port.h"

#define NP_PROTOCOL_VERSION 4u
#define NP_OLDEST_PROTOCOL 2u /* whose requests are read, too */
#define NP_PROTOCOL_PACED 4u  /* from which on a request tells of clocks and warm-up by time */
#define NP_NONE UINT32_MAX
#define NP_MAX_RUNS 100000u
#define NP_MAX_ROUNDS 1000u
#define NP_MAX_GROUP 32u
#define NP_MAX_IN_FLIGHT 63u
#define NP_MAX_VARIANTS 64u
#define NP_MAX_SEEN 256u        /* clocks that a request tells of */
#define NP_ALL_CPUS UINT64_MAX  /* of cpu_mask: leave the affinity as it is */
#define NP_UNBOUNDED UINT32_MAX /* of memory_kb */

enum np_action_flags {
  NP_ACTION_BURST = 1,
  NP_ACTION_UNTIMED = 2,
  NP_ACTION_ASYNC = 4,
  NP_ACTION_POINTERS = 8,
  NP_ACTION_BESIDE = 16, /* segments run at once: np_beside_round */
  NP_ACTION_FRAMES = 32, /* plans run many frames at once: np_frames_round */
};
enum np_segment_flags { NP_SEGMENT_RELAXED = 1 };
enum np_engine_kind { NP_ENGINE_CPU = 0, NP_ENGINE_NNAPI = 1 };

enum np_source {
  NP_FROM_SEGMENT = 0,
  NP_FROM_BLOB = 1,
  NP_PSEUDO_RANDOM = 2,
  NP_ZERO = 3,
};

struct np_text {
  const char *bytes; /* [length], not terminated */
  uint32_t length;
};

struct np_blob {
  uint64_t length;
  const uint8_t *sha256; /* [32] */
};

struct np_request_model {
  struct np_model model;
  const uint32_t *buffers; /* [n_buffers] blob indices */
  uint32_t n_buffers;
};

struct np_tensor {
  int32_t type;
  uint32_t rank;
  const uint32_t *dims; /* [rank], none is 0 */
  enum np_source source;
  uint32_t value; /* blob index or seed */
  int keep;
  size_t n_elements;
  size_t n_bytes;
};

struct np_segment {
  enum np_engine_kind engine;
  uint32_t accelerator; /* string index, NP_NONE leaves the choice to NNAPI */
  int32_t preference;   /* 0, 1, 2, or -1 for none */
  uint32_t flags;
  uint32_t model;
  uint32_t n_inputs;
  const struct np_port *inputs; /* [n_inputs], words of the request, in place */
  uint32_t n_outputs;
  const struct np_port *outputs;
};

/* Of an action whose plans run many frames at once: so many of its segments, in order. */
struct np_action_plan {
  uint32_t n_segments;
  int overlaps; /* its segments run as soon as what they read is there */
  double share; /* of the frames: above 0, 1 in all */
};

struct np_action {
  uint32_t id;
  uint32_t timeout_ms; /* of set-up, compilation and warm-up together, and of each round */
  uint32_t flags;
  uint32_t threads;   /* at least 1 */
  uint64_t cpu_mask;  /* 0: the big cores */
  uint32_t memory_kb; /* 0: the agent's default */
  uint32_t group;     /* 0: alone */
  uint32_t warmup_min;
  uint32_t warmup_max;
  uint64_t warmup_ns;
  uint64_t warm_ns; /* busy time of the warm-up, at least; 0 where spin_ns is */
  uint64_t
      spin_ns; /* of each round before its recorded runs; 0: one run, and no clock is watched */
  uint32_t rounds;
  uint32_t min_runs;
  uint32_t max_runs;
  uint64_t budget_ns;
  uint32_t cooldown_ms;
  uint32_t n_tensors;
  struct np_tensor *tensors;
  uint32_t n_segments;
  struct np_segment *segments;
  uint32_t n_plans; /* 0: one, of all segments, a run after the other; then the next two are 0 */
  struct np_action_plan *plans;
  uint32_t in_flight; /* frames at once, at most */
  uint32_t variants;  /* of the inputs */
};

/* What is known of a driver: accelerator (string, NP_NONE NNAPI's choice), room, kind of memory. */
#define NP_DRIVER_WORDS 3u

/* Arrays are owned; what has no count of its own points into the request's bytes. */
struct np_request {
  uint32_t version;
  uint32_t wait_ms; /* that all groups together may wait for a hot device; NP_UNBOUNDED */
  uint32_t n_seen;
  const uint32_t
      *seen_khz; /* [n_seen] highest scaling_max_freq of each CPU that its host was told */
  uint32_t n_blobs;
  struct np_blob *blobs;
  uint32_t n_strings;
  struct np_text *strings;
  uint32_t n_driver_facts;
  const uint32_t
      *driver_facts; /* [n_driver_facts][NP_DRIVER_WORDS] what earlier requests learnt of drivers */
  uint32_t n_models;
  struct np_request_model *models;
  uint32_t n_actions;
  struct np_action *actions;
};

/* Reads a request from bytes[size], which must be aligned to 8 and outlive it.
 *
 * Everything section 3 says is checked, so that whoever runs an action may index without looking:
 * also that segments' tensors have the types and shapes of their models' operands, that each tensor
 * is written by one segment at most and before it is read, that constants fit their blobs, and that
 * actions of a group may run in rounds together. The caller frees *request with np_request_free
 * also after a failure. NP_BAD_REQUEST with section, item and field in *why; NP_BAD_ARGUMENT,
 * NP_NO_MEMORY. */
enum np_status np_request_open(const void *bytes, size_t size, struct np_request *request,
                               struct np_message *why);

/* Where the group that begins with action `first` < n_actions ends: the index behind its last one.
 */
uint32_t np_request_group_end(const struct np_request *request, uint32_t first);

void np_request_free(struct np_request *request);

#endif
