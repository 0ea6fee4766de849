/* The NNAPI library of this device, opened at run time, and the engine over it. */
#ifndef NP_NNAPI_ENGINE_H
#define NP_NNAPI_ENGINE_H

#include <stdint.h>

#include "engine.h"
#include "np_status.h"

#define NP_NNAPI_LIBRARY "libneuralnetworks.so"

/* An open library. */
struct np_nnapi;

/* How a library has NNAPI's functions. */
enum np_door {
  NP_DOOR_NNAPI,           /* by their names: libneuralnetworks.so */
  NP_DOOR_SUPPORT_LIBRARY, /* in a table: a vendor's NNAPI support library */
  NP_DOOR_NEURON           /* by other names: MediaTek's NeuronAdapter */
};

/* "nnapi", "support library", "neuron adapter". */
const char *np_door_text(enum np_door door);

/* Opens a library (NULL: NP_NNAPI_LIBRARY) and looks up every function of NNAPI, by whichever door
 * it has. Functions may be absent: the API grew. NP_MISSING with the linker's words in *why, or
 * what another door than NNAPI's lacks; NP_NO_MEMORY. */
enum np_status np_nnapi_open(const char *library, struct np_nnapi **nnapi, struct np_message *why);

/* Lets go of a library: the last of those who opened or hold it closes it. NULL does nothing. */
void np_nnapi_close(struct np_nnapi *nnapi);

/* Keeps a library open until one more np_nnapi_close. */
void np_nnapi_hold(struct np_nnapi *nnapi);

/* The library's file as the linker found it, "" where it does not tell. Valid while open. */
const char *np_nnapi_path(const struct np_nnapi *nnapi);

enum np_door np_nnapi_door(const struct np_nnapi *nnapi);

/* Any symbol of the library, NULL where absent. */
void *np_nnapi_symbol(const struct np_nnapi *nnapi, const char *name);

/* How many functions NNAPI has, the name of one, and whether the library has it. */
uint32_t np_nnapi_n_functions(void);
const char *np_nnapi_function_name(uint32_t index);
int np_nnapi_has_function(const struct np_nnapi *nnapi, uint32_t index);

/* A result code that NNAPI does not have and NeuronAdapter has. */
#define NP_CODE_BAD_VERSION 1008

/* Name of an NNAPI result code. */
const char *np_nnapi_result_text(int code);

/* "ACCELERATOR", "GPU", "CPU", "OTHER", "UNKNOWN". */
const char *np_nnapi_type_text(int32_t type);

struct np_accelerator {
  char name[128];
  char version[128];
  int32_t type; /* ANEURALNETWORKS_DEVICE_* */
  int64_t feature_level;
};

/* Describes accelerators [0, *n): at most `room` of them, *n is how many there are. Those of
 * another door than NNAPI's are called NAME@FILE, after their library's file: they are others than
 * NNAPI's of the same name. A library that cannot name accelerators (before API 29) has none.
 * NP_RUN_FAILED with the failed call in *why. */
enum np_status np_nnapi_accelerators(const struct np_nnapi *nnapi,
                                     struct np_accelerator *accelerators, uint32_t room,
                                     uint32_t *n, struct np_message *why);

/* The engine over an open library, which must outlive it. */
struct np_engine np_nnapi_engine(struct np_nnapi *nnapi);

#endif
