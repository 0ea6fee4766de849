"""Check this host: Python, packages, compilers and build tools, built agents, the cost table.

Checks of programs test that they exist, are new enough, and work.
"""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import Any

from nnapi_prof.costs import VARIABLE, default_location
from nnapi_prof.device import xnnpack
from nnapi_prof.device.build import find_agent
from nnapi_prof.doctor import CheckResult, Family, Host, ok, problem, warning
from nnapi_prof.errors import BuildError
from nnapi_prof.toolchain import ANDROID_ABIS, cache_dir, find_zig, host_abi, python_tool

PYTHON = Family("Python")
COMPILERS = Family("Compilers")

LIMIT_S = 20.0
"""Time limit of one compilation of a few lines."""
_PROGRAM = (
    "#include <math.h>\n#include <pthread.h>\n#include <stdio.h>\n"
    'int main(int n, char **words) { (void)words; return printf("%.0f", sqrt(n * 4.0)) < 0; }\n'
)
_SAYS = "2"
_INSTALL = "sudo apt install gcc libc6-dev (or your system's C compiler)"


@PYTHON("Python")
def python_itself(_: Host) -> CheckResult:
    from packaging.specifiers import SpecifierSet

    here, required = platform.python_version(), requires_python()
    if SpecifierSet(required).contains(here, prereleases=True):
        return ok(f"{here} ({required} is required), {sys.executable}")
    return problem(
        f"{here} is too old or too new: {required} is required",
        "make an environment of such a Python: python3.11 -m venv .venv && "
        ".venv/bin/pip install nnapi-prof",
    )


@PYTHON("packages")
def packages(_: Host) -> CheckResult:
    """Check every dependency by its metadata, because importing torch alone takes seconds."""
    there: list[str] = []
    missing: dict[str, str] = {}
    for requirement in _applicable(requirements()):
        _look(requirement, there, missing)
        for extra in sorted(requirement.extras):  # adb-shell[usb] has libusb1
            if requirement.name in there:
                for brought in _applicable(metadata.requires(requirement.name) or [], extra):
                    _look(brought, there, missing)
    if not missing:
        return ok(f"{len(there)} packages, torch {metadata.version('torch')}; `pip check` has more")
    words = "; ".join(f"{state}: {bounds} is required" for bounds, state in missing.items())
    return problem(words, f"python -m pip install {' '.join(map(repr, missing))}")


def _look(requirement: Any, there: list[str], missing: dict[str, str]) -> None:
    """Add a requirement to the met ones, or to the missing ones with the installed version."""
    bounds = f"{requirement.name}{requirement.specifier}"
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        missing[bounds] = f"{requirement.name} is not installed"
        return
    if requirement.specifier.contains(version, prereleases=True):
        there.append(requirement.name)
    else:
        missing[bounds] = f"{requirement.name} {version} is installed"


def _applicable(texts: list[str], extra: str | None = None) -> Iterator[Any]:
    """Yield the requirements that apply here: always, or only with ``extra`` if that is given."""
    from packaging.requirements import Requirement

    for text in texts:
        requirement = Requirement(text)
        marker = requirement.marker
        always = marker is None or marker.evaluate({"extra": ""})
        if extra is None and always:
            yield requirement
        elif extra is not None and marker is not None and not always:
            if marker.evaluate({"extra": extra}):
                yield requirement


def requires_python() -> str:
    """Return the required versions of Python: ``>=3.11``."""
    return str(metadata.metadata("nnapi-prof")["Requires-Python"])


def requirements() -> list[str]:
    """Return the declared dependencies of nnapi-prof: ``numpy>=1.26``."""
    return metadata.requires("nnapi-prof") or []


# ---- compilers and build tools: their output has to run ------------------------------------------


@COMPILERS("C compiler")
def c_compiler(_: Host) -> CheckResult | None:
    """Check the compiler of this host's agent: the one in NNAPI_PROF_CC, else cc, else zig."""
    named = os.environ.get("NNAPI_PROF_CC", "")
    if named == "zig":
        return None  # zig has its own check
    flaw = _flaw(named or "cc")
    if flaw is None:
        return ok(f"{shutil.which(named or 'cc')} compiles, and its program runs")
    if named:
        return problem(flaw, "unset NNAPI_PROF_CC, or name a working one")
    if _zig_flaw() is not None:
        return problem(f"{flaw}, and zig does not work either", _INSTALL)
    if shutil.which("cc") is None:
        return ok(f"{flaw}: zig builds for this host, too")
    return warning(f"{flaw}: zig takes its place", _INSTALL)


@COMPILERS("zig")
def zig(_: Host) -> CheckResult:
    """Check the compiler of agents for Android."""
    flaw = _zig_flaw()
    if flaw is None:
        return ok("compiles for Android")
    return problem(
        f"no agent can be built for Android: {flaw}",
        "python -m pip install --force-reinstall ziglang",
    )


@COMPILERS("build tools")
def build_tools(_: Host) -> CheckResult:
    versions = []
    for name, folder in (("cmake", "CMAKE_BIN_DIR"), ("ninja", "BIN_DIR")):
        fix = f"python -m pip install --force-reinstall {name}"
        try:
            tool = python_tool(name, folder)
        except BuildError as error:
            return problem(str(error), fix)
        flaw, says = _call([tool, "--version"])
        if flaw is not None:
            return problem(f"{tool} {flaw}", fix)
        versions.append(f"{name} {says.splitlines()[0].removeprefix('cmake version ')}")
    return ok(", ".join(versions))


def _flaw(compiler: str) -> str | None:
    """Return why a compiler cannot be used; None if its program runs and prints :data:`_SAYS`."""
    path = shutil.which(compiler)
    if path is None:
        return f"there is no {compiler} on the PATH"
    with tempfile.TemporaryDirectory(prefix="nnapi-prof-") as work:
        source, program = Path(work) / "probe.c", f"{work}/probe"
        source.write_text(_PROGRAM)
        flaw, _ = _call([path, str(source), "-o", program, "-lm", "-lpthread"])
        if flaw is not None:
            return f"{path} does not compile a small program: it {flaw}"
        flaw, says = _call([program])
        if flaw is None and says != _SAYS:
            flaw = f"said {says!r} in place of {_SAYS!r}"
        return None if flaw is None else f"{path} compiles, but the program does not run: it {flaw}"


def _zig_flaw() -> str | None:
    """Return why zig cannot be used; None if it compiles for Android. Does not link, because zig
    would first build a libc for half a minute."""
    try:
        program, _ = find_zig()
    except (BuildError, OSError) as error:
        return str(error)
    with tempfile.TemporaryDirectory(prefix="nnapi-prof-") as work:
        source = Path(work) / "probe.c"
        source.write_text("int twice(int n) { return 2 * n; }\n")
        android = ["-target", "aarch64-linux-android", "-c", str(source), "-o", f"{work}/probe.o"]
        flaw, _ = _call([str(program), "cc", *android])
        return flaw and f"zig {flaw}"


def _call(command: list[str]) -> tuple[str | None, str]:
    """Run a program and return how it failed (None: it did not), and its standard output."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )
    except OSError as error:
        return f"cannot be started: {error.strerror}", ""
    except subprocess.TimeoutExpired:
        return f"did not end within {LIMIT_S:g} s", ""
    if done.returncode == 0:
        return None, done.stdout
    words = [line for line in done.stderr.splitlines() if "error" in line.lower()]
    answer = (words or done.stderr.splitlines() or ["without a message"])[0]
    return f"ended with {done.returncode}: {answer.strip()[:200]}", done.stdout


CACHE = Family("Cache")
AGENTS = Family("Agents")

FULL_BYTES = 50_000_000
"""Free space below which no agent can be built; an agent and its build need some 20 MB."""
SCANT_BYTES = 500_000_000
"""Free space below which XNNPACK may not fit; with sources it needs some 200 MB, and less for each
further ABI."""
_PROBE_BYTES = 1 << 16
_ELSEWHERE = "export NNAPI_PROF_CACHE_DIR=/path/to/a/folder/with/room"


@CACHE("cache")
def folder(_: Host) -> CheckResult:
    """Check that the cache is writable and has enough space."""
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
    """Check for each platform whether its agent is built from the current sources."""
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
    """Write to the folder, or its nearest existing parent, and return it: quotas do not show in the
    free space. Raises OSError."""
    folder = _existing(path)
    with tempfile.TemporaryFile(dir=folder) as probe:
        probe.write(bytes(_PROBE_BYTES))
        probe.flush()
    return folder


def _existing(path: Path) -> Path:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


# ---- the cost table, which the check does not change ---------------------------------------------


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
        # Read-only first, so that a damaged or foreign file stays unchanged.
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as link:
            version = _schema_version(link)
        if isinstance(version, int):
            with closing(sqlite3.connect(path, BUSY_TIMEOUT_S, isolation_level=None)) as link:
                link.execute("BEGIN IMMEDIATE")
                # The lock alone would succeed on a read-only file.
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
    """Return the schema's version, the name of a foreign table, or None for an empty database."""
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
    """Check a PostgreSQL server with one request, without waiting for it to start."""
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
