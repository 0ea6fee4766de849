#include "bench_network.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <xnnpack.h>

struct layer layers[MOST_LAYERS];
uint32_t n_layers;
float *image;

void die(const char *what) {
  fprintf(stderr, "bench_backends: %s\n", what);
  exit(1);
}

void check(int status, const char *what) {
  if (status != 0) {
    fprintf(stderr, "bench_backends: %s gives %d\n", what, status);
    exit(1);
  }
}

float *random_floats(size_t n, float range) {
  static uint64_t state = 1;
  float *values = aligned_alloc(64, (n * sizeof *values + XNN_EXTRA_BYTES + 63) / 64 * 64);
  if (values == NULL) {
    die("no memory");
  }
  for (size_t i = 0; i < n; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    values[i] = range * ((float)(state >> 40) / 8388608.0f - 1.0f);
  }
  return values;
}

static uint32_t add(struct layer layer) {
  const size_t taps = layer.kind == DEPTHWISE ? 9 : (size_t)layer.kernel * layer.kernel * layer.in;
  const uint32_t stride = layer.stride;
  layer.size_out =
      layer.kind == POOL || layer.kind == DENSE ? 1 : (layer.size_in + stride - 1) / stride;
  if (layer.kind == CONV || layer.kind == DEPTHWISE || layer.kind == DENSE) {
    layer.weights = random_floats(taps * layer.out, sqrtf(6.0f / (float)taps));
    layer.bias = random_floats(layer.out, 0.1f);
  }
  layers[n_layers++] = layer;
  return n_layers;
}

void make_network(void) {
  static const uint32_t BLOCKS[][4] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                       {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  image = random_floats((size_t)IMAGE * IMAGE * 3, 1.0f);
  uint32_t at = add((struct layer){CONV, 0, 0, 3, 2, IMAGE, 0, 3, 32, 1, NULL, NULL});
  uint32_t size = IMAGE / 2;
  uint32_t channels = 32;
  for (size_t b = 0; b < sizeof BLOCKS / sizeof *BLOCKS; b++) {
    for (uint32_t i = 0; i < BLOCKS[b][2]; i++) {
      const uint32_t first = at;
      const uint32_t wide = channels * BLOCKS[b][0];
      const uint32_t stride = i == 0 ? BLOCKS[b][3] : 1;
      if (BLOCKS[b][0] != 1) {
        at = add((struct layer){CONV, at, 0, 1, 1, size, 0, channels, wide, 1, NULL, NULL});
      }
      at = add((struct layer){DEPTHWISE, at, 0, 3, stride, size, 0, wide, wide, 1, NULL, NULL});
      size = (size + stride - 1) / stride;
      at = add((struct layer){CONV, at, 0, 1, 1, size, 0, wide, BLOCKS[b][1], 0, NULL, NULL});
      if (stride == 1 && channels == BLOCKS[b][1]) {
        at = add((struct layer){ADD, at, first, 1, 1, size, 0, channels, channels, 0, NULL, NULL});
      }
      channels = BLOCKS[b][1];
    }
  }
  at = add((struct layer){CONV, at, 0, 1, 1, size, 0, channels, 1280, 1, NULL, NULL});
  at = add((struct layer){POOL, at, 0, size, 1, size, 0, 1280, 1280, 0, NULL, NULL});
  (void)add((struct layer){DENSE, at, 0, 1, 1, 1, 0, 1280, CLASSES, 0, NULL, NULL});
}
