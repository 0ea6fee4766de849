"""What tests share: a clean environment, the built agent, real adbd devices, a real adb server."""

import contextlib
import ctypes
import gc
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import hypothesis
import pytest

from nnapi_prof.device import build
from nnapi_prof.device.build import HostBuild, build_host
from nnapi_prof.errors import BuildError
from nnapi_prof.toolchain import find_compiler
from tests import summary
from tests.adbd import daemon as rig
from tests.parts import missing

REPO = Path(__file__).resolve().parent.parent
CACHE = REPO / "build" / "cache"
PHONES = REPO / "device_agent" / "emulator" / "phones"

# The same examples everywhere, and no deadline: CI machines are slow and shared.
hypothesis.settings.register_profile("nnapi-prof", deadline=None, derandomize=True)
hypothesis.settings.load_profile("nnapi-prof")


sys.modules["nnapi_prof_rig"] = rig  # as tests/android calls it


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", metavar="SERIAL", help="also run the tests that need a phone")
    parser.addoption(
        "--quick", action="store_true", help="leave out what is slow or needs more than a compiler"
    )
    parser.addoption(
        "--everything",
        action="store_true",
        help="also what another test does at another size, version or processor",
    )


@pytest.hookimpl(tryfirst=True)  # before workers start, which inherit the environment
def pytest_configure(config: pytest.Config) -> None:
    """Fix what all tests build with: an agent must not change because a test built XNNPACK."""
    # A shell without job control has it ignored in what it puts in the background: `make test &`.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(summary)
    if os.environ.get("CI") == "true":
        os.environ.setdefault("NNAPI_PROF_REQUIRE_ALL", "1")
    if hasattr(config, "workerinput"):
        _begin_elsewhere(config)
        return
    if config.option.collectonly or config.option.help:
        return
    quick = config.getoption("--quick")
    try:
        prefix = build.host_prefix(CACHE, _say, fast=not quick)
        if prefix is None and not quick and os.environ.get("NNAPI_PROF_REQUIRE_ALL") == "1":
            pytest.exit("XNNPACK cannot be built, and NNAPI_PROF_REQUIRE_ALL=1", returncode=1)
        os.environ["NNAPI_PROF_XNNPACK"] = "" if prefix is None else str(prefix)
        build_host(CACHE, _say)
    except BuildError as error:
        pytest.exit(str(error), returncode=1)


def _begin_elsewhere(config: pytest.Config) -> None:
    """Lets each worker read the folders of tests from another one on.

    In a new clone pytest compiles every file: so each compiles some, and finds the others'.
    """
    if [config.invocation_params.dir / name for name in config.args] != [REPO / "tests"]:
        return
    entries = sorted(path for path in (REPO / "tests").iterdir() if _has_tests(path))
    worker = int(config.workerinput["workerid"].removeprefix("gw"))  # type: ignore[attr-defined]
    first = worker * len(entries) // config.workerinput["workercount"]  # type: ignore[attr-defined]
    config.args = [str(path) for path in entries[first:] + entries[:first]]


def _has_tests(path: Path) -> bool:
    return path.match("test_*.py") or (path.is_dir() and any(path.rglob("test_*.py")))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Need:
    """How it shows that a test needs something: by fixtures that it uses, or by its file."""

    fixtures: frozenset[str] = frozenset()
    files: tuple[str, ...] = ()
    reason: str | None = None
    """Why such tests may take more than ``summary.LIMIT_S``, and up to :data:`LONG_S`."""
    again: tuple[str, ...] = ()
    """Files of them that ``make test-all`` alone runs."""


LONG_S = 900
"""Seconds that such tests may take under make; others 120."""
NEEDS = {
    "adbd": Need(frozenset({"adbd_prefix"})),
    "android": Need(
        frozenset({"android_prefix"}),
        ("android/", "device/test_android_"),
        "QEMU runs each instruction of the phone's processor in some twenty of this one's",
        again=("android/",),
    ),
    "browser": Need(frozenset({"browser"})),
    "docs": Need(
        files=("docs/", "notebooks/"), reason="runs every command of a page or notebook in turn"
    ),
    "postgres": Need(frozenset({"postgres"})),
    "whole": Need(
        files=(
            *("agent/", "api/", "bisection/test_bisect.py", "bundle/", "cli/", "device/"),
            *("doctor/", "emulator/", "examples/", "executorch/", "hostile/", "lab/", "library/"),
            "reports/",
        )
    ),
}
"""Markers, by what a test needs beside Python and a C compiler, or goes through; ``--quick`` leaves
these out."""
SMOKE = (
    *("agent/test_c_units.py", "agent/test_run_cpu.py", "agent/test_run_nnapi.py"),
    "cli/test_smoke.py",
    *("device/test_host_nnapi.py", "emulator/vectors/test_aosp.py", "reports/test_markdown.py"),
)
"""Files of such folders that ``--quick`` runs, too: each part once, with real agents."""
COMPILING = (
    *("cli/test_agent.py", "convert/test_cpp.py", "device/test_build.py", "device/test_xnnpack.py"),
    *("executorch/", "library/", "partition/test_kernels_sanitized.py", "qnn/"),
    "test_packaging.py",
)
"""Files whose tests compile, for minutes where the cache is empty: they may take LONG_S."""
SAMPLED = ("convert/test_ops.py", "emulator/vectors/test_aosp.py")
"""Files of which ``--quick`` runs an eighth, the same one each time."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files that ``--quick`` leaves out whole are not even read."""
    if not config.getoption("--quick") or not collection_path.is_relative_to(REPO / "tests"):
        return None
    file = collection_path.relative_to(REPO / "tests").as_posix() + "/" * collection_path.is_dir()
    if any(smoke.startswith(file) for smoke in SMOKE):
        return None
    return any(file.startswith(need.files) for need in NEEDS.values() if need.files) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Collects no garbage while modules and tests pile up, which all stay: that would be two fifths
    of the time; nor looks for any among them later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    phone = config.getoption("--device")
    skip = pytest.mark.skip(reason="needs a phone: --device SERIAL")
    for item in items:
        file = item.path.relative_to(REPO / "tests").as_posix()
        fixtures = set(getattr(item, "fixturenames", ()))
        for marker, need in NEEDS.items():
            if (file.startswith(need.files) and file not in SMOKE) or need.fixtures & fixtures:
                item.add_marker(marker)
                if need.reason is not None:
                    mark = pytest.mark.again if file.startswith(need.again) else pytest.mark.slow
                    item.add_marker(mark(need.reason))
                    item.add_marker(pytest.mark.timeout(LONG_S))
        if file.startswith(COMPILING):
            item.add_marker(pytest.mark.timeout(LONG_S))
        if phone is None and item.get_closest_marker("device"):
            item.add_marker(skip)
    if not config.getoption("--everything"):
        config.hook.pytest_deselected(items=[item for item in items if marked(item, "again")])
        items[:] = [item for item in items if not marked(item, "again")]
    if config.getoption("--quick"):
        config.hook.pytest_deselected(items=[item for item in items if not is_quick(item)])
        items[:] = [item for item in items if is_quick(item)]
    # Files that take longest begin, so that no worker is left alone with one at the end.
    seconds = summary.seconds_by_file()
    long = {item.path for item in items if marked(item, "docs", "slow")}
    items.sort(
        key=lambda item: (
            -seconds[item.nodeid.partition("::")[0]],
            item.path not in long,
            item.path,
        )
    )


def is_quick(item: pytest.Item) -> bool:
    """Whether a test is one of ``--quick``."""
    sampled = item.path.relative_to(REPO / "tests").as_posix() in SAMPLED
    return not marked(item, *NEEDS, "slow") and not (sampled and crc32(item.name.encode()) % 8)


def marked(item: pytest.Item, *markers: str) -> bool:
    """Whether a test has one of them."""
    return any(mark.name in markers for mark in item.iter_markers())


def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> None:
    """A test that asks for a fixture at run time says with a marker that it will."""
    item = request._pyfuncitem
    for marker, need in NEEDS.items():
        if fixturedef.argname in need.fixtures and not marked(item, marker):
            pytest.fail(f"{item.nodeid} uses {fixturedef.argname}: mark it {marker}", pytrace=False)


@pytest.fixture
def phone_serial(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, no_devices: None
) -> str:
    """The phone of ``--device``, for tests marked ``device``, by the user's keys and server."""
    for name in ("ADB_SERVER_SOCKET", "ANDROID_USER_HOME"):
        monkeypatch.delenv(name)
    return str(request.config.getoption("--device"))


@pytest.fixture(scope="session", autouse=True)
def session_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Builds go to the repository's own cache; the developer's adb keys are left alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNAPI_PROF_CACHE_DIR", str(CACHE))
        patch.setenv("ANDROID_USER_HOME", str(tmp_path_factory.mktemp("android")))
        for name in ("ADB_VENDOR_KEYS", "NNAPI_PROF_CC", "NNAPI_PROF_REMOTE_DIR"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def _nowhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder. Most tests need none of their own, and to make thousands takes long."""
    return tmp_path_factory.mktemp("nowhere")


@pytest.fixture(autouse=True)
def no_devices(monkeypatch: pytest.MonkeyPatch, _nowhere: Path) -> None:
    """No phone is named and no adb server is in reach, unless a test says so."""
    for name in ("ANDROID_SERIAL", "NNAPI_EMULATOR_PHONE", "ANDROID_ADB_SERVER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ADB_SERVER_SOCKET", f"localfilesystem:{_nowhere}/no-adb-server")


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """What a test draws without a seed of its own is the same in each run, for example never six
    negative numbers where a ReLU's zeros would be divided by each other."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)


@pytest.fixture(scope="session")
def built_host() -> HostBuild:
    """Agent and emulator for this host, in the repository's build cache."""
    return build_host(CACHE)


@pytest.fixture(scope="session")
def emulator_library(built_host: HostBuild) -> Path:
    """Our libneuralnetworks.so."""
    return built_host.library


@pytest.fixture(scope="session")
def nnapi_library(built_host: HostBuild) -> Path:
    """The emulator's library, loaded: stock PyTorch then finds it by its soname.

    NNAPI_PROF_TEST_LIBRARY names another.
    """
    path = Path(os.environ.get("NNAPI_PROF_TEST_LIBRARY") or built_host.library)
    ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    return path


@pytest.fixture(scope="session")
def adbd_prefix() -> Path:
    """Debian's adbd, set up once in build/adbd or $NNAPI_PROF_ADBD_PREFIX.

    Skips where that is impossible; NNAPI_PROF_SKIP_ADBD=1 skips on purpose.
    """
    if os.environ.get("NNAPI_PROF_SKIP_ADBD") == "1":
        pytest.skip("NNAPI_PROF_SKIP_ADBD=1")
    prefix = Path(os.environ.get("NNAPI_PROF_ADBD_PREFIX") or REPO / "build" / "adbd")
    try:
        return rig.set_up(prefix)
    except rig.RigError as error:
        missing(f"Debian's adbd cannot be set up (needs apt-get and its mirror): {error}")


@pytest.fixture
def start_daemon(adbd_prefix: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Starts adbd devices that end with the test: ``start_daemon(phone=NAME) -> Daemon``.

    With ``phone`` the device has our emulator as its NNAPI and is that simulated phone (a name of
    emulator/phones, a path, or "" for the emulator in real time); without, it has no NNAPI. Other
    arguments are those of ``start_daemon`` in tests/adbd/daemon.py.
    """
    shim = rig.build_shim(adbd_prefix, find_compiler(CACHE).path)
    daemons = []

    def start(phone: str | Path | None = None, **options: Any) -> Any:
        if phone is not None:
            options["library_dir"] = request.getfixturevalue("emulator_library").parent
        if phone:
            own = isinstance(phone, Path)
            options["phone"] = phone if own else PHONES / f"{phone}.json"
        daemon = rig.start_daemon(adbd_prefix, shim, **options)
        daemons.append(daemon)
        return daemon

    yield start
    for daemon in daemons:
        daemon.stop()


@pytest.fixture
def start_adbd(
    start_daemon: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Starts an adbd device; ``start_adbd(phone=NAME)`` gives what ``--device`` takes."""

    def start(phone: str | Path | None = None, **options: Any) -> str:
        daemon = start_daemon(phone, **options)
        if not daemon.private:  # no mount namespace: the agent's folder is elsewhere on the host
            monkeypatch.setenv("NNAPI_PROF_REMOTE_DIR", daemon.remote_dir)
        return str(daemon.serial)

    return start


class AdbServerProcess:
    """A real adb server on a port of its own."""

    def __init__(self, adb: str, port: int, home: Path) -> None:
        self.port = port
        self._adb = adb
        self._env = {"HOME": str(home), "PATH": os.environ["PATH"]}
        self._process = self._start("nodaemon", "server")
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            time.sleep(0.05)
        self.stop()
        pytest.fail(f"{adb} did not start a server on port {port}")

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        null = subprocess.DEVNULL
        command = [self._adb, "-P", str(self.port), *arguments]
        return subprocess.Popen(command, env=self._env, stdin=null, stdout=null, stderr=null)

    def adb(self, *arguments: str) -> str:
        """Runs the adb client; returns what it says."""
        command = [self._adb, "-P", str(self.port), *arguments]
        result = subprocess.run(
            command, env=self._env, capture_output=True, text=True, timeout=60, check=False
        )
        return result.stdout + result.stderr

    def connect(self, serial: str) -> None:
        """Makes the server own a device that listens on TCP."""
        text = self.adb("connect", serial)
        assert f"connected to {serial}" in text, text

    def begin_connect(self, serial: str) -> subprocess.Popen[bytes]:
        """As :meth:`connect`, without waiting, for devices that never answer; kill the result."""
        return self._start("connect", serial)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(10)


@pytest.fixture
def adb_server(
    adbd_prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AdbServerProcess]:
    """A real adb server, of the system's adb or else the rig's; it owns no device yet."""
    adb = shutil.which("adb") or str(adbd_prefix / "bin" / "adb")
    server = AdbServerProcess(adb, rig.free_port(), tmp_path)
    monkeypatch.delenv("ADB_SERVER_SOCKET", raising=False)
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(server.port))
    yield server
    server.stop()
