/* The entry point of an executable, and the note that names its Android version.
 *
 * The dynamic linker has already run the pre-initialisers and constructors (DT_PREINIT_ARRAY and
 * DT_INIT_ARRAY); libc runs the executable's destructors, which it gets in the structure that
 * __libc_init takes. The mark of a PIE is removed afterwards, see README.md. */
#include <stddef.h>
#include <stdint.h>

#ifndef NP_ANDROID_API
#error "NP_ANDROID_API is the lowest API level that the executable is for"
#endif

typedef void (*np_function)(void);

/* bionic of API level 27 has these three pointers; later versions append counts, for static
 * executables. */
struct structors {
  const np_function *preinit, *init, *fini;
  size_t reserved[5];
};

int main(int argc, char **argv, char **envp);
_Noreturn void __libc_init(void *raw_arguments, void (*at_exit)(void),
                           int (*program)(int, char **, char **),
                           const struct structors *structors);

/* Set by the linker. */
#define HIDDEN __attribute__((visibility("hidden")))
HIDDEN extern const np_function __preinit_array_start[], __preinit_array_end[];
HIDDEN extern const np_function __init_array_start[], __init_array_end[];
HIDDEN extern const np_function __fini_array_start[], __fini_array_end[];

HIDDEN void *__dso_handle = &__dso_handle;

static void run_destructors(void) {
  for (const np_function *f = __fini_array_end; f != __fini_array_start;) {
    (*--f)();
  }
}

/* bionic requires -1 before the list and 0 after it, and the linker makes .fini_array without
 * them. */
static const np_function destructors[] = {(np_function)UINTPTR_MAX, run_destructors, NULL};

/* The linker runs these two itself; old versions of libc only check the pointers' values. */
HIDDEN _Noreturn void np_start(void *raw_arguments) {
  const struct structors structors = {
      .preinit = __preinit_array_start,
      .init = __init_array_start,
      .fini = destructors,
  };
  __libc_init(raw_arguments, NULL, main, &structors);
}

/* The kernel jumps here with argc, argv, envp and the auxiliary vector on the stack. */
#if defined(__aarch64__)
#define JUMP "mov x29, #0; mov x30, #0; mov x0, sp; b np_start"
#define FUNCTION "%function"
#elif defined(__arm__)
#define JUMP "mov r11, #0; mov lr, #0; mov r0, sp; b np_start"
#define FUNCTION "%function"
#elif defined(__x86_64__)
#define JUMP "xorl %ebp, %ebp; movq %rsp, %rdi; andq $-16, %rsp; call np_start"
#define FUNCTION "@function"
#else
#error "an ABI that nobody has written the start for"
#endif
#if defined(__arm__)
#define STATE ".arm;"
#else
#define STATE ""
#endif
__asm__(".pushsection .text._start,\"ax\"; " STATE " .globl _start; .hidden _start;"
        ".type _start," FUNCTION "; _start: " JUMP "; .size _start, . - _start; .popsection");

/* .note.android.ident, as in the NDK's start files: API level, NDK version, its build. */
static const struct {
  uint32_t name_bytes, content_bytes, type;
  char name[8];
  int32_t api;
  char ndk_version[64], ndk_build[64];
} note __attribute__((section(".note.android.ident"), aligned(4), used, retain)) = {
    .name_bytes = sizeof "Android",
    .content_bytes = 4 + 64 + 64,
    .type = 1,
    .name = "Android",
    .api = NP_ANDROID_API,
};
