/* Who stands behind an NNAPI library: for nnapi*.c only. */
#ifndef NP_NNAPI_DOORS_H
#define NP_NNAPI_DOORS_H

#include "nnapi_table.h"

/* Which door a library has; `library` is NULL where NNAPI's own was asked for. */
enum np_door np_door_of(void *handle, const char *library);

/* Fills the table from a library's door. NP_MISSING with *why where the library has not got what
 * nobody can do without, or its table cannot be read. */
enum np_status np_door_fill(struct np_nnapi *nnapi, struct np_message *why);

/* A result code of this library's as NNAPI's. */
int np_door_code(const struct np_nnapi *nnapi, int code);

/* What of an accelerator the library has no functions for. */
void np_door_describe(const struct np_nnapi *nnapi, struct np_accelerator *accelerator);

#endif
