#define _POSIX_C_SOURCE 200809L

#include "blobs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "sha256.h"

static const uint64_t nothing[1] = {0}; /* the address of files without bytes */

/* Opens a regular file, without blocking if it is a pipe. Sets errno. */
static enum np_status open_regular(int folder_fd, const char *name, int *fd, size_t *n_bytes) {
  *fd = openat(folder_fd, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (*fd < 0) {
    return errno == ENOENT ? NP_MISSING : NP_IO;
  }
  struct stat facts;
  int cause = fstat(*fd, &facts) != 0 ? errno : 0;
  if (cause == 0 && !S_ISREG(facts.st_mode)) {
    cause = S_ISDIR(facts.st_mode) ? EISDIR : EINVAL;
  }
  if (cause == 0 && (uintmax_t)facts.st_size > SIZE_MAX / 2) {
    cause = EFBIG;
  }
  if (cause != 0) {
    (void)close(*fd);
    *fd = -1;
    errno = cause;
    return NP_IO;
  }
  *n_bytes = (size_t)facts.st_size;
  return NP_OK;
}

/* Reads up to n_bytes. Returns the number read, or -1 with errno. */
static ssize_t read_fully(int fd, uint8_t *bytes, size_t n_bytes) {
  size_t used = 0;
  while (used < n_bytes) {
    const ssize_t n = read(fd, bytes + used, n_bytes - used);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return -1;
    }
    if (n == 0) {
      break;
    }
    used += (size_t)n;
  }
  return (ssize_t)used;
}

int np_write_fully(int fd, const void *bytes, size_t n_bytes) {
  for (size_t written = 0; written < n_bytes;) {
    const ssize_t n = write(fd, (const char *)bytes + written, n_bytes - written);
    if (n >= 0) {
      written += (size_t)n;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      /* Another process that shares the pipe has made it non-blocking. */
      struct pollfd file = {.fd = fd, .events = POLLOUT, .revents = 0};
      (void)poll(&file, 1, -1);
    } else if (errno != EINTR) {
      return -1;
    }
  }
  return 0;
}

enum np_status np_open_folder(const char *option, const char *path, int *fd,
                              struct np_message *why) {
  *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  NP_REQUIRE(*fd >= 0, NP_IO, why, "%s %s: %s", option, path, strerror(errno));
  return NP_OK;
}

static void close_quietly(int fd) {
  const int cause = errno;
  (void)close(fd);
  errno = cause;
}

enum np_status np_read_file(const char *path, struct np_bytes *bytes) {
  *bytes = (struct np_bytes){.data = NULL, .length = 0};
  int fd;
  size_t n_bytes;
  NP_TRY(open_regular(AT_FDCWD, path, &fd, &n_bytes));
  uint8_t *data = malloc(n_bytes + 1);
  const ssize_t n = data ? read_fully(fd, data, n_bytes) : -1;
  close_quietly(fd);
  if (n < 0) {
    free(data);
    return NP_IO;
  }
  *bytes = (struct np_bytes){.data = data, .length = (size_t)n};
  return NP_OK;
}

/* The ns of the modification time mark a file whose hash was right: writing to the file changes
 * that time, so that it is hashed again. On a file system without ns, files are hashed each
 * time. */
#define VERIFIED_NS 707070707

static int is_verified(int fd) {
  struct stat file;
  return fstat(fd, &file) == 0 && file.st_mtim.tv_nsec == VERIFIED_NS;
}

/* Records the last use of a verified file; a read-only store has no ages. */
static void note_use(int fd) {
  struct timespec times[2] = {{0, 0}, {0, 0}};
  if (clock_gettime(CLOCK_REALTIME, &times[1]) == 0) {
    times[0] = times[1];
    times[1].tv_nsec = VERIFIED_NS;
    (void)futimens(fd, times);
  }
}

/* Checks the hash of a file's bytes. Reads the file, since touching a mapping of a file that is
 * truncated meanwhile would kill the agent. NP_IO. */
static enum np_status check_hash(int fd, size_t n_bytes, const uint8_t sha256[NP_SHA256_BYTES],
                                 int *is_right) {
  uint8_t piece[16384], digest[NP_SHA256_BYTES];
  struct np_sha256 hash;
  ssize_t n;
  np_sha256_begin(&hash);
  for (size_t left = n_bytes; left != 0; left -= (size_t)n) {
    n = read_fully(fd, piece, left < sizeof piece ? left : sizeof piece);
    if (n < 0) {
      return NP_IO;
    }
    if (n == 0) {
      break; /* it was just truncated: the hash will differ */
    }
    np_sha256_add(&hash, piece, (size_t)n);
  }
  np_sha256_end(&hash, digest);
  *is_right = memcmp(digest, sha256, sizeof digest) == 0;
  return NP_OK;
}

/* Maps a whole file if it has the right hash, which is computed unless it was before; an empty file
 * gives a valid address of no bytes. If the hash is wrong, *is_right is 0 and nothing is mapped. */
static enum np_status map_file(int folder_fd, const char *name, const struct np_blob *blob,
                               struct np_bytes *bytes, int *is_right) {
  *bytes = (struct np_bytes){.data = NULL, .length = 0};
  int fd;
  size_t n_bytes;
  NP_TRY(open_regular(folder_fd, name, &fd, &n_bytes));
  enum np_status status = NP_OK;
  *is_right = is_verified(fd);
  if (!*is_right) {
    status = check_hash(fd, n_bytes, blob->sha256, is_right);
  }
  if (status != NP_OK || !*is_right) {
    close_quietly(fd);
    return status;
  }
  note_use(fd);
  void *address = n_bytes == 0 ? (void *)(uintptr_t)nothing
                               : mmap(NULL, n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  close_quietly(fd);
  if (address == MAP_FAILED) {
    return NP_IO;
  }
  *bytes = (struct np_bytes){.data = address, .length = n_bytes};
  return NP_OK;
}

static void unmap(struct np_bytes *bytes) {
  if (bytes->length != 0) {
    (void)munmap((void *)(uintptr_t)bytes->data, bytes->length);
  }
  *bytes = (struct np_bytes){.data = NULL, .length = 0};
}

static enum np_status open_blob(int store_fd, uint32_t index, const struct np_blob *blob,
                                struct np_bytes *bytes, uint8_t *absent, struct np_message *why) {
  char name[2 * NP_SHA256_BYTES + 1];
  np_sha256_hex(blob->sha256, name);
  int is_right = 0;
  const enum np_status status = map_file(store_fd, name, blob, bytes, &is_right);
  if (status == NP_MISSING) {
    *absent = 1;
    return NP_OK;
  }
  NP_REQUIRE(status == NP_OK, status, why, "blob %u: cannot read %s in the store: %s", index, name,
             strerror(errno));
  if (!is_right) {
    NP_REQUIRE(unlinkat(store_fd, name, 0) == 0, NP_IO, why,
               "blob %u: cannot delete %s, whose bytes have another hash: %s", index, name,
               strerror(errno));
    *absent = 1;
    return NP_OK;
  }
  NP_REQUIRE(bytes->length == blob->length, NP_BAD_REQUEST, why,
             "BLOB: blob %u: the request says %llu bytes, those with this hash are %zu", index,
             (unsigned long long)blob->length, bytes->length);
  return NP_OK;
}

enum np_status np_blobs_open(int store_fd, const struct np_request *request, struct np_bytes *blobs,
                             uint8_t *absent, struct np_message *why) {
  memset(absent, 0, request->n_blobs);
  for (uint32_t i = 0; i < request->n_blobs; i++) {
    NP_TRY(open_blob(store_fd, i, &request->blobs[i], &blobs[i], &absent[i], why));
  }
  return NP_OK;
}

void np_blobs_close(struct np_bytes *blobs, uint32_t n_blobs) {
  for (uint32_t i = 0; i < n_blobs; i++) {
    unmap(&blobs[i]);
  }
}

/* ---- Kept tensors ---- */

/* Writes a whole file that only its owner may read. First deletes any file of that name, which may
 * be a pipe, a link to another file, or readable by everyone. Sets errno. */
static int write_file(int folder_fd, const char *name, const uint8_t *bytes, size_t n_bytes) {
  if (unlinkat(folder_fd, name, 0) != 0 && errno != ENOENT) {
    return -1;
  }
  const int fd = openat(folder_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) {
    return -1;
  }
  const int is_whole = np_write_fully(fd, bytes, n_bytes) == 0;
  const int cause = is_whole ? 0 : errno;
  if (close(fd) == 0 && is_whole) {
    return 0;
  }
  const int last = is_whole ? errno : cause;
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
    NP_REQUIRE(write_file(folder_fd, name, bytes[i], n_bytes) == 0, NP_IO, &record->fault.why,
               "cannot write %s, %zu bytes: %s", name, n_bytes, strerror(errno));
    struct np_kept_output *output = &view->kept[record->n_kept];
    output->tensor = t;
    output->n_bytes = n_bytes;
    np_sha256(bytes[i], n_bytes, output->sha256);
    record->n_kept++;
  }
  return NP_OK;
}
