"""Write the first lines of a report: latency, comparison with baselines, prediction, outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from nnapi_prof.execution.compare import weak_evidence
from nnapi_prof.graph.plan import BaselineName, Engine, Plan, Rule, Segment, Target
from nnapi_prof.partition import is_optimum
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.words import (
    NOISE,
    count,
    format_difference,
    format_ms,
    format_percent,
    format_si,
    place_words,
    plan_kind,
    plan_words,
    target_words,
)

MOST_NAMED = 4
"""Most operations named in a sentence."""
CLOSE = 0.05
"""Largest relative error of a good prediction."""


@dataclass(frozen=True)
class Rival:
    """The plan against one baseline: both measured if both ran, else both predicted."""

    baseline: BaselineName
    plan_ms: float
    rival_ms: float
    measured: bool
    noise: float = NOISE
    """Relative difference up to which both count as equally fast."""

    @property
    def name(self) -> str:
        return str(self.baseline)

    @property
    def rule(self) -> Rule:
        return self.baseline.rule

    @property
    def factor(self) -> float:
        """The baseline's latency over the plan's: above 1 if the plan is faster."""
        return self.rival_ms / self.plan_ms if self.plan_ms else 1.0

    @property
    def verdict(self) -> str:
        """``good``, ``bad``, or empty within :attr:`noise`."""
        if self.factor > 1 + self.noise:
            return "good"
        return "bad" if self.factor < 1 - self.noise else ""

    @property
    def phrase(self) -> str:
        """``1.25 × as fast``, ``as fast``, ``7 % slower``."""
        if not self.verdict:
            return "as fast"
        if self.verdict == "good":
            return f"{self.factor:.2f} × as fast"
        return f"{100 * (1 / self.factor - 1):.0f} % slower"


@dataclass(frozen=True)
class Card:
    """One of the few numbers at the top."""

    about: str
    value: str
    verdict: str
    """``good``, ``bad`` or empty."""
    detail: str


@dataclass(frozen=True)
class Headline:
    sentence: str
    cards: tuple[Card, ...]


def headline(data: ReportData, baselines: pd.DataFrame, label_cards: bool = True) -> Headline:
    """Returns the first facts that a reader needs; ``baselines`` is the frame of all plans, the
    plan first.

    Without ``label_cards``, if all latencies are simulated, only the sentence says so.
    """
    rows = baselines.to_dict("records")
    own = rows[0]
    ran = math.isfinite(own["measured_ms"])
    rivals = rivals_of(baselines, NOISE if data.origin is None else data.origin.calibration.tie)
    fastest = rivals[0] if rivals else None
    single = _best_single(rivals)
    cpu = next((r for r in rivals if r.rule is Rule.ALL_CPU), None)
    planned = data.costs_simulated
    guessed = _guessed(data, data.plan, ran)
    taken = (
        latency(own["measured_ms"], *data.run_source.marks)
        if ran
        else latency(own["predicted_ms"], *data.planned_source.marks, *guessed)
    )
    sentence = f"{_device_words(data)}, the model takes {taken}"
    sentence += (
        " from end to end"
        if ran
        else f", as predicted: it {'was ' if data.run_of_plan is None else ''}{_not_run(data)}"
    )
    if ran and _is_helped(data.plan):
        sentence += ", without what the host computes, which is not timed"
    sentence += "."
    if fastest is not None:
        sentence += _against_rules(data, rivals)
        if _is_single(data.plan) and is_optimum(data.plan):
            sentence += " No split over several targets is faster by more than 1 %, by these costs."
    sentence += tie_words(data) + _doubt(data.plan)
    is_labelled = label_cards or (ran and data.run_simulated != planned)
    planned_marks = data.planned_source.marks if is_labelled else ()
    run_marks = data.run_source.marks if is_labelled else ()
    marks = run_marks if ran else planned_marks
    others = [r for r in (single, cpu) if r is not None and r is not fastest]
    cards = [
        _rival_card(f"against {FASTEST_RULE}", fastest, data, ran, marks, planned_marks),
        *(
            _rival_card(
                f"against the {plan_kind(rival.name)}", rival, data, ran, marks, planned_marks
            )
            for rival in dict.fromkeys(others)
        ),
        _prediction(own, (*planned_marks, *guessed), marks, _not_run(data)),
        _outputs(data),
        _first_run(data, run_marks),
        _copies(data, run_marks),
        _memory(data),
    ]
    return Headline(sentence, tuple(card for card in cards if card is not None))


def _doubt(plan: Plan) -> str:
    """States how far the plan may be from the optimum; empty if the optimum is proven, or if the
    objective is not the latency."""
    proof = plan.proof
    if proof is None or proof.is_optimal or proof.objective or not math.isfinite(proof.gap):
        return ""
    asked = " under the constraints" if proof.constrained else ""
    within = format_percent(math.ceil(1000 * proof.gap) / 1000)  # rounded up
    return f" Planning ended within {within} of the optimum{asked}, by these costs."


def tie_words(data: ReportData) -> str:
    """Names the plans that an estimate cannot distinguish from this one, and how to decide."""
    if data.origin is None or not (ties := data.origin.ties(data.plans)):
        return ""
    named = ", ".join(plan_words(name, separator=", ") for name in ties)
    return (
        f" A tie with {named}: the plan gains less than {data.origin.calibration.tie:.0%}, which is"
        f" within the estimate's error. {PHONE_DECIDES}"
    )


PHONE_DECIDES = (
    "Run both on a phone: `nnapi-prof go --device SERIAL` measures by NNAPI, Qualcomm AI Hub the"
    " whole network on the NPU."
)


def rivals_of(baselines: pd.DataFrame, noise: float = NOISE) -> list[Rival]:
    """Compares the plan (the frame's first row) with each baseline, the fastest first. Plans that
    are not baselines (one segment after the other, if branches run at once) are left out."""
    own, *others = baselines.to_dict("records")
    rivals = []
    for row in others:
        baseline = BaselineName.parse(row["plan"])
        if baseline is None:
            continue
        both = math.isfinite(row["measured_ms"]) and math.isfinite(own["measured_ms"])
        column = "measured_ms" if both else "predicted_ms"
        rivals.append(Rival(baseline, own[column], row[column], both, noise))
    return sorted(rivals, key=lambda rival: rival.factor)


def _not_run(data: ReportData) -> str:
    return "not run yet" if data.run_of_plan is None else "did not run to its end"


def latency(ms: float, *marks: str) -> str:
    """Formats a latency with its marks: ``3.74 ms``, ``3.74 ms (simulated)``."""
    return f"{format_ms(ms)} ms" + (f" ({', '.join(marks)})" if marks else "")


def _best_single(rivals: Sequence[Rival]) -> Rival | None:
    """Returns the fastest of the baselines that use one target."""
    single = [r for r in rivals if r.rule in (Rule.ALL_CPU, Rule.BEST_SINGLE)]
    return min(single, key=lambda rival: rival.rival_ms, default=None)


def _on_device(plan: Plan) -> list[Segment]:
    """Returns the segments that run on the device; the host runs the others in every plan. Returns
    all segments if the host runs the whole plan."""
    placed = [s for s in plan.segments if s.target.engine is not Engine.HOST]
    return placed or list(plan.segments)


def _is_single(plan: Plan) -> bool:
    return len({segment.target for segment in _on_device(plan)}) == 1


def _is_helped(plan: Plan) -> bool:
    """Returns whether the host computes a part of the plan."""
    return 0 < len(_on_device(plan)) < len(plan.segments)


def _is_cut_cpu(plan: Plan) -> bool:
    """Returns whether the plan uses only the CPU, like the baseline, but in several segments."""
    placed = _on_device(plan)
    return len(placed) == len(plan.segments) > 1 and placed[0].target.engine is Engine.CPU


def _device_words(data: ReportData) -> str:
    """Says where the plan runs: ``Split over sim-npu and the CPU``,
    ``On the CPU alone, in 2 segments``, ``On the CPU, index_on_data on the host (eager PyTorch)``.
    """
    plan = data.plan
    placed = _on_device(plan)
    named = list(dict.fromkeys(_article(s.target) for s in placed))
    if len(named) > 1:
        where = f"Split over {', '.join(named[:-1])} and {named[-1]}"
    elif _is_helped(plan):
        where = f"On {named[0]}"
    else:
        where = f"On {named[0]} alone"
        if len(placed) > 1:
            where += f", in {count(len(placed), 'segment')}"
    return where + (f", {_hosted(data)} on the host (eager PyTorch)" if _is_helped(plan) else "")


def _hosted(data: ReportData) -> str:
    """Names the operations of a plan that the host computes: ``index_on_data and _to_copy``."""
    units = [u for s in data.plan.segments if s.target.engine is Engine.HOST for u in s.units]
    names = list(dict.fromkeys(data.graph.units[unit].full_operation for unit in units))
    if len(names) > MOST_NAMED:
        names[MOST_NAMED - 1 :] = [f"{len(names) - MOST_NAMED + 1} other operations"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _article(target: Target) -> str:
    named = target.engine in (Engine.NNAPI, Engine.QNN)
    return place_words(target.key) if named else f"the {place_words(target.key)}"


FASTEST_RULE = "the fastest rule that needs no partitioner"


def _against_rules(data: ReportData, rivals: Sequence[Rival]) -> str:
    """Compares the plan with the fastest rule, and if it gains nothing, states what measuring
    revealed. ``rivals`` is not empty and has the fastest first."""
    fastest = rivals[0]
    name = plan_words(fastest.name, separator=", ")
    if fastest.rule is Rule.ALL_CPU and _is_cut_cpu(data.plan):
        name += " in one segment"
    if fastest.verdict == "good":
        return f" That is {fastest.phrase} as {FASTEST_RULE}, {name}."
    if fastest.verdict == "bad":
        return f" That is {fastest.phrase} than {FASTEST_RULE}, {name}."
    same = "is" if _is_rule(data, fastest.name) else "is as fast as"
    sentence = f" The plan {same} {FASTEST_RULE}, {name}."
    reasons = [*_which_rule(rivals), *_refused(data)]
    told = "What measuring tells" if data.origin is None else "What the estimate tells"
    return sentence + (f" {told}: {'; '.join(reasons)}." if reasons else "")


def _is_rule(data: ReportData, name: str) -> bool:
    """Returns whether the plan has the same segments as a baseline."""
    own = [(s.units, s.target) for s in data.plan.segments]
    return any(
        own == [(s.units, s.target) for s in p.segments] for p in data.baselines if p.name == name
    )


def _which_rule(rivals: Sequence[Rival]) -> list[str]:
    """States how much slower other rules are."""
    slower = [r for r in rivals if r.verdict == "good"]
    if not slower:
        return []
    nearest, slowest = slower[0], slower[-1]
    if len(slower) == 1:
        return [f"that it is this rule; {_takes(nearest)}"]
    return [f"which of the {len(rivals)} rules it is; {_takes(nearest)}, {_takes(slowest)}"]


def _takes(rival: Rival) -> str:
    name = plan_words(rival.name, separator=", ")
    return f"{name} takes {rival.factor:.3g} × as long"


def _refused(data: ReportData) -> list[str]:
    """Lists the operations that each target refuses: ``sim-npu refuses sigmoid and softmax``."""
    refusals = data.cost_model.refusals
    numbers: dict[str, dict[str, None]] = {}
    for unit, target in sorted(refusals, key=lambda place: place[0]):
        operation = data.graph.units[unit].full_operation
        numbers.setdefault(place_words(target.key), {})[operation] = None
    return [
        f"{place} refuses {_name_some(list(operations))}" for place, operations in numbers.items()
    ]


def _name_some(names: Sequence[str]) -> str:
    """Joins names: ``a``, ``a and b``, ``a, b, c and 7 more``."""
    if len(names) > MOST_NAMED:
        return f"{', '.join(names[: MOST_NAMED - 1])} and {len(names) - MOST_NAMED + 1} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _guessed(data: ReportData, plan: Plan, ran: bool) -> tuple[str, ...]:
    """Returns the mark of a prediction that uses estimates in part. The prediction of a plan that
    ran excludes the host's segments."""
    if data.origin is not None:
        return ()
    segments = _on_device(plan) if ran else plan.segments
    return ("estimated in part",) if any(s.estimated for s in segments) else ()


def _rival_card(
    about: str,
    rival: Rival | None,
    data: ReportData,
    ran: bool,
    marks: tuple[str, ...],
    planned_marks: tuple[str, ...],
) -> Card | None:
    if rival is None:
        return None
    if not rival.measured:
        named = (other for other in data.baselines if other.name == rival.name)
        marks = (*planned_marks, *(mark for o in named for mark in _guessed(data, o, ran)))
    target = rival.baseline.target
    of_its_kind = target is not None and about == f"against the {plan_kind(rival.name)}"
    name = target_words(target.key) if of_its_kind and target else plan_words(rival.name)
    taken = latency(rival.rival_ms, *marks)
    if _is_rule(data, rival.name):
        return Card(about, "the same", "", f"the plan is {name}, {taken}")
    if ran and not rival.measured:
        detail = f"{name}: {taken}, both predicted: it did not run"
    else:
        detail = f"{name}: {'measured' if rival.measured else 'predicted'} {taken}"
    return Card(about, rival.phrase, rival.verdict, detail)


def _prediction(
    own: Mapping[Any, Any],
    predicted_marks: tuple[str, ...],
    measured_marks: tuple[str, ...],
    not_run: str,
) -> Card:
    about = "predicted against measured"
    predicted = f"predicted {latency(own['predicted_ms'], *predicted_marks)}"
    if not math.isfinite(own["measured_ms"]) or not own["measured_ms"]:
        return Card(about, not_run, "", predicted)
    error = own["predicted_ms"] / own["measured_ms"] - 1
    verdict = "good" if abs(error) <= CLOSE else ("bad" if abs(error) > 4 * CLOSE else "")
    off = f"{format_percent(abs(error))} too {'low' if error < 0 else 'high'}"
    measured = f"measured {latency(own['measured_ms'], *measured_marks)}"
    return Card(about, off, verdict, f"{predicted}, {measured}")


def _first_run(data: ReportData, marks: tuple[str, ...]) -> Card | None:
    """Returns the time to compile and run the plan once; None if it was not measured."""
    run = data.run_of_plan
    if run is None or run.first_ns is None:
        return None
    compiled = [timing.compile_ns for timing in run.segments if timing.compile_ns is not None]
    return Card(
        "first run, with compiling",
        latency((sum(compiled) + run.first_ns) / 1e6),
        "",
        f"compiling {count(len(compiled), 'segment')} {latency(sum(compiled) / 1e6, *marks)}, then"
        f" {latency(run.first_ns / 1e6, *marks)} cold",
    )


def _copies(data: ReportData, marks: tuple[str, ...]) -> Card | None:
    """Returns the part of the latency that copies inputs and outputs; None if there is none."""
    run = data.run_of_plan
    if run is None or not run.median_copies_ns:
        return None
    return Card(
        "copies of inputs and outputs",
        latency(run.median_copies_ns / 1e6, *marks),
        "",
        f"part of the latency, from and to an app's buffers; predicted"
        f" {latency(run.plan.copies_ns / 1e6)}",
    )


def _memory(data: ReportData) -> Card:
    """Returns the memory that the plan needs besides the model, computed from sizes."""
    placed = [segment.units for segment in _on_device(data.plan)]
    weights = sum(unit.constant_bytes for unit in data.graph.units)
    detail = "inputs, outputs and what moves between segments, in memory shared with drivers"
    if weights:
        detail += f"; weights {format_si(weights)}B"
    return Card("memory", f"{format_si(data.graph.shared_bytes(placed))}B", "", detail)


def _outputs(data: ReportData) -> Card:
    about = "outputs against eager PyTorch"
    if data.run is None or not data.run.checks:
        return Card(about, "not run yet" if data.run is None else "not compared", "", "")
    checks = data.run.checks
    failed = [check for check in checks if not check.ok]
    worst = max(checks, key=lambda check: check.relative / (check.tolerance or 1.0))
    difference, allowed = worst.texts()
    if math.isfinite(worst.relative):
        difference += " of the largest value"
    else:
        difference = format_difference(worst.relative)
    detail = f"largest difference {difference}, {allowed} allowed"
    if failed:
        return Card(about, f"{len(failed)} of {len(checks)} differ", "bad", detail)
    little = [check for check in checks if not check.tells]
    if len(little) < len(checks):
        detail += f"; {len(little)} of {len(checks)} left little to compare" if little else ""
        return Card(about, "agree", "good", detail)
    what = "; ".join(f"{check.name} {weak_evidence(check)}" for check in little)
    return Card(about, "little to compare", "", what)
