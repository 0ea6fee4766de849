/* Inside the emulator's libneuralnetworks.so: its objects, and what its files share.
 *
 * api_*.c    the public C API, one file per object
 * validate.c the rules of operand types
 * device.c   the device table, the only global state, built once
 * run.c      one execution from its arguments to its results
 * simulate.c what a compilation or execution takes on a simulated phone
 * phone.c, latency.c, partition.c, clock.c   simulated phones
 *
 * Nothing is reference-counted: as NNAPI's headers demand, a model outlives its compilations, a
 * compilation its executions, and a memory whatever reads or writes it. */
#ifndef NP_EMULATOR_INTERNAL_H
#define NP_EMULATOR_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "latency.h"
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

/* The level at which models are checked: that of Android 11. */
#define NP_RUNTIME_LEVEL ANEURALNETWORKS_FEATURE_LEVEL_4

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
  const struct np_accelerator *accelerator; /* NULL in real time */
};

struct np_device_table {
  struct ANeuralNetworksDevice devices[NP_MAX_ACCELERATORS];
  uint32_t n_devices;
  struct np_phone *phone;         /* NULL in real time */
  struct np_accelerator host_cpu; /* the phone's CPU where it has no CPU accelerator */
  bool verbose;
  char error[512];           /* why there is no device; empty where all is well */
  _Atomic uint64_t clock_ns; /* the simulated clock */
  _Atomic uint64_t cpu_runs; /* calls of np_emulator_cpu_run so far */
};

/* The table, built at the first call of the process; only its clock changes afterwards. */
struct np_device_table *np_device_table(void);

/* Whether the handle is one of the table's. */
bool np_device_known(const ANeuralNetworksDevice *device);

/* Whether the device runs operation `operation` of a checked graph. */
bool np_device_supports(const ANeuralNetworksDevice *device, const struct np_graph *graph,
                        uint32_t operation);

/* Checks a caller's list of devices: NO_ERROR, UNEXPECTED_NULL or BAD_DATA. */
int np_check_device_list(const ANeuralNetworksDevice *const *devices, uint32_t n_devices);

/* ---- clock -----------------------------------------------------------------------------------*/

/* The simulated clock, or CLOCK_MONOTONIC in real time; ns. */
uint64_t np_clock_now(void);

/* Advances the simulated clock. */
void np_clock_advance(uint64_t ns);

/* ---- model -----------------------------------------------------------------------------------*/

struct np_model_operand {
  void *copy; /* a small value's copy, owned, or NULL */
  float *channel_scales;
  uint32_t n_channel_scales;
  uint32_t channel_dim;
  bool valued; /* setOperandValue* was called */
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

/* Whether a dimension of a tensor is unknown, or its rank. */
bool np_has_unknown_dims(const struct np_operand *operand);

/* Combines a model operand's dimensions with those of an execution's operand type. `type` may be
 * NULL. NO_ERROR and *rank, dims; or BAD_DATA where they contradict each other or where unknown
 * ones remain although `allow_unknown` is not set. */
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
  bool from_desc;        /* used whole, in its roles only */
  struct np_role *roles; /* from_desc: copied from the descriptor */
  uint32_t n_roles;
  atomic_bool initialized; /* from_desc: an execution or a copy has written it */
};

/* Bytes [offset, offset + length) of a memory as input or output `index` of a compilation:
 * NO_ERROR and *data, or BAD_DATA. For a memory from a descriptor offset and length are 0, *length
 * becomes its size, and the role must be one of its. */
int np_memory_range(const ANeuralNetworksMemory *memory, const struct np_role *role, size_t offset,
                    size_t *length, void **data);

/* ---- compilation -----------------------------------------------------------------------------*/

struct ANeuralNetworksCompilation {
  const ANeuralNetworksModel *model;
  const ANeuralNetworksDevice *devices[NP_MAX_ACCELERATORS];
  uint32_t n_devices;
  bool explicit_devices; /* from createForDevices */
  int32_t preference;
  bool finished, usable;
  struct np_executor *executor;
  struct np_simulation simulation; /* simulated phones only */
  pthread_mutex_t lock;            /* one run at a time */
};

/* Whether one device was named: what timing and deadlines need. */
bool np_single_device(const ANeuralNetworksCompilation *compilation);

/* ---- execution -------------------------------------------------------------------------------*/

enum np_argument_kind { NP_ARGUMENT_UNSET, NP_ARGUMENT_OMITTED, NP_ARGUMENT_GIVEN };

struct np_argument {
  enum np_argument_kind kind;
  void *data;
  size_t length;
  uint32_t rank; /* as known before the run; an output's is set by the run */
  uint32_t dims[NP_MAX_RANK];
  bool too_small;
  ANeuralNetworksMemory *memory; /* where it is one from a descriptor, else NULL */
};

enum np_execution_state { NP_PREPARING, NP_RUNNING, NP_COMPLETED };

struct ANeuralNetworksExecution {
  ANeuralNetworksCompilation *compilation;
  struct np_argument *inputs, *outputs;
  bool measure;
  atomic_int state; /* enum np_execution_state */
  int result;       /* once completed */
  uint64_t hardware_ns, driver_ns;
  struct ANeuralNetworksEvent *event; /* of an asynchronous run, shared */
};

struct ANeuralNetworksBurst {
  const ANeuralNetworksCompilation *compilation;
  atomic_bool busy;
};

/* Runs an execution whose state the caller has set to NP_RUNNING; sets result, times and state.
 * Returns the result. */
int np_execution_run(ANeuralNetworksExecution *execution, bool burst);

/* Moves a prepared execution to NP_RUNNING: NO_ERROR; BAD_STATE where it was started before;
 * BAD_DATA where an input or output is not set. */
int np_execution_begin(ANeuralNetworksExecution *execution, const char *function);

/* ---- event -----------------------------------------------------------------------------------*/

/* A promise of a result. Shared by its maker's handle, the execution and the thread; the last one
 * to release it frees it. */
struct ANeuralNetworksEvent {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool done;
  int result;
  int fence; /* file descriptor whose readability is the signal, or -1 */
  atomic_int owners;
};

/* A new event with `owners` owners, NULL where memory is short. */
ANeuralNetworksEvent *np_event_new(int owners, int fence);
void np_event_signal(ANeuralNetworksEvent *event, int result);
int np_event_wait(ANeuralNetworksEvent *event);
void np_event_release(ANeuralNetworksEvent *event);

#endif
