"""The cost table: there, ours, of a version that is read, and writable. It is not changed."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from nnapi_prof.costs.location import VARIABLE, default_location
from nnapi_prof.doctor.findings import Family, Finding
from nnapi_prof.doctor.registry import Host, host_checks

COSTS = Family("Costs")
SERVER_TIMEOUT_S = 2
BUSY_TIMEOUT_S = 1.0
_CHECK = "cost table"
_OTHER = f"name another: --costs FILE, or export {VARIABLE}=FILE"


@host_checks(COSTS.name)
def cost_table(_: Host) -> Iterator[Finding]:
    where = default_location()
    if "://" not in where:
        yield _file(Path(where).expanduser())
    elif where.startswith("sqlite"):
        from sqlalchemy import make_url

        yield _file(Path(make_url(where).database or ""))
    else:
        yield _server(where)


def _file(path: Path) -> Finding:
    if not path.exists():
        return _folder(path)
    try:
        # Read-only first: what is damaged or somebody else's stays as it is.
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as link:
            version = _version(link)
            rows = _rows(link) if isinstance(version, int) else 0
        if isinstance(version, int):
            with closing(sqlite3.connect(path, BUSY_TIMEOUT_S, isolation_level=None)) as link:
                link.execute("BEGIN IMMEDIATE")
                # The lock alone is granted on a file that may only be read.
                link.execute("UPDATE nnapi_prof_schema SET version = version")
                link.execute("ROLLBACK")
    except sqlite3.Error as error:
        return _refused(path, error)
    return _judged(str(path), version, f"{rows} measurements, writable")


def _refused(path: Path, error: sqlite3.Error) -> Finding:
    words = f"{path}: {error}"
    if "locked" in str(error):
        return COSTS.warning(
            _CHECK, f"{words}: another process writes to it", "wait until that one has ended"
        )
    if "readonly" in str(error) or "unable to open" in str(error):
        return COSTS.problem(
            _CHECK, f"{words}: this user may not write it", f"sudo chown $USER '{path}'"
        )
    return COSTS.problem(_CHECK, words, _OTHER)


def _folder(path: Path) -> Finding:
    there = path.parent
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        with tempfile.TemporaryFile(dir=there) as probe:
            probe.write(bytes(1 << 16))
            probe.flush()
    except OSError as error:
        return COSTS.problem(
            _CHECK, f"{path} cannot be made: {there}: {error.strerror or error}", _OTHER
        )
    return COSTS.ok(_CHECK, f"{path} is not there yet: the first `nnapi-prof profile` makes it")


def _version(link: sqlite3.Connection) -> int | str | None:
    """The schema's version, a table of somebody else's, or None of an empty database."""
    tables = [name for (name,) in link.execute("SELECT name FROM sqlite_master WHERE type='table'")]
    if "nnapi_prof_schema" not in tables:
        return min(tables) if tables else None
    (version,) = link.execute("SELECT version FROM nnapi_prof_schema").fetchone() or (0,)
    return int(version)


def _rows(link: sqlite3.Connection) -> int:
    (n,) = link.execute("SELECT count(*) FROM measurements").fetchone()
    return int(n)


def _judged(where: str, version: int | str | None, state: str) -> Finding:
    from nnapi_prof.costs.schema import SCHEMA_VERSION

    if isinstance(version, str):
        return COSTS.problem(
            _CHECK, f"{where} belongs to something else: it has the table {version}", _OTHER
        )
    if version is None:
        return COSTS.ok(_CHECK, f"{where} is empty: the first `nnapi-prof profile` fills it")
    if version > SCHEMA_VERSION:
        return COSTS.problem(
            _CHECK,
            f"{where} was written by a newer nnapi-prof: schema {version}, this one reads "
            f"{SCHEMA_VERSION}",
            "python -m pip install --upgrade nnapi-prof",
        )
    if version < SCHEMA_VERSION:
        state += f"; brought from schema {version} to {SCHEMA_VERSION} when first used"
    return COSTS.ok(_CHECK, f"{where}: {state}")


def _server(where: str) -> Finding:
    """A PostgreSQL server, asked once and without waiting for one that starts."""
    import importlib.util

    from sqlalchemy import create_engine, make_url
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    try:
        url = make_url(where)
    except (ArgumentError, ValueError) as error:
        return COSTS.problem(
            _CHECK, f"{where} is no database URL: {error}", "postgresql://USER@HOST/DATABASE is one"
        )
    if url.drivername.partition("+")[0] not in ("postgres", "postgresql"):
        return COSTS.problem(
            _CHECK, f"{url}: {url.drivername} is neither sqlite nor postgresql", _OTHER
        )
    if importlib.util.find_spec("psycopg") is None:
        return COSTS.problem(
            _CHECK,
            f"{url}: psycopg is not installed",
            "python -m pip install 'nnapi-prof[postgres]'",
        )
    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        connect_args={"connect_timeout": SERVER_TIMEOUT_S},
    )
    try:
        with engine.connect() as link:
            version, may_write = _server_version(link)
    except SQLAlchemyError as error:
        why = getattr(error, "orig", None) or error
        return COSTS.problem(
            _CHECK,
            f"{url} cannot be reached: {why}",
            "start the server and check host, user and password: "
            f"psql '{url.set(drivername='postgresql')}'",
        )
    finally:
        engine.dispose()
    if not may_write:
        return COSTS.problem(
            _CHECK,
            f"{url}: {url.username or 'this user'} may not add measurements",
            f"GRANT INSERT, SELECT ON ALL TABLES IN SCHEMA public TO {url.username or 'USER'};",
        )
    return _judged(str(url), version, "reached, writable")


def _server_version(link: Any) -> tuple[int | None, bool]:
    """The schema's version (None: no tables yet), and whether rows may be added."""
    from sqlalchemy import inspect

    if not inspect(link).has_table("nnapi_prof_schema"):
        query = "SELECT has_schema_privilege(current_schema(), 'CREATE')"
        return None, bool(link.exec_driver_sql(query).scalar())
    version = link.exec_driver_sql("SELECT version FROM nnapi_prof_schema").scalar()
    query = "SELECT has_table_privilege('measurements', 'INSERT')"
    return int(version or 0), bool(link.exec_driver_sql(query).scalar())
