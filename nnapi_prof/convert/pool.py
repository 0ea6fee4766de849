"""The constants of a program as NNAPI holds them, each laid out and hashed once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Blob:
    """Bytes that travel beside models, and lie on a device and in a bundle under their hash."""

    data: bytes = field(repr=False)

    @cached_property
    def sha256(self) -> str:
        """Lowercase hex."""
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
    """The constants that the models of one program share.

    An array that is a view of one of the program's tensors is known by where it lies (tensor,
    layout and element type), so that it is laid out once however often it is converted; any other
    by its content.
    """

    def __init__(self) -> None:
        self._tensors: dict[tuple[Any, ...], tuple[Tensor, NDArray[Any]]] = {}
        self._bases: set[int] = set()
        self._views: dict[tuple[Any, ...], Blob] = {}
        self._blobs: dict[bytes, Blob] = {}

    def array(self, tensor: Tensor) -> NDArray[Any]:
        """A tensor of the program as a read-only array in PyTorch's layout."""
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if key not in self._tensors:
            array: NDArray[Any] = tensor.detach().cpu().contiguous().numpy()
            array.flags.writeable = False
            self._tensors[key] = (tensor, array)  # neither's memory may become another's
            self._bases.add(id(array))
        return self._tensors[key][1]

    def blob(self, array: NDArray[Any]) -> Blob:
        """The bytes of an array, row by row."""
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
