"""Keep what a profile has in its cost table: the last rows, what need not be measured again, and
the forms in which products of activations are cheapest.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

from nnapi_prof.costs.measurement import Key, Measurement
from nnapi_prof.costs.model.forms import (
    MARK,
    Forms,
    chosen_forms,
    place_of,
    region_signature_in,
    rows_in_forms,
    unit_forms,
)
from nnapi_prof.costs.model.quantised import EightBits
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.rows import utc_now
from nnapi_prof.execution.profile import ProfileOptions
from nnapi_prof.execution.profile.jobs import Job
from nnapi_prof.graph.plan import Target
from nnapi_prof.graph.unit import UnitGraph


@contextmanager
def defer_sigint() -> Iterator[None]:
    """Runs a block to its end before a Ctrl-C that comes meanwhile raises KeyboardInterrupt.

    For short blocks. Only Python's main thread gets interrupts; in others this does nothing, nor
    where somebody handles or ignores SIGINT in another way.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    came = False

    def note(_: int, __: FrameType | None) -> None:
        nonlocal came
        came = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt


class KnownRows:
    """The rows of one device in the store under a profile's conditions.

    With ``eight_bits`` the graph is its quantised one, and jobs, keys and rows are in terms of
    ``eight_bits.canonical_graph``; those in the store are in terms of the graph itself.
    """

    def __init__(
        self,
        graph: UnitGraph,
        store: CostStore,
        fingerprint: str,
        options: ProfileOptions,
        eight_bits: EightBits | None,
    ) -> None:
        self._graph = graph
        self._eight_bits = eight_bits
        self._store = store
        self._options = options
        rows = store.measurements(fingerprint, conditions=options.conditions)
        if eight_bits is not None:
            rows = eight_bits.shared_rows(rows)
        self.read = tuple(rows)
        """Those of earlier profiles, the oldest first."""
        self.rows: dict[tuple[str, Target], Measurement] = {
            (row.signature, row.target): row for row in rows
        }
        """The last row of each region and target."""
        self.have: set[Key] = set()
        """What need not be measured any more."""
        if not options.fresh:
            shared = eight_bits is not None
            own = (row.key for row in rows if row.conclusive(utc_now()))
            self.have = set(own) if shared else store.have(fingerprint)
        self._before = frozenset(self.have)
        self.forms: Forms = {}
        """Of products of activations, where they were chosen (:meth:`choose_forms`), ..."""
        self._chosen: set[str] = set()
        """... and where that was."""
        self.reused: set[Key] = set()
        """Asked for, and known before this run."""

    def note_reused(self, jobs: Iterable[Job]) -> None:
        self.reused.update(job.key for job in jobs if job.key in self._before)

    def _stored_key(self, job: Job) -> Key:
        """The key of a job's row in the store."""
        if self._eight_bits is not None:
            return job.key._replace(signature=self._eight_bits.matcher.signature(job.region))
        if job.forms is not None:
            return job.key
        forms, plain = self._formed(job).forms or (), job.key.signature
        signature = region_signature_in(self._graph, forms, job.region, plain)
        return job.key._replace(signature=signature)

    def _formed(self, job: Job) -> Job:
        """The job with the forms of its products that are chosen on its target."""
        if job.forms is not None or self._eight_bits is not None:
            return job
        return replace(job, forms=unit_forms(self.forms, job.region, job.spec.target))

    def choose_forms(self, places: Collection[str]) -> None:
        """Chooses the forms of products on these places (:func:`.place_of`) by what was measured
        of them so far; from then on jobs, rows and keys without forms of their own are in these."""
        rows = [row for row in self.rows.values() if place_of(row.target) in places]
        chosen = chosen_forms(self._graph, rows)
        self.forms = {**self.forms, **chosen}
        self._chosen |= set(places)
        before = set(self._before)
        for row, own in rows_in_forms(self._graph, rows, chosen):
            if own is row:
                continue
            if own is None:
                if MARK in row.signature:
                    continue  # in a form that was tried and not taken
                self.rows.pop((row.signature, row.target))
                self.have.discard(row.key)
                continue
            self.rows[own.signature, own.target] = own
            for keys in (self.have, before):
                if row.key in keys:
                    keys.add(own.key)
        self._before = frozenset(before)

    def _add(self, *results: tuple[Job, Measurement]) -> None:
        self._store.add(*(row for _, row in results))
        for job, result in results:
            own = self._eight_bits
            row = result if own is None else own.shared(result, job.region)
            if own is None and job.forms is None and MARK in row.signature:
                members = tuple(self._graph.units[unit].signature for unit in job.region)
                row = replace(row, signature=job.key.signature, members=members)
            if job.forms is not None and place_of(row.target) in self._chosen:
                continue  # a trial that was repeated after the choice
            # Again as the last: readers of the store find it there, too.
            self.rows.pop((row.signature, row.target), None)
            self.rows[row.signature, row.target] = row
