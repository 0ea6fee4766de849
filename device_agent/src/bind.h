/* How libraries are opened. */
#ifndef NP_BIND_H
#define NP_BIND_H

#include <dlfcn.h>

/* The dlopen mode that binds all symbols at once. musl's RTLD_NOW, compiled in if the agent is
 * built without an NDK, is 2; on 32-bit Android RTLD_NOW is 0 and 2 is RTLD_GLOBAL. Android binds
 * at once in every mode, and RTLD_LAZY is 1 everywhere. */
#if defined(__LP64__) || defined(__GLIBC__)
#define NP_BIND_NOW RTLD_NOW
#else
#define NP_BIND_NOW RTLD_LAZY
#endif

#endif
