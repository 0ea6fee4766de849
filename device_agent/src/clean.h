/* Keeps the agent's folders small: deletes blobs by last use, and abandoned work folders. */
#ifndef NP_CLEAN_H
#define NP_CLEAN_H

#include <stdint.h>

#include "np_status.h"
#include "result.h"

#define NP_DAY_S 86400

/* The result of cleaning. */
struct np_cleaned {
  uint64_t files;
  uint64_t bytes;
  uint64_t kept_bytes; /* size of the remaining blobs */
};

/* Deletes blobs of the folder store_fd: those unused for age_s seconds (-1: none), then the least
 * recently used ones until at most max_bytes are left (-1: no limit). Adds counts to *cleaned.
 * NP_IO with folder and cause in *why, NP_NO_MEMORY. */
enum np_status np_clean_store(int store_fd, int64_t age_s, int64_t max_bytes,
                              struct np_cleaned *cleaned, struct np_message *why);

/* Deletes everything in the folder work_fd that was not changed for age_s seconds: kept outputs,
 * and hosts' folders. */
enum np_status np_clean_work(int work_fd, int64_t age_s, struct np_cleaned *cleaned,
                             struct np_message *why);

/* Runs the command `agent clean`; days and max_bytes are -1 if not given. */
enum np_status np_clean_command(const char *store, const char *work, int64_t days,
                                int64_t max_bytes, struct np_answers *answers,
                                struct np_message *why);

#endif
