"""Python, its packages, compilers and build tools: there, new enough, and able to do their work."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from nnapi_prof.doctor.checks import CheckResult, Family, Host, ok, problem, warning
from nnapi_prof.errors import BuildError
from nnapi_prof.toolchain import find_zig, python_tool

PYTHON = Family("Python")
COMPILERS = Family("Compilers")

LIMIT_S = 20.0
"""For one compilation of a few lines."""
_PROGRAM = (
    "#include <math.h>\n#include <pthread.h>\n#include <stdio.h>\n"
    'int main(int n, char **words) { (void)words; return printf("%.0f", sqrt(n * 4.0)) < 0; }\n'
)
_SAYS = "2"
_INSTALL = "sudo apt install gcc libc6-dev (or your system's C compiler)"


@PYTHON("Python")
def python_itself(_: Host) -> CheckResult:
    from packaging.specifiers import SpecifierSet

    here, required = platform.python_version(), requires_python()
    if SpecifierSet(required).contains(here, prereleases=True):
        return ok(f"{here} ({required} is wanted), {sys.executable}")
    return problem(
        f"{here} is too old or too new: {required} is wanted",
        "make an environment of such a Python: python3.11 -m venv .venv && "
        ".venv/bin/pip install nnapi-prof",
    )


@PYTHON("packages")
def packages(_: Host) -> CheckResult:
    """Every dependency, by its metadata: importing torch alone would take seconds."""
    there: list[str] = []
    missing: dict[str, str] = {}
    for requirement in _applicable(requirements()):
        _look(requirement, there, missing)
        for extra in sorted(requirement.extras):  # adb-shell[usb] has libusb1
            if requirement.name in there:
                for brought in _applicable(metadata.requires(requirement.name) or [], extra):
                    _look(brought, there, missing)
    if not missing:
        return ok(f"{len(there)} packages, torch {metadata.version('torch')}; `pip check` has more")
    words = "; ".join(f"{state}: {bounds} is wanted" for bounds, state in missing.items())
    return problem(words, f"python -m pip install {' '.join(map(repr, missing))}")


def _look(requirement: Any, there: list[str], missing: dict[str, str]) -> None:
    """Adds a requirement to those that are met, or to the others, with what is installed."""
    bounds = f"{requirement.name}{requirement.specifier}"
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        missing[bounds] = f"{requirement.name} is not installed"
        return
    if requirement.specifier.contains(version, prereleases=True):
        there.append(requirement.name)
    else:
        missing[bounds] = f"{requirement.name} {version} is installed"


def _applicable(texts: list[str], extra: str | None = None) -> Iterator[Any]:
    """Requirements that hold here: always, or (with an ``extra``) only under that one."""
    from packaging.requirements import Requirement

    for text in texts:
        requirement = Requirement(text)
        marker = requirement.marker
        always = marker is None or marker.evaluate({"extra": ""})
        if extra is None and always:
            yield requirement
        elif extra is not None and marker is not None and not always:
            if marker.evaluate({"extra": extra}):
                yield requirement


def requires_python() -> str:
    """``>=3.11``"""
    return str(metadata.metadata("nnapi-prof")["Requires-Python"])


def requirements() -> list[str]:
    """Our dependencies as they are declared: ``numpy>=1.26``."""
    return metadata.requires("nnapi-prof") or []


# ---- compilers and build tools: what they make has to run ----------------------------------------


@COMPILERS("C compiler")
def c_compiler(_: Host) -> CheckResult | None:
    """The compiler of this host's agent: the one that is named, else cc, else zig."""
    named = os.environ.get("NNAPI_PROF_CC", "")
    if named == "zig":
        return None  # has a check of its own
    flaw = _flaw(named or "cc")
    if flaw is None:
        return ok(f"{shutil.which(named or 'cc')} compiles, and its program runs")
    if named:
        return problem(flaw, "unset NNAPI_PROF_CC, or name a working one")
    if _zig_flaw() is not None:
        return problem(f"{flaw}, and zig does not work either", _INSTALL)
    if shutil.which("cc") is None:
        return ok(f"{flaw}: zig builds for this host, too")
    return warning(f"{flaw}: zig takes its place", _INSTALL)


@COMPILERS("zig")
def zig(_: Host) -> CheckResult:
    """The compiler of agents for Android."""
    flaw = _zig_flaw()
    if flaw is None:
        return ok("compiles for Android")
    return problem(
        f"no agent can be built for Android: {flaw}",
        "python -m pip install --force-reinstall ziglang",
    )


@COMPILERS("build tools")
def build_tools(_: Host) -> CheckResult:
    versions = []
    for name, folder in (("cmake", "CMAKE_BIN_DIR"), ("ninja", "BIN_DIR")):
        fix = f"python -m pip install --force-reinstall {name}"
        try:
            tool = python_tool(name, folder)
        except BuildError as error:
            return problem(str(error), fix)
        flaw, says = _call([tool, "--version"])
        if flaw is not None:
            return problem(f"{tool} {flaw}", fix)
        versions.append(f"{name} {says.splitlines()[0].removeprefix('cmake version ')}")
    return ok(", ".join(versions))


def _flaw(compiler: str) -> str | None:
    """Why a compiler cannot be used; None where its program runs and prints what it should."""
    path = shutil.which(compiler)
    if path is None:
        return f"there is no {compiler} on the PATH"
    with tempfile.TemporaryDirectory(prefix="nnapi-prof-") as work:
        source, program = Path(work) / "probe.c", f"{work}/probe"
        source.write_text(_PROGRAM)
        flaw, _ = _call([path, str(source), "-o", program, "-lm", "-lpthread"])
        if flaw is not None:
            return f"{path} does not compile a small program: it {flaw}"
        flaw, says = _call([program])
        if flaw is None and says != _SAYS:
            flaw = f"said {says!r} in place of {_SAYS!r}"
        return None if flaw is None else f"{path} compiles, but the program does not run: it {flaw}"


def _zig_flaw() -> str | None:
    """Why zig cannot be used; None where it compiles for Android. Nothing is linked: zig builds a
    libc at first use, for half a minute."""
    try:
        program, _ = find_zig()
    except (BuildError, OSError) as error:
        return str(error)
    with tempfile.TemporaryDirectory(prefix="nnapi-prof-") as work:
        source = Path(work) / "probe.c"
        source.write_text("int twice(int n) { return 2 * n; }\n")
        android = ["-target", "aarch64-linux-android", "-c", str(source), "-o", f"{work}/probe.o"]
        flaw, _ = _call([str(program), "cc", *android])
        return flaw and f"zig {flaw}"


def _call(command: list[str]) -> tuple[str | None, str]:
    """How a program failed (None: it did not), and what it printed."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )
    except OSError as error:
        return f"cannot be started: {error.strerror}", ""
    except subprocess.TimeoutExpired:
        return f"did not end within {LIMIT_S:g} s", ""
    if done.returncode == 0:
        return None, done.stdout
    words = [line for line in done.stderr.splitlines() if "error" in line.lower()]
    answer = (words or done.stderr.splitlines() or ["without a message"])[0]
    return f"ended with {done.returncode}: {answer.strip()[:200]}", done.stdout
