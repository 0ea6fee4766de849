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
  uint32_t rank; /* the affected output's; 0: any */
  uint32_t dims[NP_MAX_RANK];
  uint32_t when;   /* bits of enum np_error_when, all of which must hold */
  int64_t channel; /* index in the last dimension; NP_EVERY_CHANNEL: all */
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
  double factor; /* factor on the time of operations */
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

/* The CPU clock that the phone reports. */
enum np_told_clock {
  NP_TOLD_TRULY,
  NP_TOLD_STUCK, /* always the highest */
  NP_TOLD_NOISE  /* any number */
};

/* The governor, which raises the CPU's clock while it is busy and lowers it while it rests. The
 * last three fields change while a process lives, under the lock of the heat. */
struct np_governor {
  double lowest;  /* the lowest clock, as a share of the highest */
  double ramp;    /* busy ns from the lowest clock to the highest; 0: the clock is constant */
  double drop;    /* ns of rest from the highest to the lowest */
  double steps;   /* number of clocks, a whole number */
  double period;  /* ns, in each of which the clock is capped once, whatever runs; 0: never */
  double held;    /* ns of each period, at its end, in which it is capped */
  double held_to; /* share of the normal clock that the cap leaves */
  enum np_told_clock told;
  double level;   /* level when last busy: 0 the lowest clock, 1 the highest */
  uint64_t at_ns; /* time when last busy, by the simulated clock */
  double away;    /* ns of rest since then that the simulated clock does not include */
};

enum np_fault_kind {
  NP_FAULT_REFUSE,
  NP_FAULT_FAIL,
  NP_FAULT_DIE,  /* the service */
  NP_FAULT_STOP, /* the service hangs */
  NP_FAULT_HANG, /* the call and all later ones never return */
  NP_FAULT_ABORT,
  NP_FAULT_CRASH,
  NP_FAULT_EXHAUST,
  /* For executions only, which report success: */
  NP_FAULT_RESHAPE, /* the outputs have other shapes */
  NP_FAULT_SKIP,    /* the outputs are not written */
  NP_FAULT_PARTLY,  /* the second halves of the outputs are not written */
};
enum np_fault_stage { NP_FAULT_COMPILE, NP_FAULT_EXECUTE };

/* A fault of the nth operation of a kind in a model. */
struct np_fault {
  enum np_fault_kind kind;
  enum np_fault_stage stage;
  int32_t code;      /* operation */
  uint32_t nth;      /* from 1, in the order of execution */
  uint64_t from_run; /* from 1: the first execution of a compilation that it affects */
  uint64_t every;    /* it affects the first of those and every nth after it; 1: each */
  uint64_t times;    /* how often it strikes in the life of its service; 0: no limit */
  bool company;      /* only while another accelerator's service holds compilations */
  const struct np_accelerator *accelerator; /* the one with the fault; NULL: any except CPUs */
};

/* One row of a table of speeds. */
struct np_thread_row {
  double threads;
  double speed; /* times as fast as one thread */
};

/* How the CPU engine's speed grows with the number of its threads. */
struct np_threads {
  double scaling; /* speed added by the second thread, as a share of one thread's, if there are no
                     rows */
  double cores;   /* further threads add nothing; 0: not described */
  double wake;    /* extra ns of a run with more than one thread */
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
  struct np_threads threads; /* its speed by number of threads */
  double contention;       /* further slow-down factor while another processor is busy; 0 means 1 */
  double memory_bandwidth; /* bytes/ns that all processors share; 0: each has only its own */
  double cpu_khz;          /* clock of the CPU without throttling; 0: not described */
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

/* Reads the description at `path` into *phone, which the caller frees with np_phone_free. NP_IO if
 * the file cannot be read, NP_BAD_REQUEST with the JSON path, what was found and what was wanted,
 * or NP_NO_MEMORY; *phone is NULL then, and *why says why. */
enum np_status np_phone_load(const char *path, struct np_phone **phone, struct np_message *why);

/* Reads a description from bytes in memory. */
enum np_status np_phone_parse(const char *bytes, size_t length, struct np_phone **phone,
                              struct np_message *why);

/* Adds the faults in `text`, NNAPI_EMULATOR_FAULTS, to a phone and to its identity; the grammar is
 * in PHONES.md. NP_OK, or NP_BAD_REQUEST with the reason in *why. */
enum np_status np_phone_inject(struct np_phone *phone, const char *text, struct np_message *why);

/* Frees a phone; NULL is allowed. */
void np_phone_free(struct np_phone *phone);

/* Returns an Android system property of the phone, NULL if it has none. */
const char *np_phone_property(const struct np_phone *phone, const char *name);

/* Returns whether an accelerator supports an operation of a checked graph: its code, data, ranks
 * and the level of its form must be described, and no fault may refuse it. */
bool np_phone_takes(const struct np_phone *phone, const struct np_accelerator *accelerator,
                    const struct np_graph *graph, uint32_t operation, bool relaxed);

/* Makes NNAPI's own CPU path for a phone that describes no accelerator of type CPU: the CPU engine
 * without invocation, transfer or compilation time. */
void np_phone_host_cpu(const struct np_phone *phone, struct np_accelerator *cpu);

/* Returns whether an operation of a graph, run by an accelerator, is the one that a fault
 * affects. */
bool np_fault_meets(const struct np_fault *fault, const struct np_accelerator *accelerator,
                    const struct np_graph *graph, uint32_t operation);

/* Lets the phone spend `ns` with a load that heats it towards `heat` degrees above ambient; 0:
 * idle. */
void np_phone_spend(struct np_phone *phone, uint64_t ns, double heat);

/* Keeps the phone's temperature beyond the process in the file at `path`, which is created if
 * necessary; while no process uses it, it cools by the host's clock. NP_OK, or NP_IO with *why. */
enum np_status np_phone_keep_body(struct np_phone *phone, const char *path, struct np_message *why);

/* Returns the clock of the CPU at a simulated time, as a share of its highest. */
double np_governor_ratio(struct np_phone *phone, uint64_t now_ns);

/* Returns the time in ns that the CPU takes, from that time on, for work that takes `ns` at its
 * highest clock; *level is the governor's level afterwards, for np_governor_stop. */
double np_governor_run(struct np_phone *phone, uint64_t now_ns, double ns, double *level);
/* Does the same for a CPU that is busy for `ns`, however much it computes. */
double np_governor_busy(struct np_phone *phone, uint64_t now_ns, uint64_t ns);
void np_governor_stop(struct np_phone *phone, uint64_t now_ns, double level);

/* Lets the CPU rest for `ns` that the simulated clock does not include. */
void np_governor_rest(struct np_phone *phone, uint64_t ns);

/* Return the temperature in degrees Celsius, and the factor by which it slows operations. */
double np_phone_temperature(struct np_phone *phone);
double np_phone_throttle(struct np_phone *phone);

#endif
