"""Estimate a Snapdragon's NPU without a phone, by Qualcomm's own compiler and simulator.

The package ``onnxruntime-qnn`` (the extra ``qnn``) provides both; none of it is shipped here.
Results are *estimates*: never called measurements, and never stored with them.

This module has the names of Snapdragons, and finds the package. The compiler knows each chip by a
number. The package's simulator only has two generations of the NPU (v73 and v81). A phone's own
number gives its partition, refusals and artefacts, but no time; :attr:`Chip.weights` says which
simulated times are used instead.
"""

from __future__ import annotations

import enum
import functools
import importlib.metadata
import importlib.util
import platform
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from nnapi_prof.errors import UsageError, did_you_mean

PREFIX = "qnn:"
"""Prefix of the names of these devices, such as ``qnn:SM8750/fp16``."""


class QnnPrecision(enum.Enum):
    """The precision that the NPU computes in."""

    FP16 = "fp16"
    INT8 = "int8"


class NpuGeneration(enum.Enum):
    """A generation of the NPU that the simulator times."""

    V73 = "v73"
    V81 = "v81"

    @property
    def soc_model(self) -> int:
        """A chip of that generation for which the simulator gives an estimate (QCS9100, SA8797)."""
        return {NpuGeneration.V73: 77, NpuGeneration.V81: 72}[self]


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip that the compiler partitions for."""

    name: str
    marketing: str
    soc_model: int
    """The compiler's number for the chip."""
    hexagon: int
    """Generation of its NPU: 73 for v73."""
    weights: tuple[tuple[NpuGeneration, float], ...]
    """Exponents of simulated times in the geometric mean that predicts this chip best."""
    calibrated_on: str | None
    """The published device that is this chip; None where there is none."""
    nearest: str | None = None
    """The chip whose calibration is used where this one has none."""
    float_runs: bool = True
    """False where the compiler takes float models that the chip cannot run (v68)."""


_V73 = ((NpuGeneration.V73, 1.0),)
_V81 = ((NpuGeneration.V81, 1.0),)
"""v73's simulation makes some graph forms far too slow, even for phones of that generation."""
_BOTH = ((NpuGeneration.V73, 0.5), (NpuGeneration.V81, 0.5))

CHIPS = {
    chip.name: chip
    for chip in (
        Chip("SM8350", "Snapdragon 888", 30, 68, _V73, None, "SM8450", float_runs=False),
        Chip("SM8450", "Snapdragon 8 Gen 1", 36, 69, _BOTH, "QCS8450 (Proxy)"),
        Chip("SM8475", "Snapdragon 8+ Gen 1", 42, 69, _BOTH, None, "SM8450"),
        Chip("SM8550", "Snapdragon 8 Gen 2", 43, 73, _V81, "QCS8550 (Proxy)"),
        Chip("SM8650", "Snapdragon 8 Gen 3", 57, 75, _V81, "Samsung Galaxy S24"),
        Chip("SM8750", "Snapdragon 8 Elite", 69, 79, _V81, "Samsung Galaxy S25"),
        Chip("SM8850", "Snapdragon 8 Elite Gen 5", 87, 81, _V81, "Snapdragon 8 Elite Gen 5 QRD"),
        Chip("QCS9100", "Dragonwing IQ-9075", 77, 73, _V73, "Dragonwing IQ-9075 EVK"),
        Chip("SA8775P", "SA8775P", 52, 73, _V73, "SA8775P ADP"),
    )
}


def find_chip(name: str) -> Chip:
    """Returns the chip of that name, in either case. Raises UsageError, listing the names."""
    chip = CHIPS.get(name.upper())
    if chip is None:
        raise UsageError(
            f"no chip {name!r}{did_you_mean(name.upper(), CHIPS)}: there are {', '.join(CHIPS)}"
        )
    return chip


def is_qnn(device: object) -> bool:
    """Returns whether ``--device`` names a chip rather than a device that could be reached."""
    return isinstance(device, str) and device.startswith(PREFIX)


def parse_device(device: str) -> tuple[tuple[Chip, ...], QnnPrecision]:
    """Reads ``qnn:CHIP[,CHIP...][/fp16|/int8]``; fp16 where no precision is named.

    Raises UsageError where a chip or the precision does not exist.
    """
    names, slash, precision = device.removeprefix(PREFIX).partition("/")
    try:
        chosen = QnnPrecision(precision.lower()) if slash else QnnPrecision.FP16
    except ValueError:
        raise UsageError(
            f"no precision {precision!r} in {device!r}", f"write {PREFIX}{names}/fp16 or /int8"
        ) from None
    chips = [find_chip(name.strip()) for name in names.split(",")]
    return tuple(dict.fromkeys(chips)), chosen


def one_chip(device: str) -> tuple[Chip, QnnPrecision]:
    """Reads a device of one chip by :func:`parse_device`. Raises UsageError for several."""
    chips, precision = parse_device(device)
    if len(chips) > 1:
        raise UsageError(
            f"{device!r} names {len(chips)} chips",
            "give one; `nnapi-prof estimate` compares several",
        )
    return chips[0], precision


INSTALL = "pip install 'nnapi-prof[qnn]'"
NEEDED = ("onnxruntime_qnn", "onnxruntime", "onnx", "onnxscript")
LICENCE = (
    "Qualcomm's compiler and simulator come under the AI Stack License (Qualcomm_LICENSE.pdf in the"
    " package onnxruntime-qnn): use it to develop your own applications and for benchmarking, pass"
    " none of it on by itself"
)


def require_compiler() -> None:
    """Raises UsageError, with what to install, where the compiler is missing or cannot run."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise UsageError(
            "Qualcomm's simulator runs on Linux x86-64 only, and this is"
            f" {sys.platform} {platform.machine()}: use such a machine for qnn: devices"
        )
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"devices qnn:CHIP need Qualcomm's compiler, and {', '.join(missing)} is not installed:"
            f" {INSTALL}"
        )


def compiler_available() -> bool:
    """Returns whether :func:`require_compiler` would pass."""
    try:
        require_compiler()
    except UsageError:
        return False
    return True


@functools.cache
def qairt_version() -> str:
    """Returns the version of Qualcomm's compiler and simulator, between which estimates differ."""
    from onnxruntime_qnn import build_and_package_info

    return str(build_and_package_info.qnn_version)


@functools.cache
def compiler_versions() -> dict[str, str]:
    """Returns the versions that an estimate depends on, besides the graph."""
    return {
        "qairt": qairt_version(),
        "onnxruntime-qnn": importlib.metadata.version("onnxruntime-qnn"),
        "onnxruntime": importlib.metadata.version("onnxruntime"),
    }


def no_conditions(device: str, asked: Iterable[str]) -> None:
    """Raises UsageError where conditions are asked for that only real devices support."""
    if names := list(asked):
        raise UsageError(
            f"{device} is estimated by Qualcomm's simulator, which does not support"
            f" {', '.join(names)}",
            "leave that out",
        )
