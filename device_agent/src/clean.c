#define _GNU_SOURCE /* fdopendir, struct stat's st_mtim */

#include "clean.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "blobs.h"
#include "sha256.h"

#define BLOB_NAME (2 * NP_SHA256_BYTES)
#define HOST_NAME 12 /* digits that a host names its work folder by */
#define MAX_DEPTH 4  /* levels of folders within such a folder */

struct blob {
  char name[BLOB_NAME + 1];
  uint64_t n_bytes;
  struct timespec used;
};

struct blobs {
  struct blob *list;
  size_t n;
  size_t room;
};

/* Whether a name is n hex digits. */
static int is_hex(const char *name, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (!isdigit((unsigned char)name[i]) && (name[i] < 'a' || name[i] > 'f')) {
      return 0;
    }
  }
  return name[n] == 0;
}

/* Whether a name is that of a kept output: "7-12.bin". */
static int is_output(const char *name) {
  size_t at = 0;
  for (int part = 0; part < 2; part++) {
    const size_t begin = at;
    while (isdigit((unsigned char)name[at])) {
      at++;
    }
    if (at == begin) {
      return 0;
    }
    if (part == 0 && name[at++] != '-') {
      return 0;
    }
  }
  return strcmp(name + at, ".bin") == 0;
}

/* Opens a folder's listing through a separate descriptor. NULL with errno. */
static DIR *list_folder(int fd) {
  const int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *folder = own < 0 ? NULL : fdopendir(own);
  if (own >= 0 && !folder) {
    (void)close(own);
  }
  return folder;
}

static enum np_status failed(struct np_message *why, const char *what) {
  return np_error(NP_IO, why, "cannot read the %s: %s", what, strerror(errno));
}

/* Returns how far a time is from now, in s; a time in the future means that the clock was set
 * back. */
static int64_t age_of(time_t then) {
  const int64_t age_s = (int64_t)time(NULL) - (int64_t)then;
  return age_s < 0 ? -age_s : age_s;
}

static enum np_status add_blob(struct blobs *blobs, const char *name, const struct stat *facts) {
  if (blobs->n == blobs->room) {
    const size_t room = 2 * blobs->room + 64;
    struct blob *list = realloc(blobs->list, room * sizeof *list);
    if (!list) {
      return NP_NO_MEMORY;
    }
    blobs->list = list;
    blobs->room = room;
  }
  struct blob *blob = &blobs->list[blobs->n++];
  memcpy(blob->name, name, sizeof blob->name);
  blob->n_bytes = (uint64_t)facts->st_size;
  blob->used = facts->st_mtim;
  return NP_OK;
}

static enum np_status list_blobs(int store_fd, struct blobs *blobs, struct np_message *why) {
  DIR *folder = list_folder(store_fd);
  if (!folder) {
    return failed(why, "store");
  }
  enum np_status status = NP_OK;
  for (const struct dirent *entry = readdir(folder); entry && status == NP_OK;
       entry = readdir(folder)) {
    struct stat facts;
    if (strlen(entry->d_name) == BLOB_NAME && is_hex(entry->d_name, BLOB_NAME) &&
        fstatat(store_fd, entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(facts.st_mode)) {
      status = add_blob(blobs, entry->d_name, &facts);
    }
  }
  (void)closedir(folder);
  if (status != NP_OK) {
    np_message_set(why, "no memory for the list of blobs");
  }
  return status;
}

/* Compares by last use, the latest first. */
static int compare_use(const void *a, const void *b) {
  const struct blob *x = a, *y = b;
  if (x->used.tv_sec != y->used.tv_sec) {
    return x->used.tv_sec < y->used.tv_sec ? 1 : -1;
  }
  if (x->used.tv_nsec != y->used.tv_nsec) {
    return x->used.tv_nsec < y->used.tv_nsec ? 1 : -1;
  }
  return strcmp(x->name, y->name);
}

/* Deletes a file; does not count one that another process has just deleted. */
static int delete_file(int folder_fd, const char *name, uint64_t n_bytes,
                       struct np_cleaned *cleaned) {
  if (unlinkat(folder_fd, name, 0) != 0) {
    return errno == ENOENT;
  }
  cleaned->files++;
  cleaned->bytes += n_bytes;
  return 1;
}

enum np_status np_clean_store(int store_fd, int64_t age_s, int64_t max_bytes,
                              struct np_cleaned *cleaned, struct np_message *why) {
  struct blobs blobs = {NULL, 0, 0};
  enum np_status status = list_blobs(store_fd, &blobs, why);
  if (blobs.n != 0) {
    qsort(blobs.list, blobs.n, sizeof *blobs.list, compare_use);
  }
  uint64_t kept = 0;
  int full = 0; /* set at the first one that does not fit, however small the older ones are */
  for (size_t i = 0; i < blobs.n && status == NP_OK; i++) {
    const struct blob *blob = &blobs.list[i];
    const int old = age_s >= 0 && age_of(blob->used.tv_sec) >= age_s;
    full |= max_bytes >= 0 && blob->n_bytes > (uint64_t)max_bytes - kept;
    if (!old && !full) {
      kept += blob->n_bytes;
    } else if (!delete_file(store_fd, blob->name, blob->n_bytes, cleaned)) {
      status =
          np_error(NP_IO, why, "cannot delete %s in the store: %s", blob->name, strerror(errno));
    }
  }
  cleaned->kept_bytes += kept;
  free(blobs.list);
  return status;
}

/* Returns the last change of a folder or of anything in it, down to MAX_DEPTH. */
static time_t last_change(int folder_fd, unsigned depth) {
  struct stat facts;
  time_t last = fstat(folder_fd, &facts) == 0 ? facts.st_mtime : time(NULL);
  DIR *folder = depth == 0 ? NULL : list_folder(folder_fd);
  if (!folder) {
    return last;
  }
  for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
    if (entry->d_name[0] == '.' ||
        fstatat(folder_fd, entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    if (facts.st_mtime > last) {
      last = facts.st_mtime;
    }
    if (!S_ISDIR(facts.st_mode)) {
      continue;
    }
    const int fd =
        openat(folder_fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const time_t inner = fd < 0 ? 0 : last_change(fd, depth - 1);
    if (fd >= 0) {
      (void)close(fd);
    }
    if (inner > last) {
      last = inner;
    }
  }
  (void)closedir(folder);
  return last;
}

/* Deletes everything in a folder that can be deleted. Does not follow links. */
static void empty_folder(int folder_fd, unsigned depth, struct np_cleaned *cleaned) {
  DIR *folder = list_folder(folder_fd);
  if (!folder) {
    return;
  }
  for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
    const char *name = entry->d_name;
    struct stat facts;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
        fstatat(folder_fd, name, &facts, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    if (!S_ISDIR(facts.st_mode)) {
      (void)delete_file(folder_fd, name, (uint64_t)facts.st_size, cleaned);
      continue;
    }
    const int fd =
        depth == 0 ? -1 : openat(folder_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
      continue;
    }
    empty_folder(fd, depth - 1, cleaned);
    (void)close(fd);
    (void)unlinkat(folder_fd, name, AT_REMOVEDIR);
  }
  (void)closedir(folder);
}

static void clean_host_folder(int work_fd, const char *name, int64_t age_s,
                              struct np_cleaned *cleaned) {
  const int fd = openat(work_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) {
    return;
  }
  const int old = age_of(last_change(fd, MAX_DEPTH)) >= age_s;
  if (old) {
    empty_folder(fd, MAX_DEPTH, cleaned);
  }
  (void)close(fd);
  if (old) {
    (void)unlinkat(work_fd, name, AT_REMOVEDIR);
  }
}

enum np_status np_clean_work(int work_fd, int64_t age_s, struct np_cleaned *cleaned,
                             struct np_message *why) {
  DIR *folder = list_folder(work_fd);
  if (!folder) {
    return failed(why, "work folder");
  }
  for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
    const char *name = entry->d_name;
    struct stat facts;
    if (fstatat(work_fd, name, &facts, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    if (S_ISREG(facts.st_mode) && is_output(name) && age_of(facts.st_mtime) >= age_s) {
      (void)delete_file(work_fd, name, (uint64_t)facts.st_size, cleaned);
    } else if (S_ISDIR(facts.st_mode) && strlen(name) == HOST_NAME && is_hex(name, HOST_NAME)) {
      clean_host_folder(work_fd, name, age_s, cleaned);
    }
  }
  (void)closedir(folder);
  return NP_OK;
}

enum np_status np_clean_command(const char *store, const char *work, int64_t days,
                                int64_t max_bytes, struct np_answers *answers,
                                struct np_message *why) {
  const int64_t all = days < 0 && max_bytes < 0 ? 0 : -1;
  struct np_cleaned cleaned = {0, 0, 0};
  int store_fd = -1, work_fd = -1;
  enum np_status status = np_open_folder("--store", store, &store_fd, why);
  NP_THEN(status, np_open_folder("--work", work, &work_fd, why));
  NP_THEN(status,
          np_clean_store(store_fd, days < 0 ? all : days * NP_DAY_S, max_bytes, &cleaned, why));
  NP_THEN(status, np_clean_work(work_fd, (days < 0 ? 1 : days) * NP_DAY_S, &cleaned, why));
  (void)close(store_fd); /* -1: none */
  (void)close(work_fd);  /* -1: none */
  NP_TRY(status);
  np_message_set(why, "cannot write the answer");
  return np_answer_cleaned(answers, cleaned.files, cleaned.bytes, cleaned.kept_bytes);
}
