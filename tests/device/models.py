"""Small serialized NNAPI models, written here word by word from PROTOCOL.md, section 4."""

import struct

FLOAT_TENSOR, INT_SCALAR = 3, 1
MUL, RELU = 18, 19


def _words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def _operand(code: int, rank: int) -> bytes:
    return struct.pack("<iifi", code, rank, 0.0, 0)


def relu(n: int) -> bytes:
    """y[1, n] = relu(x[1, n]); no buffers."""
    return (
        _words(1, 2, 0, 1, 1, 1)
        + _operand(FLOAT_TENSOR, 2) * 2
        + _words(RELU, 1, 1)
        + _words(1, n, 1, n)
        + _words(0, 1)
        + _words(0)
        + _words(1)
    )


def multiply(n: int) -> bytes:
    """y[1, n] = x[1, n] * w[1, n]; w is numbered buffer 0, 4 n bytes."""
    return (
        _words(1, 4, 2, 1, 1, 1)
        + _operand(FLOAT_TENSOR, 2)
        + _operand(FLOAT_TENSOR, 2)
        + _operand(INT_SCALAR, 0)
        + _operand(FLOAT_TENSOR, 2)
        + _words(1, 2, 12)
        + _words(2, 0, 4)
        + _words(MUL, 3, 1)
        + _words(1, n, 1, n, 1, n)
        + _words(0, 0, 4 * n)
        + _words(0)
        + _words(0, 1, 2, 3)
        + _words(0)
        + _words(3)
    )
