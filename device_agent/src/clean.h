/* Keeps the agent's folders small: blobs by their last use, work folders that nobody came back for.
 */
#ifndef NP_CLEAN_H
#define NP_CLEAN_H

#include <stdint.h>

#include "np_status.h"
#include "result.h"

#define NP_DAY_S 86400

/* What cleaning did. */
struct np_cleaned {
  uint64_t files;
  uint64_t bytes;
  uint64_t kept_bytes; /* of blobs that are left */
};

/* Deletes blobs of the folder store_fd: those that were not used for age_s seconds (-1: none for
 * that), then the least recently used ones until max_bytes are left at the most (-1: any). Counts
 * go to *cleaned on top of what it holds. NP_IO with folder and cause in *why, NP_NO_MEMORY. */
enum np_status np_clean_store(int store_fd, int64_t age_s, int64_t max_bytes,
                              struct np_cleaned *cleaned, struct np_message *why);

/* Deletes what lies in the folder work_fd and was not changed for age_s seconds: kept outputs, and
 * hosts' folders. */
enum np_status np_clean_work(int work_fd, int64_t age_s, struct np_cleaned *cleaned,
                             struct np_message *why);

/* The command `agent clean`: days and max_bytes are -1 where not given. */
enum np_status np_clean_command(const char *store, const char *work, int64_t days,
                                int64_t max_bytes, struct np_answers *answers,
                                struct np_message *why);

#endif
