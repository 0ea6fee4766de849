"""Read data of users: samples in files of tensors or arrays, functions, and metrics by name.

Files are untrusted: their content is limited in size and never executed. A metric is one of
:mod:`nnapi_prof.precision.metrics`, or a function of the user.
"""

from __future__ import annotations

import importlib
import math
import re
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nnapi_prof.errors import (
    InputSpecError,
    UsageError,
    did_you_mean,
    escape_untrusted,
    non_regular_kind,
)
from nnapi_prof.frontend.archives import BadPickle, check_script_pickle, look_into
from nnapi_prof.precision.metrics import (
    BuiltInMetric,
    ErrorEstimate,
    FloatOutputs,
    Floats,
    Metric,
    MetricKind,
    interval_ends,
    means_drawn,
)

MAX_BYTES = 4 << 30
"""Most bytes of the tensors in one file."""
KINDS = "a .pt or .npz file, or module:function"

_AGAIN = "save them again, with torch.save or numpy.savez"


def read_samples(path: Path) -> list[Any]:
    """Return the samples or batches in a ``.pt`` or ``.npz`` file, not yet checked. Raises
    InputSpecError naming the file and its fault."""
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
    """Reads a file of torch.save: the elements of a list, or a single object."""
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
    """Raises ValueError where an array's header states more elements than the file has bytes for,
    or elements that are not numbers."""
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
    """Returns whether a text is ``module:function``."""
    return re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", text) is not None


def user_function(text: str) -> Callable[..., Any]:
    """Returns the function ``module:function`` from the working directory or installed packages.

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
        raise UsageError(f"{text} is {type(value).__name__}, a function is required")
    return value  # type: ignore[no-any-return]


USER_DRAWS = 200
"""Number of draws for a user's function, which is called for each; see :data:`.metrics.DRAWS`."""


def metric_of(name: str) -> Metric:
    """Returns the metric that ``--metric`` names. Raises UsageError."""
    if is_function(name):
        return UserMetric(name, user_function(name))
    kinds = {kind.value: kind for kind in MetricKind}
    if name not in kinds:
        raise UsageError(
            f"no metric {name!r}{did_you_mean(name, kinds)}: there are {', '.join(kinds)}, and a "
            "function of your own as module:function"
        )
    return BuiltInMetric(kinds[name])


@dataclass(frozen=True)
class UserMetric:
    """Metric ``function(outputs, targets)`` of a user, which returns a number for all samples at
    once; smaller is better (the share of wrong classes, a loss).

    ``outputs`` is the model's output as one tensor, or a tuple where there are several; samples are
    joined along the first dimension. So are the targets, where they are numbers, or tensors or
    arrays of one shape; else they are a list.
    """

    name: str
    function: Callable[..., Any] = field(repr=False, compare=False)

    @property
    def needs_targets(self) -> bool:
        return True

    def estimate(
        self,
        outputs: Sequence[Floats],
        reference: FloatOutputs,
        targets: Sequence[Any] | None = None,
    ) -> ErrorEstimate:
        n = reference.n_samples
        if targets is None or len(targets) != n:
            count = "no targets" if targets is None else f"{len(targets)} targets"
            raise UsageError(
                f"the metric {self.name} needs a target for each of {n} samples, there are {count}",
                "give them with the calibration data, as (inputs, target)",
            )
        if all(map(np.array_equal, outputs, reference.outputs)):
            return ErrorEstimate(0.0, 0.0, 0.0, n)
        mine, theirs = (
            [torch.from_numpy(output).float() for output in every]
            for every in (outputs, reference.outputs)
        )
        wishes = _stack_targets(targets)

        def added(samples: NDArray[np.int64]) -> float:
            chosen = torch.from_numpy(samples)
            answers = (
                [targets[i] for i in samples] if wishes is None else _join_samples(wishes, chosen)
            )
            return self._call([_join_samples(o, chosen) for o in mine], answers) - self._call(
                [_join_samples(o, chosen) for o in theirs], answers
            )

        error = added(np.arange(n))
        return ErrorEstimate(error, *self._interval(error, added, n), n)

    def _interval(
        self, error: float, added: Callable[[NDArray[np.int64]], float], n: int
    ) -> tuple[float, float]:
        if n < 2 or not math.isfinite(error):
            return -math.inf, math.inf
        random = np.random.default_rng(0)
        alone = self._alone(added, n)
        if alone is not None and math.isclose(float(alone.mean()), error, abs_tol=1e-9):
            # A mean over samples. Where hardly any sample changes, others still might, so this
            # adds half a sample: a quarter one step up and a quarter one step down.
            step = float(np.abs(alone).max()) or 1.0
            rows = [np.stack([np.append(alone, [step, -step]), np.ones(n + 2)], axis=1)]
            weights = np.append(np.ones(n), [0.25, 0.25]) / (n + 0.5)
            first, other = means_drawn(rows, weights, n, random)
            ends = interval_ends(other - first, n)
        else:
            apart = [
                added(random.integers(0, n, n)) - added(random.integers(0, n, n))
                for _ in range(USER_DRAWS)
            ]
            ends = interval_ends(np.array(apart), n)
        return error + ends[0], error + ends[1]

    def _alone(self, added: Callable[[NDArray[np.int64]], float], n: int) -> Floats | None:
        """Returns the function's value for each sample alone; None where it rejects one."""
        try:
            return np.array([added(np.array([i])) for i in range(n)])
        except UsageError:
            return None

    def _call(self, outputs: Sequence[Tensor], targets: Any) -> float:
        try:
            answer = self.function(outputs[0] if len(outputs) == 1 else tuple(outputs), targets)
            number = float(answer)
        except Exception as error:  # the user's code may raise anything
            words = " ".join(str(error).split()) or type(error).__name__
            raise UsageError(f"the metric {self.name} failed: {words}") from error
        if math.isnan(number):
            raise UsageError(f"the metric {self.name} gave NaN, a number is needed")
        return number


def _join_samples(values: Tensor, samples: Tensor) -> Tensor:
    """Selects samples of [all samples, first, ...] and joins them as [samples x first, ...]."""
    chosen = values[samples]
    return chosen.flatten(0, 1) if chosen.dim() > 1 else chosen


def _stack_targets(targets: Sequence[Any]) -> Tensor | None:
    """Stacks targets into one tensor [samples, ...]; None where they are neither tensors of one
    shape nor numbers."""
    if not all(isinstance(t, Tensor | np.ndarray | np.generic | int | float) for t in targets):
        return None
    tensors = [torch.as_tensor(t) for t in targets]
    return torch.stack(tensors) if len({t.shape for t in tensors}) == 1 else None
