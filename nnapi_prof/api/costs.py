"""What a model's units cost on a device's targets: measured, read from a table, or estimated."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnapi_prof.api import notebook
from nnapi_prof.api import options as arguments
from nnapi_prof.api.devices import reached
from nnapi_prof.api.events import SILENT, Listener, Progress, to_log
from nnapi_prof.api.model import Model, loaded
from nnapi_prof.api.objective import AdjustedCosts, Objective, UnitCost, Weight
from nnapi_prof.api.program_costs import filled_costs, fitted_costs
from nnapi_prof.costs import default_location
from nnapi_prof.costs.conditions import Conditions
from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.costs.model.region import CostModel
from nnapi_prof.costs.model.views import left_at_trial, marginal, shown_targets
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.devices import find_one, measured
from nnapi_prof.costs.store.selection import Selection, instant
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol.results import AgentInfo, describe
from nnapi_prof.errors import UsageError
from nnapi_prof.execution.profile.cached_units import CachedUnits
from nnapi_prof.execution.profile.options import ProfileOptions, ProfileOutcome
from nnapi_prof.execution.profile.session import profile as measure_model
from nnapi_prof.graph.unit import UnitGraph
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
    device_info: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What the cost table knows of the device."""
    agent_info: AgentInfo | None = field(default=None, repr=False)
    """What the device said of itself, where it was asked."""
    outcome: ProfileOutcome | None = field(default=None, repr=False)
    """How much a profile measured, and the plan that it ended with."""
    notes: tuple[str, ...] = ()
    objective: Objective | None = None
    """Of :meth:`adjusted` costs: what they are in place of ns."""

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
            frugal = np_.partition(model, costs.adjusted(weight=watts, name="energy", unit="mJ"))

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
            f"Costs({self.model.name!r} on {self.device!r}, {units},"
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


def profile(
    model: Model | str | os.PathLike[str],
    device: str | None = None,
    *,
    costs: str | os.PathLike[str] | None = None,
    threads: int = 1,
    cpus: str = "big",
    mode: str = "sync",
    relaxed: bool = False,
    float16: bool = False,
    accelerators: Sequence[str] | None = None,
    refine: bool = USUAL.refine,
    every_preference: bool = False,
    fresh: bool = False,
    runs: int | None = None,
    rounds: int = USUAL.rounds,
    budget_ms: float = USUAL.budget_ms,
    warmup_ms: float = USUAL.warmup_ms,
    cooldown_s: float = USUAL.cooldown_s,
    memory_mb: int | None = None,
    timeout_s: float = USUAL.timeout_s,
    progress: Callable[[Progress], None] | None = None,
) -> Costs:
    """Measures a model's units and regions on a device, as ``nnapi-prof profile`` does.

    ``device`` is a serial, ``HOST:PORT``, ``local`` or ``sim:NAME``; None the only phone, else a
    simulated one. ``costs`` is the cost table, an SQLite file or a PostgreSQL URL; None
    ``$NNAPI_PROF_COSTS``, else a file in the user's data folder. What it has for this device and
    these conditions is not measured again, unless ``fresh``.

    The conditions: ``threads`` of the CPU engine; ``cpus`` is ``big``, ``all`` or a mask in hex;
    ``mode`` is ``sync``, ``burst`` or ``async``; ``relaxed`` lets NNAPI compute float32 as float16,
    ``float16`` gives it models in float16.

    ``accelerators`` limits to those names; ``refine`` measures the regions of the plan whole until
    it stands; ``every_preference`` measures every unit under all three. ``runs`` are recorded of
    each region at most, in ``rounds`` turns of the alternatives, for ``budget_ms`` ms, after up to
    ``warmup_ms`` ms. A hot phone is waited for ``cooldown_s`` s; ``memory_mb`` limits the process
    of a measurement, ``timeout_s`` (s) each of its steps. ``progress`` is called with a
    :class:`nnapi_prof.Progress` after each.

    Raises NnapiProfError: DeviceError where the device fails (what was measured is kept),
    UsageError, CostError. Ctrl-C raises KeyboardInterrupt; what was measured is kept, too.
    """
    arguments.repeats(runs, cooldown_s, memory_mb)
    arguments.number("rounds", rounds, 1, arguments.MOST_ROUNDS)
    arguments.number("warmup_ms", warmup_ms, 0)
    arguments.number("budget_ms", budget_ms, 0)
    arguments.number("timeout_s", timeout_s, 0.001)
    named = None if accelerators is None else arguments.names("accelerators", accelerators)
    options = ProfileOptions(
        warmup_ms=warmup_ms,
        rounds=rounds,
        max_runs=runs,
        budget_ms=budget_ms,
        cooldown_s=cooldown_s,
        memory_mb=memory_mb,
        timeout_s=timeout_s,
        fresh=fresh,
        conditions=arguments.conditions_of(threads, cpus, mode, relaxed, float16),
        accelerators=named,
        refine=refine,
        every_preference=every_preference,
    )
    listener = to_log(progress)
    chosen = loaded(model)
    with (
        CostStore(arguments.table(costs)) as store,
        reached(device, listener) as client,
    ):
        return profiled_costs(chosen, device or client.serial, client, store, options, listener)


def profiled_costs(
    model: Model,
    device_spec: str,
    client: AgentClient,
    store: CostStore,
    options: ProfileOptions,
    listener: Listener,
) -> Costs:
    """:func:`profile` where device and table are open; ``device_spec`` is what names the device."""
    profiled = profile_on(model.outline, client, store, options, listener)
    outcome = profiled.outcome
    if outcome.interrupted or outcome.costs is None:
        rows_kept = f"{outcome.n_measured} measurements are kept in {profiled.location}"
        listener.note(f"interrupted: {rows_kept}; the same call goes on from there")
        raise KeyboardInterrupt(rows_kept)
    return Costs(
        model=model,
        device=profiled.device,
        conditions=options.conditions,
        priced=outcome.costs,
        device_spec=device_spec,
        fingerprint=outcome.fingerprint,
        location=profiled.location,
        measurements=tuple(store.measurements(outcome.fingerprint, conditions=options.conditions)),
        device_info=_device_info(store, outcome.fingerprint),
        agent_info=outcome.info,
        outcome=outcome,
        notes=model.notes,
    )


def read_costs(
    model: Model | str | os.PathLike[str],
    costs: str | os.PathLike[str] | None = None,
    device: str | None = None,
    *,
    threads: int = 1,
    cpus: str = "big",
    mode: str = "sync",
    relaxed: bool = False,
    float16: bool = False,
    fill: bool = False,
    until: str | None = None,
) -> Costs:
    """Reads what was measured of a model's units from a cost table; no device is needed.

    ``costs`` is that of :func:`profile`. ``device`` is a device of the table: its fingerprint, the
    beginning of it, or its name as `nnapi-prof costs list` shows it, with * and ?; None where there
    is only one. The conditions ``threads``, ``cpus``, ``mode``, ``relaxed`` and ``float16`` are
    those that it was measured under. ``fill`` estimates units that were never measured from what
    else was measured on the device. ``until``, a date or time in UTC, leaves out what was measured
    later.

    Raises CostError where the model was not measured there, UsageError where the table or the
    device is not found.
    """
    chosen = loaded(model)
    conditions = arguments.conditions_of(threads, cpus, mode, relaxed, float16)
    where = arguments.table(costs) or default_location()
    if "://" not in where and not Path(where).expanduser().exists():
        raise UsageError(f"cost table {where} does not exist: profile() makes one")
    with CostStore(where) as store:
        devices = measured(store)
        row = find_one(devices, device if device is not None else "*")
        selection = Selection(
            (row.fingerprint,), conditions=conditions, until=_until(until), newest=True
        )
        rows = store.select(selection)
        notes: tuple[str, ...] = chosen.notes
        priced: CostModel
        if fill:
            priced, note = filled_costs(chosen.program, store, row.fingerprint, conditions)
            notes = (*notes, note) if note else notes
        else:
            priced = fitted_costs(chosen.graph, rows, conditions)
        return Costs(
            model=chosen,
            device=row.name,
            conditions=conditions,
            priced=priced,
            fingerprint=row.fingerprint,
            location=str(store.location),
            measurements=tuple(rows),
            device_info=_device_info(store, row.fingerprint),
            notes=notes,
        )


def _until(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return instant(text, end=True)
    except ValueError as error:
        raise UsageError(
            f"until {text!r} is no date: write 2026-01-31 or 2026-01-31T12:30"
        ) from error


def _device_info(store: CostStore, fingerprint: str) -> Mapping[str, Any]:
    descriptions = {row.fingerprint: row.description for row in store.devices()}
    return descriptions.get(fingerprint, {})


@dataclass(frozen=True)
class Profiled:
    """What a profile measured, of what, and where it is kept."""

    model: str
    """Its name, for people."""
    units: UnitGraph
    device: str
    """For people: ``Pixel 6 (...)``."""
    location: str
    """The cost table: a file's path, or a URL without its password."""
    outcome: ProfileOutcome


def profile_file(
    model: Path,
    inputs: Sequence[str] = (),
    *,
    device: str | None = None,
    costs: str | None = None,
    options: ProfileOptions | None = None,
    listener: Listener = SILENT,
) -> Profiled:
    """``nnapi-prof profile``: measures a model's units and regions into the cost table.

    ``inputs``, ``device`` and ``costs`` are what ``--input``, ``--device`` and ``--costs`` take.
    Ctrl-C ends it with an outcome marked ``interrupted``; what was measured is in the table.

    Raises NnapiProfError: of the model, the device or the table.
    """
    from nnapi_prof.api.model import outline_of

    units = outline_of(model, inputs, listener)
    listener.notes(*units.notes)  # of a model that is remembered, too
    with CostStore(costs) as store, reached(device, listener) as client:
        return profile_on(units, client, store, options, listener)


def profile_on(
    model: CachedUnits,
    client: AgentClient,
    store: CostStore,
    options: ProfileOptions | None = None,
    listener: Listener = SILENT,
) -> Profiled:
    """:func:`profile_file` where model, device and table are open already."""
    described = describe(client.info())
    listener.busy(f"{model.name} on {described}")
    outcome = measure_model(model, client, store, options, listener.progress)
    return Profiled(model.name, model.units, described, str(store.location), outcome)
