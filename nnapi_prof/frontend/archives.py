"""Check a model's archive before PyTorch reads it: names, unpacked sizes, pickles."""

from __future__ import annotations

import pickle
import pickletools
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from nnapi_prof.errors import ModelFileError, escape_untrusted

FREE_BYTES = 256 << 20
"""Unpacked bytes that any archive may have, however small it is."""
MAX_RATIO = 20
"""Largest ratio of unpacked to packed size above that. PyTorch's own archives have 1."""
MAX_RECORDS = 1_000_000
AGAIN = "save the model again with torch.jit.save or torch.export.save"


@dataclass(frozen=True)
class Archive:
    """A checked model archive. ``sizes`` maps names, without the folder that all files share, to
    unpacked bytes."""

    path: Path
    sizes: Mapping[str, int]

    @cached_property
    def _reader(self) -> Any:
        return torch._C.PyTorchFileReader(str(self.path))

    def read(self, name: str) -> bytes:
        """Returns the bytes of a record, through the reader that loads the model."""
        data: bytes = self._reader.get_record(name)
        return data

    def require_same_to_torch(self) -> None:
        """Raises ModelFileError where PyTorch's own reader finds other names or sizes: a file can
        be made so that readers disagree on where its directory is. Raises RuntimeError where
        PyTorch cannot read it."""
        names = self._reader.get_all_records()
        torch_sizes = {name: self._reader.get_record_size(name) for name in names}
        if len(names) != len(torch_sizes) or torch_sizes != self.sizes:
            raise ModelFileError(
                f"{self.path} is truncated or damaged (readers differ on what it holds)",
                "save or copy the file again",
            )


def look_into(path: Path, advice: str = AGAIN) -> Archive:
    """Opens and checks the archive at ``path``. Raises ModelFileError, whose message ends with
    ``advice``, where a name leads out of the archive or occurs twice, or where it unpacks to more
    than any model does."""
    sizes = _sizes(path, path, path.stat().st_size, advice)
    roots = {name.partition("/")[0] for name in sizes}
    if len(roots) == 1 and all("/" in name for name in sizes):
        return Archive(path, {name.partition("/")[2]: size for name, size in sizes.items()})
    return Archive(path, sizes)


def check_inner(path: Path, name: str, data: bytes) -> None:
    """Checks an archive within the archive ``path`` as :func:`look_into` does; leaves other bytes
    to their reader. Raises ModelFileError."""
    if data.startswith(b"PK"):
        _sizes(BytesIO(data), f"{path} ({escape_untrusted(name)})", len(data))


def _sizes(
    file: Path | BytesIO, shown: Path | str, n_bytes: int, advice: str = AGAIN
) -> dict[str, int]:
    try:
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise ModelFileError(
            f"{shown} is truncated or damaged ({escape_untrusted(str(error))})",
            "save or copy the file again",
        ) from error
    if len(infos) > MAX_RECORDS:
        raise ModelFileError(
            f"{shown} holds {len(infos)} records, {MAX_RECORDS} at most are read", f"{advice}"
        )
    seen: set[str] = set()
    for info in infos:
        name = info.filename
        if _leaves(name):
            raise ModelFileError(
                f"{shown} holds the name {escape_untrusted(name, 100)}, which leads out of the"
                " archive",
                advice,
            )
        if name.lower() in seen:  # PyTorch's reader ignores case
            raise ModelFileError(
                f"{shown} holds {escape_untrusted(name, 100)} twice, so that readers differ on what"
                " it is",
                advice,
            )
        seen.add(name.lower())
    total = sum(info.file_size for info in infos)
    if total > FREE_BYTES and total > MAX_RATIO * n_bytes:
        raise ModelFileError(
            f"{shown} has {_size_text(n_bytes)} and would unpack to {_size_text(total)}, as no"
            " model does",
            advice,
        )
    return {info.filename: info.file_size for info in infos if not info.is_dir()}


def _leaves(name: str) -> bool:
    return (
        not name
        or name.startswith("/")
        or "\\" in name
        or not name.isprintable()
        or re.match(r"[A-Za-z]:", name) is not None
        or ".." in name.split("/")
    )


def _size_text(n_bytes: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes} bytes"


# Pickles of TorchScript archives, read without creating any of their objects.
#
# PyTorch's own reader is C++ and calls no Python, but it trusts the numbers in a pickle. Here
# Python's reference implementation reads each pickle, with stand-ins for everything it names.


MAX_PICKLE_BYTES = 1 << 30
_CLASS = re.compile(r"__torch__(\.\w+)*")
_TORCH_CLASS = re.compile(r"__torch__\.torch\.classes\.(\w+)")
_KNOWN = {
    "builtins": {"complex"},
    "collections": {"OrderedDict"},
    "torch": {  # and storages, whose sizes are checked
        "device",
        "per_tensor_affine",
        "per_tensor_symmetric",
        "per_channel_affine",
        "per_channel_symmetric",
        "per_channel_affine_float_qparams",
    },
    "torch._utils": {
        "_rebuild_tensor",
        "_rebuild_tensor_v2",
        "_rebuild_parameter",
        "_rebuild_qtensor",
        "_rebuild_sparse_tensor",
        "_rebuild_sparse_csr_tensor",
        "_rebuild_meta_tensor_no_storage",
        "_rebuild_device_tensor_from_numpy",
        "_rebuild_device_tensor_from_cpu_tensor",
    },
    "torch.jit._pickle": {
        "build_intlist",
        "build_tensorlist",
        "build_doublelist",
        "build_boollist",
        "build_tensor_from_id",
        "restore_type_tag",
    },
}
_STORAGE = re.compile(r"(\w+)Storage")
_ITEM_BYTES = {
    "Double": 8, "Float": 4, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2,
    "Char": 1, "Byte": 1, "Bool": 1, "ComplexDouble": 16, "ComplexFloat": 8, "QInt32": 4,
    "QInt8": 1, "QUInt8": 1, "QUInt4x2": 1, "QUInt2x4": 1,
}  # fmt: skip


CLASSES = frozenset("quantized rnn sparse xnnpack mkldnn".split())
"""Namespaces of ``torch.classes`` whose objects hold packed weights."""


class BadPickle(ValueError):
    """A flaw in a pickle; the message is the end of a sentence."""


class _Name:
    """A stand-in for a class or function that a pickle names. Calling it only makes another
    stand-in; changing its state is refused."""

    def __init__(self, name: str, element: int = 0) -> None:
        self.name = name
        self.element = element
        vars(self)["__new__"] = lambda *_: _Thing(name)  # what NEWOBJ calls

    def __setstate__(self, state: object) -> None:
        raise BadPickle(f"it changes {escape_untrusted(self.name, 100)}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.name == "torch.jit._pickle.restore_type_tag" and args:
            return args[0]
        if self.name.startswith("torch._utils._rebuild") and "meta" not in self.name:
            _check_tensor(args)
        return _Thing(self.name)


class _Thing:
    """A stand-in for an object that a pickle would create."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def __setstate__(self, state: object) -> None:
        pass

    def __hash__(self) -> int:
        return id(self)

    def extend(self, items: object) -> None:
        pass

    append = extend

    def __setitem__(self, key: object, value: object) -> None:
        pass


class _Storage(_Thing):
    def __init__(self, n_elements: int) -> None:
        super().__init__("storage")
        self.n_elements = n_elements


class _PickleInspector(pickle._Unpickler):  # the reference implementation
    def __init__(self, data: bytes, sizes: Mapping[str, int], folder: str) -> None:
        super().__init__(BytesIO(data))
        self._sizes = sizes
        self._folder = folder

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        shown = escape_untrusted(full, 100)
        custom = _TORCH_CLASS.match(full)
        if custom:
            if custom[1] not in CLASSES:
                raise BadPickle(f"it holds an object of {shown}, which is not packed weights")
        if _CLASS.fullmatch(module):
            return _Name(full)
        storage = _STORAGE.fullmatch(name)
        if module == "torch" and storage and storage[1] in _ITEM_BYTES:
            return _Name(full, _ITEM_BYTES[storage[1]])
        if name not in _KNOWN.get(module, ()):
            raise BadPickle(f"it names {shown}, which tensors and TorchScript do not")
        return _Name(full)

    def persistent_load(self, pid: Any) -> Any:
        """Returns a stand-in for a storage, for whose elements the archive must have the bytes."""
        if not (isinstance(pid, tuple) and len(pid) == 5 and pid[0] == "storage"):
            raise BadPickle("it refers to what is not a storage")
        _, kind, key, _, n_elements = pid
        if not isinstance(kind, _Name) or not kind.element:
            raise BadPickle("it has a storage of an unknown type")
        if not isinstance(n_elements, int) or not isinstance(key, str):
            raise BadPickle("it has a storage without name or length")
        n_bytes = self._sizes.get(f"{self._folder}/{key}")
        if n_elements < 0 or n_bytes is None or n_elements * kind.element > n_bytes:
            raise BadPickle(
                f"its tensor {escape_untrusted(key, 60)} has {n_elements} elements, and the archive"
                f" {'no' if n_bytes is None else n_bytes} bytes for them"
            )
        return _Storage(n_elements)

    def get_extension(self, code: int) -> Any:
        raise BadPickle(f"it has the extension code {code}")


def _check_tensor(args: tuple[Any, ...]) -> None:
    """Refuses a tensor that extends beyond its storage."""
    if len(args) < 4 or not isinstance(args[0], _Storage):
        return
    storage, offset, sizes, strides = args[:4]
    numbers = [offset, *_ints(sizes), *_ints(strides)]
    if any(not isinstance(n, int) or n < 0 for n in numbers) or len(sizes) != len(strides):
        raise BadPickle("it has a tensor of impossible sizes")
    if all(sizes):
        last = offset + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
        if last >= storage.n_elements:
            raise BadPickle(
                f"it has a tensor that reaches to element {last} of {storage.n_elements}"
            )


def _ints(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, tuple | list):
        raise BadPickle("it has a tensor without sizes")
    return tuple(value)


def check_script_pickle(data: bytes, sizes: Mapping[str, int], folder: str) -> None:
    """Raises BadPickle where a TorchScript pickle names anything that such archives do not need, or
    where its numbers do not fit. ``sizes`` are those of the archive's records; ``folder`` holds the
    pickle's tensors."""
    if len(data) > MAX_PICKLE_BYTES:
        raise BadPickle(f"it has {len(data)} bytes")
    try:
        # The memo table is made as long as its largest index.
        for opcode, argument, _ in pickletools.genops(data):
            if "PUT" in opcode.name and isinstance(argument, int) and argument > len(data):
                raise BadPickle(f"it remembers thing {argument} in {len(data)} bytes")
        _PickleInspector(data, sizes, folder).load()
    except BadPickle:
        raise
    except RecursionError:
        raise BadPickle("it is nested too deeply") from None
    except Exception as error:  # any error of the reference implementation
        raise BadPickle(f"it is damaged ({escape_untrusted(str(error), 100)})") from error


def check_saved_tensors(data: bytes) -> None:
    """Raises BadPickle where :func:`torch.save`'s bytes hold more than tensors and containers."""
    try:
        torch.load(BytesIO(data), map_location="cpu", weights_only=True)
    except RecursionError:
        raise BadPickle("it is nested too deeply") from None
    except Exception as error:
        named = re.search(r"GLOBAL ([\w.]+)", str(error))
        what = f": it names {named[1]}" if named else ""
        if named and named[1].startswith("torchao."):
            what += " (torchao.utils.unwrap_tensor_subclass(model) before the export makes tensors)"
        raise BadPickle(f"it holds more than tensors, tuples, lists and dicts{what}") from error
