"""Samples from a file of tensors or arrays, and functions of the user's own. Files are strangers:
what they hold is bounded, and nothing in them is executed."""

from __future__ import annotations

import importlib
import math
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nnapi_prof.errors import InputSpecError, UsageError, escape_untrusted, non_regular_kind
from nnapi_prof.frontend.archives import BadPickle, check_script_pickle, look_into

MAX_BYTES = 4 << 30
"""Of the tensors that one file gives."""
KINDS = "a .pt or .npz file, or module:function"

_AGAIN = "save them again, with torch.save or numpy.savez"


def read_samples(path: Path) -> list[Any]:
    """Return what a ``.pt`` or ``.npz`` file holds: samples or batches, not yet looked at. Raises
    InputSpecError naming the file and what is wrong with it."""
    if not path.exists():
        raise InputSpecError(f"{path} does not exist: {KINDS} is what samples are read from")
    readers = {".pt": _saved, ".pth": _saved, ".npz": _named_arrays}
    read = readers.get(path.suffix.lower())
    if path.is_dir() or read is None:
        raise InputSpecError(
            f"{path} is neither a .pt nor an .npz file: of images, arrays or folders"
            " module:function gives samples, a function that returns an iterable of tensors"
        )
    if what := non_regular_kind(path):
        raise InputSpecError(f"{path} is {what}: {KINDS} is what samples are read from")
    try:
        return read(path)
    except (BadPickle, EOFError, KeyError, OSError, RuntimeError, ValueError) as error:
        raise InputSpecError(
            f"{path} cannot be read as samples ({escape_untrusted(str(error), 200)})", f"{_AGAIN}"
        ) from error
    except RecursionError:
        raise InputSpecError(f"{path} is nested too deeply", "give a list of tensors") from None


def _saved(path: Path) -> list[Any]:
    """Reads a file of torch.save: a list's elements, or its one object."""
    with path.open("rb") as file:
        if file.read(2) != b"PK":
            raise ValueError("it is not an archive as torch.save writes it")
    archive = look_into(path, _AGAIN)
    archive.require_same_to_torch()
    check_script_pickle(archive.read("data.pkl"), archive.sizes, "data")
    content = torch.load(path, map_location="cpu", weights_only=True)
    n_bytes = sum(tensor.numel() * tensor.element_size() for tensor in _tensors(content))
    if n_bytes > MAX_BYTES:
        raise ValueError(f"its tensors have {n_bytes} bytes, {MAX_BYTES} at most are read")
    return list(content) if isinstance(content, list) else [content]


def _tensors(content: object) -> Iterator[Tensor]:
    if isinstance(content, Tensor):
        yield content
    elif isinstance(content, list | tuple):
        for item in content:
            yield from _tensors(item)
    elif isinstance(content, dict):
        yield from _tensors(list(content.values()))
    elif not isinstance(content, bool | float | int | str | None):
        raise ValueError(f"it holds {type(content).__name__}, tensors are what is read")


def _named_arrays(path: Path) -> list[Any]:
    sizes = look_into(path, _AGAIN).sizes
    if sum(sizes.values()) > MAX_BYTES:
        raise ValueError(f"it unpacks to {sum(sizes.values())} bytes, {MAX_BYTES} at most are read")
    arrays: dict[str, NDArray[Any]] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                with archive.open(name) as file:
                    _check_header(file, archive.getinfo(name).file_size)  # type: ignore[arg-type]
                with archive.open(name) as file:
                    array = np.lib.format.read_array(file, allow_pickle=False)
                arrays[name.removesuffix(".npy")] = array
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise ValueError(str(error)) from error
    return [arrays]


def _check_header(file: BinaryIO, n_bytes: int) -> None:
    """Raises ValueError where an array says that it has more elements than bytes, or others than
    numbers."""
    version = np.lib.format.read_magic(file)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"version {version} of its format is not read here")
    shape, _, dtype = readers[version](file)
    if dtype.kind not in "biuf":
        raise ValueError(f"its elements are {dtype}, numbers are what is read")
    if any(size < 0 for size in shape) or math.prod(shape) * dtype.itemsize > n_bytes:
        raise ValueError(f"it says that its shape is {shape}, and has {n_bytes} bytes")


def is_function(text: str) -> bool:
    """Whether a text is ``module:function``."""
    return re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", text) is not None


def user_function(text: str) -> Callable[..., Any]:
    """The function that ``module:function`` names, from the folder of work or what is installed.

    Raises UsageError where there is none.
    """
    module_name, _, name = text.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        value: Any = importlib.import_module(module_name)
        for part in name.split("."):
            value = getattr(value, part)
    except (AttributeError, ImportError) as error:
        raise UsageError(
            f"{text} cannot be loaded: {error}",
            "write module:function, where the module is in this folder or installed",
        ) from error
    finally:
        sys.path.remove(here)
    if not callable(value):
        raise UsageError(f"{text} is {type(value).__name__}, a function is wanted")
    return value  # type: ignore[no-any-return]
