"""A simulated phone's description (``device_agent/emulator/PHONES.md``) as a cost model.

The formula is the emulator's own, so that an estimate differs from what the simulated phone
measures by noise, and by what is not modelled here: fusion within a step, throttling, NNAPI's own
split of a model ("auto").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnapi_prof.costs.estimate.costs import Price
from nnapi_prof.costs.estimate.work import Work
from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import CPU, Preference, Target

FORMAT = "nnapi-emulator-phone"
FALLBACKS = {
    "relaxed": "float32",
    "float16": "relaxed",
    "quant8_signed": "quant8",
    "quant8_symm": "quant8",
    "per_channel": "quant8",
}
"""The kind of data whose constant stands in where a kind has none of its own."""


@dataclass(frozen=True)
class PhoneUnit:
    """One processor of a simulated phone under one preference."""

    target: Target
    level: int
    """NNAPI's feature level: models are converted for it."""
    price: Price
    peak: Mapping[str, float]
    """MAC/ns by kind of data, and "default"."""
    bytes_per_ns: float
    operation_ns: float
    efficiency: Mapping[str, float]
    factor: float
    """Of the preference."""
    only: frozenset[str] | None
    excepted: frozenset[str]
    terms: Mapping[str, str]
    """Operation -> TERMS of PHONES.md; "" for the others."""
    fuses: bool = False
    """It joins operations of a step, which is not modelled: steps take less than the sum."""

    def ns(self, works: Sequence[Work]) -> float:
        """Operations one after the other, in ns."""
        return self.factor * sum(
            max(
                work.macs / (self._peak(work.data) * self._efficiency(work.kind)),
                work.moved / self.bytes_per_ns,
            )
            + self.operation_ns
            for work in works
        )

    def why_not(self, works: Sequence[Work]) -> str | None:
        """Why an operation is not taken; None where all are. Forms by level are not looked at."""
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
    """The CPU, and each accelerator under each preference; CostError where a part is missing."""
    try:
        api = int(described.get("properties", {}).get("ro.build.version.sdk", 30))
        return [_cpu(described["cpu"], threads)] + [
            _accelerator(one, preference, burst, api)
            for one in described["accelerators"]
            for preference in Preference
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise CostError(f"the phone's description lacks {error}") from error


def _value(constant: Mapping[str, Any]) -> float:
    return float(constant["value"])


def _values(constants: Mapping[str, Any]) -> dict[str, float]:
    """One constant for all, or one for each kind."""
    if "value" in constants:
        return {"default": _value(constants)}
    return {kind: _value(constant) for kind, constant in constants.items()}


def _cpu(cpu: Mapping[str, Any], threads: int) -> PhoneUnit:
    scaling = _value(cpu["thread_scaling"])
    times = sum(scaling**n for n in range(threads))
    return PhoneUnit(
        target=CPU,
        level=30,
        price=Price(),
        peak={kind: rate * times for kind, rate in _values(cpu["peak"]).items()},
        bytes_per_ns=_value(cpu["bandwidth"]),
        operation_ns=_value(cpu["operation_overhead"]) * 1e3,
        efficiency=_values(cpu["efficiency"]),
        factor=1.0,
        only=None,
        excepted=frozenset(),
        terms={},
    )


def _accelerator(
    one: Mapping[str, Any], preference: Preference, burst: bool, api: int
) -> PhoneUnit:
    floor = _value(one["transfer_floor"]) if "transfer_floor" in one else 0.0
    invocation = _value(one["burst_invocation" if burst else "invocation"])
    per_byte = 1 / _value(one["transfer_bandwidth"])
    taken = one["operations"]
    only = taken.get("only")
    return PhoneUnit(
        target=Target.nnapi(str(one["name"]), preference),
        level=min(int(one["feature_level"]), api),
        price=Price((invocation + floor) * 1e3, per_byte, per_byte),
        peak=_values(one["peak"]),
        bytes_per_ns=_value(one["bandwidth"]),
        operation_ns=_value(one["operation_overhead"]) * 1e3,
        efficiency=_values(one["efficiency"]),
        factor=_value(one["preference"][preference.short]),
        only=None if only is None else frozenset(only),
        excepted=frozenset(taken.get("except", ())),
        terms={**taken.get("limits", {}), "": taken.get("default", "")},
        fuses=bool(one.get("fusion")),
    )
