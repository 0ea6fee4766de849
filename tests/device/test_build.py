"""Building agent and emulator: the cache, both compilers, and what a failure says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nnapi_prof import toolchain
from nnapi_prof.device import build
from nnapi_prof.device.protocol import AgentInfo
from nnapi_prof.device.protocol.lines import parse_line
from nnapi_prof.errors import BuildError
from nnapi_prof.nnapi.codes import OperationCode
from tests.conftest import REPO
from tests.parts import again_but
from tests.processes import output_of

TINY_CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(tiny LANGUAGES C)
add_library(np_agent STATIC emulator/lib.c)
add_library(np_runtime STATIC emulator/lib.c)
add_executable(agent src/main.c)
target_link_libraries(agent PRIVATE np_agent np_runtime)
add_library(neuralnetworks SHARED emulator/lib.c)
add_library(nnapi_support SHARED emulator/lib.c)
add_library(neuron_adapter SHARED emulator/lib.c)
"""


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A source tree that builds in a second, in place of the agent's."""
    source = tmp_path / "source"
    for folder in ("src", "emulator"):
        (source / folder).mkdir(parents=True)
    (source / "CMakeLists.txt").write_text(TINY_CMAKE)
    (source / "src" / "main.c").write_text(
        '#include <stdio.h>\nint main(void) { return puts("tiny") < 0; }\n'
    )
    (source / "emulator" / "lib.c").write_text("int np_tiny(void) { return 1; }\n")
    monkeypatch.setattr(build, "SOURCE_DIR", source)
    return source


@pytest.mark.parametrize(
    "compiler", again_but(["", "zig"], "", why="zig builds for Android in another test")
)
def test_built_once_and_again_when_a_source_changes(tiny, tmp_path, monkeypatch, compiler):
    monkeypatch.setenv("NNAPI_PROF_CC", compiler)
    # zig's own cache of libc is large and slow to make: it stays where it is.
    heard: list[str] = []
    first = build.build_host(tmp_path / "cache", heard.append)
    assert output_of([first.agent]) == "tiny\n"
    assert first.library.exists()
    assert build.build_host(tmp_path / "cache", heard.append) == first
    (told,) = heard
    assert ("zig-cc" in told) == (compiler == "zig")

    main = tiny / "src" / "main.c"
    main.write_text(main.read_text().replace("tiny", "changed"))
    second = build.build_host(tmp_path / "cache", heard.append)
    assert second.directory != first.directory
    assert output_of([second.agent]) == "changed\n"
    assert output_of([first.agent]) == "tiny\n"
    leftovers = [p.name for p in first.directory.parent.iterdir() if p.name.startswith("build-")]
    assert leftovers == []


def test_without_a_working_cc_zig_builds(tiny, tmp_path, monkeypatch):
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert toolchain.find_compiler(tmp_path / "cache").path.name == "zig-cc"


def test_the_compilers_words_reach_the_user(tiny, tmp_path):
    (tiny / "src" / "main.c").write_text("int main(void) { return no_such_thing; }\n")
    words = f"(?s)^the agent could not be compiled from {tiny}:\n.*no_such_thing"
    with pytest.raises(BuildError, match=words):
        build.build_host(tmp_path / "cache")


def test_a_named_compiler_that_does_not_work(tmp_path, monkeypatch):
    monkeypatch.setenv("NNAPI_PROF_CC", "no-such-compiler")
    with pytest.raises(BuildError, match="NNAPI_PROF_CC is 'no-such-compiler', which is not a"):
        build.build_host(tmp_path)


def test_processes_at_once_build_once(tiny, tmp_path):
    script = (
        "import sys; from pathlib import Path; from nnapi_prof.device import build;"
        f"build.SOURCE_DIR = Path({str(tiny)!r});"
        f"print(build.build_host(Path({str(tmp_path / 'cache')!r}), print).agent)"
    )
    command, env = [sys.executable, "-c", script], {**os.environ, "PYTHONPATH": str(REPO)}
    pipes = dict(stdout=subprocess.PIPE, text=True, env=env)
    runs = [subprocess.Popen(command, **pipes) for _ in range(3)]
    words = [run.communicate(timeout=120)[0].splitlines() for run in runs]
    assert len({lines[-1] for lines in words}) == 1
    assert sum(len(lines) for lines in words) == 4, words  # one of them built, and said so


def test_devices_that_no_agent_exists_for(built_host, tmp_path, monkeypatch):
    words = "the device is android on riscv64: agents exist for andr"
    with pytest.raises(BuildError, match=words):
        build.agent_binary("riscv64", "android")
    monkeypatch.setitem(sys.modules, "ziglang", None)  # which is not looked for
    with pytest.raises(BuildError, match=words):
        toolchain.cross_compiler("riscv64", "android", tmp_path)
    assert build.agent_binary(build.host_abi(), "linux") == built_host.agent


def test_the_program_that_makes_builds(built_host, tmp_path, monkeypatch, capsys):
    def main(*words: str) -> tuple[int, list[str], str]:
        monkeypatch.setattr(sys, "argv", ["build", *words])
        code = build._main()
        out, err = capsys.readouterr()
        return code, out.splitlines(), err

    assert main() == (0, [str(built_host.agent), str(built_host.library)], "")
    words = "python -m nnapi_prof.device.build: the device is linux on riscv64: agents exist for"
    code, out, err = main("--abi", "riscv64", "--os", "linux")
    assert (code, out) == (1, []) and err.startswith(words)
    agents = tmp_path / "agents"
    monkeypatch.setattr(build, "AGENTS_DIR", agents)
    # Agents of all devices take minutes.
    monkeypatch.setattr(build, "build_agent", lambda *_, **__: built_host.agent)
    shipped = [agents / f"{os_name}-{abi}" / "agent" for os_name, abi in build.SHIPPED]
    assert main("--shipped") == (0, list(map(str, shipped)), "")
    arm64 = build.shipped_agent("arm64-v8a", "android", build.sources_key(), agents)
    assert arm64 == agents / "android-arm64-v8a" / "agent"
    assert {path.read_bytes() for path in shipped} == {built_host.agent.read_bytes()}
    assert main("--abi", "x86_64") == (0, [str(built_host.agent)], "")
    assert main("--clean") == (0, [], "") and not agents.exists()


def test_a_cache_that_is_no_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BuildError, match=f"cannot be built in {tmp_path}/file: Not a directory: "):
        build.build_agent("arm64-v8a", "android", tmp_path / "file")


@pytest.mark.again("zig builds for Android in another test")
@pytest.mark.parametrize(("abi", "machine"), [("arm64-v8a", 183), ("x86_64", 62)])
def test_agents_for_other_linux_machines(tiny, tmp_path, monkeypatch, abi, machine):
    monkeypatch.setenv("NNAPI_PROF_XNNPACK", "")
    heard: list[str] = []
    agent = build.build_agent(abi, "linux", tmp_path / "cache", heard.append)
    assert agent.read_bytes()[:4] == b"\x7fELF"
    assert int.from_bytes(agent.read_bytes()[18:20], "little") == machine
    assert build.build_agent(abi, "linux", tmp_path / "cache", heard.append) == agent
    words = f"building the agent for linux-{abi} with zig-cc (its first use takes a minute)"
    assert heard == [words]


def test_presets_for_an_ndk():
    cmake = toolchain.python_tool("cmake", "CMAKE_BIN_DIR")
    listed = output_of([cmake, "--list-presets"], cwd=build.SOURCE_DIR)
    assert all(f'"android-{abi}"' in listed for abi in toolchain.ANDROID_ABIS)


@pytest.mark.parametrize("named", [None, "/no/such/ndk"])
def test_a_missing_ndk_is_told_in_a_sentence(tmp_path, named):
    cmake = toolchain.python_tool("cmake", "CMAKE_BIN_DIR")
    env = {k: v for k, v in os.environ.items() if k != "ANDROID_NDK_HOME"}
    if named is not None:
        env["ANDROID_NDK_HOME"] = named
    command = [cmake, "--preset", "android-x86_64", "-B", str(tmp_path / "b")]
    done = subprocess.run(command, cwd=build.SOURCE_DIR, env=env, capture_output=True, text=True)
    assert done.returncode != 0
    words = " ".join(done.stderr.split())
    assert f'ANDROID_NDK_HOME is "{named or ""}", where there is no Android NDK.' in words
    assert "python -m nnapi_prof.device.build --abi x86_64" in words


def test_the_cache_is_where_the_environment_says(monkeypatch):
    monkeypatch.delenv("NNAPI_PROF_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x/cache")
    assert toolchain.cache_dir() == Path("/x/cache/nnapi-prof")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/x/home")
    assert toolchain.cache_dir() == Path("/x/home/.cache/nnapi-prof")


def test_the_agent_needs_only_libc_of_the_device(built_host):
    words = output_of(["ldd", built_host.agent])
    needed = {line.split()[0] for line in words.splitlines() if "=>" in line}
    allowed = ("libc.so", "libm.so", "libdl.so", "libpthread.so")
    assert all(name.startswith(allowed) for name in needed), needed


@pytest.mark.again("builds the whole agent; of a small source another test does it")
def test_the_agent_itself_builds_without_a_system_compiler(monkeypatch, session_environment):
    """zig lacks what gcc's own runtime library offers: this is where that shows."""
    monkeypatch.setenv("NNAPI_PROF_CC", "zig")
    built = build.build_host(Path(os.environ["NNAPI_PROF_CACHE_DIR"]))
    info = parse_line(output_of([built.agent, "info", "--nnapi-library", built.library]))
    assert isinstance(info, AgentInfo)
    assert info.nnapi.accelerators


@pytest.mark.parametrize("abi, os_name", [("arm64-v8a", "android"), ("arm64-v8a", "linux")])
def test_another_devices_agent_without_zig(tmp_path, monkeypatch, abi, os_name):
    """A system compiler that is there does not help, so nobody is told to install one."""
    monkeypatch.setitem(sys.modules, "ziglang", None)
    with pytest.raises(BuildError, match=f"for {os_name} on {abi} is built with .*ziglang") as told:
        toolchain.cross_compiler(abi, os_name, tmp_path)
    assert "gcc" not in str(told.value)


def test_every_source_of_an_agent_belongs_to_its_key():
    named = {path for pattern in build.SOURCES for path in build.SOURCE_DIR.glob(pattern)}
    folders = ("include", "runtime", "emulator", "src", "library")
    sources = {p for name in folders for p in (build.SOURCE_DIR / name).rglob("*.[ch]")}
    assert {p for p in sources if "java" not in p.parts} <= named


def test_the_host_alone_has_operations_that_no_conversion_produces():
    """Each in a folder of its own, all the others beside it."""
    kernels = build.SOURCE_DIR / "runtime" / "kernels"
    apart = re.findall(r"np_kernel_([A-Z0-9_]+) =", _text(kernels.glob("host_only/*.c")))
    product = Path(build.__file__).parent.parent
    converter = [p for p in product.rglob("*.py") if p.parent.name != "nnapi"]
    names = set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", _text(converter)))
    produced = {op.name for op in OperationCode if op.name in names}
    loops = {OperationCode.IF.name, OperationCode.WHILE.name}  # have no kernel
    assert len(apart) == 18
    assert set(apart) == {op.name for op in OperationCode} - produced - loops


def _text(paths):
    return "".join(path.read_text(encoding="utf-8") for path in paths)
