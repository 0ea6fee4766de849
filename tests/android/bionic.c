/* Android's libc.so for the phones of these tests: musl with what bionic does otherwise.
 *
 * It stands before musl (whose own name is made libC.so, see phone.py), so an executable made
 * for Android meets bionic's names, numbers, layouts and sizes here: what it got wrong fails as it
 * would on a phone. Compiled against musl's headers; everything that is not here comes from musl.
 * The facts are those of API 27: bionic's headers, and what was measured with its libc. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REPLACES(name) __asm__(name)

static _Noreturn void refuse(const char *why) {
  fprintf(stderr, "bionic stand-in: %s\n", why);
  abort();
}

static void *musl(const char *name) {
  void *const found = dlsym(RTLD_NEXT, name);
  if (found == NULL)
    refuse(name);
  return found;
}

/* ---- start and end ---- */

typedef void (*function)(void);
struct structors {
  const function *preinit, *init, *fini;
};

int __libc_start_main(int (*)(int, char **, char **), int, char **, function, function, function);

/* bionic runs a list of destructors only if it begins with -1, up to a 0. musl's linker runs those
 * of the dynamic section itself, so here the list is looked at and not run. */
static void check_destructors(const function *list) {
  if (list == NULL)
    return;
  if ((uintptr_t)list[0] != UINTPTR_MAX)
    refuse("__libc_init: the list of destructors does not begin with -1 and would not be run");
  for (size_t i = 1; list[i] != NULL; i++) {
    if (i == 1000)
      refuse("__libc_init: the list of destructors does not end");
  }
}

/* API 27's dynamic linker says so of each executable with a mark that it does not know. */
static int warn_of_marks(struct dl_phdr_info *executable, size_t bytes, void *none) {
  const ElfW(Xword) known = DF_1_NOW | DF_1_GLOBAL | DF_1_NODELETE;
  (void)bytes, (void)none;
  for (size_t i = 0; i < executable->dlpi_phnum; i++) {
    if (executable->dlpi_phdr[i].p_type != PT_DYNAMIC)
      continue;
    const ElfW(Dyn) *entry =
        (const void *)(executable->dlpi_addr + executable->dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; entry++) {
      if (entry->d_tag == DT_FLAGS_1 && (entry->d_un.d_val & ~known) != 0)
        fprintf(stderr, "WARNING: linker: %s: unsupported flags DT_FLAGS_1=%#llx\n",
                program_invocation_name, (unsigned long long)entry->d_un.d_val);
    }
  }
  return 1; /* libraries come behind the executable */
}

_Noreturn void __libc_init(void *raw, function at_exit, int (*program)(int, char **, char **),
                           const struct structors *structors) {
  if (raw == NULL || (uintptr_t)raw % sizeof(void *) != 0 || program == NULL || structors == NULL)
    refuse("__libc_init: arguments that it cannot have");
  if (at_exit != NULL)
    refuse("__libc_init: a function to call at exit, which no start file has");
  check_destructors(structors->fini);
  (void)dl_iterate_phdr(warn_of_marks, NULL);
  const intptr_t *const arguments = raw;
  (void)__libc_start_main(program, (int)arguments[0], (char **)(arguments + 1), NULL, NULL, NULL);
  abort();
}

/* ---- what has another name in musl ---- */

int *__errno(void) { return &errno; }

_Noreturn void __assert2(const char *file, int line, const char *where, const char *expression) {
  fprintf(stderr, "%s:%d: %s: assertion \"%s\" failed\n", file, line, where, expression);
  abort();
}

/* ---- sysconf: the same names, numbered in another order ---- */

static const struct {
  int bionic, musl;
} names[] = {
    {0x00, _SC_ARG_MAX},          {0x05, _SC_CHILD_MAX},  {0x06, _SC_CLK_TCK},
    {0x0a, _SC_NGROUPS_MAX},      {0x0b, _SC_OPEN_MAX},   {0x26, _SC_IOV_MAX},
    {0x27, _SC_PAGESIZE},         {0x28, _SC_PAGESIZE},   {0x60, _SC_NPROCESSORS_CONF},
    {0x61, _SC_NPROCESSORS_ONLN}, {0x62, _SC_PHYS_PAGES}, {0x63, _SC_AVPHYS_PAGES},
    {0x64, _SC_MONOTONIC_CLOCK},
};

long bionic_sysconf(int name) REPLACES("sysconf");
long bionic_sysconf(int name) {
  long (*const ask)(int) = (long (*)(int))musl("sysconf");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (names[i].bionic == name)
      return ask(names[i].musl);
  }
  errno = EINVAL;
  return -1;
}

/* ---- locales: twelve categories; LC_ALL is not one of them, and there are no others ---- */

locale_t bionic_new_locale(int categories, const char *name, locale_t base) REPLACES("newlocale");
locale_t bionic_new_locale(int categories, const char *name, locale_t base) {
  typedef locale_t make(int, const char *, locale_t);
  if ((categories & ~0x1fbf) != 0) {
    errno = EINVAL;
    return (locale_t)0;
  }
  return ((make *)musl("newlocale"))(categories, name, base);
}

/* ---- signals: members in another order, and a mask of one word ---- */

#if defined(__LP64__)
struct bionic_action {
  int flags;
  void (*handler)(int);
  unsigned long mask;
  function restorer;
};
#else
struct bionic_action {
  void (*handler)(int);
  unsigned long mask;
  int flags;
  function restorer;
};
#endif

int bionic_sigaction(int number, const struct bionic_action *now, struct bionic_action *before)
    REPLACES("sigaction");
int bionic_sigaction(int number, const struct bionic_action *now, struct bionic_action *before) {
  typedef int set(int, const struct sigaction *, struct sigaction *);
  struct sigaction wanted, was;
  memset(&wanted, 0, sizeof wanted);
  if (now != NULL) {
    wanted.sa_handler = now->handler;
    wanted.sa_flags = now->flags;
    memcpy(&wanted.sa_mask, &now->mask, sizeof now->mask);
  }
  const int result = ((set *)musl("sigaction"))(number, now == NULL ? NULL : &wanted, &was);
  if (result == 0 && before != NULL) {
    memset(before, 0, sizeof *before);
    before->handler = was.sa_handler;
    before->flags = was.sa_flags;
    memcpy(&before->mask, &was.sa_mask, sizeof before->mask);
  }
  return result;
}

/* ---- attributes: a long each, where musl has an int ---- */

int bionic_attributes(long *attributes) REPLACES("pthread_mutexattr_init");
int bionic_attributes(long *attributes) {
  *attributes = 0;
  return 0;
}

int bionic_condition_attributes(long *attributes) REPLACES("pthread_condattr_init");
int bionic_condition_attributes(long *attributes) {
  *attributes = 0;
  return 0;
}

/* ---- 32 bits: counts of blocks and files have 32 ---- */

#if !defined(__LP64__)
#include <sys/statvfs.h>

struct bionic_filesystem {
  unsigned long block, fragment, blocks, free_blocks, available_blocks, files, free_files,
      available_files, id, flags, longest_name;
};

static int told(int result, const struct statvfs *from, struct bionic_filesystem *to) {
  if (result == 0) {
    *to = (struct bionic_filesystem){
        .block = from->f_bsize,
        .fragment = from->f_frsize,
        .blocks = (unsigned long)from->f_blocks,
        .free_blocks = (unsigned long)from->f_bfree,
        .available_blocks = (unsigned long)from->f_bavail,
        .files = (unsigned long)from->f_files,
        .free_files = (unsigned long)from->f_ffree,
        .available_files = (unsigned long)from->f_favail,
        .id = from->f_fsid,
        .flags = from->f_flag,
        .longest_name = from->f_namemax,
    };
  }
  return result;
}

int bionic_statvfs(const char *path, struct bionic_filesystem *found) REPLACES("statvfs64");
int bionic_statvfs(const char *path, struct bionic_filesystem *found) {
  struct statvfs own;
  return told(statvfs(path, &own), &own, found);
}

int bionic_fstatvfs(int file, struct bionic_filesystem *found) REPLACES("fstatvfs64");
int bionic_fstatvfs(int file, struct bionic_filesystem *found) {
  struct statvfs own;
  return told(fstatvfs(file, &own), &own, found);
}
#endif
