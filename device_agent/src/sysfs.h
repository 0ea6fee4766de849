/* Reads CPUs, clocks, temperatures and throttling from /sys. */
#ifndef NP_SYSFS_H
#define NP_SYSFS_H

#include <stdint.h>

#define NP_SYSFS_CPUS 256u
#define NP_SYSFS_ZONES 128u
#define NP_SYSFS_COOLERS 64u

struct np_thermal_zone {
  uint32_t number;
  int64_t passive_mc; /* lowest trip point at which the system slows down, -1: none */
};

/* A cooling device of CPUs, GPUs or NPUs. */
struct np_cooler {
  uint32_t number;
  int64_t least; /* lowest state seen so far, -1: none */
};

/* Constant values, read once because reading them all is slow on a phone, and the extremes of
 * changing ones, against which later readings are judged. */
struct np_sysfs {
  char root[256];
  uint32_t n_cpus;                    /* at least 1 */
  int64_t max_khz[NP_SYSFS_CPUS];     /* highest frequency of each, -1 if it cannot be read */
  int64_t allowed_khz[NP_SYSFS_CPUS]; /* highest scaling_max_freq seen for each, -1: none */
  uint32_t n_zones;
  struct np_thermal_zone zones[NP_SYSFS_ZONES];
  uint32_t n_coolers;
  struct np_cooler coolers[NP_SYSFS_COOLERS];
};

/* Changing values. */
struct np_readings {
  int64_t cpu_khz;    /* the highest current frequency among the CPUs, -1: unknown */
  int64_t thermal_mc; /* the hottest zone in millidegrees Celsius, -1: unknown */
  int throttled;      /* 1: the system slows something down; 0: it does not; -1: unknown */
};

/* Reads the constant values of /sys, or of the folder `root` if it is not NULL. A root that is
 * missing or too long counts as a system that reports nothing. */
void np_sysfs_open(const char *root, struct np_sysfs *sysfs);

/* Adds the highest scaling_max_freq seen earlier for each CPU, khz[n], 0: none. */
void np_sysfs_expect(struct np_sysfs *sysfs, const uint32_t *khz, uint32_t n);

/* Returns the current frequency of a CPU in kHz, and in *most the highest allowed now; -1:
 * unknown. */
int64_t np_sysfs_khz(const struct np_sysfs *sysfs, uint32_t cpu, int64_t *most);

/* Returns the big CPUs among those of a mask (0: any) that are online now: those with the highest
 * capacity and, among these, the highest frequency, then the next ones while there are fewer than
 * `threads`. Capacities count only if every CPU reports one. If nothing is known, returns all CPUs
 * (of the first 64). */
uint64_t np_sysfs_big_cores(const struct np_sysfs *sysfs, uint64_t among, uint32_t threads);

/* Reads the clocks of the CPUs of a mask, temperatures, and whether the device is throttled: a
 * CPU's scaling_max_freq is below the highest seen, a cooling device is in a higher state than its
 * lowest seen, or a zone is at a trip point. A clock that was never higher proves nothing, since
 * vendors and battery savers cap it. Zones that are off report nonsense, so values outside (0, 200)
 * degrees are ignored; old kernels report whole degrees, so values below 200 are taken as such. */
void np_sysfs_read(struct np_sysfs *sysfs, uint64_t cpu_mask, struct np_readings *readings);

#endif
