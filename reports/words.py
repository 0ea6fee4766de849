"""Format numbers and names for reports of every form; also the glossary."""

from __future__ import annotations

import datetime
import enum
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from nnapi_prof.graph.plan import AUTO, CPU, BaselineName, Engine, Rule, Target

if TYPE_CHECKING:
    from nnapi_prof.costs.contention import Interval, Slowdown
    from nnapi_prof.costs.model.views import Marginal
    from nnapi_prof.execution.report import OutputCheck, RunReport


TEMPLATES = Path(__file__).parent / "templates"
DASH = "–"
"""Placeholder for an unknown number."""
SHIP = "What to type next, where this report was asked for, to have the plan in an app."
NOISE = 0.02
"""Relative difference within which two latencies count as equal."""
LEAST_NS = 1e3
"""Smallest latency shown, in ns: the last digit of milliseconds."""


def format_ms(ms: float | None) -> str:
    """Formats milliseconds with three significant digits, down to a microsecond: ``12.3``,
    ``0.046``, ``<0.001``, ``0`` for exactly zero; a dash if unknown."""
    if ms is None or not math.isfinite(ms):
        return DASH
    if ms == 0:
        return "0"
    if 0 < ms < 0.0005:
        return "<0.001"
    if abs(ms) >= 100:
        return f"{ms:.0f}"
    return f"{ms:.1f}" if abs(ms) >= 10 else (f"{ms:.2f}" if abs(ms) >= 1 else f"{ms:.3f}")


def ms(nanoseconds: float | None) -> str:
    """Formats ns as milliseconds to the microsecond, for a terminal or a notebook: ``12.345``; a
    dash for None, and never ``0.000``."""
    if nanoseconds is None:
        return DASH
    if nanoseconds == 0:
        return "0"
    return "<0.001" if 0 < nanoseconds < 500 else f"{nanoseconds / 1e6:.3f}"


def marginal_words(cost: Marginal | None, ms: Callable[[float], str]) -> str:
    """Formats a unit's marginal cost with ``ms``, which takes ns: ``0.15``; ``≈2.66`` if it is
    inferred or rough; ``<1.3`` if it is too small to measure; a dash if there is none."""
    if cost is None:
        return DASH
    if cost.drowns:
        return f"<{ms(max(cost.most_ns, LEAST_NS)).removeprefix('<')}"
    return f"≈{ms(cost.ns)}" if cost.rough else ms(cost.ns)


def marginal_cell(row: Mapping[str, Any]) -> str:
    """Returns :func:`marginal_words` of a row of :func:`nnapi_prof.reports.frames.unit_frame`."""
    from nnapi_prof.costs.model.views import Marginal

    if not math.isfinite(row["marginal_ms"]):
        return DASH
    alone_ms = row["alone_ms"]
    cost = Marginal(
        row["marginal_ms"] * 1e6,
        row["sigma_ms"] * 1e6,
        alone_ms * 1e6 if math.isfinite(alone_ms) else None,
        row["inferred"],
    )
    return marginal_words(cost, lambda ns: format_ms(ns / 1e6))


MARGINAL_MARKS = (
    "≈ inferred from another preference, or known to no better than a quarter of itself; "
    "< too small to measure: at most this"
)


def trial_words(left: Collection[str]) -> str:
    """Returns the note below a table on accelerators that were dropped after a trial; empty if
    there are none."""
    return f"; left after a trial of a few units, far behind: {', '.join(left)}" if left else ""


def contention_words(pair: Slowdown) -> str:
    """Describes in a line the measured slowdown of a processor while another one is busy."""
    words = [f"{_value_and_interval(pair.factor)} times as long, {pair.n_units} units"]
    if pair.cpu_share is not None and pair.lane != CPU.key:
        words.append(f"{_value_and_interval(pair.cpu_share)} of a core in the agent")
    if pair.wait_ns is not None:
        words.append(f"starting and waiting {pair.wait_ns.value / 1e3:+.1f} us")
    if pair.later is not None:
        words.append(f"after long {_value_and_interval(pair.later)} times")
    if pair.cpu_khz is not None and None not in pair.cpu_khz:
        words.append(" to ".join(f"{(khz or 0) / 1e3:.0f}" for khz in pair.cpu_khz) + " MHz")
    return f"({pair.lane} beside {pair.corunner}: {', '.join(words)})"


def _value_and_interval(value: Interval) -> str:
    return f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]"


def format_percent(ratio: float | None) -> str:
    """Formats a ratio: ``0.034`` -> ``3.4 %``."""
    return DASH if ratio is None or not math.isfinite(ratio) else f"{100 * ratio:.1f} %"


def format_change(ratio: float | None) -> str:
    """Formats a relative difference with its sign: ``+3.4 %``."""
    if ratio is None or not math.isfinite(ratio):
        return DASH
    return f"{round(100 * ratio, 1) + 0.0:+.1f} %"  # adding 0.0 turns -0.0 into 0.0


def format_difference(difference: float, digits: int = 2) -> str:
    """Formats a difference of outputs: ``4.20e-07``; ``infinite`` if only one output has an
    infinity or NaN, or if it is relative to zeros."""
    return f"{difference:.{digits}e}" if math.isfinite(difference) else "infinite"


def format_comparison(check: OutputCheck) -> tuple[str, str]:
    """Returns the relative difference of an output, and the allowed one."""
    difference, allowed = check.texts(2)
    return difference if math.isfinite(check.relative) else "infinite", allowed


def format_si(number: float | None) -> str:
    """Formats counts and bytes with a decimal prefix: ``1.2 k``, ``34 M``."""
    if number is None or not math.isfinite(number):
        return DASH
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= 0.9995 * scale:  # three digits of a slightly smaller number round up to scale
            return f"{number / scale:.3g} {prefix}"
    return f"{number:.0f} "


class LatencySource(enum.Enum):
    """The source of latencies; all except measured ones have a label."""

    MEASURED = ""
    SIMULATED = "simulated"
    """A phone's description."""
    ESTIMATED = "estimated"
    """A vendor's simulator, or the static model."""

    @classmethod
    def of(cls, simulated: bool) -> LatencySource:
        """Returns the source of latencies from a device."""
        return cls.SIMULATED if simulated else cls.MEASURED

    @property
    def marks(self) -> tuple[str, ...]:
        """The label in brackets behind a latency; none for measured ones."""
        return (self.value,) if self.value else ()

    @property
    def suffix(self) -> str:
        """``", simulated"``, or nothing."""
        return f", {self.value}" if self.value else ""


def ms_unit(source: LatencySource) -> str:
    """Returns the unit behind a latency, with its source if that is not a measurement."""
    return f"ms{source.suffix}"


def format_time(utc: str) -> str:
    """Formats a time in ISO 8601 as ``2026-11-22 01:54:09 UTC``; leaves other text unchanged."""
    try:
        time = datetime.datetime.fromisoformat(utc)
    except ValueError:
        return utc
    if time.tzinfo is not None:
        time = time.astimezone(datetime.UTC)
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


_QUANTITY = re.compile(r"(?<=\d) (?=[×%]|k?Hz|[kMG]?B\b|ms\b)")


def whole(text: str) -> str:
    """Puts no-break spaces between numbers and their units."""
    return _QUANTITY.sub("\N{NO-BREAK SPACE}", text)


def count(number: int, singular: str, plural: str = "") -> str:
    """Formats a count with its noun: ``1 segment``, ``3 segments``."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def clip(text: str, length: int) -> str:
    """Shortens a text to at most ``length`` characters."""
    return text if len(text) <= length else text[: length - 1] + "…"


def target_words(key: str) -> str:
    """Names a target for people: ``CPU``, ``sim-npu (fast)``, ``NNAPI's choice (fast)``."""
    target = Target(key)
    if target.engine is Engine.HOST:
        return f"{place_words(key)} (eager PyTorch)"
    return place_words(key) + (f" ({target.preference.short})" if target.preference else "")


def target_heads(targets: Iterable[Target]) -> list[str]:
    """Returns column heads, the preference behind the name: ``cpu``, ``sim-npu fast``."""
    return [
        f"{t.accelerator} {t.preference.short}" if t.accelerator and t.preference else t.key
        for t in targets
    ]


def place_words(key: str) -> str:
    """Names the processor of a target: :func:`target_words` without the preference."""
    target = Target(key)
    if target.engine is Engine.CPU:
        return "CPU"
    if target.engine is Engine.HOST:
        return "host"
    if target.engine is Engine.QNN:
        return f"{target.chip}'s NPU in {target.chip_precision}"
    return "NNAPI's choice" if target.accelerator == AUTO else target.accelerator or key


def targets_words(keys: Collection[str], every: Iterable[str]) -> str:
    """Names several targets briefly: ``sim-npu; sim-gpu (fast, sustained)``. An accelerator with
    all its preferences in ``every`` is named without them."""
    own: dict[str, list[str]] = {}
    measured: dict[str, int] = {}
    for key in every:
        measured[place_words(key)] = measured.get(place_words(key), 0) + 1
    for key in keys:
        preference = Target(key).preference
        own.setdefault(place_words(key), []).append(preference.short if preference else "")
    return "; ".join(
        name
        if not any(preferences) or len(preferences) == measured.get(name)
        else f"{name} ({', '.join(preferences)})"
        for name, preferences in own.items()
    )


RULES = {
    Rule.ALL_CPU: ("CPU alone", "everything on the CPU"),
    Rule.BEST_SINGLE: (
        "best single target",
        "all of it on the one target that is fastest for it",
    ),
    Rule.LARGEST_SUPPORTED: (
        "largest supported",
        "everything that one accelerator supports, the rest on the CPU",
    ),
    Rule.LARGEST_FEW: (
        "largest 3",
        "the three largest regions that one accelerator supports, the rest on the CPU",
    ),
    Rule.LISTED: (
        "listed",
        "all but the listed units, and what follows them, on one accelerator",
    ),
    Rule.GREEDY: ("greedy", "each unit where it alone is fastest, hand-over ignored"),
}
"""Baseline -> its name and description."""


def plan_kind(name: str) -> str:
    """Names a plan for people without its target: ``best single target``, ``CPU alone``."""
    baseline = BaselineName.parse(name)
    return RULES[baseline.rule][0] if baseline else name.replace("-", " ")


def plan_words(name: str, is_own: bool = False, separator: str = ": ") -> str:
    """Names a plan for people: ``best single target: sim-gpu (fast)``."""
    if is_own:
        return "this plan"
    baseline = BaselineName.parse(name)
    target = baseline.target if baseline else None
    return plan_kind(name) + (f"{separator}{target_words(target.key)}" if target else "")


def rule_words(name: str) -> str:
    """Describes a baseline; empty for an unknown one."""
    baseline = BaselineName.parse(name)
    return RULES[baseline.rule][1] if baseline else ""


# ---- the glossary --------------------------------------------------------------------------------


class Entry(NamedTuple):
    key: str
    word: str
    meaning: str


GLOSSARY = tuple(
    Entry(*line.split(" | "))
    for line in TEMPLATES.joinpath("glossary.txt").read_text(encoding="utf-8").splitlines()
)
"""Entries of the glossary, sorted by word."""


class FittedToPublished(Protocol):
    """The description of a :class:`nnapi_prof.qnn.calibration.ChipCalibration`."""

    @property
    def qairt(self) -> str: ...
    @property
    def networks(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def median_error(self) -> float: ...
    @property
    def worst_error(self) -> float: ...
    @property
    def borrowed(self) -> bool: ...


def calibration_words(fit: FittedToPublished) -> str:
    """Describes the source of an estimate by Qualcomm's simulator, in the same words everywhere."""
    borrowed = "; another chip's fit, the band is twice as wide" if fit.borrowed else ""
    return (
        f"estimated by Qualcomm's simulator (QAIRT {fit.qairt}), calibrated on {fit.networks}"
        f" published networks ({fit.device}), leave-one-out {format_percent(fit.median_error)}"
        f" in the median, {format_percent(fit.worst_error)} at worst{borrowed}"
    )


def plan_cells(report: RunReport) -> list[list[str]]:
    """Formats plan and baselines as a table: name, predicted and measured median, 95th percentile
    of the runs, error of the prediction, latency relative to the plan's, first run."""
    rows = []
    fastest = report.runs[0].median_ns
    for run in report.runs:
        median, error, ratio = run.median_ns, "–", "–"
        if median:
            error = f"{(run.predicted_ns - median) / median:+.1%}"
            ratio = f"{median / fastest:.2f}x" if fastest else "–"
        cells = [run.plan.name, ms(run.predicted_ns), run.error or ms(median), ms(run.p95_ns)]
        rows.append([*cells, error, ratio, ms(run.first_ns)])
    return rows
