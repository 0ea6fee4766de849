/* The emulator with the interface of an NNAPI support library: its functions in a table. */
#include "np_doors.h"
#include "np_nnapi.h"

/* Functions of level 5 (API 31) that the emulator lacks are NULL, as in vendors' tables. */
#define OF_27
#define OF_28
#define OF_29
#define OF_30
#define OF_31 __attribute__((weak, visibility("hidden")))
#define DECLARE(type, name, parameters, level) OF_##level type name parameters;
NP_NNAPI_FUNCTIONS(DECLARE)

/* The header's table, including the functions after those of np_doors.h: for caches, performance
 * and diagnostics, which the emulator lacks. */
struct whole_table {
  struct np_sl_table known;
  np_sl_function *further[33];
};

#define PRESENT(name) .name = (np_sl_function *)(name),
#define ABSENT(name) .name = NULL,

/* The emulator has operations of level 7 at most; tables of levels 5 to 8 are alike. */
static const struct whole_table table = {
    .known = {.implFeatureLevel = ANEURALNETWORKS_FEATURE_LEVEL_7,
              NP_SL_FUNCTIONS(PRESENT, ABSENT)}};

__attribute__((visibility("default"))) const void *ANeuralNetworks_getSLDriverImpl(void);

const void *ANeuralNetworks_getSLDriverImpl(void) { return &table; }
