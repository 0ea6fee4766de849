/* The agent's files: the request, its blobs in the store, found, verified and mapped, and the
 * tensors that actions keep. */
#ifndef NP_BLOBS_H
#define NP_BLOBS_H

#include <stdint.h>

#include "model.h"
#include "np_status.h"
#include "record.h"
#include "request.h"

/* Maps each blob of a request from the folder store_fd, read-only, into blobs[n_blobs], and
 * verifies its hash, and sets its time, which is that of its last use. A file that is cut off
 * afterwards kills whoever touches the lost part: only actions' processes do, never the agent's
 * own. absent[n_blobs] is set to 1 where a blob is not there or its bytes have another hash; such a
 * file is deleted. NP_OK also with absent blobs; NP_BAD_REQUEST where the request states another
 * length than the (right) bytes have; NP_IO with file and cause in *why. The mappings stay until
 * np_blobs_close, which is to be called also after a failure; blobs is zeroed by the caller before.
 */
enum np_status np_blobs_open(int store_fd, const struct np_request *request, struct np_bytes *blobs,
                             uint8_t *absent, struct np_message *why);

void np_blobs_close(struct np_bytes *blobs, uint32_t n_blobs);

/* Reads a whole regular file into memory, which the caller frees. Not mapped: the agent reads the
 * request until its end, and must survive what others do to the file. NP_IO with the cause in
 * errno, NP_MISSING (errno too) where there is no such file. */
enum np_status np_read_file(const char *path, struct np_bytes *bytes);

/* Opens a folder that an option names. NP_IO with the option and the cause in *why. */
enum np_status np_open_folder(const char *option, const char *path, int *fd,
                              struct np_message *why);

/* Writes all bytes, whatever interrupts that. 0, or -1 with errno. */
int np_write_fully(int fd, const void *bytes, size_t n_bytes);

/* Writes each tensor that an action keeps, bytes[n_kept], to its file in a folder, and adds it to
 * the record. NP_IO with file and cause in the record's fault. */
enum np_status np_kept_write(int folder_fd, const struct np_action *action,
                             const void *const *bytes, const struct np_record_view *view);

#endif
