/* Lowering: a checked graph rewritten into one that kernels and back ends find easy.
 *
 * The operands of the given graph keep their indices; what lowering adds stands behind them. The
 * operations stay sorted through every pass. */
#ifndef NP_LOWER_H
#define NP_LOWER_H

#include "kernels/np_kernel.h"

struct np_lowered {
  const struct np_executor_options *options; /* for kernels that compute constants; may be NULL */
  struct np_graph graph;                     /* its arrays are owned, its constants in part */
  uint32_t operand_room;
  struct np_operation *from; /* [n_from] the operations that a pass rewrites, in order */
  uint32_t n_from;
  uint32_t operation_room; /* of graph.operations */
  void **owned;            /* [n_owned] memory of values and lists that lowering made */
  uint32_t n_owned, owned_room;
};

/* Lowers a checked graph, which must outlive the result and is not written. options may be NULL,
 * and are read by this call alone. NP_NO_MEMORY, or NP_UNSUPPORTED with a sentence in *why. */
enum np_status np_lower(const struct np_graph *graph, const struct np_executor_options *options,
                        struct np_lowered **lowered, struct np_message *why);

void np_lowered_free(struct np_lowered *lowered);

/* ---- for passes ------------------------------------------------------------------------------*/

#define NP_NO_OPERAND UINT32_MAX

/* A pass rewrites all operations in order: it reads lowered->from and emits what takes each one's
 * place. */
struct np_pass {
  const char *name;
  enum np_status (*run)(struct np_lowered *lowered, struct np_message *why);
};

/* Memory that lives as long as the lowered graph, NULL where there is none. */
void *np_lowered_alloc(struct np_lowered *lowered, size_t bytes);

/* A new operand like *operand; NP_NO_OPERAND where memory is short. */
uint32_t np_add_operand(struct np_lowered *lowered, const struct np_operand *operand);

/* A new constant of known dimensions whose value, copied, is `length` bytes. */
uint32_t np_add_constant(struct np_lowered *lowered, int32_t type, uint32_t rank,
                         const uint32_t *dims, const void *value, size_t length);

/* Adds an operation behind those that this pass has emitted; the lists are copied. */
enum np_status np_emit(struct np_lowered *lowered, int32_t code, const uint32_t *inputs,
                       uint32_t n_inputs, const uint32_t *outputs, uint32_t n_outputs);

/* Emits an operation of `from` as it is. */
enum np_status np_emit_same(struct np_lowered *lowered, const struct np_operation *operation);

/* The value of a constant INT32 or BOOL scalar operand: 1 and *value, or 0. */
int np_constant_i32(const struct np_graph *graph, uint32_t operand, int32_t *value);
int np_constant_bool(const struct np_graph *graph, uint32_t operand, int *value);

/* The passes; each says in its file what it does. lower.c has their order. */
enum np_status np_lower_half(struct np_lowered *lowered, struct np_message *why);
enum np_status np_lower_layout(struct np_lowered *lowered, struct np_message *why);
enum np_status np_lower_fold(struct np_lowered *lowered, struct np_message *why);
enum np_status np_lower_cancel(struct np_lowered *lowered, struct np_message *why);
enum np_status np_lower_fuse(struct np_lowered *lowered, struct np_message *why);
enum np_status np_lower_sweep(struct np_lowered *lowered, struct np_message *why);

#endif
