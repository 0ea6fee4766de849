"""Define sections of a report that are one list of facts or one table, in HTML and in Markdown.

They appear in the order of :data:`SECTIONS`, in HTML after the environment, in Markdown before it.
A section without rows is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.facts import method_facts
from nnapi_prof.reports.frames import rate_frame
from nnapi_prof.reports.headline import PHONE_DECIDES
from nnapi_prof.reports.words import calibration_words, count, format_ms, format_percent, plan_words


@dataclass(frozen=True, slots=True)
class Section:
    """A section: one list of facts or one table."""

    id: str
    """Id of the page's element, for links to it."""
    name: str
    """Name in the page's navigation."""
    heading: str
    rows: Callable[[ReportData], Sequence[Sequence[str]]]
    heads: tuple[str, ...] = ()
    """Heads of the table's columns; empty for facts, whose rows are a name and a value."""
    numbers: tuple[int, ...] = ()
    """Columns aligned to the right."""
    about: str = ""
    """A sentence above the table."""
    figure: str = ""
    """Name of the figure above the table."""


def _front_rows(data: ReportData) -> Sequence[Sequence[str]]:
    """Returns the front and the baselines, with a mark at the chosen plan."""
    mixed = data.mixed
    if mixed is None:
        return []
    return [
        (
            f"{row.name} (chosen)" if row.name == mixed.chosen else row.name,
            format_ms(row.latency_ns / 1e6),
            f"{row.error:.2%}",
            f"{row.held_out_error:.2%} ({row.held_out_low:.2%} … {row.held_out_high:.2%})",
            str(row.n_segments),
            ", ".join(f"{n} {precision.value}" for precision, n in row.n_units.items() if n),
        )
        for row in mixed.front
    ]


ACCURACY = Section(
    "front",
    "Precision",
    "Latency against accuracy",
    _front_rows,
    heads=("plan", "latency, predicted, ms", "error", "on held-out data", "segments", "units"),
    numbers=(1, 2, 3, 4),
    about=(
        "Plans (none is both faster and more accurate than another), and one precision for all"
        " units. The error is that of the whole plan, on the calibration data and on held-out"
        " data; in brackets is the 95 % interval for other data of the same kind."
    ),
    figure="front",
)


def _estimate_facts(data: ReportData) -> Sequence[Sequence[str]]:
    """Returns facts about the estimate; empty if no simulator estimated the costs."""
    origin = data.origin
    if origin is None:
        return []
    fit = origin.calibration
    off = sorted(abs(error) for error in origin.region_errors)
    facts = [
        ("the NPU's times", calibration_words(fit)),
        (
            "nine of ten networks",
            f"lie between {format_percent(1 - math.exp(-fit.spread))} below and"
            f" {format_percent(math.exp(fit.spread) - 1)} above their estimate",
        ),
        (
            "each invocation",
            "costs what the fit to published times says: the simulator does not know it",
        ),
        ("the CPU", f"is estimated for {origin.cpu}"),
    ]
    if off:
        facts.append(
            (
                "sums of units",
                f"were {format_percent(median(off))} off in the median, {format_percent(off[-1])}"
                f" at worst, for {count(len(off), 'region')} that nothing was fitted to",
            )
        )
    whole = "all compiled whole" if origin.stable else "not all compiled whole: the others are sums"
    facts.append(("the plan's regions", f"on the NPU are {whole}"))
    if ties := origin.ties(data.plans):
        named = ", ".join(plan_words(name, separator=", ") for name in ties)
        facts.append(("ties", f"{named}: less than {fit.tie:.0%} behind, within the error"))
    facts += [
        (f"doubt about {label}", text) for label, own in origin.doubts.items() for text in own
    ]
    facts += [(f"no estimate of {label}", why) for label, why in origin.failures.items()]
    facts.append(("what decides", f"nothing here was measured. {PHONE_DECIDES}"))
    return facts


ESTIMATE = Section("estimate", "Estimate", "How this was estimated", _estimate_facts)


def _fault_rows(data: ReportData) -> Sequence[Sequence[str]]:
    """Returns one row per fault, in topological order."""
    return [
        (fault.label, fault.target, fault.kind, fault.line, fault.error, fault.cure)
        for fault in data.faults
    ]


FAULTS = Section(
    "faults",
    "Faults",
    "Where the device computes something else",
    _fault_rows,
    heads=("unit", "target", "kind", "from", "error", "cure"),
    about=(
        "With reference inputs, these units differ from PyTorch by more than rounding explains."
        " The error is relative to the largest value."
    ),
)


METHOD = Section("method", "Method", "How it was measured", method_facts)


def _rate_rows(data: ReportData) -> Sequence[Sequence[str]]:
    """Returns a row for the intended schedule, then for the others."""
    if data.run is None or not data.run.frames:
        return []
    return [
        (
            row["way"],
            _rate(row["frames_per_second"]),
            _rate(row["predicted_per_second"]),
            format_ms(row["latency_ms"]),
            format_ms(row["latency_95_ms"]),
            f"{row['same']} of {row['frames']}",
        )
        for row in rate_frame(data.run.frames).to_dict("records")
    ]


def _rate(per_second: float) -> str:
    return "–" if math.isnan(per_second) else f"{per_second:.4g}"


RATES = Section(
    "rates",
    "Frames at once",
    "Frames per second",
    _rate_rows,
    heads=(
        "way", "frames/s", "predicted", "latency of a frame, ms", "of 95 % at most, ms",
        "equal to a frame alone",
    ),
    numbers=(1, 2, 3, 4),
    about=(
        "Processors work on different frames at the same time. A frame's latency is from being"
        " handed in to its last segment's end; more frames in flight keep processors busier, and"
        " each frame waits longer."
    ),
)  # fmt: skip


PRECISIONS = ("relaxed", "float16", "int8")
MOST_UNITS = 40
"""Most units listed; of more, the most sensitive ones."""


def _sensitivity_rows(data: ReportData) -> Sequence[Sequence[str]]:
    """Returns a row for each unit, the most sensitive first."""
    if data.mixed is None:
        return []
    units = sorted(data.mixed.sensitivity, key=lambda unit: -max(unit.errors.values(), default=0))
    rows = []
    for unit in units[:MOST_UNITS]:
        errors = {precision.value: error for precision, error in unit.errors.items()}
        cells = [f"{errors[p]:.3%}" if p in errors else "–" for p in PRECISIONS]
        rows.append((unit.label, *cells))
    return rows


SENSITIVITY = Section(
    "sensitivity",
    "Sensitivity",
    "What each unit loses in less than float32",
    _sensitivity_rows,
    heads=("unit", *PRECISIONS),
    numbers=(1, 2, 3),
    about=(
        "The error of the model's outputs where this unit alone computes in that precision, on the"
        f" calibration data; the {MOST_UNITS} most sensitive units."
    ),
)

SECTIONS = (ACCURACY, ESTIMATE, FAULTS, METHOD, RATES, SENSITIVITY)


def filled_sections(data: ReportData) -> list[tuple[Section, Sequence[Sequence[str]]]]:
    """Returns the sections that have rows, with these."""
    return [(section, rows) for section in SECTIONS if (rows := section.rows(data))]
