/* RANDOM_MULTINOMIAL: draws classes with the probabilities given by logits.
 *
 * The numbers are those of TensorFlow's Philox generator, which Android's reference uses: the same
 * seeds draw the same classes. */
#define _POSIX_C_SOURCE 200809L

#include <math.h>
#include <string.h>
#include <time.h>

#include "kernels/np_kernel.h"

/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): a counter, a
 * key, and the unused rest of the previous counter's block. */
struct philox {
  uint32_t counter[4];
  uint32_t key[2];
  uint32_t block[4];
  uint32_t used;
};

static void next_block(struct philox *philox) {
  uint32_t *block = philox->block;
  uint32_t key[2] = {philox->key[0], philox->key[1]};
  memcpy(block, philox->counter, sizeof philox->block);
  for (int round = 0; round < 10; round++) {
    const uint64_t a = (uint64_t)block[0] * 0xd2511f53u;
    const uint64_t b = (uint64_t)block[2] * 0xcd9e8d57u;
    block[0] = (uint32_t)(b >> 32) ^ block[1] ^ key[0];
    block[1] = (uint32_t)b;
    block[2] = (uint32_t)(a >> 32) ^ block[3] ^ key[1];
    block[3] = (uint32_t)a;
    key[0] += 0x9e3779b9u;
    key[1] += 0xbb67ae85u;
  }
  for (int i = 0; i < 4 && ++philox->counter[i] == 0; i++) {
  }
  philox->used = 0;
}

static uint32_t next_word(struct philox *philox) {
  if (philox->used == 4) {
    next_block(philox);
  }
  return philox->block[philox->used++];
}

/* Returns a number in [0, 1) of 52 random bits. */
static double next_double(struct philox *philox) {
  const uint64_t high = next_word(philox) & 0xfffffu;
  const uint64_t low = next_word(philox);
  return (double)(high << 32 | low) / 4503599627370496.0;
}

/* Seeds the generator, which uses 64-bit seeds, sign included. Two zeros mean seeds that differ
 * from run to run. */
static struct philox seeded(const int32_t seeds[2]) {
  uint64_t key = (uint64_t)(int64_t)seeds[0];
  uint64_t counter = (uint64_t)(int64_t)seeds[1];
  if (key == 0 && counter == 0) {
    struct timespec now = {0, 0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* fails for unknown clocks only */
    key = (uint64_t)now.tv_sec;
    counter = (uint64_t)now.tv_nsec;
  }
  return (struct philox){
      .counter = {0, 0, (uint32_t)counter, (uint32_t)(counter >> 32)},
      .key = {(uint32_t)key, (uint32_t)(key >> 32)},
      .used = 4,
  };
}

/* Inputs: logits [batches, classes], number of samples, seeds [2]. */
static enum np_status multinomial_infer(const struct np_call *call) {
  const struct np_tensor *logits = np_in(call, 0);
  int32_t samples;
  if (!logits->known) {
    return NP_MISSING;
  }
  NP_TRY(np_read_i32(call, 1, &samples));
  if (logits->rank != 2 || samples < 0) {
    return np_fail(call, NP_BAD_MODEL, "%d samples of logits of rank %u, wanted 0 or more of 2",
                   samples, logits->rank);
  }
  const uint32_t dims[2] = {logits->dims[0], (uint32_t)samples};
  return np_set_shape(call, 0, 2, dims);
}

static size_t multinomial_scratch(const struct np_call *call) {
  return np_mul_saturated(np_in(call, 0)->dims[1], sizeof(double));
}

/* Computes the cumulative sums of the probabilities, which do not add up to 1; returns the last.
 * Classes whose logits are not finite have probability 0. */
static double accumulate(const float *logits, uint32_t classes, double *sums) {
  float most = -HUGE_VALF;
  for (uint32_t i = 0; i < classes; i++) {
    most = isfinite(logits[i]) && logits[i] > most ? logits[i] : most;
  }
  double total = 0.0;
  for (uint32_t i = 0; i < classes; i++) {
    total += isfinite(logits[i]) ? exp((double)logits[i] - (double)most) : 0.0;
    sums[i] = total;
  }
  return total;
}

/* Returns the first class whose sum exceeds a number below the last sum. */
static uint32_t find_class(const double *sums, uint32_t classes, double number) {
  uint32_t low = 0;
  uint32_t high = classes - 1;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (sums[middle] > number) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

static enum np_status multinomial_run(const struct np_call *call) {
  const struct np_tensor *logits = np_in(call, 0);
  const struct np_tensor *output = np_out(call, 0);
  const uint32_t classes = logits->dims[1];
  const int32_t *seeds;
  size_t n;
  NP_TRY(np_read_list(call, 2, &seeds, &n));
  if (n != 2) {
    return np_fail(call, NP_BAD_MODEL, "%zu seeds, wanted 2", n);
  }
  struct philox philox = seeded(seeds);
  double *sums = call->scratch;
  int32_t *out = output->room;
  for (uint32_t b = 0; output->elements > 0 && b < output->dims[0]; b++) {
    const float *row = (const float *)logits->data + (size_t)b * classes;
    const double total = accumulate(row, classes, sums);
    if (!(total > 0.0)) {
      return np_fail(call, NP_BAD_MODEL, "row %u has no finite logit to draw by", b);
    }
    for (uint32_t i = 0; i < output->dims[1]; i++) {
      *out++ = (int32_t)find_class(sums, classes, next_double(&philox) * total);
    }
  }
  return NP_OK;
}

const struct np_kernel np_kernel_RANDOM_MULTINOMIAL = {.types = NP_FLOATS,
                                                       .infer = multinomial_infer,
                                                       .scratch = multinomial_scratch,
                                                       .run = multinomial_run};
