// What runs where in the program that was loaded last, of all its delegated calls.
#pragma once
#include "nnapi_prof_runtime.h"

#include <cstddef>
#include <cstdint>

namespace nnapi_prof {

// Notes a model that was loaded, and logs one line. Models of one program have one address
// `program`; nullptr: it is a program of its own.
void describe(const void *program, const nnp_model *model);

// Notes and logs it again, as it runs now; nothing is noted where another program was loaded since.
void describe_again(const nnp_model *model);

// The model is about to be freed: another one may have its address.
void forget(const nnp_model *model);

} // namespace nnapi_prof

extern "C" {
// As nnp_model_describe_line, a line of each delegated call: at most size - 1 characters and a
// zero; the length of all, 0 before any program was loaded.
size_t nnapi_prof_executorch_describe(char *text, size_t size);
// As nnp_model_describe; segments are numbered from call to call. Texts live until a program is
// loaded or a segment falls back.
uint32_t nnapi_prof_executorch_units(nnp_unit *units, uint32_t room);
}
