"""The cache: full, read-only, without XNNPACK, with agents of other sources."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nnapi_prof.device import xnnpack
from nnapi_prof.doctor import Host, host
from tests.conftest import rig
from tests.doctor.common import problem, warning, well

_CODE = (
    "import json, dataclasses; from nnapi_prof.doctor import host;"
    "from nnapi_prof.doctor import Host\n"
    "found = {'cache': host.folder(Host()), 'cost table': host.cost_table(Host())}\n"
    "print(json.dumps([[name, e.level.value, e.found, e.fix] for name, e in found.items()]))"
)


def on_storage(folder: Path, options: str) -> dict[str, list[str]]:
    """What is found where ``folder`` is a file system of its own."""
    isolation = rig.mount_isolation()
    if isolation is None:
        pytest.skip("needs a mount namespace: run the tests as root")
    script = f'mount -t tmpfs -o {options} tmpfs "$0" && exec "$@"'
    command = [*isolation, "sh", "-c", script, str(folder), sys.executable, "-c", _CODE]
    own = {"CACHE_DIR": folder / "cache", "COSTS": folder / "costs" / "costs.sqlite"}
    env = os.environ | {f"NNAPI_PROF_{name}": str(path) for name, path in own.items()}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return {check: rest for check, *rest in json.loads(done.stdout)}


def test_full_storage(tmp_path):
    findings = on_storage(tmp_path, "size=16k")
    level, words, fix = findings["cache"]
    assert level == "problem"
    assert words == f"{tmp_path}/cache cannot be written to: No space left on device"
    assert fix.startswith("export NNAPI_PROF_CACHE_DIR=")
    level, words, fix = findings["cost table"]
    assert level == "problem" and "No space left on device" in words
    assert "--costs FILE" in fix


def test_read_only_storage(tmp_path):
    findings = on_storage(tmp_path, "ro")
    for check in ("cache", "cost table"):
        level, words, _ = findings[check]
        assert level == "problem" and words.endswith("Read-only file system")


@pytest.mark.parametrize(
    ("size", "level", "words"),
    [
        ("8m", "problem", "has 8.4 MB free: no agent can be built"),
        ("200m", "warning", "has 210 MB free: too little for XNNPACK"),
        ("2g", "ok", "is writable, 2.1 GB free"),
    ],
)
def test_room(tmp_path, size, level, words):
    finding = on_storage(tmp_path, f"size={size}")["cache"]
    assert finding[0] == level and finding[1] == f"{tmp_path}/cache {words}"


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
