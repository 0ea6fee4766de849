"""What this host keeps: agents and XNNPACK as they were built, and the cost table."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from nnapi_prof.costs import VARIABLE, default_location
from nnapi_prof.device import build, xnnpack
from nnapi_prof.device.build import find_agent, sources_key
from nnapi_prof.doctor.checks import Family, Finding, Host
from nnapi_prof.errors import BuildError
from nnapi_prof.toolchain import ANDROID_ABIS, cache_dir, host_abi

CACHE = Family("Cache")
AGENTS = Family("Agents")

FULL_BYTES = 50_000_000
"""An agent and its build need some 20 MB."""
SCANT_BYTES = 500_000_000
"""XNNPACK with its sources needs some 200 MB, for each ABI less."""
_PROBE_BYTES = 1 << 16
_ELSEWHERE = "export NNAPI_PROF_CACHE_DIR=/path/to/a/folder/with/room"


@CACHE.on_host
def folder(_: Host) -> Iterator[Finding]:
    """Writable, and with room."""
    path = cache_dir()
    try:
        free = shutil.disk_usage(_try_writing(path)).free
    except OSError as error:
        yield CACHE("cache").problem(
            f"{path} cannot be written to: {error.strerror or error}", _ELSEWHERE
        )
        return
    words = f"{path} is writable, {free / 1e9:.1f} GB free"
    if free < FULL_BYTES:
        yield CACHE("cache").problem(
            f"{path} has {free / 1e6:.1f} MB free: no agent can be built", _ELSEWHERE
        )
    elif free < SCANT_BYTES:
        yield CACHE("cache").warning(
            f"{path} has {free / 1e6:.0f} MB free: too little for XNNPACK", _ELSEWHERE
        )
    else:
        yield CACHE("cache").ok(words)


@CACHE.on_host
def xnnpack_prefix(_: Host) -> Iterator[Finding]:
    again = "python -m nnapi_prof.device.xnnpack"
    try:
        state = xnnpack.state()
    except BuildError as error:
        words = str(error).partition(": ")[0]
        yield CACHE("XNNPACK").problem(words, f"unset NNAPI_PROF_XNNPACK, then {again} builds one")
        return
    if state.prefix is not None:
        yield CACHE("XNNPACK").ok(f"built for this host: {state.prefix}")
    elif state.left_out:
        yield CACHE("XNNPACK").warning(
            "left out by NNAPI_PROF_XNNPACK=: the CPU engine is slow, its numbers are not a "
            "phone's",
            "unset NNAPI_PROF_XNNPACK",
        )
    elif state.failed is not None:
        why = state.failed.partition("\n")[0]
        yield CACHE("XNNPACK").warning(f"could not be built: {why}", again)
    else:
        yield CACHE("XNNPACK").ok(
            "not built yet: the first use of the device local does it (1 to 3 minutes)"
        )


@AGENTS.on_host
def agents(_: Host) -> Iterator[Finding]:
    """Of each device that an agent exists for: there, and of these very sources."""
    yield from _agent("this host", host_abi(), "linux")
    for abi in ANDROID_ABIS:
        yield from _agent(f"android-{abi}", abi, "android")


@AGENTS.on_host
def brought_along(_: Host) -> Iterator[Finding]:
    """Agents of a wheel are of no use where the sources beside them were changed."""
    sources = build.AGENTS_DIR / "sources"
    if sources.is_file() and sources.read_text().strip() != sources_key():
        yield AGENTS("wheel").warning(
            f"the agents in {build.AGENTS_DIR} were built of other sources and are not used",
            "python -m nnapi_prof.device.shipped --clean",
        )


def _agent(name: str, abi: str, os_name: str) -> Iterator[Finding]:
    try:
        agent = find_agent(abi, os_name)
    except BuildError as error:
        yield AGENTS(name).problem(str(error), "see Compilers and Cache above")
        return
    if agent is not None:
        size = agent.stat().st_size / 1e6
        yield AGENTS(name).ok(f"built of these sources, {size:.1f} MB: {agent}")
        return
    state = "built of other sources" if _has_older(abi, os_name) else "not built yet"
    build = f"nnapi-prof agent build --abi {abi if os_name == 'android' else 'host'}"
    yield AGENTS(name).ok(f"{state}: its first use builds it, which takes minutes (now: `{build}`)")


def _has_older(abi: str, os_name: str) -> bool:
    """Whether the cache has an agent for such a device at all."""
    pattern = f"{os_name}-{abi}-*/agent" if os_name == "android" else "[0-9a-f]*/agent"
    return any((cache_dir() / "agents").glob(pattern))


def _try_writing(path: Path) -> Path:
    """The folder itself, or the nearest one above it that is there, after a try at writing: quotas
    do not show in what is free. Raises OSError."""
    folder = _existing(path)
    with tempfile.TemporaryFile(dir=folder) as probe:
        probe.write(bytes(_PROBE_BYTES))
        probe.flush()
    return folder


def _existing(path: Path) -> Path:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


# ---- the cost table, which is not changed --------------------------------------------------------


COSTS = Family("Costs")
SERVER_TIMEOUT_S = 2
BUSY_TIMEOUT_S = 1.0
_CHECK = "cost table"
_OTHER = f"name another: --costs FILE, or export {VARIABLE}=FILE"


@COSTS.on_host
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
    return _version_finding(str(path), version, f"{rows} measurements, writable")


def _refused(path: Path, error: sqlite3.Error) -> Finding:
    words = f"{path}: {error}"
    if "locked" in str(error):
        return COSTS(_CHECK).warning(
            f"{words}: another process writes to it", "wait until that one has ended"
        )
    if "readonly" in str(error) or "unable to open" in str(error):
        return COSTS(_CHECK).problem(
            f"{words}: this user may not write it", f"sudo chown $USER '{path}'"
        )
    return COSTS(_CHECK).problem(words, _OTHER)


def _folder(path: Path) -> Finding:
    try:
        _try_writing(path.parent)
    except OSError as error:
        return COSTS(_CHECK).problem(
            f"{path} cannot be made: {_existing(path.parent)}: {error.strerror or error}", _OTHER
        )
    return COSTS(_CHECK).ok(f"{path} is not there yet: the first `nnapi-prof profile` makes it")


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


def _version_finding(where: str, version: int | str | None, state: str) -> Finding:
    from nnapi_prof.costs.store.migrate import MIGRATIONS
    from nnapi_prof.costs.store.schema import SCHEMA_VERSION

    if isinstance(version, str):
        return COSTS(_CHECK).problem(
            f"{where} belongs to something else: it has the table {version}", _OTHER
        )
    if version is None:
        return COSTS(_CHECK).ok(f"{where} is empty: the first `nnapi-prof profile` fills it")
    if version > SCHEMA_VERSION:
        return COSTS(_CHECK).problem(
            f"{where} was written by a newer nnapi-prof: schema {version}, this one reads "
            f"{SCHEMA_VERSION}",
            "python -m pip install --upgrade nnapi-prof",
        )
    if version < SCHEMA_VERSION and version + 1 not in MIGRATIONS:
        return COSTS(_CHECK).problem(
            f"{where} was written before the first release: schema {version}, this nnapi-prof reads"
            f" {SCHEMA_VERSION}",
            _OTHER,
        )
    if version < SCHEMA_VERSION:
        state += f"; brought from schema {version} to {SCHEMA_VERSION} when first used"
    return COSTS(_CHECK).ok(f"{where}: {state}")


def _server(where: str) -> Finding:
    """A PostgreSQL server, asked once and without waiting for one that starts."""
    import importlib.util

    from sqlalchemy import create_engine, make_url
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    try:
        url = make_url(where)
    except (ArgumentError, ValueError) as error:
        return COSTS(_CHECK).problem(
            f"{where} is not a database URL: {error}", "postgresql://USER@HOST/DATABASE is one"
        )
    if url.drivername.partition("+")[0] not in ("postgres", "postgresql"):
        return COSTS(_CHECK).problem(
            f"{url}: {url.drivername} is neither sqlite nor postgresql", _OTHER
        )
    if importlib.util.find_spec("psycopg") is None:
        return COSTS(_CHECK).problem(
            f"{url}: psycopg is not installed", "python -m pip install 'nnapi-prof[postgres]'"
        )
    engine = create_engine(
        url.set(drivername="postgresql+psycopg"), connect_args={"connect_timeout": SERVER_TIMEOUT_S}
    )
    try:
        with engine.connect() as link:
            version, may_write = _server_version(link)
    except SQLAlchemyError as error:
        why = getattr(error, "orig", None) or error
        return COSTS(_CHECK).problem(
            f"{url} cannot be reached: {why}",
            "start the server and check host, user and password: "
            f"psql '{url.set(drivername='postgresql')}'",
        )
    finally:
        engine.dispose()
    if not may_write:
        return COSTS(_CHECK).problem(
            f"{url}: {url.username or 'this user'} may not add measurements",
            f"GRANT INSERT, SELECT ON ALL TABLES IN SCHEMA public TO {url.username or 'USER'};",
        )
    return _version_finding(str(url), version, "reached, writable")


def _server_version(link: Any) -> tuple[int | None, bool]:
    """The schema's version (None: no tables yet), and whether rows may be added."""
    from sqlalchemy import inspect

    if not inspect(link).has_table("nnapi_prof_schema"):
        query = "SELECT has_schema_privilege(current_schema(), 'CREATE')"
        return None, bool(link.exec_driver_sql(query).scalar())
    version = link.exec_driver_sql("SELECT version FROM nnapi_prof_schema").scalar()
    query = "SELECT has_table_privilege('measurements', 'INSERT')"
    return int(version or 0), bool(link.exec_driver_sql(query).scalar())
