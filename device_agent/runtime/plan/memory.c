/* Memory planning: one walk over the sorted operations that places every result in the tightest
 * gap between the blocks alive, and frees a block after its last reader. */
#include "plan/np_plan.h"

#include <stdlib.h>
#include <string.h>

struct block {
  size_t offset;
  size_t bytes;
  uint32_t last; /* operation that reads it last */
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
  if (np_plus(offset, bytes) == SIZE_MAX) {
    return SIZE_MAX;
  }
  memmove(&live[best_at + 1], &live[best_at], (*n - best_at) * sizeof *live);
  live[best_at] = (struct block){.offset = offset, .bytes = bytes, .last = last};
  (*n)++;
  return offset;
}

static void drop_dead(struct block *live, uint32_t *n, uint32_t operation) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < *n; i++) {
    if (live[i].last > operation) {
      live[kept++] = live[i];
    }
  }
  *n = kept;
}

enum np_status np_plan_memory(const struct np_graph *graph, const struct np_tensor *tensors,
                              const unsigned char *placed, size_t *offsets, size_t *total) {
  *total = 0;
  uint32_t *last = calloc((size_t)graph->n_operands + 1, sizeof *last);
  struct block *live = calloc((size_t)graph->n_operands + 1, sizeof *live);
  enum np_status status = last != NULL && live != NULL ? NP_OK : NP_NO_MEMORY;
  uint32_t n_live = 0;
  for (uint32_t o = 0; status == NP_OK && o < graph->n_operations; o++) {
    const struct np_operation *operation = &graph->operations[o];
    for (uint32_t i = 0; i < operation->n_inputs; i++) {
      last[operation->inputs[i]] = o;
    }
    for (uint32_t i = 0; i < operation->n_outputs; i++) {
      last[operation->outputs[i]] = o; /* a result that nobody reads dies where it is made */
    }
  }
  for (uint32_t o = 0; status == NP_OK && o < graph->n_operations; o++) {
    const struct np_operation *operation = &graph->operations[o];
    for (uint32_t i = 0; status == NP_OK && i < operation->n_outputs; i++) {
      const uint32_t operand = operation->outputs[i];
      if (!placed[operand]) {
        continue;
      }
      const struct np_tensor *tensor = &tensors[operand];
      const size_t bytes = np_align(np_times(tensor->elements, np_type_bytes(tensor->type)));
      offsets[operand] =
          bytes == SIZE_MAX
              ? SIZE_MAX
              : insert(live, &n_live, bytes == 0 ? NP_ALIGNMENT : bytes, last[operand]);
      if (offsets[operand] == SIZE_MAX) {
        status = NP_NO_MEMORY;
        break;
      }
      const struct block *top = &live[n_live - 1];
      *total = top->offset + top->bytes > *total ? top->offset + top->bytes : *total;
    }
    drop_dead(live, &n_live, o);
  }
  free(last);
  free(live);
  return status;
}
