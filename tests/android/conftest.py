"""What tests of the Android agents share: phones to run them on."""

import contextlib
import functools
import os
import platform
from pathlib import Path
from typing import Any

import pytest

from nnapi_prof.toolchain import find_compiler
from tests.android.google import GooglePhone, build_google_phone, runtimes_folder, why_missing
from tests.android.phone import HERE, AndroidPhone, build_for_phones, build_phone
from tests.conftest import CACHE, PHONES, REPO, rig
from tests.parts import missing


@pytest.fixture(scope="session")
def android_prefix():
    """What phones are made of, set up once in build/android or $NNAPI_PROF_ANDROID_PREFIX.

    Skips where that is impossible; NNAPI_PROF_SKIP_ADBD=1 skips on purpose.
    """
    if os.environ.get("NNAPI_PROF_SKIP_ADBD") == "1":
        pytest.skip("NNAPI_PROF_SKIP_ADBD=1")
    if platform.machine() != "x86_64":
        pytest.skip("the phone's native programs are those of x86-64")
    prefix = Path(os.environ.get("NNAPI_PROF_ANDROID_PREFIX") or REPO / "build/android")
    try:
        return rig.set_up(prefix, HERE / "setup_android.sh")
    except rig.RigError as error:
        missing(f"a phone's files cannot be set up (needs apt-get and its mirror): {error}")


@pytest.fixture(scope="session")
def android_phone(android_prefix, adbd_prefix, tmp_path_factory):
    """``android_phone(ABI)``: its files, made once."""

    @functools.cache
    def phone(abi: str) -> AndroidPhone:
        folder = tmp_path_factory.mktemp("phone") / abi
        return build_phone(abi, folder, android_prefix, adbd_prefix)

    return phone


@pytest.fixture(scope="session")
def google_phone(request, tmp_path_factory):
    """``google_phone(API)``: a phone with Google's own runtime of that level, made once.

    Skips where the runtimes are not at hand, NNAPI_PROF_REQUIRE_ALL=1 or not: nobody can fetch
    them.
    """
    folder = runtimes_folder()
    if missing := why_missing(folder):
        pytest.skip(missing)
    prefixes = [request.getfixturevalue(name) for name in ("android_prefix", "adbd_prefix")]

    @functools.cache
    def phone(api: int) -> GooglePhone:
        root = tmp_path_factory.mktemp("google") / str(api)
        return build_google_phone(api, root, folder, *prefixes)

    return phone


@pytest.fixture
def start_root(adbd_prefix):
    """Starts an Android device of a phone's files; ``start_root(FILES, ...)``, with options of
    ``start_daemon`` in tests/adbd/daemon.py, gives what ``--device`` takes."""
    if rig.mount_isolation() is None:
        missing("an Android phone needs mounts of its own: run as root")
    shim = rig.build_shim(adbd_prefix, find_compiler(CACHE).path)
    with contextlib.ExitStack() as running:

        def start(files: AndroidPhone, **options: Any) -> str:
            daemon = rig.start_daemon(adbd_prefix, shim, root=files.root, **options)
            running.callback(daemon.stop)
            return str(daemon.serial)

        yield start


@pytest.fixture
def start_phone(android_phone, start_root):
    """Starts an Android device; ``start_phone(ABI, NAME)`` gives what ``--device`` takes.

    NAME is that of a simulated phone, None for the emulator in real time; ``faults`` is the text of
    NNAPI_EMULATOR_FAULTS.
    """

    def start(abi: str, name: str | None = None, faults: str = "") -> str:
        phone = None if name is None else PHONES / f"{name}.json"
        properties = {"ro.product.cpu.abi": abi}
        environment = {"NNAPI_EMULATOR_FAULTS": faults} if faults else {}
        return start_root(
            android_phone(abi), phone=phone, properties=properties, environment=environment
        )

    return start


@pytest.fixture
def start_google(google_phone, start_root):
    """Starts an Android device with Google's own NNAPI; ``start_google(API)`` gives what
    ``--device`` takes."""

    def start(api: int) -> str:
        phone = google_phone(api)
        return start_root(phone, properties=phone.properties, environment=phone.environment)

    return start


@pytest.fixture(scope="session")
def embedded(session_environment):
    """``embedded(STATIC)``: what an app brings along, the program first. Built in the cache."""

    def build(static: bool) -> list[Path]:
        options = [f"-DEMBED_STATIC={'ON' if static else 'OFF'}"]
        source = REPO / "examples/embed"
        folder = build_for_phones("embed-arm64-v8a", source, "arm64-v8a", options)
        library = folder / "nnapi_prof/library/libnnapi_prof_runtime.so"
        return [folder / "classify", *(() if static else (library,))]

    return build
