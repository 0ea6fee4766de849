/* Queries the NNAPI library in a separate process, since a vendor's library may crash or hang as
 * soon as it is opened. */
#ifndef NP_PROBE_H
#define NP_PROBE_H

#include <stdint.h>

#include "bundle.h"
#include "nnapi.h"
#include "np_executor.h"
#include "np_status.h"
#include "sysfs.h"

#define NP_PROBE_MAX_ACCELERATORS 32u
#define NP_PROBE_MAX_FUNCTIONS 128u
#define NP_PROBE_TIMEOUT_MS 15000u
#define NP_N_PROPERTIES 8u

/* The Android properties that `agent info` reads; the last one is the API level. */
extern const char *const np_property_names[NP_N_PROPERTIES];

struct np_probe {
  int opened;
  int stalled; /* it did not answer in time: a driver hangs */
  int simulated;
  struct np_message error; /* "": none */
  int broken_phone;        /* the error is that a simulated phone's description cannot be read */
  char library[512];
  enum np_door door;
  char phone[128];
  char identity[160];
  char properties[NP_N_PROPERTIES][256];  /* the simulated phone's */
  struct np_readings readings;            /* the simulated phone's */
  int64_t cores;                          /* the simulated phone's, -1: unknown */
  enum np_half half;                      /* the CPU's */
  uint8_t absent[NP_PROBE_MAX_FUNCTIONS]; /* for each function of NNAPI */
  uint32_t n_accelerators;
  struct np_accelerator accelerators[NP_PROBE_MAX_ACCELERATORS];
};

/* Opens a library (NULL: NNAPI's usual one) in a child process and describes it in *probe. Errors,
 * including a crash or a hang, go to probe->error. NP_OK, or NP_IO or NP_NO_MEMORY with *why if no
 * child could be made. */
enum np_status np_probe_library(const char *library, struct np_probe *probe,
                                struct np_message *why);

/* Finds the accelerator with a name in a list, NULL: none. */
const struct np_accelerator *np_probe_find(const struct np_accelerator *list, uint32_t n,
                                           const char *name);

/* Returns whether the accelerators that an action needs (NNAPI's choice needs all) are still the
 * same in this process as when the request began; writes the difference to *why. */
int np_probe_is_same(const struct np_probe *before, const struct np_nnapi *nnapi,
                     const struct np_bundle *bundle, struct np_message *why);

#endif
