/* Compiles and runs NNAPI's segments once in a separate process, before this one trusts the
 * driver. */
#ifndef NP_TRIAL_H
#define NP_TRIAL_H

#include "executable.h"

/* The segments to try: those of a plan that run on NNAPI and are not borrowed. */
struct np_trial_job {
  const struct np_bundle *bundle;
  uint32_t plan;
  const nnp_options *options;
  struct np_nnapi *nnapi;               /* if already open here, else NULL */
  const struct np_segment_facts *facts; /* [n_segments] only is_borrowed is used; NULL: none are
                                           borrowed */
};

/* Finds a verdict for each of a job's segments: from np_trial_recall, unless the drivers of
 * job->nnapi have changed, or else from a trial. A trial runs the segments one after the other,
 * once each on zeros, in a process that opens NNAPI first: the helper of the options or, if they
 * name none, a forked child, unless this system has binder, which does not survive a fork. If the
 * process ends early, the way it ended is the verdict of the segment that it was at, and the
 * remaining segments get another process. Opening and each segment have the time limits of the
 * options (30 s without). The caller frees *record with np_trial_record_free. NP_NO_MEMORY. */
enum np_status np_trial_judge(const struct np_trial_job *job, struct np_trial_record *record);

void np_trial_record_free(struct np_trial_record *record);

/* Returns whether a segment is to be tried. */
int np_trial_wants(const struct np_trial_job *job, uint32_t segment);

/* Computes the identity of an open library's drivers: SHA-256 of their names, versions and
 * levels. */
void np_trial_drivers(const struct np_nnapi *nnapi, uint8_t digest[NP_SHA256_BYTES]);

/* Returns whether a record is for the drivers of a library. */
int np_trial_fits(const struct np_trial_record *record, const struct np_nnapi *nnapi);

/* Reads the record of an earlier trial of the same bundle, options and system (trial_store.c);
 * returns 0 if there is none, or it lacks a segment of the job. */
int np_trial_recall(const struct np_trial_job *job, struct np_trial_record *record);

/* Stores a record in the cache folder, if there is one and the driver caused the verdicts. */
void np_trial_keep(const struct np_trial_job *job, const struct np_trial_record *record);

#endif
