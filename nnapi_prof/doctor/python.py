"""Python and the packages: there, new enough, and of one mind with each other."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import nnapi_prof
from nnapi_prof.doctor.findings import Family, Finding
from nnapi_prof.doctor.registry import Host, host_checks

PYTHON = Family("Python")
_PIP = "python -m pip install"


@host_checks(PYTHON.name)
def python_itself(_: Host) -> Iterator[Finding]:
    wanted = requires_python()
    here = platform.python_version()
    bounds = _specifiers(wanted)
    if bounds.contains(here, prereleases=True):
        yield PYTHON.ok("Python", f"{here} ({wanted} is wanted), {sys.executable}")
        return
    yield PYTHON.problem(
        "Python",
        f"{here} is too old or too new: {wanted} is wanted",
        "make an environment of such a Python: python3.11 -m venv .venv && "
        ".venv/bin/pip install nnapi-prof",
    )


@host_checks(PYTHON.name)
def packages(_: Host) -> Iterator[Finding]:
    """Every dependency, by its metadata: importing torch alone would take seconds."""
    from packaging.requirements import Requirement

    for text in requirements():
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        yield _package(wanted)
        for extra in sorted(wanted.extras):
            yield from _extra(wanted.name, extra)


@host_checks(PYTHON.name)
def conflicts(_: Host) -> Iterator[Finding]:
    """Installed packages that want another version of one of ours than is installed."""
    from packaging.requirements import Requirement

    ours = {_normal(Requirement(text).name) for text in requirements()}
    clashes = list(_clashes(ours))
    yield from clashes
    for name in sorted(ours):
        places = _places(name)
        if len(places) > 1:
            yield PYTHON.warning(
                name,
                f"installed more than once: {', '.join(places)}; the first is used",
                f"python -m pip uninstall {name} (until none is left), then {_PIP} {name}",
            )
    if not clashes:
        yield PYTHON.ok("agreement", "no installed package wants another version of these")


def requires_python() -> str:
    """``>=3.11``: of the source tree's pyproject.toml, else of the installed package."""
    project = _project()
    if project is not None:
        return str(project["requires-python"])
    return str(metadata.metadata("nnapi-prof")["Requires-Python"])


def requirements() -> list[str]:
    """Our dependencies as they are declared: ``numpy>=1.26``."""
    project = _project()
    if project is not None:
        return [str(line) for line in project["dependencies"]]
    return metadata.requires("nnapi-prof") or []


def _project() -> dict[str, Any] | None:
    """The table ``project`` of the pyproject.toml that stands beside a source tree."""
    import tomllib

    path = Path(nnapi_prof.__file__).resolve().parent.parent / "pyproject.toml"
    if not path.is_file():
        return None
    project: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {})
    return project if project.get("name") == "nnapi-prof" else None


def _package(wanted: Any) -> Finding:
    try:
        version = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        return PYTHON.problem(
            wanted.name, f"not installed: {wanted} is wanted", f"{_PIP} '{wanted}'"
        )
    if not wanted.specifier.contains(version, prereleases=True):
        return PYTHON.problem(
            wanted.name, f"{version} is installed: {wanted} is wanted", f"{_PIP} '{wanted}'"
        )
    return PYTHON.ok(wanted.name, f"{version}{_build(wanted.name, version)}")


def _build(name: str, version: str) -> str:
    """What a build of torch is for, by its version's end."""
    if name != "torch":
        return ""
    _, _, local = version.partition("+")
    if local in ("", "cpu"):
        return ", for the CPU" if local else ""
    return f", for {local}: larger than need be, a CPU build does"


def _extra(name: str, extra: str) -> Iterator[Finding]:
    """What a dependency brings along under an extra: ``adb-shell[usb]`` has libusb1."""
    from packaging.requirements import Requirement

    try:
        texts = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return  # said already
    for text in texts:
        wanted = Requirement(text)
        marker = wanted.marker
        only_then = marker is not None and not marker.evaluate({"extra": ""})
        if marker is not None and only_then and marker.evaluate({"extra": extra}):
            yield _package(wanted)


def _clashes(names: set[str]) -> Iterator[Finding]:
    from packaging.requirements import InvalidRequirement, Requirement

    for package in metadata.distributions():
        for text in package.requires or []:
            if _normal(re.split(r"[^\w.-]", text, maxsplit=1)[0]) not in names:
                continue
            try:
                wanted = Requirement(text)
            except InvalidRequirement:
                continue  # of a package that is none of ours, and pip did not mind
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
                continue
            try:
                version = metadata.version(wanted.name)
            except metadata.PackageNotFoundError:
                continue
            if not wanted.specifier.contains(version, prereleases=True):
                whose = f"{package.metadata['Name']} {package.version}"
                yield PYTHON.problem(
                    wanted.name,
                    f"{whose} wants {wanted.name}{wanted.specifier}, {version} is installed",
                    f"{_PIP} --upgrade {package.metadata['Name']} "
                    f"'{wanted.name}{wanted.specifier}'",
                )


def _places(name: str) -> list[str]:
    """Folders of the path that hold a package."""
    found = (str(d.locate_file("")) for d in metadata.distributions(name=name))
    return list(dict.fromkeys(str(Path(place).resolve()) for place in found))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _specifiers(text: str) -> Any:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(text)
