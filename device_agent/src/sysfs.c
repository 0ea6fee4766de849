#define _POSIX_C_SOURCE 200809L

#include "sysfs.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "sysinfo.h"

#define MASK_CPUS 64u /* number of bits of a mask */
#define MAX_TRIPS 16u
#define MAX_MC 200000
#define MAX_NUMBER 100000000 /* 100 GHz in kHz */
#define WHOLE_DEGREES 200    /* below that a temperature is not in thousandths */
#define ROOM 64u

/* Reads a file's first bytes, without the newline. Empty if it cannot be read. */
__attribute__((format(printf, 3, 4))) static int
read_text(const struct np_sysfs *sysfs, char text[ROOM], const char *format, ...) {
  char path[512];
  text[0] = 0;
  int used = snprintf(path, sizeof path, "%s/", sysfs->root);
  if (used < 0 || (size_t)used >= sizeof path) {
    return 0;
  }
  va_list arguments;
  va_start(arguments, format);
  const int more = vsnprintf(path + used, sizeof path - (size_t)used, format, arguments);
  va_end(arguments);
  if (more < 0 || (size_t)more >= sizeof path - (size_t)used) {
    return 0;
  }
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return 0;
  }
  const ssize_t n = read(fd, text, ROOM - 1);
  (void)close(fd);
  text[n > 0 ? n : 0] = 0;
  text[strcspn(text, "\r\n")] = 0;
  return text[0] != 0;
}

/* Returns the number in a text, -1 if it is not one, negative, or larger than any clock or
 * state. */
static int64_t number_of(const char *text) {
  char *end = NULL;
  const long long value = strtoll(text, &end, 10);
  return end == text || (*end != 0 && *end != ' ') || value < 0 || value > MAX_NUMBER
             ? -1
             : (int64_t)value;
}

static int64_t cpufreq(const struct np_sysfs *sysfs, uint32_t cpu, const char *what) {
  char text[ROOM];
  (void)read_text(sysfs, text, "devices/system/cpu/cpu%" PRIu32 "/cpufreq/%s", cpu, what);
  return number_of(text);
}

static void read_cpus(struct np_sysfs *sysfs) {
  char path[512];
  for (; sysfs->n_cpus < NP_SYSFS_CPUS; sysfs->n_cpus++) {
    const int used = snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%" PRIu32, sysfs->root,
                              sysfs->n_cpus);
    if (used < 0 || (size_t)used >= sizeof path || access(path, F_OK) != 0) {
      break;
    }
    sysfs->max_khz[sysfs->n_cpus] = cpufreq(sysfs, sysfs->n_cpus, "cpuinfo_max_freq");
    sysfs->allowed_khz[sysfs->n_cpus] = -1;
  }
  if (sysfs->n_cpus != 0) {
    return;
  }
  do { /* /sys is not readable: the scheduler's CPUs, all equal */
    sysfs->max_khz[sysfs->n_cpus] = sysfs->allowed_khz[sysfs->n_cpus] = -1;
    sysfs->n_cpus++;
  } while (sysfs->n_cpus < MASK_CPUS && sysfs->n_cpus < NP_SYSFS_CPUS &&
           np_affinity() >> sysfs->n_cpus != 0);
}

/* Returns a temperature in thousandths of a degree, -1 if it is not one. */
static int64_t temperature_of(const char *text) {
  int64_t mc = number_of(text);
  mc = mc < WHOLE_DEGREES ? mc * 1000 : mc;
  return mc > 0 && mc < MAX_MC ? mc : -1;
}

/* Returns the lowest of a zone's trip points at which the system slows down. */
static int64_t passive_trip(const struct np_sysfs *sysfs, uint32_t zone) {
  int64_t lowest = -1;
  for (uint32_t i = 0; i < MAX_TRIPS; i++) {
    char text[ROOM];
    if (!read_text(sysfs, text, "class/thermal/thermal_zone%" PRIu32 "/trip_point_%" PRIu32 "_type",
                   zone, i)) {
      break;
    }
    if (strcmp(text, "passive") != 0) {
      continue;
    }
    (void)read_text(sysfs, text,
                    "class/thermal/thermal_zone%" PRIu32 "/trip_point_%" PRIu32 "_temp", zone, i);
    const int64_t mc = temperature_of(text);
    if (mc > 0 && (lowest < 0 || mc < lowest)) {
      lowest = mc;
    }
  }
  return lowest;
}

/* Returns whether a cooling device slows processors down: "thermal-cpufreq-0", "gpufreq",
 * "Processor". */
static int is_of_interest(const struct np_sysfs *sysfs, uint32_t cooler) {
  static const char *const words[] = {"cpu", "gpu", "npu", "processor"};
  char text[ROOM];
  (void)read_text(sysfs, text, "class/thermal/cooling_device%" PRIu32 "/type", cooler);
  for (size_t i = 0; text[i]; i++) {
    text[i] = (char)tolower((unsigned char)text[i]);
  }
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strstr(text, words[i])) {
      return 1;
    }
  }
  return 0;
}

/* Whether a name is the prefix and a number. */
static int numbered(const char *name, const char *prefix, uint32_t *number) {
  const size_t length = strlen(prefix);
  if (strncmp(name, prefix, length) != 0 || !isdigit((unsigned char)name[length])) {
    return 0;
  }
  char *end = NULL;
  const unsigned long value = strtoul(name + length, &end, 10);
  *number = (uint32_t)value;
  return *end == 0 && value <= UINT32_MAX;
}

static void read_thermal(struct np_sysfs *sysfs) {
  char path[512];
  const int used = snprintf(path, sizeof path, "%s/class/thermal", sysfs->root);
  DIR *folder = used > 0 && (size_t)used < sizeof path ? opendir(path) : NULL;
  if (!folder) {
    return;
  }
  for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
    uint32_t number;
    if (numbered(entry->d_name, "thermal_zone", &number) && sysfs->n_zones < NP_SYSFS_ZONES) {
      sysfs->zones[sysfs->n_zones++] =
          (struct np_thermal_zone){.number = number, .passive_mc = passive_trip(sysfs, number)};
    } else if (numbered(entry->d_name, "cooling_device", &number) &&
               sysfs->n_coolers < NP_SYSFS_COOLERS && is_of_interest(sysfs, number)) {
      sysfs->coolers[sysfs->n_coolers++] = (struct np_cooler){.number = number, .least = -1};
    }
  }
  (void)closedir(folder);
}

void np_sysfs_open(const char *root, struct np_sysfs *sysfs) {
  memset(sysfs, 0, sizeof *sysfs);
  const int used = snprintf(sysfs->root, sizeof sysfs->root, "%s", root ? root : "/sys");
  if (used < 0 || (size_t)used >= sizeof sysfs->root) {
    (void)snprintf(sysfs->root, sizeof sysfs->root, "/nowhere");
  }
  read_cpus(sysfs);
  read_thermal(sysfs);
}

/* Adds the CPUs of a list such as "0-3,6" to *mask; returns 0 if it is not a list. */
static int read_list(const char *text, uint64_t *mask) {
  while (*text) {
    char *end = NULL;
    const unsigned long first = strtoul(text, &end, 10);
    unsigned long last = first;
    if (end == text) {
      return 0;
    }
    if (*end == '-') {
      text = end + 1;
      last = strtoul(text, &end, 10);
      if (end == text) {
        return 0;
      }
    }
    for (unsigned long cpu = first; cpu <= last && cpu < MASK_CPUS; cpu++) {
      *mask |= UINT64_C(1) << cpu;
    }
    text = *end == ',' ? end + 1 : end;
    if (*end && *end != ',') {
      return 0;
    }
  }
  return 1;
}

/* Returns the CPUs that are not known to be offline. */
static uint64_t online_cpus(const struct np_sysfs *sysfs) {
  char text[ROOM];
  uint64_t mask = 0;
  if (!read_text(sysfs, text, "devices/system/cpu/online") || !read_list(text, &mask) ||
      mask == 0) {
    mask = UINT64_MAX;
  }
  for (uint32_t i = 0; i < sysfs->n_cpus && i < MASK_CPUS; i++) {
    if (read_text(sysfs, text, "devices/system/cpu/cpu%" PRIu32 "/online", i) &&
        number_of(text) == 0) {
      mask &= ~(UINT64_C(1) << i);
    }
  }
  return sysfs->n_cpus >= MASK_CPUS ? mask : mask & ((UINT64_C(1) << sysfs->n_cpus) - 1);
}

/* The speed of a CPU; -1: unknown. */
struct rank {
  int64_t capacity;
  int64_t khz;
};

static int is_above(struct rank a, struct rank b) {
  return a.capacity != b.capacity ? a.capacity > b.capacity : a.khz > b.khz;
}

static void rank_cpus(const struct np_sysfs *sysfs, uint64_t cpus, struct rank ranks[MASK_CPUS]) {
  int all_tell = 1;
  for (uint32_t i = 0; i < MASK_CPUS; i++) {
    ranks[i] = (struct rank){-1, -1};
    if ((cpus >> i & 1) == 0) {
      continue;
    }
    char text[ROOM];
    (void)read_text(sysfs, text, "devices/system/cpu/cpu%" PRIu32 "/cpu_capacity", i);
    ranks[i].capacity = number_of(text);
    all_tell &= ranks[i].capacity > 0;
    /* A CPU that was offline when the others were read can be read only now. */
    ranks[i].khz =
        sysfs->max_khz[i] > 0 ? sysfs->max_khz[i] : cpufreq(sysfs, i, "cpuinfo_max_freq");
  }
  for (uint32_t i = 0; i < MASK_CPUS && !all_tell; i++) {
    ranks[i].capacity = -1;
  }
}

uint64_t np_sysfs_big_cores(const struct np_sysfs *sysfs, uint64_t among, uint32_t threads) {
  uint64_t left = online_cpus(sysfs) & (among != 0 ? among : UINT64_MAX);
  struct rank ranks[MASK_CPUS];
  rank_cpus(sysfs, left, ranks);
  uint64_t mask = 0;
  uint32_t n = 0;
  while (left != 0 && (n < threads || n == 0)) {
    struct rank best = {-1, -1};
    for (uint32_t i = 0; i < MASK_CPUS; i++) {
      if ((left >> i & 1) != 0 && is_above(ranks[i], best)) {
        best = ranks[i];
      }
    }
    for (uint32_t i = 0; i < MASK_CPUS; i++) {
      if ((left >> i & 1) != 0 && !is_above(best, ranks[i])) {
        mask |= UINT64_C(1) << i;
        n++;
      }
    }
    left &= ~mask;
  }
  return mask;
}

/* Records one possible cause of throttling; value < 0: it could not be read. */
static void note(struct np_readings *readings, int64_t value, int holds) {
  if (value < 0) {
    return;
  }
  if (readings->throttled < 0) {
    readings->throttled = 0;
  }
  if (holds) {
    readings->throttled = 1;
  }
}

void np_sysfs_expect(struct np_sysfs *sysfs, const uint32_t *khz, uint32_t n) {
  for (uint32_t i = 0; i < n && i < sysfs->n_cpus; i++) {
    sysfs->allowed_khz[i] = khz[i] > sysfs->allowed_khz[i] ? khz[i] : sysfs->allowed_khz[i];
  }
}

int64_t np_sysfs_khz(const struct np_sysfs *sysfs, uint32_t cpu, int64_t *most) {
  *most = cpufreq(sysfs, cpu, "scaling_max_freq");
  return cpufreq(sysfs, cpu, "scaling_cur_freq");
}

void np_sysfs_read(struct np_sysfs *sysfs, uint64_t cpu_mask, struct np_readings *readings) {
  *readings = (struct np_readings){.cpu_khz = -1, .thermal_mc = -1, .throttled = -1};
  for (uint32_t i = 0; i < sysfs->n_cpus && i < MASK_CPUS; i++) {
    if ((cpu_mask >> i & 1) == 0) {
      continue;
    }
    const int64_t khz = cpufreq(sysfs, i, "scaling_cur_freq");
    if (khz > readings->cpu_khz) {
      readings->cpu_khz = khz;
    }
    const int64_t allowed = cpufreq(sysfs, i, "scaling_max_freq");
    note(readings, allowed, allowed < sysfs->allowed_khz[i] / 100 * 97); /* steps are larger */
    if (allowed > sysfs->allowed_khz[i]) {
      sysfs->allowed_khz[i] = allowed;
    }
  }
  for (uint32_t i = 0; i < sysfs->n_zones; i++) {
    char text[ROOM];
    (void)read_text(sysfs, text, "class/thermal/thermal_zone%" PRIu32 "/temp",
                    sysfs->zones[i].number);
    const int64_t mc = temperature_of(text);
    if (mc < 0) {
      continue;
    }
    if (mc > readings->thermal_mc) {
      readings->thermal_mc = mc;
    }
    if (sysfs->zones[i].passive_mc > 0) {
      note(readings, mc, mc >= sysfs->zones[i].passive_mc);
    }
  }
  for (uint32_t i = 0; i < sysfs->n_coolers; i++) {
    char text[ROOM];
    struct np_cooler *cooler = &sysfs->coolers[i];
    (void)read_text(sysfs, text, "class/thermal/cooling_device%" PRIu32 "/cur_state",
                    cooler->number);
    const int64_t state = number_of(text);
    note(readings, state, cooler->least >= 0 && state > cooler->least);
    if (state >= 0 && (cooler->least < 0 || state < cooler->least)) {
      cooler->least = state;
    }
  }
}
