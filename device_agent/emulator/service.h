/* The drivers of a simulated phone as services, whose state all processes share. PHONES.md,
 * "Services", describes them.
 *
 * Every process of the phone maps the file with their state. Times in it are the host's, since each
 * process has its own simulated clock. */
#ifndef NP_SERVICE_H
#define NP_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "np_nnapi.h"
#include "phone.h"

/* Opens the services' state of a phone at `path`, or, if that is NULL, in the temporary folder
 * under the phone's identity. Does nothing for a phone without services. NP_OK, or NP_IO. */
enum np_status np_services_open(const struct np_phone *phone, const char *path,
                                struct np_message *why);

/* Returns the version under which an accelerator of the phone is listed, NULL if it is gone. */
const char *np_service_version(const struct np_phone *phone, uint32_t accelerator);

/* Waits, as listing the devices does, until no service hangs and all are present. */
void np_services_await(void);

/* Returns the name of a service that hangs now, NULL if none does. Never waits. */
const char *np_services_stopped(void);

/* Adds a compilation to its steps' services: NO_ERROR; DEAD_OBJECT if one is dead;
 * RESOURCE_EXHAUSTED_TRANSIENT if one is full. Waits while one hangs. */
int np_service_compile(ANeuralNetworksCompilation *compilation);

/* Returns whether a service supports nothing because it is worn out. */
bool np_service_refuses(const struct np_accelerator *accelerator);

/* Removes a compilation that is being freed. */
void np_service_release(ANeuralNetworksCompilation *compilation);

/* Begins a run: NO_ERROR; DEAD_OBJECT if a service died since the compilation; OP_FAILED if the
 * driver cannot map the execution's memory. *factor is the factor by which the run takes longer,
 * and *load_ns the extra time to load the model. Waits while a service hangs. */
int np_service_begin(const ANeuralNetworksExecution *execution, double *factor, double *load_ns);

/* Ends a run that began. */
void np_service_end(const ANeuralNetworksExecution *execution);

/* Returns whether a fault that strikes a limited number of times, or only in company, strikes now,
 * and counts it if so. */
bool np_service_strikes(const struct np_fault *fault);

/* Let the service of a compilation's accelerator die, or hang, because of a fault; each returns the
 * result of the call in which that happens. */
int np_service_die(const ANeuralNetworksCompilation *compilation, const struct np_fault *fault);
int np_service_stop(const ANeuralNetworksCompilation *compilation, const struct np_fault *fault);

/* The kind of a descriptor's memory, a bit of enum np_memory_kind. */
uint32_t np_memory_kind_of(int fd);

#endif
