"""Compilers that are missing, broken, or build what does not run."""

import os
import shutil
import sys

import pytest

from nnapi_prof.doctor import Host, host
from tests.doctor.common import problem, script, warning, well


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """The PATH: an empty folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("NNAPI_PROF_CC", raising=False)
    return folder


def test_what_is_here_works(monkeypatch):
    monkeypatch.delenv("NNAPI_PROF_CC", raising=False)
    assert well(host.zig(Host())) == "compiles for Android"
    assert well(host.build_tools(Host())).startswith("cmake ")


def test_no_compiler_but_zig_or_none_at_all(tools, monkeypatch):
    words = well(host.c_compiler(Host()))
    assert words == "there is no cc on the PATH: zig builds for this host, too"
    monkeypatch.setitem(sys.modules, "ziglang", None)
    words, fix = problem(host.c_compiler(Host()))
    assert words == "there is no cc on the PATH, and zig does not work either"
    assert fix.startswith("sudo apt install gcc libc6-dev")
    assert problem(host.zig(Host()))[1] == "python -m pip install --force-reinstall ziglang"


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a compiler to break")
def test_a_compiler_without_headers(tools):
    real = shutil.which("cc", path=os.defpath)
    script(tools / "cc", f'PATH={os.defpath} exec {real} -nostdinc "$@"')
    words, _fix = warning(host.c_compiler(Host()))
    assert f"{tools}/cc does not compile a small program: it ended with 1: " in words
    assert "math.h" in words and words.endswith(": zig takes its place")


def test_a_program_that_does_not_run(tools):
    """As one for another machine: compiled without complaint, and of no use here."""
    script(tools / "cc", 'PATH=/bin:/usr/bin; printf garbage >"$3"; chmod 755 "$3"')
    words, _ = warning(host.c_compiler(Host()))
    assert f"{tools}/cc compiles, but the program does not run: it cannot be started" in words


def test_a_compiler_that_is_named(tools, monkeypatch):
    monkeypatch.setenv("NNAPI_PROF_CC", "no-such-cc")
    words, fix = "there is no no-such-cc on the PATH", "unset NNAPI_PROF_CC, or name a working one"
    assert problem(host.c_compiler(Host())) == (words, fix)
