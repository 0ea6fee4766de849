"""Measure contention for a profile: units that run side by side.

For each pair of processors that plans may use, one unit of each type of operation that takes most
of the model's time runs on each processor alone and then on both at once. Beside the CPU the
lightest of these units also runs asynchronously (:class:`~nnapi_prof.costs.Mode`), and on request
the unit whose times on both are most alike keeps them busy for long.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nnapi_prof.convert.region import Region
from nnapi_prof.costs import Conditions, Mode
from nnapi_prof.costs.measurement import Kind, Measurement
from nnapi_prof.costs.model import CostModel
from nnapi_prof.costs.model.fit import RegionMatcher
from nnapi_prof.costs.model.views import shown_targets
from nnapi_prof.device.protocol import ActionResult
from nnapi_prof.device.protocol.actions import TensorSource, Timing
from nnapi_prof.device.protocol.request import RequestBuilder
from nnapi_prof.execution import ActionOptions
from nnapi_prof.execution.actions import build_action
from nnapi_prof.execution.profile import SIMULATED_RUNS, ProfileOptions
from nnapi_prof.execution.profile.jobs import INPUT_SEED, Job, TargetSpec, measured, refused
from nnapi_prof.execution.profile.measurer import Measurer
from nnapi_prof.graph.plan import AUTO, CPU, Engine, Target
from nnapi_prof.graph.unit import UnitGraph, digest

MOST_TYPES = 5
"""Number of types of operations that are measured: those that take most of the time."""
BUSY_MS = 60.0
"""Approximate ms that both sides are busy with one unit, in all rounds, ..."""
MOST_RUNS = 400
"""... and the largest number of runs."""
MOST_LASTING_RUNS = 100_000
SLACK_S = 30.0
"""Seconds of the watchdog beyond the expected time of a round."""


@dataclass(frozen=True, slots=True)
class UnitPair:
    """One unit on two processors at once."""

    sides: tuple[Job, Job]
    """Jobs on both processors; that on the CPU is first."""
    conditions: Conditions
    """Conditions of the action."""
    expected_ns: float
    """Expected ns on the slower side, by the costs."""
    lasting_s: float = 0.0
    """Seconds that both are kept busy; 0: for some rounds."""

    @property
    def unit(self) -> int:
        return self.sides[0].region[0]

    def timing(self, options: ProfileOptions, simulated: bool) -> Timing:
        """Returns the timing of the action: the same number of runs on each side, in rounds; a
        lasting action has a single round."""
        usual = options.timing(simulated)
        alone_ns = max(self.expected_ns, 1.0)
        if self.lasting_s:
            runs = min(max(round(self.lasting_s * 1e9 / alone_ns), 1), MOST_LASTING_RUNS)
            timeout_ms = round((3 * self.lasting_s + SLACK_S) * 1e3)
            return replace(
                usual, rounds=1, min_runs=runs, max_runs=runs, cooldown_ms=0, timeout_ms=timeout_ms
            )
        most = min(options.runs or MOST_RUNS, MOST_RUNS)
        runs = min(max(round(BUSY_MS * 1e6 / alone_ns), 2 * options.rounds), most)
        runs = min(SIMULATED_RUNS, most) if simulated else runs
        return replace(usual, rounds=min(options.rounds, runs), min_runs=runs, max_runs=runs)


def pairs_to_measure(
    graph: UnitGraph,
    costs: CostModel,
    specs: Sequence[TargetSpec],
    behind: Collection[Target],
    options: ProfileOptions,
    agent_version: str,
) -> list[UnitPair]:
    """Lists the pairs of units to run side by side on a device with these targets; plans do not use
    the targets in ``behind``."""
    by_target = {spec.target: spec for spec in specs}
    matcher = RegionMatcher(graph)
    accelerators = [
        target
        for target in shown_targets(costs, graph).values()
        if target.engine is Engine.NNAPI and target.accelerator != AUTO and target not in behind
    ]
    pairs: list[UnitPair] = []
    for first, second in itertools.combinations((CPU, *accelerators), 2):
        both = _costs_of_both(graph, costs, (first, second))
        units = _of_types(graph, both)
        asked = [(unit, options.conditions, 0.0) for unit in units]
        if units and first == CPU:
            asked += _asked_beside_the_cpu(units, both, options)
        for unit, conditions, lasting_s in asked:
            sides = (by_target[first], by_target[second])
            jobs = _sides(matcher, unit, sides, conditions, agent_version, lasting_s)
            pairs.append(UnitPair(jobs, conditions, max(both[unit]), lasting_s))
    return pairs


def _asked_beside_the_cpu(
    units: Sequence[int], both: Mapping[int, tuple[float, float]], options: ProfileOptions
) -> Iterator[tuple[int, Conditions, float]]:
    """Yields unit, conditions and busy seconds of an accelerator's further actions."""
    own = options.conditions
    lightest = min(units, key=lambda unit: both[unit][1])
    for mode in (Mode.SYNC, Mode.ASYNC):
        if Mode.ASYNC is not own.mode is not mode:
            yield lightest, replace(own, mode=mode), 0.0
    if options.contention_s:
        yield (
            max(units, key=lambda unit: min(both[unit]) / max(both[unit])),
            own,
            options.contention_s,
        )


def _costs_of_both(
    graph: UnitGraph, costs: CostModel, targets: tuple[Target, Target]
) -> dict[int, tuple[float, float]]:
    """Returns the ns of each unit on both targets, invocations included, where it runs on both."""
    both = {}
    for unit in graph.units:
        ns = [costs.region_cost((unit.index,), target) for target in targets]
        if unit.work is not None and ns[0] is not None and ns[1] is not None:
            both[unit.index] = ns[0].ns, ns[1].ns
    return both


def _of_types(graph: UnitGraph, both: Mapping[int, tuple[float, float]]) -> list[int]:
    """Returns one unit of each type of operation that takes most of the time: half of the type's
    time is in units no heavier."""
    by_type: dict[str, list[int]] = defaultdict(list)
    for unit in both:
        work = graph.units[unit].work
        by_type[work.kind if work is not None else ""].append(unit)
    totals = {kind: sum(sum(both[unit]) for unit in units) for kind, units in by_type.items()}
    chosen = []
    for kind in sorted(totals, key=lambda kind: (-totals[kind], kind))[:MOST_TYPES]:
        passed = 0.0
        for unit in sorted(by_type[kind], key=lambda unit: (sum(both[unit]), unit)):
            passed += sum(both[unit])
            if passed >= totals[kind] / 2:
                chosen.append(unit)
                break
    return chosen


def _sides(
    matcher: RegionMatcher,
    unit: int,
    specs: tuple[TargetSpec, TargetSpec],
    conditions: Conditions,
    agent_version: str,
    lasting_s: float,
) -> tuple[Job, Job]:
    """Returns the jobs of one action, on both processors. Their signatures include the other side
    and its conditions."""
    first, second = (
        Job.of(matcher, (unit,), Kind.CORUN, spec, conditions, agent_version) for spec in specs
    )
    identity = {
        "beside": first.key.signature,  # signatures in tables have this word
        "accelerator": second.key.target,
        "conditions": conditions.to_json(),
        "lasting_s": lasting_s,
    }
    driver = second.key.driver_version
    if specs[0].target == CPU:
        first = replace(first, key=first.key._replace(driver_version=driver))
    else:
        identity["drivers"] = [first.key.driver_version, driver]
    signature = digest(identity)
    return (
        replace(first, key=first.key._replace(signature=signature)),
        replace(second, key=second.key._replace(signature=signature)),
    )


def measure_pairs(
    measurer: Measurer, graph: UnitGraph, options: ProfileOptions, pairs: Sequence[UnitPair]
) -> None:
    """Measures the pairs that are not in the store, and commits the rows of each as they arrive."""
    pending = [pair for pair in pairs if not _is_measured(measurer, pair)]
    measurer.note_reused(job for pair in pairs for job in pair.sides)
    done = 0

    def tell(label: str) -> None:
        measurer.report("side by side", done, len(pending), label)

    if pairs:
        tell("")
    for pair, rows in _measured(measurer, graph, options, pending):
        measurer.keep(list(zip(pair.sides, rows, strict=True)))
        done += 1
        tell(rows[0].label)


def _is_measured(measurer: Measurer, pair: UnitPair) -> bool:
    return all(job.key in measurer.have for job in pair.sides)


def _measured(
    measurer: Measurer, graph: UnitGraph, options: ProfileOptions, pairs: Sequence[UnitPair]
) -> Iterator[tuple[UnitPair, list[Measurement]]]:
    """Yields the pairs, each with the rows of its sides."""
    simulated = measurer.info.simulated
    request = RequestBuilder()
    sent: dict[int, tuple[UnitPair, list[Region]]] = {}
    for number, pair in enumerate(pairs):
        with measurer.spending("convert"):
            models = [measurer.convert(job) for job in pair.sides]
        regions = [model for model in models if not isinstance(model, str)]
        if len(regions) < len(models):
            why = next(model for model in models if isinstance(model, str))
            rows = [refused(job, graph, measurer.fingerprint, simulated, why) for job in pair.sides]
            yield pair, _as_pair(pair, rows)
            continue
        seed = INPUT_SEED + number
        action = build_action(
            number,
            zip((job.spec.target for job in pair.sides), regions, strict=True),
            lambda _: (TensorSource.RANDOM, seed),  # noqa: B023  # called before the next pair
            request,
            pair.timing(options, simulated),
            ActionOptions(pair.conditions, options.memory_kb, corun=True),
        )
        request.add_action(action.spec)
        sent[number] = pair, regions
    if not sent:
        return
    for result in measurer.results(request.request()):
        if result.action in sent:
            pair, regions = sent.pop(result.action)
            yield pair, _as_pair(pair, _rows(measurer, graph, pair, regions, result))


def _rows(
    measurer: Measurer,
    graph: UnitGraph,
    pair: UnitPair,
    regions: Sequence[Region],
    result: ActionResult,
) -> list[Measurement]:
    simulated = measurer.info.simulated
    return [
        measured(job, graph, measurer.fingerprint, simulated, region, result, segment)
        for segment, (job, region) in enumerate(zip(pair.sides, regions, strict=True))
    ]


def _as_pair(pair: UnitPair, rows: Sequence[Measurement]) -> list[Measurement]:
    """Returns the rows as side-by-side ones, which are not the latency of a region."""
    return [
        replace(
            row,
            members=(row.signature,),
            label=f"{row.label} beside {other.spec.target.lane}",
            corunner=other.spec.target,
        )
        for row, other in zip(rows, reversed(pair.sides), strict=True)
    ]
