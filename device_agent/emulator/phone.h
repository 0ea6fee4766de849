/* A simulated phone as data: the description of PHONES.md, read and checked, in ns, bytes,
 * degrees. */
#ifndef NP_PHONE_H
#define NP_PHONE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "np_graph.h"
#include "np_nnapi.h"
#include "np_status.h"

/* Operation codes 0..105 of NNAPI. */
#define NP_OPERATION_CODES 106
#define NP_MAX_ACCELERATORS 16u
#define NP_MAX_THREAD_ROWS 16u
#define NP_MAX_FUSIONS 32u
#define NP_MAX_FUSED 4u
#define NP_MAX_THROTTLES 8u
#define NP_MAX_FAULTS 32u
#define NP_MAX_LOADED 8u
#define NP_MAX_ERRORS 8u

/* Kinds of tensor data by which a device's abilities and rates differ. */
enum np_data {
  NP_DATA_FLOAT32,
  NP_DATA_RELAXED, /* float32 that may be computed as float16 */
  NP_DATA_FLOAT16,
  NP_DATA_QUANT8,
  NP_DATA_QUANT8_SIGNED,
  NP_DATA_QUANT8_SYMM,
  NP_DATA_PER_CHANNEL,
  NP_DATA_QUANT16,
  NP_DATA_INT32,
  NP_DATA_BOOL8,
  NP_DATA_KINDS,
};

/* Returns the kind of an operand type; float32 for scalars. */
enum np_data np_data_of(int32_t type, bool relaxed);

/* A number for each kind of data. */
struct np_by_data {
  double value[NP_DATA_KINDS];
};

/* Fraction of the peak rate that an operation reaches. */
struct np_efficiency {
  double by_code[NP_OPERATION_CODES]; /* 0: use fallback */
  double fallback;                    /* "default" */
};

/* The rates of the CPU engine or of an accelerator. */
struct np_unit_model {
  struct np_by_data peak;    /* MAC/ns */
  double bandwidth;          /* bytes/ns to its own memory */
  double operation_overhead; /* ns per operation */
  double heat;               /* degrees above ambient that it would reach if busy for ever */
  struct np_efficiency efficiency;
};

/* Limits within which a device supports an operation. */
struct np_terms {
  uint32_t data; /* a bit for each enum np_data; 0: not supported at all */
  uint32_t max_rank;
  int32_t level; /* NNAPI feature level by whose rules it is checked */
};

/* A chain of operations that runs as a single one. */
struct np_fusion {
  uint32_t n;
  bool takes[NP_MAX_FUSED][NP_OPERATION_CODES]; /* [n] operations allowed at each place */
};

/* The feature level that Android 10's CPU reports, a future API level; its real one is that of the
 * phone's API. */
#define NP_FUTURE_LEVEL 10000

/* Kinds of memory in which a run's bytes are passed to a driver, a bit each. */
enum np_memory_kind { NP_MEMORY_ASHMEM = 1, NP_MEMORY_FILE = 2, NP_MEMORY_MEMFD = 4 };

/* A driver as a separate process, shared by all clients. */
struct np_service {
  bool described;
  double returns;        /* ns from its death until it is back */
  double stops;          /* ns for which it hangs if a fault stops it; 0: for ever */
  uint32_t compilations; /* maximum number held at once; 0: no limit */
  uint32_t wears;        /* compilations in its life after which it is worn out; 0: no limit */
  bool wears_refuses;    /* once worn out it supports no operation; otherwise its compilations
                            fail */
  double rests;          /* ns without a compilation after which a worn-out one restarts; 0:
                            never */
  uint32_t loaded;       /* number of models whose parameters stay loaded; 0: all */
  double load;           /* extra ns of a run that loads its model */
  uint32_t load_runs;    /* number of runs of an unloaded model that take longer */
  double lingers;        /* ns for which it keeps working after its client was killed in a run */
  double lingers_factor; /* factor of the time of others' runs meanwhile */
  uint32_t memory;       /* bits of enum np_memory_kind that it can map */
  char *becomes;         /* its version after its first death, "gone": it stays away; NULL:
                            unchanged */
};

/* How a driver's results are wrong. */
enum np_error_how {
  NP_ERROR_SCALE,     /* times `amount` */
  NP_ERROR_OFFSET,    /* plus `amount`; for 8 bits in steps */
  NP_ERROR_SATURATE,  /* within +-amount */
  NP_ERROR_TRANSPOSE, /* height and width exchanged */
  NP_ERROR_CHANNELS,  /* last dimension reversed */
  NP_ERROR_BORDER,    /* the first and last rows and columns times `amount` */
  NP_ERROR_SHIFT,     /* an image's values moved by one row and one column */
  NP_ERROR_WRAP,      /* beyond +-amount values continue at the other end, like an integer
                         overflow */
  NP_ERROR_TRUNCATE,  /* float32 cut to the bits of bfloat16, 8 bits to even steps */
  NP_ERROR_ABSOLUTE,  /* without its sign */
  NP_ERROR_NAN,       /* the first value is NaN; with a channel, all of that channel */
  NP_ERROR_RACE,      /* times `amount`, in about half of all processes */
  NP_ERROR_DRIFT,     /* plus `amount` for each earlier run of the compilation */
  NP_ERROR_TILE,      /* in images, the first of every 8 columns is a copy of the one before */
  NP_ERROR_ZERO,      /* 8-bit data are read as if the zero point were 0 */
};

/* When a driver's results are wrong; bits. */
enum np_error_when {
  NP_WHEN_BURST = 1,     /* in a burst */
  NP_WHEN_SHARED = 2,    /* with inputs in shared memory */
  NP_WHEN_RELAXED = 4,   /* in a model that may be computed as float16 */
  NP_WHEN_LATER = 8,     /* in every run of a compilation but the first */
  NP_WHEN_BATCH = 16,    /* with more than one output along the first dimension */
  NP_WHEN_NEGATIVE = 32, /* for values below zero, unless values move */
};

enum { NP_EVERY_CHANNEL = -1 };

/* An operation whose outputs the driver corrupts. */
struct np_error {
  int32_t code; /* operation */
  enum np_error_how how;
  double amount;
  uint32_t rank; /* of the affected output; 0: any */
  uint32_t dims[NP_MAX_RANK];
  uint32_t when;   /* bits of enum np_error_when, all of which must hold */
  int64_t channel; /* of the last dimension; NP_EVERY_CHANNEL: all */
  int64_t result;  /* number of the output */
  int64_t from;    /* first corrupted element */
};

struct np_accelerator {
  char *name;
  char *version;
  int32_t type; /* ANEURALNETWORKS_DEVICE_* */
  int64_t feature_level;
  int64_t reported_level; /* the same, or NP_FUTURE_LEVEL */
  struct np_terms operations[NP_OPERATION_CODES];
  struct np_by_data performance; /* NNAPI's static ratio of time; the CPU's is 1 */
  struct np_by_data power;       /* likewise for power, used by PREFER_LOW_POWER */
  struct np_unit_model unit;
  double transfer_bandwidth; /* bytes/ns, inputs in and outputs out; 0: transfers are free */
  double transfer_floor;     /* fixed ns of a transfer */
  double invocation;         /* ns per execution */
  double burst_invocation;   /* ns per execution under a burst */
  double preference[3];      /* factor of time, by ANEURALNETWORKS_PREFER_* */
  double driver_share;       /* share of the CPU engine's cores that its driver uses while it
                                runs */
  double compile_fixed;      /* ns */
  double compile_operation;  /* ns per operation */
  double compile_byte;       /* ns per byte of constants */
  bool caches;               /* the driver writes compilations into a cache */
  double cached_fixed;       /* ns of a compilation from the cache */
  double cached_byte;        /* ns per byte of constants */
  struct np_fusion *fusions; /* [n_fusions], in the order in which they are tried */
  uint32_t n_fusions;
  struct np_service service;
  struct np_error errors[NP_MAX_ERRORS];
  uint32_t n_errors;
};

/* Slow-down of the phone from a temperature on. */
struct np_throttle {
  double above;  /* degrees Celsius */
  double factor; /* of the time of operations */
};

/* The phone as one body that warms and cools. */
struct np_thermal {
  double ambient;       /* degrees Celsius, also at the beginning */
  double time_constant; /* ns; 0: the phone's temperature is not described */
  struct np_throttle throttles[NP_MAX_THROTTLES]; /* rising */
  uint32_t n_throttles;
};

/* The temperature of the phone while a process lives. */
struct np_heat {
  pthread_mutex_t lock;
  double temperature;   /* degrees Celsius */
  struct np_body *body; /* the temperature that outlives the process, NULL: none */
};

/* What raises the CPU's clock while it is busy and lowers it while it rests. The first four are the
 * description's, the others change while a process lives, under the lock of the heat. */
/* What of the clock is told. */
enum np_told_clock {
  NP_TOLD_TRULY,
  NP_TOLD_STUCK, /* the highest, whatever it is */
  NP_TOLD_NOISE  /* any number */
};

struct np_governor {
  double lowest; /* of the highest clock */
  double ramp; /* ns of being busy from the lowest clock to the highest; 0: the clock is constant */
  double drop; /* ns of rest from the highest to the lowest */
  double steps;   /* clocks that there are, a whole number */
  double period;  /* ns in which the clock is held down once, whatever runs; 0: it never is, ... */
  double held;    /* ... for so many ns of them, the first ones not, ... */
  double held_to; /* ... to this part of what it would be */
  enum np_told_clock told;
  double level;   /* how far up it was when it was busy last: 0 the lowest clock, 1 the highest */
  uint64_t at_ns; /* when that was, by the simulated clock */
  double away;    /* ns of rest since that are not in the clock */
};

enum np_fault_kind {
  NP_FAULT_REFUSE,
  NP_FAULT_FAIL,
  NP_FAULT_DIE,  /* the service */
  NP_FAULT_STOP, /* the service hangs */
  NP_FAULT_HANG, /* from here on the call never returns */
  NP_FAULT_ABORT,
  NP_FAULT_CRASH,
  NP_FAULT_EXHAUST,
  /* Of executions only, which end as if nothing were wrong: */
  NP_FAULT_RESHAPE, /* the outputs' shapes are others */
  NP_FAULT_SKIP,    /* the outputs are not written */
  NP_FAULT_PARTLY,  /* their latter halves are not */
};
enum np_fault_stage { NP_FAULT_COMPILE, NP_FAULT_EXECUTE };

/* What goes wrong with the nth operation of a kind in a model. */
struct np_fault {
  enum np_fault_kind kind;
  enum np_fault_stage stage;
  int32_t code;      /* operation */
  uint32_t nth;      /* from 1, in the order of execution */
  uint64_t from_run; /* from 1: the execution of a compilation from which on it happens */
  uint64_t every;    /* of those, the first and every so many-th; 1: each */
  uint64_t times;    /* that it strikes in the life of its service; 0: any number */
  bool company;      /* only while the service of another accelerator holds compilations */
  const struct np_accelerator *accelerator; /* whose fault it is; NULL: any but CPUs */
};

/* One row of a table of speeds. */
struct np_thread_row {
  double threads;
  double speed; /* times as fast as one thread */
};

/* How the CPU engine's speed grows with the number of its threads. */
struct np_threads {
  double scaling; /* what the second thread adds, of one thread's speed, where no row tells */
  double cores;   /* threads beyond add nothing; 0: not described */
  double wake;    /* ns that a run takes longer with more than one */
  struct np_thread_row rows[NP_MAX_THREAD_ROWS]; /* ascending */
  uint32_t n_rows;
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
  struct np_unit_model cpu;  /* the agent's CPU engine, one thread */
  struct np_threads threads; /* its speed by their number */
  double contention; /* times as long while another processor is busy, beside all else; 0: 1 */
  double memory_bandwidth; /* bytes/ns that all processors share; 0: each has its own alone */
  double cpu_khz;          /* clock of the CPU where nothing throttles; 0: not described */
  struct np_accelerator accelerators[NP_MAX_ACCELERATORS];
  uint32_t n_accelerators;
  double noise_spread; /* standard deviation of the logarithm of a run's time */
  uint64_t noise_seed;
  struct np_thermal thermal;
  struct np_governor governor;
  struct np_fault faults[NP_MAX_FAULTS];
  uint32_t n_faults;
  char identity[17]; /* hex of a hash over the file's bytes and the injected faults */
  struct np_heat heat;
};

/* Reads the description at `path` into *phone, which the caller frees with np_phone_free.
 * NP_IO where the file cannot be read, NP_BAD_REQUEST with the JSON path, what was found and what
 * was wanted, NP_NO_MEMORY; *phone is NULL then and *why tells. */
enum np_status np_phone_load(const char *path, struct np_phone **phone, struct np_message *why);

/* The same from bytes in memory. */
enum np_status np_phone_parse(const char *bytes, size_t length, struct np_phone **phone,
                              struct np_message *why);

/* Adds the faults of NNAPI_EMULATOR_FAULTS to a phone and to its identity: PHONES.md has the
 * grammar. NP_OK, or NP_BAD_REQUEST with the reason in *why. */
enum np_status np_phone_inject(struct np_phone *phone, const char *text, struct np_message *why);

/* Frees a phone; NULL is allowed. */
void np_phone_free(struct np_phone *phone);

/* Value of an Android system property of the phone, NULL where it has none. */
const char *np_phone_property(const struct np_phone *phone, const char *name);

/* Whether the description lets an accelerator take an operation of a checked graph: its kind, its
 * data, its ranks, the level of its form, and that no fault refuses it. */
bool np_phone_takes(const struct np_phone *phone, const struct np_accelerator *accelerator,
                    const struct np_graph *graph, uint32_t operation, bool relaxed);

/* The phone's CPU as NNAPI's own CPU path, where the phone describes no accelerator of type CPU:
 * the CPU engine without invocation, transfer or compilation. */
void np_phone_host_cpu(const struct np_phone *phone, struct np_accelerator *cpu);

/* Whether operation `operation` of a graph, run by an accelerator, is the one that a fault is
 * about. */
bool np_fault_meets(const struct np_fault *fault, const struct np_accelerator *accelerator,
                    const struct np_graph *graph, uint32_t operation);

/* The phone spends `ns` with something busy that heats it towards `heat` degrees above the
 * ambient; 0 is idle. */
void np_phone_spend(struct np_phone *phone, uint64_t ns, double heat);

/* Lets the phone's temperature outlive the process, in the file at `path`, which is made where it
 * is not there: by the host's clock it cools while no process uses it. NP_OK, or NP_IO with *why.
 */
enum np_status np_phone_keep_body(struct np_phone *phone, const char *path, struct np_message *why);

/* The clock of the CPU at a moment of the simulated clock, of its highest. */
double np_governor_ratio(struct np_phone *phone, uint64_t now_ns);

/* How long the CPU takes from that moment on for what takes `ns` at its highest clock, and in
 * *level how far up the governor is then: for np_governor_stop, when it is done. */
double np_governor_run(struct np_phone *phone, uint64_t now_ns, double ns, double *level);
/* The same where it is busy for `ns`, whatever it gets done. */
double np_governor_busy(struct np_phone *phone, uint64_t now_ns, uint64_t ns);
void np_governor_stop(struct np_phone *phone, uint64_t now_ns, double level);

/* The CPU rests for `ns` that are not in the simulated clock. */
void np_governor_rest(struct np_phone *phone, uint64_t ns);

/* Temperature in degrees Celsius, and the factor by which it slows operations. */
double np_phone_temperature(struct np_phone *phone);
double np_phone_throttle(struct np_phone *phone);

#endif
