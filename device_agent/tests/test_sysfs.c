/* Trees that look like a phone's /sys. */
#define _XOPEN_SOURCE 700 /* mkdtemp, nftw */

#include <ftw.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "np_test.h"
#include "sysfs.h"
#include "sysinfo.h"

/* Writes a file of the tree, and its parent folders. */
__attribute__((format(printf, 3, 4))) static void put(const char *root, const char *text,
                                                      const char *format, ...) {
  char path[512];
  int used = snprintf(path, sizeof path, "%s/", root);
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(path + used, sizeof path - (size_t)used, format, arguments);
  va_end(arguments);
  for (char *slash = strchr(path + used, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    (void)mkdir(path, 0700); /* may already exist */
    *slash = '/';
  }
  FILE *file = fopen(path, "w");
  if (CHECK(file != NULL)) {
    (void)fputs(text, file);
    (void)fclose(file);
  }
}

static void put_cpu(const char *root, int cpu, const char *most, const char *allowed,
                    const char *now) {
  put(root, most, "devices/system/cpu/cpu%d/cpufreq/cpuinfo_max_freq", cpu);
  put(root, allowed, "devices/system/cpu/cpu%d/cpufreq/scaling_max_freq", cpu);
  put(root, now, "devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", cpu);
}

/* Writes four small cores, three big ones and a still bigger one; three zones, three coolers. */
static void put_phone(const char *root) {
  for (int cpu = 0; cpu < 8; cpu++) {
    const char *most = cpu < 4 ? "1785600\n" : cpu < 7 ? "2419200\n" : "2841600\n";
    put_cpu(root, cpu, most, most, cpu < 4 ? "300000\n" : "1000000\n");
  }
  put(root, "cpu-1-0-usr\n", "class/thermal/thermal_zone0/type");
  put(root, "45000\n", "class/thermal/thermal_zone0/temp");
  put(root, "critical\n", "class/thermal/thermal_zone0/trip_point_0_type");
  put(root, "40000\n", "class/thermal/thermal_zone0/trip_point_0_temp");
  put(root, "passive\n", "class/thermal/thermal_zone0/trip_point_1_type");
  put(root, "95000\n", "class/thermal/thermal_zone0/trip_point_1_temp");
  put(root, "-40000\n", "class/thermal/thermal_zone3/temp");
  put(root, "1250000\n", "class/thermal/thermal_zone12/temp");
  put(root, "thermal-cpufreq-0\n", "class/thermal/cooling_device0/type");
  put(root, "0\n", "class/thermal/cooling_device0/cur_state");
  put(root, "battery\n", "class/thermal/cooling_device1/type");
  put(root, "3\n", "class/thermal/cooling_device1/cur_state");
  put(root, "soc:GPU\n", "class/thermal/cooling_device2/type");
  put(root, "0\n", "class/thermal/cooling_device2/cur_state");
}

static struct np_readings read_all(const char *root, uint64_t mask) {
  struct np_sysfs *sysfs = calloc(1, sizeof *sysfs);
  struct np_readings readings = {0, 0, 0};
  if (CHECK(sysfs != NULL)) {
    np_sysfs_open(root, sysfs);
    np_sysfs_read(sysfs, mask, &readings);
  }
  free(sysfs);
  return readings;
}

static uint64_t big_cores(const struct np_sysfs *sysfs, uint32_t threads) {
  return np_sysfs_big_cores(sysfs, UINT64_MAX, threads);
}

static int throttled(struct np_sysfs *sysfs, uint64_t mask) {
  struct np_readings readings;
  np_sysfs_read(sysfs, mask, &readings);
  return readings.throttled;
}

static void check_phone(const char *root) {
  put_phone(root);
  struct np_sysfs *sysfs = calloc(1, sizeof *sysfs);
  if (!CHECK(sysfs != NULL)) {
    return;
  }
  np_sysfs_open(root, sysfs);
  CHECK(sysfs->n_cpus == 8 && sysfs->max_khz[0] == 1785600 && sysfs->max_khz[7] == 2841600);
  CHECK(big_cores(sysfs, 1) == 0x80 && big_cores(sysfs, 0) == 0x80);
  CHECK(big_cores(sysfs, 2) == 0xf0 && big_cores(sysfs, 4) == 0xf0);
  CHECK(big_cores(sysfs, 5) == 0xff && big_cores(sysfs, 99) == 0xff);
  CHECK(np_sysfs_big_cores(sysfs, 0x3f, 1) == 0x30 && np_sysfs_big_cores(sysfs, 0, 1) == 0x80);

  struct np_readings readings = read_all(root, 0x80);
  CHECK(readings.cpu_khz == 1000000 && readings.thermal_mc == 45000 && readings.throttled == 0);
  CHECK(read_all(root, 0x0f).cpu_khz == 300000);
  CHECK(read_all(root, UINT64_MAX).cpu_khz == 1000000);

  /* Each cause of throttling alone. */
  CHECK(throttled(sysfs, 0x80) == 0);
  put(root, "2000000\n", "devices/system/cpu/cpu7/cpufreq/scaling_max_freq");
  CHECK(throttled(sysfs, 0x80) == 1 && throttled(sysfs, 0x0f) == 0);
  put(root, "2841600\n", "devices/system/cpu/cpu7/cpufreq/scaling_max_freq");
  CHECK(throttled(sysfs, 0x80) == 0);
  put(root, "95000\n", "class/thermal/thermal_zone0/temp");
  CHECK(throttled(sysfs, 0x80) == 1);
  put(root, "94999\n", "class/thermal/thermal_zone0/temp");
  CHECK(throttled(sysfs, 0x80) == 0);
  put(root, "2\n", "class/thermal/cooling_device2/cur_state");
  CHECK(throttled(sysfs, 0x80) == 1);
  free(sysfs);
}

/* A vendor's permanent cap and a cooling device that is always active are not throttling; a cap
 * that is lifted and returns is. */
static void check_caps(const char *root) {
  put_phone(root);
  put(root, "2000000\n", "devices/system/cpu/cpu7/cpufreq/scaling_max_freq");
  put(root, "2\n", "class/thermal/cooling_device0/cur_state");
  struct np_sysfs *sysfs = calloc(1, sizeof *sysfs);
  if (!CHECK(sysfs != NULL)) {
    return;
  }
  np_sysfs_open(root, sysfs);
  CHECK(throttled(sysfs, 0x80) == 0 && throttled(sysfs, 0x80) == 0);
  put(root, "2841600\n", "devices/system/cpu/cpu7/cpufreq/scaling_max_freq");
  put(root, "1\n", "class/thermal/cooling_device0/cur_state");
  CHECK(throttled(sysfs, 0x80) == 0);
  put(root, "2000000\n", "devices/system/cpu/cpu7/cpufreq/scaling_max_freq");
  CHECK(throttled(sysfs, 0x80) == 1 && throttled(sysfs, 0x40) == 0);
  put(root, "2841600\n", "devices/system/cpu/cpu7/cpufreq/scaling_max_freq");
  put(root, "2\n", "class/thermal/cooling_device0/cur_state");
  CHECK(throttled(sysfs, 0x80) == 1);
  free(sysfs);
}

/* Unisoc's T610: one clock, two capacities. */
static void check_capacities(const char *root) {
  struct np_sysfs *sysfs = calloc(1, sizeof *sysfs);
  if (!CHECK(sysfs != NULL)) {
    return;
  }
  for (int cpu = 0; cpu < 8; cpu++) {
    put_cpu(root, cpu, "1820000\n", "1820000\n", "1820000\n");
    put(root, cpu < 6 ? "420\n" : "1024\n", "devices/system/cpu/cpu%d/cpu_capacity", cpu);
  }
  np_sysfs_open(root, sysfs);
  CHECK(big_cores(sysfs, 1) == 0xc0 && big_cores(sysfs, 2) == 0xc0 && big_cores(sysfs, 3) == 0xff);
  /* A capacity counts before a clock; of equal ones the clock does. */
  put(root, "2400000\n", "devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
  put(root, "1900000\n", "devices/system/cpu/cpu7/cpufreq/cpuinfo_max_freq");
  np_sysfs_open(root, sysfs);
  CHECK(big_cores(sysfs, 1) == 0x80 && big_cores(sysfs, 2) == 0xc0);
  /* If one is missing, no capacity counts. */
  put(root, "\n", "devices/system/cpu/cpu3/cpu_capacity");
  CHECK(big_cores(sysfs, 1) == 0x01);
  free(sysfs);
}

/* Cores that come and go, by either file. */
static void check_offline(const char *root) {
  put_phone(root);
  struct np_sysfs *sysfs = calloc(1, sizeof *sysfs);
  if (!CHECK(sysfs != NULL)) {
    return;
  }
  np_sysfs_open(root, sysfs);
  put(root, "0\n", "devices/system/cpu/cpu7/online");
  CHECK(big_cores(sysfs, 1) == 0x70 && big_cores(sysfs, 4) == 0x7f);
  put(root, "1\n", "devices/system/cpu/cpu7/online");
  CHECK(big_cores(sysfs, 1) == 0x80);
  put(root, "0-3,5\n", "devices/system/cpu/online");
  CHECK(big_cores(sysfs, 1) == 0x20 && big_cores(sysfs, 2) == 0x2f);
  put(root, "nonsense\n", "devices/system/cpu/online");
  CHECK(big_cores(sysfs, 1) == 0x80);
  free(sysfs);
}

/* Whole degrees, of a zone and of its trip point. */
static void check_degrees(const char *root) {
  put_phone(root);
  put(root, "45\n", "class/thermal/thermal_zone0/temp");
  CHECK(read_all(root, 0x80).thermal_mc == 45000 && read_all(root, 0x80).throttled == 0);
  put(root, "96\n", "class/thermal/thermal_zone0/temp");
  CHECK(read_all(root, 0x80).throttled == 1);
  put(root, "97\n", "class/thermal/thermal_zone0/trip_point_1_temp");
  CHECK(read_all(root, 0x80).throttled == 0);
}

/* A host with little information (cores without clocks, no zones), and one with none. */
static void check_poor(const char *root) {
  put(root, "", "devices/system/cpu/cpu0/topology/core_id");
  put(root, "", "devices/system/cpu/cpu1/topology/core_id");
  struct np_sysfs *sysfs = calloc(1, sizeof *sysfs);
  if (!CHECK(sysfs != NULL)) {
    return;
  }
  np_sysfs_open(root, sysfs);
  CHECK(sysfs->n_cpus == 2 && sysfs->max_khz[1] == -1);
  CHECK(big_cores(sysfs, 1) == 3);
  np_sysfs_open("/nowhere/at/all", sysfs);
  const uint64_t all = np_affinity(); /* from the scheduler: all are equal */
  CHECK(sysfs->max_khz[0] == -1 && all >> (sysfs->n_cpus - 1) == 1);
  CHECK(np_sysfs_big_cores(sysfs, all, 1) == all);
  struct np_readings readings = read_all(root, UINT64_MAX);
  CHECK(readings.cpu_khz == -1 && readings.thermal_mc == -1 && readings.throttled == -1);

  char too_long[600];
  memset(too_long, 'x', sizeof too_long);
  too_long[0] = '/';
  too_long[sizeof too_long - 1] = 0;
  np_sysfs_open(too_long, sysfs);
  CHECK(sysfs->max_khz[0] == -1 && sysfs->n_zones == 0);
  free(sysfs);
}

static int remove_one(const char *path, const struct stat *facts, int kind, struct FTW *place) {
  (void)facts;
  (void)kind;
  (void)place;
  return remove(path);
}

static void with_tree(void (*check)(const char *root)) {
  char root[] = "np-sysfs-XXXXXX";
  if (!CHECK(mkdtemp(root) != NULL)) {
    return;
  }
  check(root);
  CHECK(nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS) == 0);
}

int main(void) {
  with_tree(check_phone);
  with_tree(check_caps);
  with_tree(check_capacities);
  with_tree(check_offline);
  with_tree(check_degrees);
  with_tree(check_poor);
  return np_test_exit();
}
