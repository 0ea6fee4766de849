"""The step ``report``: a bundle, its last run and the costs behind it, as data."""

from __future__ import annotations

from pathlib import Path

from nnapi_prof.api.steps_run import last_run
from nnapi_prof.bundle.bundle import Bundle
from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.costs.region import fit
from nnapi_prof.costs.selection import Selection
from nnapi_prof.costs.store import CostStore
from nnapi_prof.reports.data import ReportData
from nnapi_prof.run.result import RunReport


def report_data(bundle: Path, costs: str | None = None, *, until: str | None = None) -> ReportData:
    """All that a report of a bundle shows, with its last run where it was run.

    ``costs`` is what ``--costs`` takes. ``until``, a time in UTC as the table has it
    (:func:`nnapi_prof.costs.selection.instant`), leaves out what was measured later: the same plan
    under the costs of that day.

    Raises UsageError where there is no bundle, SerializationError where it or its run is damaged,
    CostError where the table cannot be read or lacks the model.
    """
    loaded = read_bundle(bundle)
    run = last_run(bundle)
    with CostStore(costs) as store:
        return data_of(loaded, run, store, until=until)


def data_of(
    bundle: Bundle, run: RunReport | None, store: CostStore, *, until: str | None = None
) -> ReportData:
    """:func:`report_data` of a bundle in memory and its run, None where there was none."""
    rows = store.select(
        Selection((bundle.fingerprint,), conditions=bundle.conditions, until=until, newest=True)
    )
    known = {row.fingerprint: row.description for row in store.devices()}
    return ReportData(
        model=bundle.model,
        graph=bundle.graph,
        cost_model=fit(bundle.graph, rows),
        measurements=tuple(rows),
        plan=bundle.plan,
        baselines=bundle.plans[1:],
        run=run,
        device_info=known.get(bundle.fingerprint, {}),
        notes=bundle.notes,
        permutes={plan.name: bundle.permutes(plan) for plan in bundle.plans},
    )
