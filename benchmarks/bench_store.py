"""How long the questions to a large cost table take, on SQLite and PostgreSQL.

    python benchmarks/bench_store.py
    python benchmarks/bench_store.py --rows 10000000 --folder /mnt/large

A table of ``--rows`` rows: phones with 2,000 rows each (400 regions, five targets), 30 samples and
5 rounds per row. The first phone's rows go through the store, like a profile's; the database itself
copies them for the others. A row takes about 1.6 KB, so ten million take 16 GB on each database,
and minutes to make.

The queries are those of commands: `costs show --device` (the newest of each for one phone), `costs
show` (of all, the first 41), `costs show --model` (the regions of some units), `partition` and
`profile` (a phone's rows under conditions, and its existing rows), the devices by name, and
measurements since a day. Each runs three times, for several phones; the slowest counts. Fails where
one takes more than a second. `costs list` counts every row; its time is printed but not judged.

PostgreSQL is a server of Debian's package `postgresql`, started here and stopped again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, text

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

from nnapi_prof.costs import Conditions  # noqa: E402
from nnapi_prof.costs.measurement import (  # noqa: E402
    Kind,
    Measurement,
    Round,
    Status,
)
from nnapi_prof.costs.store import (  # noqa: E402
    CostStore,
    measured,
    named,
)
from nnapi_prof.costs.store.files import merge  # noqa: E402
from nnapi_prof.costs.store.rows import CONTENT  # noqa: E402
from nnapi_prof.costs.store.selection import Selection  # noqa: E402
from nnapi_prof.graph.plan import Target  # noqa: E402

REGIONS, TARGETS = 400, ("cpu", *(f"nnapi:npu/{p}" for p in ("fast", "low_power", "sustained")))
TARGETS += ("nnapi:auto/fast",)
ROWS_OF_A_PHONE = REGIONS * len(TARGETS)
MOST_S = 1.0
ROUNDS = (Round(6, (1800000, 2400000), (41000, 42000), False),) * 5
PHONES_PER_STEP = 20


def rows_of_a_phone() -> Iterator[Measurement]:
    """Yields rows of the phone ``phone-0``: units, and chains of two of them."""
    for region in range(REGIONS):
        members = (
            (f"{region:064x}",) if region % 3 else (f"{region + 1:064x}", f"{region + 2:064x}")
        )
        for place, target in enumerate(TARGETS):
            ns = 40_000 * (1 + region % 97) * (1 + place)
            minute, second = divmod(region * len(TARGETS) + place, 60)
            yield Measurement(
                signature=f"{region:064x}",
                kind=Kind.UNIT if region % 3 else Kind.CHAIN,
                label=f"conv2d+relu6 3x3/2 {region}->64 112x112",
                members=members,
                offsets=(),
                target=Target(target),
                fingerprint="phone-0",
                agent_version="0.1.0",
                status=Status.OK,
                conditions=Conditions(),
                samples_ns=tuple(ns + (7919 * i * region) % 9973 for i in range(30)),
                rounds=ROUNDS,
                measured_at=f"2026-01-01T{minute // 60:02}:{minute % 60:02}:{second:02}+00:00",
            )


def fill(store: CostStore, phones: int, postgres: bool) -> tuple[float, float]:
    """Fills the table; returns rows per second of the first phone, through the store, and of the
    others."""
    began = time.monotonic()
    rows = list(rows_of_a_phone())
    for at in range(0, len(rows), 500):
        store.add(*rows[at : at + 500])
    store.add_device("phone-0", {"os": "Android"}, True)
    own = ROWS_OF_A_PHONE / (time.monotonic() - began)
    began = time.monotonic()
    for first in range(1, phones, PHONES_PER_STEP):
        last = min(first + PHONES_PER_STEP, phones) - 1
        store.transact(lambda link, a=first, b=last: _copies(link, a, b, postgres), writing=True)
        _told(f"{(last + 1) * ROWS_OF_A_PHONE:,} rows")
    others = (phones - 1) * ROWS_OF_A_PHONE / (time.monotonic() - began)
    if postgres:
        store.transact(lambda link: link.execute(text("ANALYZE")), writing=True)
    return own, others


def _copies(connection: Connection, first: int, last: int, postgres: bool) -> None:
    """Copies the rows of the first phone to each of these, each on a day of its own."""
    same = ", ".join(name for name in CONTENT if name not in ("fingerprint", "measured_at"))
    # One phone per day, as in a lab's calendar; only their order counts.
    if postgres:
        phones = f"generate_series({first}, {last}) AS p(n)"
        day = "to_char(DATE '2026-01-01' + n::int, 'YYYY-MM-DD')"
        digest = "md5(m.digest || n) || md5(n || m.digest)"
    else:
        phones = f"(WITH RECURSIVE p(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM p"
        phones += f" WHERE n < {last}) SELECT n FROM p)"
        day = "date('2026-01-01', '+' || n || ' days')"
        digest = "hex(randomblob(32))"
    connection.execute(
        text(
            f"INSERT INTO measurements ({same}, fingerprint, measured_at, digest)"
            f" SELECT {same}, 'phone-' || n, {day} || substr(measured_at, 11), {digest}"
            f" FROM {phones} CROSS JOIN measurements m WHERE m.fingerprint = 'phone-0' ORDER BY n"
        )
    )
    devices = "fingerprint, description, simulated, first_seen"
    connection.execute(
        text(
            f"INSERT INTO devices ({devices}) SELECT 'phone-' || n, description, simulated,"
            f" {day} FROM {phones} CROSS JOIN devices d WHERE d.fingerprint = 'phone-0'"
        )
    )


def questions(store: CostStore, phone: str) -> dict[str, Callable[[], object]]:
    own = Selection((phone,), newest=True)
    units = frozenset(f"{region:064x}" for region in range(1, 60))

    def of_model() -> object:
        regions = [name for name, members in store.members().items() if units.issuperset(members)]
        return store.select(own.with_(signatures=regions))

    return {
        "costs show --device": lambda: store.select(own),
        "costs show": lambda: store.select(Selection(newest=True, first=41)),
        "costs show --op": lambda: store.select(
            Selection(newest=True, first=41, labels=("conv2d*",), targets=("nnapi:npu/*",))
        ),
        "costs show --model --device": of_model,
        "devices by name": lambda: named(store),
        "partition": lambda: store.select(own.with_(conditions=Conditions())),
        "profile: what is there": lambda: store.have(phone),
        "since a date": lambda: store.select(Selection(since="2026-01-02", newest=True, first=41)),
    }


def ask(store: CostStore, phones: int) -> dict[str, float]:
    """Returns the seconds of the slowest of three runs, each of another phone."""
    slowest: dict[str, float] = {}
    for turn in range(3):
        for name, question in questions(store, f"phone-{turn * phones // 3}").items():
            began = time.monotonic()
            question()
            slowest[name] = max(slowest.get(name, 0.0), time.monotonic() - began)
    return slowest


@contextmanager
def databases(folder: Path, only: str | None) -> Iterator[dict[str, str]]:
    urls = {} if only == "postgresql" else {"sqlite": str(folder / "costs.sqlite")}
    if only == "sqlite":
        yield urls
        return
    from tests.costs.postgres import Server, binaries

    programs = binaries()
    if programs is None:
        print("PostgreSQL is left out: its server is not installed (apt-get install postgresql)")
        yield urls
        return
    tempfile.tempdir = str(folder)
    server = Server(programs)
    try:
        yield urls | {"postgresql": server.empty()}
    finally:
        server.stop()


def _told(words: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{words}", end="\x1b[K\r", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000, help="default: 100,000")
    parser.add_argument("--folder", type=Path, help="where the tables lie; default: a new one")
    parser.add_argument("--only", choices=["sqlite", "postgresql"])
    options = parser.parse_args()
    phones = max(2, options.rows // ROWS_OF_A_PHONE)
    slow = 0
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-store-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with databases(folder, options.only) as urls:
            for kind, url in urls.items():
                with CostStore(url) as store:
                    own, others = fill(store, phones, kind == "postgresql")
                    print(f"{kind}: {phones:,} phones, {phones * ROWS_OF_A_PHONE:,} rows")
                    print(f"  added {own:,.0f} rows/s by the store, {others:,.0f} by the database")
                    for question, seconds in ask(store, phones).items():
                        slow += seconds > MOST_S
                        mark = "  TOO SLOW" if seconds > MOST_S else ""
                        print(f"  {question:<28} {seconds * 1e3:9.1f} ms{mark}", flush=True)
                    began = time.monotonic()
                    measured(store)
                    took = time.monotonic() - began
                    print(f"  {'costs list (every row)':<28} {took * 1e3:9.1f} ms, not judged")
            if len(urls) == 2:
                _merge(folder, urls["postgresql"])
    return 1 if slow else 0


def _merge(folder: Path, url: str) -> None:
    """Merges a phone's table into PostgreSQL, twice: the second time adds nothing."""
    with CostStore(folder / "one.sqlite") as one, CostStore(url) as store:
        rows = list(rows_of_a_phone())
        one.add(*(_of_another(row) for row in rows))
        for turn in ("first", "again"):
            began = time.monotonic()
            merged = merge(store, one)
            rate = merged.rows / (time.monotonic() - began)
            print(f"merge, {turn}: {merged.added} new of {merged.rows} rows, {rate:,.0f} rows/s")


def _of_another(row: Measurement) -> Measurement:
    from dataclasses import replace

    return replace(row, fingerprint="phone-of-a-laptop")


if __name__ == "__main__":
    sys.exit(main())
