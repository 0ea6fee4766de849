"""The wheel's list of packages against the disk, and what the top-level names load."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from nnapi_prof.device import build
from nnapi_prof.errors import BuildError
from tests.processes import output_of

ROOT = Path(__file__).resolve().parent.parent
MAPPED = ("partition", "reports", "device_agent")


def configuration() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_on_disk_is_in_the_list():
    packages = set()
    for name in ("nnapi_prof", *MAPPED):
        for init in (ROOT / name).rglob("__init__.py"):
            parts = init.parent.relative_to(ROOT).parts
            packages.add(".".join(parts if name == "nnapi_prof" else ("nnapi_prof", *parts)))
    assert packages == set(configuration()["tool"]["setuptools"]["packages"])


def test_links_point_to_the_top_level_folders():
    for name in MAPPED:
        link = ROOT / "nnapi_prof" / name
        assert link.is_symlink()
        assert link.readlink() == Path("..") / name


def test_every_data_pattern_matches_a_file():
    setuptools = configuration()["tool"]["setuptools"]
    for package, patterns in setuptools["package-data"].items():
        folder = ROOT / setuptools["package-dir"].get(package, package.replace(".", "/"))
        for pattern in patterns:
            if pattern.startswith("agents/"):
                continue  # `make wheel` puts them there
            assert list(folder.glob(pattern)), f"{package}: {pattern} matches nothing"


WITHOUT_EXECUTORCH = """
from nnapi_prof import documents
documents.plugins = lambda group: {}
from nnapi_prof.cli import bisect, convert, measure
formats = next(p for p in convert.command.params if p.name == 'formats').type.choices
assert list(formats) == ['stock', 'json', 'cpp', 'runtime', 'qnn'], formats
assert not any('--executorch' in p.opts for p in bisect.command.params)
"""


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("from nnapi_prof.cli import cli; cli.main(['--help'], standalone_mode=False)",
         "torch pandas numpy matplotlib adb_shell"),
        ("import nnapi_prof.partition", "torch adb_shell usb1 pandas sqlalchemy"),
        ("import nnapi_prof.execution.profile.session", "torch"),
        ("import nnapi_prof.reports.html", "torch adb_shell matplotlib.pyplot"),
        (WITHOUT_EXECUTORCH, "nnapi_prof.executorch"),
    ],
)  # fmt: skip
def test_what_a_part_does_not_load(code, heavy):
    code += f"\nimport sys\nprint({set(heavy.split())} & set(sys.modules))"
    assert output_of([sys.executable, "-c", code], cwd=ROOT).splitlines()[-1] == "set()"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """What git has of this repository, without its history."""
    folder = tmp_path_factory.mktemp("checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        if name.split("/")[0] in ("tests", "notebooks", "benchmarks", "examples"):
            continue
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(source.readlink())
        elif source.exists():
            shutil.copy2(source, target)
    return folder


def built_wheel(checkout: Path, out: Path) -> Path:
    """As `make wheel` builds it, at a fixed date."""
    code = f"from setuptools import build_meta; print(build_meta.build_wheel({str(out)!r}))"
    dated = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    output_of([sys.executable, "-c", code], cwd=checkout, env=dated)
    (wheel,) = out.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    return wheel


def wheel_names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as file:
        return set(file.namelist())


@pytest.mark.slow
def test_a_wheel_has_the_agents_of_every_device_and_all_sources(checkout, tmp_path):
    without = wheel_names(built_wheel(checkout, tmp_path / "without"))
    assert not any(name.startswith("nnapi_prof/device/agents/") for name in without)
    folder = checkout / "nnapi_prof" / "device" / "agents"
    for os_name, abi in build.SHIPPED:
        (folder / f"{os_name}-{abi}").mkdir(parents=True)
        (folder / f"{os_name}-{abi}" / "agent").write_bytes(b"\x7fELF")
    (folder / "sources").write_text("key\n")
    brought = {"nnapi_prof/device/agents/sources"} | {
        f"nnapi_prof/device/agents/{os_name}-{abi}/agent" for os_name, abi in build.SHIPPED
    }
    wheel = built_wheel(checkout, tmp_path / "with")
    assert wheel_names(wheel) - without == brought
    for number, file in enumerate(checkout.rglob("*.py")):  # as in another checkout of another day
        os.utime(file, (number, number + 10**9))
    shutil.rmtree(checkout / "build")
    again = built_wheel(checkout, tmp_path / "again")
    assert again.read_bytes() == wheel.read_bytes()
    assert {f"android-{abi}" for abi in ("arm64-v8a", "armeabi-v7a", "x86_64")} <= {
        name.split("/")[3] for name in brought
    }
    # What is not brought is built: everything that a build reads is there.
    sources = {p.relative_to(ROOT / "device_agent").as_posix() for p in build.all_sources()}
    missing = {s for s in sources if f"nnapi_prof/device_agent/{s}" not in without}
    assert missing == set()


def test_agents_of_other_sources_are_left_aside(tmp_path):
    def shipped(abi="arm64-v8a", key="key"):
        return build.shipped_agent(abi, "android", key, tmp_path)

    agent = tmp_path / "android-arm64-v8a" / "agent"
    agent.parent.mkdir()
    assert shipped() is None
    agent.write_bytes(b"")
    assert shipped() is None
    (tmp_path / "sources").write_text("key\n")
    assert shipped() == agent
    assert shipped(key="other") is None and shipped(abi="x86_64") is None


def test_a_shipped_agent_is_taken_and_nothing_built(tmp_path, monkeypatch):
    agent = tmp_path / "android-x86_64" / "agent"
    agent.parent.mkdir()
    agent.write_bytes(b"")
    (tmp_path / "sources").write_text(build.sources_key())
    monkeypatch.setattr(build.shipped_agent, "__defaults__", (tmp_path,))
    heard: list[str] = []
    assert build.agent_binary("x86_64", "android", heard.append) == agent
    assert heard == []


def test_without_shipped_agents_the_build_is_announced(tmp_path, monkeypatch):
    """As after `pip install` of an sdist; here the build fails as soon as it has spoken."""
    monkeypatch.setattr(build.shipped_agent, "__defaults__", (tmp_path,))
    monkeypatch.setenv("NNAPI_PROF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("NNAPI_PROF_XNNPACK", "")
    monkeypatch.setattr(build, "SOURCE_DIR", tmp_path)
    heard: list[str] = []
    with pytest.raises(BuildError, match="the agent could not be configured"):
        build.agent_binary("arm64-v8a", "android", heard.append)
    assert heard == ["building the agent for android-arm64-v8a with zig"]
