/* The command `agent run`. */
#ifndef NP_RUN_H
#define NP_RUN_H

#include "np_status.h"
#include "result.h"

/* Carries out the request in a file. NP_OK; NP_MISSING if blobs are absent (a line of type missing
 * lists them); any other status with the cause in *why. `library` NULL: NNAPI's usual library;
 * `sysfs` NULL: /sys. */
enum np_status np_run_command(const char *request_path, const char *store, const char *work,
                              const char *library, const char *sysfs, struct np_answers *answers,
                              struct np_message *why);

#endif
