"""Small tables of facts: the device, and how the numbers of a report were measured."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.graph.plan import CPU
from nnapi_prof.run.result import RunReport


class Fact(NamedTuple):
    name: str
    value: str


def device_facts(info: Mapping[str, Any]) -> list[Fact]:
    """Every fact of an agent's info but accelerators, nested names joined with dots.

    What is unknown (None) or empty is left out.
    """
    return [Fact(name, value) for name, value in _flatten("", info) if value]


def _flatten(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name != "accelerators":
                yield from _flatten(f"{prefix}.{name}" if prefix else str(name), inner)
    elif isinstance(value, list | tuple):
        yield prefix, ", ".join(str(item) for item in value)
    elif value is not None:
        yield prefix, str(value)


def how_measured(measurements: Sequence[Measurement], run: RunReport | None) -> list[Fact]:
    """What was measured, how often, under which conditions; empty values are left out."""
    timed = [m for m in measurements if m.usable]
    on_nnapi = [m for m in timed if m.target != CPU]
    kinds = Counter(m.kind.value for m in measurements)
    outcomes = Counter(m.status.value for m in measurements)
    mark = ", simulated" if any(m.simulated for m in timed) else ""
    facts = [
        Fact("measurements", _counts(kinds)),
        Fact("outcomes", _counts(outcomes)),
        Fact("runs of each", _range([len(m.samples_ns) for m in timed], "", 1)),
        Fact("statistic", "median of the runs; spread is 1.4826 × median absolute deviation"),
        Fact("relative spread", _range([100 * m.summary.relative_spread for m in timed], " %", 1)),
        Fact("clock", _all(_clock(m.clock) for m in timed)),
        Fact("precision on NNAPI", _all(m.conditions.precision.value for m in on_nnapi)),
        Fact("NNAPI execution", _all(m.conditions.mode.value for m in on_nnapi)),
        Fact("CPU threads", _all(str(m.threads) for m in timed if m.target == CPU)),
        Fact("CPU engine's operations", _kernels(timed)),
        Fact("cores asked for", _all(m.conditions.cpus for m in timed)),
        Fact("cores kept to", _all(m.cpu_mask or "" for m in timed)),
        Fact("rounds of each", _range([len(m.rounds) for m in timed if m.rounds], "", 1)),
        Fact("warm-up runs of each", _range([m.warmup_runs for m in timed], "", 1)),
        Fact("to doubt", _counts(Counter(flag for m in timed for flag in m.flags))),
        Fact("time to compile", _range([m.compile_ns for m in timed], f" ms{mark}", 1e6)),
        Fact("CPU clock", _range([k for m in timed for k in _khz(m)], f" MHz{mark}", 1e3)),
        Fact("temperature", _range([t for m in timed for t in _heat(m)], f" °C{mark}", 1e3)),
        Fact("agent", _all(m.agent_version for m in measurements)),
        Fact("drivers", _all(_driver(m) for m in measurements if m.driver_version)),
        Fact("measured between", _span([m.measured_at for m in measurements if m.measured_at])),
    ]
    if run is not None:
        counts = [len(row.total_ns) for row in run.runs if row.total_ns]
        facts.append(Fact("end-to-end runs of each plan", _range(counts, "", 1)))
        facts.append(Fact("run at", run.created_at))
        facts.append(Fact("device fingerprint", run.fingerprint))
    return [fact for fact in facts if fact.value]


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counter.most_common())


def _kernels(timed: Iterable[Measurement]) -> str:
    """Whose kernels the CPU engine's measurements ran on."""
    of = {"XNNPACK's": "kernels_xnnpack", "our own": "kernels_portable"}
    sums = {who: sum(getattr(m, name) or 0 for m in timed) for who, name in of.items()}
    return ", ".join(f"{n} on {who} kernels" for who, n in sums.items() if n)


def _all(values: Iterable[str]) -> str:
    return ", ".join(sorted({value for value in values if value}))


def _range(values: Sequence[float | None], unit: str, scale: float) -> str:
    """``median (least to most)`` of the values that are known."""
    known = [value / scale for value in values if value is not None]
    if not known:
        return ""
    low, middle, high = min(known), statistics.median(known), max(known)
    if low == high:
        return f"{low:.4g}{unit}"
    return f"median {middle:.4g}{unit} ({low:.4g} to {high:.4g})"


def _span(times: Sequence[str]) -> str:
    return f"{min(times)} and {max(times)}" if times else ""


def _clock(name: str) -> str:
    return "simulated (the phone description's)" if name == "simulated" else name


def _driver(m: Measurement) -> str:
    return f"{m.target.accelerator or m.target.key} {m.driver_version}"


def _khz(m: Measurement) -> list[int]:
    return [k for k in (m.cpu_khz_before, m.cpu_khz_after) if k is not None]


def _heat(m: Measurement) -> list[int]:
    return [t for t in (m.thermal_mc_before, m.thermal_mc_after) if t is not None]
