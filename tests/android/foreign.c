/* Preloaded into all that runs natively on a test phone: the kernel of such a phone tells another
 * machine's name and executes that machine's files; here QEMU has to be put before them.
 *
 * PHONE_MACHINE is what `uname -m` says, QEMU_DIR/qemu-MACHINE runs ELF files of that machine. exec
 * functions call each other inside libc without passing here, so each that a shell may use is
 * replaced. This way nothing is registered with the machine's kernel (binfmt_misc), which a
 * container may not do, either. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifndef QEMU_DIR
#define QEMU_DIR "/rig"
#endif

extern char **environ;

/* The library that a phone's agent is to take for NNAPI: $PHONE_NNAPI, where it opens one. */
static const char *library_for(const char *path, char *const *arguments) {
  const char *const slash = strrchr(path, '/');
  const int is_agent = strcmp(slash == NULL ? path : slash + 1, "agent") == 0;
  const int opens = is_agent && arguments[0] != NULL && arguments[1] != NULL &&
                    (strcmp(arguments[1], "info") == 0 || strcmp(arguments[1], "run") == 0);
  return opens ? getenv("PHONE_NNAPI") : NULL;
}

/* QEMU for a file, NULL where the kernel can execute it, or refuse it, itself. */
static const char *qemu_for(const char *path) {
  Elf64_Ehdr head;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return NULL;
  const ssize_t n = read(file, &head, sizeof head);
  close(file);
  if (n < (ssize_t)sizeof(Elf32_Ehdr) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0)
    return NULL;
  /* e_machine has the same place in 32-bit files. */
  if (head.e_machine == EM_AARCH64)
    return QEMU_DIR "/qemu-aarch64";
  return head.e_machine == EM_ARM ? QEMU_DIR "/qemu-arm" : NULL;
}

int execve(const char *path, char *const *arguments, char *const *environment) {
  int (*libc)(const char *, char *const *, char *const *);
  *(void **)&libc = dlsym(RTLD_NEXT, "execve");
  const char *const qemu = qemu_for(path);
  if (qemu == NULL || access(path, X_OK) != 0)
    return libc(path, arguments, environment);
  size_t n = 0;
  while (arguments[n] != NULL)
    n++;
  char **const longer = malloc((n + 7) * sizeof *longer);
  if (longer == NULL)
    return -1;
  longer[0] = (char *)qemu;
  longer[1] = "-0";
  longer[2] = n == 0 ? (char *)path : arguments[0];
  longer[3] = (char *)path;
  if (n > 0)
    memcpy(longer + 4, arguments + 1, n * sizeof *longer);
  else
    longer[4] = NULL;
  const char *const library = library_for(path, arguments);
  if (library != NULL) {
    longer[n + 3] = "--nnapi-library";
    longer[n + 4] = (char *)library;
    longer[n + 5] = NULL;
  }
  const int result = libc(qemu, longer, environment);
  free(longer);
  return result;
}

int uname(struct utsname *names) {
  const int result = (int)syscall(SYS_uname, names);
  if (result == 0)
    strcpy(names->machine, PHONE_MACHINE);
  return result;
}

int execv(const char *path, char *const *arguments) { return execve(path, arguments, environ); }

int execvp(const char *name, char *const *arguments) {
  int (*libc)(const char *, char *const *);
  if (strchr(name, '/') != NULL)
    return execve(name, arguments, environ);
  *(void **)&libc = dlsym(RTLD_NEXT, "execvp");
  return libc(name, arguments);
}
