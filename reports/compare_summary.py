"""A comparison as data: the sides, and everything that differs, with a sentence for each change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from nnapi_prof.costs.diff import CONFIDENCE, Comparison, Verdict
from nnapi_prof.errors import UsageError, spelled
from nnapi_prof.reports.compare_changes import (
    Difference,
    Move,
    Refusal,
    conditions,
    descriptions,
    latencies,
    moves,
    refusals,
)
from nnapi_prof.reports.compare_sides import Column, Ratio, Side, match_units, ratio_of
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.words import count

LETTERS = "ABCDEF"
"""As many sides can be told apart in one figure."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One thing that changed. ``verdict`` is ``good``, ``bad`` or empty: whether it is welcome."""

    text: str
    verdict: str = ""


@dataclass(frozen=True)
class Compared:
    """Two sides or more; everything is said of the others against the first."""

    sides: tuple[Side, ...]

    @property
    def others(self) -> tuple[Side, ...]:
        return self.sides[1:]

    @property
    def simulated(self) -> bool:
        return any(side.simulated for side in self.sides)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Units of all sides, matched."""
        return match_units([side.data.graph for side in self.sides])

    @cached_property
    def matched(self) -> tuple[Column, ...]:
        """Units that every side has."""
        return tuple(column for column in self.columns if column.everywhere)

    @cached_property
    def ratios(self) -> tuple[Ratio | None, ...]:
        """End to end, of each side but the first."""
        return tuple(ratio_of(self.sides[0], side) for side in self.others)

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        return moves(self.sides, self.columns)

    @property
    def n_moved(self) -> int:
        """Units that not every side runs on the same target."""
        return sum(len(move.columns) for move in self.moves)

    @cached_property
    def latencies(self) -> tuple[Comparison, ...]:
        """Of each side but the first."""
        return tuple(latencies(self.sides[0], side) for side in self.others)

    @cached_property
    def refusals(self) -> tuple[Refusal, ...]:
        return refusals(self.sides, self.columns)

    @cached_property
    def conditions(self) -> tuple[Difference, ...]:
        return conditions(self.sides)

    @cached_property
    def descriptions(self) -> tuple[Difference, ...]:
        return descriptions(self.sides)

    def only(self, side: Side) -> tuple[int, ...]:
        """Units of a side that not every other has."""
        at = LETTERS.index(side.letter)
        own = (c.units[at] for c in self.columns if not c.everywhere)
        return tuple(sorted(unit for unit in own if unit is not None))

    @cached_property
    def sentences(self) -> tuple[Sentence, ...]:
        """What changed, the most important first; never empty."""
        sentences = [*self._ratio_sentences(), *self._outcome_sentences()]
        sentences += self._placement_sentences()
        sentences += self._latency_sentences()
        if self.refusals:
            targets = sorted({key for each in self.refusals for key in each.targets})
            units = count(len({each.unit for each in self.refusals}), "unit")
            sentences.append(Sentence(f"What is refused differs for {units}: {_some(targets)}."))
        names = [each.name for each in self.conditions if each.name not in _EXPECTED]
        if names:
            sentences.append(Sentence(f"Conditions and versions that differ: {_some(names, 8)}."))
        return tuple(sentences)

    def _ratio_sentences(self) -> list[Sentence]:
        first = self.sides[0]
        sentences = []
        for side, ratio in zip(self.others, self.ratios, strict=True):
            if ratio is None:
                words = f"{first.letter} and {side.letter} have no latency that can be compared."
                sentences.append(Sentence(words))
                continue
            how = "measured end to end" if ratio.measured else "predicted"
            one = first.measured if ratio.measured else first.predicted
            two = side.measured if ratio.measured else side.predicted
            interval = ""
            if ratio.low is not None and ratio.high is not None:
                interval = (
                    f", {100 * CONFIDENCE:.0f} % interval {ratio.low:.3f} to {ratio.high:.3f}"
                )
            mark = f" ({one.label})" if one.label and one.label == two.label else ""
            words = (
                f"{side.letter} takes {ratio.value:.3f} × as long as {first.letter}, {how}{mark}"
                f"{interval}: {ratio.verdict}."
            )
            if one.label != two.label:
                labels = " and ".join(
                    f"{s.letter} is {latency.label or 'neither simulated nor estimated'}"
                    for s, latency in ((first, one), (side, two))
                )
                words += f" {labels}: this ratio says little."
            alike = not self.only(first) and not self.only(side)  # other models may well be slower
            verdict = {"faster": "good", "slower": "bad"}.get(ratio.verdict, "") if alike else ""
            sentences.append(Sentence(words, verdict))
        return sentences

    def _outcome_sentences(self) -> list[Sentence]:
        """Of outputs and failures, where the sides do not agree."""
        sentences = []
        verdicts = {side.outputs for side in self.sides}
        if "differ" in verdicts and len(verdicts) > 1:
            of = ", ".join(f"{side.letter}: {side.outputs}" for side in self.sides)
            sentences.append(Sentence(f"Outputs against eager PyTorch: {of}.", "bad"))
        for side in self.sides:
            ran = side.data.run_of_plan
            if ran is not None and ran.error is not None:
                words = f"The plan of {side.letter} did not run to its end: {ran.error}"
                sentences.append(Sentence(words, "bad"))
        return sentences

    def _placement_sentences(self) -> list[Sentence]:
        sentences = []
        total = len(self.matched)
        if not total:
            sentences.append(Sentence("The models have no unit in common."))
        elif self.moves:
            sentences.append(Sentence(f"{self._moved_words(total)}."))
        else:
            sentences.append(Sentence(f"All {total} units in common run on the same targets."))
        if any(self.only(side) for side in self.sides):
            of = ", ".join(f"{len(self.only(side))} only in {side.letter}" for side in self.sides)
            both = f"{count(total, 'unit')} in common; " if total else ""
            sentences.append(Sentence(f"Other models: {both}{of}."))
        return sentences

    def _moved_words(self, total: int) -> str:
        if len(self.others) > 1:
            verb = "does" if self.n_moved == 1 else "do"
            return f"{self.n_moved} of {total} units {verb} not run on the same target everywhere"
        verb = "runs" if self.n_moved == 1 else "run"
        return f"{self.n_moved} of {total} units {verb} elsewhere in {self.others[0].letter}"

    def _latency_sentences(self) -> list[Sentence]:
        sentences = []
        pair = len(self.others) == 1
        for side, compared in zip(self.others, self.latencies, strict=True):
            n = sum(each.ratio is not None for each in compared.differences)
            slower, faster = (
                sum(each.verdict is verdict for each in compared.differences)
                for verdict in (Verdict.SLOWER, Verdict.FASTER)
            )
            who = "" if pair else f" between {self.sides[0].letter} and {side.letter}"
            if n:
                changed = f"{slower} became slower, {faster} faster" if slower + faster else "none"
                sentences.append(
                    Sentence(
                        f"Of {n} latencies of units and regions measured on both sides{who},"
                        f" {changed} beyond noise."
                    )
                )
            elif compared.same_row:
                sentences.append(Sentence(f"No unit was measured again{who}."))
        return sentences


_EXPECTED = ("last measured", "run at", "latencies")
"""Differ whenever two things are compared, or are said elsewhere."""


def compared(named: Sequence[tuple[str, ReportData]]) -> Compared:
    """Raises UsageError where there are fewer than two sides or more than :data:`LETTERS`."""
    if not 2 <= len(named) <= len(LETTERS):
        raise UsageError(
            f"a comparison has 2 to {len(LETTERS)} sides, not {len(named)}: name as many bundles"
            + spelled(", --run or --at", ", plans or results")
        )
    sides = (Side(letter, name, data) for letter, (name, data) in zip(LETTERS, named, strict=False))
    return Compared(tuple(sides))


def interval_words(low: float | None, high: float | None) -> str:
    """``99 % interval 0.938 to 0.968``; empty where there is none."""
    if low is None or high is None:
        return ""
    return f"{100 * CONFIDENCE:.0f} % interval {low:.3f} to {high:.3f}"


def _some(names: Sequence[str], most: int = 4) -> str:
    """The first few, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
