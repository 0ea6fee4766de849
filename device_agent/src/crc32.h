/* CRC-32 as in zlib and PNG: polynomial 0xEDB88320 (reflected), initial value and final xor
 * 0xFFFFFFFF. */
#ifndef NP_CRC32_H
#define NP_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Returns the CRC of the bytes that gave `crc`, followed by these; start with crc 0. */
uint32_t np_crc32(uint32_t crc, const void *bytes, size_t n_bytes);

#endif
