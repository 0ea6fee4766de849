/* Functions that our emulator's libneuralnetworks.so exports beyond NNAPI.
 *
 * A real phone's library has none of these: the agent looks each of them up with dlsym and does
 * without those that are missing. With a simulated phone (the environment variable
 * NNAPI_EMULATOR_PHONE names its JSON file) results are really computed, but time is simulated:
 * every execution and compilation, and every call of np_emulator_cpu_run, advances the process's
 * simulated clock by the time that the description gives. The agent measures with that clock, so
 * simulated latencies pass through the same code as measured ones, and each result line says
 * "clock":"simulated". */
#ifndef NP_EMULATOR_H
#define NP_EMULATOR_H

#include <stdint.h>

#include "np_executor.h"

/* Returns the name of the simulated phone, NULL if the emulator runs in real time. The first call
 * of any function reads the description; np_emulator_error reports a bad one. */
typedef const char *np_emulator_phone_fn(void);

/* Returns a sentence that says why NNAPI_EMULATOR_PHONE could not be read, or that this build lacks
 * the back end NNAPI_EMULATOR_BACKEND; NULL if there is no error. With an error the library has no
 * devices, and every compilation fails. */
typedef const char *np_emulator_error_fn(void);

/* Returns an Android system property of the simulated phone ("ro.product.model"), or NULL. */
typedef const char *np_emulator_property_fn(const char *name);

/* Returns the simulated clock in ns, which does not advance between calls. CLOCK_MONOTONIC in real
 * time. */
typedef uint64_t np_emulator_now_fn(void);

/* Advances the simulated clock by the time that the simulated phone's CPU takes for n operations
 * with `threads` threads, noise included. Does nothing in real time. */
typedef void np_emulator_cpu_run_fn(const int32_t *codes, const struct np_work *works, uint32_t n,
                                    uint32_t threads);

/* Returns the identity of the description: a hash of its bytes and the injected faults, in hex; ""
 * in real time. Part of the device fingerprint. */
typedef const char *np_emulator_identity_fn(void);

/* Advances the simulated clock by `ns` in which nothing runs, so the phone cools. Does nothing in
 * real time. */
typedef void np_emulator_idle_fn(uint64_t ns);

/* Returns the temperature of the simulated phone in millidegrees Celsius; -1 if none is described,
 * and in real time. Each process starts with a cold phone. */
typedef int64_t np_emulator_temperature_fn(void);

/* Return the clock of the simulated phone's CPU in kHz: the present one, under governor and
 * throttling, and the highest that throttling allows now; -1 as above. */
typedef int64_t np_emulator_cpu_khz_fn(void);
typedef int64_t np_emulator_cpu_top_khz_fn(void);

/* Returns the number of cores of the simulated phone's CPU; -1 if it is not described, and in real
 * time. */
typedef int32_t np_emulator_cores_fn(void);

/* Returns 1 if the simulated phone's CPU computes in float16, that is if its description has a rate
 * for it, else 0. */
typedef int32_t np_emulator_half_fn(void);

/* Returns 1 if a governor adapts the CPU's clock to its load (PHONES.md, "Governor"), else 0. */
typedef int32_t np_emulator_governed_fn(void);

/* Keeps the simulated CPU busy for `ns`: the simulated clock advances, the phone warms, and a
 * governor raises the CPU's clock. */
typedef void np_emulator_busy_fn(uint64_t ns);

/* Lets other processes use the simulated phone for `ns` while this one waits. The only effect is
 * that the governor lowers the CPU's clock. */
typedef void np_emulator_away_fn(uint64_t ns);

/* Returns 1 if the simulated phone is throttled now because of its temperature, else 0; -1 as
 * above. */
typedef int32_t np_emulator_throttled_fn(void);

/* Starts n lanes, at most 8: threads that stand for processors working at the same time. From now
 * on lanes 0 to n - 1 share the clock. Each thread enters one lane, and later leaves it. The clock
 * stops until every lane has a run, rests or has left, and the time of a run depends on the runs
 * beside it (PHONES.md, "Lanes"). The lanes end when the last thread leaves. Lanes must not share a
 * compilation. Returns 0, or -1 in real time and if there are lanes already. */
typedef int32_t np_emulator_lanes_fn(uint32_t n);
typedef void np_emulator_enter_fn(uint32_t lane);
typedef void np_emulator_leave_fn(void);

/* For lanes that wait for each other. `rest` declares that the calling lane has no run and starts
 * none until another lane calls it, so the clock need not wait for it. `call` comes from the waker,
 * after the data that the lane waits for is ready and before its thread is woken; from then on the
 * clock stops until that lane has a run or rests again. A lane calls `look` before it checks
 * whether there is work. */
typedef void np_emulator_rest_fn(void);
typedef void np_emulator_look_fn(void);
typedef void np_emulator_call_fn(uint32_t lane);

/* Returns the CPU time that the simulated drivers have used so far, in ns. */
typedef uint64_t np_emulator_driver_ns_fn(void);

/* Returns the name of an accelerator whose service hangs now, NULL if none does. Never waits. */
typedef const char *np_emulator_stopped_fn(void);

/* The library exports them under these names: np_emulator_phone, np_emulator_error,
 * np_emulator_property, np_emulator_now, np_emulator_cpu_run, np_emulator_identity,
 * np_emulator_idle, np_emulator_temperature, np_emulator_cpu_khz,
 * np_emulator_throttled, np_emulator_lanes, np_emulator_enter, np_emulator_leave,
 * np_emulator_rest, np_emulator_look, np_emulator_call, np_emulator_driver_ns,
 * np_emulator_stopped, np_emulator_cpu_top_khz, np_emulator_governed, np_emulator_busy,
 * np_emulator_away, np_emulator_cores, np_emulator_half. */

#endif
