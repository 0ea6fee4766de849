/* A request (PROTOCOL.md, section 3) as data: what to run. No I/O. */
#ifndef NP_REQUEST_H
#define NP_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#include "bundle.h"
#include "model.h"
#include "np_status.h"

#define NP_PROTOCOL_VERSION 5u
#define NP_NONE UINT32_MAX
#define NP_MAX_RUNS 100000u
#define NP_MAX_ROUNDS 1000u
#define NP_MAX_GROUP 32u
#define NP_MAX_IN_FLIGHT 63u
#define NP_MAX_VARIANTS 64u
#define NP_MAX_SEEN 256u        /* CPU clocks that a request may list */
#define NP_ALL_CPUS UINT64_MAX  /* value of cpu_mask: leave the affinity unchanged */
#define NP_UNBOUNDED UINT32_MAX /* value of memory_kb: no limit */

enum np_action_flags {
  NP_ACTION_UNTIMED = 1,
  NP_ACTION_CORUN = 2,  /* segments run at the same time: np_corun_round */
  NP_ACTION_FRAMES = 4, /* plans run many frames at once: np_frames_round */
  NP_ACTION_COPIES = 8, /* runs include copies from and to the caller's buffers */
  NP_ACTION_GAUGE = 16, /* ran well before: run only to check whether its driver still works */
};

enum np_source {
  NP_FROM_BLOB = 1,
  NP_PSEUDO_RANDOM = 2,
  NP_ZERO = 3,
};

struct np_blob {
  uint64_t length;
  const uint8_t *sha256; /* [32] */
};

/* The source of an input's bytes, as words of the request. */
struct np_input {
  uint32_t source; /* enum np_source */
  uint32_t value;  /* blob index or seed */
};

/* A bundle and how often to run it. Pointers that are not marked as owned point into the request's
 * bytes. */
struct np_action {
  uint32_t id;
  uint32_t timeout_ms; /* for set-up, compilation and warm-up together, and for each round */
  uint32_t flags;
  uint32_t memory_kb; /* 0: the agent's default */
  uint32_t group;     /* 0: alone */
  uint32_t warmup_min;
  uint32_t warmup_max;
  uint64_t warmup_ns;
  uint64_t warm_ns; /* minimum busy time of the warm-up; 0 if spin_ns is 0 */
  uint64_t
      spin_ns; /* each round spins so long before its recorded runs; 0: one run, no clock watched */
  uint32_t rounds;
  uint32_t min_runs;
  uint32_t max_runs;
  uint64_t budget_ns;
  uint32_t cooldown_ms;
  uint32_t in_flight;      /* for frames at once: maximum number in flight */
  uint32_t variants;       /* ... and number of variants of the inputs */
  struct np_bytes bytes;   /* the bundle's bytes */
  uint32_t n_weights;      /* blobs that are its weights, */
  const uint32_t *weights; /* [n_weights][NP_WEIGHT_WORDS] */
  uint32_t n_inputs;       /* the number of the bundle's inputs */
  const struct np_input *inputs;
  uint32_t n_kept; /* tensors whose bytes are saved in the work folder, ascending */
  const uint32_t *kept;

  struct np_bundle bundle; /* owned; this and the rest are set by np_request_bind */
  uint32_t n_named;        /* segments on named accelerators, */
  uint32_t n_chosen;       /* and segments for which NNAPI chooses; the others run on the CPU */
  uint32_t threads;        /* at least 1 */
  uint64_t cpu_mask;       /* 0: the big cores */
};

/* Returns whether an action uses NNAPI. */
static inline int np_uses_nnapi(const struct np_action *action) {
  return action->n_named + action->n_chosen != 0;
}

/* Words of one of an action's weights: blob index, and the offset of its bytes in the section WGHT,
 * a u64. */
#define NP_WEIGHT_WORDS 3u

/* Words of a known driver: accelerator (string, NP_NONE: NNAPI's choice), room, kind of memory. */
#define NP_DRIVER_WORDS 3u

/* Arrays of structures and strings are owned; seen_khz and driver_facts point into the request's
 * bytes. */
struct np_request {
  uint32_t wait_ms; /* limit for all groups together of waiting for a hot device; NP_UNBOUNDED:
                       none */
  uint32_t n_seen;
  const uint32_t
      *seen_khz; /* [n_seen] highest scaling_max_freq of each CPU that its host was told */
  uint32_t n_blobs;
  struct np_blob *blobs;
  uint32_t n_strings;
  char **strings;
  uint32_t n_driver_facts;
  const uint32_t
      *driver_facts; /* [n_driver_facts][NP_DRIVER_WORDS] what earlier requests learnt of drivers */
  uint32_t n_actions;
  struct np_action *actions;
};

/* Reads a request from bytes[size], which must be aligned to 8 and outlive it, except for the
 * actions' bundles. Checks every rule of section 3 for the rest, including that the actions of a
 * group can run in rounds together. The caller frees *request with np_request_free, even after a
 * failure. NP_BAD_REQUEST with section, item and field in *why; NP_BAD_ARGUMENT, NP_NO_MEMORY. */
enum np_status np_request_open(const void *bytes, size_t size, struct np_request *request,
                               struct np_message *why);

/* Reads the actions' bundles, whose weights are in blobs[n_blobs], with the runtime library's
 * reader, and checks the actions against them, so that code that runs an action can index without
 * checks. */
enum np_status np_request_bind(struct np_request *request, const struct np_bytes *blobs,
                               struct np_message *why);

/* Returns the index behind the last action of the group that begins with action `first` <
 * n_actions. */
uint32_t np_request_group_end(const struct np_request *request, uint32_t first);

void np_request_free(struct np_request *request);

/* Returns the runtime library's options for an action: burst, threads and memory as in its bundle,
 * no fallback and no time limits. */
nnp_options np_action_options(const struct np_action *action);

/* Returns the index of a tensor in ends[n], a bundle's inputs or outputs; n if it is not among
 * them. */
uint32_t np_end_of(const struct np_bundle_end *ends, uint32_t n, uint32_t tensor);

#endif
