"""Checks the files of this host: built agents and XNNPACK, and the cost table."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from nnapi_prof.costs import VARIABLE, default_location
from nnapi_prof.device import xnnpack
from nnapi_prof.device.build import find_agent
from nnapi_prof.doctor.checks import CheckResult, Family, Host, ok, problem, warning
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


@CACHE("cache")
def folder(_: Host) -> CheckResult:
    """Writable, and with room."""
    path = cache_dir()
    try:
        free = shutil.disk_usage(_try_writing(path)).free
    except OSError as error:
        return problem(f"{path} cannot be written to: {error.strerror or error}", _ELSEWHERE)
    if free < FULL_BYTES:
        return problem(f"{path} has {free / 1e6:.1f} MB free: no agent can be built", _ELSEWHERE)
    if free < SCANT_BYTES:
        return warning(f"{path} has {free / 1e6:.0f} MB free: too little for XNNPACK", _ELSEWHERE)
    return ok(f"{path} is writable, {free / 1e9:.1f} GB free")


@CACHE("XNNPACK")
def xnnpack_prefix(_: Host) -> CheckResult:
    again = "python -m nnapi_prof.device.xnnpack"
    try:
        state = xnnpack.state()
    except BuildError as error:
        return problem(error.problem, f"unset NNAPI_PROF_XNNPACK, then {again} builds one")
    if state.prefix is not None:
        return ok(f"built for this host: {state.prefix}")
    if state.left_out:
        return warning(
            "left out by NNAPI_PROF_XNNPACK=: the CPU engine is slow, its numbers are not a"
            " phone's",
            "unset NNAPI_PROF_XNNPACK",
        )
    if state.failed is not None:
        why = state.failed.partition("\n")[0]
        return warning(f"could not be built: {why}", again)
    return ok("not built yet: the first use of the device local does it (1 to 3 minutes)")


@AGENTS("agents")
def agents(_: Host) -> CheckResult:
    """Tells of each device with an agent whether that is there, built of these very sources, or
    still to be built."""
    devices = [("host", host_abi(), "linux"), *((abi, abi, "android") for abi in ANDROID_ABIS)]
    built: list[str] = []
    unbuilt: list[str] = []
    for name, abi, system in devices:
        try:
            (unbuilt if find_agent(abi, system) is None else built).append(name)
        except BuildError as error:
            return problem(str(error), "see Compilers and Cache above")
    words = f"built of these sources for {', '.join(built)}" if built else "none is built yet"
    if unbuilt:
        words += f"; for {', '.join(unbuilt)} at first use, which takes minutes (now: `nnapi-prof"
        words += f" agent build --abi {unbuilt[0]}`)"
    return ok(words)


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
_OTHER = f"name another: --costs FILE, or export {VARIABLE}=FILE"


@COSTS("cost table")
def cost_table(_: Host) -> CheckResult:
    where = default_location()
    if "://" not in where:
        return _file(Path(where).expanduser())
    if where.startswith("sqlite"):
        from sqlalchemy import make_url

        return _file(Path(make_url(where).database or ""))
    return _server(where)


def _file(path: Path) -> CheckResult:
    if not path.exists():
        return _folder(path)
    try:
        # Read-only first: what is damaged or somebody else's stays as it is.
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as link:
            version = _schema_version(link)
        if isinstance(version, int):
            with closing(sqlite3.connect(path, BUSY_TIMEOUT_S, isolation_level=None)) as link:
                link.execute("BEGIN IMMEDIATE")
                # The lock alone is granted on a file that may only be read.
                link.execute("UPDATE nnapi_prof_schema SET version = version")
                link.execute("ROLLBACK")
    except sqlite3.Error as error:
        return _refused(path, error)
    return _version_finding(str(path), version, "writable")


def _refused(path: Path, error: sqlite3.Error) -> CheckResult:
    words = f"{path}: {error}"
    if "locked" in str(error):
        return warning(f"{words}: another process writes to it", "wait until that one has ended")
    if "readonly" in str(error) or "unable to open" in str(error):
        return problem(f"{words}: this user may not write it", f"sudo chown $USER '{path}'")
    return problem(words, _OTHER)


def _folder(path: Path) -> CheckResult:
    try:
        _try_writing(path.parent)
    except OSError as error:
        return problem(
            f"{path} cannot be made: {_existing(path.parent)}: {error.strerror or error}", _OTHER
        )
    return ok(f"{path} is not there yet: the first `nnapi-prof profile` makes it")


def _schema_version(link: sqlite3.Connection) -> int | str | None:
    """The schema's version, a table of somebody else's, or None of an empty database."""
    tables = [name for (name,) in link.execute("SELECT name FROM sqlite_master WHERE type='table'")]
    if "nnapi_prof_schema" not in tables:
        return min(tables, default=None)
    (version,) = link.execute("SELECT version FROM nnapi_prof_schema").fetchone() or (0,)
    return int(version)


def _version_finding(where: str, version: int | str | None, state: str) -> CheckResult:
    from nnapi_prof.costs.store.database import MIGRATIONS
    from nnapi_prof.costs.store.rows import SCHEMA_VERSION

    if isinstance(version, str):
        return problem(f"{where} belongs to something else: it has the table {version}", _OTHER)
    if version is None:
        return ok(f"{where} is empty: the first `nnapi-prof profile` fills it")
    if version > SCHEMA_VERSION:
        return problem(
            f"{where} was written by a newer nnapi-prof: schema {version}, this one reads "
            f"{SCHEMA_VERSION}",
            "python -m pip install --upgrade nnapi-prof",
        )
    if version < SCHEMA_VERSION and version + 1 not in MIGRATIONS:
        return problem(
            f"{where} was written before the first release: schema {version}, this nnapi-prof reads"
            f" {SCHEMA_VERSION}",
            _OTHER,
        )
    if version < SCHEMA_VERSION:
        state += f"; brought from schema {version} to {SCHEMA_VERSION} when first used"
    return ok(f"{where}: {state}")


def _server(where: str) -> CheckResult:
    """A PostgreSQL server, asked once and without waiting for one that starts."""
    from sqlalchemy import create_engine, inspect
    from sqlalchemy.exc import SQLAlchemyError

    from nnapi_prof.costs.store.database import table_url

    url = table_url(where)
    try:
        engine = create_engine(url, connect_args={"connect_timeout": SERVER_TIMEOUT_S})
        with engine.connect() as link:
            version = None
            if inspect(link).has_table("nnapi_prof_schema"):
                query = "SELECT version FROM nnapi_prof_schema"
                version = int(link.exec_driver_sql(query).scalar() or 0)
        engine.dispose()
    except ImportError:
        return problem(
            f"{url}: psycopg is not installed", "python -m pip install 'nnapi-prof[postgres]'"
        )
    except SQLAlchemyError as error:
        why = getattr(error, "orig", None) or error
        return problem(
            f"{url} cannot be reached: {why}",
            "start the server and check host, user and password: "
            f"psql '{url.set(drivername='postgresql')}'",
        )
    return _version_finding(str(url), version, "reached")
