/* The latency model of simulated phones. */
#include "latency.h"

#include <math.h>

struct np_cost np_cost_of(const struct np_unit_model *unit, int32_t code,
                          const struct np_work *work, bool relaxed, double speed_up) {
  double efficiency = unit->efficiency.fallback;
  if (code >= 0 && code < NP_OPERATION_CODES && unit->efficiency.by_code[code] > 0) {
    efficiency = unit->efficiency.by_code[code];
  }
  const double peak = unit->peak.value[np_data_of(work->type, relaxed)];
  const double bytes =
      (double)work->input_bytes + (double)work->output_bytes + (double)work->constant_bytes;
  return (struct np_cost){(double)work->macs / (peak * efficiency * speed_up), bytes};
}

double np_cost_ns(const struct np_unit_model *unit, const struct np_cost *cost) {
  return fmax(cost->compute, cost->bytes / unit->bandwidth) + unit->operation_overhead;
}

double np_cost_memory_ns(const struct np_unit_model *unit, const struct np_cost *cost) {
  const double memory = cost->bytes / unit->bandwidth;
  return memory > cost->compute ? memory : 0;
}

/* Interpolates linearly between the rows on both sides; beyond the last row, returns its speed. */
static double speed_of_rows(const struct np_threads *threads, double n) {
  struct np_thread_row below = {1, 1};
  for (uint32_t i = 0; i < threads->n_rows; i++) {
    const struct np_thread_row *row = &threads->rows[i];
    if (n <= row->threads) {
      const double share = (n - below.threads) / (row->threads - below.threads);
      return below.speed + share * (row->speed - below.speed);
    }
    below = *row;
  }
  return below.speed;
}

double np_thread_speed_up(const struct np_threads *threads, uint32_t number) {
  double n = (double)number;
  if (threads->cores > 0 && n > threads->cores) {
    n = threads->cores;
  }
  if (n <= 1) {
    return 1;
  }
  if (threads->n_rows > 0) {
    return speed_of_rows(threads, n);
  }
  if (threads->scaling >= 1) {
    return n;
  }
  return (1 - pow(threads->scaling, n)) / (1 - threads->scaling);
}

static double transfer_ns(const struct np_step *step) {
  const struct np_accelerator *a = step->accelerator;
  if (a->transfer_bandwidth <= 0) {
    return 0;
  }
  return a->transfer_floor + (double)step->boundary_bytes / a->transfer_bandwidth;
}

struct np_latency np_steps_latency(const struct np_step *steps, uint32_t n_steps,
                                   int32_t preference, bool burst, double throttle) {
  struct np_latency total = {0};
  for (uint32_t i = 0; i < n_steps; i++) {
    const struct np_accelerator *a = steps[i].accelerator;
    const double hardware = steps[i].operations_ns * a->preference[preference] * throttle;
    const double driver = hardware + transfer_ns(&steps[i]);
    const double wall = driver + (burst ? a->burst_invocation : a->invocation);
    total.hardware += hardware;
    total.driver += driver;
    total.wall += wall;
    total.cpu += a->type == ANEURALNETWORKS_DEVICE_CPU ? wall : 0;
    total.heat += wall * a->unit.heat;
    total.memory +=
        steps[i].memory_ns * a->preference[preference] * throttle + transfer_ns(&steps[i]);
    total.bytes += steps[i].bytes + (double)steps[i].boundary_bytes;
    total.drivers += wall * a->driver_share;
  }
  if (total.wall > 0) {
    total.heat /= total.wall;
    total.drivers /= total.wall;
  }
  return total;
}

double np_steps_compile_ns(const struct np_step *steps, uint32_t n_steps, bool from_cache) {
  double total = 0;
  for (uint32_t i = 0; i < n_steps; i++) {
    const struct np_accelerator *a = steps[i].accelerator;
    const double bytes = (double)steps[i].constant_bytes;
    if (from_cache && a->caches) {
      total += a->cached_fixed + a->cached_byte * bytes;
    } else {
      total +=
          a->compile_fixed + a->compile_operation * steps[i].n_operations + a->compile_byte * bytes;
    }
  }
  return total;
}
