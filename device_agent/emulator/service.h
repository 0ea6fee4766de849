/* The drivers of a simulated phone as services: what all processes share of them. PHONES.md,
 * "Services", says what they do.
 *
 * Their state lies in a file that every process of the phone maps; times in it are the host's, as
 * the simulated clock is each process's own. */
#ifndef NP_SERVICE_H
#define NP_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "np_nnapi.h"
#include "phone.h"

/* Opens the services' state of a phone at `path`, or where that is NULL in the temporary folder,
 * under the phone's identity. Does nothing for a phone without services. NP_OK, or NP_IO. */
enum np_status np_services_open(const struct np_phone *phone, const char *path,
                                struct np_message *why);

/* The version under which an accelerator of the phone is listed, NULL where it is gone. */
const char *np_service_version(const struct np_phone *phone, uint32_t accelerator);

/* Waits as the listing of devices does: until no service hangs and all are there. */
void np_services_await(void);

/* Name of a service that hangs now, NULL where none does. Never waits. */
const char *np_services_stopped(void);

/* A compilation enters its steps' services: NO_ERROR; DEAD_OBJECT where one is dead;
 * RESOURCE_EXHAUSTED_TRANSIENT where one holds as many as it can. Waits while one hangs. */
int np_service_compile(ANeuralNetworksCompilation *compilation);

/* Whether a service supports nothing, as it is worn out. */
bool np_service_refuses(const struct np_accelerator *accelerator);

/* The compilation is freed. */
void np_service_release(ANeuralNetworksCompilation *compilation);

/* A run begins: NO_ERROR; DEAD_OBJECT where a service died since the compilation; OP_FAILED where
 * the driver may not map the execution's memory. *factor is how many times as long it takes, and
 * *load_ns what it takes longer, for the model has to be loaded. Waits while a service hangs. */
int np_service_begin(const ANeuralNetworksExecution *execution, double *factor, double *load_ns);

/* The run that began is over. */
void np_service_end(const ANeuralNetworksExecution *execution);

/* Whether a fault that strikes so many times only, or in company, does now, which counts. */
bool np_service_strikes(const struct np_fault *fault);

/* A fault lets the service of a compilation's accelerator die, or hang; each returns what the call
 * in which that happens does. */
int np_service_die(const ANeuralNetworksCompilation *compilation, const struct np_fault *fault);
int np_service_stop(const ANeuralNetworksCompilation *compilation, const struct np_fault *fault);

/* The kind of a descriptor's memory, a bit of enum np_memory_kind. */
uint32_t np_memory_kind_of(int fd);

#endif
