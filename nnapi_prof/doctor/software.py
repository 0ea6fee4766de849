"""Python, its packages, compilers and build tools: there, new enough, and able to do their work."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import nnapi_prof
from nnapi_prof.doctor.checks import Family, Finding, Host
from nnapi_prof.errors import BuildError
from nnapi_prof.toolchain import find_zig, python_tool

PYTHON = Family("Python")
_PIP = "python -m pip install"


@PYTHON.on_host
def python_itself(_: Host) -> Iterator[Finding]:
    required = requires_python()
    here = platform.python_version()
    bounds = _specifiers(required)
    if bounds.contains(here, prereleases=True):
        yield PYTHON("Python").ok(f"{here} ({required} is wanted), {sys.executable}")
        return
    yield PYTHON("Python").problem(
        f"{here} is too old or too new: {required} is wanted",
        "make an environment of such a Python: python3.11 -m venv .venv && "
        ".venv/bin/pip install nnapi-prof",
    )


@PYTHON.on_host
def packages(_: Host) -> Iterator[Finding]:
    """Every dependency, by its metadata: importing torch alone would take seconds."""
    from packaging.requirements import Requirement

    for text in requirements():
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        yield _package(requirement)
        for extra in sorted(requirement.extras):
            yield from _extra(requirement.name, extra)


@PYTHON.on_host
def conflicts(_: Host) -> Iterator[Finding]:
    """Installed packages that want another version of one of ours than is installed."""
    from packaging.requirements import Requirement

    ours = {_normal(Requirement(text).name) for text in requirements()}
    clashes = list(_clashes(ours))
    yield from clashes
    for name in sorted(ours):
        places = _places(name)
        if len(places) > 1:
            yield PYTHON(name).warning(
                f"installed more than once: {', '.join(places)}; the first is used",
                f"python -m pip uninstall {name} (until none is left), then {_PIP} {name}",
            )
    if not clashes:
        yield PYTHON("agreement").ok("no installed package wants another version of these")


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


def _package(requirement: Any) -> Finding:
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return PYTHON(requirement.name).problem(
            f"not installed: {requirement} is wanted", f"{_PIP} '{requirement}'"
        )
    if not requirement.specifier.contains(version, prereleases=True):
        return PYTHON(requirement.name).problem(
            f"{version} is installed: {requirement} is wanted", f"{_PIP} '{requirement}'"
        )
    return PYTHON(requirement.name).ok(f"{version}{_build(requirement.name, version)}")


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
        requirement = Requirement(text)
        marker = requirement.marker
        only_then = marker is not None and not marker.evaluate({"extra": ""})
        if marker is not None and only_then and marker.evaluate({"extra": extra}):
            yield _package(requirement)


def _clashes(names: set[str]) -> Iterator[Finding]:
    from packaging.requirements import InvalidRequirement, Requirement

    for package in metadata.distributions():
        for text in package.requires or []:
            if _normal(re.split(r"[^\w.-]", text, maxsplit=1)[0]) not in names:
                continue
            try:
                requirement = Requirement(text)
            except InvalidRequirement:
                continue  # of another package, and pip accepted it
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                continue
            try:
                version = metadata.version(requirement.name)
            except metadata.PackageNotFoundError:
                continue
            if not requirement.specifier.contains(version, prereleases=True):
                whose = f"{package.metadata['Name']} {package.version}"
                yield PYTHON(requirement.name).problem(
                    f"{whose} wants {requirement.name}{requirement.specifier}, "
                    f"{version} is installed",
                    f"{_PIP} --upgrade {package.metadata['Name']} "
                    f"'{requirement.name}{requirement.specifier}'",
                )


def _places(name: str) -> list[str]:
    """Folders of the path that hold a package."""
    folders = (str(d.locate_file("")) for d in metadata.distributions(name=name))
    return list(dict.fromkeys(str(Path(place).resolve()) for place in folders))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _specifiers(text: str) -> Any:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(text)


# ---- compilers and build tools: what they make has to run ----------------------------------------


COMPILERS = Family("Compilers")
LIMIT_S = 20.0
"""For one compilation of a few lines."""

_PROGRAM = (
    "#include <math.h>\n#include <pthread.h>\n#include <stdio.h>\n"
    'int main(int n, char **words) { (void)words; return printf("%.0f", sqrt(n * 4.0)) < 0; }\n'
)
_SAYS = "2"
# zig builds a libc at first use, for half a minute: what needs none tells as well that it works.
_EXITS = {
    "x86_64": '__asm__ volatile("syscall" : : "a"(60), "D"(0));',
    "aarch64": 'register long c __asm__("x8") = 93, s __asm__("x0") = 0; '
    '__asm__ volatile("svc 0" : : "r"(c), "r"(s));',
}
_INSTALL = "sudo apt install gcc libc6-dev (or your system's C compiler)"


@COMPILERS.on_host
def c_compilers(_: Host) -> Iterator[Finding]:
    """The compiler of this host's agent: the one that is named, else cc, else zig."""
    named = os.environ.get("NNAPI_PROF_CC", "")
    if named and named != "zig":
        flaw = _flaw(named)
        if flaw is None:
            yield COMPILERS("NNAPI_PROF_CC").ok(f"{named} compiles and its program runs")
        else:
            yield COMPILERS("NNAPI_PROF_CC").problem(
                flaw, "unset NNAPI_PROF_CC, or name a working one"
            )
        return
    zig = _zig_flaw()
    if zig is None:
        yield COMPILERS("zig").ok("compiles for Android, and its program runs here")
    else:
        yield COMPILERS("zig").problem(
            f"no agent can be built for Android: {zig}",
            "python -m pip install --force-reinstall ziglang",
        )
    if named == "zig":
        return
    yield from _system(zig is None)


def _system(has_zig: bool) -> Iterator[Finding]:
    flaw = _flaw("cc")
    if flaw is None:
        yield COMPILERS("cc").ok(f"{shutil.which('cc')} compiles and its program runs")
    elif has_zig and shutil.which("cc") is None:
        yield COMPILERS("cc").ok(f"{flaw}: zig builds for this host, too")
    elif has_zig:
        yield COMPILERS("cc").warning(f"{flaw}: zig takes its place", _INSTALL)
    else:
        yield COMPILERS("cc").problem(f"{flaw}, and zig does not work either", _INSTALL)
    if shutil.which("clang") is not None:
        flaw = _flaw("clang")
        if flaw is None:
            yield COMPILERS("clang").ok(f"{shutil.which('clang')} compiles and its program runs")
        else:
            yield COMPILERS("clang").warning(
                f"{flaw}: zig builds XNNPACK", "sudo apt install clang libc6-dev"
            )


@COMPILERS.on_host
def build_tools(_: Host) -> Iterator[Finding]:
    for name, folder in (("cmake", "CMAKE_BIN_DIR"), ("ninja", "BIN_DIR")):
        fix = f"python -m pip install --force-reinstall {name}"
        try:
            tool = python_tool(name, folder)
        except BuildError as error:
            yield COMPILERS(name).problem(str(error), fix)
            continue
        flaw, says = _call([tool, "--version"])
        if flaw is not None:
            yield COMPILERS(name).problem(f"{tool} {flaw}", fix)
        else:
            yield COMPILERS(name).ok(f"{says.splitlines()[0].removeprefix('cmake version ')}")


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
    """Why zig cannot be used; None where it compiles for Android and links a program for here."""
    try:
        zig, _ = find_zig()
    except (BuildError, OSError) as error:
        return str(error)
    with tempfile.TemporaryDirectory(prefix="nnapi-prof-") as work:
        source, program = Path(work) / "probe.c", f"{work}/probe"
        source.write_text("int twice(int n) { return 2 * n; }\n")
        android = ["-target", "aarch64-linux-android", "-c", str(source), "-o", f"{program}.o"]
        flaw, _ = _call([str(zig), "cc", *android])
        machine = platform.machine()
        if flaw is not None or machine not in _EXITS:
            return flaw and f"zig {flaw}"
        source.write_text(f"void _start(void) {{ {_EXITS[machine]} for (;;) {{}} }}\n")
        bare = ["-target", f"{machine}-linux-none", "-nostdlib", "-static", "-O1"]
        flaw, _ = _call([str(zig), "cc", *bare, str(source), "-o", program])
        if flaw is None:
            flaw, _ = _call([program])
        return None if flaw is None else f"zig {flaw}"


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
    answer = (words or done.stderr.splitlines() or ["without a word"])[0]
    return f"ended with {done.returncode}: {answer.strip()[:200]}", done.stdout
