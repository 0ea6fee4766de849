/* The interface ("door") of an NNAPI library: for nnapi*.c only. */
#ifndef NP_NNAPI_DOORS_H
#define NP_NNAPI_DOORS_H

#include "nnapi_table.h"

/* Returns the door of a library; `library` is NULL for NNAPI's own. */
enum np_door np_door_of(void *handle, const char *library);

/* Fills the table from a library's door. NP_MISSING with *why if an essential function is missing,
 * or its table cannot be read. */
enum np_status np_door_fill(struct np_nnapi *nnapi, struct np_message *why);

/* Converts a result code of this library to NNAPI's. */
int np_door_code(const struct np_nnapi *nnapi, int code);

/* Fills in the attributes of an accelerator for which the library has no functions. */
void np_door_describe(const struct np_nnapi *nnapi, struct np_accelerator *accelerator);

#endif
