"""The agents for Android as they are, without a device: QEMU, and musl in bionic's place."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.android.phone import AndroidPhone
from tests.conftest import REPO

ABIS = ("arm64-v8a", "armeabi-v7a", "x86_64")

# They race with the clock, and QEMU is slow.
NOT_UNDER_QEMU = (
    "test_slow_actions_meet_the_watchdog",
    "test_rounds_are_repeated_when_the_device_has_cooled_down",
)


def say(phone: AndroidPhone, *arguments: str) -> str:
    done = subprocess.run(
        phone.command(*arguments), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("abi", ABIS)
def test_starts(abi, android_phone):
    """By the phone's dynamic linker, with the phone's libc; its NNAPI is found by name."""
    phone = android_phone(abi)
    assert say(phone, "version").startswith("nnapi-prof agent ")
    info = json.loads(say(phone, "info"))
    assert info["abi"] == abi
    assert info["cpus"] == os.cpu_count()
    assert info["memory_kb"] > 100_000
    assert info["nnapi"]["error"] is None
    assert info["nnapi"]["library"].endswith("/libneuralnetworks.so")
    assert [a["name"] for a in info["nnapi"]["accelerators"]] == ["nnapi-reference"]


def run_the_agents_tests(
    phone: AndroidPhone, folder: Path, left_out: Iterable[str] = (), files: Iterable[str] = ("",)
) -> None:
    """Those of tests/agent, or of these files there, with a phone's agent; ``folder`` is new.

    ``left_out`` has expressions of pytest's ``-k`` for more than what no QEMU does.
    """
    phone.build_folder(folder)
    chosen = " and ".join(f"not ({name})" for name in (*NOT_UNDER_QEMU, *left_out))
    command = [sys.executable, "-m", "pytest", "-q", "--durations=5", "-rP"]
    command += ["-p", "no:cacheprovider", "-k", chosen]
    build = {"NNAPI_PROF_TEST_BUILD": str(folder), "NNAPI_PROF_TEST_CC": str(folder / "cc")}
    done = subprocess.run(
        [*command, *(f"tests/agent/{name}" for name in files)],
        cwd=REPO,
        env=os.environ | build,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    lines = done.stdout.splitlines()
    errors = [line for line in lines if "roundings off" in line]  # of float16 on ARM
    print("\n".join(lines if done.returncode else [*errors, *lines[-8:]]))
    assert done.returncode == 0


def test_the_agents_own_tests(android_phone, tmp_path):
    """All of tests/agent with the agent for arm64-v8a."""
    run_the_agents_tests(android_phone("arm64-v8a"), tmp_path)
