/* Facts about this device from the operating system: ABI, memory, properties, affinity. */
#ifndef NP_SYSINFO_H
#define NP_SYSINFO_H

#include <stddef.h>
#include <stdint.h>

/* Returns Android's name of the ABI that this agent was built for. */
const char *np_abi(void);

/* Returns main memory in kB (1024 bytes), -1 if it cannot be read. */
int64_t np_memory_kb(void);

/* Returns the memory available now without swapping, in kB, -1 if it cannot be read. */
int64_t np_memory_available_kb(void);

/* Returns the memory limit of an action's process in kB: three quarters of the available memory;
 * -1: none. */
int64_t np_memory_share_kb(void);

/* Reads the kernel's release, "" if unknown. */
void np_kernel_release(char *text, size_t size);

/* Reads an Android system property by running `getprop NAME`; "" if there is no such program or
 * property. Waits 5 s at most. */
void np_property(const char *name, char *text, size_t size);

/* Returns whether this is Android, that is whether its dynamic linker exists. */
int np_is_android(void);

/* Restricts the calling thread to the CPUs of a mask. Returns 0, or errno. */
int np_set_affinity(uint64_t cpu_mask);

/* Returns the CPUs below 64 that the calling thread may use, 0 if unknown. */
uint64_t np_affinity(void);

/* The CPUs of the calling thread, restored after a call. */
struct np_affinity {
  int is_changed;
  uint64_t before[16]; /* the kernel's mask of up to 1024 CPUs */
};

/* Do what np_set_affinity does, except that mask 0 changes nothing; give the thread back its
 * CPUs. */
int np_affinity_enter(uint64_t cpu_mask, struct np_affinity *affinity);
void np_affinity_leave(const struct np_affinity *affinity);

#endif
