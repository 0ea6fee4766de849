"""NNAPI models as data, and the builder that lowerings write them with.

Every lowering of :mod:`.ops` writes to a :class:`ModelBuilder`. :mod:`.lower` runs the lowerings of
a set of units and returns a :class:`.region.Region`.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NewType

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.costs.model.forms import FIRST_LEVELS, ProductForm
from nnapi_prof.nnapi import TENSOR_CODES, all_facts, level_number, why_not_at
from nnapi_prof.nnapi.codes import OperandCode, OperationCode

if TYPE_CHECKING:
    from torch import Tensor


# Constants of a program in NNAPI's layout. Each is laid out and hashed once.


@dataclass(frozen=True)
class Blob:
    """Bytes stored outside the models, named by their hash on devices and in bundles."""

    data: bytes = field(repr=False)

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the bytes, in lowercase hex."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def _derived(self) -> dict[str, Blob]:
        return {}

    def derived(self, name: str, make: Callable[[bytes], bytes]) -> Blob:
        """Returns the bytes derived by ``make``, which is called once for each ``name``."""
        if name not in self._derived:
            self._derived[name] = Blob(make(self.data))
        return self._derived[name]


class ConstantPool:
    """Constants that the models of one program share.

    A view of one of the program's tensors is identified by its place in memory, layout and element
    type, and laid out only once. Any other array is identified by its content.
    """

    def __init__(self) -> None:
        self._tensors: dict[tuple[Any, ...], tuple[Tensor, NDArray[Any]]] = {}
        self._bases: set[int] = set()
        self._views: dict[tuple[Any, ...], Blob] = {}
        self._blobs: dict[bytes, Blob] = {}

    def array(self, tensor: Tensor) -> NDArray[Any]:
        """Returns a tensor of the program as a read-only array in PyTorch's layout."""
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if key not in self._tensors:
            array: NDArray[Any] = tensor.detach().cpu().contiguous().numpy()
            array.flags.writeable = False
            self._tensors[key] = (tensor, array)  # keeps the tensor alive: its address is the key
            self._bases.add(id(array))
        return self._tensors[key][1]

    def blob(self, array: NDArray[Any]) -> Blob:
        """Returns the bytes of an array in row-major order."""
        base = array
        while isinstance(base.base, np.ndarray):
            base = base.base
        if id(base) not in self._bases:
            return self._of_content(array)
        key = (array.ctypes.data, array.dtype, array.shape, array.strides)
        if key not in self._views:
            self._views[key] = self._of_content(array)
        return self._views[key]

    def _of_content(self, array: NDArray[Any]) -> Blob:
        blob = Blob(np.ascontiguousarray(array).tobytes())
        return self._blobs.setdefault(blob.data, blob)


OperandId = NewType("OperandId", int)
"""Index of an operand in its model."""

MAX_IMMEDIATE_BYTES = 128
"""Longest value that NNAPI copies, in bytes
(ANEURALNETWORKS_MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES). It keeps a pointer to longer ones, which
must then outlive the model."""

ELEMENT_TYPES: dict[np.dtype[np.generic], OperandCode] = {
    np.dtype(np.float32): OperandCode.TENSOR_FLOAT32,
    np.dtype(np.float16): OperandCode.TENSOR_FLOAT16,
    np.dtype(np.int32): OperandCode.TENSOR_INT32,
    np.dtype(np.bool_): OperandCode.TENSOR_BOOL8,
}


@dataclass(frozen=True, slots=True)
class ChannelScales:
    """Scales of a TENSOR_QUANT8_SYMM_PER_CHANNEL, one for each index along dimension ``dim``."""

    dim: int
    scales: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """Type and shape of an operand. ``dims`` is empty for a scalar; 0 is an unknown size."""

    type: OperandCode
    dims: tuple[int, ...] = ()
    scale: float = 0.0
    zero_point: int = 0
    channels: ChannelScales | None = None


@dataclass(frozen=True, slots=True)
class BufferSlice:
    """Part of a numbered buffer, whose bytes are stored outside the model."""

    buffer: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class ConstantValue:
    """Value of a constant operand: its bytes, or their place. There are none for an optional
    argument that is left out."""

    operand: OperandId
    source: bytes | BufferSlice


@dataclass(frozen=True, slots=True)
class Operation:
    code: OperationCode
    inputs: tuple[OperandId, ...]
    outputs: tuple[OperandId, ...]


@dataclass(frozen=True, slots=True)
class NnapiModel:
    """One NNAPI model. ``inputs`` and ``outputs`` are operand indices."""

    operands: tuple[Operand, ...]
    values: tuple[ConstantValue, ...]
    operations: tuple[Operation, ...]
    inputs: tuple[OperandId, ...]
    outputs: tuple[OperandId, ...]


class EmissionError(Exception):
    """Refusal of an operation that does not exist in the requested form at the model's level.

    It never leaves the converter: it becomes the reason of an UnsupportedOp.
    """


@dataclass(frozen=True, slots=True)
class Mark:
    """Size of a builder's model at one time, for :meth:`ModelBuilder.back_to`."""

    operands: int
    values: int
    operations: int
    blobs: int


class ModelBuilder:
    """NNAPI model under construction for a feature level (27, 28, ... as devices report it).

    Constants are deduplicated. Those of up to 128 bytes are stored in the model. Each longer one is
    a blob of ``pool`` and a numbered buffer of its own, in ``blobs``. Without ``shared``, each
    constant that is stored in the model is its own operand, because which of them are equal may
    depend on sizes (convert.dynamic_shapes). ``for_stock`` tells lowerings to write only what
    PyTorch's format can express.
    """

    def __init__(
        self,
        level: int,
        shared: bool = True,
        for_stock: bool = False,
        pool: ConstantPool | None = None,
    ) -> None:
        self.level = level
        self.pool = ConstantPool() if pool is None else pool
        self.shared = shared
        self.for_stock = for_stock
        self.product_form: ProductForm | None = None
        """Form of the matrix products in the current unit; None for the level's usual one."""
        self.level_number = level_number(level)
        self.blobs: list[Blob] = []
        self.in_floats: dict[str, str] = {}
        """Quantised result that is computed in float32 -> the rule that quant8 would break."""
        self._operands: list[Operand] = []
        self._values: list[ConstantValue] = []
        self._operations: list[Operation] = []
        self._inputs: list[OperandId] = []
        self._constants: dict[tuple[Operand, bytes], OperandId] = {}

    def operand(self, operand_id: OperandId) -> Operand:
        return self._operands[operand_id]

    def input(self, operand: Operand) -> OperandId:
        """Adds an input to the model, after the existing ones."""
        self._require_sized(operand)
        index = self._new(operand)
        self._inputs.append(index)
        return index

    def scalar(self, value: bool | int | float) -> OperandId:
        """Adds a constant scalar: BOOL, INT32 or FLOAT32 by its Python type."""
        if isinstance(value, bool):
            return self._constant(Operand(OperandCode.BOOL), struct.pack("<?", value))
        if isinstance(value, int):
            return self._constant(Operand(OperandCode.INT32), struct.pack("<i", value))
        return self._constant(Operand(OperandCode.FLOAT32), struct.pack("<f", value))

    def constant(self, array: NDArray[np.generic]) -> OperandId:
        """Adds a constant tensor of a type in ELEMENT_TYPES and rank 1 at least."""
        operand = Operand(ELEMENT_TYPES[array.dtype], array.shape)
        self._require_sized(operand)
        return self._constant_array(operand, array)

    def quantised_constant(self, operand: Operand, array: NDArray[np.generic]) -> OperandId:
        """Adds a constant tensor of integers, whose meaning ``operand`` gives."""
        self._require_sized(operand)
        return self._constant_array(operand, array)

    def constant_bytes(self, operand_id: OperandId) -> bytes | None:
        """Returns the bytes of a constant stored in the model; None for any other operand."""
        sources = (v.source for v in self._values if v.operand == operand_id)
        source = next(sources, None)
        return source if isinstance(source, bytes) else None

    def mark(self) -> Mark:
        """Returns the present state of the model, for :meth:`back_to`."""
        return Mark(len(self._operands), len(self._values), len(self._operations), len(self.blobs))

    def back_to(self, mark: Mark) -> None:
        """Removes everything added since ``mark``."""
        del self._operands[mark.operands :]
        del self._values[mark.values :]
        del self._operations[mark.operations :]
        del self.blobs[mark.blobs :]
        constants = {key: index for key, index in self._constants.items() if index < mark.operands}
        self._constants = constants

    def omitted(self, rank: int) -> OperandId:
        """Adds a float32 tensor of this rank for an optional argument that is left out."""
        return self._constant(Operand(OperandCode.TENSOR_FLOAT32, (0,) * rank), b"")

    def add(
        self, code: OperationCode, inputs: Sequence[OperandId], dims: Sequence[int]
    ) -> OperandId:
        """Adds an operation and returns its result, of the data's type and the shape ``dims``.

        Raises EmissionError as :meth:`add_results` does.
        """
        data = self._operands[inputs[all_facts()[code].data]]
        return self.add_results(code, inputs, [replace(data, dims=tuple(dims))])[0]

    def add_results(
        self, code: OperationCode, inputs: Sequence[OperandId], results: Sequence[Operand]
    ) -> tuple[OperandId, ...]:
        """Adds an operation with these results and returns them.

        Raises EmissionError where NNAPI does not allow it at this level: an unknown operation, an
        argument form, rank or type that came later, or a shape that NNAPI cannot express.
        """
        operands = [self._operands[i] for i in inputs]
        level = self.level_number
        if code is OperationCode.BATCH_MATMUL and self.product_form is ProductForm.BATCHED:
            level = max(level, FIRST_LEVELS[ProductForm.BATCHED])  # chosen for such an accelerator
        reason = why_not_at(
            code,
            [operand.type for operand in operands],
            [len(operand.dims) for operand in operands],
            level,
        )
        if reason is not None:
            raise EmissionError(reason)
        limit = all_facts()[code].max_rank
        for result in results:
            if limit is not None and len(result.dims) > limit:
                raise EmissionError(
                    f"{code.name} gives rank {limit} at most, found {len(result.dims)}"
                )
            self._require_sized(result)
        indices = tuple(map(self._new, results))
        self._operations.append(Operation(code, tuple(inputs), indices))
        return indices

    def finish(self, outputs: Sequence[OperandId]) -> NnapiModel:
        """Returns the model with these outputs; the builder must not be used afterwards."""
        return NnapiModel(
            tuple(self._operands),
            tuple(self._values),
            tuple(self._operations),
            tuple(self._inputs),
            tuple(outputs),
        )

    def _new(self, operand: Operand) -> OperandId:
        self._operands.append(operand)
        return OperandId(len(self._operands) - 1)

    def _constant_array(self, operand: Operand, array: NDArray[np.generic]) -> OperandId:
        if array.nbytes <= MAX_IMMEDIATE_BYTES:
            return self._constant(operand, np.ascontiguousarray(array).tobytes())
        blob = self.pool.blob(array)
        index = self._constants.get((operand, blob.data))
        if index is None:
            index = self._new_constant(
                operand, blob.data, BufferSlice(len(self.blobs), 0, len(blob.data))
            )
            self.blobs.append(blob)
        return index

    def _constant(self, operand: Operand, data: bytes) -> OperandId:
        """Adds a constant stored in the model, or returns its equal if constants are shared."""
        index = self._constants.get((operand, data)) if self.shared else None
        return self._new_constant(operand, data, data) if index is None else index

    def _new_constant(
        self, operand: Operand, data: bytes, source: bytes | BufferSlice
    ) -> OperandId:
        index = self._constants[operand, data] = self._new(operand)
        self._values.append(ConstantValue(index, source))
        return index

    def _require_sized(self, operand: Operand) -> None:
        if operand.type not in TENSOR_CODES:
            return
        if not operand.dims:
            raise EmissionError("a tensor of rank 0, NNAPI's have rank 1 at least")
        if math.prod(operand.dims) == 0:
            shape = "x".join(map(str, operand.dims))
            raise EmissionError(
                f"an empty tensor ({shape}), a size of 0 is an unknown one to NNAPI"
            )
