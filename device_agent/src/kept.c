#define _POSIX_C_SOURCE 200809L

#include "kept.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "sha256.h"

/* Writes a whole file that only its owner may read. What has its name already goes first: it may be
 * a pipe, another name of somebody's file, or one that everybody may read. Sets errno. */
static int write_file(int folder_fd, const char *name, const uint8_t *bytes, size_t n_bytes) {
  if (unlinkat(folder_fd, name, 0) != 0 && errno != ENOENT) {
    return -1;
  }
  const int fd = openat(folder_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) {
    return -1;
  }
  size_t written = 0;
  while (written < n_bytes) {
    const ssize_t n = write(fd, bytes + written, n_bytes - written);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      break;
    }
    written += (size_t)n;
  }
  const int cause = errno;
  const int closed = close(fd);
  if (written == n_bytes && closed == 0) {
    return 0;
  }
  if (written != n_bytes) {
    errno = cause;
  }
  const int last = errno;
  (void)unlinkat(folder_fd, name, 0); /* half a tensor is worse than none */
  errno = last;
  return -1;
}

enum np_status np_kept_write(int folder_fd, const struct np_action *action,
                             const void *const *bytes, const struct np_record_view *view) {
  struct np_record *record = view->record;
  for (uint32_t i = 0; i < action->n_kept; i++) {
    const uint32_t t = action->kept[i];
    const size_t n_bytes = action->bundle.tensors[t].n_bytes;
    char name[32];
    np_kept_name(action->id, t, name);
    if (write_file(folder_fd, name, bytes[i], n_bytes) != 0) {
      return np_error(NP_IO, &record->fault.why, "cannot write %s, %zu bytes: %s", name, n_bytes,
                      strerror(errno));
    }
    struct np_kept_output *output = &view->kept[record->n_kept];
    output->tensor = t;
    output->n_bytes = n_bytes;
    np_sha256(bytes[i], n_bytes, output->sha256);
    record->n_kept++;
  }
  return NP_OK;
}
