"""Samples from files: tensors, arrays and images. Files are strangers: what they hold is bounded,
and nothing in them is executed."""

from __future__ import annotations

import importlib
import math
import random
import re
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nnapi_prof.errors import InputSpecError, UsageError, irregular, option, visible
from nnapi_prof.frontend.archives import BadPickle, check_script_pickle, look_into

ARRAYS = frozenset({".pt", ".pth", ".npz", ".npy"})
IMAGES = frozenset(
    {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
)
MAX_BYTES = 4 << 30
"""Of the tensors that one file gives."""
MAX_FILES = 1_000_000
"""That a folder is looked through for."""
KINDS = "a .pt, .npz or .npy file, a folder of such files or of images, or module:function"

_AGAIN = "save them again, with torch.save, numpy.save or numpy.savez"

Transform = Callable[[Any], Any]


def elements_of(path: Path, transform: Transform | None, limit: int, seed: int) -> Iterator[Any]:
    """What a file, or the files of a folder, hold: samples or batches, not yet looked at.

    Of a folder at most ``limit`` files are read, chosen by ``seed``. In a folder of folders each is
    a class, and its number in the order of their names is the target of its files. Raises
    InputSpecError naming the file and what is wrong with it.
    """
    if not path.is_dir():
        yield from _of_file(path, transform)
        return
    files = [(file, None) for file in _files(path)]
    if not files:
        classes = sorted(folder for folder in path.iterdir() if folder.is_dir())
        files = [(file, i) for i, folder in enumerate(classes) for file in _files(folder)]  # type: ignore[misc]
    if not files:
        raise InputSpecError(f"{path} holds no samples: {KINDS} is what is read")
    chosen = sorted(random.Random(seed).sample(range(len(files)), min(limit, len(files))))
    for index in chosen:
        file, target = files[index]
        for element in _of_file(file, transform):
            yield element if target is None else (element, torch.tensor([target]))


def _files(folder: Path) -> list[Path]:
    found = []
    for count, path in enumerate(folder.iterdir()):
        if count >= MAX_FILES:
            raise InputSpecError(f"{folder} holds more than {MAX_FILES} files: give a smaller one")
        if path.suffix.lower() in ARRAYS | IMAGES and not path.is_dir():
            found.append(path)
    return sorted(found)


def _of_file(path: Path, transform: Transform | None) -> Iterator[Any]:
    if not path.exists():
        raise InputSpecError(f"{path} does not exist: {KINDS} is what samples are read from")
    if what := irregular(path):
        raise InputSpecError(f"{path} is {what}: {KINDS} is what samples are read from")
    suffix = path.suffix.lower()
    if suffix in IMAGES:
        yield _image(path, transform)
        return
    if suffix not in ARRAYS:
        raise InputSpecError(f"{path} is of no kind that is known: {KINDS} is what is read")
    try:
        elements: list[Any]
        if suffix == ".npy":
            elements = [_memory_mapped(path)]
        elif suffix == ".npz":
            elements = [_named_arrays(path)]
        else:
            elements = _saved(path)
    except (BadPickle, EOFError, KeyError, OSError, RuntimeError, ValueError) as error:
        raise InputSpecError(
            f"{path} cannot be read as samples ({visible(str(error), 200)}): {_AGAIN}"
        ) from error
    except RecursionError:
        raise InputSpecError(f"{path} is nested too deeply: give a list of tensors") from None
    for element in elements:
        yield element if transform is None else transform(element)


# Tensors


def _saved(path: Path) -> list[Any]:
    """What torch.save wrote: a list's elements, or the one thing that it is."""
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


# Arrays


def _memory_mapped(path: Path) -> NDArray[Any]:
    """An array that is read where it is used."""
    with path.open("rb") as file:
        _check_header(file, path.stat().st_size)
    # copied on writing, of which there is none: PyTorch wants to be allowed to
    array: NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    return array


def _named_arrays(path: Path) -> dict[str, NDArray[Any]]:
    sizes = look_into(path, _AGAIN).sizes
    if sum(sizes.values()) > MAX_BYTES:
        raise ValueError(f"it unpacks to {sum(sizes.values())} bytes, {MAX_BYTES} at most are read")
    arrays = {}
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
    return arrays


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


# Images


def _image(path: Path, transform: Transform | None) -> Any:
    if transform is None:
        raise InputSpecError(
            f"{path} is an image, and how it becomes an input is the model's own: give "
            f"{option('transform')}, a module:function that takes a PIL image and returns a tensor"
        )
    try:
        from PIL import Image
    except ImportError as error:
        raise InputSpecError(
            f"{path} is an image, which takes Pillow to read: pip install pillow, or save the "
            "inputs with torch.save"
        ) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                image.load()
    except Exception as error:  # whatever a reader of some format stumbles over
        raise InputSpecError(
            f"{path} cannot be read as an image: {visible(str(error), 200)}"
        ) from error
    return transform(image)


# The user's own code


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
            f"{text} cannot be loaded: {error}: write module:function, where the module is in this "
            "folder or installed"
        ) from error
    finally:
        sys.path.remove(here)
    if not callable(value):
        raise UsageError(f"{text} is {type(value).__name__}, a function is wanted")
    return value  # type: ignore[no-any-return]
