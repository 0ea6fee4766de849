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

/* A cooling device of CPUs, GPUs or NPUs. */
struct np_cooler {
  uint32_t number;
  int64_t least; /* state seen so far, -1: none */
};

/* What does not change is read once, for reading all of it takes long on a phone; and what was seen
 * of what does, against which later readings are judged. */
struct np_sysfs {
  char root[256];
  uint32_t n_cpus;                    /* at least 1 */
  int64_t max_khz[NP_SYSFS_CPUS];     /* highest frequency of each, -1 where it cannot be read */
  int64_t allowed_khz[NP_SYSFS_CPUS]; /* highest scaling_max_freq seen of each, -1: none */
  uint32_t n_zones;
  struct np_thermal_zone zones[NP_SYSFS_ZONES];
  uint32_t n_coolers;
  struct np_cooler coolers[NP_SYSFS_COOLERS];
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

/* What was seen of the CPUs' scaling_max_freq before, khz[n], 0 where nothing was. */
void np_sysfs_expect(struct np_sysfs *sysfs, const uint32_t *khz, uint32_t n);

/* The current frequency of a CPU, and in *most the highest that it may have now; -1 unknown. */
int64_t np_sysfs_khz(const struct np_sysfs *sysfs, uint32_t cpu, int64_t *most);

/* The big ones among the CPUs of a mask (0: any) that are online now: those of the highest
 * capacity, of these those of the highest frequency, and then the next ones as long as they are
 * fewer than `threads`. Capacities count where each of them tells its own; all CPUs (of the first
 * 64) where none tells anything. */
uint64_t np_sysfs_big_cores(const struct np_sysfs *sysfs, uint64_t among, uint32_t threads);

/* Reads clocks of the CPUs of a mask, temperatures, and whether the device is slower than it was
 * seen to be: a CPU's scaling_max_freq is below the highest seen, a cooling device works harder
 * than it was seen to, or a zone is at a trip point. A clock that was never higher is no sign:
 * vendors and battery savers cap it. Zones that are off report nonsense: what is not within (0,
 * 200) degrees is left out; old kernels tell whole degrees, so values below 200 are. */
void np_sysfs_read(struct np_sysfs *sysfs, uint64_t cpu_mask, struct np_readings *readings);

#endif
