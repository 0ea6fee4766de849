"""Reads a model's units from a cost table."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nnapi_prof.api import options as arguments
from nnapi_prof.api.calibration import Calibration, CalibrationOptions, calibrate_model
from nnapi_prof.api.events import SILENT, Listener
from nnapi_prof.api.model import Model, as_model
from nnapi_prof.api.program_costs import filled_costs, fitted_costs
from nnapi_prof.costs import existing
from nnapi_prof.costs.conditions import ConditionOptions, Conditions
from nnapi_prof.costs.contention import corun_rows
from nnapi_prof.costs.measurement import Kind, Measurement
from nnapi_prof.costs.model.precision import PrecisionCosts
from nnapi_prof.costs.model.region import CostModel
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.devices import find_one, named
from nnapi_prof.costs.store.selection import Selection, stated_instant
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol.description import describe, description_of, device_fingerprint
from nnapi_prof.errors import CostError, UsageError, option_name
from nnapi_prof.execution.profile.threads import ThreadTrial, read_trial
from nnapi_prof.graph.plan import CPU, Precision
from nnapi_prof.options import into, moved

if TYPE_CHECKING:
    from nnapi_prof.device.protocol.results import AgentInfo
    from nnapi_prof.precision.samples import Source


from nnapi_prof.api.costs import Costs

USUAL = Conditions()


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


def note_other_agent(store: CostStore, info: AgentInfo, listener: Listener) -> None:
    """Tell that costs of this device in the table are another agent's, if that is so.

    They stay apart from those of the agent at hand (:attr:`.AgentInfo.cost_version`). With
    XNNPACK, a host's emulator has one accelerator more and therefore another fingerprint, so
    accelerators are not compared.
    """

    def comparable(description: Mapping[str, Any]) -> dict[str, Any]:
        return {name: fact for name, fact in description.items() if name != "accelerators"}

    device = comparable(description_of(info))
    same = [
        row.fingerprint
        for row in store.devices()
        if row.simulated == info.simulated and comparable(row.description) == device
    ]
    agents = set[str]().union(*(store.agent_versions(each, CPU.key) for each in same))
    if agents and info.cost_version not in agents:
        listener.note(
            f"the agent is {info.cost_version}: what {', '.join(sorted(agents))} measured on this "
            "device stays in the table and is measured again"
        )


@moved(**into("conditions", ConditionOptions))
def read_costs(
    model: Model | str | os.PathLike[str],
    costs: str | os.PathLike[str] | CostStore | None = None,
    device: str | AgentClient | None = None,
    *,
    conditions: ConditionOptions | Conditions | None = None,
    fill: bool = False,
    until: str | None = None,
    precisions: Sequence[str] | None = None,
    calibration: Source | None = None,
    samples: int | None = None,
    listener: Listener = SILENT,
) -> Costs:
    """Reads what was measured of a model's units from a cost table; no device is needed.

    ``costs`` is that of :func:`.profile`, or a table that is open already. ``device`` is a device
    of the table: its fingerprint, the beginning of it, or its name as `nnapi-prof costs list` shows
    it, with * and ?; None where there is only one; or a device that is open. The ``conditions`` are
    those that it was measured under; ``threads="auto"`` is the number that :func:`.profile` chose
    by a trial, without one the only number that the model was measured with. ``fill`` estimates
    units that were never measured from what else was measured on the device. ``until``, a date or
    time in UTC, leaves out what was measured later. ``precisions``, ``calibration`` and ``samples``
    are those of :func:`.profile`, and need a device that is open. A ``listener`` hears notes.

    Raises CostError where the model was not measured there, UsageError where the table or the
    device is not found.
    """
    chosen = as_model(model)
    asked = ConditionOptions.of(conditions)
    conditions = asked.conditions
    chosen_precisions = arguments.precisions_of(precisions, conditions)
    until = None if until is None else stated_instant("until", until, end=True)
    with open_table(costs, to_read=True) as store:
        if isinstance(device, AgentClient):
            fingerprint, name = device_fingerprint(device.info()), describe(device.info())
        else:
            row = find_one(named(store), "*" if device is None else device)
            fingerprint, name = row.fingerprint, row.name
        trial = None
        if asked.by_trial:
            trial = read_trial(chosen.graph, store, fingerprint, conditions)
            n = measured_threads(chosen, store, fingerprint, conditions, trial, fill=fill)
            conditions = replace(conditions, threads=n)
        rows = store.select(
            Selection((fingerprint,), conditions=conditions, until=until, newest=True)
        )
        if not asked.by_trial or chosen_precisions is not None:
            rows = [row for row in rows if not row.target.has_one_thread]
        notes: tuple[str, ...] = chosen.notes
        priced: CostModel | PrecisionCosts
        calibrated = None
        if chosen_precisions is not None:
            if not isinstance(device, AgentClient):
                raise UsageError(
                    "costs in several precisions are calibrated for a device",
                    "pass one that is open",
                )
            data = CalibrationOptions(calibration, samples)
            calibrated = calibrate_model(chosen, device.info(), chosen_precisions, data, listener)
            priced = _read_precisions(
                chosen, calibrated, store, fingerprint, conditions, chosen_precisions
            )
        elif fill:
            priced, note = filled_costs(chosen.program, rows, fingerprint)
            notes = (*notes, note) if note else notes
        else:
            priced = fitted_costs(chosen.graph, rows, conditions, asked.by_trial)
        return Costs(
            model=chosen,
            device=name,
            conditions=conditions,
            priced=priced,
            device_spec=device.serial if isinstance(device, AgentClient) else None,
            fingerprint=fingerprint,
            location=str(store.location),
            measurements=tuple(rows),
            corun_rows=corun_rows(store, fingerprint, conditions),
            device_info=device_info(store, fingerprint),
            agent_info=device.info() if isinstance(device, AgentClient) else None,
            thread_trial=trial,
            notes=notes,
            calibration=calibrated,
        )


def measured_threads(
    model: Model,
    store: CostStore,
    fingerprint: str,
    conditions: Conditions,
    trial: ThreadTrial | None,
    *,
    fill: bool = False,
) -> int:
    """The number of threads that a model was measured with on a device.

    That is the number of its ``trial``; without one the only number that all its units were
    measured with, else the one that most were, and with ``fill``, where none was, the one that most
    units of other models were. One where nothing was measured. Raises CostError where the whole
    model was measured with several.
    """
    if trial is not None:
        return trial.threads
    signatures = {unit.signature for unit in model.graph.units}
    units, others = Counter[int](), Counter[int]()
    for row in cpu_rows(store, fingerprint, conditions):
        (units if row.signature in signatures else others)[row.threads] += 1
    complete = sorted(n for n in units if units[n] == len(signatures))
    if len(complete) > 1:
        raise CostError(
            f"the model was measured with {' and '.join(map(str, complete))} threads and no trial"
            f" chose between them: state one of them ({option_name('threads')})"
        )
    rows_of = units if units or not fill else others
    return max(rows_of, key=lambda n: (rows_of[n], -n), default=conditions.threads)


def cpu_rows(store: CostStore, fingerprint: str, conditions: Conditions) -> list[Measurement]:
    """The newest rows of the CPU under these conditions, with whatever number of threads, without
    those of trials."""
    own = replace(conditions.on(CPU), threads=0)
    rows = store.select(Selection((fingerprint,), targets=(CPU.key,), newest=True))
    return [
        row
        for row in rows
        if row.kind is not Kind.THREADS and replace(row.conditions, threads=0) == own
    ]


def _read_precisions(
    model: Model,
    calibration: Calibration,
    store: CostStore,
    fingerprint: str,
    conditions: Conditions,
    precisions: Sequence[Precision],
) -> PrecisionCosts:
    from nnapi_prof.execution.profile.precision_sessions import read_precision_costs

    rows: dict[Precision, Sequence[Measurement]] = {
        precision: store.select(
            Selection(
                (fingerprint,), conditions=replace(conditions, precision=precision), newest=True
            )
        )
        for precision in precisions
        if precision is not Precision.INT8
    }
    return read_precision_costs(model.program, calibration.recipe, rows)


def device_info(store: CostStore, fingerprint: str) -> Mapping[str, Any]:
    """Returns a table's description of a device."""
    descriptions = {row.fingerprint: row.description for row in store.devices()}
    return descriptions.get(fingerprint, {})
