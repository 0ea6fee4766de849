/* The executors of a compilation. An executor does one run at a time, so simultaneous executions
 * need one each; the list grows to the largest number that ever ran at the same time, and taking
 * one is an atomic exchange. */
#include <stdlib.h>

#include "emulator.h"

/* Adds a new executor to the compilation, marked as busy. */
static struct np_slot *add(ANeuralNetworksCompilation *compilation, enum np_status *status,
                           struct np_message *why) {
  struct np_slot *slot = calloc(1, sizeof *slot);
  if (!slot) {
    *status = NP_NO_MEMORY;
    np_message_set(why, "no memory for an executor");
    return NULL;
  }
  /* A phone may have no accelerator at all: NNAPI's own CPU path runs everything then. */
  struct np_executor_options options = {
      .backend = compilation->n_devices > 0 ? compilation->devices[0]->backend : NULL,
      .finite = 1,
  };
  const struct np_accelerator *accelerator =
      compilation->n_devices > 0 ? compilation->devices[0]->accelerator : NULL;
  if (np_miscomputes(accelerator)) {
    np_miscompute_init(&slot->miscompute, accelerator);
    options.backend = NULL; /* the reference: one operation after the other */
    options.after = np_miscompute_after;
    options.context = &slot->miscompute;
  }
  *status = np_executor_create(&compilation->model->graph, &options, &slot->executor, why);
  if (*status != NP_OK) {
    free(slot);
    return NULL;
  }
  atomic_init(&slot->busy, true);
  slot->next = atomic_load(&compilation->slots);
  while (!atomic_compare_exchange_weak(&compilation->slots, &slot->next, slot)) {
  }
  return slot;
}

struct np_slot *np_slot_acquire(ANeuralNetworksCompilation *compilation, enum np_status *status,
                                struct np_message *why) {
  *status = NP_OK;
  for (struct np_slot *slot = atomic_load(&compilation->slots); slot; slot = slot->next) {
    if (!atomic_exchange(&slot->busy, true)) {
      return slot;
    }
  }
  return add(compilation, status, why);
}

void np_slot_release(struct np_slot *slot) { atomic_store(&slot->busy, false); }

void np_slots_free(ANeuralNetworksCompilation *compilation) {
  struct np_slot *slot = atomic_exchange(&compilation->slots, NULL);
  while (slot) {
    struct np_slot *next = slot->next;
    np_executor_free(slot->executor);
    free(slot);
    slot = next;
  }
}
