/* Which driver hangs, where NNAPI does not answer. */
#ifndef NP_STALL_H
#define NP_STALL_H

#define NP_STALL_BYTES 128u

/* The name of the driver, as far as that can be known: 0 where it cannot. That of a simulated
 * phone's, or of a driver's process that stands still. */
int np_stalled_driver(const char *library, char name[NP_STALL_BYTES]);

#endif
