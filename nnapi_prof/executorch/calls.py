"""A delegated call: one operator in an exported program that stands for segments of a plan.

``nnapi_prof::call(inputs, key)`` has no kernel. It is there from the moment a plan is put into a
program until :class:`~nnapi_prof.executorch.backend.NnapiBackend` turns it into bytes, and ``key``
names the :class:`DelegatedCall` of this process that says what it computes.
"""

from __future__ import annotations

import hashlib
import struct
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from nnapi_prof.bundle.bundle import Bundle
from nnapi_prof.bundle.runtime import ALIGNMENT, runtime_parts
from nnapi_prof.convert.region import Region
from nnapi_prof.graph.node import torch_dtype
from nnapi_prof.graph.plan import Engine
from nnapi_prof.graph.types import DimOrder, TensorType

MAGIC, VERSION = b"NPET", 1
_HEAD = struct.Struct("<4s5IQ")
_WEIGHT = struct.Struct("<QQ64s")
"""Both as device_agent/executorch/backend.cpp has them."""


@dataclass(frozen=True, eq=False)
class DelegatedCall:
    """One delegated call: a bundle, from ``inputs`` to ``outputs``."""

    bundle: Bundle = field(repr=False)
    inputs: tuple[str, ...]
    """Values of the graph, in the order of the operator's arguments."""
    outputs: tuple[str, ...]
    last: frozenset[str] = frozenset()
    """Outputs that lie channels last in ExecuTorch's memory, too."""

    @cached_property
    def _parts(self) -> tuple[bytes, tuple[tuple[int, bytes], ...]]:
        return runtime_parts(self.bundle)

    @cached_property
    def weights(self) -> Mapping[str, bytes]:
        """The bytes of the weights by their SHA-256 in hexadecimal."""
        return {hashlib.sha256(data).hexdigest(): data for _, data in self._parts[1]}

    @property
    def regions(self) -> tuple[Region, ...]:
        """The NNAPI models of the plan's segments on NNAPI."""
        return tuple(
            self.bundle.region(segment.units, segment.target)
            for segment in self.bundle.plan.segments
            if segment.target.engine is Engine.NNAPI
        )

    @cached_property
    def key(self) -> str:
        """Names the call: equal ones compute the same."""
        places = self.processed(range(len(self.inputs)), range(len(self.outputs)))
        return hashlib.sha256(places).hexdigest()

    def processed(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """Returns the bytes that the delegate reads (backend.cpp), for a call with the arguments in
        this order: each place's index in ``self.inputs``, and of each output its index in
        ``self.outputs``."""
        bundle, weights = self._parts
        graph = self.bundle.graph
        entering = [name for name in dict.fromkeys(graph.inputs) if name in self.inputs]
        leaving = list(dict.fromkeys(graph.outputs))
        in_places = {self.inputs[index]: place for place, index in enumerate(inputs)}
        out_places = {
            self.outputs[index]: len(inputs) + place for place, index in enumerate(outputs)
        }
        places = [in_places[name] for name in entering] + [out_places[name] for name in leaving]
        rows = b"".join(
            _WEIGHT.pack(offset, len(data), hashlib.sha256(data).hexdigest().encode())
            for offset, data in weights
        ) + struct.pack(f"<{len(places)}I", *places)
        start = _HEAD.size + len(rows)
        padding = -start % ALIGNMENT
        head = _HEAD.pack(
            *(MAGIC, VERSION, len(entering), len(leaving), len(weights)),
            *(start + padding, len(bundle)),
        )
        return head + rows + bytes(padding) + bundle

    def types(self, names: Sequence[str]) -> list[TensorType]:
        return [self.bundle.graph.values[name] for name in names]


_CALLS: weakref.WeakValueDictionary[str, DelegatedCall] = weakref.WeakValueDictionary()
"""By key, as long as somebody holds them: a partitioner does."""


def remember(call: DelegatedCall) -> str:
    """The key by which :func:`find` has the call from now on."""
    _CALLS[call.key] = call
    return call.key


def find(key: str) -> DelegatedCall:
    """The call of a key. KeyError where it is another process's."""
    return _CALLS[key]


@torch.library.custom_op("nnapi_prof::call", mutates_args=())
def delegated(inputs: Sequence[Tensor], key: str) -> list[Tensor]:
    raise NotImplementedError("nnapi_prof::call is lowered to ExecuTorch, and computes nothing")


@delegated.register_fake
def _shapes(inputs: Sequence[Tensor], key: str) -> list[Tensor]:
    call = find(key)
    return [
        torch.empty(
            type_.shape,
            dtype=torch_dtype(type_.dtype),
            memory_format=(torch.channels_last if name in call.last else torch.contiguous_format),
        )
        for name, type_ in zip(call.outputs, call.types(call.outputs), strict=True)
    ]


def lies_last(type_: TensorType) -> bool:
    """Whether a value lies channels last on the device."""
    return type_.dim_order is DimOrder.CHANNELS_LAST
