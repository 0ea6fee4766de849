/* The tensors that an action keeps, as files of the work folder. */
#ifndef NP_KEPT_H
#define NP_KEPT_H

#include "pipeline.h"
#include "record.h"
#include "request.h"

/* Writes each tensor that the action keeps to its file in a folder, and adds it to the record.
 * NP_IO with file and cause in the record's fault. */
enum np_status np_kept_write(int folder_fd, const struct np_action *action,
                             const struct np_pipeline *pipeline, const struct np_record_view *view);

#endif
