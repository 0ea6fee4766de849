/* Memory planning: one walk over the steps that places every result in the tightest gap between the
 * blocks alive, and frees a block after the last step that reads it. */
#include "plan/np_plan.h"

#include <stdlib.h>
#include <string.h>

struct block {
  size_t offset;
  size_t bytes;
  uint32_t last; /* step that reads it last */
};

size_t np_align(size_t bytes) {
  return bytes > SIZE_MAX - NP_ALIGNMENT ? SIZE_MAX
                                         : (bytes + NP_ALIGNMENT - 1) / NP_ALIGNMENT * NP_ALIGNMENT;
}

/* Inserts a block of `bytes` into the smallest gap of `live` (sorted by offset, *n of them) that
 * holds it, else after the last one. Returns its offset, SIZE_MAX on overflow. */
static size_t insert(struct block *live, uint32_t *n, size_t bytes, uint32_t last) {
  size_t best_gap = SIZE_MAX;
  uint32_t best_at = *n;
  size_t end = 0;
  size_t offset = 0;
  for (uint32_t i = 0; i < *n; i++) {
    const size_t gap = live[i].offset - end;
    if (gap >= bytes && gap < best_gap) {
      best_gap = gap;
      best_at = i;
      offset = end;
    }
    end = live[i].offset + live[i].bytes;
  }
  if (best_at == *n) {
    offset = end;
  }
  if (np_add_saturated(offset, bytes) == SIZE_MAX) {
    return SIZE_MAX;
  }
  memmove(&live[best_at + 1], &live[best_at], (*n - best_at) * sizeof *live);
  live[best_at] = (struct block){.offset = offset, .bytes = bytes, .last = last};
  (*n)++;
  return offset;
}

static void drop_dead(struct block *live, uint32_t *n, uint32_t step) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < *n; i++) {
    if (live[i].last > step) {
      live[kept++] = live[i];
    }
  }
  *n = kept;
}

/* Fills last [n_operands] with the last step that reads each operand. A result that no step reads
 * is freed where it is computed. */
static void find_last(const struct np_graph *graph, const struct np_plan *plan, uint32_t *last) {
  for (uint32_t s = 0; s < plan->n_steps; s++) {
    const struct np_region *region = &plan->steps[s].region;
    for (uint32_t k = 0; k < region->n_operations; k++) {
      const struct np_operation *operation = &graph->operations[region->operations[k]];
      for (uint32_t i = 0; i < operation->n_inputs; i++) {
        last[operation->inputs[i]] = s;
      }
      for (uint32_t i = 0; i < operation->n_outputs; i++) {
        last[operation->outputs[i]] = s;
      }
    }
  }
}

/* Places an operand that a step writes; returns its offset, SIZE_MAX on overflow. */
static size_t place(struct block *live, uint32_t *n_live, const struct np_tensor *tensor,
                    uint32_t last, size_t *total) {
  const size_t bytes = np_mul_saturated(tensor->elements, np_type_bytes(tensor->type));
  const size_t room = np_align(np_add_saturated(bytes, NP_TAIL));
  const size_t offset = room == SIZE_MAX ? SIZE_MAX : insert(live, n_live, room, last);
  const struct block *top = &live[*n_live == 0 ? 0 : *n_live - 1];
  if (offset != SIZE_MAX && top->offset + top->bytes > *total) {
    *total = top->offset + top->bytes;
  }
  return offset;
}

enum np_status np_plan_memory(const struct np_graph *graph, const struct np_plan *plan,
                              const struct np_tensor *tensors, const unsigned char *placed,
                              size_t *offsets, size_t *total) {
  *total = 0;
  uint32_t *last = calloc((size_t)graph->n_operands + 1, sizeof *last);
  struct block *live = calloc((size_t)graph->n_operands + 1, sizeof *live);
  enum np_status status = last != NULL && live != NULL ? NP_OK : NP_NO_MEMORY;
  uint32_t n_live = 0;
  if (status == NP_OK) {
    find_last(graph, plan, last);
  }
  for (uint32_t s = 0; status == NP_OK && s < plan->n_steps; s++) {
    const struct np_region *region = &plan->steps[s].region;
    for (uint32_t i = 0; status == NP_OK && i < region->n_outputs; i++) {
      const uint32_t operand = region->outputs[i];
      if (placed[operand]) {
        offsets[operand] = place(live, &n_live, &tensors[operand], last[operand], total);
        status = offsets[operand] == SIZE_MAX ? NP_NO_MEMORY : NP_OK;
      }
    }
    drop_dead(live, &n_live, s);
  }
  free(last);
  free(live);
  return status;
}
