"""Descriptions of real and simulated phones, as cost models.

A real phone's description is ``nnapi-prof-static`` JSON, which ``calibrate`` writes:

    {"format": "nnapi-prof-static", "version": 3, "name", "description", "origin", "simulated",
     "level": 30, "threads": 1,
     "targets": {"cpu": TARGET, "nnapi:NAME/fast": TARGET, ...}}
    TARGET: {"operation_ns", "ns_per_byte", "ns_per_gathered_byte",
             "ns_per_mac": {KIND: ns, "default": ns},
             "invocation_ns", "ns_per_in_byte", "ns_per_out_byte", "refused": [KIND],
             "errors": {"half", "nine_tenths", "own", "kind", "whole", "factor", "focus", "strange"}
                        or null,
             "rows": count, "correction": {"kinds", "mean", "scale", "length", "centres",
             "weights"} or null,
             "forest": {"features", "kinds", "roots", "feature", "number", "upper"} or null}

Times are ns, rates ns per MAC and per byte; :mod:`nnapi_prof.costs.estimate.model` has the formula.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnapi_prof.costs.estimate import FEATURES, Work
from nnapi_prof.costs.estimate.model import (
    Correction,
    ErrorBounds,
    Forest,
    Roof,
    TargetModel,
    check_forest,
)
from nnapi_prof.costs.table import Price
from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import CPU, Preference, Target

FORMAT = "nnapi-prof-static"
VERSION = 3
READABLE = (2, VERSION)
"""Versions that can be read; version 2 had neither bytes gathered nor forests."""
DIGITS = 7
"""Significant digits kept: errors of the model are a thousand times larger."""
_PLACES = ("roots", "feature", "upper")
_BOUNDS = tuple(field.name for field in dataclasses.fields(ErrorBounds))


@dataclass(frozen=True)
class Description:
    """Phone as the static model describes it."""

    name: str
    description: str
    origin: str
    """Source of the numbers: a citation, or the cost table's device."""
    targets: Mapping[Target, TargetModel]
    rows: Mapping[Target, int]
    """Samples that each target was fitted to."""
    level: int = 30
    simulated: bool = False
    threads: int = 1
    """Number of threads that the CPU was measured with."""

    def to_json(self) -> str:
        return (
            json.dumps(
                {
                    "format": FORMAT,
                    "version": VERSION,
                    "name": self.name,
                    "description": self.description,
                    "origin": self.origin,
                    "simulated": self.simulated,
                    "level": self.level,
                    "threads": self.threads,
                    "targets": {
                        target.key: {**_target_json(model), "rows": self.rows.get(target, 0)}
                        for target, model in self.targets.items()
                    },
                }
            )
            + "\n"
        )


def shipped() -> list[str]:
    """Returns the names of the real phones in the package."""
    folder = importlib.resources.files("nnapi_prof.costs") / "data"
    return sorted(f.name.removesuffix(".json") for f in folder.iterdir() if f.name[-5:] == ".json")


def shipped_text(name: str) -> str:
    """Returns the text of the file of a phone in the package."""
    folder = importlib.resources.files("nnapi_prof.costs") / "data"
    return (folder / f"{name}.json").read_text(encoding="utf-8")


def parse_description(data: Mapping[str, Any]) -> Description:
    """Parses a description. Raises CostError where it is none, or its version cannot be read."""
    if data.get("format") != FORMAT or data.get("version") not in READABLE:
        version = f"{data.get('format')} {data.get('version')}"
        raise CostError(
            f"wanted a description {FORMAT} version {VERSION}, found {version}",
            "make it again with `nnapi-prof calibrate`",
        )
    try:
        targets = {Target.parse(key): _read_target(one) for key, one in data["targets"].items()}
        return Description(
            name=str(data["name"]),
            description=str(data["description"]),
            origin=str(data["origin"]),
            targets=targets,
            rows={Target(key): int(one["rows"]) for key, one in data["targets"].items()},
            level=int(data["level"]),
            threads=int(data["threads"]),
            simulated=bool(data["simulated"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CostError(
            f"the phone's description is damaged ({error!r})",
            "make it again with `nnapi-prof calibrate`",
        ) from error


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _shorts(values: Any) -> Any:
    return [_shorts(v) for v in values] if np.ndim(values) else _short(float(values))


def _target_json(model: TargetModel) -> dict[str, Any]:
    errors, correction = model.errors, model.correction
    return {
        "operation_ns": _short(model.roof.operation_ns),
        "ns_per_byte": _short(model.roof.ns_per_byte),
        "ns_per_gathered_byte": _short(model.roof.ns_per_gathered_byte),
        "ns_per_mac": {kind: _short(rate) for kind, rate in model.roof.ns_per_mac.items()},
        "invocation_ns": _short(model.invocation_ns),
        "ns_per_in_byte": _short(model.ns_per_in_byte),
        "ns_per_out_byte": _short(model.ns_per_out_byte),
        "refused": sorted(model.refused),
        "errors": errors and {name: _short(getattr(errors, name)) for name in _BOUNDS},
        "correction": correction
        and {
            "features": list(FEATURES),
            "kinds": list(correction.kinds),
            "mean": _shorts(correction.mean),
            "scale": _shorts(correction.scale),
            "length": correction.length,
            "centres": _shorts(correction.centres),
            "weights": _shorts(correction.weights),
        },
        "forest": model.forest
        and {
            "features": list(FEATURES),
            "kinds": list(model.forest.kinds),
            "number": _shorts(model.forest.number),
            **{name: getattr(model.forest, name).tolist() for name in _PLACES},
        },
    }


def _read_target(one: Mapping[str, Any]) -> TargetModel:
    errors, correction = one["errors"], one["correction"]
    rates = {str(kind): _price(rate) for kind, rate in one["ns_per_mac"].items()}
    _price(rates["default"])
    return TargetModel(
        roof=Roof(
            _price(one["operation_ns"]),
            _price(one["ns_per_byte"]),
            rates,
            _price(one.get("ns_per_gathered_byte", 0.0)),
        ),
        correction=correction and _read_correction(correction),
        forest=one.get("forest") and _read_forest(one["forest"]),
        invocation_ns=_price(one["invocation_ns"]),
        ns_per_in_byte=_price(one["ns_per_in_byte"]),
        ns_per_out_byte=_price(one["ns_per_out_byte"]),
        errors=errors and ErrorBounds(**{name: _price(errors[name]) for name in _BOUNDS}),
        refused=frozenset(map(str, one["refused"])),
    )


def _read_correction(data: Mapping[str, Any]) -> Correction:
    if tuple(data["features"]) != FEATURES:
        raise ValueError("features of another version")
    kinds = tuple(map(str, data["kinds"]))
    n = len(FEATURES) + len(kinds)
    mean, scale, weights = (np.array(data[k], dtype=float) for k in ("mean", "scale", "weights"))
    centres = np.array(data["centres"], dtype=float)
    if centres.shape[1:] != (n,) or mean.shape != (n,) or scale.shape != (n,):
        raise ValueError("sizes of the correction disagree")
    if weights.shape != (len(centres) + n + 1,) or not np.isfinite(weights).all():
        raise ValueError("weights of the correction")
    return Correction(kinds, mean, scale, _price(data["length"]), centres, weights)


def _read_forest(data: Mapping[str, Any]) -> Forest:
    if tuple(data["features"]) != FEATURES:
        raise ValueError("features of another version")
    kinds = tuple(map(str, data["kinds"]))
    places = {name: np.array(data[name], dtype=np.intp) for name in _PLACES}
    forest = Forest(kinds, number=np.array(data["number"], dtype=float), **places)
    check_forest(forest, len(FEATURES) + len(kinds))
    return forest


def _price(value: Any) -> float:
    price = float(value)
    if not math.isfinite(price) or price < 0:
        raise ValueError(f"{value!r} where a number of at least 0 was expected")
    return price


# ---- simulated phones (device_agent/emulator/PHONES.md) -----------------------------------------
#
# The formula is the emulator's own, so that an estimate differs from the simulated phone's latency
# only by noise, and by effects not modelled here: fusion within a step, throttling, NNAPI's own
# split of a model ("auto").


SIMULATED_FORMAT = "nnapi-emulator-phone"
FALLBACKS = {
    "relaxed": "float32",
    "float16": "relaxed",
    "quant8_signed": "quant8",
    "quant8_symm": "quant8",
    "per_channel": "quant8",
}
"""Kind of data -> the kind whose constant it uses where it has none of its own."""


@dataclass(frozen=True)
class PhoneUnit:
    """Processor of a simulated phone under one preference."""

    target: Target
    level: int
    """NNAPI's feature level: models are converted for it."""
    price: Price
    peak: Mapping[str, float]
    """Kind of data, or "default" -> MAC/ns."""
    bytes_per_ns: float
    operation_ns: float
    efficiency: Mapping[str, float]
    factor: float
    """Factor of the preference."""
    only: frozenset[str] | None
    excepted: frozenset[str]
    terms: Mapping[str, str]
    """Operation -> TERMS of PHONES.md; "" for the others."""
    fuses: bool = False
    """True where it fuses operations of a step, so that they take less than their sum; not
    modelled."""

    @property
    def has_float16(self) -> bool:
        """True where float16 has a rate of its own, so that the CPU computes in float16."""
        return self._peak("float16") != self._peak("float32")

    def ns(self, works: Sequence[Work]) -> float:
        """Returns the latency of operations that run one after the other, in ns."""
        return self.factor * sum(
            max(
                work.macs / (self._peak(work.data) * self._efficiency(work.kind)),
                work.moved / self.bytes_per_ns,
            )
            + self.operation_ns
            for work in works
        )

    def why_not(self, works: Sequence[Work]) -> str | None:
        """Returns why an operation is not supported; None where all are. Forms that depend on the
        feature level are not checked."""
        for work in works:
            named = self.only is None or work.kind in self.only
            if not named or work.kind in self.excepted:
                return f"{self.target.accelerator} has no {work.kind}"
            words = self.terms.get(work.kind, self.terms.get("", "")).split()
            kinds = {word for word in words if "<=" not in word}
            if "float32" in kinds:
                kinds.add("relaxed")
            if kinds and work.data not in kinds:
                return f"{self.target.accelerator} has no {work.kind} of {work.data}"
            ranks = [int(word[6:]) for word in words if word.startswith("rank<=")]
            if ranks and work.rank > ranks[0]:
                return f"{self.target.accelerator} has no {work.kind} of rank {work.rank}"
        return None

    def _peak(self, data: str) -> float:
        kind: str | None = data
        while kind is not None:
            if kind in self.peak:
                return self.peak[kind]
            kind = FALLBACKS.get(kind)
        return self.peak["default"]

    def _efficiency(self, kind: str) -> float:
        return self.efficiency.get(kind, self.efficiency["default"])


def phone_units(described: Mapping[str, Any], threads: int, burst: bool) -> list[PhoneUnit]:
    """Returns the CPU, and each accelerator under each preference. Raises CostError where a part is
    missing."""
    try:
        api = int(described.get("properties", {}).get("ro.build.version.sdk", 30))
        return [_cpu(described["cpu"], threads)] + [
            _accelerator(one, preference, burst, api)
            for one in described["accelerators"]
            for preference in Preference
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise CostError(f"the phone's description lacks {error}") from error


def _read_constant(constant: Mapping[str, Any]) -> float:
    return float(constant["value"])


def _values(constants: Mapping[str, Any]) -> dict[str, float]:
    """Returns kind -> constant; "default" where one constant holds for all."""
    if "value" in constants:
        return {"default": _read_constant(constants)}
    return {kind: _read_constant(constant) for kind, constant in constants.items()}


def _cpu(cpu: Mapping[str, Any], threads: int) -> PhoneUnit:
    times = thread_speed(cpu, threads)
    wakes = threads > 1 and "thread_wake" in cpu
    wake_ns = _read_constant(cpu["thread_wake"]) * 1e3 if wakes else 0.0
    return PhoneUnit(
        target=CPU,
        level=30,
        price=Price(wake_ns),
        peak={kind: rate * times for kind, rate in _values(cpu["peak"]).items()},
        bytes_per_ns=_read_constant(cpu["bandwidth"]),
        operation_ns=_read_constant(cpu["operation_overhead"]) * 1e3,
        efficiency=_values(cpu["efficiency"]),
        factor=1.0,
        only=None,
        excepted=frozenset(),
        terms={},
    )


def described_cores(described: Mapping[str, Any]) -> int | None:
    """Returns the number of a simulated phone's cores; None where its description lacks it."""
    cpu = described.get("cpu", {})
    return int(_read_constant(cpu["cores"])) if "cores" in cpu else None


def thread_speed(cpu: Mapping[str, Any], threads: int) -> float:
    """Returns the speed of so many threads relative to one thread, by the emulator's formula."""
    cores = int(_read_constant(cpu["cores"])) if "cores" in cpu else threads
    n = min(threads, cores)
    if "thread_speed" in cpu:
        rows = {
            1: 1.0,
            **{int(key): _read_constant(speed) for key, speed in cpu["thread_speed"].items()},
        }
        return float(np.interp(n, list(rows), list(rows.values())))
    scaling = _read_constant(cpu["thread_scaling"])
    return float(sum(scaling**thread for thread in range(n)))


def _accelerator(
    one: Mapping[str, Any], preference: Preference, burst: bool, api: int
) -> PhoneUnit:
    floor = _read_constant(one["transfer_floor"]) if "transfer_floor" in one else 0.0
    invocation = _read_constant(one["burst_invocation" if burst else "invocation"])
    per_byte = 1 / _read_constant(one["transfer_bandwidth"])
    taken = one["operations"]
    only = taken.get("only")
    return PhoneUnit(
        target=Target.nnapi(str(one["name"]), preference),
        level=min(int(one["feature_level"]), api),
        price=Price((invocation + floor) * 1e3, per_byte, per_byte),
        peak=_values(one["peak"]),
        bytes_per_ns=_read_constant(one["bandwidth"]),
        operation_ns=_read_constant(one["operation_overhead"]) * 1e3,
        efficiency=_values(one["efficiency"]),
        factor=_read_constant(one["preference"][preference.short]),
        only=None if only is None else frozenset(only),
        excepted=frozenset(taken.get("except", ())),
        terms={**taken.get("limits", {}), "": taken.get("default", "")},
        fuses=bool(one.get("fusion")),
    )
