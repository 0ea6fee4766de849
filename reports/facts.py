"""Small tables of facts: the device, the measurements, each unit, refusals and transfers."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from nnapi_prof.convert.region import Permutes
from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.costs.model import CostModel
from nnapi_prof.costs.model.views import marginal
from nnapi_prof.costs.table import FREE
from nnapi_prof.execution.report import RunReport
from nnapi_prof.graph.causes import detail
from nnapi_prof.graph.plan import AUTO, CPU, Engine, Plan, Target
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.frames import NS_PER_MS, all_targets, boundary_bytes
from nnapi_prof.reports.words import (
    format_ms,
    format_time,
    marginal_words,
    place_words,
    targets_words,
)


class ReportFact(NamedTuple):
    name: str
    value: str


def device_facts(info: Mapping[str, Any]) -> list[ReportFact]:
    """Returns every fact of an agent's info except accelerators, nested names joined with dots.

    Unknown (None) and empty values are left out.
    """
    return [ReportFact(name, value) for name, value in _flatten("", info) if value]


_NAMES = {
    "phone": "phone",
    "abi": "ABI",
    "os": "system",
    "api_level": "Android API level",
    "cpus": "CPU cores",
    "cpu_max_khz": "highest clock of each core",
    "memory_kb": "memory",
    "big_cores": "cores of the highest clock, as a mask",
    "threads_max": "most threads of the CPU engine",
    "nnapi_library": "NNAPI library",
    "properties.ro.product.manufacturer": "manufacturer",
    "properties.ro.product.model": "model",
    "properties.ro.build.fingerprint": "system build",
    "properties.ro.board.platform": "chip",
    "properties.ro.hardware": "hardware",
    "properties.ro.build.version.release": "Android version",
}


def device_words(info: Mapping[str, Any]) -> list[ReportFact]:
    """Returns :func:`device_facts` with names and units for people, if there are any."""
    facts = []
    for name, value in device_facts(info):
        words = _NAMES.get(name, name)
        if name == "memory_kb" and value.isdigit():
            value = f"{int(value) / 1e6:.3g} GB"
        elif name == "cpu_max_khz":
            numbers = [part for part in value.split(", ") if part.isdigit()]
            value = ", ".join(f"{int(khz) / 1000:.0f}" for khz in numbers)
            value = f"{value} MHz" if numbers else "not reported"
        facts.append(ReportFact(words, value))
    return facts


def environment_facts(data: ReportData) -> list[ReportFact]:
    """Returns the facts for repeating a report: device, drivers, agent, host, packages, command."""
    own = data.own_measurements
    drivers = {_driver(m) for m in own if m.driver_version and m.target.accelerator != AUTO}
    facts = [
        ReportFact("device", data.device_name),
        ReportFact("drivers", ", ".join(sorted(drivers))),
        ReportFact("agent on the device", _join_sorted(m.agent_version for m in own)),
        ReportFact("the device's name in the cost table", own[0].fingerprint if own else ""),
    ]
    if data.run is not None:
        facts.append(ReportFact("plan run at", format_time(data.run.created_at)))
        facts.append(ReportFact("other than usual conditions", data.run.conditions))
    if (here := data.environment) is not None:
        facts += [
            ReportFact("report written at", format_time(here.written_at)),
            ReportFact("by the command", here.command),
            ReportFact("nnapi-prof", here.nnapi_prof),
            ReportFact("host", here.host),
            ReportFact("Python", here.python),
            ReportFact("packages", ", ".join(f"{name} {v}" for name, v in here.packages.items())),
        ]
    return [fact for fact in facts if fact.value]


def _flatten(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name != "accelerators":
                yield from _flatten(f"{prefix}.{name}" if prefix else str(name), inner)
    elif isinstance(value, list | tuple):
        yield prefix, ", ".join(str(item) for item in value)
    elif value is not None:
        yield prefix, str(value)


def method_facts(data: ReportData) -> list[ReportFact]:
    """Returns :func:`how_measured` without the facts that the environment has as well."""
    elsewhere = ("agent", "drivers", "run at", "device fingerprint")
    return [
        fact for fact in how_measured(data.own_measurements, data.run) if fact.name not in elsewhere
    ]


def how_measured(
    measurements: Sequence[Measurement],
    run: RunReport | None,
) -> list[ReportFact]:
    """Lists number, outcomes and conditions of the measurements; leaves out empty values."""
    timed = [m for m in measurements if m.usable]
    on_nnapi = [m for m in timed if m.target != CPU]
    kinds = Counter(m.kind.value for m in measurements)
    outcomes = Counter(m.status.value for m in measurements)
    mark = ", simulated" if any(m.simulated for m in timed) else ""
    facts = [
        ReportFact("measurements", _counts(kinds, plural="s")),
        ReportFact("outcomes", _counts(outcomes)),
        ReportFact("runs of each", _range([len(m.samples_ns) for m in timed], "", 1)),
        ReportFact(
            "statistic",
            "median of the runs; spread is 1.4826 × median absolute deviation",
        ),
        ReportFact(
            "relative spread", _range([100 * m.summary.relative_spread for m in timed], " %", 1)
        ),
        ReportFact("clock", _join_sorted(_clock(m.clock) for m in timed)),
        ReportFact(
            "precision on NNAPI", _join_sorted(m.conditions.precision.value for m in on_nnapi)
        ),
        ReportFact("NNAPI execution", _join_sorted(m.conditions.mode.value for m in on_nnapi)),
        ReportFact("CPU threads", _join_sorted(str(m.threads) for m in timed if m.target == CPU)),
        ReportFact("CPU engine's operations", _kernels(timed)),
        ReportFact("cores asked for", _join_sorted(m.conditions.cpus for m in timed)),
        ReportFact("cores kept to", _join_sorted(m.cpu_mask or "" for m in timed)),
        ReportFact("rounds of each", _range([len(m.rounds) for m in timed if m.rounds], "", 1)),
        ReportFact("warm-up runs of each", _range([m.warmup_runs for m in timed], "", 1)),
        ReportFact("to doubt", _counts(Counter(flag for m in timed for flag in m.flags))),
        ReportFact("time to compile", _range([m.compile_ns for m in timed], f" ms{mark}", 1e6)),
        ReportFact("CPU clock", _range([k for m in timed for k in _khz(m)], f" MHz{mark}", 1e3)),
        ReportFact("temperature", _range([t for m in timed for t in _heat(m)], f" °C{mark}", 1e3)),
        ReportFact("agent", _join_sorted(m.agent_version for m in measurements)),
        ReportFact("drivers", _join_sorted(_driver(m) for m in measurements if m.driver_version)),
        ReportFact(
            "measured between", _span([m.measured_at for m in measurements if m.measured_at])
        ),
    ]
    if run is not None:
        counts = [len(row.total_ns) for row in run.runs if row.total_ns]
        facts.append(ReportFact("end-to-end runs of each plan", _range(counts, "", 1)))
        facts.append(ReportFact("run at", run.created_at))
        facts.append(ReportFact("device fingerprint", run.fingerprint))
    return [fact for fact in facts if fact.value]


def _counts(counter: Counter[str], plural: str = "") -> str:
    return ", ".join(
        f"{count} {name}{plural if count != 1 else ''}" for name, count in counter.most_common()
    )


def _kernels(timed: Iterable[Measurement]) -> str:
    """Names the kernels that the CPU engine's measurements ran on."""
    of = {"XNNPACK's": "kernels_xnnpack", "our own": "kernels_portable"}
    sums = {who: sum(getattr(m, name) or 0 for m in timed) for who, name in of.items()}
    return ", ".join(f"{n} on {who} kernels" for who, n in sums.items() if n)


def _join_sorted(values: Iterable[str]) -> str:
    return ", ".join(sorted({value for value in values if value}))


def _range(values: Sequence[float | None], unit: str, scale: float) -> str:
    """Formats the median and range of the known values: ``median 3 ms (2 to 5)``."""
    numbers = [value / scale for value in values if value is not None]
    if not numbers:
        return ""
    low, middle, high = (
        _digits(x) for x in (min(numbers), statistics.median(numbers), max(numbers))
    )
    return f"{low}{unit}" if low == high else f"median {middle}{unit} ({low} to {high})"


def _digits(value: float) -> str:
    """Formats a number with three significant digits, or more for its integer part."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _span(times: Sequence[str]) -> str:
    return f"{format_time(min(times))} and {format_time(max(times))}" if times else ""


def _clock(name: str) -> str:
    return "simulated (the phone description's)" if name == "simulated" else name


def _driver(m: Measurement) -> str:
    return f"{m.target.accelerator or m.target.key} {m.driver_version}"


def _khz(m: Measurement) -> list[int]:
    return [k for k in (m.cpu_khz_before, m.cpu_khz_after) if k is not None]


def _heat(m: Measurement) -> list[int]:
    return [t for t in (m.thermal_mc_before, m.thermal_mc_after) if t is not None]


# ---- facts about each unit -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlaceFacts:
    """One accelerator or engine: latencies by preference, or the reason for their absence."""

    place: str
    words: str
    brief: str
    """The same words without the status at their beginning."""
    timed: bool
    """``words`` are latencies in ms."""


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """The facts about one unit. ``here_ms`` is its share of its segment's latency in ms, None if
    unknown."""

    unit: int
    here_ms: float | None
    rows: tuple[PlaceFacts, ...]


def unit_facts(
    costs: CostModel, here_ns: Mapping[int, float], targets: Sequence[Target] | None = None
) -> list[UnitFacts]:
    """Returns the facts of each unit, in order. ``here_ns`` has each unit's known latency in its
    segment, ``targets`` defaults to all targets."""
    targets = all_targets(costs) if targets is None else targets
    places: dict[str, list[Target]] = {}
    for target in targets:
        places.setdefault(place_words(target.key), []).append(target)
    facts = []
    for unit in costs.graph.units:
        here = here_ns.get(unit.index)
        rows = tuple(_place(costs, unit.index, name, own) for name, own in places.items())
        facts.append(UnitFacts(unit.index, None if here is None else here / NS_PER_MS, rows))
    return facts


def _place(costs: CostModel, unit: int, name: str, targets: list[Target]) -> PlaceFacts:
    preferences: dict[str, list[str]] = {}
    timed = False
    for target in targets:
        cost = marginal(costs, unit, target)
        reason = costs.refusals.get((unit, target))
        if reason is not None:
            text = reason
        elif cost is None:
            text = "unknown"
        else:
            text, timed = marginal_words(cost, lambda ns: format_ms(ns / NS_PER_MS)), True
            alone = costs.region_cost((unit,), target)
            if alone is not None and alone.estimated:
                text += " (estimated)"
        preference = target.preference.short if target.preference else ""
        preferences.setdefault(text, []).append(preference)
    first, *rest = preferences
    if not rest:
        return PlaceFacts(name, first, detail(first), timed)
    under = {text: "/".join(own) for text, own in preferences.items()}
    others = "".join(f", {text} {under[text]}" for text in rest)
    brief = f"{detail(first)} {under[first]}{others}"
    return PlaceFacts(name, f"{first} {under[first]}{others}", brief, timed)


# ---- refusals ------------------------------------------------------------------------------------


REFUSAL_COLUMNS = ("operation", "reason", "n_units", "units", "targets", "where")


def refusals_by_reason(costs: CostModel) -> pd.DataFrame:
    """Returns one row for each operation and reason, the most frequent first.

    ``units`` are the refused units, ascending, ``targets`` the keys of the targets that gave the
    reason, ``where`` the same in words.
    """
    every = [target.key for target in all_targets(costs)]
    units: dict[tuple[str, str], set[int]] = {}
    targets: dict[tuple[str, str], dict[str, None]] = {}
    for (unit, target), reason in sorted(costs.refusals.items()):
        operation = costs.graph.units[unit].full_operation
        place = operation, detail(reason)
        units.setdefault(place, set()).add(unit)
        targets.setdefault(place, {})[target.key] = None
    rows = [
        {
            "operation": operation,
            "reason": reason,
            "n_units": len(members),
            "units": tuple(sorted(members)),
            "targets": tuple(targets[operation, reason]),
            "where": targets_words(targets[operation, reason], every),
        }
        for (operation, reason), members in sorted(
            units.items(), key=lambda item: (-len(item[1]), min(item[1]))
        )
    ]
    return pd.DataFrame(rows, columns=list(REFUSAL_COLUMNS))


# ---- transfers across the boundaries of segments -------------------------------------------------


TRANSFER_COLUMNS = (
    "segment", "target", "in_values", "in_bytes", "out_values", "out_bytes", "invocation_ms",
    "in_ms", "out_ms", "predicted_ms", "share", "permutes", "permuted_bytes",
)  # fmt: skip


def transfer_frame(
    plan: Plan, costs: CostModel, permutes: Sequence[Permutes | None] = ()
) -> pd.DataFrame:
    """Returns one row per segment: values and bytes that enter and leave, and their time by the
    cost model.

    ``share`` is that of invocation and transfer in the predicted latency, by the fit. On the host,
    and for targets without costs, times are NaN. ``permutes`` has the permutes of each segment; NaN
    without it.
    """
    rows = []
    for number, segment in enumerate(plan.segments):
        entering, leaving = costs.graph.boundary(segment.units)
        in_bytes, out_bytes = boundary_bytes(costs.graph, segment.units)
        is_fitted = segment.target.engine is not Engine.HOST and (
            segment.target in costs.fits or costs.price(segment.target) != FREE
        )
        invocation = costs.overhead(segment.target) if is_fitted else math.nan
        into = costs.transfer(segment.target, in_bytes, 0) if is_fitted else math.nan
        out = costs.transfer(segment.target, 0, out_bytes) if is_fitted else math.nan
        moved = permutes[number] if number < len(permutes) else None
        rows.append(
            {
                "segment": number,
                "target": segment.target.key,
                "in_values": len(entering),
                "in_bytes": in_bytes,
                "out_values": len(leaving),
                "out_bytes": out_bytes,
                "invocation_ms": invocation / NS_PER_MS,
                "in_ms": into / NS_PER_MS,
                "out_ms": out / NS_PER_MS,
                "predicted_ms": segment.predicted_ns / NS_PER_MS,
                "share": (invocation + into + out) / segment.predicted_ns
                if segment.predicted_ns
                else math.nan,
                "permutes": math.nan if moved is None else moved.count,
                "permuted_bytes": math.nan if moved is None else moved.n_bytes,
            }
        )
    return pd.DataFrame(rows, columns=list(TRANSFER_COLUMNS))
