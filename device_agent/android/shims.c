/* Functions that musl's headers declare and bionic has under another name or with other structures.
 *
 * All are hidden: they serve the executable and intercept no other library's calls. Functions of
 * bionic are declared with bionic's own types and numbers, under names of our own, because musl's
 * headers may use the plain name for something else. Unused ones are not linked. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))
#define BIONIC(name) __asm__(#name)

int *bionic_errno(void) BIONIC(__errno);
HIDDEN int *__errno_location(void);
HIDDEN int *__errno_location(void) { return bionic_errno(); }

_Noreturn void bionic_assert(const char *file, int line, const char *function,
                             const char *expression) BIONIC(__assert2);
HIDDEN _Noreturn void __assert_fail(const char *expression, const char *file, int line,
                                    const char *function);
HIDDEN _Noreturn void __assert_fail(const char *expression, const char *file, int line,
                                    const char *function) {
  bionic_assert(file, line, function, expression);
}

int bionic_at_exit(void (*function)(void *), void *argument, void *object) BIONIC(__cxa_atexit);
static void call(void *function) { ((void (*)(void))function)(); }
HIDDEN int atexit(void (*function)(void));
int atexit(void (*function)(void)) { return bionic_at_exit(call, (void *)function, NULL); }

/* sysconf for libraries compiled here, which use musl's numbers and are compiled with
 * -Dsysconf=np_android_sysconf. */
int bionic_get_nprocs(void) BIONIC(get_nprocs);
int bionic_get_nprocs_conf(void) BIONIC(get_nprocs_conf);
HIDDEN long np_android_sysconf(int name);
long np_android_sysconf(int name) {
  switch (name) {
  case _SC_PAGESIZE:
    return getpagesize();
  case _SC_NPROCESSORS_ONLN:
    return bionic_get_nprocs();
  case _SC_NPROCESSORS_CONF:
    return bionic_get_nprocs_conf();
  default:
    errno = EINVAL;
    return -1;
  }
}

#if defined(__arm__)
/* On 32-bit ARM musl has 64-bit times, offsets and limits, and bionic 32-bit ones. */
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <time.h>

struct bionic_time {
  int32_t seconds;
  int32_t rest; /* nanoseconds or microseconds */
};

_Static_assert(sizeof(time_t) == 8 && sizeof(off_t) == 8, "musl's");
_Static_assert(sizeof(long) == 4 && sizeof(struct bionic_time) == 8, "bionic's");

/* Converts a time for bionic; NULL stays NULL. Times that bionic cannot represent are clamped. */
static const struct bionic_time *shortened(const struct timespec *from, struct bionic_time *to) {
  if (from == NULL) {
    return NULL;
  }
  const time_t seconds = from->tv_sec;
  to->seconds = seconds > INT32_MAX   ? INT32_MAX
                : seconds < INT32_MIN ? INT32_MIN
                                      : (int32_t)seconds;
  to->rest = (int32_t)from->tv_nsec;
  return to;
}

static void lengthened(const struct bionic_time *from, struct timespec *to) {
  *to = (struct timespec){.tv_sec = from->seconds, .tv_nsec = from->rest};
}

int bionic_clock_gettime(clockid_t clock, struct bionic_time *now) BIONIC(clock_gettime);
HIDDEN int __clock_gettime64(clockid_t clock, struct timespec *now);
int __clock_gettime64(clockid_t clock, struct timespec *now) {
  struct bionic_time own;
  const int failed = bionic_clock_gettime(clock, &own);
  if (!failed) {
    lengthened(&own, now);
  }
  return failed;
}

HIDDEN time_t __time64(time_t *now);
time_t __time64(time_t *now) {
  struct timespec own = {0};
  (void)__clock_gettime64(CLOCK_REALTIME, &own);
  if (now != NULL) {
    *now = own.tv_sec;
  }
  return own.tv_sec;
}

HIDDEN int __gettimeofday_time64(struct timeval *now, void *zone);
int __gettimeofday_time64(struct timeval *now, void *zone) {
  struct timespec own = {0};
  (void)zone;
  const int failed = __clock_gettime64(CLOCK_REALTIME, &own);
  *now = (struct timeval){.tv_sec = own.tv_sec, .tv_usec = own.tv_nsec / 1000};
  return failed;
}

int bionic_nanosleep(const struct bionic_time *time, struct bionic_time *left) BIONIC(nanosleep);
HIDDEN int __nanosleep_time64(const struct timespec *time, struct timespec *left);
int __nanosleep_time64(const struct timespec *time, struct timespec *left) {
  struct bionic_time own, own_left = {0};
  const int failed = bionic_nanosleep(shortened(time, &own), &own_left);
  if (failed && left != NULL) {
    lengthened(&own_left, left);
  }
  return failed;
}

int bionic_ppoll(struct pollfd *files, unsigned n, const struct bionic_time *time,
                 const sigset_t *signals) BIONIC(ppoll);
HIDDEN int __ppoll_time64(struct pollfd *files, nfds_t n, const struct timespec *time,
                          const sigset_t *signals);
int __ppoll_time64(struct pollfd *files, nfds_t n, const struct timespec *time,
                   const sigset_t *signals) {
  struct bionic_time own;
  return bionic_ppoll(files, n, shortened(time, &own), signals);
}

int bionic_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                          const struct bionic_time *until) BIONIC(pthread_cond_timedwait);
HIDDEN int __pthread_cond_timedwait_time64(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                           const struct timespec *until);
int __pthread_cond_timedwait_time64(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                    const struct timespec *until) {
  struct bionic_time own;
  return bionic_cond_timedwait(condition, mutex, shortened(until, &own));
}

/* The kernel's structure. It starts like musl's rusage, except for the width of its two times. */
struct bionic_usage {
  struct bionic_time user, system;
  long counts[14];
};

static void use(const struct bionic_usage *from, struct rusage *to) {
  to->ru_utime = (struct timeval){.tv_sec = from->user.seconds, .tv_usec = from->user.rest};
  to->ru_stime = (struct timeval){.tv_sec = from->system.seconds, .tv_usec = from->system.rest};
  long *counts = &to->ru_maxrss;
  for (int i = 0; i < 14; i++) {
    counts[i] = from->counts[i];
  }
}
_Static_assert(offsetof(struct rusage, ru_nivcsw) ==
                   offsetof(struct rusage, ru_maxrss) + 13 * sizeof(long),
               "fourteen counts in a row");

int bionic_getrusage(int who, struct bionic_usage *usage) BIONIC(getrusage);
HIDDEN int __getrusage_time64(int who, struct rusage *usage);
int __getrusage_time64(int who, struct rusage *usage) {
  struct bionic_usage own;
  const int failed = bionic_getrusage(who, &own);
  if (!failed) {
    use(&own, usage);
  }
  return failed;
}

pid_t bionic_wait4(pid_t pid, int *status, int options, struct bionic_usage *usage) BIONIC(wait4);
HIDDEN pid_t __wait4_time64(pid_t pid, int *status, int options, struct rusage *usage);
pid_t __wait4_time64(pid_t pid, int *status, int options, struct rusage *usage) {
  struct bionic_usage own = {0};
  const pid_t ended = bionic_wait4(pid, status, options, &own);
  if (ended > 0 && usage != NULL) {
    use(&own, usage);
  }
  return ended;
}

/* musl's struct stat begins with the kernel's, which is bionic's, followed by 64-bit times. */
#define BIONIC_STAT_BYTES 104
_Static_assert(offsetof(struct stat, st_ino) + sizeof(ino_t) == BIONIC_STAT_BYTES,
               "bionic's structure is a prefix of musl's");

static int with_times(int failed, struct stat *file) {
  if (!failed) {
    file->st_atim =
        (struct timespec){.tv_sec = file->__st_atim32.tv_sec, .tv_nsec = file->__st_atim32.tv_nsec};
    file->st_mtim =
        (struct timespec){.tv_sec = file->__st_mtim32.tv_sec, .tv_nsec = file->__st_mtim32.tv_nsec};
    file->st_ctim =
        (struct timespec){.tv_sec = file->__st_ctim32.tv_sec, .tv_nsec = file->__st_ctim32.tv_nsec};
  }
  return failed;
}

int bionic_stat(const char *path, struct stat *file) BIONIC(stat);
int bionic_lstat(const char *path, struct stat *file) BIONIC(lstat);
int bionic_fstat(int fd, struct stat *file) BIONIC(fstat);
int bionic_fstatat(int fd, const char *path, struct stat *file, int flags) BIONIC(fstatat);
HIDDEN int __stat_time64(const char *path, struct stat *file);
int __stat_time64(const char *path, struct stat *file) {
  return with_times(bionic_stat(path, file), file);
}
HIDDEN int __lstat_time64(const char *path, struct stat *file);
int __lstat_time64(const char *path, struct stat *file) {
  return with_times(bionic_lstat(path, file), file);
}
HIDDEN int __fstat_time64(int fd, struct stat *file);
int __fstat_time64(int fd, struct stat *file) { return with_times(bionic_fstat(fd, file), file); }
HIDDEN int __fstatat_time64(int fd, const char *path, struct stat *file, int flags);
int __fstatat_time64(int fd, const char *path, struct stat *file, int flags) {
  return with_times(bionic_fstatat(fd, path, file, flags), file);
}

int bionic_utimensat(int fd, const char *path, const struct bionic_time times[2], int flags)
    BIONIC(utimensat);
HIDDEN int __utimensat_time64(int fd, const char *path, const struct timespec times[2], int flags);
int __utimensat_time64(int fd, const char *path, const struct timespec times[2], int flags) {
  struct bionic_time own[2];
  if (times != NULL) {
    (void)shortened(&times[0], &own[0]);
    (void)shortened(&times[1], &own[1]);
  }
  return bionic_utimensat(fd, path, times == NULL ? NULL : own, flags);
}
HIDDEN int __futimens_time64(int fd, const struct timespec times[2]);
int __futimens_time64(int fd, const struct timespec times[2]) {
  return __utimensat_time64(fd, NULL, times, 0);
}

struct bionic_filesystem {
  uint32_t block, fragment, blocks, free_blocks, available_blocks, files, free_files,
      available_files, id, flags, longest_name;
};

static int told(int failed, const struct bionic_filesystem *from, struct statvfs *to) {
  if (!failed) {
    *to = (struct statvfs){
        .f_bsize = from->block,
        .f_frsize = from->fragment,
        .f_blocks = from->blocks,
        .f_bfree = from->free_blocks,
        .f_bavail = from->available_blocks,
        .f_files = from->files,
        .f_ffree = from->free_files,
        .f_favail = from->available_files,
        .f_fsid = from->id,
        .f_flag = from->flags,
        .f_namemax = from->longest_name,
    };
  }
  return failed;
}

int bionic_statvfs(const char *path, struct bionic_filesystem *found) BIONIC(statvfs64);
int bionic_fstatvfs(int fd, struct bionic_filesystem *found) BIONIC(fstatvfs64);
HIDDEN int statvfs(const char *restrict path, struct statvfs *restrict found);
int statvfs(const char *restrict path, struct statvfs *restrict found) {
  struct bionic_filesystem own;
  return told(bionic_statvfs(path, &own), &own, found);
}
HIDDEN int fstatvfs(int fd, struct statvfs *found);
int fstatvfs(int fd, struct statvfs *found) {
  struct bionic_filesystem own;
  return told(bionic_fstatvfs(fd, &own), &own, found);
}

void *bionic_mmap(void *at, size_t bytes, int access, int flags, int fd, int64_t offset)
    BIONIC(mmap64);
HIDDEN void *mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset);
void *mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset) {
  return bionic_mmap(at, bytes, access, flags, fd, offset);
}

int64_t bionic_lseek(int fd, int64_t offset, int from) BIONIC(lseek64);
HIDDEN off_t lseek(int fd, off_t offset, int from);
off_t lseek(int fd, off_t offset, int from) { return bionic_lseek(fd, offset, from); }

ssize_t bionic_pread(int fd, void *to, size_t bytes, int64_t offset) BIONIC(pread64);
HIDDEN ssize_t pread(int fd, void *to, size_t bytes, off_t offset);
ssize_t pread(int fd, void *to, size_t bytes, off_t offset) {
  return bionic_pread(fd, to, bytes, offset);
}

ssize_t bionic_pwrite(int fd, const void *from, size_t bytes, int64_t offset) BIONIC(pwrite64);
HIDDEN ssize_t pwrite(int fd, const void *from, size_t bytes, off_t offset);
ssize_t pwrite(int fd, const void *from, size_t bytes, off_t offset) {
  return bionic_pwrite(fd, from, bytes, offset);
}

int bionic_ftruncate(int fd, int64_t bytes) BIONIC(ftruncate64);
HIDDEN int ftruncate(int fd, off_t bytes);
int ftruncate(int fd, off_t bytes) { return bionic_ftruncate(fd, bytes); }

struct bionic_limit {
  uint64_t soft, hard;
};
_Static_assert(sizeof(struct rlimit) == sizeof(struct bionic_limit), "64 bits in both");
int bionic_getrlimit(int which, struct rlimit *limit) BIONIC(getrlimit64);
int bionic_setrlimit(int which, const struct rlimit *limit) BIONIC(setrlimit64);
HIDDEN int getrlimit(int which, struct rlimit *limit);
int getrlimit(int which, struct rlimit *limit) { return bionic_getrlimit(which, limit); }
HIDDEN int setrlimit(int which, const struct rlimit *limit);
int setrlimit(int which, const struct rlimit *limit) { return bionic_setrlimit(which, limit); }

void *bionic_dlsym(void *restrict handle, const char *restrict name) BIONIC(dlsym);
HIDDEN void *__dlsym_time64(void *restrict handle, const char *restrict name);
void *__dlsym_time64(void *restrict handle, const char *restrict name) {
  return bionic_dlsym(handle, name);
}
#endif
