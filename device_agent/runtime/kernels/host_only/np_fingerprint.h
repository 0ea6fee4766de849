/* Returns FarmHash's Fingerprint64 (github.com/google/farmhash), a hash that never changes between
 * versions; LSH_PROJECTION is defined by it. */
#ifndef NP_FINGERPRINT_H
#define NP_FINGERPRINT_H

#include <stddef.h>
#include <stdint.h>

uint64_t np_fingerprint(const unsigned char *bytes, size_t n);

#endif
