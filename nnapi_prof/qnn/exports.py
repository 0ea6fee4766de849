"""Exports of programs to ONNX, preprocessed for the compiler and kept in the cache.

Exporting takes seconds of a core, whereas reading an export takes a tenth of one. An entry is named
by all that decides its bytes: graph, weights, example shapes and versions of the exporters.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, fx

from nnapi_prof.qnn.graphs import OPSET, export_onnx, preprocess
from nnapi_prof.toolchain import cache_dir

if TYPE_CHECKING:
    import onnx

FORMAT = 1
"""Of an entry; a change of :func:`export_onnx` or :func:`preprocess` raises it."""
MOST_BYTES, MOST_ENTRIES = 256 << 20, 8
"""Of an entry, and entries that stay; the oldest ones go first."""
EXPORTERS = ("torch", "onnx", "onnxscript", "onnxruntime", "onnxruntime-qnn", "numpy")


def prepared_export(
    module: fx.GraphModule, examples: Sequence[Tensor], outputs: Sequence[str]
) -> onnx.ModelProto:
    """Return :func:`preprocess` of :func:`export_onnx`, from the cache where it is there.

    Raises ConversionError where the module cannot be exported.
    """
    import onnx

    key = export_key(module, examples, outputs)
    entry = cache_dir() / "qnn" / "exports" / f"{key}.onnx"
    if key is not None:
        with contextlib.suppress(Exception):  # protobuf's own errors, of a file that is no model
            return onnx.load_model(str(entry))
    model = preprocess(export_onnx(module, examples, outputs), last=False).model
    if key is not None and model.ByteSize() <= MOST_BYTES:
        _keep(entry, model.SerializeToString())
    return model


def export_key(
    module: fx.GraphModule, examples: Sequence[Tensor], outputs: Sequence[str]
) -> str | None:
    """Return the name of an export; None where the module holds what has no bytes to hash."""
    versions = [(name, _package_version(name)) for name in EXPORTERS]
    sizes = [(tuple(each.shape), str(each.dtype)) for each in examples]
    digest = hashlib.sha256(repr((FORMAT, OPSET, versions, sizes, list(outputs))).encode())
    for node in module.graph.nodes:
        digest.update(repr((node.op, node.name, str(node.target), node.args, node.kwargs)).encode())
        if node.op == "call_module":
            return None
        if node.op == "get_attr":
            value = module
            for part in str(node.target).split("."):
                value = getattr(value, part)
            if not isinstance(value, Tensor) or value.layout is not torch.strided:
                return None
            digest.update(repr((tuple(value.shape), str(value.dtype))).encode())
            digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:40]


def _package_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _keep(entry: Path, data: bytes) -> None:
    """Write an entry whole or not at all; a cache that cannot be written costs time only."""
    with contextlib.suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        draft = entry.with_suffix(f".{os.getpid()}")
        draft.write_bytes(data)
        draft.replace(entry)
        entries = sorted(entry.parent.glob("*.onnx"), key=lambda path: path.stat().st_mtime)
        for old in entries[:-MOST_ENTRIES]:
            old.unlink(missing_ok=True)
