/* CPUs, clocks, temperatures and throttling, as /sys tells them. */
#ifndef NP_SYSFS_H
#define NP_SYSFS_H

#include <stdint.h>

#define NP_SYSFS_CPUS 256u
#define NP_SYSFS_ZONES 128u
#define NP_SYSFS_COOLERS 64u

struct np_thermal_zone {
  uint32_t number;
  int64_t passive_mc; /* the lowest temperature from which the system slows down, -1: none */
};

/* What does not change, read once: reading all of it takes long on a phone. */
struct np_sysfs {
  char root[256];
  uint32_t n_cpus;                /* at least 1 */
  int64_t max_khz[NP_SYSFS_CPUS]; /* highest frequency of each, -1 where it cannot be read */
  uint32_t n_zones;
  struct np_thermal_zone zones[NP_SYSFS_ZONES];
  uint32_t n_coolers; /* cooling devices of CPUs, GPUs and NPUs */
  uint32_t coolers[NP_SYSFS_COOLERS];
};

/* What changes. */
struct np_readings {
  int64_t cpu_khz;    /* the highest current frequency among the CPUs, -1 unknown */
  int64_t thermal_mc; /* the hottest zone in millidegrees Celsius, -1 unknown */
  int throttled;      /* 1: the system slows something down; 0: it does not; -1 unknown */
};

/* Reads what /sys tells; root is another folder in its place, NULL for none. A root that does not
 * fit or is not there is a system that tells nothing. */
void np_sysfs_open(const char *root, struct np_sysfs *sysfs);

/* The CPUs of the highest frequency, and of the next ones as long as they are fewer than `threads`;
 * every CPU (of the first 64) where frequencies cannot be read. */
uint64_t np_sysfs_big_cores(const struct np_sysfs *sysfs, uint32_t threads);

/* Reads clocks of the CPUs of a mask, temperatures, and whether either is held down. Zones that are
 * off report nonsense: what is not within (0, 200) degrees is left out. */
void np_sysfs_read(const struct np_sysfs *sysfs, uint64_t cpu_mask, struct np_readings *readings);

#endif
