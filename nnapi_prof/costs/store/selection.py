"""Selects rows of a cost table, as data and as SQL."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    FromClause,
    Select,
    Subquery,
    and_,
    false,
    func,
    literal,
    literal_column,
    or_,
    select,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.base import ReadOnlyColumnCollection
from sqlalchemy.sql.functions import FunctionElement

from nnapi_prof.costs import Conditions
from nnapi_prof.costs.measurement import ATTEMPTS, FAILURES, Kind, Status, trusted_failures
from nnapi_prof.costs.store.rows import MEASUREMENTS
from nnapi_prof.errors import UsageError, option_name
from nnapi_prof.graph.plan import AUTO, CPU, CPU_ALONE, Preference, Target

SAME = ("fingerprint", "signature", "target", "precision", "mode", "threads", "cpus", "sustained_s")
"""Columns in which rows that measured the same agree; the newest of these rows counts."""
Columns = ReadOnlyColumnCollection[str, Any]
"""Columns of the table or of an alias."""
_VARIABLES_PER_QUERY = 500  # SQLite's limit is 999 in versions before 3.32


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection of rows by criteria, all of which must match; None or an empty one is ignored.

    Names are case-insensitive patterns with ``*`` and ``?``; several of a kind are alternatives.
    """

    fingerprints: Collection[str] | None = None
    signatures: Collection[str] | None = None
    targets: tuple[str, ...] = ()
    """Patterns of :attr:`.Target.key`."""
    labels: tuple[str, ...] = ()
    """Patterns of the label, which begins with the operation: ``conv2d*``."""
    kinds: tuple[Kind, ...] = ()
    statuses: tuple[Status, ...] = ()
    since: str | None = None
    """First instant included: ISO 8601, UTC (:func:`instant`)."""
    until: str | None = None
    """First instant excluded: ISO 8601, UTC."""
    conditions: Conditions | None = None
    """Conditions of the rows, as far as they concern each row's engine."""
    newest: bool = False
    """True to take, among matching rows that agree in :data:`SAME`, only the one measured last."""
    first: int | None = None
    """Number of rows to take, those measured first; the others are not even read."""

    def clauses(
        self, without: Collection[int] = (), table: FromClause = MEASUREMENTS
    ) -> Iterator[list[ColumnElement[bool]]]:
        """Yields lists of WHERE clauses: several lists where there are too many signatures for one
        query. ``without`` are ids of rows to ignore; ``table`` may be an alias."""
        m = table.c
        base: list[ColumnElement[bool]] = []
        ids = sorted(without)
        for at in range(0, len(ids), _VARIABLES_PER_QUERY):
            # Written as literals: there may be more ids than a query may have variables.
            base.append(
                m.id.not_in([literal_column(str(i)) for i in ids[at : at + _VARIABLES_PER_QUERY]])
            )
        if self.fingerprints is not None:
            base.append(m.fingerprint.in_(sorted(self.fingerprints)))
        for column, patterns in ((m.target, self.targets), (m.label, self.labels)):
            if patterns:
                base.append(or_(*(_like(column, pattern) for pattern in patterns)))
        if self.kinds:
            base.append(m.kind.in_([kind.value for kind in self.kinds]))
        if self.statuses:
            base.append(m.status.in_([status.value for status in self.statuses]))
        if self.since is not None:
            base.append(_when(m) >= self.since)
        if self.until is not None:
            base.append(_when(m) < self.until)
        if self.conditions is not None:
            base.append(_under(self.conditions, m))
        if self.signatures is None:
            yield base
            return
        ordered = sorted(set(self.signatures))
        if not ordered:
            yield [false()]
        for at in range(0, len(ordered), _VARIABLES_PER_QUERY):
            yield [*base, m.signature.in_(ordered[at : at + _VARIABLES_PER_QUERY])]

    def queries(self, without: Collection[int] = ()) -> Iterator[Any]:
        """Yields SELECTs of whole rows, in order of arrival, or with ``first`` in order of time."""
        m = MEASUREMENTS.c
        newer = MEASUREMENTS.alias("newer")
        later = self.clauses(without, newer)
        for clause, others in zip(self.clauses(without), later, strict=True):
            if self.first is not None:
                # Walks along the index of times, and checks for each row whether it is the newest.
                fits = [*clause, *([~_exists(newer, others)] if self.newest else [])]
                yield select(MEASUREMENTS).where(*fits).order_by(_when(m), m.id).limit(self.first)
                continue
            if not self.newest:
                yield select(MEASUREMENTS).where(*clause).order_by(m.id)
                continue
            ranked = _ranked(*clause)
            last = select(ranked.c.id).where(ranked.c.place == 1)
            yield select(MEASUREMENTS).where(m.id.in_(last)).order_by(m.id)

    def with_(self, **changes: Any) -> Selection:
        return dataclasses.replace(self, **changes)


def conclusive(now: str) -> ColumnElement[bool]:
    """Returns a clause that is true for conclusive rows, as :meth:`.Measurement.conclusive`."""
    m = MEASUREMENTS.c
    failures = [status.value for status in FAILURES]
    since, until = trusted_failures(now)
    is_fresh = and_(m.attempts == ATTEMPTS, _when(m) > since, _when(m) < until)
    return or_(m.status.not_in(failures), m.attempts != ATTEMPTS, is_fresh)


def newest_time(row: Mapping[str, Any]) -> Select[Any]:
    """Returns a SELECT of the time of the newest row that measured the same as this one."""
    m = MEASUREMENTS.c
    return select(func.max(_when(m))).where(*(m[name] == row[name] for name in SAME))


def superseded_ids() -> Select[tuple[int]]:
    """Returns a SELECT of the ids of all rows for which a newer row agrees in :data:`SAME`."""
    ranked = _ranked()
    return select(ranked.c.id).where(ranked.c.place > 1)


def _exists(newer: FromClause, clause: Iterable[ColumnElement[bool]]) -> ColumnElement[bool]:
    """Returns a clause: a matching row measured the same as the row at hand, and later."""
    m, n = MEASUREMENTS.c, newer.c
    same = [n[name] == m[name] for name in SAME]
    later = or_(_when(n) > _when(m), and_(_when(n) == _when(m), n.id > m.id))
    return select(n.id).where(*same, later, *clause).exists()


def _ranked(*clause: ColumnElement[bool]) -> Subquery:
    """Returns a subquery of the ids of matching rows, with their ``place`` among those that
    measured the same: 1 for the one measured last. It may not be the last to arrive, as an import
    adds old rows late."""
    m = MEASUREMENTS.c
    place = func.row_number().over(
        partition_by=[m[name] for name in SAME], order_by=[_when(m).desc(), m.id.desc()]
    )
    return select(m.id, place.label("place")).where(*clause).subquery()


def instant(text: str, end: bool = False) -> str:
    """Converts a date (``2026-11-21``) or time to the table's form; it is UTC if it names no zone.

    With ``end`` a date stands for the next midnight. Raises ValueError.
    """
    moment = datetime.fromisoformat(text)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    if end and _is_date(text):
        moment = datetime.fromordinal(moment.toordinal() + 1).replace(tzinfo=UTC)
    # As short as possible: the table has 12:00:00+00:00, 12:00:00.5+00:00 and so on, and all of
    # them sort after 12:00:00, byte by byte.
    return moment.isoformat(timespec="microseconds").removesuffix("+00:00").rstrip("0").rstrip(".")


def stated_instant(name: str, text: str, end: bool = False) -> str:
    """Converts the text of a user's option by :func:`instant`. Raises UsageError."""
    try:
        return instant(text, end)
    except ValueError:
        raise UsageError(
            f"{option_name(name)} {text!r} is not a date", "write 2026-01-31 or 2026-01-31T12:30"
        ) from None


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _when(columns: Columns) -> ColumnElement[str]:
    """Returns ``measured_at`` to be compared byte by byte, whatever a server's locale."""
    return _ByteOrder(columns.measured_at)


class _ByteOrder(FunctionElement[str]):
    inherit_cache = True


@compiles(_ByteOrder)
def _as_it_is(element: Any, compiler: Any, **options: Any) -> str:
    return str(compiler.process(element.clauses, **options))


@compiles(_ByteOrder, "postgresql")
def _in_bytes(element: Any, compiler: Any, **options: Any) -> str:
    return f'({compiler.process(element.clauses, **options)} COLLATE "C")'


def _like(column: ColumnElement[str], pattern: str) -> ColumnElement[bool]:
    escaped = pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    text = escaped.replace("*", "%").replace("?", "_").lower()
    return func.lower(column).like(literal(text), escape="\\")


def _under(conditions: Conditions, m: Columns) -> ColumnElement[bool]:
    on_cpu = or_(*(and_(m.target == t.key, _are(conditions.on(t), m)) for t in (CPU, CPU_ALONE)))
    nnapi = conditions.on(Target.nnapi(AUTO, Preference.FAST_SINGLE_ANSWER))
    return or_(on_cpu, and_(m.target.not_in((CPU.key, CPU_ALONE.key)), _are(nnapi, m)))


def _are(conditions: Conditions, m: Columns) -> ColumnElement[bool]:
    return and_(*(m[k] == v for k, v in conditions.to_json().items()))
