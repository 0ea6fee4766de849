/* MobileNetV2 with random weights as a list of layers. */
#ifndef BENCH_NETWORK_H
#define BENCH_NETWORK_H

#include <stddef.h>
#include <stdint.h>

enum { MOST_LAYERS = 80, IMAGE = 224, CLASSES = 1000 };

enum kind { CONV, DEPTHWISE, ADD, POOL, DENSE };

/* One layer; it makes tensor number (its index + 1); tensor 0 is the image. */
struct layer {
  enum kind kind;
  uint32_t from, other; /* tensors read; `other` is ADD's */
  uint32_t kernel, stride, size_in, size_out, in, out;
  int relu6;
  float *weights, *bias;
};

extern struct layer layers[MOST_LAYERS];
extern uint32_t n_layers;
extern float *image; /* [IMAGE, IMAGE, 3] */

/* Fills the list. */
void make_network(void);

/* Returns n values in [-range, range), with room behind them for XNNPACK's reads. */
float *random_floats(size_t n, float range);

/* Ends the program with a message; check does so if a status is not 0. */
void die(const char *what);
void check(int status, const char *what);

#endif
