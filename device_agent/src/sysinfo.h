/* What the operating system tells about this device: CPUs, memory, temperatures, properties. */
#ifndef NP_SYSINFO_H
#define NP_SYSINFO_H

#include <stddef.h>
#include <stdint.h>

/* Android's name of the ABI this agent was built for. */
const char *np_abi(void);

/* Number of CPUs, from /sys, at least 1. */
uint32_t np_cpu_count(void);

/* Highest frequency of one CPU in kHz, -1 where it cannot be read. */
int64_t np_cpu_max_khz(uint32_t cpu);

/* The highest current frequency among the CPUs of a mask (0: all), in kHz, -1 where none can be
 * read. */
int64_t np_cpu_now_khz(uint64_t cpu_mask);

/* The highest temperature of all thermal zones in millidegrees Celsius, -1 where none can be read.
 * Zones that are off report nonsense: what is not within (0, 200) degrees is left out. */
int64_t np_thermal_mc(void);

/* Main memory in kB (1024 bytes), -1 where it cannot be read. */
int64_t np_memory_kb(void);

/* The kernel's release, "" where unknown. */
void np_kernel_release(char *text, size_t size);

/* An Android system property by running `getprop NAME`; "" where there is no such program or
 * property. Waits for 5 s at the most. */
void np_property(const char *name, char *text, size_t size);

/* Whether this is Android: its dynamic linker is there. */
int np_is_android(void);

/* Restricts this process to the CPUs of a mask. 0, or errno. */
int np_set_affinity(uint64_t cpu_mask);

#endif
