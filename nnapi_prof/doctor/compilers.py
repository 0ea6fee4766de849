"""Compilers and build tools: what they make has to run."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from nnapi_prof.doctor.findings import Family, Finding
from nnapi_prof.doctor.registry import Host, host_checks
from nnapi_prof.errors import BuildError
from nnapi_prof.toolchain import find_zig, python_tool

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


@host_checks(COMPILERS.name)
def c_compilers(_: Host) -> Iterator[Finding]:
    """The compiler of this host's agent: the one that is named, else cc, else zig."""
    named = os.environ.get("NNAPI_PROF_CC", "")
    if named and named != "zig":
        flaw = _flaw(named)
        if flaw is None:
            yield COMPILERS.ok("NNAPI_PROF_CC", f"{named} compiles and its program runs")
        else:
            yield COMPILERS.problem(
                "NNAPI_PROF_CC", flaw, "unset NNAPI_PROF_CC, or name a working one"
            )
        return
    zig = _zig_flaw()
    if zig is None:
        yield COMPILERS.ok("zig", "compiles for Android, and its program runs here")
    else:
        yield COMPILERS.problem(
            "zig",
            f"no agent can be built for Android: {zig}",
            "python -m pip install --force-reinstall ziglang",
        )
    if named == "zig":
        return
    yield from _system(zig is None)


def _system(has_zig: bool) -> Iterator[Finding]:
    flaw = _flaw("cc")
    if flaw is None:
        yield COMPILERS.ok("cc", f"{shutil.which('cc')} compiles and its program runs")
    elif has_zig and shutil.which("cc") is None:
        yield COMPILERS.ok("cc", f"{flaw}: zig builds for this host, too")
    elif has_zig:
        yield COMPILERS.warning("cc", f"{flaw}: zig takes its place", _INSTALL)
    else:
        yield COMPILERS.problem("cc", f"{flaw}, and zig does not work either", _INSTALL)
    if shutil.which("clang") is not None:
        flaw = _flaw("clang")
        if flaw is None:
            yield COMPILERS.ok("clang", f"{shutil.which('clang')} compiles and its program runs")
        else:
            yield COMPILERS.warning(
                "clang", f"{flaw}: zig builds XNNPACK", "sudo apt install clang libc6-dev"
            )


@host_checks(COMPILERS.name)
def build_tools(_: Host) -> Iterator[Finding]:
    for name, folder in (("cmake", "CMAKE_BIN_DIR"), ("ninja", "BIN_DIR")):
        fix = f"python -m pip install --force-reinstall {name}"
        try:
            tool = python_tool(name, folder)
        except BuildError as error:
            yield COMPILERS.problem(name, str(error), fix)
            continue
        flaw, says = _call([tool, "--version"])
        if flaw is not None:
            yield COMPILERS.problem(name, f"{tool} {flaw}", fix)
        else:
            yield COMPILERS.ok(name, f"{says.splitlines()[0].removeprefix('cmake version ')}")


def _flaw(compiler: str) -> str | None:
    """Why a compiler does not do, None where its program runs and says what it should."""
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
    """Why zig does not do, None where it compiles for Android, and links a program for here."""
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
    said = (words or done.stderr.splitlines() or ["without a word"])[0]
    return f"ended with {done.returncode}: {said.strip()[:200]}", done.stdout
