"""This host: Python and packages, compilers, the cache, cost tables."""

import ctypes
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.rows import SCHEMA_VERSION
from nnapi_prof.device import xnnpack
from nnapi_prof.doctor import Host, host, run
from nnapi_prof.doctor.host import COSTS, cost_table
from tests.conftest import REPO, rig
from tests.costs.conftest import postgres as postgres
from tests.doctor.common import problem, script, warning, well, without_rights

# ---- Python and packages -------------------------------------------------------------------------


def install(folder: Path, name: str, version: str, *requires: str) -> None:
    """What pip leaves of a package beside its files, on the path before all others."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {text}" for text in requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n")


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of packages that hides others of their names."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return tmp_path / "site"


def test_this_environment_is_well(monkeypatch):
    monkeypatch.delenv("NNAPI_PROF_CC", raising=False)
    assert ">=3" in well(host.python_itself(Host()))
    assert " packages, torch 2" in well(host.packages(Host()))
    assert well(host.zig(Host())) == "compiles for Android"
    assert well(host.build_tools(Host())).startswith("cmake ")


def test_packages_that_are_too_old(site):
    install(site, "numpy", "1.24.4")
    install(site, "libusb1", "0.1")  # of adb-shell's extra usb
    finding, fix = problem(host.packages(Host()))
    assert "numpy 1.24.4 is installed: numpy>=" in finding
    assert "libusb1 0.1 is installed: libusb1>=" in finding
    assert fix.startswith("python -m pip install '") and "'numpy>=" in fix and "'libusb1>=" in fix
    install(site, "nnapi-prof", "0", "click>=8", "no-such-package>=1; python_version > '3'")
    words = "no-such-package is not installed: no-such-package>=1 is required"
    assert problem(host.packages(Host())) == (words, "python -m pip install 'no-such-package>=1'")


def test_a_package_that_is_missing(tmp_path):
    """In a Python that sees nothing but what the check itself needs."""
    import click
    import packaging

    for module in (click, packaging):
        source = Path(str(module.__file__)).parent
        (tmp_path / source.name).symlink_to(source)
    code = (
        "from nnapi_prof.doctor import host; from nnapi_prof.doctor import Host\n"
        "host.requirements = lambda: ['torch>=2.6', 'ziglang>=0.13', 'click>=8']\n"
        "each = host.packages(Host()); print(each.level.value, each.found, each.fix)"
    )
    command = [sys.executable, "-S", "-c", code]
    env = {"PYTHONPATH": f"{REPO}:{tmp_path}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert "problem torch is not installed: torch>=2.6 is required; ziglang" in done.stdout
    assert "python -m pip install 'torch>=2.6' 'ziglang>=0.13'" in done.stdout


def test_a_python_that_is_too_old(monkeypatch):
    monkeypatch.setattr(host, "requires_python", lambda: ">=4")
    finding, fix = problem(host.python_itself(Host()))
    assert "is too old or too new: >=4 is required" in finding and "-m venv" in fix


# ---- compilers -----------------------------------------------------------------------------------


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """The PATH: an empty folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("NNAPI_PROF_CC", raising=False)
    return folder


def test_no_compiler_but_zig_or_none_at_all(tools, monkeypatch):
    words = well(host.c_compiler(Host()))
    assert words == "there is no cc on the PATH: zig builds for this host, too"
    monkeypatch.setitem(sys.modules, "ziglang", None)
    words, fix = problem(host.c_compiler(Host()))
    assert words == "there is no cc on the PATH, and zig does not work either"
    assert fix.startswith("sudo apt install gcc libc6-dev")
    assert problem(host.zig(Host()))[1] == "python -m pip install --force-reinstall ziglang"


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a compiler to break")
def test_a_compiler_without_headers(tools):
    real = shutil.which("cc", path=os.defpath)
    script(tools / "cc", f'PATH={os.defpath} exec {real} -nostdinc "$@"')
    words, _fix = warning(host.c_compiler(Host()))
    assert f"{tools}/cc does not compile a small program: it ended with 1: " in words
    assert "math.h" in words and words.endswith(": zig takes its place")


@pytest.mark.parametrize(
    ("does", "words"),
    [
        ('printf garbage >"$3"', "cannot be started: Exec format error"),
        ('printf "#!/bin/sh\necho 3" >"$3"', "said '3\\n' in place of '2'"),
        ('printf "#!/bin/sh\nexec /bin/sleep 60" >"$3"', "did not end within 1 s"),
    ],
)
def test_a_program_that_does_not_run(tools, monkeypatch, does, words):
    """As one for another machine: compiled without complaint, and of no use here."""
    monkeypatch.setattr(host, "LIMIT_S", 1.0)
    monkeypatch.setenv("NNAPI_PROF_CC", str(tools / "cc"))
    script(tools / "cc", f'PATH=/bin:/usr/bin; {does}; chmod 755 "$3"')
    flaw = f"{tools}/cc compiles, but the program does not run: it {words}"
    fix = "unset NNAPI_PROF_CC, or name a working one"
    assert problem(host.c_compiler(Host())) == (flaw, fix)


def test_a_compiler_that_is_named(tools, monkeypatch):
    monkeypatch.setenv("NNAPI_PROF_CC", "no-such-cc")
    words, fix = "there is no no-such-cc on the PATH", "unset NNAPI_PROF_CC, or name a working one"
    assert problem(host.c_compiler(Host())) == (words, fix)
    monkeypatch.setenv("NNAPI_PROF_CC", "zig")
    assert host.c_compiler(Host()) is None  # it has a check of its own
    monkeypatch.setattr("cmake.CMAKE_BIN_DIR", str(tools))
    script(tools / "cmake", "echo no room >&2; exit 3")
    words, fix = f"{tools}/cmake ended with 3: no room", "--force-reinstall cmake"
    assert problem(host.build_tools(Host())) == (words, f"python -m pip install {fix}")


# ---- the cache -----------------------------------------------------------------------------------

NEW_MOUNTS, NEW_USER = 0x20000, 0x10000000  # flags of unshare(2)


def on_storage(folder: Path, options: str) -> dict[str, list[str]]:
    """Returns what a fork of this process finds where ``folder`` is a file system of its own."""
    if rig.mount_isolation() is None:
        pytest.skip("needs a mount namespace: run the tests as root")
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            user = os.geteuid()
            flags = NEW_MOUNTS | (NEW_USER if user else 0)
            assert ctypes.CDLL(None).unshare(flags) == 0, "would mount for all"
            if user:
                Path("/proc/self/uid_map").write_text(f"0 {user} 1")
            mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
            for command in (["mount", "--make-rprivate", "/"], mount):
                subprocess.run(command, check=True)
            own = {"CACHE_DIR": folder / "cache", "COSTS": folder / "costs" / "costs.sqlite"}
            os.environ |= {f"NNAPI_PROF_{name}": str(path) for name, path in own.items()}
            both = {"cache": host.folder(Host()), "cost table": cost_table(Host())}
            rows = {name: [each.level.value, each.found, each.fix] for name, each in both.items()}
            os.write(writer, json.dumps(rows).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as told:
        findings: dict[str, list[str]] = json.load(told)
    return findings


STORAGES = {
    "size=16k": [
        (
            "cache",
            "problem",
            "cannot be written to: No space left on device",
            "NNAPI_PROF_CACHE_DIR=",
        ),
        ("cost table", "problem", "No space left on device", "--costs FILE"),
    ],
    "ro": [
        ("cache", "problem", "Read-only file system", ""),
        ("cost table", "problem", "Read-only file system", ""),
    ],
    "size=8m": [("cache", "problem", "has 8.4 MB free: no agent can be built", "")],
    "size=200m": [("cache", "warning", "has 210 MB free: too little for XNNPACK", "")],
    "size=2g": [("cache", "ok", "is writable, 2.1 GB free", "")],
}


@pytest.mark.parametrize("options", STORAGES)
def test_storage_that_is_full_read_only_or_small(tmp_path, options):
    findings = on_storage(tmp_path, options)
    for check, level, words, fix in STORAGES[options]:
        actual, found, advice = findings[check]
        assert actual == level and found.startswith(str(tmp_path)) and found.endswith(words)
        assert fix in (advice or "")


def test_xnnpack(tmp_path, monkeypatch):
    monkeypatch.setenv("NNAPI_PROF_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NNAPI_PROF_XNNPACK", str(tmp_path))
    words, fix = problem(host.xnnpack_prefix(Host()))
    assert words == f"NNAPI_PROF_XNNPACK is {tmp_path}, where XNNPACK is not built"
    assert "python -m nnapi_prof.device.xnnpack" in fix
    monkeypatch.setenv("NNAPI_PROF_XNNPACK", "")
    words, fix = warning(host.xnnpack_prefix(Host()))
    assert words.startswith("left out by NNAPI_PROF_XNNPACK=") and fix.startswith("unset")
    monkeypatch.delenv("NNAPI_PROF_XNNPACK")
    assert well(host.xnnpack_prefix(Host())).startswith("not built yet")
    # No sources to be had: what the first use writes down is said here.
    monkeypatch.setenv("NNAPI_PROF_XNNPACK_ARCHIVES", str(tmp_path / "nothing"))
    messages: list[str] = []
    assert xnnpack.first_use(tmp_path, messages.append) is None and messages
    words, fix = warning(host.xnnpack_prefix(Host()))
    assert words.startswith("could not be built: the sources of XNNPACK are not available")
    assert fix == "python -m nnapi_prof.device.xnnpack"


def test_agents(built_host, tmp_path, monkeypatch):
    assert well(host.agents(Host())).startswith("built of these sources for host")
    monkeypatch.setenv("NNAPI_PROF_CACHE_DIR", str(tmp_path))
    words = well(host.agents(Host()))
    assert words.startswith("none is built yet; for host, arm64-v8a")
    assert "`nnapi-prof agent build --abi host`" in words


def test_agents_without_a_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("NNAPI_PROF_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "ziglang", None)
    words, _ = problem(host.agents(Host()))
    assert words.startswith("an agent for android on arm64-v8a is built with the Python package zi")


# ---- cost tables ---------------------------------------------------------------------------------


@pytest.fixture
def table(open_folder, monkeypatch):
    """A cost table of ours, the one that the environment names."""
    path = open_folder / "costs.sqlite"
    CostStore(path).close()
    monkeypatch.setenv("NNAPI_PROF_COSTS", str(path))
    return path


def change(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as link:
        link.execute(statement)
    link.close()


def test_no_cost_table_yet(tmp_path, monkeypatch):
    path = tmp_path / "some" / "folder" / "costs.sqlite"
    monkeypatch.setenv("NNAPI_PROF_COSTS", str(path))
    assert well(cost_table(Host())).startswith(f"{path} is not there yet")
    assert not path.parent.exists()
    monkeypatch.setenv("NNAPI_PROF_COSTS", "sqlite:////proc/none/costs.sqlite")
    words, fix = problem(cost_table(Host()))
    assert words.startswith("/proc/none/costs.sqlite cannot be made: /proc: ")
    assert fix.startswith("name another: --costs FILE, or export NNAPI_PROF_COSTS=FILE")


def test_a_cost_table_that_is_no_database(table):
    assert well(cost_table(Host())) == f"{table}: writable"
    table.write_text("hello " * 200)
    words, fix = problem(cost_table(Host()))
    assert words == f"{table}: file is not a database" and "--costs FILE" in fix
    assert table.read_text() == "hello " * 200


def test_a_cost_table_that_is_somebody_elses(table):
    table.unlink()
    change(table, "create table songs (title)")
    words, _ = problem(cost_table(Host()))
    assert words == f"{table} belongs to something else: it has the table songs"


def test_cost_tables_of_newer_and_older_versions(table):
    change(table, f"update nnapi_prof_schema set version = {SCHEMA_VERSION + 1}")
    words, fix = problem(cost_table(Host()))
    newer = f"schema {SCHEMA_VERSION + 1}, this one reads {SCHEMA_VERSION}"
    assert words == f"{table} was written by a newer nnapi-prof: {newer}"
    assert fix == "python -m pip install --upgrade nnapi-prof"
    change(table, "update nnapi_prof_schema set version = 2")
    words, _ = problem(cost_table(Host()))
    assert words.endswith(f"schema 2, this nnapi-prof reads {SCHEMA_VERSION}")
    change(table, f"update nnapi_prof_schema set version = {SCHEMA_VERSION - 1}")
    old = f"brought from schema {SCHEMA_VERSION - 1} to {SCHEMA_VERSION} when first used"
    assert well(cost_table(Host())) == f"{table}: writable; {old}"


def test_a_cost_table_of_another_user(table):
    change(table, "pragma journal_mode = delete")
    table.chmod(0o444)
    words, fix = problem(without_rights(cost_table, Host()))
    assert words.startswith(f"{table}: ") and "this user may not write it" in words
    assert fix == f"sudo chown $USER '{table}'"


def test_a_cost_table_in_use(table):
    link = sqlite3.connect(table, isolation_level=None)
    link.execute("BEGIN IMMEDIATE")
    words, _ = warning(cost_table(Host()))
    link.close()
    assert words == f"{table}: database is locked: another process writes to it"


def test_a_cost_table_on_a_server(postgres, monkeypatch):
    where = postgres.empty()
    monkeypatch.setenv("NNAPI_PROF_COSTS", where)
    assert well(cost_table(Host())).endswith("is empty: the first `nnapi-prof profile` fills it")
    CostStore(where).close()
    assert well(cost_table(Host())).endswith(": reached")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    words, fix = problem(cost_table(Host()))
    assert words.endswith(": psycopg is not installed") and fix.endswith("'nnapi-prof[postgres]'")


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("postgresql://me:secret@127.0.0.1:1/costs", "cannot be reached"),
        ("mysql://me@host/costs", "mysql is neither sqlite nor postgresql"),
        ("://", "URL cannot be read"),
    ],
)
def test_a_cost_table_out_of_reach(where, words, monkeypatch):
    monkeypatch.setenv("NNAPI_PROF_COSTS", where)
    told = " ".join(problem(run([COSTS], Host())))
    assert words in told and "secret" not in told
