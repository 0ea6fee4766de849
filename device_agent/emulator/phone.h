/* A simulated phone as data: what PHONES.md describes, read and checked, in ns and bytes. */
#ifndef NP_PHONE_H
#define NP_PHONE_H

#include <stdbool.h>
#include <stdint.h>

#include "np_nnapi.h"
#include "np_status.h"

/* Operation codes 0..105 of NNAPI. */
#define NP_OPERATION_CODES 106
#define NP_MAX_ACCELERATORS 16u

/* Fraction of the peak rate that an operation reaches. */
struct np_efficiency {
  double by_code[NP_OPERATION_CODES]; /* 0: take fallback */
  double fallback;                    /* "default" */
};

/* What computes: the CPU engine or an accelerator. */
struct np_unit_model {
  double peak;               /* MAC/ns, float32 */
  double relaxed_peak;       /* MAC/ns where float32 may be computed as float16 */
  double bandwidth;          /* bytes/ns of its own memory */
  double operation_overhead; /* ns per operation */
  struct np_efficiency efficiency;
};

struct np_accelerator {
  char *name;
  char *version;
  int32_t type; /* ANEURALNETWORKS_DEVICE_* */
  int64_t feature_level;
  bool operations[NP_OPERATION_CODES]; /* what the description lets it do */
  double performance;                  /* NNAPI's static ratio; the CPU's is 1 */
  struct np_unit_model unit;
  double transfer_bandwidth; /* bytes/ns, inputs in and outputs out; 0: transfers are free */
  double invocation;         /* ns per execution */
  double burst_invocation;   /* ns per execution under a burst */
  double preference[3];      /* factor of time, by ANEURALNETWORKS_PREFER_* */
  double compile_fixed;      /* ns */
  double compile_operation;  /* ns per operation */
  double compile_byte;       /* ns per byte of constants */
};

struct np_property {
  char *name;
  char *value;
};

struct np_phone {
  char *name;
  char *description;
  struct np_property *properties;
  uint32_t n_properties;
  struct np_unit_model cpu; /* the agent's CPU engine, one thread */
  double thread_scaling;    /* what the second thread adds, of one thread's speed */
  struct np_accelerator accelerators[NP_MAX_ACCELERATORS];
  uint32_t n_accelerators;
  double noise_spread; /* standard deviation of the logarithm of a run's time */
  uint64_t noise_seed;
  char identity[17]; /* hex of a hash over the file's bytes */
};

/* Reads the description at `path` into *phone, which the caller frees with np_phone_free.
 * NP_IO where the file cannot be read, NP_BAD_REQUEST with the JSON path, what was found and what
 * was wanted, NP_NO_MEMORY; *phone is NULL then and *why tells. */
enum np_status np_phone_load(const char *path, struct np_phone **phone, struct np_message *why);

/* The same from bytes in memory. */
enum np_status np_phone_parse(const char *bytes, size_t length, struct np_phone **phone,
                              struct np_message *why);

/* Frees a phone; NULL is allowed. */
void np_phone_free(struct np_phone *phone);

/* Value of an Android system property of the phone, NULL where it has none. */
const char *np_phone_property(const struct np_phone *phone, const char *name);

#endif
