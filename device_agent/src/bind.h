/* How libraries are opened. */
#ifndef NP_BIND_H
#define NP_BIND_H

#include <dlfcn.h>

/* Binds everything at once. On 32-bit Android RTLD_NOW is 0, and 2, musl's number for it, which is
 * compiled in where the agent is built without an NDK, is RTLD_GLOBAL there. Android binds at once
 * whatever it is told; RTLD_LAZY is 1 everywhere. */
#if defined(__LP64__) || defined(__GLIBC__)
#define NP_BIND_NOW RTLD_NOW
#else
#define NP_BIND_NOW RTLD_LAZY
#endif

#endif
