/* Finds the driver that hangs when NNAPI does not answer. */
#ifndef NP_STALL_H
#define NP_STALL_H

#define NP_STALL_BYTES 128u

/* Finds the name of the hanging driver: a simulated phone's, or that of a driver's process that is
 * stuck. Returns 0 if it cannot be known. */
int np_stalled_driver(const char *library, char name[NP_STALL_BYTES]);

#endif
