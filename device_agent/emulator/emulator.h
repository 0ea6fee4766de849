/* Inside the emulator's libneuralnetworks.so: its objects, and what its files share.
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
 * Nothing is reference-counted: as NNAPI's headers demand, a model outlives its compilations, a
 * compilation its executions, and a memory whatever reads or writes it. */
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

/* The feature level that the library has unless NNAPI_EMULATOR_FEATURE_LEVEL says another: that of
 * Android 11, whose functions it has. */
#define NP_DEFAULT_LEVEL ANEURALNETWORKS_FEATURE_LEVEL_4

/* Returns `code`; with NNAPI_EMULATOR_VERBOSE set, the reason goes to standard error as Android's
 * would go to its log. */
int np_refuse(int code, const char *function, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define NP_REFUSE(code, ...) np_refuse(ANEURALNETWORKS_##code, __func__, __VA_ARGS__)

/* The result code that tells of a kernel library's status. */
int np_result_code(enum np_status status);

/* ---- devices ---------------------------------------------------------------------------------*/

struct ANeuralNetworksDevice {
  const char *name;
  const char *version;
  int32_t type;
  int64_t feature_level;
  int64_t reported_level;                   /* what it says that is: the same, or NP_FUTURE_LEVEL */
  const struct np_accelerator *accelerator; /* NULL in real time */
  const struct np_backend *backend;         /* what computes */
};

struct np_device_table {
  struct ANeuralNetworksDevice devices[NP_MAX_ACCELERATORS];
  uint32_t n_devices;
  struct np_phone *phone;         /* NULL in real time */
  struct np_accelerator host_cpu; /* the phone's CPU where it has no CPU accelerator */
  int32_t level;                  /* the feature level at which models are checked */
  bool verbose;
  char error[512];           /* why there is no device; empty where all is well */
  _Atomic uint64_t clock_ns; /* the simulated clock */
  _Atomic uint64_t cpu_runs; /* calls of np_emulator_cpu_run so far */
};

/* The table, built at the first call of the process; only its clock changes afterwards. */
struct np_device_table *np_device_table(void);

/* Whether the handle is one of the table's. */
bool np_device_known(const ANeuralNetworksDevice *device);

/* Whether the device runs operation `operation` of a finished model. */
bool np_device_supports(const ANeuralNetworksDevice *device, const ANeuralNetworksModel *model,
                        uint32_t operation);

/* Checks a caller's list of devices: NO_ERROR, UNEXPECTED_NULL or BAD_DATA. */
int np_check_device_list(const ANeuralNetworksDevice *const *devices, uint32_t n_devices);

/* ---- clock -----------------------------------------------------------------------------------*/

/* The simulated clock, or CLOCK_MONOTONIC in real time; ns. */
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

/* The lane that the calling thread is, -1 for none. */
int np_lanes_mine(void);

/* CPU time that drivers took so far. */
uint64_t np_lanes_driver_ns(void);

/* ---- model -----------------------------------------------------------------------------------*/

struct np_model_operand {
  void *copy;                             /* owned copy of a value, or NULL */
  float *channel_scales;                  /* owned */
  const ANeuralNetworksModel *referenced; /* of NP_TYPE_MODEL, once it is set */
};

struct ANeuralNetworksModel {
  struct np_graph graph;          /* operands, operations, inputs and outputs are owned */
  struct np_model_operand *extra; /* [n_operands] */
  struct np_operand *declared;    /* [n_operands] as the caller gave them; set by finish */
  uint32_t *order;                /* [n_operations] index as added, of each sorted operation */
  uint32_t operand_room, operation_room;
  bool relaxed, identified, finished, invalid;
};

/* NO_ERROR, or BAD_STATE where the model is finished or finish has refused it. */
int np_model_check_open(const ANeuralNetworksModel *model, const char *function);

/* Returns from the calling function of the API where the model is not open. */
#define NP_TRY_OPEN(model)                                                                         \
  do {                                                                                             \
    const int np_open = np_model_check_open(model, __func__);                                      \
    if (np_open != ANEURALNETWORKS_NO_ERROR)                                                       \
      return np_open;                                                                              \
  } while (0)

/* Makes an array with room for `room` elements hold one more than `used`; 0 where memory is short.
 * Its room is np_grown_room(used, room) then. */
int np_grow(void **array, uint32_t used, uint32_t room, size_t element);
uint32_t np_grown_room(uint32_t used, uint32_t room);

/* Checks an operand type: NO_ERROR or BAD_DATA; see validate.c. */
int np_check_operand_type(const ANeuralNetworksOperandType *type, bool allow_partial);

/* Checks the models that an IF or WHILE names against its operands, as Android does: counts, types,
 * known dimensions and quantisation agree. NO_ERROR or BAD_DATA; NO_ERROR for other operations. */
int np_check_referenced_models(const ANeuralNetworksModel *model,
                               const struct np_operation *operation);

/* Whether dimensions agree where both are known; rank 0 is an unknown one. */
bool np_dims_agree(uint32_t a_rank, const uint32_t *a, uint32_t b_rank, const uint32_t *b);

/* Whether a dimension of a tensor is unknown, or its rank. */
bool np_has_unknown_dims(const struct np_operand *operand);

/* Combines a model operand's dimensions with those of an execution's operand type. `type` may be
 * NULL. NO_ERROR and *rank, dims; or BAD_DATA where they contradict each other or where unknown
 * ones remain although `allow_unknown` is not set. As in Android 10 to 13, `type` is one that may
 * be, and nothing else of it counts: element type, scale and zero point remain the model's. */
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
  struct np_operand operand; /* what all roles agree on */
  uint32_t rank;             /* set by setDimensions; 0 is none */
  uint32_t dims[NP_MAX_RANK];
  bool finished;
};

struct ANeuralNetworksMemory {
  unsigned char *data;
  size_t size;
  bool readable, writable;
  uint32_t kind;             /* enum np_memory_kind of its descriptor, 0: it has none */
  bool from_desc;            /* used whole, in its roles only */
  struct np_role *roles;     /* from_desc: copied from the descriptor */
  struct np_operand operand; /* from_desc: what lies in it; its dimensions are known */
  uint32_t n_roles;
  atomic_bool initialized; /* from_desc: the last execution or copy into it succeeded */
};

/* Bytes [offset, offset + length) of a memory as input or output `index` of a compilation:
 * NO_ERROR and *data, or BAD_DATA. For a memory from a descriptor offset and length are 0, *length
 * becomes its size, and the role must be one of its. */
int np_memory_range(const ANeuralNetworksMemory *memory, const struct np_role *role, size_t offset,
                    size_t *length, void **data);

/* ---- compilation -----------------------------------------------------------------------------*/

/* One of the executors of a compilation; busy while an execution has it. */
struct np_slot {
  struct np_executor *executor;
  atomic_bool busy;
  struct np_miscompute miscompute; /* of accelerators that compute something else */
  uint64_t n_runs;
  struct np_slot *next;
};

/* Where a compilation is cached; see cache.c. */
struct np_cache_location {
  char *folder; /* owned, NULL where caching was not asked for */
  uint8_t token[ANEURALNETWORKS_BYTE_SIZE_OF_CACHE_TOKEN];
};

struct ANeuralNetworksCompilation {
  const ANeuralNetworksModel *model;
  const ANeuralNetworksDevice *devices[NP_MAX_ACCELERATORS];
  uint32_t n_devices;
  bool explicit_devices; /* from createForDevices */
  int32_t preference, priority;
  uint64_t timeout_ns; /* of finish; 0 is none */
  struct np_cache_location cache;
  bool finished, usable;
  struct np_slot *_Atomic slots;   /* grows only */
  struct np_simulation simulation; /* simulated phones only */
  pthread_mutex_t lock;            /* simulated phones only: one run at a time */
};

/* Whether one device was named: what timing and deadlines need. */
bool np_single_device(const ANeuralNetworksCompilation *compilation);

/* When `duration` from now is over, NP_NEVER for 0; ns of np_clock_now. */
uint64_t np_deadline_after(uint64_t duration);

/* An executor that nobody else uses until it is released: one that is free, without a lock, or a
 * new one where all are busy. NULL and *why where there is none to be had, and *status. */
struct np_slot *np_slot_acquire(ANeuralNetworksCompilation *compilation, enum np_status *status,
                                struct np_message *why);
void np_slot_release(struct np_slot *slot);
void np_slots_free(ANeuralNetworksCompilation *compilation);

/* Whether the file of a compilation's cache fits the compilation. */
bool np_cache_hit(const ANeuralNetworksCompilation *compilation);

/* Writes that file; where that fails, nothing is cached and nothing said but to the log. */
void np_cache_store(const ANeuralNetworksCompilation *compilation);

/* ---- execution -------------------------------------------------------------------------------*/

enum np_argument_kind { NP_ARGUMENT_UNSET, NP_ARGUMENT_OMITTED, NP_ARGUMENT_GIVEN };

struct np_argument {
  enum np_argument_kind kind;
  void *data;
  size_t length;
  uint32_t rank; /* as known before the run; an output's is set by the run */
  uint32_t dims[NP_MAX_RANK];
  bool too_small;
  bool shared;                   /* lies in a memory object */
  ANeuralNetworksMemory *memory; /* where it is one from a descriptor, else NULL */
};

enum np_execution_state { NP_PREPARING, NP_RUNNING, NP_COMPLETED };

struct ANeuralNetworksExecution {
  ANeuralNetworksCompilation *compilation;
  struct np_argument *inputs, *outputs;
  struct np_buffer *input_buffers, *output_buffers; /* the executor's view of them */
  uint32_t memory_kinds;                            /* of its arguments, bits */
  bool measure;
  bool reusable;
  uint64_t timeout_ns;      /* 0 is none */
  uint64_t loop_timeout_ns; /* 0 is the default */
  uint64_t deadline_ns;     /* of np_clock_now, NP_NEVER; set when it begins */
  atomic_int state;         /* enum np_execution_state */
  int result;               /* once completed */
  uint64_t hardware_ns, driver_ns;
  uint64_t waited_ns;                 /* for dependencies, before driver_ns */
  int lane;                           /* that began it, -1 for none */
  const struct np_fault *silent;      /* an injected fault that the result does not tell, or NULL */
  struct ANeuralNetworksEvent *event; /* of an asynchronous run, shared */
};

struct ANeuralNetworksBurst {
  const ANeuralNetworksCompilation *compilation;
  atomic_bool busy;
};

/* Moves a prepared execution to NP_RUNNING: NO_ERROR; BAD_STATE where it was started before;
 * BAD_DATA where an input or output is not set; OP_FAILED where an input is a memory without
 * content. */
int np_execution_begin(ANeuralNetworksExecution *execution, const char *function);

/* Runs an execution that has begun, for at most `duration` ns where that is not 0; sets result,
 * times and state. Returns the result. In real time it allocates nothing and takes no lock, but to
 * add an executor where all are busy. */
int np_execution_run(ANeuralNetworksExecution *execution, bool burst, uint64_t duration);

/* Ends an execution that has begun without a run. */
void np_execution_abandon(ANeuralNetworksExecution *execution, int result);

/* ---- event -----------------------------------------------------------------------------------*/

/* A promise of a result. Shared by its maker's handle, the execution and the thread; the last one
 * to release it frees it.
 *
 * Linux has no sync fences outside Android's kernels. What stands for one is any file descriptor:
 * it has signalled when poll() finds it readable, and failed when it reports an error or a hang-up
 * without that. An execution with dependencies has the reading end of a pipe: a byte is written
 * where it succeeds (and never read, so that every duplicate stays readable), and the pipe is
 * closed empty where it fails. */
struct ANeuralNetworksEvent {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool foreign; /* made of somebody's descriptor: `fence` alone tells */
  bool done;
  int result;
  int fence;  /* the descriptor that signals, or -1 */
  int signal; /* the writing end of an execution's own pipe, or -1 */
  atomic_int owners;
};

/* A new event of an execution, NULL where memory is short. With `fenced` it has a fence, where the
 * process has descriptors left. */
ANeuralNetworksEvent *np_event_new(int owners, bool fenced);
void np_event_signal(ANeuralNetworksEvent *event, int result);
int np_event_wait(ANeuralNetworksEvent *event);
void np_event_release(ANeuralNetworksEvent *event);

#endif
