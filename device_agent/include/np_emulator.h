/* What our emulator's libneuralnetworks.so exports beyond NNAPI.
 *
 * A real phone's library has none of these: the agent looks each up by dlsym and goes without.
 * With a simulated phone (environment variable NNAPI_EMULATOR_PHONE names its JSON file) results
 * are computed for real, but time is the phone's: every execution and compilation, and every call
 * of np_emulator_cpu_run, advances one simulated clock per process by what the description says.
 * The agent times with that clock, so simulated latencies come home through the same code as
 * measured ones, and each result line says "clock":"simulated". */
#ifndef NP_EMULATOR_H
#define NP_EMULATOR_H

#include <stdint.h>

#include "np_executor.h"

/* Name of the simulated phone, or NULL where the emulator runs in real time. The first call of any
 * function reads the description; a bad one is reported by np_emulator_error. */
typedef const char *np_emulator_phone_fn(void);

/* The sentence that says why NNAPI_EMULATOR_PHONE could not be read, or that this build has no back
 * end of NNAPI_EMULATOR_BACKEND's name, or NULL. With an error the library offers no device, and
 * every compilation fails. */
typedef const char *np_emulator_error_fn(void);

/* Android system property of the simulated phone ("ro.product.model"), or NULL. */
typedef const char *np_emulator_property_fn(const char *name);

/* The simulated clock in ns; it stands still between calls. CLOCK_MONOTONIC in real time. */
typedef uint64_t np_emulator_now_fn(void);

/* Advances the simulated clock by what the simulated phone's CPU takes for these operations with
 * `threads` threads (noise included). Does nothing in real time. */
typedef void np_emulator_cpu_run_fn(const int32_t *codes, const struct np_work *works, uint32_t n,
                                    uint32_t threads);

/* Identifies description and emulator: hex of a hash over the description's bytes and the injected
 * faults, "" in real time. Part of the device fingerprint. */
typedef const char *np_emulator_identity_fn(void);

/* The simulated clock advances by `ns` in which nothing runs: the phone cools. Does nothing in real
 * time. */
typedef void np_emulator_idle_fn(uint64_t ns);

/* Temperature of the simulated phone in millidegrees Celsius; -1 where none is described, and in
 * real time. Each process begins with a cold phone. */
typedef int64_t np_emulator_temperature_fn(void);

/* Clock of the simulated phone's CPU in kHz as governor and throttling let it run now, and the
 * highest that throttling allows; -1 as above. */
typedef int64_t np_emulator_cpu_khz_fn(void);
typedef int64_t np_emulator_cpu_top_khz_fn(void);

/* Cores of the simulated phone's CPU; -1 where none are described, and in real time. */
typedef int32_t np_emulator_cores_fn(void);

/* Whether the simulated phone's CPU computes in float16: where its description gives that a rate of
 * its own. 1 or 0. */
typedef int32_t np_emulator_half_fn(void);

/* Whether a governor changes that clock by what the CPU has to do (PHONES.md, "Governor"): 1 or 0.
 */
typedef int32_t np_emulator_governed_fn(void);

/* The simulated CPU computes something for `ns`: the clock goes on, the phone warms, and a governor
 * raises the clock. */
typedef void np_emulator_busy_fn(uint64_t ns);

/* Other processes use the simulated phone for `ns`, and this one waits: its governor lowers the
 * clock, and that is all. */
typedef void np_emulator_away_fn(uint64_t ns);

/* Whether the simulated phone's temperature slows its operations now: 1 or 0; -1 as above. */
typedef int32_t np_emulator_throttled_fn(void);

/* Lets n threads be processors that work at once, at most 8: from now on the clock is shared by the
 * lanes 0 to n - 1. Each thread enters one, and leaves it; the clock stands until all lanes have a
 * run, rest or left, and what each run takes depends on those beside it (PHONES.md, "Lanes"). Ends
 * when the last one leaves. Lanes may not share a compilation. 0, or -1 in real time and where
 * there are lanes already. */
typedef int32_t np_emulator_lanes_fn(uint32_t n);
typedef void np_emulator_enter_fn(uint32_t lane);
typedef void np_emulator_leave_fn(void);

/* For lanes that wait for each other. A lane that says `rest` has no run and begins none before
 * another lane calls it: the clock need not stand for it. `call` is for what wakes a lane, once
 * what the lane waits for is there and before its thread is woken; from then on the clock stands
 * until the lane has a run, or rests again. `look` is for a lane that looks whether there is
 * anything to do, before it does. */
typedef void np_emulator_rest_fn(void);
typedef void np_emulator_look_fn(void);
typedef void np_emulator_call_fn(uint32_t lane);

/* CPU time that the simulated drivers took so far, in ns. */
typedef uint64_t np_emulator_driver_ns_fn(void);

/* Name of an accelerator whose service hangs now, NULL where none does. Never waits for it. */
typedef const char *np_emulator_stopped_fn(void);

/* The library exports them under these names: np_emulator_phone, np_emulator_error,
 * np_emulator_property, np_emulator_now, np_emulator_cpu_run, np_emulator_identity,
 * np_emulator_idle, np_emulator_temperature, np_emulator_cpu_khz,
 * np_emulator_throttled, np_emulator_lanes, np_emulator_enter, np_emulator_leave,
 * np_emulator_rest, np_emulator_look, np_emulator_call, np_emulator_driver_ns,
 * np_emulator_stopped, np_emulator_cpu_top_khz, np_emulator_governed, np_emulator_busy,
 * np_emulator_away, np_emulator_cores, np_emulator_half. */

#endif
