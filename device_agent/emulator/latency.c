/* The latency model of simulated phones. */
#include "latency.h"

#include <math.h>

double np_operation_ns(const struct np_unit_model *unit, int32_t code, const struct np_work *work,
                       bool relaxed, double speed_up) {
  double efficiency = unit->efficiency.fallback;
  if (code >= 0 && code < NP_OPERATION_CODES && unit->efficiency.by_code[code] > 0) {
    efficiency = unit->efficiency.by_code[code];
  }
  const double rate = (relaxed ? unit->relaxed_peak : unit->peak) * efficiency * speed_up;
  const double bytes =
      (double)work->input_bytes + (double)work->output_bytes + (double)work->constant_bytes;
  return fmax((double)work->macs / rate, bytes / unit->bandwidth) + unit->operation_overhead;
}

double np_thread_speed_up(double scaling, uint32_t threads) {
  if (threads <= 1)
    return 1;
  if (scaling >= 1)
    return (double)threads;
  return (1 - pow(scaling, (double)threads)) / (1 - scaling);
}

struct np_latency np_steps_latency(const struct np_step *steps, uint32_t n_steps,
                                   int32_t preference, bool burst) {
  struct np_latency total = {0, 0, 0};
  for (uint32_t i = 0; i < n_steps; i++) {
    const struct np_accelerator *a = steps[i].accelerator;
    const double hardware = steps[i].operations_ns * a->preference[preference];
    const double transfer =
        a->transfer_bandwidth > 0 ? (double)steps[i].boundary_bytes / a->transfer_bandwidth : 0;
    total.hardware += hardware;
    total.driver += hardware + transfer;
    total.wall += hardware + transfer + (burst ? a->burst_invocation : a->invocation);
  }
  return total;
}

double np_steps_compile_ns(const struct np_step *steps, uint32_t n_steps) {
  double total = 0;
  for (uint32_t i = 0; i < n_steps; i++) {
    const struct np_accelerator *a = steps[i].accelerator;
    total += a->compile_fixed + a->compile_operation * steps[i].n_operations +
             a->compile_byte * (double)steps[i].constant_bytes;
  }
  return total;
}
