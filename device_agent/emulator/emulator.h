/* Internals of the emulator's libneuralnetworks.so: its objects, and declarations its files share.
 *
 * api_*.c    the public C API, one file per object
 * validate.c the rules of operand types; referenced.c those of models that IF and WHILE name
 * device.c   the device table, the only global state, built once
 * cache.c    files of compilations
 * slots.c    the executors of a compilation
 * run.c      one execution from its arguments to its results
 * simulate.c what a compilation or execution takes on a simulated phone
 * service.c  drivers of simulated phones as services, whose state all processes share
 * phone.c, latency.c, partition.c, clock.c, lanes.c   simulated phones
 *
 * Nothing is reference-counted. As NNAPI's headers require, a model outlives its compilations, a
 * compilation its executions, and a memory everything that reads or writes it. */
#ifndef NP_EMULATOR_INTERNAL_H
#define NP_EMULATOR_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "latency.h"
#include "miscompute.h"
#include "np_emulator.h"
#include "np_executor.h"
#include "np_graph.h"
#include "phone.h"
#include "simulate.h"

/* Prototypes of all functions of the API, visible outside the library. */
#define NP_DECLARE(type, name, parameters, level)                                                  \
  __attribute__((visibility("default"))) type name parameters;
NP_NNAPI_FUNCTIONS(NP_DECLARE)
#undef NP_DECLARE

/* The library's feature level unless NNAPI_EMULATOR_FEATURE_LEVEL sets another: that of Android 11,
 * whose functions it has. */
#define NP_DEFAULT_LEVEL ANEURALNETWORKS_FEATURE_LEVEL_4

/* Returns `code`; with NNAPI_EMULATOR_VERBOSE set, writes the reason to standard error, as Android
 * writes it to its log. */
int np_refuse(int code, const char *function, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define NP_REFUSE(code, ...) np_refuse(ANEURALNETWORKS_##code, __func__, __VA_ARGS__)

/* Returns the result code for a status of the kernel library. */
int np_result_code(enum np_status status);

/* ---- devices ---------------------------------------------------------------------------------*/

struct ANeuralNetworksDevice {
  const char *name;
  const char *version;
  int32_t type;
  int64_t feature_level;
  int64_t reported_level;                   /* the same, or NP_FUTURE_LEVEL */
  const struct np_accelerator *accelerator; /* NULL in real time */
  const struct np_backend *backend;         /* computes its results */
};

struct np_device_table {
  struct ANeuralNetworksDevice devices[NP_MAX_ACCELERATORS];
  uint32_t n_devices;
  struct np_phone *phone;         /* NULL in real time */
  struct np_accelerator host_cpu; /* the phone's CPU, if it has no CPU accelerator */
  int32_t level;                  /* feature level at which models are checked */
  bool verbose;
  char error[512];           /* why there is no device; "": no error */
  _Atomic uint64_t clock_ns; /* the simulated clock */
  _Atomic uint64_t cpu_runs; /* calls of np_emulator_cpu_run so far */
};

/* Returns the table, built at the process's first call; only its clock changes afterwards. */
struct np_device_table *np_device_table(void);

/* Returns whether the handle is in the table. */
bool np_device_known(const ANeuralNetworksDevice *device);

/* Returns whether the device runs an operation of a finished model. */
bool np_device_supports(const ANeuralNetworksDevice *device, const ANeuralNetworksModel *model,
                        uint32_t operation);

/* Checks a caller's list of devices: NO_ERROR, UNEXPECTED_NULL or BAD_DATA. */
int np_check_device_list(const ANeuralNetworksDevice *const *devices, uint32_t n_devices);

/* ---- clock -----------------------------------------------------------------------------------*/

/* Returns the simulated clock, or CLOCK_MONOTONIC in real time, in ns. */
uint64_t np_clock_now(void);

/* Advances the simulated clock. */
void np_clock_advance(uint64_t ns);

/* ---- lanes: threads that are processors of a simulated phone, see np_emulator.h
 * ----------------*/

#define NP_MAX_LANES 8u

int32_t np_lanes_begin(uint32_t n);
void np_lanes_enter(uint32_t lane);
void np_lanes_leave(void);
void np_lanes_rest(void);
void np_lanes_look(void);
void np_lanes_call(uint32_t lane);

/* Returns the calling thread's lane, -1 for none. */
int np_lanes_mine(void);

/* Returns the CPU time that drivers used so far, in ns. */
uint64_t np_lanes_driver_ns(void);

/* ---- model -----------------------------------------------------------------------------------*/

struct np_model_operand {
  void *copy;                             /* owned copy of a value, or NULL */
  float *channel_scales;                  /* owned */
  const ANeuralNetworksModel *referenced; /* for NP_TYPE_MODEL, once it is set */
};

struct ANeuralNetworksModel {
  struct np_graph graph;          /* operands, operations, inputs and outputs are owned */
  struct np_model_operand *extra; /* [n_operands] */
  struct np_operand *declared;    /* [n_operands] as the caller gave them; set by finish */
  uint32_t *order;                /* [n_operations] index as added, of each sorted operation */
  uint32_t operand_room, operation_room;
  bool relaxed, identified, finished, invalid;
};

/* Returns NO_ERROR, or BAD_STATE if the model is finished or finish has refused it. */
int np_model_check_open(const ANeuralNetworksModel *model, const char *function);

/* Returns from the calling API function if the model is not open. */
#define NP_TRY_OPEN(model)                                                                         \
  do {                                                                                             \
    const int np_open = np_model_check_open(model, __func__);                                      \
    if (np_open != ANEURALNETWORKS_NO_ERROR)                                                       \
      return np_open;                                                                              \
  } while (0)

/* Makes an array with room for `room` elements large enough for one more than `used`; returns 0 if
 * memory is short. Its room is then np_grown_room(used, room). */
int np_grow(void **array, uint32_t used, uint32_t room, size_t element);
uint32_t np_grown_room(uint32_t used, uint32_t room);

/* Checks an operand type: NO_ERROR or BAD_DATA; see validate.c. */
int np_check_operand_type(const ANeuralNetworksOperandType *type, bool allow_partial);

/* Checks the models of an IF or WHILE against its operands, as Android does: counts, types, known
 * dimensions and quantisation must agree. NO_ERROR or BAD_DATA; NO_ERROR for other operations. */
int np_check_referenced_models(const ANeuralNetworksModel *model,
                               const struct np_operation *operation);

/* Returns whether dimensions agree where both are known; rank 0 is unknown. */
bool np_dims_agree(uint32_t a_rank, const uint32_t *a, uint32_t b_rank, const uint32_t *b);

/* Returns whether a tensor's rank or one of its dimensions is unknown. */
bool np_has_unknown_dims(const struct np_operand *operand);

/* Combines a model operand's dimensions with those of an execution's operand type, which may be
 * NULL. NO_ERROR and *rank, dims; or BAD_DATA if they contradict each other, or unknown ones remain
 * although `allow_unknown` is not set. As in Android 10 to 13, `type` must be valid but only its
 * dimensions count: element type, scale and zero point remain the model's. */
int np_combine_dims(const struct np_operand *operand, const ANeuralNetworksOperandType *type,
                    bool allow_unknown, uint32_t *rank, uint32_t *dims);

/* ---- memory ----------------------------------------------------------------------------------*/

enum np_role_kind { NP_ROLE_INPUT, NP_ROLE_OUTPUT };

struct np_role {
  const ANeuralNetworksCompilation *compilation;
  uint32_t index;
  enum np_role_kind kind;
};

struct ANeuralNetworksMemoryDesc {
  struct np_role *roles;
  uint32_t n_roles;
  struct np_operand operand; /* on which all roles agree */
  uint32_t rank;             /* set by setDimensions; 0 is none */
  uint32_t dims[NP_MAX_RANK];
  bool finished;
};

struct ANeuralNetworksMemory {
  unsigned char *data;
  size_t size;
  bool readable, writable;
  uint32_t kind;             /* enum np_memory_kind of its descriptor, 0: it has none */
  bool from_desc;            /* used as a whole, and only in its roles */
  struct np_role *roles;     /* from_desc: copied from the descriptor */
  struct np_operand operand; /* from_desc: its contents; the dimensions are known */
  uint32_t n_roles;
  atomic_bool initialized; /* from_desc: the last execution or copy into it succeeded */
};

/* Finds bytes [offset, offset + length) of a memory for a role, an input or output of a
 * compilation: NO_ERROR and *data, or BAD_DATA. For a memory from a descriptor, offset and length
 * must be 0 and the role one of its roles; *length becomes its size. */
int np_memory_range(const ANeuralNetworksMemory *memory, const struct np_role *role, size_t offset,
                    size_t *length, void **data);

/* ---- compilation -----------------------------------------------------------------------------*/

/* One of a compilation's executors; busy while an execution uses it. */
struct np_slot {
  struct np_executor *executor;
  atomic_bool busy;
  struct np_miscompute miscompute; /* for accelerators with errors */
  uint64_t n_runs;
  struct np_slot *next;
};

/* The cache location of a compilation; see cache.c. */
struct np_cache_location {
  char *folder; /* owned, NULL: no caching */
  uint8_t token[ANEURALNETWORKS_BYTE_SIZE_OF_CACHE_TOKEN];
};

struct ANeuralNetworksCompilation {
  const ANeuralNetworksModel *model;
  const ANeuralNetworksDevice *devices[NP_MAX_ACCELERATORS];
  uint32_t n_devices;
  bool explicit_devices; /* from createForDevices */
  int32_t preference, priority;
  uint64_t timeout_ns; /* limit of finish; 0: none */
  struct np_cache_location cache;
  bool finished, usable;
  struct np_slot *_Atomic slots;   /* grows only */
  struct np_simulation simulation; /* simulated phones only */
  pthread_mutex_t lock;            /* simulated phones only: one run at a time */
};

/* Returns whether one device was named, which timing and deadlines require. */
bool np_single_device(const ANeuralNetworksCompilation *compilation);

/* Returns the time `duration` from now, in ns of np_clock_now; NP_NEVER for 0. */
uint64_t np_deadline_after(uint64_t duration);

/* Acquires an executor for exclusive use until it is released: a free one, without a lock, or a new
 * one if all are busy. NULL with *status and *why if none can be made. */
struct np_slot *np_slot_acquire(ANeuralNetworksCompilation *compilation, enum np_status *status,
                                struct np_message *why);
void np_slot_release(struct np_slot *slot);
void np_slots_free(ANeuralNetworksCompilation *compilation);

/* Returns whether a compilation's cache file matches the compilation. */
bool np_cache_hit(const ANeuralNetworksCompilation *compilation);

/* Writes that file; a failure goes only to the log, and nothing is cached. */
void np_cache_store(const ANeuralNetworksCompilation *compilation);

/* ---- execution -------------------------------------------------------------------------------*/

enum np_argument_kind { NP_ARGUMENT_UNSET, NP_ARGUMENT_OMITTED, NP_ARGUMENT_GIVEN };

struct np_argument {
  enum np_argument_kind kind;
  void *data;
  size_t length;
  uint32_t rank; /* the shape known before the run; the run sets an output's */
  uint32_t dims[NP_MAX_RANK];
  bool too_small;
  bool shared;                   /* it is in a memory object */
  ANeuralNetworksMemory *memory; /* if from a descriptor, else NULL */
};

enum np_execution_state { NP_PREPARING, NP_RUNNING, NP_COMPLETED };

struct ANeuralNetworksExecution {
  ANeuralNetworksCompilation *compilation;
  struct np_argument *inputs, *outputs;
  struct np_buffer *input_buffers, *output_buffers; /* the executor's view of the arguments */
  uint32_t memory_kinds;                            /* kinds of its arguments' memories, bits */
  bool measure;
  bool reusable;
  uint64_t timeout_ns;      /* 0: none */
  uint64_t loop_timeout_ns; /* 0: the default */
  uint64_t deadline_ns;     /* by np_clock_now, NP_NEVER: none; set when it begins */
  atomic_int state;         /* enum np_execution_state */
  int result;               /* once completed */
  uint64_t hardware_ns, driver_ns;
  uint64_t waited_ns;                 /* for dependencies, before driver_ns */
  int lane;                           /* the lane that began it, -1 for none */
  const struct np_fault *silent;      /* an injected fault that the result does not show, or NULL */
  struct ANeuralNetworksEvent *event; /* an asynchronous run's; shared */
};

struct ANeuralNetworksBurst {
  const ANeuralNetworksCompilation *compilation;
  atomic_bool busy;
};

/* Moves a prepared execution to NP_RUNNING: NO_ERROR; BAD_STATE if it was started before; BAD_DATA
 * if an input or output is not set; OP_FAILED if an input is a memory without contents. */
int np_execution_begin(ANeuralNetworksExecution *execution, const char *function);

/* Runs an execution that has begun, for at most `duration` ns unless that is 0; sets result, times
 * and state. Returns the result. In real time it allocates nothing and takes no lock, except to add
 * an executor if all are busy. */
int np_execution_run(ANeuralNetworksExecution *execution, bool burst, uint64_t duration);

/* Ends an execution that has begun without a run. */
void np_execution_abandon(ANeuralNetworksExecution *execution, int result);

/* ---- event -----------------------------------------------------------------------------------*/

/* The promise of a result, shared by its maker's handle, the execution and the thread; the last one
 * to release it frees it.
 *
 * Linux has no sync fences outside Android's kernels. Any file descriptor stands in for one: it has
 * signalled when poll() finds it readable, and failed when poll() reports an error or a hang-up but
 * no data. An execution with dependencies has the reading end of a pipe: if it succeeds, a byte is
 * written (and never read, so that every duplicate stays readable); if it fails, the pipe is closed
 * empty. */
struct ANeuralNetworksEvent {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool foreign; /* made from a foreign descriptor: only `fence` counts */
  bool done;
  int result;
  int fence;  /* the descriptor that signals, or -1 */
  int signal; /* the writing end of an execution's own pipe, or -1 */
  atomic_int owners;
};

/* Makes an event of an execution, NULL if memory is short. With `fenced` it has a fence, if the
 * process has descriptors left. */
ANeuralNetworksEvent *np_event_new(int owners, bool fenced);
void np_event_signal(ANeuralNetworksEvent *event, int result);
int np_event_wait(ANeuralNetworksEvent *event);
void np_event_release(ANeuralNetworksEvent *event);

#endif
