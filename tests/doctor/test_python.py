"""Python and packages, as other environments have them."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from nnapi_prof.doctor import software
from nnapi_prof.doctor.checks import Host, Level
from tests.doctor.common import only, problem, warning, well

REPO = Path(__file__).resolve().parents[2]


def install(folder: Path, name: str, version: str, *requires: str) -> None:
    """What pip leaves of a package beside its files, on the path before all others."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {text}" for text in requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages that hides others of their names."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return tmp_path / "site"


def test_this_environment_is_well() -> None:
    findings = [*software.python_itself(Host()), *software.packages(Host())]
    assert [each for each in findings if each.level is not Level.OK] == []
    assert {each.check for each in findings} >= {"Python", "torch", "numpy", "adb-shell", "libusb1"}


def test_bounds_are_those_of_the_project() -> None:
    import tomllib

    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    assert software.requirements() == project["dependencies"]
    assert software.requires_python() == project["requires-python"]


def test_a_package_that_is_too_old(site: Path) -> None:
    install(site, "numpy", "1.24.4")
    finding, fix = problem(software.packages(Host()), "numpy")
    assert finding.startswith("1.24.4 is installed: numpy>=")
    assert fix.startswith("python -m pip install 'numpy>=")


def test_packages_of_two_minds_and_two_places(site: Path) -> None:
    here = metadata.version("numpy")
    install(site, "numpy", here)
    install(site, "old-thing", "0.1", "numpy<1.26", "nosuch>=1; extra == 'more'")
    findings = list(software.conflicts(Host()))
    (clash,) = (each for each in findings if each.level is Level.PROBLEM and each.check == "numpy")
    assert clash.found == f"old-thing 0.1 wants numpy<1.26, {here} is installed"
    assert clash.fix == "python -m pip install --upgrade old-thing 'numpy<1.26'"
    twice, fix = warning([each for each in findings if each.level is Level.WARNING], "numpy")
    assert twice.startswith(f"installed more than once: {site}, ")
    assert fix.startswith("python -m pip uninstall numpy")


def test_a_build_for_a_graphics_card(site: Path) -> None:
    install(site, "torch", "2.99.0+cu126")
    assert well(software.packages(Host()), "torch") == (
        "2.99.0+cu126, for cu126: larger than need be, a CPU build does"
    )


def test_a_package_that_is_missing(tmp_path: Path) -> None:
    """In a Python that sees nothing but what the check itself needs."""
    import click
    import packaging

    for module in (click, packaging):
        source = Path(str(module.__file__)).parent
        (tmp_path / source.name).symlink_to(source)
    code = (
        "from nnapi_prof.doctor import software; from nnapi_prof.doctor.checks import Host\n"
        "for each in software.packages(Host()): print(each.level.value, each.check, each.fix)"
    )
    command = [sys.executable, "-S", "-c", code]
    env = {"PYTHONPATH": f"{REPO}:{tmp_path}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert "problem torch python -m pip install 'torch>=" in done.stdout
    assert "problem ziglang python -m pip install 'ziglang>=" in done.stdout


def test_a_python_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "requires_python", lambda: ">=4")
    finding, fix = problem(software.python_itself(Host()))
    assert "is too old or too new: >=4 is wanted" in finding and "-m venv" in fix
    assert only(software.python_itself(Host())).check == "Python"
