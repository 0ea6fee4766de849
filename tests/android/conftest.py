"""What tests of the Android agents share: phones to run them on."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nnapi_prof.toolchain import find_compiler
from tests.android.phone import AndroidPhone, build_phone
from tests.android.phone_root import HERE

REPO = Path(__file__).resolve().parent.parent.parent
PHONES = REPO / "device_agent/emulator/phones"


@pytest.fixture(scope="session")
def android_prefix() -> Path:
    """What phones are made of, set up once in build/android or $NNAPI_PROF_ANDROID_PREFIX.

    A machine where that is impossible fails, so that nobody believes the agents were tested;
    NNAPI_PROF_SKIP_ADBD=1 skips on purpose.
    """
    if os.environ.get("NNAPI_PROF_SKIP_ADBD") == "1":
        pytest.skip("NNAPI_PROF_SKIP_ADBD=1")
    if platform.machine() != "x86_64":
        pytest.skip("the phone's native programs are those of x86-64")
    prefix = Path(os.environ.get("NNAPI_PROF_ANDROID_PREFIX") or REPO / "build/android")
    rig = sys.modules["nnapi_prof_rig"]
    try:
        found: Path = rig.set_up(prefix, HERE / "setup_android.sh")
    except rig.RigError as error:
        pytest.fail(str(error), pytrace=False)
    return found


@pytest.fixture(scope="session")
def android_phone(
    android_prefix: Path, adbd_prefix: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], AndroidPhone]:
    """``android_phone(ABI)``: its files, made once."""
    phones: dict[str, AndroidPhone] = {}

    def phone(abi: str) -> AndroidPhone:
        if abi not in phones:
            folder = tmp_path_factory.mktemp("phone") / abi
            phones[abi] = build_phone(abi, folder, android_prefix, adbd_prefix)
        return phones[abi]

    return phone


@pytest.fixture
def start_phone(
    android_phone: Callable[[str], AndroidPhone], adbd_prefix: Path
) -> Iterator[Callable[..., str]]:
    """Starts an Android device; ``start_phone(ABI, NAME)`` gives what ``--device`` takes.

    NAME is that of a simulated phone, None for the emulator in real time; ``faults`` is the text of
    NNAPI_EMULATOR_FAULTS.
    """
    rig = sys.modules["nnapi_prof_rig"]
    if rig.mount_isolation() is None:
        words = "an Android phone needs mounts of its own: run as root"
        if os.environ.get("NNAPI_PROF_REQUIRE_ALL") == "1":
            pytest.fail(words)
        pytest.skip(words)
    shim = rig.build_shim(adbd_prefix, find_compiler(REPO / "build/cache").path)
    daemons: list[Any] = []

    def start(abi: str, name: str | None = None, faults: str = "") -> str:
        daemon = rig.start_daemon(
            adbd_prefix,
            shim,
            root=android_phone(abi).root,
            phone=None if name is None else PHONES / f"{name}.json",
            properties={"ro.product.cpu.abi": abi},
            environment={"NNAPI_EMULATOR_FAULTS": faults} if faults else {},
        )
        daemons.append(daemon)
        return str(daemon.serial)

    yield start
    for daemon in daemons:
        daemon.stop()
