"""Tells which input of an operation is its data, from the JSON facts."""

from __future__ import annotations

from typing import Any


def data_index(op: dict[str, Any]) -> int:
    """The first tensor input whose type is free: the types of all that follow it depend on it.

    ``op`` is one entry of ``nnapi_ops.json``. 0 for operations whose tensors all have fixed types.
    """
    free = (
        index
        for index, entry in enumerate(op["signatures"][0]["inputs"])
        if entry["kind"] == "tensor" and "tensor_types" not in entry
    )
    return next(free, 0)
