/* Matrix product of 8-bit data: sums[m, n] = a[m, k] * weights[n, k] in 32-bit integers, and the
 * conversion of sums to quantised outputs.
 *
 * Both factors are int16 with their zero points subtracted, so that compilers turn the loops into
 * multiply-and-add-pairs instructions. Rows are padded with zeros to a whole number of vectors. */
#ifndef NP_QGEMM_H
#define NP_QGEMM_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/np_kernel.h"
#include "kernels/np_quant.h"

/* Returns the number of elements of a padded row of k, SIZE_MAX on overflow. */
size_t np_q_row(size_t k);

/* Returns the number of int16 elements that packed weights [n, k] need; SIZE_MAX on overflow. */
size_t np_q_packed(size_t n, size_t k);

/* Copies n values of 8-bit data, less their zero point. */
void np_q_widen(const struct np_operand *operand, const unsigned char *from, size_t n, int16_t *to);

/* Packs 8-bit weights [n, k]; symmetric types have zero point 0 whatever the operand says. */
void np_q_pack(const struct np_operand *operand, const unsigned char *weights, size_t n, size_t k,
               int16_t *packed);

/* Computes sums[m, n] (row stride n) from rows of a, each np_q_row(k) long and padded with zeros.
 * Sums that do not fit saturate. */
void np_q_gemm(size_t m, size_t n, size_t k, const int16_t *a, const int16_t *packed,
               int32_t *sums);

/* How the sums of n channels become outputs. */
struct np_q_finish {
  const int32_t *bias;                     /* [n] or NULL */
  const struct np_multiplier *multipliers; /* [n] */
  int32_t zero_point, low, high;           /* the output's */
};

/* Computes out[i] = limit(zero_point + (sums[i] + bias[i]) * multipliers[i]). */
void np_q_finish_row(const struct np_q_finish *finish, size_t n, const int32_t *sums,
                     unsigned char *out);

/* ---- Rules and scales of weights (input 1) and bias (input 2) ------------------------------- */

/* Returns whether input 0 is quantised. */
int np_q_data(const struct np_call *call);

/* Checks NNAPI's rules for a quantised weighted sum over input 0: a bias with zero point 0 and
 * scale input x weights (0 if weights have a scale for each channel), and scales along
 * `channel_dim`. The shape of the weights must be known. Accepts floats, and any scale of the bias
 * if input 0 has no elements, as Android's reference does. */
enum np_status np_q_check_weights(const struct np_call *call, uint32_t channel_dim);

/* Computes the multipliers of n output channels from a checked operation's scales. */
void np_q_multipliers(const struct np_call *call, size_t n, struct np_multiplier *multipliers);

/* Sets limits and zero point of output 0 under a fuse code; the caller sets bias and
 * multipliers. */
enum np_status np_q_finish_of(const struct np_call *call, int32_t fuse, struct np_q_finish *finish);

#endif
