/* Memory that the two processes of a trial share: for trial.c and trial_child.c only. */
#ifndef NP_TRIAL_BLOCK_H
#define NP_TRIAL_BLOCK_H

#include "child.h"
#include "trial.h"

#define NP_TRIAL_PATH_BYTES 1024

/* Indices of the files that another program or process gets. */
enum { NP_TRIAL_LINK, NP_TRIAL_BLOCK, NP_TRIAL_BUNDLE, NP_TRIAL_FILES };

struct np_trial_slot {
  uint32_t is_wanted;
  struct np_trial_verdict verdict;
};

/* The job, then the answers. The process takes one turn when NNAPI is open, then one for each
 * wanted segment. */
struct np_trial_block {
  char version[32]; /* library version: the helper's and the app's must match */
  uint64_t n_bytes; /* size of the block */
  uint64_t bundle_offset, bundle_bytes;
  uint64_t weights_bytes; /* size of a section WGHT after the bundle's bytes; 0: they contain it */
  uint32_t plan, flags, threads;
  int32_t priority;
  char library[NP_TRIAL_PATH_BYTES]; /* "": NNAPI's own */
  char cache_folder[NP_FOLDER_BYTES];
  uint32_t first; /* segment at which the process starts */
  uint32_t n;     /* number of segments in the plan */

  struct np_turns turns;
  uint32_t is_served; /* the helper understood the job */
  int32_t pid;        /* the helper's */
  uint8_t drivers[NP_SHA256_BYTES];
  struct np_trial_verdict opening;
  struct np_trial_slot slots[]; /* [n], by segment */
};

/* Returns the offset at which weights stored outside a bundle's bytes begin. */
static inline uint64_t np_trial_weights_offset(uint64_t bundle_bytes) {
  return (bundle_bytes + 63) / 64 * 64;
}

/* Tries the block's segments, in the trial's process, whose end frees all memory. `nnapi` NULL:
 * open the library. */
void np_trial_try(const struct np_bundle *bundle, const nnp_options *options,
                  struct np_nnapi *nnapi, struct np_trial_block *block, struct np_link *link);

#endif
