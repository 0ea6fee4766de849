"""A report of several models on many phones: fleets, and the measurements behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from nnapi_prof.api.costs import Costs
from nnapi_prof.api.events import SILENT, Listener, Progress
from nnapi_prof.api.fleet_result import Fleet
from nnapi_prof.costs.conditions import Conditions
from nnapi_prof.costs.measurement import Measurement, Status
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.graph.plan import AUTO, REFERENCE, Engine, Rule, Target
from nnapi_prof.partition import make_problem
from nnapi_prof.partition.baselines import Baseline, find_baselines
from nnapi_prof.reports.data import this_environment
from nnapi_prof.reports.fleet_data import (
    Choice,
    Day,
    Faults,
    FleetReport,
    Group,
    ModelOnPhone,
    SlowAccelerator,
    median_ratio,
)

Placed = Iterable[tuple[Sequence[int], Target]]


def fleet_report(
    fleets: Sequence[Fleet], store: CostStore, listener: Listener = SILENT
) -> FleetReport:
    """What is to be known of some models, the fleet of each, on their phones.

    ``store`` is the cost table that they were planned from, whose older rows tell the history. A
    ``listener`` hears how far it is. Raises CostError where the table cannot be read.
    """
    cells: list[ModelOnPhone] = []
    slow: list[SlowAccelerator] = []
    groups: list[Group] = []
    choices: list[Choice] = []
    for fleet in fleets:
        own = []
        for number in range(len(fleet.phones)):
            listener.progress(
                Progress("comparing phones", number, len(fleet.phones), fleet.model.name)
            )
            cell, behind = _cell(fleet, number)
            own.append(cell)
            slow += behind
        cells += own
        groups += _groups(fleet, own)
        choices += [
            Choice(fleet.model.name, k, each.mean, each.worst)
            for k, each in enumerate(fleet.search.choices, 1)
        ]
    faults, days = _measurements(fleets, store, listener)
    return FleetReport(
        models=tuple(fleet.model.name for fleet in fleets),
        phones=tuple(dict.fromkeys(cell.phone for cell in cells)),
        objective=fleets[0].objective.value,
        cells=tuple(cells),
        groups=tuple(groups),
        choices=tuple(choices),
        slow=tuple(sorted(slow, key=lambda each: -each.slower)),
        faults=tuple(faults),
        days=tuple(days),
        notes=tuple(
            dict.fromkeys(f"{fleet.model.name}: {note}" for fleet in fleets for note in fleet.notes)
        ),
        environment=this_environment(),
    )


def _cell(fleet: Fleet, number: int) -> tuple[ModelOnPhone, list[SlowAccelerator]]:
    """A model on one of its phones, and the accelerators there that are slower than the CPU."""
    phone, costs = fleet.phones[number], fleet.costs[number]
    rules = find_baselines(make_problem(costs.model.graph, costs.priced))
    fastest = min(rules, key=lambda rule: rule.predicted_ns)
    best = int(fleet.search.latency_ns[:, number].argmin())
    cell = ModelOnPhone(
        model=fleet.model.name,
        phone=phone.name,
        weight=phone.weight,
        best_ns=phone.least_ns,
        places=_places(fleet.search.plans[best]),
        rule=fastest.name,
        rule_ns=fastest.predicted_ns,
        all_cpu_ns=phone.all_cpu_ns,
        plan=fleet.plans[phone.plan].name,
        plan_ns=phone.predicted_ns,
        simulated=phone.simulated,
        estimated=phone.estimated,
    )
    return cell, list(_slow(cell, rules, costs))


def _places(segments: Placed) -> tuple[str, ...]:
    units: Counter[str] = Counter()
    for own, target in segments:
        units[target.key] += len(own)
    return tuple(key for key, _ in units.most_common())


def _slow(cell: ModelOnPhone, rules: Iterable[Baseline], costs: Costs) -> Iterator[SlowAccelerator]:
    """Without NNAPI's reference, which promises no speed."""
    for rule in rules:
        if rule.rule is not Rule.LARGEST_SUPPORTED or rule.favoured is None:
            continue
        target = costs.priced.targets[rule.favoured]
        if target.accelerator != REFERENCE and rule.predicted_ns > cell.all_cpu_ns:
            yield SlowAccelerator(
                cell.phone, target.key, cell.model, rule.predicted_ns, cell.all_cpu_ns
            )


def _groups(fleet: Fleet, cells: Sequence[ModelOnPhone]) -> Iterator[Group]:
    for number, plan in enumerate(fleet.plans):
        own = [
            cell for phone, cell in zip(fleet.phones, cells, strict=True) if phone.plan == number
        ]
        weight = sum(cell.weight for cell in own)
        yield Group(
            model=fleet.model.name,
            plan=plan.name,
            phones=tuple(cell.phone for cell in sorted(own, key=lambda cell: -cell.regret)),
            share=weight,
            n_segments=len(plan.segments),
            places=_places((segment.units, segment.target) for segment in plan.segments),
            mean_regret=sum(cell.weight * cell.regret for cell in own) / weight
            if weight
            else sum(cell.regret for cell in own) / len(own),
            worst_regret=max(cell.regret for cell in own),
        )


# ---- the measurements ----------------------------------------------------------------------------


def _measurements(
    fleets: Sequence[Fleet], store: CostStore, listener: Listener
) -> tuple[list[Faults], list[Day]]:
    """What drivers did, and when what was measured, on each phone; of these models alone."""
    own = {unit.signature for fleet in fleets for unit in fleet.model.graph.units}
    phones = {
        phone.fingerprint: (phone.name, costs.conditions)
        for fleet in fleets
        for phone, costs in zip(fleet.phones, fleet.costs, strict=True)
        if phone.fingerprint
    }
    faults: list[Faults] = []
    days: list[Day] = []
    for done, (fingerprint, (name, conditions)) in enumerate(phones.items()):
        listener.progress(Progress("reading the history", done, len(phones), name))
        rows = [
            row
            for row in store.select(Selection((fingerprint,), conditions=conditions))
            if own.issuperset(row.members)
        ]
        faults += _faults(name, rows)
        days += _days(name, sorted(rows, key=lambda row: row.measured_at))
    return faults, days


def _faults(phone: str, rows: Iterable[Measurement]) -> Iterator[Faults]:
    drivers: dict[tuple[str, str], list[Measurement]] = {}
    for row in rows:
        if row.target.engine is Engine.NNAPI and row.status is not Status.REFUSED:
            place = row.target.accelerator or AUTO, row.driver_version
            drivers.setdefault(place, []).append(row)
    for (accelerator, driver), own in drivers.items():
        bad = [row for row in own if row.status is not Status.OK]
        if not bad:
            continue
        counts = Counter(row.status for row in bad)
        worst = next((row for row in bad if row.status is Status.CRASHED), bad[0])
        yield Faults(
            phone=phone,
            accelerator=accelerator,
            driver=driver,
            crashed=counts[Status.CRASHED],
            late=counts[Status.TIMEOUT],
            failed=counts[Status.FAILED],
            measured=len(own),
            example=": ".join(filter(None, (worst.label, worst.message))),
        )


def _days(phone: str, rows: Iterable[Measurement]) -> Iterator[Day]:
    """``rows`` in the order in which they were measured."""
    by_date: dict[str, list[Measurement]] = {}
    for row in rows:
        by_date.setdefault(row.measured_at[:10], []).append(row)
    before: dict[tuple[str, str, Conditions], float] = {}
    for date, own in by_date.items():
        ratios, now = [], {}
        for row in own:
            if row.usable:
                same = (row.signature, row.target.key, row.conditions)
                now[same] = row.summary.median_ns
                if before.get(same):
                    ratios.append(now[same] / before[same])
        before |= now
        drivers = {
            f"{row.target.accelerator} {row.driver_version}"
            for row in own
            if row.target.accelerator not in (None, AUTO) and row.driver_version
        }
        yield Day(
            phone, date, len(own), len(ratios), median_ratio(ratios), ", ".join(sorted(drivers))
        )
