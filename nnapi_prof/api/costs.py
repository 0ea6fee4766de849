"""What a model's units cost on a device's targets: measured, read from a table, or estimated."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nnapi_prof.api import notebook
from nnapi_prof.api import options as arguments
from nnapi_prof.api.calibration import Calibration, CalibrationOptions, calibrate_model
from nnapi_prof.api.devices import reached
from nnapi_prof.api.events import SILENT, Listener, Progress, to_log
from nnapi_prof.api.model import Model, loaded
from nnapi_prof.api.objective import AdjustedCosts, Objective, UnitCost, Weight
from nnapi_prof.api.program_costs import filled_costs, fitted_costs
from nnapi_prof.costs import existing
from nnapi_prof.costs.conditions import Conditions
from nnapi_prof.costs.contention import Slowdowns, beside_rows, slowdowns
from nnapi_prof.costs.measurement import Measurement, Statistic, read_by
from nnapi_prof.costs.model.precision import PrecisionCosts
from nnapi_prof.costs.model.region import CostModel
from nnapi_prof.costs.model.views import left_at_trial, marginal, shown_targets
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.devices import find_one, named
from nnapi_prof.costs.store.selection import Selection, stated_instant
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol.description import describe, device_fingerprint, device_name
from nnapi_prof.device.protocol.results import AgentInfo
from nnapi_prof.errors import UsageError
from nnapi_prof.execution.profile.options import (
    MOST_BESIDE_S,
    ProfileOptions,
    ProfileOutcome,
)
from nnapi_prof.execution.profile.session import profile as measure_model
from nnapi_prof.graph.plan import Precision
from nnapi_prof.partition import Costs as PricedUnits
from nnapi_prof.reports.words import (
    MARGINAL_MARKS,
    count,
    marginal_words,
    target_heads,
    trial_words,
)

if TYPE_CHECKING:
    import pandas as pd

    from nnapi_prof.precision.samples import Source


USUAL = ProfileOptions()
MANY_UNITS = 20
"""A notebook's table has the slowest of more."""


@dataclass(frozen=True)
class Costs:
    """What each unit of a model costs on each target of a device, and what a region of units does.

    :func:`nnapi_prof.profile` measures them, :func:`nnapi_prof.read_costs` reads them from a cost
    table, :func:`nnapi_prof.estimate` estimates them. :func:`nnapi_prof.partition` takes them.
    """

    model: Model
    device: str
    """The device for people: ``npu-phone (simulated phone, ...)``."""
    conditions: Conditions
    """Under which they hold."""
    priced: PricedUnits = field(repr=False)
    """What the partitioner asks: times in ns."""
    estimated: bool = False
    """Nothing of them was measured."""
    device_spec: str | None = None
    """What ``device=`` takes for this device; None where none was asked."""
    fingerprint: str | None = None
    """The device in cost tables."""
    location: str | None = None
    """The cost table: a file's path or a URL without its password."""
    measurements: tuple[Measurement, ...] = field(default=(), repr=False)
    """The rows that they were fitted to, those of other models among them."""
    beside: tuple[Measurement, ...] = field(default=(), repr=False)
    """What ran side by side on the device, units of other models among them."""
    device_info: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What the cost table knows of the device."""
    agent_info: AgentInfo | None = field(default=None, repr=False)
    """What the device said of itself, where it was asked."""
    outcome: ProfileOutcome | None = field(default=None, repr=False)
    """How much a profile measured, and the plan that it ended with."""
    notes: tuple[str, ...] = ()
    objective: Objective | None = None
    """Of :meth:`adjusted` costs: what they are in place of ns."""
    calibration: Calibration | None = field(default=None, repr=False)
    """Of costs in several precisions: what 8 bits were fitted to, and errors are measured on."""
    statistic: Statistic = Statistic.MEDIAN
    """What they are of the runs of each measurement."""

    @property
    def simulated(self) -> bool:
        """The phone is simulated: these latencies are computed, not measured on hardware."""
        return self.priced.simulated

    @property
    def targets(self) -> tuple[str, ...]:
        """Where units can run: ``cpu``, ``nnapi:ACCELERATOR/PREFERENCE``, ``host``."""
        return tuple(target.key for target in self.priced.targets)

    @property
    def as_they_are(self) -> PricedUnits:
        """In ns, also of :meth:`adjusted` costs."""
        return self.priced.base if isinstance(self.priced, AdjustedCosts) else self.priced

    @property
    def measured(self) -> CostModel | None:
        """The fitted cost model; None where they are estimated, or of one's own making."""
        priced = self.as_they_are
        return priced if isinstance(priced, CostModel) else None

    @cached_property
    def contention(self) -> Slowdowns:
        """How many times as long each processor takes while another one is busy, with this model's
        mix of operations: measured where ``profile(beside=True)`` was asked, else assumed."""
        return slowdowns(self.model.graph, self.as_they_are, self.beside)

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """Those that regions may compute in; float32 alone (or what the conditions say in its
        place), where no others were asked for."""
        priced = self.as_they_are
        if isinstance(priced, PrecisionCosts):
            return priced.precisions
        return (self.conditions.precision,)

    def adjusted(
        self,
        cost: UnitCost | None = None,
        *,
        weight: Weight | None = None,
        name: str = "adjusted latency",
        unit: str = "ms",
    ) -> Costs:
        """Costs of one's own over these, for another objective than latency.

        ``cost(unit, target, ns)`` says what a unit (``unit.label``, ``unit.macs``, ...) is to cost
        on a target that would run it in ``ns``; None keeps it off. ``weight`` is a factor for all
        that happens on a target: a function of the target, or a mapping from patterns of target
        names (1 for what fits none). A region measured whole keeps what it took, plus what
        ``cost`` changes of its units, times the weight. The plan is as exact as for latency.

            watts = {"cpu": 2.5, "nnapi:sim-npu/*": 0.9}
            frugal = nnp.partition(model, costs.adjusted(weight=watts, name="energy", unit="mJ"))

        ``unit`` is that of ms x weight, and ``name`` what is made least, for people. Raises
        UsageError where either says what is no number from 0 on, or a pattern fits no target.
        """
        objective = Objective(name, unit)
        base = self.as_they_are
        if self.objective is not None:
            raise UsageError(
                f"these costs were adjusted to {self.objective} already: adjust those that they"
                " were made from"
            )
        changed = AdjustedCosts(base, self.model.graph, cost, weight)
        _ = changed.refusals, [changed.factor(target) for target in base.targets]  # what raises
        return replace(self, priced=changed, objective=objective)

    def frame(self) -> pd.DataFrame:
        """One row for each unit and target.

        ``unit`` (its number), ``name``, ``label``, ``target``, ``accelerator`` (``cpu`` and
        ``host`` are ones here), ``marginal_ms`` (within a region, without invocation and transfer;
        NaN where it cannot run there), ``sigma_ms`` (its standard error, 0 where none is known),
        ``inferred`` (it was measured under another preference only), ``alone_ms`` (measured alone,
        invocation and transfer included; NaN where it was not), ``reason`` (why it cannot run
        there) and, of adjusted costs, ``objective`` in their own unit.
        """
        import pandas as pd

        priced, rows = self.as_they_are, []
        for unit in self.model.graph.units:
            for target in priced.targets:
                alone = priced.region_cost((unit.index,), target)
                cost = marginal(priced, self.model.graph, unit.index, target)
                row = {
                    "unit": unit.index,
                    "name": unit.name,
                    "label": unit.label,
                    "target": target.key,
                    "accelerator": target.accelerator or target.key,
                    "marginal_ms": _in_ms(cost.ns if cost else None),
                    "sigma_ms": _in_ms(cost.sigma_ns if cost else None),
                    "inferred": cost is not None and cost.inferred,
                    "alone_ms": _in_ms(alone.ns if alone and alone.measured else None),
                    "reason": priced.refusals.get((unit.index, target), ""),
                }
                if self.objective is not None:
                    row["objective"] = _in_ms(self.priced.unit_cost(unit.index, target))
                rows.append(row)
        return pd.DataFrame(rows)

    def units(self) -> pd.DataFrame:
        """One row for each unit, a column for each accelerator: its marginal cost in ms under the
        preference under which most was measured, NaN where it cannot run there.

        A cost may be rough, or 0 where it cannot be told from that: :meth:`frame` has standard
        errors, and the table that these costs show in a notebook marks them.
        """
        import pandas as pd

        shown = shown_targets(self.as_they_are, self.model.graph)
        rows = []
        for unit in self.model.graph.units:
            cells = {
                name: _in_ms(self.as_they_are.unit_cost(unit.index, target))
                for name, target in shown.items()
            }
            rows.append({"unit": unit.index, "name": unit.name, "label": unit.label, **cells})
        return pd.DataFrame(rows)

    def refusals(self) -> pd.DataFrame:
        """One row for each unit and target that cannot run it: ``unit``, ``label``, ``target``,
        ``reason``."""
        import pandas as pd

        units = self.model.graph.units
        rows = [
            {"unit": unit, "label": units[unit].label, "target": target.key, "reason": reason}
            for (unit, target), reason in sorted(self.priced.refusals.items())
        ]
        return pd.DataFrame(rows, columns=["unit", "label", "target", "reason"])

    def rows(self) -> pd.DataFrame:
        """One row for each measurement behind these costs, samples summarised; times in ms."""
        from nnapi_prof.reports.frames import measurement_frame

        own = {unit.signature for unit in self.model.graph.units}
        return measurement_frame(m for m in self.measurements if own.issuperset(m.members))

    def __repr__(self) -> str:
        kind = notebook.kind_of(self.simulated, self.estimated)
        what = f", adjusted to {self.objective}" if self.objective else ""
        units = count(len(self.model.graph.units), "unit")
        return (
            f"Costs({self.model.name!r} on {device_name(self.device)!r}, {units},"
            f" {len(self.targets)} targets, {kind}{what})"
        )

    def _repr_html_(self) -> str:
        graph = self.model.graph
        units = graph.units
        shown = shown_targets(self.as_they_are, graph).values()
        heads = target_heads(shown)
        by_unit = {
            unit.index: [marginal(self.as_they_are, graph, unit.index, t) for t in shown]
            for unit in units
        }
        slowest = sorted(by_unit, key=lambda u: -max((c.ns if c else 0.0) for c in by_unit[u]))
        rows = [
            [units[u].label, *(marginal_words(cost, notebook.ms) for cost in by_unit[u])]
            for u in slowest[:MANY_UNITS]
        ]
        kind = notebook.kind_of(self.simulated, self.estimated)
        left_out = len(units) - len(rows)
        told = [*self.notes, *([f"adjusted to {self.objective}"] if self.objective else [])]
        return notebook.table(
            f"{self.model.name} on {self.device}: marginal latency in {kind}",
            ["unit", *heads],
            rows,
            numbers=range(1, len(heads) + 1),
            rest=f"Slowest units first; {MARGINAL_MARKS}; – cannot run there"
            + f"{trial_words(left_at_trial(self.as_they_are))}."
            + (f" {left_out} more units: frame() has all." if left_out else ""),
        ) + notebook.notes(told)


def _in_ms(ns: float | None) -> float:
    return float("nan") if ns is None else ns / 1e6


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while :func:`profile` measured; what was measured until then is in the cost table."""

    def __init__(self, device: str, location: str, outcome: ProfileOutcome) -> None:
        super().__init__(
            f"{outcome.n_measured} measurements are kept in {location}; the same call goes on from"
            " there"
        )
        self.device = device
        """For people, as :attr:`Costs.device`."""
        self.location = location
        """The cost table, as :attr:`Costs.location`."""
        self.outcome = outcome
        """How much was measured, and the plan of the last round."""


def profile(
    model: Model | str | os.PathLike[str],
    device: str | AgentClient | None = None,
    *,
    costs: str | os.PathLike[str] | CostStore | None = None,
    threads: int = USUAL.conditions.threads,
    cpus: str = USUAL.conditions.cpus,
    mode: str = USUAL.conditions.mode.value,
    relaxed: bool = False,
    float16: bool = False,
    sustained: int = USUAL.conditions.sustained_s,
    accelerators: Sequence[str] | None = None,
    preferences: Sequence[str] | None = None,
    refine: bool = USUAL.refine,
    every_preference: bool = False,
    beside: bool = False,
    beside_s: float = USUAL.beside_s,
    fresh: bool = False,
    runs: int | None = None,
    rounds: int = USUAL.rounds,
    budget_ms: float = USUAL.budget_ms,
    warmup_ms: float = USUAL.warmup_ms,
    cooldown_s: float = USUAL.cooldown_s,
    max_temp_c: float | None = USUAL.gates.max_temp_c,
    min_battery: int | None = USUAL.gates.min_battery,
    max_load: int | None = USUAL.gates.max_load,
    wait_s: float = USUAL.gates.wait_s,
    anchor_s: float | None = USUAL.gates.anchor_s,
    memory_mb: int | None = None,
    timeout_s: float = USUAL.timeout_s,
    precisions: Sequence[str] | None = None,
    calibration: Source | None = None,
    transform: str | Callable[[Any], Any] | None = None,
    samples: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    listener: Listener | None = None,
) -> Costs:
    """Measures a model's units and regions on a device, as ``nnapi-prof profile`` does.

    ``device`` is a serial, ``HOST:PORT``, ``local`` or ``sim:NAME``; None the only phone, else a
    simulated one; or one that is open already. ``costs`` is the cost table, an SQLite file, a
    PostgreSQL URL or a table that is open; None ``$NNAPI_PROF_COSTS``, else a file in the user's
    data folder. What it has for this device and these conditions is not measured again, unless
    ``fresh``.

    The conditions: ``threads`` of the CPU engine; ``cpus`` is ``big``, ``all`` or a mask in hex;
    ``mode`` is ``sync``, ``burst`` or ``async``; ``relaxed`` lets NNAPI compute float32 as float16,
    ``float16`` gives it models in float16; with ``sustained`` its processors are kept busy for so
    many seconds first.

    ``accelerators`` and ``preferences`` (``low_power``, ``fast``, ``sustained``) limit to those
    names; ``refine`` measures the regions of the plan whole until it stands; ``every_preference``
    measures every unit under all three. ``beside`` measures how CPU and accelerators slow each
    other down, too (:attr:`Costs.contention`), ``beside_s`` that with both busy for so many
    seconds. ``runs`` are recorded of each region at most, in ``rounds``
    turns of the alternatives, for ``budget_ms`` ms, after up to ``warmup_ms`` ms. A hot phone is
    waited for ``cooldown_s`` s; ``memory_mb`` limits the process of a measurement, ``timeout_s``
    (s) each of its steps. Before measurements the device is waited for, ``wait_s`` s at most, until
    its skin has ``max_temp_c`` degrees Celsius at most, its battery ``min_battery`` percent or a
    charger, and others keep ``max_load`` percent of its CPUs busy at most; every ``anchor_s`` s
    (None: 120 on a phone, 0, which is never, elsewhere) a reference model shows whether it drifts:
    what was measured then is marked, and measured again. ``progress`` is called with a
    :class:`nnapi_prof.Progress` after each; a ``listener`` hears notes, too, in place of it.

    ``precisions`` (``float32``, ``relaxed``, ``float16``, ``int8``) measures a float model in each,
    for :func:`nnapi_prof.pareto` and for plans within an ``accuracy_budget``; float32 is always
    among them. For 8 bits the model is calibrated with ``calibration``: a ``.pt``, ``.npz`` or
    ``.npy``, a folder of these or (with ``transform``, a function or ``"module:function"``) of
    images, a ``"module:function"``, or any iterable or DataLoader; of at most ``samples`` (None:
    128) a quarter is held out. None takes the inputs bundled with the model, else random ones.

    Raises NnapiProfError: DeviceError where the device fails (what was measured is kept),
    UsageError, CostError. Ctrl-C raises :class:`nnapi_prof.api.costs.Interrupted`, a
    KeyboardInterrupt; what was measured is kept, too.
    """
    arguments.repeats(runs, cooldown_s, memory_mb)
    arguments.number("rounds", rounds, 1, arguments.MOST_ROUNDS)
    arguments.number("beside_s", beside_s, 0, MOST_BESIDE_S)
    arguments.number("warmup_ms", warmup_ms, 0)
    arguments.number("budget_ms", budget_ms, 0)
    arguments.number("timeout_s", timeout_s, 0.001)
    named = None if accelerators is None else arguments.names("accelerators", accelerators)
    chosen_precisions = arguments.precisions_of(precisions, relaxed, float16)
    options = ProfileOptions(
        warmup_ms=warmup_ms,
        rounds=rounds,
        max_runs=runs,
        budget_ms=budget_ms,
        cooldown_s=cooldown_s,
        memory_mb=memory_mb,
        timeout_s=timeout_s,
        fresh=fresh,
        conditions=arguments.conditions_of(threads, cpus, mode, relaxed, float16, sustained),
        preferences=arguments.preferences_of(preferences),
        accelerators=named,
        refine=refine,
        every_preference=every_preference,
        beside=beside or beside_s > 0,
        beside_s=beside_s,
        gates=arguments.gates_of(max_temp_c, min_battery, max_load, wait_s, anchor_s),
    )
    listener = listener or to_log(progress)
    chosen = loaded(model)
    data = CalibrationOptions(calibration, transform, samples)
    with open_table(costs) as store, reached(device, listener) as client:
        if chosen_precisions is None:
            return profile_on(chosen, client, store, options, listener)
        return _profile_precisions(
            chosen, client, store, options, listener, chosen_precisions, data
        )


def profile_on(
    model: Model,
    client: AgentClient,
    store: CostStore,
    options: ProfileOptions,
    listener: Listener,
) -> Costs:
    """:func:`profile` where device and table are open already."""
    device, location = describe(client.info()), str(store.location)
    listener.busy(f"{model.name} on {device}")
    outcome = measure_model(model.outline, client, store, options, listener.progress)
    if outcome.interrupted or outcome.costs is None:
        raise Interrupted(device, location, outcome)
    return Costs(
        model=model,
        device=device,
        conditions=options.conditions,
        priced=outcome.costs,
        device_spec=client.serial,
        fingerprint=outcome.fingerprint,
        location=location,
        measurements=tuple(store.measurements(outcome.fingerprint, conditions=options.conditions)),
        beside=beside_rows(store, outcome.fingerprint, options.conditions),
        device_info=_device_info(store, outcome.fingerprint),
        agent_info=outcome.info,
        outcome=outcome,
        notes=model.notes,
    )


def _profile_precisions(
    model: Model,
    client: AgentClient,
    store: CostStore,
    options: ProfileOptions,
    listener: Listener,
    precisions: tuple[Precision, ...],
    data: CalibrationOptions,
) -> Costs:
    """:func:`profile_on` in several precisions."""
    from nnapi_prof.execution.profile.precisions import profile_precisions

    device, location = describe(client.info()), str(store.location)
    calibration = calibrate_model(model, client.info(), precisions, data, listener)
    listener.busy(f"{model.name} on {device}")
    profiled = profile_precisions(
        model.program,
        client,
        store,
        options,
        listener.progress,
        precisions=precisions,
        recipe=calibration.recipe,
    )
    outcome = profiled.total
    if outcome.interrupted or profiled.costs is None:
        raise Interrupted(device, location, outcome)
    return Costs(
        model=model,
        device=device,
        conditions=options.conditions,
        priced=profiled.costs,
        device_spec=client.serial,
        fingerprint=outcome.fingerprint,
        location=location,
        measurements=tuple(store.measurements(outcome.fingerprint, conditions=options.conditions)),
        beside=beside_rows(store, outcome.fingerprint, options.conditions),
        device_info=_device_info(store, outcome.fingerprint),
        agent_info=outcome.info,
        outcome=outcome,
        notes=model.notes,
        calibration=calibration,
    )


@contextmanager
def open_table(
    costs: str | os.PathLike[str] | CostStore | None, *, to_read: bool = False
) -> Iterator[CostStore]:
    """Opens what ``costs`` names for the time of a block; a table that is open already stays so.
    With ``to_read`` it is not made where it does not exist.

    Raises UsageError where it names nothing, CostError where that cannot be opened.
    """
    if isinstance(costs, CostStore):
        yield costs
        return
    where = arguments.table(costs)
    with CostStore(existing(where) if to_read else where) as store:
        yield store


def read_costs(
    model: Model | str | os.PathLike[str],
    costs: str | os.PathLike[str] | CostStore | None = None,
    device: str | AgentClient | None = None,
    *,
    threads: int = USUAL.conditions.threads,
    cpus: str = USUAL.conditions.cpus,
    mode: str = USUAL.conditions.mode.value,
    relaxed: bool = False,
    float16: bool = False,
    sustained: int = USUAL.conditions.sustained_s,
    fill: bool = False,
    until: str | None = None,
    statistic: str = Statistic.MEDIAN.value,
    precisions: Sequence[str] | None = None,
    calibration: Source | None = None,
    transform: str | Callable[[Any], Any] | None = None,
    samples: int | None = None,
    listener: Listener = SILENT,
) -> Costs:
    """Reads what was measured of a model's units from a cost table; no device is needed.

    ``costs`` is that of :func:`profile`, or a table that is open already. ``device`` is a device of
    the table: its fingerprint, the beginning of it, or its name as `nnapi-prof costs list` shows
    it, with * and ?; None where there is only one; or a device that is open. The conditions
    ``threads``, ``cpus``, ``mode``, ``relaxed``, ``float16`` and ``sustained`` are those that it
    was measured under. ``fill`` estimates units that were never measured from what else was
    measured on the device. ``until``, a date or time in UTC, leaves out what was measured later.
    ``statistic`` is what a latency is of its runs: ``median`` or ``p95``. ``precisions``,
    ``calibration``, ``transform`` and ``samples`` are those of :func:`profile`, and need a device
    that is open. A ``listener`` hears notes.

    Raises CostError where the model was not measured there, UsageError where the table or the
    device is not found.
    """
    chosen = loaded(model)
    conditions = arguments.conditions_of(threads, cpus, mode, relaxed, float16, sustained)
    chosen_precisions = arguments.precisions_of(precisions, relaxed, float16)
    until = None if until is None else stated_instant("until", until, end=True)
    latency = arguments.statistic_of(statistic)
    with open_table(costs, to_read=True) as store:
        if isinstance(device, AgentClient):
            fingerprint, name = device_fingerprint(device.info()), describe(device.info())
        else:
            row = find_one(named(store), "*" if device is None else device)
            fingerprint, name = row.fingerprint, row.name
        rows = store.select(
            Selection((fingerprint,), conditions=conditions, until=until, newest=True)
        )
        rows = read_by(rows, latency)
        notes: tuple[str, ...] = chosen.notes
        priced: CostModel | PrecisionCosts
        calibrated = None
        if chosen_precisions is not None:
            if not isinstance(device, AgentClient):
                raise UsageError(
                    "costs in several precisions are calibrated for a device: pass one that is open"
                )
            data = CalibrationOptions(calibration, transform, samples)
            calibrated = calibrate_model(chosen, device.info(), chosen_precisions, data, listener)
            priced = _read_precisions(
                chosen, calibrated, store, fingerprint, conditions, chosen_precisions, latency
            )
        elif fill:
            priced, note = filled_costs(chosen.program, rows, fingerprint)
            notes = (*notes, note) if note else notes
        else:
            priced = fitted_costs(chosen.graph, rows, conditions)
        return Costs(
            model=chosen,
            device=name,
            conditions=conditions,
            priced=priced,
            device_spec=device.serial if isinstance(device, AgentClient) else None,
            fingerprint=fingerprint,
            location=str(store.location),
            measurements=tuple(rows),
            beside=beside_rows(store, fingerprint, conditions),
            device_info=_device_info(store, fingerprint),
            agent_info=device.info() if isinstance(device, AgentClient) else None,
            notes=notes,
            calibration=calibrated,
            statistic=latency,
        )


def _read_precisions(
    model: Model,
    calibration: Calibration,
    store: CostStore,
    fingerprint: str,
    conditions: Conditions,
    precisions: Sequence[Precision],
    statistic: Statistic,
) -> PrecisionCosts:
    from nnapi_prof.execution.profile.forms import read_precision_costs

    rows: dict[Precision, Sequence[Measurement]] = {
        precision: read_by(
            store.select(
                Selection(
                    (fingerprint,), conditions=replace(conditions, precision=precision), newest=True
                )
            ),
            statistic,
        )
        for precision in precisions
        if precision is not Precision.INT8
    }
    return read_precision_costs(model.program, calibration.recipe, rows)


def _device_info(store: CostStore, fingerprint: str) -> Mapping[str, Any]:
    descriptions = {row.fingerprint: row.description for row in store.devices()}
    return descriptions.get(fingerprint, {})
