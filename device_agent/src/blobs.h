/* The agent's files: the request, its blobs in the store, and the tensors that actions keep. */
#ifndef NP_BLOBS_H
#define NP_BLOBS_H

#include <stdint.h>

#include "model.h"
#include "np_status.h"
#include "record.h"
#include "request.h"

/* Maps each blob of a request from the folder store_fd, read-only, into blobs[n_blobs], verifies
 * its hash, and sets the file's time to now, the time of last use. If a file is truncated
 * afterwards, touching the lost part kills the process: only actions' processes do, never the
 * agent's own. Sets absent[n_blobs] to 1 for blobs that are missing or have another hash; the
 * latter are deleted. NP_OK even with absent blobs; NP_BAD_REQUEST if the request states a wrong
 * length; NP_IO with file and cause in *why. The caller zeroes `blobs` before, and calls
 * np_blobs_close even after a failure; the mappings last until then. */
enum np_status np_blobs_open(int store_fd, const struct np_request *request, struct np_bytes *blobs,
                             uint8_t *absent, struct np_message *why);

void np_blobs_close(struct np_bytes *blobs, uint32_t n_blobs);

/* Reads a whole regular file into memory, which the caller frees. It is not mapped, since the agent
 * uses the request until its end and must survive changes to the file. NP_IO with the cause in
 * errno, NP_MISSING (errno too) if there is no such file. */
enum np_status np_read_file(const char *path, struct np_bytes *bytes);

/* Opens the folder named by an option. NP_IO with the option and the cause in *why. */
enum np_status np_open_folder(const char *option, const char *path, int *fd,
                              struct np_message *why);

/* Writes all bytes, resuming after interruptions. Returns 0, or -1 with errno. */
int np_write_fully(int fd, const void *bytes, size_t n_bytes);

/* Writes each tensor that an action keeps, bytes[n_kept], to its file in a folder and adds it to
 * the record. NP_IO with file and cause in the record's fault. */
enum np_status np_kept_write(int folder_fd, const struct np_action *action,
                             const void *const *bytes, const struct np_record_view *view);

#endif
