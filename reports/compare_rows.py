"""The headline of a comparison as words: a row for each quantity, a cell for each side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nnapi_prof.reports.compare_sides import NOISE, Latency, Ratio, Rival, Side
from nnapi_prof.reports.compare_summary import Compared, interval_words
from nnapi_prof.reports.words import DASH, count, format_change, format_ms, plan_words

_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class Cell:
    """``soft`` explains ``text``; ``verdict`` is ``good``, ``bad`` or empty."""

    text: str
    soft: str = ""
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    cells: tuple[Cell, ...]

    @property
    def differs(self) -> bool:
        return len(set(self.cells)) > 1


def headline_rows(compared: Compared) -> tuple[Row, ...]:
    """What is looked at first. A row of which no side knows anything is left out."""
    others = (side.letter for side in compared.others)
    against = dict(zip(others, compared.ratios, strict=True))
    first = compared.sides[0]

    def ratio(side: Side) -> Cell:
        return Cell("1", "the reference") if side is first else _ratio(against[side.letter])

    made: dict[str, Callable[[Side], Cell]] = {
        "model": lambda side: Cell(side.data.model, count(len(side.data.graph.units), "unit")),
        "device": _device,
        "latency, measured": _measured,
        "latency, predicted": lambda side: Cell(_ms(side.predicted)),
        "prediction error": lambda side: Cell(format_change(side.error)),
        f"time taken, by {first.letter}'s": ratio,
        "against the fastest baseline": lambda side: _rival(side.fastest),
        "against the best single target": lambda side: _rival(side.against("best-single")),
        "against the CPU alone": lambda side: _rival(side.against("all-cpu")),
        "segments": _segments,
        "outputs against eager PyTorch": _outputs,
        "first run, cold": lambda side: Cell(_ms(Latency(side.first_ns, side.measured.simulated))),
        "time to compile": lambda side: Cell(
            _ms(Latency(side.compile_ns, side.measured.simulated))
        ),
    }
    rows = (Row(name, tuple(map(make, compared.sides))) for name, make in made.items())
    return tuple(row for row in rows if any(cell.text != DASH for cell in row.cells))


def latency_words(ns: float | None, label: str) -> str:
    """``12.3 ms, simulated``; a dash where unknown."""
    if ns is None:
        return DASH
    return f"{format_ms(ns / _NS_PER_MS)} ms{', ' if label else ''}{label}"


def _ms(latency: Latency) -> str:
    return latency_words(latency.ns, latency.label)


def _device(side: Side) -> Cell:
    name, _, details = side.data.device_name.partition(" (")
    return Cell(name, details.removesuffix(")"))


def _measured(side: Side) -> Cell:
    latency = side.measured
    ran = side.data.run_of_plan
    if ran is None:
        return Cell("not run")
    if ran.error is not None:
        return Cell("failed", ran.error, "bad")
    low, high = ((x or 0.0) / _NS_PER_MS for x in (latency.low_ns, latency.high_ns))
    runs = count(len(latency.samples_ns), "run")
    return Cell(
        _ms(latency), f"10th to 90th percentile {format_ms(low)} to {format_ms(high)}, {runs}"
    )


def _ratio(found: Ratio | None) -> Cell:
    if found is None:
        return Cell(DASH)
    how = "measured" if found.measured else "predicted"
    parts = [how, interval_words(found.low, found.high), found.verdict]
    verdict = {"faster": "good", "slower": "bad"}.get(found.verdict, "")
    return Cell(f"{found.value:.3f} ×", ", ".join(filter(None, parts)), verdict)


def _rival(found: Rival | None) -> Cell:
    if found is None:
        return Cell(DASH)
    how = "measured" if found.measured else "predicted"
    soft = f"{plan_words(found.plan)}, {how}"
    if abs(found.factor - 1) < NOISE:
        return Cell("as fast", soft)
    if found.factor > 1:
        return Cell(f"{found.factor:.2f} × as fast", soft)
    return Cell(f"{1 / found.factor:.2f} × slower", soft, "bad")


def _segments(side: Side) -> Cell:
    segments = side.data.plan.segments
    targets = len({segment.target for segment in segments})
    return Cell(str(len(segments)), f"on {count(targets, 'target')}")


def _outputs(side: Side) -> Cell:
    worst = side.worst_difference
    soft = "" if worst is None else f"largest relative difference {worst:.1e}"
    return Cell(side.outputs, soft, {"agree": "good", "differ": "bad"}.get(side.outputs, ""))
