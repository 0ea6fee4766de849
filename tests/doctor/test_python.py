"""Python and packages, as other environments have them."""

import subprocess
import sys
from pathlib import Path

import pytest

from nnapi_prof.doctor import Host, host
from tests.doctor.common import problem, well

REPO = Path(__file__).resolve().parents[2]


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


def test_this_environment_is_well():
    assert ">=3" in well(host.python_itself(Host()))
    assert " packages, torch 2" in well(host.packages(Host()))


def test_packages_that_are_too_old(site):
    install(site, "numpy", "1.24.4")
    install(site, "libusb1", "0.1")  # of adb-shell's extra usb
    finding, fix = problem(host.packages(Host()))
    assert "numpy 1.24.4 is installed: numpy>=" in finding
    assert "libusb1 0.1 is installed: libusb1>=" in finding
    assert fix.startswith("python -m pip install '") and "'numpy>=" in fix and "'libusb1>=" in fix


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
