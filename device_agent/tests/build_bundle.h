/* Builds a valid bundle file, by FORMAT.md, for the C tests and the fuzz target. */
#ifndef NP_BUILD_BUNDLE_H
#define NP_BUILD_BUNDLE_H

#include "build.h"

/* The sections of a bundle, before they are put into a container. */
struct np_build_bundle {
  struct np_build head, strs, tens, modl, plan, inpt, outp, data, wght;
  struct np_build mixt, cond, unit; /* empty: the file has none */
};

/* Puts the sections into a container of kind 3, with checksums; sections begin at multiples of
 * 64. */
static inline void np_build_bundle_container(const struct np_build_bundle *bundle,
                                             struct np_build *container) {
  const struct np_build *all[12] = {&bundle->head, &bundle->strs, &bundle->tens, &bundle->modl,
                                    &bundle->plan, &bundle->inpt, &bundle->outp, &bundle->data,
                                    &bundle->wght, &bundle->mixt, &bundle->cond, &bundle->unit};
  static const char names[12][5] = {"HEAD", "STRS", "TENS", "MODL", "PLAN", "INPT",
                                    "OUTP", "DATA", "WGHT", "MIXT", "COND", "UNIT"};
  static const uint8_t zeros[64] = {0};
  const struct np_build *sections[12];
  const char *tags[12];
  uint32_t n = 0;
  for (size_t i = 0; i < 12; i++) {
    if (i < 9 || all[i]->n > 0) {
      sections[n] = all[i];
      tags[n++] = names[i];
    }
  }
  container->n = 0;
  np_put(container, "NNPF\1\0\3\0", 8);
  np_put_u32(container, n);
  np_put_u32(container, 0);
  uint64_t offset = (16 + 24 * (uint64_t)n + 63) / 64 * 64;
  for (size_t i = 0; i < n; i++) {
    np_put(container, tags[i], 4);
    np_put_u32(container, 0);
    np_put_u64(container, offset);
    np_put_u64(container, sections[i]->n);
    offset += (sections[i]->n + 63) / 64 * 64;
  }
  for (size_t i = 0; i < n; i++) {
    np_put(container, zeros, (64 - container->n % 64) % 64);
    np_put(container, sections[i]->bytes, sections[i]->n);
  }
  np_build_seal(container->bytes, container->n);
}

static inline void np_put_text(struct np_build *to, const char *text) {
  static const uint8_t zeros[4] = {0};
  const size_t n = strlen(text);
  np_put_u32(to, (uint32_t)n);
  np_put(to, text, n);
  np_put(to, zeros, (4 - n % 4) % 4);
}

/* One segment: y = relu(x + b), from tensor 0 to 1 or from 1 to 2. */
static inline void np_put_segment(struct np_build *plan, uint32_t engine, uint32_t accelerator,
                                  uint32_t number) {
  np_put_words(plan, 5, (const uint32_t[]){engine, accelerator, UINT32_MAX, 0, 0});
  np_put_words(plan, 3, (const uint32_t[]){1, number, 0});
  np_put_words(plan, 3, (const uint32_t[]){1, number + 1, 0});
}

/* Puts the shares [n] of plans 0, 1, ... */
static inline void np_put_mixture(struct np_build *mixt, uint32_t n, const double *shares) {
  np_put_words(mixt, 2, (const uint32_t[]){1, n});
  for (uint32_t i = 0; i < n; i++) {
    np_put_u32(mixt, i);
    np_put(mixt, &shares[i], sizeof shares[i]);
  }
}

/* Puts the cores (0 any, 1 big, 2 those of the mask) and a limit of runs. */
static inline void np_put_conditions(struct np_build *cond, uint32_t cores, uint64_t mask,
                                     uint64_t run_limit_ns) {
  np_put_words(cond, 2, (const uint32_t[]){1, cores});
  np_put_u64(cond, mask);
  np_put_u64(cond, 0); /* no limit of compilations */
  np_put_u64(cond, run_limit_ns);
  np_put_u32(cond, 0); /* shared memory */
}

/* Puts predictions for n segments, 1 ms, 2 ms, ..., each of two units with string `name` as
 * name. */
static inline void np_put_units(struct np_build *unit, uint32_t n, uint32_t name) {
  const double shares[2] = {0.25, 0.75};
  np_put_u32(unit, 1);
  for (uint32_t s = 0; s < n; s++) {
    const double predicted_ns = 1e6 * (s + 1);
    np_put(unit, &predicted_ns, sizeof predicted_ns);
    np_put_u32(unit, 2);
    for (uint32_t i = 0; i < 2; i++) {
      np_put_u32(unit, name);
      np_put(unit, &shares[i], sizeof shares[i]);
    }
  }
}

/* Two segments of one model with the weights 1, 2, 3, 4: x is [1, 4], and so is the output, of
 * dim order 1, 0. Plans:
 * "mixed" on CPU and accelerator "sim-npu", "auto" on NNAPI's choice, "cpu". */
static inline void np_build_bundle_sections(struct np_build_bundle *bundle) {
  const float weights[4] = {1, 2, 3, 4};
  memset(bundle, 0, sizeof *bundle);
  np_put_words(&bundle->head, 3, (const uint32_t[]){1, 0, 1});
  np_put_u32(&bundle->strs, 6);
  np_put_text(&bundle->strs, "mixed");
  np_put_text(&bundle->strs, "sim-npu");
  np_put_text(&bundle->strs, "auto");
  np_put_text(&bundle->strs, "cpu");
  np_put_text(&bundle->strs, "x");
  np_put_text(&bundle->strs, "y");
  np_put_u32(&bundle->tens, 3);
  np_put_words(&bundle->tens, 6, (const uint32_t[]){NP_TYPE_TENSOR_FLOAT32, 2, 1, 4, 0, 0});
  np_put_words(&bundle->tens, 6, (const uint32_t[]){NP_TYPE_TENSOR_FLOAT32, 2, 1, 4, 0, 0});
  np_put_words(&bundle->tens, 6, (const uint32_t[]){NP_TYPE_TENSOR_FLOAT32, 2, 1, 4, 0, 0});
  np_build_model(&bundle->data, 1);
  np_put(&bundle->wght, weights, sizeof weights);
  np_put_u32(&bundle->modl, 1);
  np_put_u64(&bundle->modl, 0);
  np_put_u64(&bundle->modl, bundle->data.n);
  np_put_u32(&bundle->modl, 1);
  np_put_u64(&bundle->modl, 0);
  np_put_u64(&bundle->modl, sizeof weights);
  np_put_u32(&bundle->plan, 3);
  np_put_words(&bundle->plan, 2, (const uint32_t[]){0, 2});
  np_put_segment(&bundle->plan, 0, UINT32_MAX, 0);
  np_put_segment(&bundle->plan, 1, 1, 1);
  np_put_words(&bundle->plan, 2, (const uint32_t[]){2, 2});
  np_put_segment(&bundle->plan, 1, UINT32_MAX, 0);
  np_put_segment(&bundle->plan, 1, UINT32_MAX, 1);
  np_put_words(&bundle->plan, 2, (const uint32_t[]){3, 2});
  np_put_segment(&bundle->plan, 0, UINT32_MAX, 0);
  np_put_segment(&bundle->plan, 0, UINT32_MAX, 1);
  np_put_words(&bundle->inpt, 4, (const uint32_t[]){1, 4, 0, 0});
  np_put_words(&bundle->outp, 4, (const uint32_t[]){1, 5, 2, 1});
}

/* Three segments of that model, and a mixture of plans with half, three tenths and a fifth of the
 * frames: "three" on "sim-npu", the CPU and "sim-gpu"; "two" on "sim-gpu" twice and the CPU; "cpu".
 */
static inline void np_build_mixture_sections(struct np_build_bundle *bundle) {
  static const double shares[3] = {0.5, 0.3, 0.2};
  static const uint32_t engines[3][3] = {{1, 0, 1}, {1, 1, 0}, {0, 0, 0}};
  static const uint32_t none = UINT32_MAX;
  const uint32_t accelerators[3][3] = {{3, none, 4}, {4, 4, none}, {none, none, none}};
  np_build_bundle_sections(bundle);
  bundle->strs.n = bundle->tens.n = bundle->plan.n = bundle->inpt.n = bundle->outp.n = 0;
  np_put_u32(&bundle->strs, 7);
  np_put_text(&bundle->strs, "three");
  np_put_text(&bundle->strs, "two");
  np_put_text(&bundle->strs, "cpu");
  np_put_text(&bundle->strs, "sim-npu");
  np_put_text(&bundle->strs, "sim-gpu");
  np_put_text(&bundle->strs, "x");
  np_put_text(&bundle->strs, "y");
  np_put_u32(&bundle->tens, 4);
  for (int i = 0; i < 4; i++) {
    np_put_words(&bundle->tens, 6, (const uint32_t[]){NP_TYPE_TENSOR_FLOAT32, 2, 1, 4, 0, 0});
  }
  np_put_u32(&bundle->plan, 3);
  for (uint32_t p = 0; p < 3; p++) {
    np_put_words(&bundle->plan, 2, (const uint32_t[]){p, 3});
    for (uint32_t s = 0; s < 3; s++) {
      np_put_segment(&bundle->plan, engines[p][s], accelerators[p][s], s);
    }
  }
  np_put_words(&bundle->inpt, 4, (const uint32_t[]){1, 5, 0, 0});
  np_put_words(&bundle->outp, 4, (const uint32_t[]){1, 6, 3, 0});
  np_put_mixture(&bundle->mixt, 3, shares);
}

#endif
