/* The tensors that an action keeps, as files of the work folder. */
#ifndef NP_KEPT_H
#define NP_KEPT_H

#include "record.h"
#include "request.h"

/* Writes each tensor that the action keeps, bytes[n_kept], to its file in a folder, and adds it to
 * the record. NP_IO with file and cause in the record's fault. */
enum np_status np_kept_write(int folder_fd, const struct np_action *action,
                             const void *const *bytes, const struct np_record_view *view);

#endif
