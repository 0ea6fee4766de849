"""Numbers and names as a report writes them, whatever its form, and the words that it explains."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from nnapi_prof.graph.plan import AUTO, Engine, Target

if TYPE_CHECKING:
    from nnapi_prof.costs.model.views import Marginal


DASH = "–"
"""Stands where a number is unknown."""
LEAST_NS = 1e3
"""Of what is shown: the last digit of milliseconds."""


def format_ms(ms: float | None) -> str:
    """Milliseconds with three significant digits, to the microsecond at the finest: ``12.3``,
    ``0.046``, ``<0.001``, ``0`` for nothing at all; a dash where unknown."""
    if ms is None or not math.isfinite(ms):
        return DASH
    if ms == 0:
        return "0"
    if 0 < ms < 0.0005:
        return "<0.001"
    if abs(ms) >= 100:
        return f"{ms:.0f}"
    return f"{ms:.1f}" if abs(ms) >= 10 else (f"{ms:.2f}" if abs(ms) >= 1 else f"{ms:.3f}")


def marginal_words(cost: Marginal | None, ms: Callable[[float], str]) -> str:
    """A unit's marginal cost, written by ``ms`` (of ns): ``0.15``; ``≈2.66`` where it is inferred
    or rough; ``<1.3`` where it cannot be told from nothing; a dash where there is none."""
    if cost is None:
        return DASH
    if cost.drowns:
        return f"<{ms(max(cost.most_ns, LEAST_NS)).removeprefix('<')}"
    return f"≈{ms(cost.ns)}" if cost.rough else ms(cost.ns)


def marginal_cell(row: Mapping[str, Any]) -> str:
    """:func:`marginal_words` of a row of :func:`nnapi_prof.reports.frames.unit_frame`."""
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
    "< cannot be told from nothing, and takes no more"
)


def trial_words(left: Collection[str]) -> str:
    """What follows a table without the accelerators that a trial left; empty where it left none."""
    return f"; left after a trial of a few units, far behind: {', '.join(left)}" if left else ""


def format_percent(ratio: float | None) -> str:
    """``0.034`` -> ``3.4 %``."""
    return DASH if ratio is None or not math.isfinite(ratio) else f"{100 * ratio:.1f} %"


def format_change(ratio: float | None) -> str:
    """A relative difference with its sign: ``+3.4 %``."""
    if ratio is None or not math.isfinite(ratio):
        return DASH
    return f"{round(100 * ratio, 1) + 0.0:+.1f} %"  # what is added makes -0.0 a zero


def format_difference(difference: float, digits: int = 2) -> str:
    """``4.20e-07``; ``infinite`` where one output has an infinity or NaN and the other has not, and
    of anything relative to nothing but zeros."""
    return f"{difference:.{digits}e}" if math.isfinite(difference) else "infinite"


def format_si(number: float | None) -> str:
    """``1.2 k``, ``34 M``: counts and bytes with a decimal prefix."""
    if number is None or not math.isfinite(number):
        return DASH
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= 0.9995 * scale:  # three digits of what is less by a hair are those of scale
            return f"{number / scale:.3g} {prefix}"
    return f"{number:.0f} "


def ms_unit(simulated: bool) -> str:
    """The unit behind a latency: simulated ones are labelled wherever they stand."""
    return "ms, simulated" if simulated else "ms"


def format_time(utc: str) -> str:
    """``2026-11-22 01:54:09 UTC`` of a time in ISO 8601; what is none stays as it is."""
    try:
        time = datetime.datetime.fromisoformat(utc)
    except ValueError:
        return utc
    if time.tzinfo is not None:
        time = time.astimezone(datetime.UTC)
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def count(number: int, singular: str, plural: str = "") -> str:
    """``1 segment``, ``3 segments``."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def target_words(key: str) -> str:
    """A target's key for people: ``CPU``, ``sim-npu (fast)``, ``NNAPI's choice (fast)``."""
    target = Target(key)
    if target.engine is Engine.CPU:
        return "CPU"
    if target.engine is Engine.HOST:
        return "host (eager PyTorch)"
    preference = target.preference.short if target.preference else ""
    name = "NNAPI's choice" if target.accelerator == AUTO else target.accelerator
    return f"{name} ({preference})"


def target_heads(targets: Iterable[Target]) -> list[str]:
    """Heads of columns: ``cpu``, ``sim-npu fast``; the preference behind the name."""
    return [
        f"{t.accelerator} {t.preference.short}" if t.accelerator and t.preference else t.key
        for t in targets
    ]


def place_words(key: str) -> str:
    """:func:`target_words` without the preference: who computes."""
    return target_words(key).rpartition(" (")[0] or target_words(key)


def targets_words(keys: Collection[str], every: Iterable[str]) -> str:
    """Several targets in few words: an accelerator under every preference in ``every`` is named
    once; ``sim-npu; sim-gpu (fast, sustained)``."""
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
    "all-cpu": "everything on the CPU",
    "best-single": "all of it on the one target that is fastest for it",
    "largest-supported": "all that one accelerator supports, the rest on the CPU",
    "largest-3": "the three largest regions that one accelerator supports, the rest on the CPU",
    "listed": "all but the listed units, and what follows them, on one accelerator",
    "greedy": "each unit where it alone is fastest, hand-over ignored",
}
"""Baseline -> what it does."""


def plan_words(name: str, is_own: bool = False) -> str:
    """A plan's name for people: ``best single target: sim-gpu (fast)``."""
    if is_own:
        return "this plan"
    rule, _, key = name.partition(" ")
    called = {"all-cpu": "CPU alone", "best-single": "best single target"}.get(
        rule, rule.replace("-", " ")
    )
    return f"{called}: {target_words(key)}" if key else called


def rule_words(name: str) -> str:
    """What a baseline does; empty where it is none of the known ones."""
    return RULES.get(name.partition(" ")[0], "")


# ---- the glossary --------------------------------------------------------------------------------


class Entry(NamedTuple):
    key: str
    word: str
    meaning: str


GLOSSARY = tuple(
    Entry(*row)
    for row in sorted((
        ("accelerator", "accelerator",
         "A device that NNAPI offers under a name of its own: an NPU, DSP or GPU with the vendor's "
         "driver, or Android's reference CPU implementation (nnapi-reference)."),
        ("alone", "alone",
         "A unit run by itself: its time includes one invocation and moving its inputs and "
         "outputs."),
        ("chain", "chain", "Neighbouring units, one reading from the other, measured as one."),
        ("choice", "NNAPI's choice (auto)",
         "No accelerator is named: NNAPI itself gives each operation to a driver. Stock PyTorch "
         "always runs so."),
        ("baseline", "baseline",
         "A plan that one would make without searching: everything on the CPU, everything on one "
         "accelerator, and so on. It is predicted and run like the plan itself."),
        ("cold", "first run, cold and warm",
         "The first run after compilation is cold: caches are empty and drivers finish preparing. "
         "All other figures are of warm runs, after warming up."),
        ("compile", "compile",
         "What a driver does once to make a model ready for its accelerator; not part of latency."),
        ("cpu-engine", "CPU, CPU engine",
         "The device's processor, computing with XNNPACK's kernels, or our own where XNNPACK has "
         "none; not NNAPI."),
        ("closed-set", "downward-closed set",
         "A set of units together with all that they need: a point at which a plan can end one "
         "segment and begin the next. The search goes through all of them."),
        ("clock", "clock: monotonic, simulated",
         "What times were read from: the device's own clock, which never runs backwards, or a "
         "simulated phone's description."),
        ("cores", "cores: big, all, or a mask",
         "Which CPU cores were used: those of the highest clock rate, all of them, or those whose "
         "bits are set in a hexadecimal number."),
        ("driver", "driver",
         "The vendor's program behind an accelerator; it decides which operations it takes."),
        ("eager", "eager PyTorch",
         "The original model run by PyTorch on the host, operator by operator, in float32 unless "
         "the model is quantised: the truth that outputs are compared with."),
        ("estimated", "estimated",
         "Computed by a static model of the hardware from operation counts and bytes; nothing was "
         "run for it."),
        ("feature-level", "feature level",
         "The version of NNAPI that a driver implements: 27 is Android 8.1, 28 is 9, 29 is 10, 30 "
         "is 11. It bounds which operations exist."),
        ("fitted", "fitted",
         "Computed from measurements of units and of chains of units by a regression that "
         "separates invocation, transfer and marginal cost."),
        ("host", "host",
         "The computer that this report was made on. What no engine on the device can run is run "
         "there, in eager PyTorch."),
        ("invocation", "invocation",
         "What one call into an accelerator costs, whatever it computes: the way to the driver and "
         "back."),
        ("latency", "latency",
         "Time from the start of the first segment to the end of the last one, for one inference."),
        ("mac", "MAC", "One multiplication with one addition; k, M and G are thousands, millions "
         "and billions."),
        ("marginal", "marginal cost",
         "What a unit adds to a segment that it is part of; without invocation and transfer, which "
         "the segment pays once."),
        ("measured", "measured", "Timed on the device. A figure without a label is measured."),
        ("median", "median, 10th and 90th percentile",
         "Half of the runs were faster than the median; a tenth was faster than the 10th "
         "percentile, nine tenths were faster than the 90th."),
        ("permute", "permute",
         "A transposition between PyTorch's order of an image's dimensions (channels first) and "
         "NNAPI's (channels last)."),
        ("plan", "plan", "Which units run where, in which segments. \"This plan\" is the one that "
         "the partitioner chose; files and notes call it dp."),
        ("precision", "precision: float32, relaxed, float16",
         "Whether NNAPI computes 32-bit floats as such, may compute them as 16-bit ones, or gets a "
         "model in 16-bit floats."),
        ("predicted", "predicted",
         "Computed before the plan ran, from what its segments, or their parts, took when they "
         "were measured."),
        ("preference", "preference: low_power, fast, sustained",
         "A wish that NNAPI passes to the driver: little energy, the fastest single answer, or a "
         "speed that can be kept up. Drivers may choose another clock for each, or nothing."),
        ("refused", "refused",
         "The driver, or the conversion to NNAPI, does not support it; the reason says which and "
         "why. A crash or a timeout counts as refused, too, and is named."),
        ("rests-on", "rests on: measured, sum, estimated",
         "A segment's prediction is the measured latency of this very segment, the sum of fitted "
         "parts, or an estimate."),
        ("round", "round",
         "Measurements of alternatives take turns; one turn, several runs long, is a round."),
        ("segment", "segment, region",
         "Units that run as one on one target. A region is any such set of units; a segment is one "
         "that a plan uses."),
        ("simulated", "simulated",
         "The device is a description of a phone: outputs are computed for real, latencies by the "
         "description's rules."),
        ("spread", "spread",
         "1.4826 × the median distance from the median: the standard deviation, were the times "
         "normally distributed. Relative spread is a share of the median."),
        ("execution", "NNAPI execution: sync, burst, async",
         "How NNAPI is asked to compute: one call that waits, a series of calls that keeps buffers "
         "ready, or a call that reports back when it is done."),
        ("target", "target",
         "Where a segment can run: the CPU, an accelerator under one preference, NNAPI's choice, "
         "or the host. Causes and notes write cpu, nnapi:NAME/PREFERENCE, nnapi:auto/PREFERENCE "
         "and host."),
        ("throttled", "throttled",
         "Slowed down by the device because it was hot. Throttled rounds are measured again after "
         "a pause, and left out where there are others."),
        ("transfer", "transfer",
         "Moving a segment's inputs to the accelerator and its outputs back, by the byte."),
        ("unit", "unit",
         "The smallest group of operations that is converted, measured and placed as one: a "
         "convolution with its bias and activation."),
    ), key=lambda row: row[1].lower())
)  # fmt: skip
