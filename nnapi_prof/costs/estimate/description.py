"""Descriptions of real phones: ``nnapi-prof-static`` JSON, what ``calibrate`` writes.

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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnapi_prof.costs.estimate.model import (
    Correction,
    ErrorBounds,
    Forest,
    Roof,
    TargetModel,
    check_forest,
)
from nnapi_prof.costs.estimate.work import FEATURES
from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import Target

FORMAT = "nnapi-prof-static"
VERSION = 3
READABLE = (2, VERSION)
"""Version 2 had neither bytes gathered nor forests."""
DIGITS = 7
"""Significant digits kept: errors of the model are a thousand times larger."""
_PLACES = ("roots", "feature", "upper")
_BOUNDS = tuple(field.name for field in dataclasses.fields(ErrorBounds))


@dataclass(frozen=True)
class Description:
    """A phone as the static model knows it."""

    name: str
    description: str
    origin: str
    """Where its numbers come from: a citation, or the cost table's device."""
    targets: Mapping[Target, TargetModel]
    rows: Mapping[Target, int]
    """Samples that each target was fitted to."""
    level: int = 30
    simulated: bool = False
    threads: int = 1
    """Of the CPU, when it was measured."""

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
    """Names of the real phones that come along."""
    folder = importlib.resources.files("nnapi_prof.costs") / "data"
    return sorted(f.name.removesuffix(".json") for f in folder.iterdir() if f.name[-5:] == ".json")


def shipped_text(name: str) -> str:
    """The file of a phone that comes along."""
    folder = importlib.resources.files("nnapi_prof.costs") / "data"
    return (folder / f"{name}.json").read_text(encoding="utf-8")


def parse_description(data: Mapping[str, Any]) -> Description:
    """Raises CostError where it is no description, or not one of this version."""
    if data.get("format") != FORMAT or data.get("version") not in READABLE:
        version = f"{data.get('format')} {data.get('version')}"
        raise CostError(
            f"wanted a description {FORMAT} version {VERSION}, found {version}: make it again with "
            "`nnapi-prof calibrate`"
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
            f"the phone's description is damaged ({error!r}): make it again with "
            "`nnapi-prof calibrate`"
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
