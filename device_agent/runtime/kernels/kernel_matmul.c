/* BATCH_MATMUL: multiplies matrices of two tensors, each optionally transposed, pair by pair. */
#include <math.h>
#include <string.h>

#include "kernels/np_gather.h"
#include "kernels/np_gemm.h"
#include "kernels/np_qgemm.h"
#include "plan/np_plan.h"

struct matmul {
  uint32_t rank;
  size_t batches, m, n, k; /* [m, k] x [k, n] */
  int adj_x, adj_y;        /* x is given as [k, m], y as [n, k] */
  uint32_t dims[NP_MAX_RANK];
};

static enum np_status read_adjoint(const struct np_call *call, uint32_t input, int *value) {
  *value = 0;
  return np_has(call, input) ? np_read_bool(call, input, value) : NP_OK;
}

static enum np_status read_matmul(const struct np_call *call, struct matmul *matmul) {
  const struct np_tensor *x = np_in(call, 0);
  const struct np_tensor *y = np_in(call, 1);
  memset(matmul, 0, sizeof *matmul);
  if (!x->known || !y->known) {
    return NP_MISSING;
  }
  NP_TRY(read_adjoint(call, 2, &matmul->adj_x));
  NP_TRY(read_adjoint(call, 3, &matmul->adj_y));
  if (x->rank < 2 || x->rank != y->rank) {
    return np_fail(call, NP_BAD_MODEL, "inputs have ranks %u and %u, wanted the same from 2 on",
                   x->rank, y->rank);
  }
  const uint32_t row = x->rank - 2;
  const uint32_t column = x->rank - 1;
  matmul->rank = x->rank;
  matmul->batches = 1;
  for (uint32_t d = 0; d < row; d++) {
    if (x->dims[d] != y->dims[d]) {
      return np_fail(call, NP_BAD_MODEL, "dimension %u is %u of one input and %u of the other", d,
                     x->dims[d], y->dims[d]);
    }
    matmul->dims[d] = x->dims[d];
    matmul->batches = np_mul_saturated(matmul->batches, x->dims[d]);
  }
  matmul->dims[row] = x->dims[matmul->adj_x ? column : row];
  matmul->dims[column] = y->dims[matmul->adj_y ? row : column];
  matmul->m = matmul->dims[row];
  matmul->n = matmul->dims[column];
  matmul->k = x->dims[matmul->adj_x ? row : column];
  if (matmul->k != y->dims[matmul->adj_y ? column : row]) {
    return np_fail(call, NP_BAD_MODEL, "matrices of %zu columns and %u rows do not multiply",
                   matmul->k, y->dims[matmul->adj_y ? column : row]);
  }
  return NP_OK;
}

static enum np_status infer(const struct np_call *call) {
  struct matmul matmul;
  NP_TRY(read_matmul(call, &matmul));
  return np_set_shape(call, 0, matmul.rank, matmul.dims);
}

/* Offsets of the parts of the working memory. */
struct parts {
  size_t x;    /* one matrix as [m, k], if it is given transposed */
  size_t y;    /* one as [n, k] */
  size_t rows; /* quantised: x less its zero point */
  size_t packed;
  size_t sums;
  size_t multipliers;
  size_t total;
};

static struct parts find_parts(const struct np_call *call, const struct matmul *matmul) {
  const size_t size = np_type_bytes(np_in(call, 0)->type);
  const size_t x_elements = np_mul_saturated(matmul->m, matmul->k);
  const size_t y_elements = np_mul_saturated(matmul->n, matmul->k);
  struct parts parts = {0};
  parts.y = np_align(np_mul_saturated(x_elements, size));
  parts.rows = np_add_saturated(parts.y, np_align(np_mul_saturated(y_elements, size)));
  parts.packed = parts.rows;
  if (np_q_data(call)) {
    const size_t rows = np_mul_saturated(np_q_packed(matmul->m, matmul->k), sizeof(int16_t));
    const size_t outputs = np_mul_saturated(matmul->m, matmul->n);
    const size_t packed = np_mul_saturated(np_q_packed(matmul->n, matmul->k), sizeof(int16_t));
    parts.packed = np_add_saturated(parts.rows, np_align(rows));
    parts.sums = np_add_saturated(parts.packed, np_align(packed));
    parts.multipliers =
        np_add_saturated(parts.sums, np_align(np_mul_saturated(outputs, sizeof(int32_t))));
    parts.total = np_add_saturated(
        parts.multipliers, np_align(np_mul_saturated(matmul->n, sizeof(struct np_multiplier))));
  } else {
    const size_t floats = np_gemm_packed_floats(np_gemm_engine(), matmul->n, matmul->k);
    parts.total = np_add_saturated(parts.packed, np_align(np_mul_saturated(floats, sizeof(float))));
  }
  return parts;
}

static size_t scratch(const struct np_call *call) {
  struct matmul matmul;
  return read_matmul(call, &matmul) == NP_OK && matmul.batches > 0 ? find_parts(call, &matmul).total
                                                                   : 0;
}

/* Transposes the matrix [columns, rows] at `from` to [rows, columns] at `to`. */
static void transpose(const unsigned char *from, size_t rows, size_t columns, size_t size,
                      unsigned char *to) {
  const struct np_view out = {
      .rank = 2, .dims = {rows, columns}, .strides = {(ptrdiff_t)columns, 1}};
  const struct np_view in = {.rank = 2, .strides = {1, (ptrdiff_t)rows}};
  np_gather(&out, to, &in, from, size);
}

static void multiply_integers(const struct matmul *matmul, const uint32_t *x, const uint32_t *y,
                              uint32_t *out) {
  for (size_t i = 0; i < matmul->m; i++) {
    for (size_t j = 0; j < matmul->n; j++) {
      uint32_t sum = 0; /* wraps */
      for (size_t d = 0; d < matmul->k; d++) {
        sum += x[i * matmul->k + d] * y[j * matmul->k + d];
      }
      out[i * matmul->n + j] = sum;
    }
  }
}

static void multiply_quant(const struct np_call *call, const struct matmul *matmul,
                           const struct parts *parts, const struct np_q_finish *finish,
                           const unsigned char *x, const unsigned char *y, unsigned char *out) {
  unsigned char *room = call->scratch;
  int16_t *rows = (int16_t *)(void *)(room + parts->rows);
  int16_t *packed = (int16_t *)(void *)(room + parts->packed);
  int32_t *sums = (int32_t *)(void *)(room + parts->sums);
  np_q_pack(np_in_operand(call, 0), x, matmul->m, matmul->k, rows); /* rows are padded alike */
  np_q_pack(np_in_operand(call, 1), y, matmul->n, matmul->k, packed);
  np_q_gemm(matmul->m, matmul->n, matmul->k, rows, packed, sums);
  for (size_t i = 0; i < matmul->m; i++) {
    np_q_finish_row(finish, matmul->n, sums + i * matmul->n, out + i * matmul->n);
  }
}

/* Multiplies one pair of matrices, x as [m, k] and y as [n, k]. */
static void multiply(const struct np_call *call, const struct matmul *matmul,
                     const struct parts *parts, const struct np_q_finish *finish,
                     const unsigned char *x, const unsigned char *y, unsigned char *out) {
  const void *x_values = x;
  const void *y_values = y;
  void *sums = out;
  float *packed = (float *)(void *)((unsigned char *)call->scratch + parts->packed);
  if (np_q_data(call)) {
    multiply_quant(call, matmul, parts, finish, x, y, out);
  } else if (np_in(call, 0)->type == NP_TYPE_TENSOR_INT32) {
    multiply_integers(matmul, x_values, y_values, sums);
  } else {
    np_gemm_pack(np_gemm_engine(), matmul->n, matmul->k, y_values, NULL, packed);
    np_gemm(np_gemm_engine(), matmul->m, matmul->n, matmul->k, x_values, matmul->k, packed, sums,
            matmul->n, -INFINITY, INFINITY);
  }
}

static enum np_status run(const struct np_call *call) {
  struct matmul matmul;
  struct np_q_finish finish = {0};
  NP_TRY(read_matmul(call, &matmul));
  if (np_out(call, 0)->elements == 0) {
    return NP_OK;
  }
  const struct parts parts = find_parts(call, &matmul);
  const size_t size = np_type_bytes(np_in(call, 0)->type);
  unsigned char *room = call->scratch;
  if (np_q_data(call)) {
    struct np_multiplier *multipliers = (struct np_multiplier *)(void *)(room + parts.multipliers);
    NP_TRY(np_q_finish_of(call, ANEURALNETWORKS_FUSED_NONE, &finish));
    np_q_multipliers(call, matmul.n, multipliers);
    finish.multipliers = multipliers;
  }
  const unsigned char *x = np_in(call, 0)->data;
  const unsigned char *y = np_in(call, 1)->data;
  unsigned char *out = np_out(call, 0)->room;
  for (size_t b = 0; b < matmul.batches; b++) {
    const unsigned char *x_rows = x;
    const unsigned char *y_rows = y;
    if (matmul.adj_x) {
      transpose(x, matmul.m, matmul.k, size, room + parts.x);
      x_rows = room + parts.x;
    }
    if (!matmul.adj_y) {
      transpose(y, matmul.n, matmul.k, size, room + parts.y);
      y_rows = room + parts.y;
    }
    multiply(call, &matmul, &parts, &finish, x_rows, y_rows, out);
    x += matmul.m * matmul.k * size;
    y += matmul.n * matmul.k * size;
    out += matmul.m * matmul.n * size;
  }
  return NP_OK;
}

const struct np_kernel np_kernel_BATCH_MATMUL = {
    .types = NP_FLOATS | NP_INTS | NP_BIT(NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED),
    .infer = infer,
    .scratch = scratch,
    .run = run};
