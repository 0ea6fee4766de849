/* The clock of the process, and the exports of np_emulator.h. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <time.h>

#include "emulator.h"
#include "hash.h"
#include "service.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT np_emulator_phone_fn np_emulator_phone;
EXPORT np_emulator_error_fn np_emulator_error;
EXPORT np_emulator_property_fn np_emulator_property;
EXPORT np_emulator_now_fn np_emulator_now;
EXPORT np_emulator_cpu_run_fn np_emulator_cpu_run;
EXPORT np_emulator_identity_fn np_emulator_identity;
EXPORT np_emulator_idle_fn np_emulator_idle;
EXPORT np_emulator_temperature_fn np_emulator_temperature;
EXPORT np_emulator_cpu_khz_fn np_emulator_cpu_khz;
EXPORT np_emulator_throttled_fn np_emulator_throttled;
EXPORT np_emulator_lanes_fn np_emulator_lanes;
EXPORT np_emulator_enter_fn np_emulator_enter;
EXPORT np_emulator_leave_fn np_emulator_leave;
EXPORT np_emulator_rest_fn np_emulator_rest;
EXPORT np_emulator_look_fn np_emulator_look;
EXPORT np_emulator_call_fn np_emulator_call;
EXPORT np_emulator_driver_ns_fn np_emulator_driver_ns;
EXPORT np_emulator_stopped_fn np_emulator_stopped;
EXPORT np_emulator_governed_fn np_emulator_governed;
EXPORT np_emulator_cpu_top_khz_fn np_emulator_cpu_top_khz;
EXPORT np_emulator_away_fn np_emulator_away;
EXPORT np_emulator_busy_fn np_emulator_busy;
EXPORT np_emulator_cores_fn np_emulator_cores;
EXPORT np_emulator_half_fn np_emulator_half;

uint64_t np_clock_now(void) {
  struct np_device_table *table = np_device_table();
  if (table->phone) {
    return atomic_load(&table->clock_ns);
  }
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

void np_clock_advance(uint64_t ns) { np_clock_busy(ns, 0); }

void np_clock_busy(uint64_t ns, double heat) {
  struct np_device_table *table = np_device_table();
  atomic_fetch_add(&table->clock_ns, ns);
  if (table->phone) {
    np_phone_spend(table->phone, ns, heat);
  }
}

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
  struct np_phone *phone = table->phone;
  if (!phone || (n > 0 && (!codes || !works))) {
    return;
  }
  const double speed_up = np_thread_speed_up(&phone->threads, threads);
  uint64_t hash = np_hash_u64(NP_HASH_START, phone->noise_seed);
  double total = threads > 1 ? phone->threads.wake : 0, memory = 0, bytes = 0;
  for (uint32_t i = 0; i < n; i++) {
    const struct np_cost cost = np_cost_of(&phone->cpu, codes[i], &works[i], false, speed_up);
    total += np_cost_ns(&phone->cpu, &cost);
    memory += np_cost_memory_ns(&phone->cpu, &cost);
    bytes += cost.bytes;
    hash = np_hash_u32(hash, (uint32_t)codes[i]);
    hash = np_hash_u64(hash, works[i].macs);
    hash = np_hash_u64(hash, works[i].output_bytes);
  }
  hash = np_hash_u32(hash, threads);
  hash = np_hash_u64(hash, atomic_fetch_add(&table->cpu_runs, 1));
  const double factor = np_noise_factor(hash, phone->noise_spread) * np_phone_throttle(phone);
  double level;
  const double full = total * factor;
  const double ns = np_governor_run(phone, np_clock_now(), full, &level);
  const struct np_load load = {.ns = ns,
                               .heat = phone->cpu.heat,
                               .memory_ns = full > 0 ? memory * factor * (ns / full) : 0,
                               .bytes = bytes,
                               .on_cpu = true};
  (void)np_clock_spend(np_lanes_mine(), &load);
  np_governor_stop(phone, np_clock_now(), level);
}

int32_t np_emulator_lanes(uint32_t n) { return np_lanes_begin(n); }

void np_emulator_enter(uint32_t lane) { np_lanes_enter(lane); }

void np_emulator_leave(void) { np_lanes_leave(); }

void np_emulator_rest(void) { np_lanes_rest(); }

void np_emulator_look(void) { np_lanes_look(); }

void np_emulator_call(uint32_t lane) { np_lanes_call(lane); }

uint64_t np_emulator_driver_ns(void) { return np_lanes_driver_ns(); }

void np_emulator_idle(uint64_t ns) {
  if (np_device_table()->phone) {
    const struct np_load idle = {.ns = (double)ns};
    (void)np_clock_spend(-1, &idle);
  }
}

int64_t np_emulator_temperature(void) {
  struct np_phone *phone = np_device_table()->phone;
  return phone && phone->thermal.time_constant > 0 ? llround(1e3 * np_phone_temperature(phone))
                                                   : -1;
}

/* Returns the clock that the temperature allows, 0 if none is described. */
static double allowed_khz(struct np_phone *phone) {
  return phone && phone->cpu_khz > 0 ? phone->cpu_khz / np_phone_throttle(phone) : 0;
}

int64_t np_emulator_cpu_khz(void) {
  struct np_phone *phone = np_device_table()->phone;
  const double khz = allowed_khz(phone);
  if (khz <= 0) {
    return -1;
  }
  switch (phone->governor.told) {
  case NP_TOLD_STUCK:
    return llround(khz);
  case NP_TOLD_NOISE: /* from 1 kHz to 100 GHz, different every time */
    return 1 + (int64_t)(np_hash_u64(NP_HASH_START, np_clock_now()) % 100000000);
  case NP_TOLD_TRULY:
    break;
  }
  return llround(khz * np_governor_ratio(phone, np_clock_now()));
}

int64_t np_emulator_cpu_top_khz(void) {
  const double khz = allowed_khz(np_device_table()->phone);
  return khz > 0 ? llround(khz) : -1;
}

int32_t np_emulator_cores(void) {
  const struct np_phone *phone = np_device_table()->phone;
  return phone && phone->threads.cores > 0 ? (int32_t)phone->threads.cores : -1;
}

int32_t np_emulator_half(void) {
  const struct np_phone *phone = np_device_table()->phone;
  return phone && phone->cpu.peak.value[NP_DATA_FLOAT16] != phone->cpu.peak.value[NP_DATA_FLOAT32];
}

int32_t np_emulator_governed(void) {
  const struct np_phone *phone = np_device_table()->phone;
  return phone && phone->governor.ramp > 0;
}

void np_emulator_busy(uint64_t ns) {
  struct np_phone *phone = np_device_table()->phone;
  if (phone) {
    const double level = np_governor_busy(phone, np_clock_now(), ns);
    const struct np_load load = {.ns = (double)ns, .heat = phone->cpu.heat, .on_cpu = true};
    (void)np_clock_spend(np_lanes_mine(), &load);
    np_governor_stop(phone, np_clock_now(), level);
  }
}

void np_emulator_away(uint64_t ns) {
  struct np_phone *phone = np_device_table()->phone;
  if (phone) {
    np_governor_rest(phone, ns);
  }
}

int32_t np_emulator_throttled(void) {
  struct np_phone *phone = np_device_table()->phone;
  return phone && phone->thermal.time_constant > 0 ? np_phone_throttle(phone) > 1 : -1;
}

const char *np_emulator_stopped(void) { return np_services_stopped(); }
