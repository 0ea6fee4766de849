/* Simulated compilations and executions: the placement of operations, their time, and kept results.
 *
 * The kernels always compute the results. On a simulated phone time is simulated, so the time for
 * this does not matter, and results that a compilation has computed for the same input bytes are
 * copied instead of computed again, bit by bit the same. */
#define _POSIX_C_SOURCE 200809L /* pause */
#include "simulate.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emulator.h"
#include "hash.h"
#include "partition.h"
#include "service.h"

/* Returns the hash that determines a placed model's noise: of operations, shapes, accelerator,
 * preference. */
static uint64_t noise_hash(const ANeuralNetworksCompilation *compilation,
                           const struct np_phone *phone) {
  const struct np_graph *graph = &compilation->model->graph;
  uint64_t hash = np_hash_u64(NP_HASH_START, phone->noise_seed);
  for (uint32_t k = 0; k < graph->n_operations; k++) {
    const struct np_operation *o = &graph->operations[k];
    hash = np_hash_u32(hash, (uint32_t)o->code);
    for (uint32_t i = 0; i < o->n_inputs + o->n_outputs; i++) {
      const uint32_t index = i < o->n_inputs ? o->inputs[i] : o->outputs[i - o->n_inputs];
      const struct np_operand *operand = &graph->operands[index];
      hash = np_hash_u32(hash, operand->rank);
      for (uint32_t d = 0; d < operand->rank; d++) {
        hash = np_hash_u32(hash, operand->dims[d]);
      }
    }
  }
  const struct np_simulation *simulation = &compilation->simulation;
  /* A model that NNAPI put on one accelerator as a whole draws the same noise as on that
   * accelerator by name, so that the two do not differ by chance. */
  const char *name = "several";
  if (simulation->n_steps == 1) { /* NNAPI's CPU path has no name */
    name = simulation->steps->accelerator->name ? simulation->steps->accelerator->name : "cpu";
  }
  hash = np_hash_bytes(hash, name, strlen(name) + 1);
  return np_hash_u32(hash, (uint32_t)compilation->preference);
}

/* The candidates of a compilation: its devices, followed by the host's CPU. */
struct candidates {
  const struct np_accelerator *accelerators[NP_MAX_ACCELERATORS + 1];
  struct np_choices choices;
};

static void find_candidates(const ANeuralNetworksCompilation *compilation, const bool *supported,
                            struct candidates *c) {
  for (uint32_t i = 0; i < compilation->n_devices; i++) {
    c->accelerators[i] = compilation->devices[i]->accelerator;
  }
  /* The last row is the host CPU's; it counts only if NNAPI chooses. */
  c->accelerators[compilation->n_devices] = &np_device_table()->host_cpu;
  c->choices = (struct np_choices){.accelerators = c->accelerators,
                                   .n_accelerators = compilation->n_devices,
                                   .supported = supported,
                                   .relaxed = compilation->model->relaxed,
                                   .preference = compilation->preference};
  if (!compilation->explicit_devices) {
    c->choices.n_accelerators++;
  }
}

/* Takes memory and uses it until this process is killed or there is none left. */
static void exhaust(void) {
  enum { PIECE = 1 << 20 };
  for (;;) {
    volatile char *piece = malloc(PIECE);
    if (!piece) {
      abort();
    }
    for (size_t i = 0; i < PIECE; i += 1024) {
      piece[i] = 1;
    }
  }
}

/* Hangs, aborts or crashes this process, as a broken driver does. */
static void break_down(enum np_fault_kind kind, const char *function) {
  static const char *const what[] = {"hangs", "aborts", "crashes", "takes all memory"};
  (void)np_refuse(ANEURALNETWORKS_OP_FAILED, function, "an injected fault %s",
                  what[kind - NP_FAULT_HANG]);
  if (kind == NP_FAULT_ABORT) {
    abort();
  }
  if (kind == NP_FAULT_CRASH) {
    (void)raise(SIGSEGV);
  }
  if (kind == NP_FAULT_EXHAUST) {
    exhaust();
  }
  for (;;) {
    pause();
  }
}

/* The faults of a stage, a bit each, that an assigned model meets. */
static uint32_t faults_of(const struct np_graph *graph, const struct candidates *c,
                          const uint32_t *assignment, enum np_fault_stage stage) {
  const struct np_phone *phone = np_device_table()->phone;
  uint32_t met = 0;
  for (uint32_t i = 0; i < phone->n_faults; i++) {
    if (phone->faults[i].stage != stage) {
      continue;
    }
    for (uint32_t k = 0; k < graph->n_operations; k++) {
      if (np_fault_meets(&phone->faults[i], c->accelerators[assignment[k]], graph, k)) {
        met |= UINT32_C(1) << i;
      }
    }
  }
  return met;
}

/* Returns the first fault that strikes in a run, NULL for none; counts it if its number of strikes
 * is limited. */
static const struct np_fault *first_fault(uint32_t met, uint64_t run) {
  const struct np_phone *phone = np_device_table()->phone;
  for (uint32_t i = 0; i < phone->n_faults; i++) {
    const struct np_fault *fault = &phone->faults[i];
    if ((met >> i & 1) != 0 && run >= fault->from_run &&
        (run - fault->from_run) % fault->every == 0 && np_service_strikes(fault)) {
      return fault;
    }
  }
  return NULL;
}

/* Puts the whole model on the CPU, in *steps, as Android's runtime does when a device fails that
 * the caller has not named. */
static int place_on_cpu(const ANeuralNetworksCompilation *compilation, const struct candidates *c,
                        uint32_t *assignment, struct np_step **steps, uint32_t *n_steps) {
  const struct np_graph *graph = &compilation->model->graph;
  const uint32_t n = c->choices.n_accelerators;
  uint32_t cpu = n - 1;
  for (uint32_t i = 0; i < n; i++) {
    if (c->accelerators[i]->type == ANEURALNETWORKS_DEVICE_CPU) {
      cpu = i < cpu ? i : cpu;
    }
  }
  for (uint32_t k = 0; k < graph->n_operations; k++) {
    assignment[k] = cpu;
    if (!c->choices.supported[(size_t)cpu * graph->n_operations + k]) {
      return NP_REFUSE(OP_FAILED, "a fault was injected, and the CPU does not run operation %u", k);
    }
  }
  return np_make_steps(graph, &c->choices, assignment, steps, n_steps) == NP_OK
             ? ANEURALNETWORKS_NO_ERROR
             : NP_REFUSE(OUT_OF_MEMORY, "no memory for a plan");
}

/* Advances the clock by a run of a lane, or to the deadline if that comes first; *took is the time
 * in ns. Time added by other lanes does not count against the deadline. */
static int spend(int lane, const struct np_load *load, uint64_t deadline_ns, double *took,
                 const char *function) {
  const uint64_t now = np_clock_now(), whole = (uint64_t)(load->ns + 0.5);
  if (deadline_ns == NP_NEVER || (now <= deadline_ns && whole <= deadline_ns - now)) {
    *took = np_clock_spend(lane, load);
    return ANEURALNETWORKS_NO_ERROR;
  }
  if (deadline_ns > now) {
    struct np_load part = *load;
    part.ns = (double)(deadline_ns - now);
    *took = np_clock_spend(lane, &part);
  }
  return np_refuse(ANEURALNETWORKS_MISSED_DEADLINE_PERSISTENT, function,
                   "%llu ns do not fit in front of the deadline", (unsigned long long)whole);
}

/* Spends the time of compiling the steps; drivers compile on the CPU, which warms the phone. */
static int spend_compiling(const struct np_simulation *s, bool from_cache, uint64_t deadline_ns) {
  const struct np_load load = {.ns = np_steps_compile_ns(s->steps, s->n_steps, from_cache),
                               .heat = np_device_table()->phone->cpu.heat};
  double took;
  return spend(np_lanes_mine(), &load, deadline_ns, &took, __func__);
}

/* Applies a fault and returns the result of the call; the service may die, or hang for a while. */
static int strike(const ANeuralNetworksCompilation *compilation, const struct np_fault *fault) {
  switch (fault->kind) {
  case NP_FAULT_DIE:
    return np_service_die(compilation, fault);
  case NP_FAULT_STOP:
    return np_service_stop(compilation, fault);
  case NP_FAULT_REFUSE:
    return NP_REFUSE(BAD_DATA, "an injected fault refuses");
  default:
    return NP_REFUSE(OP_FAILED, "an injected fault fails");
  }
}

/* Compiles by `assignment`, and again for the CPU if a fault strikes and NNAPI chose. */
static int compile_assigned(ANeuralNetworksCompilation *compilation, const struct candidates *c,
                            uint32_t *assignment, const struct np_simulate_options *options) {
  const struct np_graph *graph = &compilation->model->graph;
  struct np_simulation *s = &compilation->simulation;
  if (np_make_steps(graph, &c->choices, assignment, &s->steps, &s->n_steps) != NP_OK) {
    return NP_REFUSE(OUT_OF_MEMORY, "no memory for a plan");
  }
  const struct np_fault *fault = first_fault(faults_of(graph, c, assignment, NP_FAULT_COMPILE), 1);
  if (fault && fault->kind >= NP_FAULT_HANG) {
    break_down(fault->kind, __func__);
  }
  int code = spend_compiling(s, options->from_cache, options->deadline_ns);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return code;
  }
  code = np_service_compile(compilation);
  if (code == ANEURALNETWORKS_NO_ERROR && fault) {
    code = strike(compilation, fault);
  }
  if (code == ANEURALNETWORKS_NO_ERROR) {
    s->faults = faults_of(graph, c, assignment, NP_FAULT_EXECUTE);
    /* If the CPU cannot run it either, the failing runs report that. */
    if (!compilation->explicit_devices) {
      (void)place_on_cpu(compilation, c, assignment, &s->fallback, &s->n_fallback);
    }
    return ANEURALNETWORKS_NO_ERROR;
  }
  np_service_release(compilation);
  free(s->steps);
  s->steps = NULL;
  s->n_steps = 0;
  if (compilation->explicit_devices) {
    return code;
  }
  code = place_on_cpu(compilation, c, assignment, &s->steps, &s->n_steps);
  if (code == ANEURALNETWORKS_NO_ERROR) {
    code = spend_compiling(s, false, options->deadline_ns);
  }
  return code == ANEURALNETWORKS_NO_ERROR ? np_service_compile(compilation) : code;
}

int np_simulate_compile(ANeuralNetworksCompilation *compilation, const bool *supported,
                        const struct np_simulate_options *options) {
  const struct np_graph *graph = &compilation->model->graph;
  struct candidates candidates;
  find_candidates(compilation, supported, &candidates);
  uint32_t *assignment = malloc((graph->n_operations + (size_t)1) * sizeof *assignment);
  if (!assignment) {
    return NP_REFUSE(OUT_OF_MEMORY, "no memory for a plan");
  }
  uint32_t refused = 0;
  int code;
  if (np_assign(graph, &candidates.choices, assignment, &refused) != NP_OK) {
    code = NP_REFUSE(BAD_DATA, "no device can run operation %u (%s)",
                     compilation->model->order[refused],
                     np_operation_name(graph->operations[refused].code));
  } else {
    code = compile_assigned(compilation, &candidates, assignment, options);
  }
  free(assignment);
  compilation->simulation.noise_hash = noise_hash(compilation, np_device_table()->phone);
  return code;
}

/* Rounds down: drivers of Android 11 and before report whole microseconds, in the API's unit ns. */
static uint64_t whole_microseconds(double ns) { return (uint64_t)(ns + 0.5) / 1000 * 1000; }

int np_simulate_execute(ANeuralNetworksExecution *execution,
                        const struct np_simulate_options *options) {
  ANeuralNetworksCompilation *compilation = execution->compilation;
  struct np_simulation *s = &compilation->simulation;
  struct np_phone *phone = np_device_table()->phone;
  const uint64_t run = s->n_runs++;
  double longer = 1, load_ns = 0;
  int result = np_service_begin(execution, &longer, &load_ns);
  const struct np_fault *fault =
      result == ANEURALNETWORKS_NO_ERROR ? first_fault(s->faults, run + 1) : NULL;
  execution->silent = fault && fault->kind >= NP_FAULT_RESHAPE ? fault : NULL;
  fault = execution->silent ? NULL : fault;
  if (fault && fault->kind >= NP_FAULT_HANG) {
    break_down(fault->kind, __func__);
  }
  if (fault) {
    result = strike(compilation, fault);
  }
  np_service_end(execution);
  const bool on_cpu = result != ANEURALNETWORKS_NO_ERROR && s->fallback;
  const double throttle = np_phone_throttle(phone);
  struct np_latency latency =
      np_steps_latency(s->steps, s->n_steps, compilation->preference, options->burst, throttle);
  if (on_cpu) {
    const struct np_latency again = np_steps_latency(
        s->fallback, s->n_fallback, compilation->preference, options->burst, throttle);
    latency.wall += again.wall;
    latency.cpu += again.cpu;
    latency.memory += again.memory;
    latency.bytes += again.bytes;
  }
  const double noise = np_noise_factor(np_hash_u64(s->noise_hash, run), phone->noise_spread);
  /* The CPU's part depends on the governor. */
  double level;
  const double cpu_ns = latency.cpu * noise;
  const double stretched = np_governor_run(phone, np_clock_now(), cpu_ns, &level);
  const double slow = cpu_ns > 0 ? 1 + (stretched - cpu_ns) / (latency.wall * noise) : 1;
  const struct np_load load = {.ns = latency.wall * noise * slow * longer + load_ns,
                               .heat = latency.heat,
                               .memory_ns = latency.memory * noise * slow,
                               .bytes = latency.bytes,
                               .driver_share = latency.drivers};
  double took = load.ns;
  const int code = spend(execution->lane, &load, options->deadline_ns, &took, __func__);
  if (cpu_ns > 0) {
    np_governor_stop(phone, np_clock_now(), level);
  }
  const double company = execution->lane < 0 || load.ns <= 0 ? slow : slow * took / load.ns;
  execution->hardware_ns = whole_microseconds(latency.hardware * noise * company);
  execution->driver_ns = whole_microseconds(latency.driver * noise * company);
  return code != ANEURALNETWORKS_NO_ERROR || on_cpu ? code : result;
}

void np_simulation_free(struct np_simulation *simulation) {
  np_forget_last_run(&simulation->last);
  free(simulation->steps);
  free(simulation->fallback);
  *simulation = (struct np_simulation){0};
}
