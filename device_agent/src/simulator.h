/* Functions that our emulator's library has beyond NNAPI (np_emulator.h). */
#ifndef NP_SIMULATOR_H
#define NP_SIMULATOR_H

#include "nnapi.h"
#include "np_emulator.h"
#include "sysfs.h"
#include "timing.h"

/* Every entry is NULL in a phone's own library. */
struct np_simulator {
  np_emulator_phone_fn *phone;
  np_emulator_error_fn *error;
  np_emulator_property_fn *property;
  np_emulator_now_fn *now;
  np_emulator_cpu_run_fn *cpu_run;
  np_emulator_identity_fn *identity;
  np_emulator_temperature_fn *temperature;
  np_emulator_cpu_khz_fn *cpu_khz;
  np_emulator_throttled_fn *throttled;
  np_emulator_idle_fn *idle;
  np_emulator_lanes_fn *lanes;
  np_emulator_enter_fn *enter;
  np_emulator_leave_fn *leave;
  np_emulator_rest_fn *rest;
  np_emulator_look_fn *look;
  np_emulator_call_fn *call;
  np_emulator_driver_ns_fn *driver_ns;
  np_emulator_stopped_fn *stopped;
  np_emulator_governed_fn *governed;
  np_emulator_cpu_top_khz_fn *cpu_top_khz;
  np_emulator_away_fn *away;
  np_emulator_busy_fn *busy;
  np_emulator_cores_fn *cores;
  np_emulator_half_fn *half;
};

struct np_simulator np_simulator_of(const struct np_nnapi *nnapi);

/* Returns the name of the simulated phone, NULL in real time. */
const char *np_simulator_phone(const struct np_simulator *simulator);

/* Returns why the phone's description could not be read, NULL if there is no error. */
const char *np_simulator_error(const struct np_simulator *simulator);

/* Returns whether the simulated phone's CPU has a clock that rises while it is busy. */
int np_simulator_governed(const struct np_simulator *simulator);

/* Returns the present readings of the simulated phone's CPU and thermal zone, -1 where unknown. */
struct np_readings np_simulator_readings(const struct np_simulator *simulator);

/* Lets the simulated clock run idle until the phone is no longer throttled, at most limit_ns.
 * Returns the time that it took, in ns. */
uint64_t np_simulator_cool(const struct np_simulator *simulator, uint64_t limit_ns);

/* Returns the simulated clock if a phone is simulated, else CLOCK_MONOTONIC. The simulator must
 * outlive the clock. */
struct np_clock np_simulator_clock(struct np_simulator *simulator);

#endif
