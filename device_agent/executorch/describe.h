// Describes where the delegated calls of the program loaded last run.
#pragma once
#include "nnapi_prof_runtime.h"

#include <cstddef>
#include <cstdint>

namespace nnapi_prof {

// Records a loaded model and logs one line. Models of one program share the address `program`;
// nullptr: the model is a program of its own.
void describe(const void *program, const nnp_model *model);

// Records and logs a model again, as it runs now. Does nothing if another program was loaded since.
void describe_again(const nnp_model *model);

// Unlinks a model that is about to be freed, since another one may get its address.
void forget(const nnp_model *model);

} // namespace nnapi_prof

extern "C" {
// Writes nnp_model_describe_line's line for each delegated call: at most size - 1 characters and a
// zero. Returns the length of all lines, 0 before any program was loaded.
size_t nnapi_prof_executorch_describe(char *text, size_t size);
// Does what nnp_model_describe does, for all delegated calls; segments are numbered across calls.
// Strings live until a program is loaded or a segment falls back.
uint32_t nnapi_prof_executorch_units(nnp_unit *units, uint32_t room);
}
