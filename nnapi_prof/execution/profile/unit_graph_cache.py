"""Cache a model's units between runs, and its converted regions within one.

Reading a model means torch.export, which takes seconds. Where the cost table has everything
already, the units are enough; they are in the cache folder, under a hash of the model's bytes, the
stated inputs, and the code that cut the units.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import nnapi_prof
from nnapi_prof.errors import (
    ConversionError,
    FrontendError,
    SerializationError,
    UnsupportedOp,
    non_regular_kind,
)
from nnapi_prof.graph.unit import UnitGraph, graph_from_json, graph_to_json
from nnapi_prof.toolchain import cache_dir

if TYPE_CHECKING:
    from nnapi_prof.bundle import MixedPrecision
    from nnapi_prof.convert.region import Region
    from nnapi_prof.costs.model.fit import UnitSet
    from nnapi_prof.costs.model.forms import UnitForms
    from nnapi_prof.graph.program import Program

LOGGER = logging.getLogger(__name__)
CUTTING_CODE = ("frontend", "graph", "passes")
"""Packages of nnapi_prof that cut a model into units."""


@dataclass(frozen=True)
class UnitGraphCache:
    """A model's units, and ``load``, a function that returns the same program each time."""

    name: str
    units: UnitGraph
    notes: tuple[str, ...]
    load: Callable[[], Program] = field(repr=False)

    @classmethod
    def of(cls, program: Program) -> UnitGraphCache:
        return cls(program.name, program.units, program.notes, lambda: program)


def cached_units(
    path: Path, inputs: Sequence[str], load: Callable[[], Program], cache: Path | None = None
) -> UnitGraphCache:
    """Returns the units of a model file, from the cache, else by loading the model now.

    ``inputs`` are the stated inputs as the user wrote them; ``load`` reads the model with them, and
    its errors pass on. ``cache`` replaces the cache folder; if it cannot be written, only time is
    lost.
    """
    try:
        content = None if non_regular_kind(path) else path.read_bytes()
    except OSError:
        content = None
    if content is None:
        return UnitGraphCache.of(load())  # which raises the error for the path
    entry = (cache or cache_dir()) / "graphs" / f"{_key(path, content, inputs)}.json"
    stored = _read_entry(entry, load)
    if stored is not None:
        return stored
    program = load()
    text = json.dumps(
        {
            "name": program.name,
            "notes": list(program.notes),
            "graph": graph_to_json(program.units),
        }
    )
    with contextlib.suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        draft = entry.with_suffix(f".{os.getpid()}")
        draft.write_text(text)
        draft.replace(entry)
    return UnitGraphCache.of(program)


def _read_entry(entry: Path, load: Callable[[], Program]) -> UnitGraphCache | None:
    """Returns the cached units; None where there are none, or the entry is damaged."""
    try:
        data = json.loads(entry.read_text())
        units = graph_from_json(data["graph"])
        name, notes = str(data["name"]), tuple(map(str, data["notes"]))
    except (OSError, ValueError, KeyError, TypeError, SerializationError):
        return None

    loaded: list[Program] = []

    def load_once() -> Program:
        if not loaded:
            program = load()
            if program.units != units:
                entry.unlink(missing_ok=True)
                raise FrontendError(
                    f"{name}: the model's units are not the ones remembered in {entry}, which is "
                    "removed now",
                    "run the same command again",
                )
            loaded.append(program)
        return loaded[0]

    return UnitGraphCache(name, units, notes, load_once)


def _key(path: Path, content: bytes, inputs: Sequence[str]) -> str:
    stamp = {
        "file": path.name,
        "model": hashlib.sha256(content).hexdigest(),
        "inputs": list(inputs),
        "torch": importlib.metadata.version("torch"),
        "code": list(_code()),
    }
    return hashlib.sha256(json.dumps(stamp).encode()).hexdigest()[:32]


def _code() -> Iterator[tuple[str, int, int]]:
    """Yields name, size and time of the source files that cut units: updates invalidate entries."""
    root = Path(nnapi_prof.__file__).parent
    for package in CUTTING_CODE:
        for source in sorted((root / package).rglob("*.py")):
            state = source.stat()
            yield str(source.relative_to(root)), state.st_size, state.st_mtime_ns


def load_program(
    path: Path, inputs: Sequence[str], keep: bool = True, mixed: MixedPrecision | None = None
) -> Program:
    """Loads a model; ``keep`` is that of frontend.load. With ``mixed`` some of its units are in 8
    bits.

    Raises what :func:`nnapi_prof.frontend.load` raises, and FrontendError where nothing is left to
    place on a device.
    """
    from nnapi_prof import frontend
    from nnapi_prof.frontend.inputs import parse_input_specs

    program = frontend.load(path, parse_input_specs(inputs), keep)
    LOGGER.debug("read %s: %d units", path, len(program.units.units))
    if not program.units.units:
        raise FrontendError(
            f"{path} computes nothing: its outputs are constants or its inputs as they are; give a"
            " model with operations to measure and to place"
        )
    return program if mixed is None else mixed.applied(program)


class Converter:
    """Converts each region once for each level, and keeps it until :meth:`forget`.

    ``load`` returns the program; it is called at the first conversion, and imports torch.
    """

    def __init__(self, load: Callable[[], Program]) -> None:
        self._load = load
        self._models: dict[tuple[UnitSet, int, UnitForms, bool], Region | str] = {}

    def convert(
        self, region: UnitSet, level: int, forms: UnitForms = (), halved: bool = False
    ) -> Region | str:
        """Returns the region's model with products in these ``forms`` (``halved``: in float16), or
        the reason why it is refused."""
        key = (region, level, forms, halved)
        if key not in self._models:
            try:
                self._models[key] = self._convert(*key)
            except UnsupportedOp as refusal:
                self._models[key] = refusal.refusal.sentence  # for every model with such a unit
            except ConversionError as refusal:
                self._models[key] = str(refusal)
        return self._models[key]

    def _convert(self, region: UnitSet, level: int, forms: UnitForms, halved: bool) -> Region:
        program = self._load()  # which imports torch; the lowerings need it, too
        from nnapi_prof.convert.lower import convert_region
        from nnapi_prof.convert.region import to_float16

        if not halved:
            return convert_region(program, region, level, forms)
        whole = self.convert(region, level, forms)
        if isinstance(whole, str):
            raise ConversionError(whole)
        return to_float16(whole)

    def forget(self) -> None:
        """Drops the models, which hold their weights."""
        self._models.clear()
