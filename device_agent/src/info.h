/* The command `agent info`. */
#ifndef NP_INFO_H
#define NP_INFO_H

#include "np_status.h"
#include "result.h"

/* Writes the line of type info. `library` NULL: NNAPI's usual library; `sysfs` NULL: /sys. NP_IO or
 * NP_NO_MEMORY with *why. */
enum np_status np_info_command(const char *library, const char *sysfs, struct np_answers *answers,
                               struct np_message *why);

#endif
