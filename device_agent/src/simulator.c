#include "simulator.h"

#include <string.h>

#include "np_nnapi.h"

#define COOLING_STEP_NS 100000000u

#define LOOK_UP(field, name)                                                                       \
  do {                                                                                             \
    void *symbol = np_nnapi_symbol(nnapi, name);                                                   \
    memcpy(&simulator.field, &symbol, sizeof symbol);                                              \
  } while (0)

struct np_simulator np_simulator_of(const struct np_nnapi *nnapi) {
  struct np_simulator simulator = {.phone = NULL};
  LOOK_UP(phone, "np_emulator_phone");
  LOOK_UP(error, "np_emulator_error");
  LOOK_UP(property, "np_emulator_property");
  LOOK_UP(now, "np_emulator_now");
  LOOK_UP(cpu_run, "np_emulator_cpu_run");
  LOOK_UP(identity, "np_emulator_identity");
  LOOK_UP(temperature, "np_emulator_temperature");
  LOOK_UP(cpu_khz, "np_emulator_cpu_khz");
  LOOK_UP(throttled, "np_emulator_throttled");
  LOOK_UP(idle, "np_emulator_idle");
  LOOK_UP(lanes, "np_emulator_lanes");
  LOOK_UP(enter, "np_emulator_enter");
  LOOK_UP(leave, "np_emulator_leave");
  LOOK_UP(rest, "np_emulator_rest");
  LOOK_UP(look, "np_emulator_look");
  LOOK_UP(call, "np_emulator_call");
  LOOK_UP(driver_ns, "np_emulator_driver_ns");
  LOOK_UP(stopped, "np_emulator_stopped");
  LOOK_UP(governed, "np_emulator_governed");
  LOOK_UP(cpu_top_khz, "np_emulator_cpu_top_khz");
  LOOK_UP(away, "np_emulator_away");
  LOOK_UP(busy, "np_emulator_busy");
  LOOK_UP(cores, "np_emulator_cores");
  LOOK_UP(half, "np_emulator_half");
  return simulator;
}

const char *np_simulator_phone(const struct np_simulator *simulator) {
  /* Without its clock and its CPU a phone cannot be simulated. */
  if (!simulator->phone || !simulator->now || !simulator->cpu_run) {
    return NULL;
  }
  return simulator->phone();
}

const char *np_simulator_error(const struct np_simulator *simulator) {
  return simulator->error ? simulator->error() : NULL;
}

int np_simulator_governed(const struct np_simulator *simulator) {
  return simulator->governed && simulator->governed() == 1;
}

struct np_readings np_simulator_readings(const struct np_simulator *simulator) {
  return (struct np_readings){.cpu_khz = simulator->cpu_khz ? simulator->cpu_khz() : -1,
                              .thermal_mc = simulator->temperature ? simulator->temperature() : -1,
                              .throttled = simulator->throttled ? simulator->throttled() : -1};
}

uint64_t np_simulator_cool(const struct np_simulator *simulator, uint64_t limit_ns) {
  uint64_t spent_ns = 0;
  if (!simulator->idle || !simulator->throttled) {
    return 0;
  }
  while (simulator->throttled() == 1 && spent_ns < limit_ns) {
    const uint64_t left_ns = limit_ns - spent_ns;
    const uint64_t step_ns = left_ns < COOLING_STEP_NS ? left_ns : COOLING_STEP_NS;
    simulator->idle(step_ns);
    spent_ns += step_ns;
  }
  return spent_ns;
}

static uint64_t simulated_ns(void *ctx) {
  const struct np_simulator *simulator = ctx;
  return simulator->now();
}

struct np_clock np_simulator_clock(struct np_simulator *simulator) {
  if (!np_simulator_phone(simulator)) {
    return np_monotonic_clock();
  }
  return (struct np_clock){.now_ns = simulated_ns, .ctx = simulator};
}
