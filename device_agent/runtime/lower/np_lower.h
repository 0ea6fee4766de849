/* Lowering: rewrites a checked graph into one that is easier for kernels and back ends.
 *
 * The operands of the given graph keep their indices; lowering appends new ones. The operations
 * stay sorted through every pass. */
#ifndef NP_LOWER_H
#define NP_LOWER_H

#include "kernels/np_kernel.h"

struct np_lowered {
  const struct np_executor_options *options; /* for kernels that compute constants; may be NULL */
  struct np_graph graph;                     /* its arrays are owned, and some of its constants */
  uint32_t operand_room;
  struct np_operation *from; /* [n_from] operations that a pass rewrites, in order */
  uint32_t n_from;
  uint32_t operation_room; /* room of graph.operations */
  void **owned;            /* [n_owned] memory of values and lists made by lowering */
  uint32_t n_owned, owned_room;
};

/* Lowers a checked graph, which must outlive the result and is not written. `options` may be NULL
 * and are only read during this call. NP_NO_MEMORY, or NP_UNSUPPORTED with a sentence in *why. */
enum np_status np_lower(const struct np_graph *graph, const struct np_executor_options *options,
                        struct np_lowered **lowered, struct np_message *why);

void np_lowered_free(struct np_lowered *lowered);

/* ---- for passes ------------------------------------------------------------------------------*/

#define NP_NO_OPERAND UINT32_MAX

/* A pass rewrites all operations in order: it reads lowered->from and emits the replacement of
 * each. */
struct np_pass {
  const char *name;
  enum np_status (*run)(struct np_lowered *lowered, struct np_message *why);
};

/* Allocates memory that lives as long as the lowered graph, NULL if memory is short. */
void *np_lowered_alloc(struct np_lowered *lowered, size_t bytes);

/* Adds an operand like *operand and returns its index; NP_NO_OPERAND if memory is short. */
uint32_t np_add_operand(struct np_lowered *lowered, const struct np_operand *operand);

/* Adds a constant of known dimensions whose value, `length` bytes, is copied. */
uint32_t np_add_constant(struct np_lowered *lowered, int32_t type, uint32_t rank,
                         const uint32_t *dims, const void *value, size_t length);

/* Appends an operation to those that this pass has emitted; copies the lists. */
enum np_status np_emit(struct np_lowered *lowered, int32_t code, const uint32_t *inputs,
                       uint32_t n_inputs, const uint32_t *outputs, uint32_t n_outputs);

/* Emits an operation of `from` unchanged. */
enum np_status np_emit_same(struct np_lowered *lowered, const struct np_operation *operation);

/* Read a constant INT32 or BOOL scalar operand: return 1 and *value, or 0 if it is not one. */
int np_constant_i32(const struct np_graph *graph, uint32_t operand, int32_t *value);
int np_constant_bool(const struct np_graph *graph, uint32_t operand, int *value);

/* The passes, each documented in its file. lower.c has their order. */
enum np_status np_lower_half(struct np_lowered *lowered, struct np_message *why);
enum np_status np_lower_layout(struct np_lowered *lowered, struct np_message *why);
enum np_status np_lower_fold(struct np_lowered *lowered, struct np_message *why);
enum np_status np_lower_cancel(struct np_lowered *lowered, struct np_message *why);
enum np_status np_lower_fuse(struct np_lowered *lowered, struct np_message *why);
enum np_status np_lower_sweep(struct np_lowered *lowered, struct np_message *why);

#endif
