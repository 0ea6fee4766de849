/* Segments that NNAPI compiles and runs once in a process of their own, before this one trusts its
 * driver. */
#ifndef NP_TRIAL_H
#define NP_TRIAL_H

#include "executable.h"

/* What is to be tried: the segments of a plan that are NNAPI's and not borrowed. */
struct np_trial_job {
  const struct np_bundle *bundle;
  uint32_t plan;
  const nnp_options *options;
  struct np_nnapi *nnapi;               /* open here already, else NULL */
  const struct np_segment_facts *facts; /* [n_segments] whose is_borrowed counts, NULL: none are */
};

/* Finds out what becomes of a job's segments, by np_trial_recall, unless the drivers of job->nnapi
 * are others, or by a trial: one segment after another runs once on zeros, in a process that opens
 * NNAPI first. That is the helper of the options; where they name none a child, unless this system
 * has binder, which does not survive a fork. What ends the process is the verdict of the segment
 * that it was at, and those after it have another process. Each may take the limits of the options
 * (without them 30 s), as opening may. To be freed with np_trial_record_free. NP_NO_MEMORY. */
enum np_status np_trial_judge(const struct np_trial_job *job, struct np_trial_record *record);

void np_trial_record_free(struct np_trial_record *record);

/* Whether a segment is to be tried. */
int np_trial_wants(const struct np_trial_job *job, uint32_t segment);

/* Identifies the drivers of an open library: SHA-256 of their names, versions and levels. */
void np_trial_drivers(const struct np_nnapi *nnapi, uint8_t digest[NP_SHA256_BYTES]);

/* Whether those that a record is of are those of a library. */
int np_trial_fits(const struct np_trial_record *record, const struct np_nnapi *nnapi);

/* Reads the record of an earlier trial of the same bundle, options and system (trial_store.c); 0
 * where there is none, or it lacks a segment of the job. */
int np_trial_recall(const struct np_trial_job *job, struct np_trial_record *record);

/* Keeps a record in the cache folder, if there is one and the driver is who made it so. */
void np_trial_keep(const struct np_trial_job *job, const struct np_trial_record *record);

#endif
