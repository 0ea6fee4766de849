#define _POSIX_C_SOURCE 200809L

#include "blobs.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sha256.h"

static const uint64_t nothing[1] = {0}; /* the address of files without bytes */

enum np_status np_map_file(int folder_fd, const char *name, struct np_bytes *bytes) {
  *bytes = (struct np_bytes){.data = NULL, .length = 0};
  const int fd = openat(folder_fd, name, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return errno == ENOENT ? NP_MISSING : NP_IO;
  struct stat facts;
  if (fstat(fd, &facts) != 0) {
    const int cause = errno;
    (void)close(fd);
    errno = cause;
    return NP_IO;
  }
  if (!S_ISREG(facts.st_mode) || (uintmax_t)facts.st_size > SIZE_MAX / 2) {
    (void)close(fd);
    errno = S_ISDIR(facts.st_mode) ? EISDIR : EFBIG;
    return NP_IO;
  }
  if (facts.st_size == 0) {
    (void)close(fd);
    bytes->data = (const uint8_t *)nothing;
    return NP_OK;
  }
  void *address = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int cause = errno;
  (void)close(fd);
  if (address == MAP_FAILED) {
    errno = cause;
    return NP_IO;
  }
  *bytes = (struct np_bytes){.data = address, .length = (size_t)facts.st_size};
  return NP_OK;
}

void np_unmap(struct np_bytes *bytes) {
  if (bytes->length != 0)
    (void)munmap((void *)(uintptr_t)bytes->data, bytes->length);
  *bytes = (struct np_bytes){.data = NULL, .length = 0};
}

static enum np_status open_blob(int store_fd, uint32_t index, const struct np_blob *blob,
                                struct np_bytes *bytes, uint8_t *absent, struct np_message *why) {
  char name[2 * NP_SHA256_BYTES + 1];
  np_sha256_hex(blob->sha256, name);
  const enum np_status status = np_map_file(store_fd, name, bytes);
  if (status == NP_MISSING) {
    *absent = 1;
    return NP_OK;
  }
  if (status != NP_OK) {
    np_message_set(why, "blob %u: cannot read %s in the store: %s", index, name, strerror(errno));
    return status;
  }
  uint8_t digest[NP_SHA256_BYTES];
  np_sha256(bytes->data, bytes->length, digest);
  if (memcmp(digest, blob->sha256, sizeof digest) != 0) {
    np_unmap(bytes);
    if (unlinkat(store_fd, name, 0) != 0) {
      np_message_set(why, "blob %u: cannot delete %s, whose bytes have another hash: %s", index,
                     name, strerror(errno));
      return NP_IO;
    }
    *absent = 1;
    return NP_OK;
  }
  if (bytes->length != blob->length) {
    np_message_set(why, "BLOB: blob %u: the request says %llu bytes, those with this hash are %zu",
                   index, (unsigned long long)blob->length, bytes->length);
    return NP_BAD_REQUEST;
  }
  return NP_OK;
}

enum np_status np_blobs_open(int store_fd, const struct np_request *request, struct np_bytes *blobs,
                             uint8_t *absent, struct np_message *why) {
  memset(absent, 0, request->n_blobs);
  for (uint32_t i = 0; i < request->n_blobs; i++) {
    const enum np_status status =
        open_blob(store_fd, i, &request->blobs[i], &blobs[i], &absent[i], why);
    if (status != NP_OK)
      return status;
  }
  return NP_OK;
}

void np_blobs_close(struct np_bytes *blobs, uint32_t n_blobs) {
  for (uint32_t i = 0; i < n_blobs; i++)
    np_unmap(&blobs[i]);
}
