/* The NNAPI library of this device, opened at run time, and the engine over it. */
#ifndef NP_NNAPI_ENGINE_H
#define NP_NNAPI_ENGINE_H

#include <stdint.h>

#include "engine.h"
#include "np_status.h"

#define NP_NNAPI_LIBRARY "libneuralnetworks.so"

/* An open library. */
struct np_nnapi;

/* How a library provides NNAPI's functions. */
enum np_door {
  NP_DOOR_NNAPI,           /* under their names: libneuralnetworks.so */
  NP_DOOR_SUPPORT_LIBRARY, /* in a table: a vendor's NNAPI support library */
  NP_DOOR_NEURON           /* under other names: MediaTek's NeuronAdapter */
};

/* Returns "nnapi", "support library" or "neuron adapter". */
const char *np_door_text(enum np_door door);

/* Opens a library (NULL: NP_NNAPI_LIBRARY) and looks up every function of NNAPI through its door.
 * Functions may be absent, since the API grew. NP_MISSING with the linker's message in *why, or
 * with what a door other than NNAPI's lacks; NP_NO_MEMORY. */
enum np_status np_nnapi_open(const char *library, struct np_nnapi **nnapi, struct np_message *why);

/* Releases a library; the last release closes it. NULL does nothing. */
void np_nnapi_close(struct np_nnapi *nnapi);

/* Keeps a library open until one more call of np_nnapi_close. */
void np_nnapi_hold(struct np_nnapi *nnapi);

/* Returns the library's file as the linker found it, "" if unknown. Valid while open. */
const char *np_nnapi_path(const struct np_nnapi *nnapi);

enum np_door np_nnapi_door(const struct np_nnapi *nnapi);

/* Returns any symbol of the library, NULL if absent. */
void *np_nnapi_symbol(const struct np_nnapi *nnapi, const char *name);

/* Return the number of NNAPI functions, the name of one, and whether the library has it. */
uint32_t np_nnapi_n_functions(void);
const char *np_nnapi_function_name(uint32_t index);
int np_nnapi_has_function(const struct np_nnapi *nnapi, uint32_t index);

/* A result code of NeuronAdapter that NNAPI lacks. */
#define NP_CODE_BAD_VERSION 1008

/* Returns the name of an NNAPI result code. */
const char *np_nnapi_result_text(int code);

/* Returns "ACCELERATOR", "GPU", "CPU", "OTHER" or "UNKNOWN". */
const char *np_nnapi_type_text(int32_t type);

struct np_accelerator {
  char name[128];
  char version[128];
  int32_t type; /* ANEURALNETWORKS_DEVICE_* */
  int64_t feature_level;
};

/* Describes the first `room` accelerators; *n is how many there are. Those of a door other than
 * NNAPI's are called NAME@FILE, after their library's file, since they differ from NNAPI's of the
 * same name. A library that cannot name accelerators (before API 29) has none. NP_RUN_FAILED with
 * the failed call in *why. */
enum np_status np_nnapi_accelerators(const struct np_nnapi *nnapi,
                                     struct np_accelerator *accelerators, uint32_t room,
                                     uint32_t *n, struct np_message *why);

/* Returns the engine over an open library, which must outlive it. */
struct np_engine np_nnapi_engine(struct np_nnapi *nnapi);

#endif
