/* The one clock of the process, and what np_emulator.h exports. */
#define _POSIX_C_SOURCE 200809L
#include <time.h>

#include "emulator.h"
#include "hash.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT np_emulator_phone_fn np_emulator_phone;
EXPORT np_emulator_error_fn np_emulator_error;
EXPORT np_emulator_property_fn np_emulator_property;
EXPORT np_emulator_now_fn np_emulator_now;
EXPORT np_emulator_cpu_run_fn np_emulator_cpu_run;
EXPORT np_emulator_identity_fn np_emulator_identity;

uint64_t np_clock_now(void) {
  struct np_device_table *table = np_device_table();
  if (table->phone)
    return atomic_load(&table->clock_ns);
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

void np_clock_advance(uint64_t ns) { atomic_fetch_add(&np_device_table()->clock_ns, ns); }

const char *np_emulator_phone(void) {
  const struct np_device_table *table = np_device_table();
  return table->phone ? table->phone->name : NULL;
}

const char *np_emulator_error(void) {
  const struct np_device_table *table = np_device_table();
  return table->error[0] ? table->error : NULL;
}

const char *np_emulator_property(const char *name) {
  const struct np_device_table *table = np_device_table();
  return table->phone && name ? np_phone_property(table->phone, name) : NULL;
}

uint64_t np_emulator_now(void) { return np_clock_now(); }

const char *np_emulator_identity(void) {
  const struct np_device_table *table = np_device_table();
  return table->phone ? table->phone->identity : "";
}

void np_emulator_cpu_run(const int32_t *codes, const struct np_work *works, uint32_t n,
                         uint32_t threads) {
  struct np_device_table *table = np_device_table();
  const struct np_phone *phone = table->phone;
  if (!phone || (n > 0 && (!codes || !works)))
    return;
  const double speed_up = np_thread_speed_up(phone->thread_scaling, threads);
  uint64_t hash = np_hash_u64(NP_HASH_START, phone->noise_seed);
  double total = 0;
  for (uint32_t i = 0; i < n; i++) {
    total += np_operation_ns(&phone->cpu, codes[i], &works[i], false, speed_up);
    hash = np_hash_u32(hash, (uint32_t)codes[i]);
    hash = np_hash_u64(hash, works[i].macs);
    hash = np_hash_u64(hash, works[i].output_bytes);
  }
  hash = np_hash_u32(hash, threads);
  hash = np_hash_u64(hash, atomic_fetch_add(&table->cpu_runs, 1));
  np_clock_advance((uint64_t)(total * np_noise_factor(hash, phone->noise_spread) + 0.5));
}
