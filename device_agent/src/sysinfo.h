/* What the operating system tells about this device: ABI, memory, properties, affinity. */
#ifndef NP_SYSINFO_H
#define NP_SYSINFO_H

#include <stddef.h>
#include <stdint.h>

/* Android's name of the ABI this agent was built for. */
const char *np_abi(void);

/* Main memory in kB (1024 bytes), -1 where it cannot be read. */
int64_t np_memory_kb(void);

/* Memory that could be had now without swapping, in kB, -1 where it cannot be read. */
int64_t np_memory_available_kb(void);

/* What a process that may break may have of it: three quarters; -1: any. */
int64_t np_memory_share_kb(void);

/* The kernel's release, "" where unknown. */
void np_kernel_release(char *text, size_t size);

/* An Android system property by running `getprop NAME`; "" where there is no such program or
 * property. Waits for 5 s at the most. */
void np_property(const char *name, char *text, size_t size);

/* Whether this is Android: its dynamic linker is there. */
int np_is_android(void);

/* Keeps the calling thread to the CPUs of a mask. 0, or errno. */
int np_set_affinity(uint64_t cpu_mask);

/* The CPUs below 64 that it may use, 0 where the system does not tell. */
uint64_t np_affinity(void);

/* The CPUs of the calling thread, put back after a call. */
struct np_affinity {
  int is_changed;
  uint64_t before[16]; /* the kernel's mask of up to 1024 CPUs */
};

/* The same as np_set_affinity, where 0 changes nothing; and gives the thread back the CPUs it had.
 */
int np_affinity_enter(uint64_t cpu_mask, struct np_affinity *affinity);
void np_affinity_leave(const struct np_affinity *affinity);

#endif
